//! The user's check of a checkpoint.

use serde::{Deserialize, Serialize};

/// What a report asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ValidationTask {
    /// What the user's function is given beside the checkpoint: a JSON object, as text.
    pub arguments: String,
    pub timeout_s: Option<f64>,
}

/// How far the check of a checkpoint has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValidationStatus {
    Pending,
    Validated,
    Failed,
    Timeout,
}

impl ValidationStatus {
    pub fn name(self) -> &'static str {
        match self {
            ValidationStatus::Pending => "pending",
            ValidationStatus::Validated => "validated",
            ValidationStatus::Failed => "failed",
            ValidationStatus::Timeout => "timeout",
        }
    }
}

/// As it is kept with the checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    pub status: ValidationStatus,
    #[serde(flatten)]
    pub task: ValidationTask,
}
