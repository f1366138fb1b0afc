//! The wire messages (generated from `proto/carril.proto`) and their conversion to and from the shared types.

mod convert;

/// Raised by one with every change that an older peer would misread.
pub const PROTOCOL: u32 = 1;

/// The version of the package on this side.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Size of the pieces in which a blob travels.
pub const CHUNK: usize = 1 << 20;

pub mod v1 {
    #![allow(clippy::all, missing_docs)]
    tonic::include_proto!("carril.v1");
}
