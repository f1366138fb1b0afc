//! What becomes of a trial with each report.

use carril_types::{Metrics, Resources, Value};

use super::{
    Decision, Experiment, ExperimentCommand, ExperimentEnd, Exploit, Out, Question, Record, Scheduler, State, Stop,
    Verdict, meant, shown, words_of,
};
use crate::tune::TrialId;
use crate::tune::scheduler::{Explained, Holding};

/// What a scheduler may look at, beside its metric and its time.
pub(super) const ALWAYS_RECORDED: [&str; 2] = ["training_iteration", "time_total_s"];

impl Experiment {
    pub(super) fn on_reported(&mut self, trial: TrialId, number: u64, result: Metrics, out: &mut Out) {
        self.note_metric(trial, &result, out);
        let one = self.trial(trial);
        one.last = Some(result);
        one.reported_config = None;
        let running = one.state == State::Running;
        if !running {
            // A function that reports after its last verdict gets the same one again.
            return self.decide(trial, number, Verdict::Stop, "it was stopped before".to_owned(), out);
        }
        if let Some(missing) = self.missing(trial, number) {
            return self.end_by(ExperimentEnd::Failed(missing), out);
        }
        if number == 1 {
            self.warn_of_unseen(trial, out);
        }
        if let Some(reason) = self.rule_hit(trial) {
            return self.stop(trial, number, Stop::by_rule(reason), out);
        }
        if self.options.asks_judge {
            self.trial(trial).state = State::Judging(number);
            let result = self.trial(trial).last.clone().unwrap_or_default();
            return self.ask(Question::Judge { trial, result }, out);
        }
        self.judge(trial, number, out);
    }

    fn note_metric(&mut self, trial: TrialId, result: &Metrics, out: &mut Out) {
        let Some((metric, _)) = self.options.metric.clone() else {
            self.trial(trial).has_metric = true;
            return;
        };
        let value = result.find(&metric);
        if value.and_then(Value::as_f64).is_some() {
            self.trial(trial).has_metric = true;
        } else if !self.trial(trial).has_metric && !self.told_missing {
            self.told_missing = true;
            let text = match value {
                Some(value) => format!("{}, which is not a number: the search is about it", shown(&metric, value)),
                None => {
                    let meant = meant(&metric, result);
                    format!("{} and no `{metric}`, which the search is about{meant}", words_of(result))
                }
            };
            out.push(ExperimentCommand::Warn(format!("trial {} reported {text}", trial.0)));
        }
    }

    /// What the scheduler looks at, and this report has not; or a rule of the user's, and not even the first one has it.
    fn missing(&self, trial: TrialId, number: u64) -> Option<String> {
        let result = self.trials[trial.0 as usize].last.as_ref()?;
        let is_first = number == 1 && result.get("done") != Some(&Value::Bool(true));
        let compared = self.options.requires.iter().map(|name| (name, "without which the scheduler cannot compare"));
        let rules = self.options.stop.iter().filter(|_| is_first).map(|(name, _)| (name, "which `stop` is to look at"));
        let (name, why) = compared.chain(rules).find(|(name, _)| result.find(name).is_none())?;
        let words = Some(words_of(result)).filter(|words| !words.is_empty()).unwrap_or("nothing of its own".to_owned());
        Some(format!("trial {} reported {words} and no `{name}`, {why}{}", trial.0, meant(name, result)))
    }

    /// A scheduler decides nothing about a report without what it goes by; of the metric is told elsewhere.
    fn warn_of_unseen(&mut self, trial: TrialId, out: &mut Out) {
        let (Some(scheduler), Some(result)) = (&self.scheduler, &self.trials[trial.0 as usize].last) else { return };
        let metric = self.options.metric.as_ref().map(|(metric, _)| metric);
        let unseen = |name: &String| Some(name) != metric && result.find(name).is_none();
        let Some(name) = scheduler.looks_at().into_iter().find(unseen).filter(|_| !self.told_unseen) else { return };
        out.push(ExperimentCommand::Warn(format!(
            "trial {} reported {} and no `{name}`, without which the scheduler decides nothing{}",
            trial.0,
            words_of(result),
            meant(&name, result)
        )));
        self.told_unseen = true;
    }

    /// The user's rules, and the function's own word that it is done.
    fn rule_hit(&mut self, trial: TrialId) -> Option<String> {
        let one = &self.trials[trial.0 as usize];
        let result = one.last.as_ref()?;
        for (name, limit) in &self.options.stop {
            if let Some(value) = result.find(name).and_then(Value::as_f64).filter(|value| value >= limit) {
                return Some(format!("`{name}` is {value}, and the rule is {limit}"));
            }
        }
        (result.get("done") == Some(&Value::Bool(true))).then(|| "it reported `done`".to_owned())
    }

    /// The scheduler has not heard of this report.
    fn stop(&mut self, trial: TrialId, number: u64, stop: Stop, out: &mut Out) {
        let reason = stop.reason.clone();
        self.trial(trial).state = State::Stopping(stop);
        self.decide(trial, number, Verdict::Stop, reason, out);
    }

    pub(super) fn on_judged(&mut self, trial: TrialId, decided: Explained, saves: bool, out: &mut Out) {
        let State::Judging(number) = self.trial(trial).state else { return };
        self.trial(trial).state = State::Running;
        match decided {
            // A scheduler of the user's knows what it has decided; one of ours hears of it when the trial has ended.
            (decision @ (Decision::Stop | Decision::Complete), reason) => {
                let early = decision == Decision::Stop;
                self.stop(trial, number, Stop { early, ..Stop::by_rule(reason) }, out);
            }
            (Decision::Continue, _) if self.scheduler.is_some() => self.judge(trial, number, out),
            decided => self.carry_out(trial, number, decided, saves, out),
        }
    }

    fn judge(&mut self, trial: TrialId, number: u64, out: &mut Out) {
        let result = self.trial(trial).last.clone().unwrap_or_default();
        let others_wait = self.others_wait(trial);
        let Some(scheduler) = &mut self.scheduler else {
            return self.decide(trial, number, Verdict::Continue, String::new(), out);
        };
        scheduler.on_others_wait(others_wait);
        let decided = scheduler.on_result(trial, &result);
        let saves = scheduler.wants_checkpoint(trial);
        if number > self.trial(trial).free && !matches!(self.scheduler, Some(super::AnyScheduler::Fifo(_))) {
            let result = self.recorded(&result);
            out.push(ExperimentCommand::Record(Record::Told { trial, result, others_wait }));
        }
        self.carry_out(trial, number, decided, saves, out);
    }

    /// What a scheduler, ours or the driver's, has decided about the report of that number.
    fn carry_out(&mut self, trial: TrialId, number: u64, (decision, reason): Explained, saves: bool, out: &mut Out) {
        let verdict = match decision {
            Decision::Continue if saves => Verdict::Save,
            Decision::Continue => Verdict::Continue,
            Decision::Pause => {
                self.trial(trial).state = State::Pausing(reason.clone());
                Verdict::Pause
            }
            Decision::Stop | Decision::Complete => {
                let early = decision == Decision::Stop;
                self.trial(trial).state = State::Stopping(Stop::by_scheduler(reason.clone(), early));
                Verdict::Stop
            }
            Decision::Resize(resources) => {
                let one = self.trial(trial);
                one.resources = Some(resources);
                one.state = State::Pausing(reason.clone());
                Verdict::Pause
            }
            Decision::Exploit { from, .. } if self.checkpoints_of(from) == 0 => {
                self.refuse_exploit(trial);
                self.warn_of_no_checkpoint(trial, from, out);
                out.push(ExperimentCommand::Record(Record::ExploitRefused { trial }));
                Verdict::Continue
            }
            Decision::Exploit { from, with } => {
                let one = self.trial(trial);
                one.exploit = Some(Exploit { from, with, reason: reason.clone() });
                one.state = State::Pausing(reason.clone());
                if from == trial { Verdict::Pause } else { Verdict::Stop }
            }
        };
        self.decide(trial, number, verdict, reason, out);
    }

    /// Whether others would use the place of this trial that the scheduler does not see: one asks for room, or is not made yet. Who has
    /// no checkpoint to resume from keeps its place: it would begin again.
    fn others_wait(&self, trial: TrialId) -> bool {
        let can_resume = self.options.saves_itself || self.trials[trial.0 as usize].checkpoints > 0;
        can_resume && (!self.submitted.is_empty() || self.makes_more())
    }

    fn decide(&mut self, trial: TrialId, number: u64, verdict: Verdict, reason: String, out: &mut Out) {
        let free = if verdict == Verdict::Continue { self.free_until(trial, number) } else { 0 };
        self.trial(trial).free = free;
        out.push(ExperimentCommand::Decide { trial, number, verdict, free, reason });
    }

    /// EXP-2: up to which report nothing can be decided but that the trial goes on.
    pub(super) fn free_until(&self, trial: TrialId, number: u64) -> u64 {
        if self.options.asks_judge {
            return number;
        }
        let Some(scheduler) = &self.scheduler else { return number };
        let mut first = scheduler.undecided_before(trial);
        for (name, limit) in &self.options.stop {
            first = first.min(if name == "training_iteration" { *limit } else { 0.0 });
        }
        // One less than the first report that counts.
        let last = (first.ceil() - 1.0).clamp(0.0, 1e15);
        number.max(last as u64)
    }

    /// Who holds what, for a scheduler that changes it.
    pub fn holdings(&mut self, base: &Resources, free: &Resources) {
        let Some(scheduler) = &mut self.scheduler else { return };
        let holding = |(index, trial): (usize, &super::Trial)| {
            let now = match trial.state {
                State::Running | State::Judging(_) => trial.resources.clone().unwrap_or_else(|| base.clone()),
                State::Pending | State::Submitted | State::Paused | State::Pausing(_) => Resources::default(),
                _ => return None,
            };
            Some(Holding { trial: TrialId(index as u64), base: base.clone(), now })
        };
        let holdings: Vec<Holding> = self.trials.iter().enumerate().filter_map(holding).collect();
        scheduler.on_resources(&holdings, free);
    }

    /// How many checkpoints there are that others may go on from.
    pub fn set_checkpoints(&mut self, trial: TrialId, count: u64) {
        self.trial(trial).checkpoints = count;
    }

    pub fn changes_resources(&self) -> bool {
        matches!(self.scheduler, Some(super::AnyScheduler::ResourceChanging(_)))
    }

    /// What of a result is enough to decide the same again.
    fn recorded(&self, result: &Metrics) -> Metrics {
        let mut kept = Metrics::default();
        let names = self.scheduler.iter().flat_map(|scheduler| scheduler.looks_at());
        for name in names.chain(ALWAYS_RECORDED.map(str::to_owned)) {
            if let Some(value) = result.find(&name).and_then(Value::as_f64) {
                kept.set_default(&name, Value::Float(value));
            }
        }
        kept
    }
}
