//! How the parts find and reach each other: private directories, Unix sockets, versions, typed errors, blobs in pieces.
//!
//! NET-1: a socket lies in a directory that only its user can enter, and a peer of another user is turned away.
//! NET-2: an error crosses the wire as a `Failure`; a transport that breaks becomes one too.
//!
//! Between hosts there are a link that loses nothing (`reliable`) and leases (`lease`), which nothing but the simulation uses
//! yet: on one machine head and agent are one process. TLS is not here yet.

mod blobs;
mod descriptors;
mod directory;
mod lease;
mod reliable;
mod socket;
mod status;

pub use blobs::{chunks, receive};
pub use descriptors::{
    descriptor_limit, give_descriptor_limit_back, raise_descriptor_limit, raise_driver_limit, too_few,
};
pub use directory::{DirectoryError, PANIC, PrivateDirectory, head_sockets, sweep};
pub use lease::{Change, Given, Held, LEASE, MARGIN, UNREACHABLE};
pub use reliable::{Frame, Link, Received};
pub use socket::{accept_own, check_versions, connect};
pub use status::{from_status, to_status};
