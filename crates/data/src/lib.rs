//! Data sets: readers of files, the order in which rows are read, a stream with a budget of memory, batches.
//!
//! Everything here is Rust and blocking; Python functions run in other processes, behind `Transform`. What is read, in which
//! order and by which rank is computed (`order`), never agreed upon.

mod batch;
mod board;
mod columns;
mod engine;
mod error;
mod files;
mod gather;
mod join;
pub mod mapper;
pub mod object;
pub mod order;
mod pass;
mod pieces;
pub mod read;
mod shard;
mod source;
mod subset;
pub mod tensor;
mod union;
mod watch;
pub mod write;

pub use batch::{Batches, NextBatch};
pub use columns::{Columns, project};
pub use engine::{Next, Pipeline, Stream, StreamOptions, Transform, bytes_of};
pub use error::DataError;
pub use files::{FileOptions, FileRef, PartitionValue, Partitions, find_files};
pub use join::{alike, common, fitted, joined};
pub use pass::{Pass, PassSpec};
pub use shard::{Cut, Epoch, MARK, Progress, Shard, ShardOptions, Uneven, carried, positions};
pub use source::{Flow, Source, Unit};
pub use subset::{Selection, Subset, count};
pub use union::Union;
pub use watch::{Asked, Found, Watch};
