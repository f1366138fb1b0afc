//! The run's journal, and what waits while it cannot be written.
//!
//! BEHIND-1: no worker is started, no checkpoint committed and no check begun before everything that was decided until then
//!   is in the journal. Stops, ends and reports do not wait.
//! BEHIND-2: records reach the journal in the order in which they were decided, each once.
//! BEHIND-3: a journal that cannot be written for `deadline` ends the run, with that cause.

use std::collections::VecDeque;
use std::time::Duration;

use carril_core::{Command, Event};
use carril_proto::v1;
use carril_store::{Fact, JournalRecord, RETRY, deadline};
use carril_types::{Attempt, ErrorCode, Failure, Rank};

use super::{RankReport, Run};
use crate::outside::Outside;

/// The journal cannot be written at the moment.
pub(super) struct Behind {
    records: VecDeque<JournalRecord>,
    held: VecDeque<Held>,
    since: Duration,
    failure: Failure,
    given_up: bool,
}

/// What is carried out when the journal is written.
enum Held {
    Command(Command<RankReport>, String),
    /// The group whose start is among the records.
    Group(Attempt, u64),
    Commit(u64),
}

impl Run {
    pub(super) fn journal(&mut self, event: String, reason: String, commands: Vec<String>, outside: &mut dyn Outside) {
        self.append(JournalRecord { at: outside.now(), event, reason, commands, fact: None }, outside);
    }

    pub(super) fn journal_fact(&mut self, event: &str, reason: String, fact: Fact, outside: &mut dyn Outside) {
        let record = JournalRecord {
            at: outside.now(),
            event: event.to_owned(),
            reason,
            fact: Some(fact),
            ..Default::default()
        };
        self.append(record, outside);
    }

    fn append(&mut self, record: JournalRecord, outside: &mut dyn Outside) {
        if let Some(behind) = &mut self.behind {
            behind.records.push_back(record);
            return;
        }
        let Err(failure) = self.disk.journal(&record) else { return };
        let text = format!(
            "the journal cannot be written, and is retried for {} s: {}; until then no worker is started and no checkpoint \
             committed",
            deadline().as_secs(),
            failure.message
        );
        self.behind = Some(Behind {
            records: VecDeque::from([record]),
            held: VecDeque::new(),
            since: outside.clock(),
            failure,
            given_up: false,
        });
        self.publish(v1::Warning { text }, outside);
        outside.set_retry_timer(self.id.clone(), RETRY);
    }

    /// Whether a commit has to wait, which is then done later.
    pub(crate) fn holds_commit(&mut self, iteration: u64) -> bool {
        self.hold(|| Held::Commit(iteration))
    }

    /// Whether the group has to wait until its beginning is in the journal.
    pub(super) fn holds_group(&mut self, attempt: Attempt, reports: u64) -> bool {
        self.hold(|| Held::Group(attempt, reports))
    }

    fn hold(&mut self, held: impl FnOnce() -> Held) -> bool {
        let Some(behind) = &mut self.behind else { return false };
        behind.held.push_back(held());
        true
    }

    /// Carries the command out, or keeps it until the journal says that it was decided.
    pub(super) fn carry_out_when_written(
        &mut self,
        command: Command<RankReport>,
        reason: &str,
        outside: &mut dyn Outside,
    ) {
        let waits = matches!(
            command,
            Command::StartGroup { .. }
                | Command::StoreCheckpoint { .. }
                | Command::Validate { .. }
                | Command::KeepValidation { .. }
        );
        match (&mut self.behind, &command) {
            // Nobody waits for the journal any more, and the end of the run would wait for this.
            (Some(behind), Command::StoreCheckpoint { iteration, .. }) if behind.given_up => {
                let (iteration, failure) = (*iteration, behind.failure.clone());
                self.decide(Event::CheckpointRejected { iteration, failure }, outside);
            }
            (Some(behind), _) if waits => behind.held.push_back(Held::Command(command, reason.to_owned())),
            _ => {
                let stopped = if let Command::StopGroup { attempt, .. } = &command { Some(*attempt) } else { None };
                self.carry_out(command, reason, outside);
                if let Some(attempt) = stopped {
                    self.forget_held_group(attempt, outside);
                }
            }
        }
    }

    /// Of a group that was not started nobody else would tell that it is gone.
    fn forget_held_group(&mut self, stopped: Attempt, outside: &mut dyn Outside) {
        let Some(behind) = &mut self.behind else { return };
        let is_start = |held: &Held| match held {
            Held::Command(Command::StartGroup { attempt, .. }, _) | Held::Group(attempt, _) => *attempt == stopped,
            Held::Command(..) | Held::Commit(_) => false,
        };
        let before = behind.held.len();
        behind.held.retain(|held| !is_start(held));
        if behind.held.len() < before {
            let failure = behind.failure.clone();
            for rank in (0..self.spec.num_workers).map(Rank) {
                self.decide(Event::WorkerNotStarted { rank, failure: failure.clone() }, outside);
            }
        }
    }

    pub fn on_retry_timer(&mut self, outside: &mut dyn Outside) {
        if self.closing.is_some() {
            return self.close(outside);
        }
        if self.ending.is_some() {
            return self.finish(outside);
        }
        if self.looking_since.is_some() {
            self.find_latest(outside);
        }
        self.write_records();
        let Some(behind) = &mut self.behind else { return };
        if behind.records.is_empty() {
            return self.catch_up(outside);
        }
        let waited = outside.clock().saturating_sub(behind.since);
        if waited >= deadline() && !std::mem::replace(&mut behind.given_up, true) {
            let failure = behind.failure.clone();
            self.give_up_the_journal(&failure, outside);
        }
        if !self.ended {
            outside.set_retry_timer(self.id.clone(), RETRY);
        }
    }

    /// As many as can be written now.
    pub(super) fn write_records(&mut self) {
        let Some(behind) = &mut self.behind else { return };
        while let Some(record) = behind.records.front() {
            if let Err(failure) = self.disk.journal(record) {
                behind.failure = failure;
                return;
            }
            behind.records.pop_front();
        }
    }

    fn catch_up(&mut self, outside: &mut dyn Outside) {
        let Some(behind) = self.behind.take() else { return };
        if !self.ended {
            self.publish(v1::Warning { text: "the journal is written again".to_owned() }, outside);
        }
        let mut held = behind.held;
        while let Some(next) = held.pop_front() {
            match next {
                // It may fail again on the way: then the rest waits again, in its order.
                Held::Command(command, reason) => self.carry_out_when_written(command, &reason, outside),
                Held::Group(attempt, reports) => {
                    if !self.holds_group(attempt, reports) {
                        self.send_group(attempt, reports, outside);
                    }
                }
                Held::Commit(iteration) => {
                    if !self.holds_commit(iteration) {
                        self.commit(iteration, outside);
                    }
                }
            }
        }
    }

    fn give_up_the_journal(&mut self, cause: &Failure, outside: &mut dyn Outside) {
        let message = format!("the run's journal cannot be written for {} s: {}", deadline().as_secs(), cause.message);
        let failure = Failure { message, ..Failure::new(ErrorCode::Storage, "") }
            .hint("make room or mend the storage; the next `fit()` with the same `name` resumes the run");
        self.decide(Event::Broken(failure.clone()), outside);
        // The run waits for its checkpoints before it ends, and these cannot be committed.
        let held = self.behind.as_mut().map(|behind| std::mem::take(&mut behind.held)).unwrap_or_default();
        for held in held {
            if let Held::Command(Command::StoreCheckpoint { iteration, .. }, _) | Held::Commit(iteration) = held {
                self.decide(Event::CheckpointRejected { iteration, failure: failure.clone() }, outside);
            }
        }
    }
}
