//! What the run hears of its workers: their places, their starts, their waits, and how each of them ends.

use std::time::Duration;

use carril_types::{ErrorCode, ExitStatus, Failure, Rank, RunStatus, WorkerFailure};

use super::{Command, Ending, GATHER, OTHER_END, Outcome, RunMachine, State, Timer, WorkerState, release};
use crate::waits::{Wait, WaitKind, ranks_text};

impl<R> RunMachine<R> {
    pub(super) fn on_placed(&mut self, out: &mut Outcome<R>) {
        if self.state != State::Waiting {
            return;
        }
        self.state = State::Starting;
        self.misplaced = false;
        out.reason = format!("{} workers have room", self.workers.len());
        out.commands.push(Command::ChangeStatus(RunStatus::Starting));
        self.start_group(out);
        self.validate_next(out);
    }

    pub(super) fn on_refused(&mut self, failure: Failure, out: &mut Outcome<R>) {
        out.reason.clone_from(&failure.message);
        self.state = State::Ended;
        out.commands.push(Command::EndRun(Ending::of_failure(failure)));
    }

    pub(super) fn on_worker_started(&mut self, rank: Rank) {
        if self.workers[rank.index()] == WorkerState::NotStarted {
            self.move_worker(rank, WorkerState::Started);
        }
    }

    pub(super) fn on_worker_ready(&mut self, rank: Rank, out: &mut Outcome<R>) {
        if !self.workers[rank.index()].is_ready() {
            self.move_worker(rank, WorkerState::Running);
        }
        if self.state == State::Starting && self.counts.not_ready == 0 {
            self.state = State::Running;
            out.reason = "every rank runs the function".to_owned();
            out.commands.push(Command::ChangeStatus(RunStatus::Running));
        }
    }

    pub(super) fn on_worker_waits(&mut self, rank: Rank, wait: Wait, out: &mut Outcome<R>) {
        let known = match wait.kind {
            WaitKind::Checkpoint => self.known_checkpoint(wait.sequence + 1),
            WaitKind::Place => self.checkpoints.has_place(rank).then(|| Ok(Vec::new())),
            WaitKind::Preempted => self.checkpoints.was_lost(wait.sequence + 1).then(|| Ok(Vec::new())),
            WaitKind::Settled => (wait.sequence <= self.settled_reports()).then(|| Ok(Vec::new())),
            WaitKind::Validated => (self.validations.are_over() || self.preemption.is_some()).then(|| Ok(Vec::new())),
            WaitKind::Data if wait.payload.is_empty() => {
                self.waits.leave_data(rank, wait.sequence);
                Some(Ok(Vec::new()))
            }
            WaitKind::Barrier | WaitKind::Broadcast | WaitKind::Grant | WaitKind::Data => None,
        };
        if let Some(result) = known {
            out.commands.push(Command::Release { rank, kind: wait.kind, sequence: wait.sequence, result });
            return;
        }
        self.waits.join(rank, wait);
        let granted = self.collator.granted();
        let mut released = self.waits.release_grants(granted);
        released.extend(self.waits.release_collective(self.workers.len()));
        released.extend(self.waits.release_data_of(&self.told()));
        release(released, out);
        self.fail_if_hopeless(out);
        self.keep_warning(out);
    }

    pub(super) fn on_worker_returned(&mut self, rank: Rank, value: Option<String>, out: &mut Outcome<R>) {
        if self.workers[rank.index()].is_told() {
            return;
        }
        self.move_worker(rank, WorkerState::Returned);
        self.return_values[rank.index()] = value;
        out.reason = format!("rank {rank} returned after {} reports", self.collator.delivered(rank));
        self.waits.leave(rank);
        self.collator.on_returned(rank);
        self.commit_collated(out);
        let released = self.waits.release_data_of(&[rank]);
        release(released, out);
        self.fail_if_hopeless(out);
        self.finish_if_returned(out);
        if self.state == State::Gathering {
            // Its connections are closed before its return is told.
            let failures = std::mem::take(&mut self.failures);
            self.failures = failures.into_iter().map(|failure| self.named_after_the_returned(failure)).collect();
            self.stop_if_all_told(out);
        }
    }

    /// `patience` is how long it is waited for a cause behind it; at zero there can be none.
    pub(super) fn on_worker_failed(&mut self, failure: WorkerFailure, patience: Duration, out: &mut Outcome<R>) {
        let rank = failure.rank;
        match self.workers[rank.index()] {
            WorkerState::Failed => return,
            WorkerState::Gone => {}
            _ => self.move_worker(rank, WorkerState::Failed),
        }
        self.waits.leave(rank);
        // A connection that broke has a cause at its other end, which is told of in a moment.
        let patience = if is_broken_collective(&failure) { OTHER_END } else { patience };
        let failure = self.named_after_the_returned(failure);
        out.reason = failure.headline();
        match self.state {
            State::Gathering => {
                let first = &self.failures[0];
                let silent = failure.exit.is_some() && first.exit.is_none();
                // For the memory that one has taken the kernel may end another, and that one may be gone sooner.
                let hungrier = first.peak_memory > 0 && failure.peak_memory > first.peak_memory;
                self.failures.insert(if silent || hungrier { 0 } else { self.failures.len() }, failure);
                if silent && patience.is_zero() {
                    let why = out.reason.clone();
                    return self.stop_after_failure(&why, out);
                }
            }
            State::Stopping(_) | State::Restarting | State::Ended => {}
            State::Waiting | State::Starting | State::Running => {
                self.failures.push(failure);
                self.state = State::Gathering;
                out.commands.push(Command::ChangeStatus(RunStatus::Stopping));
                if patience.is_zero() {
                    let why = out.reason.clone();
                    return self.stop_after_failure(&why, out);
                }
                out.commands.push(Command::SetTimer { timer: Timer::Gather(self.attempt), after: patience });
            }
        }
        self.stop_if_all_told(out);
    }

    /// Whoever waited only for the reports that a dead rank had made waits no longer when they are there.
    pub(super) fn stop_if_caught_up(&mut self, out: &mut Outcome<R>) {
        if self.state == State::Gathering && self.ahead.is_some_and(|rank| !self.collator.is_ahead(rank)) {
            let why = self.failures[0].headline();
            self.stop_after_failure(&why, out);
        }
    }

    /// A collective of torch that is broken off says which connection was closed, and not that the rank at its other end had
    /// simply returned.
    fn named_after_the_returned(&self, mut failure: WorkerFailure) -> WorkerFailure {
        if self.counts.returned == 0 || !is_broken_collective(&failure) {
            return failure;
        }
        let returned = (0..).zip(&self.workers).filter(|(_, state)| **state == WorkerState::Returned);
        let returned: Vec<Rank> = returned.map(|(rank, _)| Rank(rank)).collect();
        let (who, text) = (ranks_text(&returned), &failure.failure.message);
        let message = format!("{who} returned while this rank waited in a collective of torch ({text})");
        failure.failure = Failure::new(ErrorCode::CollectiveMismatch, message)
            .hint("every rank must make the same collective calls: see that all have equally many batches")
            .hint("`torch.distributed.algorithms.join.Join` is for ranks with unequal data");
        failure
    }

    pub(super) fn on_worker_exited(&mut self, exit: ExitStatus, failure: WorkerFailure, out: &mut Outcome<R>) {
        let rank = failure.rank;
        let before = self.workers[rank.index()];
        if before == WorkerState::Gone {
            return;
        }
        self.mark_gone(rank);
        if !before.is_told() && !matches!(self.state, State::Stopping(_)) {
            // What the others saw of its end comes after it. Only the kernel may have ended the wrong one for its memory.
            self.ahead = Some(rank).filter(|rank| failure.peak_memory == 0 && self.collator.is_ahead(*rank));
            let patience = if failure.peak_memory > 0 || self.ahead.is_some() { GATHER } else { Duration::ZERO };
            self.on_worker_failed(failure, patience, out);
        } else if before == WorkerState::Returned && exit != ExitStatus::Code(0) && self.is_finishing() {
            out.commands.push(Command::Warn(format!("rank {rank} returned, and its process then ended with {exit}")));
        }
        self.stop_if_all_told(out);
    }
}

fn is_broken_collective(failure: &WorkerFailure) -> bool {
    let text = failure.failure.message.to_ascii_lowercase();
    let broken = ["connection closed", "connection reset", "broken pipe", "remote process exited", "gloo"];
    failure.failure.code == ErrorCode::UserException
        && failure.traceback.contains("torch/distributed/")
        && broken.iter().any(|words| text.contains(words))
}
