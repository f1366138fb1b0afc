//! Data sets: rows from files or from memory, streamed into training. (Feature `data`.)
//!
//! A [`Dataset`] is a plan: where rows come from, and what becomes of them. Nothing is read before somebody asks. It is the engine
//! that Python's `carril.data` has, too: what is read fits into a budget of memory, and who reads which row is computed and never
//! agreed upon.
//!
//! ```
//! use carril::data::{Columns, Dataset};
//!
//! let squares = Dataset::from_rows((0..100).map(|x| [("x", x), ("y", x * x)].into_iter().collect::<std::collections::BTreeMap<_, _>>()))?;
//! let mut sum = 0;
//! for batch in squares.random_shuffle(7).iter_batches(32)? {
//!     sum += batch?.values::<i64>("y")?.iter().sum::<i64>();
//! }
//! assert_eq!(sum, 328_350);
//! # Ok::<(), carril::Error>(())
//! ```
//!
//! A [`Trainer`](crate::Trainer) is given data sets by name, and a worker asks its session for its part:
//!
//! ```no_run
//! use carril::data::{Columns, Dataset};
//! use carril::{Session, TrainResult, Trainer};
//!
//! fn train(session: &Session, epochs: u64) -> TrainResult {
//!     let shard = session.data_shard("train")?;
//!     while shard.epoch() < epochs {
//!         for batch in shard.iter_batches(64)? {
//!             let batch = batch?;
//!             let (x, y) = (batch.values::<f32>("x")?, batch.values::<f32>("y")?);
//!             // …
//!         }
//!         session.report_and_save(&serde_json::json!({"epoch": shard.epoch()}), |to| std::fs::write(to.join("model"), "…"))?;
//!     }
//!     Ok(())
//! }
//!
//! fn main() -> carril::Result<()> {
//!     carril::init!(train);
//!     let rows = Dataset::read_parquet("data/*.parquet").random_shuffle(7);
//!     Trainer::new(train, 10).workers(2).dataset("train", rows).fit()?;
//!     Ok(())
//! }
//! ```
//!
//! How far each rank has read goes with every report and is kept in the checkpoint. A run that goes on begins behind it, in the
//! middle of an epoch, also with another number of workers: each row comes once in each epoch.

mod change;
mod columns;
mod compare;
mod dataset;
mod error;
mod files;
mod plan;
mod rows;
mod shard;
pub(crate) mod training;
mod watch;

pub(crate) use change::BatchFunction;
pub use change::Change;
pub use columns::{Columns, Number};
pub use compare::Is;
pub use dataset::Dataset;
pub use files::{
    Binary, Csv, Files, Format, Images, Ipc, Json, Numpy, Parquet, Paths, Pixels, Text, TfRecord, WebDataset,
};
pub use shard::{Batches, DataShard, Uneven};

/// Arrow, in the version that this crate has: its arrays, builders, types and schemas.
///
/// ```
/// use std::sync::Arc;
///
/// use carril::data::arrow::{ArrayRef, Float32Array, RecordBatch};
///
/// let x: ArrayRef = Arc::new(Float32Array::from(vec![1.0, 2.0]));
/// let batch = RecordBatch::try_from_iter([("x", x)])?;
/// assert_eq!(batch.num_rows(), 2);
/// # Ok::<(), carril::data::arrow::ArrowError>(())
/// ```
pub mod arrow {
    pub use arrow_array::*;
    pub use arrow_cast::cast;
    pub use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, SchemaRef};
    pub use arrow_select::concat::concat_batches;
    pub use arrow_select::filter::filter_record_batch;
    pub use arrow_select::take::take_record_batch;
}
