//! The end of a run, and what keeps its files elsewhere up to date until then.

use std::collections::VecDeque;
use std::time::Duration;

use carril_core::Ending;
use carril_proto::v1;
use carril_store::{RETRY, deadline};
use carril_types::{Failure, RunStatus, Value, WorkerCommand};

use super::Run;
use crate::mirror::Mirror;
use crate::outside::{Closed, Outside, RunDisk};
use crate::words::error_files;

/// How often the run's files are looked after.
pub(super) const UPKEEP_EVERY: Duration = Duration::from_secs(2);
/// How often the owner's record is renewed, and the storage elsewhere brought up to date: each so many times.
const RENEW_EACH: u32 = 5;

/// An end that the run's files do not have yet.
pub(super) struct Closing {
    status: RunStatus,
    at: f64,
    /// `error.txt` and `error.json`.
    error: Option<(String, serde_json::Value)>,
    /// Since when the files are behind.
    since: Duration,
}

impl Run {
    pub(super) fn end(&mut self, ending: Ending, outside: &mut dyn Outside) {
        self.status = (ending.status, ending.headline.clone());
        self.forget_stacks();
        self.closing = Some(Closing {
            status: ending.status,
            at: outside.now(),
            error: (ending.status != RunStatus::Finished).then(|| error_files(&ending)),
            since: outside.clock(),
        });
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
        self.restore_files(outside);
        self.forget_missing_checkpoints();
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
            seconds: self.automatic.seconds(outside.clock()),
            restarts: self.restarts.clone(),
            timed_out: ending.timed_out,
            saved: self.saving.saved,
        });
        self.close(outside);
    }

    /// CLOSE-1: the ending is announced when every file says it. Storage that refuses is retried; after `deadline` the files are
    /// rescued, and the run fails with that cause.
    pub(super) fn close(&mut self, outside: &mut dyn Outside) {
        let Some(closing) = &self.closing else { return };
        let (status, at, error, since) = (closing.status, closing.at, closing.error.clone(), closing.since);
        self.restore_files(outside);
        // As much of the journal as can be written: what has ended does not need it.
        self.write_records();
        let ended = self.disk.end(status, at, error);
        self.written(ended.clone(), outside);
        match ended {
            Ok(()) => {}
            Err(_) if outside.clock().saturating_sub(since) < deadline() => {
                return outside.set_retry_timer(self.id.clone(), RETRY);
            }
            Err(failure) => self.rescue(&failure, outside),
        }
        self.closing = None;
        self.last_round_since = Some(outside.clock());
        self.finish(outside);
    }

    /// Nothing that was reported is lost with a storage that takes nothing: it is put where there is room, and the run says where.
    fn rescue(&mut self, cause: &Failure, outside: &mut dyn Outside) {
        let message = format!("the run's files cannot be written for {} s: {}", deadline().as_secs(), cause.message);
        let kept = match self.disk.rescue() {
            Ok(path) => format!("everything that was reported is in `{}`", path.display()),
            Err(failure) => format!("what could not be written is lost: {}", failure.message),
        };
        let Some(ending) = &mut self.ending else { return };
        if ending.status != RunStatus::Finished.name() {
            // The first cause stays the headline.
            let text = format!("{message}; {kept}");
            return self.publish(v1::Warning { text }, outside);
        }
        let newest = ending.checkpoints.iter().max_by_key(|checkpoint| checkpoint.iteration);
        let resumes =
            newest.map_or("starts it again".to_owned(), |newest| format!("resumes it from `{}`", newest.path));
        let failure = Failure { message: message.clone(), ..Failure::new(cause.code, "") }
            .hint(format!("the training itself ended well; {kept}"))
            .hint(format!("make room or mend the storage; the next `fit()` with the same `name` {resumes}"));
        (ending.status, ending.headline) = (RunStatus::Failed.name().to_owned(), message);
        self.status = (RunStatus::Failed, ending.headline.clone());
        ending.failure = Some(failure.into());
    }

    /// Tells the ending as soon as the storage has everything that it should have, and nothing else.
    pub(crate) fn finish(&mut self, outside: &mut dyn Outside) {
        if self.ending.is_none() || self.closing.is_some() || self.saving.is_discarding() {
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
        let disk: Box<dyn RunDisk> = std::mem::replace(&mut self.disk, Box::new(Closed));
        let storage = self.storage.take();
        if let Some(trial) = &mut self.trial {
            trial.disk = Some(disk).filter(|_| storage.is_some_and(|storage| storage.local_path().is_some()));
        }
        self.drop_checkpoint(None, outside);
        self.let_go();
        if self.checks_for.is_some() {
            self.outcome = Some(ending);
        } else {
            self.publish(ending, outside);
        }
    }

    /// A head remembers many runs that have ended: of each only what is still told of it.
    fn let_go(&mut self) {
        self.machine.let_go();
        (self.environment, self.config) = (Vec::new(), Value::None);
        self.spec.record = String::new();
        self.spec.worker = WorkerCommand::Command { arguments: Vec::new() };
        (self.restarts, self.deferred, self.behind) = (Vec::new(), VecDeque::new(), None);
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
        if let Err(failure) = &result
            && !std::mem::replace(&mut self.mirror_failed, true)
        {
            self.publish(v1::Warning { text: format!("the storage is behind: {}", failure.message) }, outside);
        }
        self.mirror_failed = result.is_err();
        if !self.last_round {
            self.mirror = Some(mirror);
            return self.finish(outside);
        }
        let waited = self.last_round_since.map_or(Duration::ZERO, |since| outside.clock().saturating_sub(since));
        match result {
            Ok(()) => mirror.remove_local(),
            Err(_) if waited < deadline() => {
                self.mirror = Some(mirror);
                return outside.set_retry_timer(self.id.clone(), RETRY);
            }
            Err(failure) => self.rescue(&failure, outside),
        }
        self.tell_ending(outside);
    }

    /// Finds out whether the run's files are where they were, and makes them again where they are not.
    pub(super) fn restore_files(&mut self, outside: &mut dyn Outside) {
        let restored = self.disk.restore();
        if let Some(text) = self.restoring.warning("the run's", &restored.clone().map(drop)) {
            self.publish(v1::Warning { text }, outside);
        }
        match restored {
            Ok(false) | Err(_) => {}
            Ok(true) => {
                let gone = self.forget_missing_checkpoints();
                let mut text = format!(
                    "the run's directory `{}` was moved, removed or unmounted while the run was going on: its files are written there again",
                    self.path.display()
                );
                if !gone.is_empty() {
                    text.push_str(&format!(", and these checkpoints are not there any more: {}", gone.join(", ")));
                }
                self.journal("FilesRestored".into(), text.clone(), Vec::new(), outside);
                self.publish(v1::Warning { text }, outside);
            }
        }
        for text in self.disk.take_warnings() {
            self.journal("ReportsLost".into(), text.clone(), Vec::new(), outside);
            self.publish(v1::Warning { text }, outside);
        }
    }

    pub(crate) fn written(&mut self, result: Result<(), Failure>, outside: &mut dyn Outside) {
        if let Some(text) = self.refusals.warning("the run's", &result) {
            self.publish(v1::Warning { text }, outside);
        }
    }

    pub fn on_upkeep_due(&mut self, outside: &mut dyn Outside) {
        if self.ended || self.ending.is_some() {
            return;
        }
        self.restore_files(outside);
        self.upkeeps = self.upkeeps.wrapping_add(1);
        if self.upkeeps.is_multiple_of(RENEW_EACH) {
            let renewed = self.disk.renew(outside.now());
            self.written(renewed, outside);
            self.mirror_if_due(outside);
        }
        outside.set_upkeep_timer(self.id.clone(), UPKEEP_EVERY);
    }
}
