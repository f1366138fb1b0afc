//! The driver's side of the protocol: starting a private head, connecting to one, and asking it things.

mod client;
mod private;

pub use client::{Client, RunWatch, hash_of};
pub use private::{PrivateHead, PrivateOptions, start_private};
