//! For tests: a private head with a client beside it, and runs of the worker in Rust (`carril-test-worker`).
//!
//! The test worker is a plain program under the same head and agent as any other worker; what it does is its argument.

mod fixture;
mod programs;

pub use fixture::{Fixture, RunEnd};
pub use programs::{build, build_examples};
