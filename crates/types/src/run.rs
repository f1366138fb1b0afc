//! What a driver asks for when it submits a run, and the words for how a run stands.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::failure::ErrorCode;
use crate::ids::Attempt;
use crate::resources::Resources;

/// The fields that the head adds to every report, under the names that scripts know from Ray.
pub const AUTOMATIC_FIELDS: &[&str] = &[
    "training_iteration",
    "_training_iteration",
    "time_this_iter_s",
    "_time_this_iter_s",
    "time_total_s",
    "time_since_restore",
    "iterations_since_restore",
    "timesteps_total",
    "timesteps_since_restore",
    "episodes_total",
    "warmup_time",
    "timestamp",
    "_timestamp",
    "date",
    "pid",
    "hostname",
    "node_ip",
    "trial_id",
    "experiment_id",
    "experiment_tag",
    "done",
    "config",
    "checkpoint_dir_name",
    "checkpoint_stall_s",
    "checkpoint_upload_s",
];

/// The interpreter that Python workers are forked from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PythonRuntime {
    pub executable: String,
    pub path: Vec<String>,
}

/// A pyarrow or fsspec object, pickled into a blob, with the interpreter that understands it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesystemSpec {
    pub executable: String,
    pub path: Vec<String>,
    /// The blob's hash.
    pub pickle: String,
}

/// Which of two scores is the better one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScoreOrder {
    #[default]
    Max,
    Min,
}

/// How a worker is started. The protocol beyond that knows no language.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerCommand {
    Python(PythonRuntime),
    Command { arguments: Vec<String> },
}

/// How a metric of all ranks becomes the run's one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduce {
    Mean,
    Sum,
    Min,
    Max,
}

/// What to do when the run's directory holds a run that has finished. One that has not is gone on with in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExisting {
    #[default]
    Refuse,
    /// Go on in the same directory with its latest checkpoint, as a Ray script expects.
    Reuse,
}

/// What to do when a run is to resume with another config than it was started with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OtherConfig {
    /// Say what differs.
    #[default]
    Warn,
    /// Nobody has said that this is meant.
    Refuse,
}

/// What the files that ranks report in one checkpoint must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointFiles {
    /// There are some, and no two ranks have different content under one name: one of the two would be lost.
    #[default]
    Strict,
    /// There may be none, and of two under one name that of the lower rank is kept, with a warning: Ray takes both.
    Lenient,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    pub name: String,
    pub storage_path: String,
    pub num_workers: u32,
    pub resources_per_worker: Resources,
    pub worker: WorkerCommand,
    pub working_directory: String,
    #[serde(default)]
    pub metrics_reduce: BTreeMap<String, Reduce>,
    /// Every worker of a node sees the devices of all of them, its own at its local rank.
    #[serde(default)]
    pub share_devices: bool,
    #[serde(default)]
    pub on_existing: OnExisting,
    #[serde(default)]
    pub other_config: OtherConfig,
    #[serde(default)]
    pub checkpoint_files: CheckpointFiles,
    /// The data sets by name, in words that say which rows they have.
    #[serde(default)]
    pub data: BTreeMap<String, String>,
    /// JSON text of what was asked, for `run.json`.
    #[serde(default)]
    pub record: String,
    #[serde(default = "one")]
    pub threads_per_worker: f64,
    /// A rank without progress for so many seconds ends the run. Without it, ten minutes bring a warning.
    #[serde(default)]
    pub hang_timeout_s: Option<f64>,
    #[serde(default)]
    pub filesystem: Option<FilesystemSpec>,
    #[serde(default)]
    pub num_to_keep: Option<u32>,
    /// A metric, `a/b` for a nested one. Without it, newer checkpoints are better.
    #[serde(default)]
    pub checkpoint_score_attribute: Option<String>,
    #[serde(default)]
    pub checkpoint_score_order: ScoreOrder,
    #[serde(default)]
    pub failures: FailureSpec,
    /// How long a function that is preempted has for a last checkpoint.
    #[serde(default = "preemption_grace")]
    pub preemption_grace_s: f64,
    /// The run whose head was lost, and which the same driver goes on with: what is left of its budgets is kept.
    #[serde(default)]
    pub continues: Option<String>,
    /// The panic that the lost head ended with, where it could tell.
    #[serde(default)]
    pub head_panic: Option<String>,
    /// The blob with the function that checks checkpoints.
    #[serde(default)]
    pub validation: Option<String>,
    /// The run is a trial of an experiment.
    #[serde(default)]
    pub trial: Option<TrialSpec>,
    /// The run whose worker has submitted this one: what that one holds is this one's first.
    #[serde(default)]
    pub parent: Option<String>,
}

/// Which trial a run is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrialSpec {
    pub experiment: String,
    pub number: u64,
    pub id: String,
    pub tag: String,
    /// The process goes on with another trial when this one is over.
    pub reuse: bool,
    /// The function begins in the trial's directory, not in the driver's.
    pub own_directory: bool,
    /// Reports up to this number are not decided on.
    pub free: u64,
}

fn preemption_grace() -> f64 {
    30.0
}

/// How many failures a run survives; -1 is any number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureSpec {
    pub max_failures: i64,
    /// Without a number of their own, failures of machines are counted with the user's, as in Ray.
    pub max_infrastructure_failures: Option<i64>,
    pub fail_fast: bool,
}

/// One attempt has failed and the next one follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    /// The one that follows.
    pub attempt: Attempt,
    /// The failure and the budget that pays for it, for people.
    pub reason: String,
    pub code: ErrorCode,
    /// What the failure is known again by.
    pub headline: String,
    /// How many reports there were.
    pub reports: u64,
}

fn one() -> f64 {
    1.0
}

/// A field of a specification that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    pub field: &'static str,
    pub reason: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.field, self.reason)
    }
}

impl std::error::Error for SpecError {}

impl RunSpec {
    pub fn check(&self) -> Result<(), SpecError> {
        let wrong = |field, reason: String| Err(SpecError { field, reason });
        if self.num_workers == 0 {
            return wrong("num_workers", "must be at least 1".into());
        }
        if self.name.is_empty() || self.name == "." || self.name == ".." {
            return wrong("name", format!("is `{}`: it must name a directory", self.name));
        }
        if let Some(bad) = self.name.chars().find(|c| *c == '/' || *c == '\0' || c.is_control()) {
            return wrong("name", format!("is `{}`: it becomes a directory and cannot hold {bad:?}", self.name));
        }
        if self.name.len() > 200 {
            return wrong("name", format!("has {} bytes: a directory's name has at most 200", self.name.len()));
        }
        let absolute = self.storage_path.starts_with('/') || self.storage_path.contains("://");
        if !absolute && self.filesystem.is_none() {
            return wrong("storage_path", format!("is `{}`: it must be an absolute path or a URI", self.storage_path));
        }
        if self.num_to_keep == Some(0) {
            return wrong("num_to_keep", "must be at least 1".into());
        }
        if let Some(seconds) = self.hang_timeout_s
            && !(seconds.is_finite() && seconds > 0.0)
        {
            return wrong("hang_timeout", format!("is {seconds}: it must be a positive number of seconds"));
        }
        if !(self.preemption_grace_s.is_finite() && self.preemption_grace_s >= 0.0) {
            let seconds = self.preemption_grace_s;
            return wrong("preemption_grace_s", format!("is {seconds}: it must be a number of seconds, 0 or more"));
        }
        if let WorkerCommand::Command { arguments } = &self.worker
            && arguments.is_empty()
        {
            return wrong("worker", "has an empty command line".into());
        }
        Ok(())
    }
}

/// How a run stands, in the word that is shown everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    Waiting,
    Starting,
    Running,
    Stopping,
    /// An attempt has failed; the next one is being prepared.
    Restarting,
    Finished,
    Failed,
    Aborted,
    /// The machine was taken away; the next `fit` goes on.
    Preempted,
}

impl RunStatus {
    pub fn name(self) -> &'static str {
        match self {
            RunStatus::Waiting => "waiting",
            RunStatus::Starting => "starting",
            RunStatus::Running => "running",
            RunStatus::Stopping => "stopping",
            RunStatus::Restarting => "restarting",
            RunStatus::Finished => "finished",
            RunStatus::Failed => "failed",
            RunStatus::Aborted => "aborted",
            RunStatus::Preempted => "preempted",
        }
    }

    pub fn is_end(self) -> bool {
        matches!(self, RunStatus::Finished | RunStatus::Failed | RunStatus::Aborted | RunStatus::Preempted)
    }
}

impl fmt::Display for RunStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a process ended, as `waitid` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    Code(i32),
    Signal(i32),
}

impl ExitStatus {
    /// Whose doing it is: a process leaves or crashes by its own code, and any other signal comes from outside.
    pub fn error_code(self) -> ErrorCode {
        match self {
            ExitStatus::Code(_) | ExitStatus::Signal(4 | 6 | 7 | 8 | 11 | 31) => ErrorCode::WorkerExited,
            ExitStatus::Signal(_) => ErrorCode::WorkerKilled,
        }
    }

    /// What became of the process: `left with exit code 3`, `was ended by SIGKILL`.
    pub fn what_happened(self) -> String {
        match self {
            ExitStatus::Code(code) => format!("left with exit code {code}"),
            ExitStatus::Signal(signal) => format!("was ended by {}", signal_name(signal)),
        }
    }
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitStatus::Code(code) => write!(f, "exit code {code}"),
            ExitStatus::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}
