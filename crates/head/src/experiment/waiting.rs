//! Trials that wait for room, and which of them the files say so of: for whoever looks on, not for a head that goes on.

use std::collections::BTreeMap;

use carril_core::tune::TrialId;

/// So many trials a second are said to wait: where more do, each waits for a moment only.
const PER_SECOND: f64 = 10.0;

#[derive(Default)]
pub(super) struct Waiting {
    /// Why each waits, until that is written.
    trials: BTreeMap<TrialId, Option<String>>,
    written: f64,
}

impl Waiting {
    pub fn begin(&mut self, trial: TrialId, reason: &str) {
        self.trials.insert(trial, Some(reason.to_owned()));
    }

    /// True where the files say that it waits.
    pub fn end(&mut self, trial: TrialId) -> bool {
        self.trials.remove(&trial) == Some(None)
    }

    /// What is to be written, so many seconds after the experiment began.
    pub fn due(&mut self, seconds: f64) -> Vec<(TrialId, String)> {
        let mut due = Vec::new();
        for (trial, reason) in &mut self.trials {
            if self.written >= PER_SECOND * (1.0 + seconds) {
                break;
            }
            if let Some(reason) = reason.take() {
                self.written += 1.0;
                due.push((*trial, reason));
            }
        }
        due
    }
}
