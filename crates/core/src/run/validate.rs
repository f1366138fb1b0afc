//! The user's checks of checkpoints, which run beside the training.
//!
//! VALIDATE-1: one check of a run goes on at a time, in the order of the reports.
//! VALIDATE-2: a checkpoint is not deleted before its check is over, nor while what came of it is written down.
//! VALIDATE-3: a run that finishes waits for its checks. One that ends in another way leaves them to whoever goes on with it.
//! VALIDATE-4: a check that fails costs nothing but itself.

use std::collections::VecDeque;

use super::{Command, Outcome, RunMachine, State, release};

#[derive(Default)]
pub(super) struct Validations {
    waiting: VecDeque<u64>,
    running: Option<u64>,
}

impl Validations {
    pub fn new(waiting: Vec<u64>) -> Self {
        Self { waiting: waiting.into(), running: None }
    }

    pub fn are_over(&self) -> bool {
        self.waiting.is_empty() && self.running.is_none()
    }

    pub fn count(&self) -> usize {
        self.waiting.len() + usize::from(self.running.is_some())
    }

    /// Checkpoints that are gone are not checked.
    pub fn keep(&mut self, is_kept: impl Fn(u64) -> bool) {
        self.waiting.retain(|iteration| is_kept(*iteration));
    }
}

impl<R> RunMachine<R> {
    pub(super) fn queue_validation(&mut self, iteration: u64, out: &mut Outcome<R>) {
        self.checkpoints.retention.need(iteration);
        self.validations.waiting.push_back(iteration);
        self.validate_next(out);
    }

    pub(super) fn validate_next(&mut self, out: &mut Outcome<R>) {
        if self.validations.running.is_some() || self.preemption.is_some() || self.state == State::Waiting {
            return;
        }
        self.validations.running = self.validations.waiting.pop_front();
        if let Some(iteration) = self.validations.running {
            out.commands.push(Command::Validate { iteration });
        }
    }

    pub(super) fn on_validated(&mut self, iteration: u64, score: Option<f64>, how: String, out: &mut Outcome<R>) {
        if self.validations.running != Some(iteration) {
            return;
        }
        out.reason = how;
        let displaced = self.checkpoints.retention.judge(iteration, score);
        out.commands.push(Command::KeepValidation { iteration, displaced });
    }

    pub(super) fn on_validation_kept(&mut self, iteration: u64, out: &mut Outcome<R>) {
        if self.validations.running != Some(iteration) {
            return;
        }
        self.validations.running = None;
        self.checkpoints.retention.let_go(iteration);
        self.validate_next(out);
        if self.validations.are_over() {
            release(self.waits.release_validated(), out);
            self.fail_if_hopeless(out);
        }
    }

    pub(super) fn on_validation_timer(&mut self, iteration: u64, out: &mut Outcome<R>) {
        if self.validations.running == Some(iteration) {
            out.reason = format!("the time for the validation of report {iteration}'s checkpoint is over");
            out.commands.push(Command::StopValidation { iteration, late: true });
        }
    }

    /// The function has returned everywhere, and only the checks go on: those that are left are given up.
    pub(super) fn abandon_validations(&mut self, out: &mut Outcome<R>) {
        let left = self.validations.count();
        if !self.is_finishing() || left == 0 {
            return;
        }
        self.validations.waiting.clear();
        if let Some(iteration) = self.validations.running {
            out.commands.push(Command::StopValidation { iteration, late: false });
        }
        let checkpoints = if left == 1 { "1 checkpoint is" } else { &format!("{left} checkpoints are") };
        out.commands.push(Command::Warn(format!("{checkpoints} left without validation: {}", out.reason)));
    }
}
