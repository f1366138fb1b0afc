//! Errors that keep their type from the system call to the retry policy and to the user.
//!
//! FAIL-1: a code has one origin and one answer to "is it worth trying again"; both are decided here and nowhere else.
//! FAIL-2: every code has a name that goes over the wire and comes back as the same code.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::Rank;
use crate::run::ExitStatus;

/// Whose fault it is: what the retry budgets go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The user's code or the user's request.
    User,
    /// A machine, a disk, a network, a signal from outside.
    Infrastructure,
    /// A scheduler took the machine away.
    Preemption,
    /// A bug of ours.
    Carril,
}

impl Origin {
    pub fn name(self) -> &'static str {
        match self {
            Origin::User => "user",
            Origin::Infrastructure => "infrastructure",
            Origin::Preemption => "preemption",
            Origin::Carril => "carril",
        }
    }
}

macro_rules! codes {
    ($($code:ident = $name:literal, $origin:ident, $retryable:literal;)*) => {
        /// What went wrong, as a thing that code can match on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum ErrorCode { $($code),* }

        impl ErrorCode {
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$code),*];

            pub fn name(self) -> &'static str {
                match self { $(ErrorCode::$code => $name),* }
            }

            pub fn from_name(name: &str) -> Option<ErrorCode> {
                match name { $($name => Some(ErrorCode::$code),)* _ => None }
            }

            pub fn origin(self) -> Origin {
                match self { $(ErrorCode::$code => Origin::$origin),* }
            }

            pub fn retryable(self) -> bool {
                match self { $(ErrorCode::$code => $retryable),* }
            }
        }
    };
}

codes! {
    InvalidConfig = "invalid-config", User, false;
    NoColumn = "no-column", User, false;
    NotAvailable = "not-available", User, false;
    RunExists = "run-exists", User, false;
    RunLive = "run-live", User, false;
    PlacementImpossible = "placement-impossible", User, false;
    BadMetrics = "bad-metrics", User, false;
    NotFound = "not-found", User, false;
    UserException = "user-exception", User, true;
    WorkerExited = "worker-exited", User, true;
    WorkerKilled = "worker-killed", Infrastructure, true;
    WorkerStopped = "worker-stopped", Infrastructure, true;
    Preempted = "preempted", Preemption, true;
    OutOfMemory = "out-of-memory", User, true;
    Hang = "hang", User, true;
    WorkerStartFailed = "worker-start-failed", Infrastructure, true;
    ReportMismatch = "report-mismatch", User, false;
    CollectiveMismatch = "collective-mismatch", User, false;
    CollectiveLost = "collective-lost", Infrastructure, true;
    CollectiveTimeout = "collective-timeout", Infrastructure, true;
    Checkpoint = "checkpoint", Infrastructure, true;
    CheckpointConflict = "checkpoint-conflict", User, false;
    Storage = "storage", Infrastructure, true;
    StorageRefused = "storage-refused", Infrastructure, false;
    Timeout = "timeout", Infrastructure, true;
    HeadLost = "head-lost", Infrastructure, true;
    AgentLost = "agent-lost", Infrastructure, true;
    VersionMismatch = "version-mismatch", User, false;
    Aborted = "aborted", User, false;
    Internal = "internal", Carril, false;
}

/// One error, complete: the code says what, the message names the thing, the hints say the way out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub code: ErrorCode,
    pub message: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
}

impl Failure {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hints: Vec::new() }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for hint in &self.hints {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// What one worker failed with. `exception` is pickled by the worker and opened only in the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerFailure {
    pub rank: Rank,
    pub failure: Failure,
    pub exception_type: String,
    pub traceback: String,
    /// The user's own file and line, empty when unknown.
    pub location: String,
    #[serde(skip)]
    pub exception: Vec<u8>,
    /// How the process ended, where that is what was seen of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ExitStatus>,
    /// The most bytes that the process had, where the kernel ended it for its memory.
    #[serde(skip)]
    pub peak_memory: u64,
}

impl WorkerFailure {
    /// A failure that no user code told of: an exit, a signal.
    pub fn of_process(rank: Rank, failure: Failure, last_output: String) -> Self {
        Self {
            rank,
            failure,
            exception_type: String::new(),
            traceback: last_output,
            location: String::new(),
            exception: Vec::new(),
            exit: None,
            peak_memory: 0,
        }
    }

    /// The sentence that stands first wherever this failure is shown.
    pub fn headline(&self) -> String {
        let place = if self.location.is_empty() { String::new() } else { format!(" at {}", self.location) };
        match self.exception_type.as_str() {
            "" => format!("rank {} failed: {}{place}", self.rank, self.failure.message),
            name if self.failure.message.is_empty() => format!("rank {} failed: {name}{place}", self.rank),
            name => format!("rank {} failed: {name}: {}{place}", self.rank, self.failure.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fail_2_every_code_survives_its_name() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_name(code.name()), Some(*code));
        }
        assert_eq!(ErrorCode::from_name("no-such-code"), None);
    }
}
