//! What an experiment is told, what it wants done, what it asks of the driver, and what is written down.

use carril_types::{Failure, Metrics, Resources};

use crate::tune::TrialId;
use crate::tune::scheduler::{Decision, Order, Path, Policy};

#[derive(Clone, Debug, PartialEq)]
pub enum ExperimentEvent {
    Begun,
    /// With what the driver's scheduler decided about other trials meanwhile.
    Answered {
        question: u64,
        answer: Answer,
        orders: Vec<Order>,
    },
    /// The trial has room, and runs.
    Placed {
        trial: TrialId,
    },
    /// The trial can never run.
    Refused {
        trial: TrialId,
        reason: String,
    },
    /// The report of that number, from 1, with the automatic fields.
    Reported {
        trial: TrialId,
        number: u64,
        result: Metrics,
    },
    RunEnded {
        trial: TrialId,
        end: RunEnd,
    },
    /// What every trial needs is gone, such as the storage. The trial could not begin, or its end not be written, for that.
    Broken {
        trial: Option<TrialId>,
        failure: Failure,
    },
    /// Somebody wants the end; what runs is unfinished.
    StopRequested {
        reason: String,
    },
    /// The time is over: the experiment ends well, and what runs is unfinished.
    EnoughSeen {
        reason: String,
    },
}

/// How the process of a trial has ended.
#[derive(Clone, Debug, PartialEq)]
pub enum RunEnd {
    Finished,
    Failed(String),
    Aborted(String),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// The config of the next trial.
    Suggest {
        trial: TrialId,
    },
    /// Functions of the user's complete the config; `paths` are the places that a scheduler wants drawn.
    Resolve {
        trial: TrialId,
        config: Metrics,
        paths: Vec<Path>,
        explored: bool,
    },
    Judge {
        trial: TrialId,
        result: Metrics,
    },
    /// `exhausted`: there will be no others.
    Choose {
        pending: Vec<TrialId>,
        paused: Vec<TrialId>,
        exhausted: bool,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Config(Metrics),
    NotNow,
    Finished,
    /// With the names of the trial and of its directory, and with what it reserves, where the user says so.
    Resolved {
        config: Metrics,
        names: Option<(String, String)>,
        resources: Option<Resources>,
    },
    /// `Complete` where a rule of the user's is fulfilled, `Stop` where the user's scheduler thinks that it is not worth more.
    /// `saves`: others may go on from where it is.
    Judged {
        decision: Decision,
        reason: String,
        saves: bool,
        stop_all: bool,
    },
    Chosen(Option<TrialId>),
}

/// What a trial is told after a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Continue,
    /// Goes on, and saves a checkpoint that others may go on from, if that is its own to decide.
    Save,
    /// Saves a checkpoint and leaves.
    Pause,
    Stop,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ExperimentCommand {
    Ask {
        question: u64,
        about: Question,
    },
    /// Starts the trial, from its newest checkpoint if there is one. The answer is `Placed` or `Refused`.
    Submit {
        trial: TrialId,
        resources: Option<Resources>,
        free: u64,
    },
    /// Copies the newest checkpoint of another trial to be this one's newest. Done before anything else happens to the trial.
    Adopt {
        trial: TrialId,
        from: TrialId,
    },
    /// What becomes of the report of that number. Reports up to `free` need not ask.
    Decide {
        trial: TrialId,
        number: u64,
        verdict: Verdict,
        free: u64,
        reason: String,
    },
    StopTrial {
        trial: TrialId,
        reason: String,
    },
    Record(Record),
    LogPolicy(Policy),
    Warn(String),
    End(ExperimentEnd),
}

/// What is written down; replayed in this order it gives the same experiment.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    Made {
        trial: TrialId,
        config: Metrics,
        names: Option<(String, String)>,
        resources: Option<Resources>,
    },
    /// It was made, but the record of that is lost: its directory was found, or its number is missing between others. The config is what
    /// its files have.
    Found {
        trial: TrialId,
        config: Option<Metrics>,
    },
    /// What the scheduler was told, and whether others were waiting for a place then.
    Told {
        trial: TrialId,
        result: Metrics,
        others_wait: bool,
    },
    Chosen {
        trial: TrialId,
    },
    Paused {
        trial: TrialId,
        reason: String,
    },
    Exploited {
        trial: TrialId,
        from: TrialId,
        config: Metrics,
        reason: String,
    },
    ExploitRefused {
        trial: TrialId,
    },
    Ended(EndedTrial),
}

impl Record {
    pub fn trial(&self) -> TrialId {
        match self {
            Record::Made { trial, .. }
            | Record::Found { trial, .. }
            | Record::Told { trial, .. }
            | Record::Chosen { trial }
            | Record::Paused { trial, .. }
            | Record::Exploited { trial, .. }
            | Record::ExploitRefused { trial } => *trial,
            Record::Ended(ended) => ended.trial,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct EndedTrial {
    pub trial: TrialId,
    pub reason: String,
    /// The headline of its failure.
    pub error: Option<String>,
    pub by_scheduler: bool,
    /// A scheduler ended it before its time.
    pub early: bool,
    /// That of its last report, where an exploit has changed it since.
    pub config: Option<Metrics>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ExperimentEnd {
    Finished(String),
    Stopped(String),
    Failed(String),
    Broken(Failure),
}

impl ExperimentEnd {
    pub fn reason(&self) -> &str {
        match self {
            ExperimentEnd::Finished(reason) | ExperimentEnd::Stopped(reason) | ExperimentEnd::Failed(reason) => reason,
            ExperimentEnd::Broken(failure) => &failure.message,
        }
    }
}
