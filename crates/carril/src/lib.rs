//! Distributed training for Rust: one function on many workers, checkpoints that can be believed, runs that go on after a failure,
//! and hyper-parameter search.
//!
//! A program names its training functions once, in the first line of `main`. A [`Trainer`] or a [`Tuner`] then executes the
//! program again as its workers: nothing has to be installed or started first, and nothing is left behind when it ends.
//!
//! ```no_run
//! use carril::{Session, TrainResult, Trainer};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Config {
//!     rate: f64,
//! }
//!
//! fn train(session: &Session, config: Config) -> TrainResult {
//!     let mut weight = 1.0;
//!     for step in 0..100 {
//!         weight -= config.rate * weight;
//!         session.report(&serde_json::json!({"step": step, "loss": weight * weight}))?;
//!     }
//!     Ok(())
//! }
//!
//! fn main() -> carril::Result<()> {
//!     carril::init!(train);
//!     let result = Trainer::new(train, Config { rate: 0.1 }).workers(2).fit()?;
//!     println!("loss {:?}, files in {}", result.metrics.number("loss"), result.path);
//!     Ok(())
//! }
//! ```
//!
//! - A report waits for nobody, and is not lost if the process dies right after it: [`Session::report`].
//! - A checkpoint exists when its checksummed manifest does: [`Session::report_and_save`], [`Checkpoint`].
//! - A worker that is killed, panics or fails is started again, with all others, from the latest checkpoint: [`FailureConfig`].
//! - Rows from files are streamed into training, in an order that is resumed in mid-epoch: `data`, with the feature of that name.
//! - An error or a panic reaches the driver with its rank, its line and its causes: [`Error`].

#![deny(missing_docs)]

mod again;
mod blocking;
mod callback;
mod checkpoint;
mod collective;
mod config;
mod console;
#[cfg(feature = "data")]
pub mod data;
mod decode;
mod driver;
mod encode;
mod error;
mod follow;
mod functions;
mod metrics;
mod result;
mod session;
mod signals;
mod trainer;
#[cfg(not(feature = "data"))]
mod training;
pub mod tune;
mod worker;

#[cfg(feature = "data")]
use data::training;

pub use callback::{Callback, CallbackResult, Report, RunInfo};
pub use checkpoint::Checkpoint;
pub use collective::{Element, Op};
pub use config::{CheckpointConfig, FailureConfig, Mode, Reduce, RunConfig, ScalingConfig};
pub use driver::{Machine, shutdown, start};
pub use error::{BoxError, Error, RankFailure, Result, TrainError, TrainResult};
pub use functions::{Function, Named, init};
pub use metrics::Metrics;
pub use result::{Restart, RunResult};
pub use session::{Preemption, Session, TrialInfo};
pub use trainer::Trainer;
pub use tune::Tuner;

/// The pieces of Rust in the readme are compiled with the examples of this crate.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
