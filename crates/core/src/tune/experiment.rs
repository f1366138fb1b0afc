//! The experiment: which trials there are, which run, which wait, and what becomes of each after a report.
//!
//! EXP-1: at most one trial waits for room. The next one is made when that one has it, so that a searcher that learns is asked as late
//!   as it can be. Where nothing is learnt, `AHEAD` may wait: their files are made while others run.
//! EXP-2: every report that could change something is decided on before the trial goes on; the others are known beforehand (`free`).
//! EXP-3: a trial ends once, with one reason. One that was cut off with the experiment (an interrupt, a time budget, a stopper of the
//!   whole, a failure) has not ended: the next head resumes it.
//!   So is one that could not begin or end because what all need is gone (the storage): that is no trial's failure.
//! EXP-4: scheduler and searcher hear of the same events in the same order when the records are replayed.
//! EXP-5: an experiment ends when nothing runs, nothing waits, and the searcher has no more; it never waits for nothing.
//! EXP-6: that a metric is missing is decided when nothing that runs could still report it: beside a trial that reported other things
//!   only, those that ran with it; where trials reported nothing at all, every trial.
//! EXP-7: a trial that ended well has the config that its last report was made with: one that an exploit gave it, and that it never
//!   reported with, goes.

mod events;
mod filling;
mod judging;
mod restoring;

use std::collections::{BTreeMap, BTreeSet};

use carril_types::{Failure, Metrics, Resources, Value, near, write_json};

pub use self::events::{
    Answer, EndedTrial, ExperimentCommand, ExperimentEnd, ExperimentEvent, Question, Record, RunEnd, Verdict,
};
pub use self::restoring::Resuming;
use super::scheduler::{AnyScheduler, Decision, NewConfig, Scheduler};
use super::search::{AnySearcher, Searcher};
use super::{Mode, TrialId};

#[derive(Clone, Debug, Default)]
pub struct ExperimentOptions {
    /// How often a searcher is asked that does not count by itself.
    pub most: Option<u64>,
    pub max_concurrent: Option<usize>,
    /// A trial stops when it reports at least that much, by flattened name.
    pub stop: Vec<(String, f64)>,
    /// A function of the user's judges every report, in the driver.
    pub asks_judge: bool,
    /// The driver completes every config.
    pub asks_config: bool,
    /// The driver has a say in what population-based training has made.
    pub asks_explored: bool,
    /// The first trial that fails ends the experiment.
    pub fail_fast: bool,
    /// A trial that is told to pause saves a checkpoint by itself.
    pub saves_itself: bool,
    /// What every report must have, by flattened name.
    pub requires: Vec<String>,
    /// What the searcher or the scheduler cannot do without.
    pub metric: Option<(String, Mode)>,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    /// The driver is asked for its config.
    Resolving,
    Pending,
    /// Asks for room.
    Submitted,
    Running,
    /// The driver judges this report of its.
    Judging(u64),
    Pausing(String),
    Stopping(Stop),
    Paused,
    Ended,
    /// The experiment ended before it.
    Unfinished,
}

/// Why a trial stops.
#[derive(Clone, Debug, PartialEq)]
struct Stop {
    reason: String,
    /// The scheduler knows.
    by_scheduler: bool,
    /// It is not worth more: a scheduler ends it before its time.
    early: bool,
}

impl Stop {
    fn by_rule(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), by_scheduler: false, early: false }
    }

    fn by_scheduler(reason: impl Into<String>, early: bool) -> Self {
        Self { reason: reason.into(), by_scheduler: true, early }
    }
}

/// Goes on from the checkpoint of another trial.
#[derive(Clone, Debug, PartialEq)]
struct Exploit {
    from: TrialId,
    with: NewConfig,
    reason: String,
}

#[derive(Clone, Debug)]
struct Trial {
    config: Metrics,
    /// That of its last report, where an exploit has changed it since.
    reported_config: Option<Metrics>,
    names: Option<(String, String)>,
    state: State,
    last: Option<Metrics>,
    has_metric: bool,
    /// It has ended well.
    completed: bool,
    checkpoints: u64,
    /// Reports up to this number need no decision.
    free: u64,
    exploit: Option<Exploit>,
    resources: Option<Resources>,
}

impl Trial {
    /// It goes on with another config; the one before is that of what it has reported.
    fn change_config(&mut self, config: Metrics) {
        let before = std::mem::replace(&mut self.config, config);
        self.reported_config.get_or_insert(before);
    }
}

pub struct Experiment {
    options: ExperimentOptions,
    /// `None`: the driver is asked.
    searcher: Option<AnySearcher>,
    scheduler: Option<AnyScheduler>,
    trials: Vec<Trial>,
    pending: Vec<TrialId>,
    paused: Vec<TrialId>,
    /// They ask for room.
    submitted: BTreeSet<TrialId>,
    live: BTreeSet<TrialId>,
    /// What the driver was asked, by number.
    questions: BTreeMap<u64, Question>,
    next_question: u64,
    /// The searcher has no more.
    exhausted: bool,
    /// The searcher wants to know how a trial ends first.
    not_now: bool,
    /// The driver's scheduler chose nobody; asked again after the next event.
    nobody_chosen: bool,
    told_missing: bool,
    /// A trial that ended and had reported other things only, and those that ran beside it: they may yet report the metric.
    lacks_metric: Option<TrialId>,
    may_have_metric: BTreeSet<TrialId>,
    told_no_checkpoint: bool,
    told_unseen: bool,
    ending: Option<ExperimentEnd>,
    ended: bool,
    /// Left by the head before, until `Begun`: orders that no record says were carried out, and runs that ended unheard.
    orders_left: BTreeMap<TrialId, (Decision, String)>,
    runs_ended: BTreeMap<TrialId, RunEnd>,
}

type Out = Vec<ExperimentCommand>;

impl Experiment {
    /// Without a searcher or a scheduler of ours, the driver is asked.
    pub fn new(
        options: ExperimentOptions,
        searcher: Option<AnySearcher>,
        scheduler: Option<AnyScheduler>,
    ) -> Experiment {
        Experiment {
            options,
            searcher,
            scheduler,
            trials: Vec::new(),
            pending: Vec::new(),
            paused: Vec::new(),
            submitted: BTreeSet::new(),
            live: BTreeSet::new(),
            questions: BTreeMap::new(),
            next_question: 0,
            exhausted: false,
            not_now: false,
            nobody_chosen: false,
            told_missing: false,
            lacks_metric: None,
            may_have_metric: BTreeSet::new(),
            told_no_checkpoint: false,
            told_unseen: false,
            ending: None,
            ended: false,
            orders_left: BTreeMap::new(),
            runs_ended: BTreeMap::new(),
        }
    }

    pub fn on_event(&mut self, event: ExperimentEvent) -> Out {
        let mut out = Vec::new();
        if self.ended {
            return out;
        }
        self.nobody_chosen = false;
        match event {
            ExperimentEvent::Begun => self.catch_up(&mut out),
            ExperimentEvent::Answered { question, answer, orders } => {
                self.on_answered(question, answer, &mut out);
                for (trial, decision, reason) in orders {
                    // Whom the driver would choose now may be another one.
                    self.nobody_chosen = false;
                    self.carry_out_order(trial, decision, reason, &mut out);
                }
            }
            ExperimentEvent::Placed { trial } => self.on_placed(trial),
            ExperimentEvent::Refused { trial, reason } => self.on_refused(trial, reason, &mut out),
            ExperimentEvent::Reported { trial, number, result } => self.on_reported(trial, number, result, &mut out),
            ExperimentEvent::RunEnded { trial, end } => self.on_run_ended(trial, end, &mut out),
            ExperimentEvent::Broken { trial, failure } => self.on_broken(trial, failure, &mut out),
            ExperimentEvent::StopRequested { reason } => self.end_by(ExperimentEnd::Stopped(reason), &mut out),
            ExperimentEvent::EnoughSeen { reason } => self.end_by(ExperimentEnd::Finished(reason), &mut out),
        }
        self.carry_out_orders(&mut out);
        self.fill(&mut out);
        out
    }

    /// How many trials have ended.
    pub fn ended(&self) -> usize {
        self.trials.iter().filter(|trial| trial.state == State::Ended).count()
    }

    /// It ends as soon as nothing runs.
    pub fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    pub fn config(&self, trial: TrialId) -> &Metrics {
        &self.trials[trial.0 as usize].config
    }

    pub fn len(&self) -> usize {
        self.trials.len()
    }

    pub fn is_empty(&self) -> bool {
        self.trials.is_empty()
    }

    /// One line of the scheduler's for the status.
    pub fn describe(&self) -> String {
        self.scheduler.as_ref().map_or_else(|| "the user's scheduler".to_owned(), Scheduler::describe)
    }

    fn trial(&mut self, trial: TrialId) -> &mut Trial {
        &mut self.trials[trial.0 as usize]
    }

    /// None of a number that no trial has, which only a driver could name.
    fn checkpoints_of(&self, trial: TrialId) -> u64 {
        self.trials.get(trial.0 as usize).map_or(0, |one| one.checkpoints)
    }

    fn ask(&mut self, about: Question, out: &mut Out) {
        let question = self.next_question;
        self.next_question += 1;
        self.questions.insert(question, about.clone());
        out.push(ExperimentCommand::Ask { question, about });
    }

    fn on_placed(&mut self, trial: TrialId) {
        self.submitted.remove(&trial);
        if self.trial(trial).state == State::Submitted {
            self.trial(trial).state = State::Running;
        }
        self.live.insert(trial);
    }

    /// It cannot be run at all.
    fn on_refused(&mut self, trial: TrialId, reason: String, out: &mut Out) {
        self.submitted.remove(&trial);
        // It may have had room, and only its files could not be opened: no run of it will end.
        self.live.remove(&trial);
        if self.ending.is_some() {
            self.trial(trial).state = State::Unfinished;
        } else {
            self.fail_trial(trial, reason, out);
        }
    }

    fn on_broken(&mut self, trial: Option<TrialId>, failure: Failure, out: &mut Out) {
        if let Some(trial) = trial {
            self.leave(trial);
            if self.trial(trial).state != State::Ended {
                self.trial(trial).state = State::Unfinished;
            }
        }
        self.end_by(ExperimentEnd::Broken(failure), out);
    }

    /// Nothing of it runs, and what was asked about it need not be answered.
    fn leave(&mut self, trial: TrialId) {
        self.submitted.remove(&trial);
        self.live.remove(&trial);
        self.questions.retain(|_, about| !matches!(about, Question::Judge { trial: judged, .. } if *judged == trial));
    }

    fn on_run_ended(&mut self, trial: TrialId, end: RunEnd, out: &mut Out) {
        self.leave(trial);
        let is_cut_off = self.ending.is_some();
        let state = self.trial(trial).state.clone();
        match (state, end) {
            (State::Ended, _) => {}
            (State::Stopping(stop), _) => self.complete(trial, stop, out),
            (_, RunEnd::Failed(headline)) => self.fail_trial(trial, headline, out),
            (State::Pausing(reason), _) => self.pause(trial, reason, out),
            (_, RunEnd::Finished) => self.complete(trial, Stop::by_rule("the function returned"), out),
            (_, RunEnd::Aborted(_)) if is_cut_off => self.trial(trial).state = State::Unfinished,
            (_, RunEnd::Aborted(reason)) => self.complete(trial, Stop::by_rule(reason), out),
        }
    }

    /// The run of the trial is gone; it waits until it is chosen again.
    fn pause(&mut self, trial: TrialId, reason: String, out: &mut Out) {
        let asks = self.options.asks_explored;
        let one = self.trial(trial);
        one.state = State::Paused;
        one.free = 0;
        let asked = one.exploit.as_ref().filter(|exploit| asks || !exploit.with.ask.is_empty());
        let question = asked.map(|exploit| Question::Resolve {
            trial,
            config: exploit.with.config.clone(),
            paths: exploit.with.ask.clone(),
            explored: true,
        });
        match question {
            Some(question) => {
                one.state = State::Resolving;
                self.ask(question, out);
            }
            None => self.wait_as_paused(trial, reason, out),
        }
    }

    fn wait_as_paused(&mut self, trial: TrialId, reason: String, out: &mut Out) {
        let one = self.trial(trial);
        one.state = State::Paused;
        match one.exploit.clone() {
            Some(Exploit { from, with, reason }) => {
                one.change_config(with.config.clone());
                one.checkpoints = 1;
                out.push(ExperimentCommand::Adopt { trial, from });
                out.push(ExperimentCommand::Record(Record::Exploited { trial, from, config: with.config, reason }));
            }
            None => out.push(ExperimentCommand::Record(Record::Paused { trial, reason })),
        }
        self.paused.push(trial);
        self.tell_policies(out);
    }

    /// The trial is over, and well.
    fn complete(&mut self, trial: TrialId, stop: Stop, out: &mut Out) {
        let Stop { reason, by_scheduler, early } = stop;
        let one = self.trial(trial);
        one.state = State::Ended;
        one.completed = true;
        one.exploit = None;
        let last = one.last.clone().unwrap_or_default();
        let has_metric = one.has_metric;
        // EXP-7.
        let config = one.reported_config.take();
        if let Some(config) = &config {
            one.config.clone_from(config);
        }
        if !by_scheduler && let Some(scheduler) = &mut self.scheduler {
            scheduler.on_trial_completed(trial, &last);
        }
        self.trial_is_over(trial, Some(last), out);
        out.push(ExperimentCommand::Record(Record::Ended(EndedTrial {
            trial,
            reason,
            error: None,
            by_scheduler,
            early,
            config,
        })));
        self.miss_metric(trial, has_metric, out);
        self.warn_of_idle_population(trial, out);
    }

    fn fail_trial(&mut self, trial: TrialId, headline: String, out: &mut Out) {
        let one = self.trial(trial);
        one.state = State::Ended;
        one.exploit = None;
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.on_trial_failed(trial);
        }
        self.trial_is_over(trial, None, out);
        let (reason, error) = ("it failed".to_owned(), Some(headline.clone()));
        let ended = EndedTrial { trial, reason, error, by_scheduler: false, early: false, config: None };
        out.push(ExperimentCommand::Record(Record::Ended(ended)));
        self.miss_metric(trial, true, out);
        if self.options.fail_fast {
            self.end_by(ExperimentEnd::Failed(format!("trial {} failed: {headline}", trial.0)), out);
        }
    }

    fn trial_is_over(&mut self, trial: TrialId, last: Option<Metrics>, out: &mut Out) {
        self.not_now = false;
        self.pending.retain(|pending| *pending != trial);
        self.paused.retain(|paused| *paused != trial);
        if let Some(searcher) = &mut self.searcher {
            searcher.on_completed(trial, last.as_ref(), last.is_none());
        }
        self.tell_policies(out);
    }

    /// EXP-6. A trial that reported nothing tells nothing of the others.
    fn miss_metric(&mut self, trial: TrialId, has_metric: bool, out: &mut Out) {
        self.may_have_metric.remove(&trial);
        if !has_metric && self.lacks_metric.is_none() && self.has_reported(trial) {
            self.lacks_metric = Some(trial);
            self.may_have_metric.clone_from(&self.live);
        }
        let Some(lacking) = self.lacks_metric.filter(|_| self.may_have_metric.is_empty()) else { return };
        if let Some(reason) = self.without_metric(lacking) {
            self.end_by(ExperimentEnd::Failed(reason), out);
        }
    }

    fn has_reported(&self, trial: TrialId) -> bool {
        self.trials[trial.0 as usize].last.as_ref().is_some_and(|last| !last.0.is_empty())
    }

    /// That nobody reported what the search is about, with what this trial reported instead; `None` where somebody did.
    fn without_metric(&self, trial: TrialId) -> Option<String> {
        let (metric, _) = self.options.metric.as_ref()?;
        if self.trials.iter().any(|trial| trial.has_metric) {
            return None;
        }
        let last = self.trials[trial.0 as usize].last.clone().unwrap_or_default();
        Some(match (last.find(metric), words_of(&last)) {
            (Some(value), _) => {
                let value = shown(metric, value);
                format!("no trial reported a number as the metric `{metric}`: trial {} reported {value}", trial.0)
            }
            (None, words) if words.is_empty() => {
                format!("no trial reported `{metric}`: trial {} reported nothing", trial.0)
            }
            (None, words) => {
                let meant = meant(metric, &last);
                format!("no trial reported the metric `{metric}`: trial {} reported {words}{meant}", trial.0)
            }
        })
    }

    /// Whatever runs is stopped, and stays unfinished; the experiment ends when it is gone.
    fn end_by(&mut self, end: ExperimentEnd, out: &mut Out) {
        if self.ending.is_some() {
            return;
        }
        let reason = end.reason().to_owned();
        self.ending = Some(end);
        self.questions.clear();
        let running: Vec<TrialId> = self.live.union(&self.submitted).copied().collect();
        out.extend(running.into_iter().map(|trial| ExperimentCommand::StopTrial { trial, reason: reason.clone() }));
    }

    fn tell_policies(&mut self, out: &mut Out) {
        if let Some(scheduler) = &mut self.scheduler {
            out.extend(scheduler.take_policies().into_iter().map(ExperimentCommand::LogPolicy));
        }
    }

    /// What the scheduler has decided about trials that wait.
    fn carry_out_orders(&mut self, out: &mut Out) {
        loop {
            let orders = self.scheduler.as_mut().map(Scheduler::take_orders).unwrap_or_default();
            if orders.is_empty() {
                return;
            }
            for (trial, decision, reason) in orders {
                self.carry_out_order(trial, decision, reason, out);
            }
        }
    }

    fn carry_out_order(&mut self, trial: TrialId, decision: Decision, reason: String, out: &mut Out) {
        // A number of the driver's that no trial has is nobody's.
        let Some(one) = self.trials.get_mut(trial.0 as usize) else { return };
        let waits = matches!(one.state, State::Pending | State::Paused);
        let pausing = matches!(one.state, State::Pausing(_));
        let going = matches!(one.state, State::Submitted | State::Running | State::Judging(_));
        match decision {
            Decision::Stop | Decision::Complete if waits || pausing || going => {
                let stop = Stop::by_scheduler(reason.clone(), decision == Decision::Stop);
                if waits {
                    return self.complete(trial, stop, out);
                }
                one.state = State::Stopping(stop);
                if going {
                    out.push(ExperimentCommand::StopTrial { trial, reason });
                }
            }
            Decision::Exploit { from, with } if waits || pausing => {
                if self.checkpoints_of(from) == 0 {
                    out.push(ExperimentCommand::Record(Record::ExploitRefused { trial }));
                    self.warn_of_no_checkpoint(trial, from, out);
                    return self.refuse_exploit(trial);
                }
                self.trial(trial).exploit = Some(Exploit { from, with, reason: reason.clone() });
                if waits {
                    self.paused.retain(|paused| *paused != trial);
                    self.pause(trial, reason, out);
                }
            }
            Decision::Resize(resources) if waits || pausing => self.trial(trial).resources = Some(resources),
            _ => {}
        }
    }

    /// Where no trial has a checkpoint, population-based training comes down to nothing.
    fn warn_of_no_checkpoint(&mut self, trial: TrialId, from: TrialId, out: &mut Out) {
        if self.told_no_checkpoint || self.trials.iter().any(|trial| trial.checkpoints > 0) {
            return;
        }
        self.told_no_checkpoint = true;
        out.push(ExperimentCommand::Warn(format!(
            "trial {} cannot go on from trial {}, which does better: no trial has a checkpoint; \
             `tune.report(metrics, checkpoint=…)` or `save_checkpoint` of a class makes one",
            trial.0, from.0
        )));
    }

    /// The same where trials run one after the other, so that none is ever compared with another.
    fn warn_of_idle_population(&mut self, ended: TrialId, out: &mut Out) {
        let is_population = matches!(self.scheduler, Some(AnyScheduler::Pbt(_))) && !self.options.saves_itself;
        let has_checkpoint = self.trials.iter().any(|trial| trial.checkpoints > 0);
        if !is_population || has_checkpoint || self.told_no_checkpoint || !self.has_reported(ended) {
            return;
        }
        self.told_no_checkpoint = true;
        out.push(ExperimentCommand::Warn(format!(
            "trial {} has ended without a checkpoint, and no other trial has one: population-based training replaces none \
             without them; `tune.report(metrics, checkpoint=…)` makes one",
            ended.0
        )));
    }

    fn refuse_exploit(&mut self, trial: TrialId) {
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.on_exploit_refused(trial);
        }
    }
}

/// The names of what was reported by the user, for a message.
fn words_of(result: &Metrics) -> String {
    let own = result.0.iter().filter(|(name, _)| !carril_types::AUTOMATIC_FIELDS.contains(&name.as_str()));
    let names: Vec<String> = own.map(|(name, _)| format!("`{name}`")).collect();
    names.join(", ")
}

/// `; did you mean …`, where a report has something whose name is nearly this one: by the user, or added to every report.
fn meant(name: &str, result: &Metrics) -> String {
    near(name, result.0.iter().map(|(name, _)| name.as_str()))
        .map(|near| format!("; did you mean `{near}`?"))
        .unwrap_or_default()
}

/// What was reported under this name, for a message.
fn shown(name: &str, value: &Value) -> String {
    let mut text = String::new();
    write_json(&mut text, &Metrics(vec![(name.to_owned(), value.clone())]));
    text
}
