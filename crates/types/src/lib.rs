//! The words that every part of Carril shares: ids, resources, metrics, run specifications, failures.
//!
//! No behaviour beyond parsing, arithmetic and printing of these words lives here, and no dependency but serde.

mod failure;
mod ids;
mod json;
mod resources;
mod run;
mod validation;
mod value;
mod words;

pub use failure::{ErrorCode, Failure, Origin, WorkerFailure};
pub use ids::{Attempt, NodeId, Rank, RunId, WorkerKey};
pub use json::write_json;
pub use resources::{ResourceError, Resources};
pub use run::{
    AUTOMATIC_FIELDS, CheckpointFiles, ExitStatus, FailureSpec, FilesystemSpec, OnExisting, OtherConfig, PythonRuntime,
    Reduce, Restart, RunSpec, RunStatus, ScoreOrder, SpecError, TrialSpec, WorkerCommand,
};
pub use validation::{Validation, ValidationStatus, ValidationTask};
pub use value::{Metrics, Object, Value, exact};
pub use words::{count, near, shell_quoted, significant, verb};
