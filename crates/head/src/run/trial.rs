//! A run that is a trial of an experiment: its reports wait for decisions, and what is told of it goes to the experiment.

use carril_core::tune::experiment::Verdict;
use carril_proto::v1;
use carril_types::{Rank, TrialSpec, Value};

use super::Run;
use crate::outside::{Outside, RunDisk};

/// What a rank waits for after a report.
pub(super) const DECISION: &str = "decision";

pub(crate) struct Trial {
    pub spec: TrialSpec,
    /// For the experiment, which takes it after each message.
    pub outbox: Vec<v1::RunEvent>,
    /// The report that was decided on last, and what was decided.
    decided: (u64, Verdict),
    free: u64,
    /// Ranks that wait for the decision about their report of that number.
    waiting: Vec<(Rank, u64)>,
    /// The experiment's watcher is behind: nothing is taken from the agent until it has caught up.
    pub held: bool,
    /// Its files, once it has ended, on a local path.
    pub disk: Option<Box<dyn RunDisk>>,
}

impl Trial {
    pub fn new(spec: TrialSpec) -> Self {
        let free = spec.free;
        Self {
            spec,
            outbox: Vec::new(),
            decided: (0, Verdict::Continue),
            free,
            waiting: Vec::new(),
            held: false,
            disk: None,
        }
    }
}

impl Run {
    pub(super) fn is_held(&self) -> bool {
        self.trial.as_ref().is_some_and(|trial| trial.held)
    }

    /// `sequence` is the number of the report, from 0.
    pub(super) fn on_decision_wanted(&mut self, rank: Rank, sequence: u64, outside: &mut dyn Outside) {
        let Some(trial) = &mut self.trial else {
            // Nobody decides about a run that is no trial.
            return self.wait_over(rank, DECISION, sequence, Ok(words(Verdict::Continue, u64::MAX)), outside);
        };
        if trial.decided.0 > sequence {
            let answer = words(trial.decided.1, trial.free);
            return self.wait_over(rank, DECISION, sequence, Ok(answer), outside);
        }
        trial.waiting.push((rank, sequence));
    }

    /// What becomes of the report of that number, from 1.
    pub fn decided(&mut self, number: u64, verdict: Verdict, free: u64, outside: &mut dyn Outside) {
        let Some(trial) = &mut self.trial else { return };
        trial.decided = (number, verdict);
        trial.free = free;
        let (over, waiting) = std::mem::take(&mut trial.waiting).into_iter().partition(|(_, wait)| *wait < number);
        trial.waiting = waiting;
        for (rank, sequence) in over {
            self.wait_over(rank, DECISION, sequence, Ok(words(verdict, free)), outside);
        }
    }

    pub(super) fn working_directory(&self) -> String {
        match &self.trial {
            Some(trial) if trial.spec.own_directory => self.path.display().to_string(),
            _ => self.spec.working_directory.clone(),
        }
    }

    pub(super) fn trial_for_worker(&mut self) -> Option<v1::Trial> {
        let reached = self.saving.reached();
        let trial = self.trial.as_mut()?;
        // The attempt before may have ended while its report was judged.
        trial.waiting.clear();
        let config = match &self.config {
            Value::Map(config) => config.clone(),
            _ => Default::default(),
        };
        let spec = &trial.spec;
        Some(v1::Trial {
            id: spec.id.clone(),
            name: self.spec.name.clone(),
            config: Some(config.into()),
            free: trial.free,
            pool: if spec.reuse { spec.experiment.clone() } else { String::new() },
            resources: self.spec.resources_per_worker.iter().map(|(name, amount)| (name.to_owned(), amount)).collect(),
            experiment: spec.experiment.clone(),
            iteration: (reached.reports as i64 + reached.ahead).max(0) as u64,
            seconds: reached.seconds,
        })
    }
}

/// The verdict, and up to which report nobody need ask.
fn words(verdict: Verdict, free: u64) -> Vec<u8> {
    let verdict = match verdict {
        Verdict::Continue => "continue",
        Verdict::Save => "save",
        Verdict::Pause => "pause",
        Verdict::Stop => "stop",
    };
    format!("{verdict} {free}").into_bytes()
}
