//! From one attempt to the next: what is kept, what is reset.
//!
//! RESTART-1: a new attempt begins when every process of the last one is gone and every checkpoint is settled.
//! RESTART-3: a machine that is lost takes its ranks with it, and the group is placed again.
//! RESTART-2: it goes on from the newest checkpoint that verifies, with the number of its report.

use std::time::Duration;

use carril_types::{Attempt, Failure, Rank, Restart, RunStatus, WorkerFailure};

use super::{Command, Counts, Ending, GATHER, Outcome, RunMachine, State, Then, Timer, WorkerState};
use crate::budget::Verdict;
use crate::collate::Collator;
use crate::retention::Kept;
use crate::waits::Waits;

impl<R> RunMachine<R> {
    pub(super) fn start_group(&mut self, out: &mut Outcome<R>) {
        out.commands.push(Command::StartGroup { attempt: self.attempt, reports: self.collator.collated() });
        out.commands.push(Command::SetTimer { timer: Timer::Hang(self.attempt), after: self.hang.look_every() });
        self.keep_warning(out);
    }

    /// The group goes, for the first failure of its ranks.
    pub(super) fn stop_after_failure(&mut self, why: &str, out: &mut Outcome<R>) {
        let first = &self.failures[0];
        let (failure, headline) = (first.failure.clone(), first.headline());
        let then = self.after_failure(&failure, &headline, Self::ending_of_failure);
        out.reason = match &then {
            Then::Restart(restart) => format!("{why}; restarts: {}", restart.reason),
            Then::End(_) => why.to_owned(),
        };
        self.stop_group(then, Duration::ZERO, out);
    }

    pub(super) fn after_failure(
        &mut self,
        failure: &Failure,
        headline: &str,
        ending: impl FnOnce(&Self) -> Ending,
    ) -> Then {
        if self.preemption.is_some() {
            return Then::End(Box::new(self.ending_of_preemption(Some(headline))));
        }
        match self.budget.charge(failure, headline, self.collator.collated()) {
            Verdict::Restart(why) => Then::Restart(Restart {
                attempt: Attempt(self.attempt.0 + 1),
                reason: format!("{headline} ({why})"),
                code: failure.code,
                headline: headline.to_owned(),
                reports: self.collator.collated(),
            }),
            Verdict::End(why) => {
                let mut ending = ending(self);
                if self.attempt.0 > 0 {
                    ending.headline = format!("{} (attempt {}: {why})", ending.headline, self.attempt.0 + 1);
                }
                Then::End(Box::new(ending))
            }
        }
    }

    pub(super) fn restart(&mut self, restart: Restart, out: &mut Outcome<R>) {
        let world = self.workers.len();
        self.attempt = restart.attempt;
        self.state = State::Restarting;
        self.workers = vec![WorkerState::NotStarted; world];
        self.counts = Counts { not_ready: world, untold: world, returned: 0, gone: 0 };
        self.waits = Waits::default();
        self.failures.clear();
        self.return_values = vec![None; world];
        self.hang = self.hang.reset();
        self.checkpoints.begin_anew();
        self.warned_of_absence = false;
        out.reason.clone_from(&restart.reason);
        out.commands.push(Command::ChangeStatus(RunStatus::Restarting));
        out.commands.push(Command::TellRestart(restart));
        out.commands.push(Command::FindLatest);
    }

    pub(super) fn on_latest_found(&mut self, newest: Option<(u64, String)>, kept: Vec<Kept>, out: &mut Outcome<R>) {
        if self.state != State::Restarting {
            return;
        }
        let reports = newest.as_ref().map_or(0, |(iteration, _)| *iteration);
        out.reason = match &newest {
            Some((iteration, path)) => format!("resumes after report {iteration} from `{path}`"),
            None => "starts over: there is no checkpoint".to_owned(),
        };
        self.validations.keep(|iteration| kept.iter().any(|kept| kept.iteration == iteration));
        self.checkpoints.found(newest, kept);
        self.collator = Collator::new(self.workers.len() as u32, reports);
        if std::mem::take(&mut self.misplaced) {
            self.state = State::Waiting;
            out.commands.push(Command::ChangeStatus(RunStatus::Waiting));
            out.commands.push(Command::Place);
            return;
        }
        self.state = State::Starting;
        out.commands.push(Command::ChangeStatus(RunStatus::Starting));
        self.start_group(out);
    }

    pub(super) fn on_node_lost(&mut self, ranks: &[Rank], failure: &Failure, out: &mut Outcome<R>) {
        self.misplaced = true;
        if matches!(self.state, State::Waiting | State::Restarting | State::Ended) {
            return;
        }
        for rank in ranks {
            let told = self.workers[rank.index()].is_told();
            self.mark_gone(*rank);
            if !told {
                self.on_worker_failed(WorkerFailure::of_process(*rank, failure.clone(), String::new()), GATHER, out);
            }
        }
        self.stop_if_all_told(out);
        self.checkpoints.lose(ranks, failure);
        self.lose_unprepared(out);
        if out.reason.is_empty() {
            out.reason.clone_from(&failure.message);
        }
    }
}
