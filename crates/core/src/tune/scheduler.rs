//! What becomes of a trial with each of its reports: it goes on, pauses, stops, or goes on from where another trial is.
//!
//! A scheduler decides and performs nothing: the driver of the experiment adds trials, tells what they report, and carries out
//! what it is told. Before it asks which trial runs next, it adds those that the searcher has.
//!
//! SCHED-1: what was not reported decides nothing: without the metric or the time attribute, a trial goes on.
//! SCHED-2: a metric that is not a number is the worst there is, in both modes.
//! SCHED-3: the same events give the same decisions, also if the state was saved and restored between them.
//! SCHED-4: a trial that has ended gets no order and is not chosen.

mod asha;
mod errors;
mod fifo;
mod gaussian;
mod hyperband;
mod median;
mod pbt;
mod resources;
mod score;

use carril_types::{Metrics, Resources};
use serde::{Deserialize, Serialize};

pub use self::asha::{Asha, AshaOptions};
pub use self::errors::SchedulerError;
pub use self::fifo::Fifo;
pub use self::hyperband::{HyperBand, HyperBandOptions, Plan, Rung, plan};
pub use self::median::{MedianOptions, MedianStopping};
pub use self::pbt::{Bound, Factor, Mutation, MutationOptions, Pbt, PbtOptions, Policy, Replay};
pub use self::resources::{Allocation, Distribution, Holding, ResourceChanging};
pub use self::score::{Score, Target};
use super::TrialId;

/// What becomes of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Decision {
    Continue,
    /// It saves a checkpoint and waits until it is chosen.
    Pause,
    /// It is not worth more: it ends before its time.
    Stop,
    /// It has had all that it is given.
    Complete,
    /// It leaves its work and waits, until it is chosen to go on from the newest checkpoint of `from` (which may be itself), and
    /// from the time that was reported with it.
    Exploit {
        from: TrialId,
        with: NewConfig,
    },
    /// It saves a checkpoint and waits, until it is chosen to go on with these resources.
    Resize(Resources),
}

/// A decision, and the sentence that explains it in the log and in the status.
pub type Explained = (Decision, String);

/// A decision about a trial that did not report just now.
pub type Order = (TrialId, Decision, String);

/// Where a value is in a config: the keys on the way to it.
pub type Path = Vec<String>;

/// A config that a scheduler made. Before a trial runs with it, functions of the user sample what is at the paths in `ask`; the
/// scheduler hears of that by `on_config`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewConfig {
    pub config: Metrics,
    pub ask: Vec<Path>,
}

pub trait Scheduler {
    /// Returns the config to run it with, where that is another one.
    fn on_trial_added(&mut self, trial: TrialId, config: &Metrics) -> Option<NewConfig>;

    /// What a trial runs with in the end, after functions of the user had their say about a config that was made here.
    fn on_config(&mut self, _trial: TrialId, _config: &Metrics) {}

    /// The trial goes on as it was: there was no checkpoint to go on from.
    fn on_exploit_refused(&mut self, _trial: TrialId) {}

    /// The searcher has finished.
    fn on_no_more_trials(&mut self) {}

    /// Who holds what, before a report is told. Only a scheduler that changes resources needs it.
    fn on_resources(&mut self, _holdings: &[Holding], _free: &Resources) {}

    /// Whether trials wait for a place that this scheduler does not see: chosen and without room, or not made yet. Told before a
    /// report is.
    fn on_others_wait(&mut self, _others_wait: bool) {}

    fn on_result(&mut self, trial: TrialId, result: &Metrics) -> Explained;

    /// It ended well, or somebody else stopped it.
    fn on_trial_completed(&mut self, trial: TrialId, result: &Metrics);

    /// It failed for good.
    fn on_trial_failed(&mut self, trial: TrialId);

    /// Which of the trials that wait runs next, the oldest of them first in both lists. The one that is chosen is started.
    fn choose(&mut self, pending: &[TrialId], paused: &[TrialId]) -> Option<TrialId>;

    /// The records of an earlier head have been replayed: nothing runs now, whatever they say.
    fn on_replayed(&mut self) {}

    /// Whether the trial may not run before others have come as far.
    fn holds_back(&self, _trial: TrialId) -> bool {
        false
    }

    /// What the last event, or the last choice, decided about trials that wait. Taken and carried out before the next one.
    fn take_orders(&mut self) -> Vec<Order> {
        Vec::new()
    }

    /// What population-based training changed since it was last asked: the log from which a run can be replayed. Taken once
    /// the configs of the last exploits are known.
    fn take_policies(&mut self) -> Vec<Policy> {
        Vec::new()
    }

    /// The time before which no report of the trial can lead to anything but that it goes on, as far as that is known: in
    /// `training_iteration`s. Zero where every report counts.
    fn undecided_before(&self, _trial: TrialId) -> f64 {
        0.0
    }

    /// Whether others may go on from where the trial is, as of its last report.
    fn wants_checkpoint(&self, _trial: TrialId) -> bool {
        false
    }

    /// What it reads of a result, by flattened name.
    fn looks_at(&self) -> Vec<String>;

    /// One line for the status.
    fn describe(&self) -> String;
}

/// A scheduler as it is kept and saved.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnyScheduler {
    Fifo(Fifo),
    Asha(Asha),
    HyperBand(HyperBand),
    MedianStopping(MedianStopping),
    Pbt(Pbt),
    Replay(Replay),
    ResourceChanging(ResourceChanging),
}

impl AnyScheduler {
    fn inner(&self) -> &dyn Scheduler {
        match self {
            AnyScheduler::Fifo(fifo) => fifo,
            AnyScheduler::Asha(asha) => asha,
            AnyScheduler::HyperBand(hyperband) => hyperband,
            AnyScheduler::MedianStopping(median) => median,
            AnyScheduler::Pbt(pbt) => pbt,
            AnyScheduler::Replay(replay) => replay,
            AnyScheduler::ResourceChanging(changing) => changing,
        }
    }

    fn inner_mut(&mut self) -> &mut dyn Scheduler {
        match self {
            AnyScheduler::Fifo(fifo) => fifo,
            AnyScheduler::Asha(asha) => asha,
            AnyScheduler::HyperBand(hyperband) => hyperband,
            AnyScheduler::MedianStopping(median) => median,
            AnyScheduler::Pbt(pbt) => pbt,
            AnyScheduler::Replay(replay) => replay,
            AnyScheduler::ResourceChanging(changing) => changing,
        }
    }
}

impl Scheduler for AnyScheduler {
    fn on_trial_added(&mut self, trial: TrialId, config: &Metrics) -> Option<NewConfig> {
        self.inner_mut().on_trial_added(trial, config)
    }

    fn on_config(&mut self, trial: TrialId, config: &Metrics) {
        self.inner_mut().on_config(trial, config);
    }

    fn on_exploit_refused(&mut self, trial: TrialId) {
        self.inner_mut().on_exploit_refused(trial);
    }

    fn on_no_more_trials(&mut self) {
        self.inner_mut().on_no_more_trials();
    }

    fn on_resources(&mut self, holdings: &[Holding], free: &Resources) {
        self.inner_mut().on_resources(holdings, free);
    }

    fn on_others_wait(&mut self, others_wait: bool) {
        self.inner_mut().on_others_wait(others_wait);
    }

    fn on_result(&mut self, trial: TrialId, result: &Metrics) -> Explained {
        self.inner_mut().on_result(trial, result)
    }

    fn on_trial_completed(&mut self, trial: TrialId, result: &Metrics) {
        self.inner_mut().on_trial_completed(trial, result);
    }

    fn on_trial_failed(&mut self, trial: TrialId) {
        self.inner_mut().on_trial_failed(trial);
    }

    fn choose(&mut self, pending: &[TrialId], paused: &[TrialId]) -> Option<TrialId> {
        self.inner_mut().choose(pending, paused)
    }

    fn on_replayed(&mut self) {
        self.inner_mut().on_replayed();
    }

    fn holds_back(&self, trial: TrialId) -> bool {
        self.inner().holds_back(trial)
    }

    fn take_orders(&mut self) -> Vec<Order> {
        self.inner_mut().take_orders()
    }

    fn take_policies(&mut self) -> Vec<Policy> {
        self.inner_mut().take_policies()
    }

    fn undecided_before(&self, trial: TrialId) -> f64 {
        self.inner().undecided_before(trial)
    }

    fn wants_checkpoint(&self, trial: TrialId) -> bool {
        self.inner().wants_checkpoint(trial)
    }

    fn looks_at(&self) -> Vec<String> {
        self.inner().looks_at()
    }

    fn describe(&self) -> String {
        self.inner().describe()
    }
}
