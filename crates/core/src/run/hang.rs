//! Ranks that make no progress: when to look at them, and what to say.
//!
//! Progress is a report, a wait of ours that begins, or output. A rank that waits in a collective of the framework's makes
//! none, so the ranks' stacks are asked for before anybody is named.

use std::time::Duration;

use carril_types::{ErrorCode, Failure, Rank};

use super::{Command, Outcome, RunMachine, State, Timer, WorkerState};
use crate::stacks::{RankStack, summarize};

/// After so long without progress there is a warning, where the user has set nothing.
const WARN_AFTER: Duration = Duration::from_secs(600);
/// Imports and the meeting of the ranks may take so long, whatever the user has set for the function.
const START: Duration = Duration::from_secs(60);
/// A run is looked at at least this often.
const LOOK_AT_LEAST: Duration = Duration::from_secs(60);

const IN_STACKS: &str = "the stacks of every rank are in `stacks.txt` of the run's directory";

#[derive(Clone, Debug)]
pub(super) struct Hang {
    timeout: Option<Duration>,
    last: Vec<Duration>,
    /// Ranks whose standstill has been told of; they are told of again only after they have moved.
    told: Vec<Rank>,
    asked: bool,
    /// Proven already: the stacks are only to be kept with it.
    proven: Option<Failure>,
    /// Ranks whose process is stopped by a signal.
    halted: Vec<Rank>,
    /// When anything was last heard of.
    heard: Duration,
}

impl Hang {
    pub fn new(world_size: u32, timeout: Option<Duration>) -> Self {
        Self {
            timeout,
            last: vec![Duration::ZERO; world_size as usize],
            told: Vec::new(),
            asked: false,
            proven: None,
            halted: Vec::new(),
            heard: Duration::ZERO,
        }
    }

    /// For the next attempt.
    pub fn reset(&self) -> Self {
        Self::new(self.last.len() as u32, self.timeout)
    }

    /// The looks themselves are heard of: a much longer silence is that of a head which was stopped or asleep, and is no
    /// rank's standstill.
    pub fn heard(&mut self, now: Duration) {
        let silence = now.saturating_sub(self.heard);
        self.heard = now;
        if silence > self.look_every() * 2 {
            let absence = silence - self.look_every();
            self.last.iter_mut().for_each(|last| *last += absence);
        }
    }

    pub fn progressed(&mut self, rank: Rank, now: Duration) {
        self.last[rank.index()] = now;
        if !self.told.is_empty() {
            self.told.retain(|told| *told != rank);
        }
    }

    fn patience(&self) -> Duration {
        self.timeout.unwrap_or(WARN_AFTER)
    }

    pub fn look_every(&self) -> Duration {
        (self.patience() / 4).min(LOOK_AT_LEAST)
    }
}

impl<R> RunMachine<R> {
    pub(super) fn on_worker_halted(&mut self, rank: Rank, halted: bool, out: &mut Outcome<R>) {
        self.hang.halted.retain(|known| *known != rank);
        if halted {
            self.hang.halted.push(rank);
            out.reason = format!("the process of rank {rank} was stopped by a signal; SIGCONT lets it go on");
        } else {
            out.reason = format!("the process of rank {rank} goes on");
        }
        out.commands.push(Command::Warn(out.reason.clone()));
    }

    pub(super) fn look_for_hangs(&mut self, now: Duration, out: &mut Outcome<R>) {
        if !matches!(self.state, State::Starting | State::Running) {
            return;
        }
        out.commands.push(Command::SetTimer { timer: Timer::Hang(self.attempt), after: self.hang.look_every() });
        let fresh = self.stuck(now).iter().any(|rank| !self.hang.told.contains(rank));
        if fresh && !self.hang.asked {
            self.hang.asked = true;
            out.reason = format!("no progress for {:?}: the ranks are asked where they are", self.patience());
            out.commands.push(Command::GatherStacks { attempt: self.attempt });
        }
    }

    /// For ranks that wait for one that will not come: where they are is kept before they go.
    pub(super) fn fail_with_stacks(&mut self, failure: Failure, out: &mut Outcome<R>) {
        let going_on = matches!(self.state, State::Starting | State::Running);
        if going_on && self.hang.proven.is_none() {
            out.reason.clone_from(&failure.message);
            self.hang.proven = Some(failure.hint(IN_STACKS));
            out.commands.push(Command::GatherStacks { attempt: self.attempt });
        }
    }

    pub(super) fn on_stacks_gathered(&mut self, stacks: &[RankStack], now: Duration, out: &mut Outcome<R>) {
        if let Some(failure) = self.hang.proven.take() {
            self.fail_run(failure, out);
            return;
        }
        let going_on = matches!(self.state, State::Starting | State::Running);
        if !std::mem::take(&mut self.hang.asked) || !going_on {
            return;
        }
        let stuck = self.stuck(now);
        if stuck.is_empty() {
            return;
        }
        let seconds = self.patience().as_secs_f64();
        let mut sentence = format!("no progress for {seconds} s: {}", summarize(stacks, &stuck));
        // The stacks say where the others wait, and of data not for whom.
        let data = self.waits.describe(|rank| self.waits.is_for_data(rank));
        if !data.is_empty() {
            sentence = format!("{sentence}; {data}");
        }
        out.reason.clone_from(&sentence);
        self.hang.told = stuck;
        if self.hang.timeout.is_some() {
            // Who stops a process from outside is not the user's function.
            let halted = self.hang.told.iter().any(|rank| self.hang.halted.contains(rank));
            let code = if halted { ErrorCode::WorkerStopped } else { ErrorCode::Hang };
            let failure = Failure::new(code, sentence).hint(IN_STACKS).hint(
                "RunConfig(hang_timeout=…) is how long a rank may go without a report, output or a collective of ours",
            );
            self.fail_run(failure, out);
        } else {
            out.commands.push(Command::Warn(sentence));
        }
    }

    fn patience(&self) -> Duration {
        let patience = self.hang.patience();
        if self.state == State::Starting { patience.max(START) } else { patience }
    }

    /// Ranks that have a process and have not moved for as long as patience lasts.
    fn stuck(&self, now: Duration) -> Vec<Rank> {
        let alive = |state: &WorkerState| matches!(state, WorkerState::Started | WorkerState::Running);
        let running = (0..).zip(&self.workers).filter(|(_, state)| alive(state));
        running
            .map(|(rank, _)| Rank(rank))
            .filter(|rank| now.saturating_sub(self.hang.last[rank.index()]) >= self.patience())
            .collect()
    }
}
