//! What must hold at every moment, and in the end.

use carril_proto::v1;
use carril_store::{Fact, Journal, JournalRecord, list_checkpoints, verify};
use carril_types::{ValidationStatus, WorkerKey};

use crate::sim::{STEPS, Sim};

impl Sim {
    /// SIM-2, after everything that has changed the storage.
    pub(crate) fn check_storage(&mut self) {
        let storage = self.storage();
        let listed = match list_checkpoints(&storage) {
            Ok(listed) => listed,
            Err(error) => return self.violated(format!("SIM-2: the checkpoints cannot be listed: {error}")),
        };
        let Some(newest) = listed.last() else {
            if self.newest > 0 {
                self.violated(format!("SIM-2: the checkpoint of report {} is gone", self.newest));
            }
            return;
        };
        match verify(&storage.join(&newest.name)) {
            Ok(Ok(manifest)) if manifest.iteration < self.newest => {
                let before = self.newest;
                self.violated(format!("SIM-2: from report {before} back to {}", manifest.iteration));
            }
            Ok(Ok(manifest)) => {
                if manifest.iteration > self.newest {
                    self.kernel.note(format!("checkpoint of report {}", manifest.iteration));
                }
                self.newest = manifest.iteration;
            }
            Ok(Err(damage)) => self.violated(format!("SIM-2: `{}` is damaged: {damage}", newest.name)),
            Err(error) => self.violated(format!("SIM-2: `{}` cannot be read: {error}", newest.name)),
        }
    }

    /// SIM-3, for each worker that begins.
    pub(crate) fn check_beginning(&mut self, key: &WorkerKey, assignment: &v1::Assignment) {
        let reports = assignment.reports;
        if reports != self.newest {
            self.violated(format!("SIM-3: {key} begins after report {reports}, and there is one of {}", self.newest));
        }
        if reports > 0 {
            let file = std::path::Path::new(&assignment.latest_checkpoint).join(format!("rank_{}", key.rank));
            let content = std::fs::read_to_string(&file).unwrap_or_default();
            if content != reports.to_string() {
                self.violated(format!("SIM-3: {key} begins after report {reports} with the weights of `{content}`"));
            }
        }
    }

    fn journal(&self) -> Vec<JournalRecord> {
        Journal::read(&self.directory.path().join("run/journal")).unwrap_or_default()
    }

    pub(crate) fn attempts(&self) -> u32 {
        let begun = |record: &JournalRecord| matches!(record.fact, Some(Fact::AttemptBegun { .. }));
        self.journal().iter().filter(|record| begun(record)).count() as u32
    }

    /// SIM-4 and SIM-5, when the driver has its answer.
    pub(crate) fn check_ending(&mut self) {
        if self.violation.is_some() {
            return;
        }
        let [ended] = self.ended() else {
            let count = self.ended().len();
            return self.violated(format!("SIM-4: {count} endings"));
        };
        let (status, headline, iterations) = (ended.status.clone(), ended.headline.clone(), ended.iterations);
        if status != "finished" || iterations != STEPS {
            self.violated(format!("SIM-5: {status} after {iterations} reports: {headline}"));
        }
        let mut caused = 0;
        for record in self.journal() {
            match record.fact {
                Some(Fact::Restarted(restart)) => caused = restart.attempt.0,
                Some(Fact::AttemptBegun { attempt, .. }) if attempt.0 > caused => {
                    self.violated(format!("SIM-4: nothing says why attempt {} began", attempt.0));
                }
                _ => {}
            }
        }
        let listed = list_checkpoints(&self.storage()).unwrap_or_default();
        let due = listed.iter().filter_map(|listed| listed.state.as_ref().ok()?.validation.as_ref());
        if due.clone().any(|validation| validation.status == ValidationStatus::Pending) {
            self.violated("SIM-6: a checkpoint was left without its check".into());
        }
        if due.count() == 0 {
            self.violated("SIM-6: no checkpoint was to be checked".into());
        }
        if let Some(left) = self.live_workers().first() {
            self.violated(format!("SIM-1: {left} has outlived its run"));
        }
        let text = std::fs::read_to_string(self.directory.path().join("run/result.json")).unwrap_or_default();
        let mut last = 0;
        for line in text.lines() {
            let iteration = serde_json::from_str::<serde_json::Value>(line)
                .ok()
                .and_then(|value| value.get("training_iteration")?.as_u64());
            match iteration {
                // A report of the attempt before may be made again, and none is left out.
                Some(iteration) if iteration <= last + 1 => last = iteration,
                other => return self.violated(format!("SIM-5: report {other:?} follows on {last} in result.json")),
            }
        }
        if last != STEPS {
            self.violated(format!("SIM-5: result.json ends with report {last}"));
        }
    }
}
