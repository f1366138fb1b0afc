//! What the run hears of its workers: their places, their starts, their waits, and how each of them ends.

use carril_types::{ExitStatus, Failure, Rank, RunStatus, WorkerFailure};

use super::{Command, Ending, GATHER, Outcome, RunMachine, State, Timer, WorkerState, release};
use crate::waits::{Wait, WaitKind};

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
        let ending = Ending {
            status: RunStatus::Failed,
            headline: failure.message.clone(),
            failure: Some(failure),
            failures: Vec::new(),
            return_values: Vec::new(),
            timed_out: false,
        };
        self.state = State::Ended;
        out.commands.push(Command::EndRun(ending));
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
            WaitKind::Validated => (self.validations.are_over() || self.preemption.is_some()).then(|| Ok(Vec::new())),
            WaitKind::Barrier | WaitKind::Broadcast | WaitKind::Grant => None,
        };
        if let Some(result) = known {
            out.commands.push(Command::Release { rank, kind: wait.kind, sequence: wait.sequence, result });
            return;
        }
        self.waits.join(rank, wait);
        let granted = self.collator.granted();
        let mut released = self.waits.release_grants(granted);
        released.extend(self.waits.release_collective(self.workers.len()));
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
        self.fail_if_hopeless(out);
        self.finish_if_returned(out);
    }

    pub(super) fn on_worker_failed(&mut self, failure: WorkerFailure, out: &mut Outcome<R>) {
        let rank = failure.rank;
        match self.workers[rank.index()] {
            WorkerState::Failed => return,
            WorkerState::Gone => {}
            _ => self.move_worker(rank, WorkerState::Failed),
        }
        self.waits.leave(rank);
        out.reason = failure.headline();
        match self.state {
            State::Gathering => {
                let first = &self.failures[0];
                let silent = failure.exit.is_some() && first.exit.is_none();
                // For the memory that one has taken the kernel may end another, and that one may be gone sooner.
                let hungrier = first.peak_memory > 0 && failure.peak_memory > first.peak_memory;
                self.failures.insert(if silent || hungrier { 0 } else { self.failures.len() }, failure);
            }
            State::Stopping(_) | State::Restarting | State::Ended => {}
            State::Waiting | State::Starting | State::Running => {
                self.failures.push(failure);
                self.state = State::Gathering;
                out.commands.push(Command::ChangeStatus(RunStatus::Stopping));
                out.commands.push(Command::SetTimer { timer: Timer::Gather(self.attempt), after: GATHER });
            }
        }
        self.stop_if_all_told(out);
    }

    pub(super) fn on_worker_exited(&mut self, exit: ExitStatus, failure: WorkerFailure, out: &mut Outcome<R>) {
        let rank = failure.rank;
        let before = self.workers[rank.index()];
        if before == WorkerState::Gone {
            return;
        }
        self.mark_gone(rank);
        if !before.is_told() && !matches!(self.state, State::Stopping(_)) {
            self.on_worker_failed(failure, out);
        } else if before == WorkerState::Returned && exit != ExitStatus::Code(0) && self.is_finishing() {
            out.commands.push(Command::Warn(format!("rank {rank} returned, and its process then ended with {exit}")));
        }
        self.stop_if_all_told(out);
    }
}
