//! What runs next: trials are made, chosen and started as long as there is room.

use carril_types::Metrics;

use super::{
    Answer, AnyScheduler, AnySearcher, Experiment, ExperimentCommand, ExperimentEnd, NewConfig, Out, Question, Record,
    Scheduler, Searcher, State, Trial,
};
use crate::tune::TrialId;
use crate::tune::search::Suggestion;

/// As many trials as wait for room at most, where neither searcher nor scheduler could choose better later.
const AHEAD: usize = 3;

impl Experiment {
    pub(super) fn fill(&mut self, out: &mut Out) {
        while self.ending.is_none() && self.has_room() && !self.is_asking() {
            if self.pending.is_empty() && self.make_trial(out) {
                continue;
            }
            if self.is_asking() {
                return;
            }
            self.carry_out_orders(out);
            match self.choose(out) {
                Some(trial) => self.submit(trial, out),
                None => break,
            }
        }
        self.end_if_done(out);
    }

    fn has_room(&self) -> bool {
        let going = self.live.len() + self.submitted.len();
        self.submitted.len() < self.ahead() && self.options.max_concurrent.is_none_or(|most| going < most)
    }

    /// How many may wait for room.
    fn ahead(&self) -> usize {
        let nothing_learnt =
            matches!((&self.searcher, &self.scheduler), (Some(AnySearcher::Basic(_)), Some(AnyScheduler::Fifo(_))));
        if nothing_learnt { AHEAD } else { 1 }
    }

    /// Whether an answer of the driver decides what comes next.
    fn is_asking(&self) -> bool {
        self.questions.values().any(|about| !matches!(about, Question::Judge { .. }))
    }

    /// True when there is one more.
    fn make_trial(&mut self, out: &mut Out) -> bool {
        if self.exhausted || self.not_now {
            return false;
        }
        let trial = TrialId(self.trials.len() as u64);
        if self.options.most.is_some_and(|most| trial.0 >= most) {
            self.exhaust();
            return false;
        }
        let Some(searcher) = &mut self.searcher else {
            self.ask(Question::Suggest { trial }, out);
            return false;
        };
        let suggestion = searcher.suggest(trial);
        self.take_suggestion(trial, suggestion, out)
    }

    fn take_suggestion(&mut self, trial: TrialId, suggestion: Suggestion, out: &mut Out) -> bool {
        match suggestion {
            Suggestion::Config(config) => {
                self.begin_trial(trial, config, out);
                true
            }
            // Nothing that runs could end: there is nothing to wait for.
            Suggestion::NotNow if self.live.is_empty() && self.submitted.is_empty() && self.paused.is_empty() => {
                self.exhaust();
                false
            }
            Suggestion::NotNow => {
                self.not_now = true;
                false
            }
            Suggestion::Finished => {
                self.exhaust();
                false
            }
        }
    }

    /// How many trials there will be, with those that there are; `None` where the searcher does not know.
    pub fn expected(&self) -> Option<u64> {
        let made = self.trials.len() as u64;
        if self.exhausted {
            return Some(made);
        }
        match self.options.most {
            Some(most) => Some(made.max(most)),
            None => self.searcher.as_ref()?.remaining().map(|remaining| made.saturating_add(remaining)),
        }
    }

    /// Whether trials are still to be made, of a number that is known: a search without end would have no other run on.
    pub(super) fn makes_more(&self) -> bool {
        !self.not_now && self.expected().is_some_and(|expected| expected > self.trials.len() as u64)
    }

    fn exhaust(&mut self) {
        self.exhausted = true;
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.on_no_more_trials();
        }
    }

    pub(super) fn new_trial(config: Metrics) -> Trial {
        Trial {
            config,
            reported_config: None,
            names: None,
            state: State::Resolving,
            last: None,
            has_metric: false,
            completed: false,
            checkpoints: 0,
            free: 0,
            exploit: None,
            resources: None,
        }
    }

    fn begin_trial(&mut self, trial: TrialId, config: Metrics, out: &mut Out) {
        self.trials.push(Self::new_trial(config.clone()));
        let made = self.scheduler.as_mut().and_then(|scheduler| scheduler.on_trial_added(trial, &config));
        let NewConfig { config, ask } = made.unwrap_or(NewConfig { config, ask: Vec::new() });
        self.trial(trial).config.clone_from(&config);
        if self.options.asks_config || !ask.is_empty() {
            return self.ask(Question::Resolve { trial, config, paths: ask, explored: false }, out);
        }
        self.make_pending(trial, out);
    }

    fn make_pending(&mut self, trial: TrialId, out: &mut Out) {
        let one = self.trial(trial);
        one.state = State::Pending;
        let (config, names, resources) = (one.config.clone(), one.names.clone(), one.resources.clone());
        out.push(ExperimentCommand::Record(Record::Made { trial, config, names, resources }));
        self.pending.push(trial);
    }

    pub(super) fn on_answered(&mut self, question: u64, answer: Answer, out: &mut Out) {
        let Some(about) = self.questions.remove(&question) else { return };
        match (about, answer) {
            (Question::Suggest { trial }, Answer::Config(config)) => {
                self.take_suggestion(trial, Suggestion::Config(config), out);
            }
            (Question::Suggest { trial }, Answer::NotNow) => {
                self.take_suggestion(trial, Suggestion::NotNow, out);
            }
            (Question::Suggest { .. }, _) => self.exhaust(),
            (Question::Resolve { trial, explored, .. }, Answer::Resolved { config, names, resources }) => {
                if let Some(scheduler) = &mut self.scheduler {
                    scheduler.on_config(trial, &config);
                }
                if !explored {
                    self.trial(trial).names = names;
                    self.trial(trial).resources = resources;
                    self.trial(trial).config = config;
                    return self.make_pending(trial, out);
                }
                if let Some(exploit) = &mut self.trial(trial).exploit {
                    exploit.with = NewConfig { config, ask: Vec::new() };
                }
                self.wait_as_paused(trial, String::new(), out);
            }
            // What it says of this one trial is then said of all: a stopper that has seen enough says stop to whoever asks.
            (Question::Judge { .. }, Answer::Judged { stop_all: true, .. }) => {
                self.end_by(ExperimentEnd::Finished("the stopper has seen enough".to_owned()), out);
            }
            (Question::Judge { trial, .. }, Answer::Judged { decision, reason, saves, .. }) => {
                self.on_judged(trial, (decision, reason), saves, out);
            }
            (Question::Choose { .. }, Answer::Chosen(Some(trial))) if self.waits(trial) => self.submit(trial, out),
            (Question::Choose { .. }, _) => self.nobody_chosen = true,
            (about, answer) => {
                let reason = format!("the driver answered {answer:?} to {about:?}");
                self.end_by(ExperimentEnd::Failed(reason), out);
            }
        }
    }

    fn waits(&self, trial: TrialId) -> bool {
        self.pending.contains(&trial) || self.paused.contains(&trial)
    }

    fn choose(&mut self, out: &mut Out) -> Option<TrialId> {
        if self.pending.is_empty() && self.paused.is_empty() {
            return None;
        }
        let Some(scheduler) = &mut self.scheduler else {
            if !self.nobody_chosen {
                let (pending, paused, exhausted) = (self.pending.clone(), self.paused.clone(), self.exhausted);
                let about = Question::Choose { pending, paused, exhausted };
                self.ask(about, out);
            }
            return None;
        };
        scheduler.choose(&self.pending, &self.paused)
    }

    fn submit(&mut self, trial: TrialId, out: &mut Out) {
        self.pending.retain(|pending| *pending != trial);
        self.paused.retain(|paused| *paused != trial);
        let free = self.free_until(trial, 0);
        let one = self.trial(trial);
        one.state = State::Submitted;
        one.exploit = None;
        one.free = free;
        let resources = one.resources.clone();
        self.submitted.insert(trial);
        out.push(ExperimentCommand::Record(Record::Chosen { trial }));
        out.push(ExperimentCommand::Submit { trial, resources, free });
    }

    /// A trial that ended well without the metric.
    fn silent(&self) -> Option<TrialId> {
        let at = self.trials.iter().position(|trial| trial.completed && !trial.has_metric)?;
        Some(TrialId(at as u64))
    }

    fn end_if_done(&mut self, out: &mut Out) {
        let idle = self.live.is_empty() && self.submitted.is_empty() && (!self.is_asking() || self.ending.is_some());
        if !idle || self.ended {
            return;
        }
        if self.ending.is_none() {
            let waiting = self.pending.len() + self.paused.len();
            let end = match (self.exhausted, waiting) {
                (true, 0) => match self.silent().and_then(|silent| self.without_metric(silent)) {
                    Some(reason) => ExperimentEnd::Failed(reason),
                    None => ExperimentEnd::Finished("every trial has ended".to_owned()),
                },
                (false, 0) => return,
                // EXP-5.
                _ => ExperimentEnd::Failed(format!(
                    "no trial can go on: {waiting} wait, nothing runs, and the scheduler chooses none of them"
                )),
            };
            self.ending = Some(end);
        }
        if let Some(end) = self.ending.clone() {
            self.ended = true;
            out.push(ExperimentCommand::End(end));
        }
    }
}
