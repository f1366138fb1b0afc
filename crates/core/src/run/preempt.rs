//! A machine that is taken away: the function is asked for a last checkpoint, and the run ends with it.
//!
//! PREEMPT-1: the run ends with the first checkpoint that a rank reported after it was told, or when the time is over.
//! PREEMPT-2: a rank that brought such a checkpoint waits in `report`: no step is made that would be lost.
//! PREEMPT-3: a function that has looked and returns is preempted; one that never looked has finished.

use std::collections::BTreeSet;
use std::time::Duration;

use carril_types::{ErrorCode, Failure, RunStatus};

use super::{CLEAN_UP, Command, Ending, Outcome, RunMachine, State, Then, Timer, release};

#[derive(Clone, Debug)]
pub(super) struct Preemption {
    reason: String,
    /// The reports that brought a checkpoint because of it.
    pub answers: BTreeSet<u64>,
    /// A function has looked at it, and returned.
    pub seen: bool,
}

impl<R> RunMachine<R> {
    pub(super) fn on_preempted(&mut self, reason: String, grace: Duration, out: &mut Outcome<R>) {
        if self.preemption.is_some() {
            return;
        }
        out.reason = format!("preempted: {reason}");
        self.abandon_validations(out);
        release(self.waits.release_validated(), out);
        let ends = matches!(self.state, State::Ended | State::Stopping(Then::End(_)));
        if !ends {
            self.preemption = Some(Preemption { reason: reason.clone(), answers: BTreeSet::new(), seen: false });
        }
        match &self.state {
            State::Ended | State::Stopping(Then::End(_)) => {}
            State::Waiting | State::Restarting => {
                out.commands.push(Command::EndRun(self.ending_of_preemption(None)));
                self.state = State::Ended;
            }
            State::Stopping(Then::Restart(restart)) => {
                let ending = self.ending_of_preemption(Some(&restart.headline));
                self.state = State::Stopping(Then::End(Box::new(ending)));
            }
            State::Starting | State::Running | State::Gathering => {
                let seconds = grace.as_secs_f64();
                let text = format!("preempted: {reason}; the ranks have {seconds} s to report a last checkpoint");
                out.commands.push(Command::AskForCheckpoint { attempt: self.attempt, reason, grace });
                out.commands.push(Command::SetTimer { timer: Timer::Preempt, after: grace });
                out.commands.push(Command::Warn(text));
            }
        }
    }

    pub(super) fn on_preempt_timer(&mut self, out: &mut Outcome<R>) {
        if matches!(self.state, State::Starting | State::Running | State::Gathering) {
            out.reason = "no last checkpoint came in the time that there was".to_owned();
            let ending =
                Ending { timed_out: true, ..self.ending_of_preemption(Some("no last checkpoint came in time")) };
            self.stop_group(Then::End(Box::new(ending)), Duration::ZERO, out);
        }
    }

    /// The checkpoint that was asked for is there.
    pub(super) fn stop_if_answered(&mut self, iteration: u64, out: &mut Outcome<R>) {
        let answered = self.preemption.as_ref().is_some_and(|preemption| preemption.answers.contains(&iteration));
        if answered && matches!(self.state, State::Starting | State::Running) {
            out.reason = format!("preempted, and the checkpoint of report {iteration} is there");
            let ending = self.ending_of_preemption(None);
            self.stop_group(Then::End(Box::new(ending)), CLEAN_UP, out);
        }
    }

    pub(super) fn ending_of_preemption(&self, failed: Option<&str>) -> Ending {
        let reason = self.preemption.as_ref().map_or("", |preemption| preemption.reason.as_str());
        let failed = failed.map(|failed| format!("; {failed}")).unwrap_or_default();
        let kept = match self.checkpoints.newest() {
            Some((iteration, path)) => format!("the last checkpoint is `{path}`, of report {iteration}"),
            None => "there is no checkpoint".to_owned(),
        };
        let headline = format!("preempted: {reason}{failed}; {kept}");
        let failure = Failure::new(ErrorCode::Preempted, headline.clone())
            .hint("`fit()` with the same `name` goes on from there, and so does `carril resume`");
        Ending {
            status: RunStatus::Preempted,
            headline,
            failure: Some(failure),
            failures: Vec::new(),
            return_values: Vec::new(),
            timed_out: false,
        }
    }
}
