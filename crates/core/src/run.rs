//! The run controller: from a submitted run to its one ending.
//!
//! RUN-1: a run ends exactly once, and only when every process of its group is gone.
//! RUN-2: an ending has one cause: the first failure, by the order in which the events came. A process that died without a
//!   word goes before exceptions that were heard a moment earlier: it broke its connections before its end could be seen.
//! RUN-3: no worker is stopped without a reason that is returned with the command.
//! RUN-4: a checkpoint commits once, when every rank's report of its number is in; the run waits for it before it ends,
//!   unless it is forced; then only a commit that has begun is waited for (SAVE-5).
//! RUN-5: what was collated before a failure is committed before the ending.
//! RUN-6: a rank without progress is looked at before anything is said of it; only a time that the user has set ends it.

mod checkpoints;
mod events;
mod hang;
mod preempt;
mod report;
mod restart;
mod validate;
mod workers;

use std::time::Duration;

use carril_types::{Attempt, ErrorCode, Failure, Rank, Restart, RunStatus, WorkerFailure};

use self::checkpoints::Checkpoints;
use self::events::progress_of;
pub use self::events::{Command, Ending, Event, OutOfMemory, Outcome, Saving, Timer};
use self::preempt::Preemption;
use self::validate::Validations;
use crate::budget::Budget;
use crate::collate::{Collated, Collator};
use crate::retention::Retention;
use crate::waits::{Released, Wait, Waits, ranks_text};

/// How long a cause may take to be seen that came before the first failure that was heard of.
const GATHER: Duration = Duration::from_millis(150);
/// How long the other end of a connection that broke may take to tell how it ended.
const OTHER_END: Duration = Duration::from_millis(500);
/// How long the other ranks may add their own failures to one that is certainly the first before all are ended.
const SETTLE: Duration = Duration::from_millis(20);
/// How long a worker that has returned may take to leave.
const LEAVE: Duration = Duration::from_secs(10);
/// How long workers may take to clean up when the user stops the run.
const CLEAN_UP: Duration = Duration::from_millis(1_500);
/// How often a wait that goes on is told of.
const WARN_EVERY: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkerState {
    NotStarted,
    Started,
    Running,
    Returned,
    Failed,
    Gone,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    Waiting,
    Starting,
    Running,
    /// A rank failed; the others may still tell what they saw.
    Gathering,
    /// The group was told to go.
    Stopping(Then),
    /// The group is gone; what the next attempt goes on from is looked for.
    Restarting,
    Ended,
}

/// What comes when the group is gone.
#[derive(Clone, Debug, PartialEq)]
enum Then {
    End(Box<Ending>),
    Restart(Restart),
}

/// How many workers are in which states: kept beside the states, so that no event looks at every worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    /// Have not begun the function.
    not_ready: usize,
    /// Have neither failed nor returned nor gone.
    untold: usize,
    returned: usize,
    gone: usize,
}

impl WorkerState {
    fn is_ready(self) -> bool {
        !matches!(self, WorkerState::NotStarted | WorkerState::Started)
    }

    fn is_told(self) -> bool {
        matches!(self, WorkerState::Failed | WorkerState::Returned | WorkerState::Gone)
    }
}

/// What a report says of its checkpoint's worth.
type Score<R> = Box<dyn Fn(&Collated<R>) -> Option<f64> + Send>;

/// Where a run begins, and what it is told beyond its size.
pub struct RunOptions<R> {
    /// Ends a run with a rank that makes no progress; without it there is only a warning.
    pub hang_timeout: Option<Duration>,
    /// The reports that were made before: this run goes on from there.
    pub reports: u64,
    /// The checkpoints that are there already.
    pub retention: Retention,
    /// What is left for failures.
    pub budget: Budget,
    /// The number of the first attempt: a run that is resumed counts on.
    pub attempt: Attempt,
    /// The newest of them.
    pub newest: Option<(u64, String)>,
    /// Those of them whose checks an earlier head has not brought to their end.
    pub unvalidated: Vec<u64>,
    pub score: Score<R>,
}

impl<R> Default for RunOptions<R> {
    fn default() -> Self {
        Self {
            hang_timeout: None,
            reports: 0,
            retention: Retention::new(Default::default(), Vec::new()),
            budget: Budget::default(),
            attempt: Attempt(0),
            newest: None,
            unvalidated: Vec::new(),
            score: Box::new(|_| None),
        }
    }
}

pub struct RunMachine<R> {
    attempt: Attempt,
    state: State,
    workers: Vec<WorkerState>,
    counts: Counts,
    collator: Collator<R>,
    waits: Waits,
    failures: Vec<WorkerFailure>,
    /// A rank that died ahead of the others: they are waited for until they have made its reports too.
    ahead: Option<Rank>,
    return_values: Vec<Option<String>>,
    hang: hang::Hang,
    budget: Budget,
    preemption: Option<Preemption>,
    checkpoints: Checkpoints,
    validations: Validations,
    score: Score<R>,
    warned_of_absence: bool,
    warning: bool,
    /// A machine of the group is gone.
    misplaced: bool,
}

impl<R> RunMachine<R> {
    pub fn new(world_size: u32, mut options: RunOptions<R>) -> Self {
        for iteration in &options.unvalidated {
            options.retention.need(*iteration);
        }
        Self {
            attempt: options.attempt,
            state: State::Waiting,
            workers: vec![WorkerState::NotStarted; world_size as usize],
            counts: Counts { not_ready: world_size as usize, untold: world_size as usize, returned: 0, gone: 0 },
            collator: Collator::new(world_size, options.reports),
            waits: Waits::default(),
            failures: Vec::new(),
            ahead: None,
            return_values: vec![None; world_size as usize],
            hang: hang::Hang::new(world_size, options.hang_timeout),
            budget: options.budget,
            preemption: None,
            checkpoints: Checkpoints::new(world_size, options.retention, options.newest),
            validations: Validations::new(options.unvalidated),
            score: options.score,
            warned_of_absence: false,
            warning: false,
            misplaced: false,
        }
    }

    pub fn attempt(&self) -> Attempt {
        self.attempt
    }

    pub fn status(&self) -> RunStatus {
        match &self.state {
            State::Waiting => RunStatus::Waiting,
            State::Starting => RunStatus::Starting,
            State::Running => RunStatus::Running,
            State::Gathering | State::Stopping(_) => RunStatus::Stopping,
            State::Restarting => RunStatus::Restarting,
            State::Ended => RunStatus::Finished,
        }
    }

    /// The reports whose checkpoints are kept, the best last.
    pub fn kept_checkpoints(&self) -> impl Iterator<Item = u64> + '_ {
        self.checkpoints.retention.in_order()
    }

    /// Of a run that has ended: what it was known by stays, what it has worked with goes.
    pub fn let_go(&mut self) {
        if self.state == State::Ended {
            (self.workers, self.return_values, self.failures) = (Vec::new(), Vec::new(), Vec::new());
            self.collator = Collator::new(0, self.collator.collated());
            self.hang = hang::Hang::new(0, None);
            self.waits = Waits::default();
            self.score = Box::new(|_| None);
        }
    }

    /// `now` is the time since any moment that stays the same.
    pub fn on_event(&mut self, now: Duration, event: Event<R>) -> Outcome<R> {
        let mut out = Outcome { commands: Vec::new(), reason: String::new() };
        if self.state == State::Ended {
            return out;
        }
        self.hang.heard(now);
        if let Some(rank) = progress_of(&event) {
            self.hang.progressed(rank, now);
        }
        match event {
            Event::Placed => self.on_placed(&mut out),
            Event::Refused(failure) => self.on_refused(failure, &mut out),
            Event::Broken(failure) => self.on_broken(failure, &mut out),
            Event::WorkerStarted { rank, how } => {
                self.on_worker_started(rank);
                out.reason = how;
            }
            Event::WorkerReady { rank } => self.on_worker_ready(rank, &mut out),
            Event::Reported { rank, sequence, report, checkpoint, validate } => {
                self.on_reported(rank, sequence, report, checkpoint, validate, &mut out);
            }
            Event::CheckpointPrepared { rank, iteration, result } => {
                self.on_checkpoint_prepared(rank, iteration, result, &mut out);
            }
            Event::CheckpointCommitted { iteration, path } => self.on_settled(iteration, Ok(path), &mut out),
            Event::CheckpointRejected { iteration, failure } => self.on_settled(iteration, Err(failure), &mut out),
            Event::Validated { iteration, score, how } => self.on_validated(iteration, score, how, &mut out),
            Event::ValidationKept { iteration } => self.on_validation_kept(iteration, &mut out),
            Event::WorkerWaits { rank, kind, sequence, payload } => {
                self.on_worker_waits(rank, Wait { kind, sequence, payload, since: now }, &mut out);
            }
            Event::WorkerReturned { rank, value, preempted } => {
                if let Some(preemption) = &mut self.preemption {
                    preemption.seen |= preempted;
                }
                self.on_worker_returned(rank, value, &mut out);
            }
            Event::WorkerFailed { failure, alone } => {
                // Ranks that are behind may still bring the report, and with it the checkpoint, that this one has made already.
                let patience = if alone && !self.collator.is_ahead(failure.rank) { SETTLE } else { GATHER };
                self.ahead = None;
                self.on_worker_failed(failure, patience, &mut out);
            }
            Event::WorkerExited { rank, exit, last_output, out_of_memory } => {
                let peak_memory = out_of_memory.as_ref().map_or(0, |memory| memory.peak);
                let told = report::failure_of_exit(exit, out_of_memory);
                let ended = WorkerFailure::of_process(rank, told, last_output);
                let failure = WorkerFailure { exit: Some(exit), peak_memory, ..ended };
                self.on_worker_exited(exit, failure, &mut out);
            }
            Event::Progressed { .. } => {}
            Event::WorkerHalted { rank, halted } => self.on_worker_halted(rank, halted, &mut out),
            Event::StacksGathered(stacks) => self.on_stacks_gathered(&stacks, now, &mut out),
            Event::WorkerNotStarted { rank, failure } => {
                self.mark_gone(rank);
                self.on_worker_failed(WorkerFailure::of_process(rank, failure, String::new()), GATHER, &mut out);
            }
            Event::NodeLost { ranks, failure } => self.on_node_lost(&ranks, &failure, &mut out),
            Event::LatestFound { newest, kept } => self.on_latest_found(newest, kept, &mut out),
            Event::StopRequested { reason, force } => self.on_stop_requested(&reason, force, &mut out),
            Event::Preempted { reason, grace } => self.on_preempted(reason, grace, &mut out),
            Event::TimerFired(timer) => self.on_timer(timer, now, &mut out),
        }
        self.end_if_done(&mut out);
        out
    }

    fn on_stop_requested(&mut self, reason: &str, force: bool, out: &mut Outcome<R>) {
        let grace = if force { Duration::ZERO } else { CLEAN_UP };
        out.reason = format!("stopped: {reason}");
        self.abandon_validations(out);
        match &self.state {
            State::Ended => {}
            State::Stopping(Then::End(_)) if !force => {}
            State::Stopping(then) => {
                if matches!(then, Then::Restart(_)) {
                    self.state = State::Stopping(Then::End(Box::new(self.ending_of_stop(reason))));
                }
                if force {
                    self.abandon_checkpoints(out);
                }
                out.commands.push(Command::StopGroup { attempt: self.attempt, grace });
            }
            State::Waiting | State::Restarting => {
                out.commands.push(Command::EndRun(self.ending_of_stop(reason)));
                self.state = State::Ended;
            }
            State::Starting | State::Running | State::Gathering => {
                let ending = self.ending_of_stop(reason);
                if force {
                    self.abandon_checkpoints(out);
                }
                self.stop_group(Then::End(Box::new(ending)), grace, out);
            }
        }
    }

    fn ending_of_stop(&self, reason: &str) -> Ending {
        if !self.failures.is_empty() {
            return self.ending_of_failure();
        }
        let failure = Failure::new(ErrorCode::Aborted, reason);
        Ending {
            status: RunStatus::Aborted,
            headline: format!("stopped: {reason}"),
            failure: Some(failure),
            failures: Vec::new(),
            return_values: Vec::new(),
            timed_out: false,
        }
    }

    fn on_timer(&mut self, timer: Timer, now: Duration, out: &mut Outcome<R>) {
        match timer {
            Timer::Gather(attempt) if self.state == State::Gathering && attempt == self.attempt => {
                self.stop_after_failure("the other ranks had their time to tell", out);
            }
            Timer::Hang(attempt) if attempt == self.attempt => self.look_for_hangs(now, out),
            Timer::Gather(_) | Timer::Hang(_) => {}
            Timer::Preempt => self.on_preempt_timer(out),
            Timer::Validation(iteration) => self.on_validation_timer(iteration, out),
            Timer::Warn => {
                self.warning = false;
                self.warn_of_slowness(now, out);
                self.keep_warning(out);
            }
        }
    }

    fn warn_of_slowness(&mut self, now: Duration, out: &mut Outcome<R>) {
        let every = WARN_EVERY.as_secs();
        if self.state == State::Starting {
            let late: Vec<Rank> =
                (0..).zip(&self.workers).filter(|(_, w)| !w.is_ready()).map(|(rank, _)| Rank(rank)).collect();
            out.commands.push(Command::Warn(format!("{} not started after {every} s", ranks_text(&late))));
            return;
        }
        let long = self.waits.long(now, WARN_EVERY);
        if !long.is_empty() {
            let missing = self.waits.missing(self.workers.len());
            let waiting = self.waits.describe(|rank| long.contains(&rank));
            let hint = self.waits.hint(&long).map_or_else(String::new, |hint| format!("; {hint}"));
            out.commands
                .push(Command::Warn(format!("{waiting} for {every} s: {} not there{hint}", ranks_text(&missing))));
        }
    }

    fn keep_warning(&mut self, out: &mut Outcome<R>) {
        if !self.warning && (self.state == State::Starting || !self.waits.is_empty()) {
            self.warning = true;
            out.commands.push(Command::SetTimer { timer: Timer::Warn, after: WARN_EVERY });
        }
    }

    /// Once every rank has failed, returned or gone, there is nothing to gather any more.
    fn stop_if_all_told(&mut self, out: &mut Outcome<R>) {
        if self.state == State::Gathering && self.counts.untold == 0 {
            let why =
                if out.reason.is_empty() { "every rank has told how it ended".into() } else { out.reason.clone() };
            self.stop_after_failure(&why, out);
        }
    }

    fn ending_of_failure(&self) -> Ending {
        let first = &self.failures[0];
        Ending {
            status: RunStatus::Failed,
            headline: first.headline(),
            failure: Some(first.failure.clone()),
            failures: self.failures.clone(),
            return_values: Vec::new(),
            timed_out: false,
        }
    }

    /// A failure that is no rank's own: the ranks' calls do not fit together, or a checkpoint cannot be kept.
    fn fail_run(&mut self, failure: Failure, out: &mut Outcome<R>) {
        if !matches!(self.state, State::Starting | State::Running) {
            return;
        }
        out.reason.clone_from(&failure.message);
        let then = self.after_failure(&failure, &failure.message, |_| Ending::of_failure(failure.clone()));
        self.stop_group(then, Duration::ZERO, out);
    }

    /// Ends the run without a restart, whatever the budgets say. An ending that was decided before stays.
    fn on_broken(&mut self, failure: Failure, out: &mut Outcome<R>) {
        match &self.state {
            State::Waiting | State::Restarting => self.on_refused(failure, out),
            State::Starting | State::Running | State::Gathering => {
                out.reason.clone_from(&failure.message);
                self.stop_group(Then::End(Box::new(Ending::of_failure(failure))), Duration::ZERO, out);
            }
            State::Stopping(Then::Restart(_)) => {
                out.reason.clone_from(&failure.message);
                self.state = State::Stopping(Then::End(Box::new(Ending::of_failure(failure))));
            }
            State::Stopping(Then::End(_)) | State::Ended => {}
        }
    }

    fn fail_if_hopeless(&mut self, out: &mut Outcome<R>) {
        let all_bound = self.waits.len() + self.counts.returned >= self.workers.len();
        let preempted = self.preemption.is_some();
        if preempted
            || self.waits.is_empty()
            || !self.checkpoints.are_settled()
            || !self.validations.are_over()
            || (self.counts.returned == 0 && !all_bound)
        {
            return;
        }
        let data = self.waits.release_hopeless_data(self.workers.len(), self.counts.returned);
        if !data.is_empty() {
            return release(data, out);
        }
        let returned = self.told();
        if let Some(failure) = self.waits.hopeless(self.workers.len(), &returned) {
            self.fail_with_stacks(failure, out);
        }
    }

    /// Ranks that have returned or failed.
    fn told(&self) -> Vec<Rank> {
        (0..).zip(&self.workers).filter(|(_, w)| w.is_told()).map(|(rank, _)| Rank(rank)).collect()
    }

    fn finish_if_returned(&mut self, out: &mut Outcome<R>) {
        let open = matches!(self.state, State::Starting | State::Running);
        if !open || self.counts.returned < self.workers.len() || !self.checkpoints.are_settled() {
            return;
        }
        if self.preemption.as_ref().is_some_and(|preemption| preemption.seen) {
            out.reason = "preempted, and every rank returned".to_owned();
            let ending = self.ending_of_preemption(None);
            self.stop_group(Then::End(Box::new(ending)), LEAVE, out);
        } else if let Some(lost) = self.checkpoints.lost() {
            let mut failure = lost.clone();
            failure.message = format!("the last checkpoint could not be stored: {}", failure.message);
            self.end_without_last(failure, out);
        } else {
            out.reason = match self.validations.count() {
                _ if self.preemption.is_some() => "every rank returned, preempted as they were".to_owned(),
                0 => "every rank returned".to_owned(),
                1 => "every rank returned; the validation of 1 checkpoint is waited for".to_owned(),
                count => format!("every rank returned; the validations of {count} checkpoints are waited for"),
            };
            let ending = Ending {
                status: RunStatus::Finished,
                headline: "finished".to_owned(),
                failure: None,
                failures: Vec::new(),
                return_values: self.return_values.clone(),
                timed_out: false,
            };
            self.stop_group(Then::End(Box::new(ending)), LEAVE, out);
            if self.preemption.is_some() {
                self.abandon_validations(out);
            }
        }
    }

    /// What the ranks did went well, and doing it again would not make room for its files: only what took them along is worth it.
    fn end_without_last(&mut self, failure: Failure, out: &mut Outcome<R>) {
        if !matches!(failure.code, ErrorCode::Storage | ErrorCode::StorageRefused | ErrorCode::Checkpoint) {
            return self.fail_run(failure, out);
        }
        let failure = failure.hint("the next `fit()` of this name resumes from the checkpoint before it");
        out.reason.clone_from(&failure.message);
        let ending = Ending {
            status: RunStatus::Failed,
            headline: failure.message.clone(),
            failure: Some(failure),
            failures: Vec::new(),
            return_values: self.return_values.clone(),
            timed_out: false,
        };
        self.stop_group(Then::End(Box::new(ending)), LEAVE, out);
    }

    fn stop_group(&mut self, then: Then, grace: Duration, out: &mut Outcome<R>) {
        if !self.failures.is_empty() {
            out.commands.push(Command::TellFailures(self.failures.clone()));
        }
        if self.state != State::Gathering {
            out.commands.push(Command::ChangeStatus(RunStatus::Stopping));
        }
        self.state = State::Stopping(then);
        out.commands.push(Command::StopGroup { attempt: self.attempt, grace });
    }

    fn end_if_done(&mut self, out: &mut Outcome<R>) {
        let State::Stopping(then) = &self.state else { return };
        if self.counts.gone < self.workers.len() || !self.checkpoints.are_settled() {
            return;
        }
        if self.is_finishing() && !self.validations.are_over() {
            return;
        }
        match then.clone() {
            Then::End(ending) => {
                out.commands.push(Command::EndRun(*ending));
                self.state = State::Ended;
            }
            Then::Restart(restart) => self.restart(restart, out),
        }
    }

    fn is_finishing(&self) -> bool {
        matches!(&self.state, State::Stopping(Then::End(ending)) if ending.status == RunStatus::Finished)
    }

    fn mark_gone(&mut self, rank: Rank) {
        if self.workers[rank.index()] != WorkerState::Gone {
            self.move_worker(rank, WorkerState::Gone);
        }
        self.waits.leave(rank);
    }

    fn move_worker(&mut self, rank: Rank, to: WorkerState) {
        let from = std::mem::replace(&mut self.workers[rank.index()], to);
        self.counts.not_ready -= usize::from(!from.is_ready() && to.is_ready());
        self.counts.untold -= usize::from(!from.is_told() && to.is_told());
        self.counts.returned += usize::from(to == WorkerState::Returned);
        self.counts.gone += usize::from(to == WorkerState::Gone);
    }

    pub fn check_invariants(&self) {
        self.collator.check_invariants();
        self.check_checkpoints();
        let count = |is: fn(WorkerState) -> bool| self.workers.iter().filter(|w| is(**w)).count();
        let gone = count(|w| w == WorkerState::Gone);
        assert_eq!(self.counts.gone, gone, "RUN-1: the counts follow the states");
        assert_eq!(self.counts.not_ready, count(|w| !w.is_ready()), "RUN-1: the counts follow the states");
        assert_eq!(self.counts.untold, count(|w| !w.is_told()), "RUN-1: the counts follow the states");
        if self.state == State::Ended && self.workers.iter().any(|w| *w != WorkerState::NotStarted) {
            assert_eq!(gone, self.workers.len(), "RUN-1: no process outlives the run");
            assert!(self.checkpoints.are_settled(), "RUN-4: the run waits for its checkpoints");
        }
        if self.state == State::Gathering {
            assert!(!self.failures.is_empty(), "RUN-2: nothing is stopped without a cause");
        }
    }
}

fn release<R>(released: Vec<Released>, out: &mut Outcome<R>) {
    out.commands.extend(released.into_iter().map(|wait| Command::Release {
        rank: wait.rank,
        kind: wait.kind,
        sequence: wait.sequence,
        result: wait.result,
    }));
}
