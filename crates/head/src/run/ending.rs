//! The end of a run, and what keeps its files elsewhere up to date until then.

use std::time::Duration;

use carril_core::Ending;
use carril_proto::v1;
use carril_types::{Failure, RunStatus, Value};

use super::Run;
use crate::mirror::Mirror;
use crate::outside::{Closed, Outside};
use crate::words::error_files;

/// How often the owner's record is renewed, and the storage elsewhere brought up to date.
pub(super) const UPKEEP_EVERY: Duration = Duration::from_secs(10);

impl Run {
    pub(super) fn end(&mut self, ending: Ending, outside: &mut dyn Outside) {
        self.status = (ending.status, ending.headline.clone());
        self.stack_askers.clear();
        let now = outside.now();
        let error = (ending.status != RunStatus::Finished).then(|| error_files(&ending));
        if let Err(failure) = self.disk.end(ending.status, now, error) {
            self.publish(v1::Warning { text: failure.message }, outside);
        }
        self.disk = Box::new(Closed);
        if let Some(last) = &mut self.last {
            // Only now is it known to be the last. A key of the user's own is left alone.
            if self.last_by_rank[0].get("done").is_none() {
                last.set("done", Value::Bool(ending.status == RunStatus::Finished));
            }
            if self.saving.upload > 0.0 && self.last_by_rank[0].get("checkpoint_upload_s").is_none() {
                last.set("checkpoint_upload_s", Value::Float(self.saving.upload));
            }
            last.set_default("config", self.config.clone());
        }
        let ranks = (0..)
            .zip(std::mem::take(&mut self.last_by_rank))
            .map(|(rank, metrics)| v1::RankReport { rank, metrics: Some(metrics.into()) })
            .collect();
        self.ending = Some(v1::RunEnded {
            status: ending.status.name().into(),
            headline: ending.headline,
            failure: ending.failure.map(Into::into),
            failures: ending.failures.into_iter().map(Into::into).collect(),
            metrics: self.last.clone().map(Into::into),
            ranks,
            checkpoints: self.kept_checkpoints(),
            return_values: ending.return_values.into_iter().map(Option::unwrap_or_default).collect(),
            iterations: self.iterations,
            seconds: self.automatic.seconds(now),
            restarts: self.restarts.clone(),
            timed_out: ending.timed_out,
        });
        self.finish(outside);
    }

    /// Tells the ending as soon as the storage has everything that it should have, and nothing else.
    pub(crate) fn finish(&mut self, outside: &mut dyn Outside) {
        if self.ending.is_none() || self.saving.is_discarding() {
            return;
        }
        match self.mirror.take() {
            Some(mirror) => {
                self.last_round = true;
                outside.mirror(self.id.clone(), mirror);
            }
            // A round that is going on is followed by the last one when it comes back.
            None if self.storage.as_ref().is_some_and(|storage| storage.local_path().is_none()) => {}
            None => self.tell_ending(outside),
        }
    }

    pub(super) fn tell_ending(&mut self, outside: &mut dyn Outside) {
        let Some(ending) = self.ending.take() else { return };
        self.ended = true;
        self.storage = None;
        self.drop_checkpoint(None, outside);
        if self.checks_for.is_some() {
            self.outcome = Some(ending);
        } else {
            self.publish(ending, outside);
        }
    }

    pub(crate) fn take_mirror(&mut self) -> Option<Mirror> {
        self.mirror.take()
    }

    /// What a later head must know does not wait for its turn.
    pub(super) fn mirror_now(&mut self, outside: &mut dyn Outside) {
        if let Some(mirror) = self.mirror.take() {
            outside.mirror(self.id.clone(), mirror);
        }
    }

    /// Sends what has changed to the storage elsewhere, unless that is going on.
    fn mirror_if_due(&mut self, outside: &mut dyn Outside) {
        if let Some(mirror) = self.mirror.take_if(|mirror| mirror.is_due()) {
            outside.mirror(self.id.clone(), mirror);
        }
    }

    pub fn on_mirrored(&mut self, mirror: Mirror, result: Result<(), Failure>, outside: &mut dyn Outside) {
        if let Err(failure) = &result {
            self.publish(v1::Warning { text: format!("the storage is behind: {}", failure.message) }, outside);
        }
        if !self.last_round {
            self.mirror = Some(mirror);
            return self.finish(outside);
        }
        match result {
            Ok(()) => mirror.remove_local(),
            Err(_) => {
                let text = format!("what the storage lacks is in `{}`", self.path.display());
                self.publish(v1::Warning { text }, outside);
            }
        }
        self.tell_ending(outside);
    }

    pub fn on_upkeep_due(&mut self, outside: &mut dyn Outside) {
        if self.ended || self.ending.is_some() {
            return;
        }
        if let Err(failure) = self.disk.renew(outside.now()) {
            self.publish(v1::Warning { text: failure.message }, outside);
        }
        self.mirror_if_due(outside);
        outside.set_upkeep_timer(self.id.clone(), UPKEEP_EVERY);
    }
}
