//! One trial, as the events of its experiment tell of it.

use carril_types::{Metrics, RunStatus, Value};

use super::{Reached, integer, map, number, text};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrialState {
    /// Made and never started, or chosen and without room.
    Pending,
    /// Started and not ended: where the experiment is not live, it is unfinished.
    Running,
    Paused,
    Terminated,
    /// A scheduler ended it before its time.
    Stopped,
    Error,
}

/// The word for a trial that has not ended when its experiment has: no event says so.
pub const UNFINISHED: &str = "unfinished";

impl TrialState {
    /// In the order in which they are told: first what goes on, then what is over.
    pub const ALL: [TrialState; 6] = [
        TrialState::Running,
        TrialState::Paused,
        TrialState::Pending,
        TrialState::Terminated,
        TrialState::Stopped,
        TrialState::Error,
    ];

    /// The one spelling of the state: in events, in files, on the screen and in commands.
    pub const fn word(self) -> &'static str {
        match self {
            TrialState::Pending => "pending",
            TrialState::Running => "running",
            TrialState::Paused => "paused",
            TrialState::Terminated => "terminated",
            TrialState::Stopped => "stopped",
            TrialState::Error => "error",
        }
    }

    pub fn is_over(self) -> bool {
        matches!(self, TrialState::Terminated | TrialState::Stopped | TrialState::Error)
    }
}

#[derive(Clone, Debug)]
pub struct Trial {
    pub number: u64,
    pub id: String,
    pub name: String,
    /// Below the experiment's.
    pub directory: String,
    /// As it is now: a scheduler may have changed it.
    pub config: Metrics,
    pub state: TrialState,
    /// Why it is in its state; of a failed one the headline of its error.
    pub reason: String,
    pub made: f64,
    /// When it last began to run, 0 where it never did: one that waits for room has not begun.
    pub started: f64,
    /// The one before that.
    began_before: f64,
    pub ended: Option<f64>,
    /// Its last result, with the automatic fields.
    pub metrics: Metrics,
    pub iterations: u64,
    pub seconds: f64,
    pub checkpoint: Option<String>,
}

impl Trial {
    pub(super) fn made(number: u64, event: &Metrics) -> Option<Self> {
        Some(Self {
            number,
            id: text(event, "id")?,
            name: text(event, "name").unwrap_or_default(),
            directory: text(event, "directory")?,
            config: map(event, "config").cloned().unwrap_or_default(),
            state: TrialState::Pending,
            reason: String::new(),
            made: at(event),
            started: 0.0,
            began_before: 0.0,
            ended: None,
            metrics: Metrics::default(),
            iterations: 0,
            seconds: 0.0,
            checkpoint: None,
        })
    }

    pub(super) fn take(&mut self, event: &Metrics) -> Option<()> {
        let reason = || text(event, "reason").unwrap_or_default();
        match text(event, "event")?.as_str() {
            "started" => {
                self.state = TrialState::Running;
                (self.began_before, self.started) = (self.started, at(event));
                self.ended = None;
                self.reason.clear();
            }
            "waits" => {
                self.state = TrialState::Pending;
                self.started = self.began_before;
                self.reason = reason();
            }
            "placed" => {
                self.state = TrialState::Running;
                self.started = at(event);
                self.reason.clear();
            }
            "paused" => {
                self.state = TrialState::Paused;
                self.reason = reason();
            }
            "exploited" => {
                if let Some(config) = map(event, "config") {
                    self.config = config.clone();
                }
                self.state = TrialState::Paused;
                self.reason = reason();
            }
            "ended" => return self.take_end(event, reason()),
            // What a later version tells of a trial says nothing to this one.
            _ => {}
        }
        Some(())
    }

    fn take_end(&mut self, event: &Metrics, reason: String) -> Option<()> {
        self.state = match text(event, "status")?.as_str() {
            "terminated" if event.get("early") == Some(&Value::Bool(true)) => TrialState::Stopped,
            "terminated" => TrialState::Terminated,
            _ => TrialState::Error,
        };
        self.reason = match (self.state, text(event, "error")) {
            (TrialState::Error, Some(headline)) => headline,
            _ => reason,
        };
        self.ended = Some(at(event));
        // One that an exploit gave it, and that it never reported with, is not the config of its result.
        if let Some(config) = map(event, "config") {
            self.config = config.clone();
        }
        self.metrics = map(event, "metrics").cloned().unwrap_or_default();
        self.iterations = integer(event, "iterations").unwrap_or(0);
        self.seconds = number(event, "seconds").unwrap_or(0.0);
        self.checkpoint = text(event, "checkpoint");
        Some(())
    }

    /// What its own files have of it, where no line tells.
    pub(super) fn take_reached(&mut self, reached: Reached) {
        self.state = match reached.ended {
            Some((RunStatus::Failed, headline)) => {
                self.reason = headline.trim_start_matches("rank 0 failed: ").to_owned();
                TrialState::Error
            }
            Some(_) => TrialState::Terminated,
            None if reached.last.is_some() => TrialState::Running,
            None => TrialState::Pending,
        };
        if let Some(last) = reached.last {
            self.set_last(last);
        }
        self.checkpoint = reached.checkpoint;
    }

    /// The last result, of one that has not ended.
    pub(super) fn set_last(&mut self, result: Metrics) {
        self.iterations = integer(&result, "training_iteration").unwrap_or(self.iterations);
        self.seconds = result.get("time_total_s").and_then(Value::as_f64).unwrap_or(self.seconds);
        self.metrics = result;
        // That of an earlier end may be gone by now.
        self.checkpoint = None;
    }
}

fn at(event: &Metrics) -> f64 {
    number(event, "at").unwrap_or(0.0)
}
