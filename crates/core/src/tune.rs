//! Hyper-parameter search: spaces, searchers and schedulers. A seed and events in, decisions out.

pub mod experiment;
mod linear;
pub mod random;
pub mod scheduler;
pub mod search;
pub mod space;
pub mod spec;

use serde::{Deserialize, Serialize};

/// A trial of an experiment, in the order in which trials were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TrialId(pub u64);

/// Which of two values of the metric is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    Min,
    Max,
}
