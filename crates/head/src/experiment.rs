//! One experiment in the head: its machine, its files, its watchers. Its trials are runs; what concerns all runs is the head's.

mod keeping;
mod names;
mod records;
mod talking;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use carril_core::tune::TrialId;
use carril_core::tune::experiment::{
    EndedTrial, Experiment, ExperimentCommand, ExperimentEnd, ExperimentEvent, Record, Resuming, RunEnd, Verdict,
};
use carril_core::tune::spec::ExperimentSpec;
use carril_proto::v1;
use carril_store::{Differences, RECOVERED, RETRY, Reached, Recovered, Storage, TrialState, deadline};
use carril_types::{
    ErrorCode, Failure, Metrics, OnExisting, Resources, RunId, RunSpec, RunStatus, TrialSpec, Value, count, verb,
};

use self::keeping::Keeping;
use self::names::{Directories, Names, leaves, policy_line};
use self::records::line_of;
use self::waiting::Waiting;
use crate::mirror::Mirror;
use crate::outside::{ExperimentDisk, ExperimentOpened, Outside};
use crate::refusals::Refusals;
use crate::watchers::Watchers;

pub(crate) use self::talking::answer_of;

/// Watchers that do not want every report are told of a trial's last one this often.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// How often its files are looked after.
pub(crate) const UPKEEP_EVERY: Duration = Duration::from_secs(2);
/// How often the owner's record is renewed: each so many times.
const RENEW_EACH: u32 = 5;

/// A trial as the head knows it, beyond what the machine does.
struct Known {
    names: Names,
    config: Metrics,
    /// What it reserves, where that is its own.
    resources: Option<Resources>,
    /// The run that it is at present, and the last one that has ended.
    run: Option<RunId>,
    last_run: Option<RunId>,
    /// A checkpoint of another trial is being copied to it; what is to be done then.
    adopting: bool,
    waits_for_adoption: Option<(Option<Resources>, u64)>,
    /// What it was submitted with last, where that has to be done again.
    submitted: (Option<Resources>, u64),
    last_progress: Option<Duration>,
    /// A report that came too soon after the one before to be told.
    untold: Option<v1::Progress>,
    last: Metrics,
    iterations: u64,
    seconds: f64,
    checkpoint: Option<String>,
    ended: Option<v1::RunEnded>,
}

/// What the head with all runs is to do for an experiment.
pub(crate) enum Wish {
    Submit { trial: TrialId, request: Box<v1::RunRequest> },
    Stop { run: RunId, reason: String, force: bool },
    Decide { run: RunId, number: u64, verdict: Verdict, free: u64 },
    Adopt { trial: TrialId, places: Box<(Storage, Storage)> },
    DropPool,
}

pub(crate) struct ExperimentRun {
    pub id: RunId,
    pub spec: ExperimentSpec,
    function: String,
    environment: std::collections::HashMap<String, String>,
    machine: Experiment,
    pub watchers: Watchers,
    disk: Box<dyn ExperimentDisk>,
    storage: Option<Storage>,
    /// Away while a round is going on.
    mirror: Option<Mirror>,
    /// What the watchers are told once the storage has everything, and whether the round that brings it has begun.
    ending: Option<v1::RunEnded>,
    last_round: bool,
    /// While the files do not say its end: when it ended, in Unix time and by the head's clock.
    closing: Option<(f64, Duration)>,
    /// Since when only storage elsewhere is behind.
    last_round_since: Option<Duration>,
    refusals: Refusals,
    keeping: Keeping,
    upkeeps: u32,
    pub location: String,
    /// With which the ids of its trials begin.
    prefix: String,
    trials: Vec<Known>,
    directories: Directories,
    waiting: Waiting,
    pub wishes: Vec<Wish>,
    started: f64,
    /// When the first head began it.
    created: f64,
    /// When this one did, by the clock that nobody sets.
    began: Duration,
    status: RunStatus,
    pub ended: bool,
    forced: bool,
    live: std::collections::BTreeSet<RunId>,
    /// Trials with a report that was not told yet.
    untold: BTreeSet<TrialId>,
}

impl ExperimentRun {
    pub fn new(
        id: RunId,
        spec: ExperimentSpec,
        request: v1::ExperimentRequest,
        opened: ExperimentOpened,
        (now, began): (f64, Duration),
    ) -> Result<Self, Failure> {
        let constants: Vec<Value> = request.constants.unwrap_or_default().items.into_iter().map(Into::into).collect();
        let wrong = |text: String| Failure::new(ErrorCode::InvalidConfig, text);
        let machine = spec.build(&constants, opened.seed).map_err(wrong)?;
        let prefix = opened.id.get(..5).unwrap_or(&opened.id).to_owned();
        let mut run = Self {
            id,
            function: request.function,
            environment: request.environment,
            machine,
            watchers: Watchers::new(),
            disk: opened.disk,
            location: opened.storage.location().to_owned(),
            storage: Some(opened.storage),
            mirror: opened.mirror,
            ending: None,
            last_round: false,
            closing: None,
            last_round_since: None,
            refusals: Refusals::default(),
            keeping: Keeping::default(),
            upkeeps: 0,
            prefix,
            trials: Vec::new(),
            directories: Directories::default(),
            waiting: Waiting::default(),
            wishes: Vec::new(),
            started: now,
            created: opened.created,
            began,
            status: RunStatus::Running,
            ended: false,
            forced: false,
            live: Default::default(),
            untold: BTreeSet::new(),
            spec,
        };
        if opened.unreadable > 0 {
            let lost = opened.unreadable as u64;
            let (lines, were) = (count(lost, "line"), verb(lost, "was", "were"));
            run.warn(format!("{lines} of `trials.jsonl` could not be read, and {were} left out"));
        }
        for text in opened.rescued {
            run.warn(text);
        }
        for directory in &opened.directories {
            run.directories.reserve(directory.trim_end_matches('/'));
        }
        let resumes = !opened.before.lines.is_empty();
        run.restore(opened.before, !constants.is_empty(), opened.made_before)?;
        if resumes {
            run.tell_resuming(&opened.differences);
        }
        Ok(run)
    }

    /// What earlier heads have done. `opaque`: configs hold objects of the user's, which the files of a trial only name.
    /// `made_before`: so many trials come from another space or searcher.
    fn restore(&mut self, before: Recovered, opaque: bool, made_before: u64) -> Result<(), Failure> {
        let Recovered { lines, reached, found, ends, changed, .. } = before;
        let mut records = Vec::new();
        for line in &lines {
            let Some(mut read) = records::read(line) else { continue };
            if let Record::Found { trial, config } = &mut read.record {
                if opaque && self.spec.searcher.is_some() && trial.0 >= made_before {
                    *config = None;
                }
                if config.is_none() && self.spec.searcher.is_none() {
                    return Err(self.beyond_repair(read.trial()));
                }
                let known = Known::new(read.names.clone().unwrap_or_default(), config.clone().unwrap_or_default());
                self.directories.reserve(&known.names.directory);
                self.trials.push(known);
            }
            if let Record::Made { trial, config, resources, .. } = &read.record {
                let known = Known::new(read.names.clone().unwrap_or_default(), config.clone());
                self.directories.reserve(&known.names.directory);
                let known = Known { resources: resources.clone(), ..known };
                // One that was begun anew has another directory.
                if let Some(before) = self.trials.get_mut(trial.0 as usize) {
                    *before = known;
                    continue;
                }
                self.trials.push(known);
            }
            let trial = read.trial();
            let Some(known) = self.trials.get_mut(trial.0 as usize) else { continue };
            match &read.record {
                Record::Exploited { config, .. } => known.config = config.clone(),
                Record::Ended(ended) => {
                    if let Some(config) = &ended.config {
                        known.config.clone_from(config);
                    }
                    known.last = read.last.clone().unwrap_or_default();
                    known.iterations = read.iterations;
                    known.seconds = read.seconds;
                    known.checkpoint = read.checkpoint.clone();
                    known.ended = Some(read.ending());
                }
                Record::Chosen { .. } => known.ended = None,
                _ => {}
            }
            records.push((read.record, read.last));
        }
        let (errored, leaves_unfinished) = (self.spec.resume_errored, self.spec.leave_unfinished);
        let resuming = Resuming { errored, leaves_unfinished, made_before };
        let runs_ended = self.ended_unheard(&reached);
        self.machine.replay(records, runs_ended, resuming);
        for (number, reached) in reached {
            self.take_reached(TrialId(number), reached);
        }
        if changed {
            self.write_repaired(lines, found.len() as u64, ends as u64)?;
        }
        self.begin_failed_anew();
        // What has ended is in the files, for whoever wants to know.
        for trial in self.resumed() {
            self.tell_made(trial);
            self.tell_reached(trial);
            self.tell_state(trial, TrialState::Pending.word(), "an earlier head has left it");
        }
        Ok(())
    }

    /// Trials that an earlier head has made, and that have not ended, or failed and are to resume.
    fn resumed(&self) -> Vec<TrialId> {
        let failed = |ended: &v1::RunEnded| ended.status == "failed" && self.spec.resume_errored;
        let resumes = |known: &Known| known.ended.as_ref().is_none_or(failed);
        (0..).zip(&self.trials).filter(|(_, known)| resumes(known)).map(|(at, _)| TrialId(at)).collect()
    }

    /// What the files have of it, for whoever watches: it may be long until it reports again.
    fn tell_reached(&mut self, trial: TrialId) {
        let known = &self.trials[trial.0 as usize];
        let progress = v1::Progress {
            iteration: known.iterations,
            metrics: Some(known.last.clone().into()),
            time_total_s: known.seconds,
            ..Default::default()
        };
        self.tell_of_trial(trial, progress);
    }

    fn tell_resuming(&mut self, differences: &Differences) {
        let left = self.resumed().into_iter().filter(|trial| !self.machine.ends_at_once(*trial));
        let left: Vec<&Known> = left.map(|trial| &self.trials[trial.0 as usize]).collect();
        let done = self.trials.len() - left.len();
        let from_checkpoint = left.iter().filter(|known| known.checkpoint.is_some()).count();
        let over = left.iter().filter(|known| known.checkpoint.is_none() && !known.last.0.is_empty()).count();
        let total = self.machine.expected();
        let mut facts = vec![match total {
            Some(total) => format!("{done} of {} done", count(total, "trial")),
            None => format!("{} done", count(done as u64, "trial")),
        }];
        if from_checkpoint > 0 && !self.spec.leave_unfinished {
            let (verb, whose) =
                if from_checkpoint == 1 { ("resumes", "its checkpoint") } else { ("resume", "their checkpoints") };
            facts.push(format!("{from_checkpoint} {verb} from {whose}"));
        }
        if over > 0 && !self.spec.leave_unfinished {
            let verb = if over == 1 { "starts" } else { "start" };
            facts.push(format!("{over} without a checkpoint {verb} over"));
        }
        self.tell(v1::StateChanged {
            state: "resuming".into(),
            reason: facts.join(", "),
            trials_done: done as u64,
            trials_total: total.unwrap_or(0),
        });
        if !differences.is_empty() {
            let what = if differences.config.is_empty() { "other settings" } else { "another `param_space`" };
            let kept = "the trials that there are keep their configs";
            self.warn(format!("the search resumes with {what}: {}; {kept}", differences.describe()));
        }
    }

    fn beyond_repair(&self, trial: TrialId) -> Failure {
        let message = format!(
            "`{}/trials.jsonl` is damaged: trial {} is missing from it, and its config is in no other file",
            self.location, trial.0
        );
        Failure::new(ErrorCode::Storage, message)
            .hint("put the file back from a copy, or give the experiment another `name`")
    }

    /// Trials whose runs had ended when the head before was killed; one that failed and is to be run again has not ended.
    fn ended_unheard(&self, reached: &BTreeMap<u64, Reached>) -> BTreeMap<TrialId, RunEnd> {
        let runs_again = self.spec.resume_errored || self.spec.restart_errored;
        let end = |(number, reached): (&u64, &Reached)| match reached.ended.as_ref()? {
            (RunStatus::Finished, _) => Some((TrialId(*number), RunEnd::Finished)),
            (RunStatus::Failed, _) if runs_again => None,
            (RunStatus::Failed, headline) => Some((TrialId(*number), RunEnd::Failed(self.own_words(headline)))),
            _ => None,
        };
        reached.iter().filter_map(end).collect()
    }

    /// A trial of one process has no ranks for whoever wrote its function.
    fn own_words(&self, headline: &str) -> String {
        let alone = self.spec.run.num_workers == 1;
        if alone { headline.trim_start_matches("rank 0 failed: ") } else { headline }.to_owned()
    }

    /// What a trial without an end had reported counts, whether it reports again or not.
    fn take_reached(&mut self, trial: TrialId, reached: Reached) {
        let Some(known) = self.trials.get_mut(trial.0 as usize) else { return };
        known.checkpoint = reached.checkpoint.or(known.checkpoint.take());
        let Some(mut last) = reached.last else { return };
        if let Some((status, _)) = reached.ended {
            last.set("done", Value::Bool(status == RunStatus::Finished));
        }
        let number = |name: &str| last.get(name).and_then(Value::as_f64);
        known.iterations = number("training_iteration").map_or(known.iterations, |count| count as u64);
        known.seconds = number("time_total_s").unwrap_or(known.seconds);
        known.last = last.clone();
        self.machine.set_reached(trial, last, reached.has_metric);
    }

    /// The file has the trials again that it had lost, and its lines in their order.
    fn write_repaired(&mut self, mut lines: Vec<Metrics>, found: u64, ends: u64) -> Result<(), Failure> {
        let resources = self.spec.run.resources_per_worker.times(self.spec.run.num_workers);
        for line in lines.iter_mut().filter(|line| line.get(RECOVERED).is_some()) {
            let Some(trial) = records::read(line).map(|read| read.trial()) else { continue };
            let config = self.machine.config(trial).clone();
            let known = &mut self.trials[trial.0 as usize];
            known.config.clone_from(&config);
            let record = Record::Made { trial, config, names: None, resources: None };
            *line = line_of(&record, self.started, Some(&known.names), resources.clone(), None);
        }
        self.disk.rewrite(&lines)?;
        // Where trials are lost, their ends are too.
        let lost = match (found, ends) {
            (0, 0) => return Ok(()),
            (0, ends) => format!("the {} of {}", if ends == 1 { "end" } else { "ends" }, count(ends, "trial")),
            (found, _) => count(found, "trial"),
        };
        let (were, whose) = if found.max(ends) == 1 { ("was", "its directory") } else { ("were", "their directories") };
        self.warn(format!("`trials.jsonl` had lost {lost}, which {were} read back from {whose}"));
        Ok(())
    }

    /// What failed and is to be run again from its beginning gets a directory of its own.
    fn begin_failed_anew(&mut self) {
        if !self.spec.restart_errored {
            return;
        }
        for index in 0..self.trials.len() {
            let known = &mut self.trials[index];
            if known.ended.as_ref().is_none_or(|ended| ended.status != "failed") {
                continue;
            }
            known.names.directory = self.directories.take(&format!("{}_again", known.names.directory));
            let (names, config) = (known.names.clone(), known.config.clone());
            *known = Known { resources: known.resources.clone(), ..Known::new(names.clone(), config.clone()) };
            let (trial, resources) = (TrialId(index as u64), known.resources.clone());
            let amounts = resources.clone().unwrap_or_else(|| self.resources_of(&config));
            let given = Some((names.name.clone(), names.directory.clone()));
            let record = Record::Made { trial, config, names: given, resources };
            self.disk.append(&line_of(&record, self.started, Some(&names), amounts, None));
        }
    }

    pub fn on_event(&mut self, event: ExperimentEvent, outside: &mut dyn Outside) {
        if self.ended || self.ending.is_some() {
            return;
        }
        match &event {
            ExperimentEvent::Placed { trial } if self.waiting.end(*trial) => {
                self.disk.append(&records::placed_line(*trial, outside.now()));
            }
            // What ends while it waits has never run.
            ExperimentEvent::RunEnded { trial, .. } => drop(self.waiting.end(*trial)),
            ExperimentEvent::Refused { trial, .. } => {
                self.waiting.end(*trial);
                self.forget_run(*trial);
            }
            _ => {}
        }
        let commands = self.machine.on_event(event);
        for command in commands {
            self.carry_out(command, outside);
        }
    }

    fn carry_out(&mut self, command: ExperimentCommand, outside: &mut dyn Outside) {
        match command {
            ExperimentCommand::Ask { question, about } => self.tell(talking::question(question, about)),
            ExperimentCommand::Submit { trial, resources, free } => {
                let known = &mut self.trials[trial.0 as usize];
                if known.adopting {
                    known.waits_for_adoption = Some((resources, free));
                } else {
                    self.submit(trial, resources, free);
                }
            }
            ExperimentCommand::Adopt { trial, from } => self.adopt(trial, from),
            ExperimentCommand::Decide { trial, number, verdict, free, reason } => {
                if verdict != Verdict::Continue && verdict != Verdict::Save {
                    self.tell_state(trial, "stopping", &reason);
                }
                if let Some(run) = self.trials[trial.0 as usize].run.clone() {
                    self.wishes.push(Wish::Decide { run, number, verdict, free });
                }
            }
            ExperimentCommand::StopTrial { trial, reason } => {
                if let Some(run) = self.trials[trial.0 as usize].run.clone() {
                    self.wishes.push(Wish::Stop { run, reason, force: self.forced });
                }
            }
            ExperimentCommand::Record(record) => self.write_down(record, outside),
            ExperimentCommand::LogPolicy(_) if !self.spec.logs_policies => {}
            ExperimentCommand::LogPolicy(policy) => {
                let line = policy_line(&policy, |trial| self.trials[trial.0 as usize].names.id.clone());
                let of = format!("pbt_policy_{}.txt", self.trials[policy.trial.0 as usize].names.id);
                for name in ["pbt_global.txt", &of] {
                    if let Err(failure) = self.disk.log(name, &line) {
                        self.warn(failure.message);
                    }
                }
            }
            ExperimentCommand::Warn(text) => self.warn(text),
            ExperimentCommand::End(end) => self.end(end, outside),
        }
    }

    fn write_down(&mut self, record: Record, outside: &mut dyn Outside) {
        let now = outside.now();
        let mut names = None;
        match &record {
            Record::Made { trial, config, names: given, resources } => {
                let varying = match self.spec.searcher {
                    Some(_) => self.spec.space.varying(),
                    None => leaves(config, &self.spec.constant),
                };
                let mut own =
                    Names::new(&self.prefix, &self.spec.trainable, *trial, config, &varying, given.as_ref(), now);
                own.directory = self.directories.take(&own.directory);
                names = Some(own.clone());
                let known = Known { resources: resources.clone(), ..Known::new(own, config.clone()) };
                self.trials.push(known);
            }
            Record::Exploited { trial, config, .. } | Record::Ended(EndedTrial { trial, config: Some(config), .. }) => {
                self.trials[trial.0 as usize].config = config.clone();
            }
            _ => {}
        }
        let known = self.trials.get(record.trial().0 as usize);
        let ended = known.map(|known| records::Ended {
            metrics: &known.last,
            iterations: known.iterations,
            seconds: known.seconds,
            checkpoint: known.checkpoint.as_deref(),
        });
        let all = |known: &Known| known.resources.clone().unwrap_or_else(|| self.resources_of(&known.config));
        let resources = known.map(all).unwrap_or_default();
        let line = line_of(&record, now, names.as_ref(), resources, ended);
        self.disk.append(&line);
        // Of one that never ran there is no directory.
        if let Record::Ended(_) = &record
            && let Some((directory, run)) =
                known.and_then(|known| Some((&known.names.directory, known.last_run.as_ref()?)))
        {
            let written = self.disk.end_trial(directory, &line, run.as_str());
            self.written(&written);
        }
        match record {
            Record::Made { trial, .. } => self.tell_made(trial),
            Record::Paused { trial, reason } => self.tell_state(trial, TrialState::Paused.word(), &reason),
            Record::Exploited { trial, reason, .. } => {
                let changed = v1::TrialChanged {
                    trial: trial.0,
                    state: TrialState::Paused.word().into(),
                    reason,
                    made: Some(self.made(trial)),
                };
                self.tell(changed);
            }
            Record::Ended(ended) => {
                let known = &mut self.trials[ended.trial.0 as usize];
                let mut told = known.ended.take().unwrap_or_default();
                told.iterations = known.iterations;
                if !known.last.0.is_empty() {
                    // One that has returned without another report has what it had before.
                    told.metrics = Some(known.last.clone().into());
                }
                if ended.error.is_none() {
                    // How the process went is of no interest when it was told to go.
                    told.status = "finished".into();
                    told.failure = None;
                }
                let state = match &ended.error {
                    Some(_) => TrialState::Error,
                    None if ended.early => TrialState::Stopped,
                    None => TrialState::Terminated,
                };
                if ended.error.is_some() {
                    told.status = "failed".into();
                }
                told.headline = ended.error.clone().unwrap_or_else(|| ended.reason.clone());
                let made = ended.config.is_some().then(|| self.made(ended.trial));
                self.tell(v1::TrialChanged {
                    trial: ended.trial.0,
                    state: state.word().into(),
                    reason: told.headline.clone(),
                    made,
                });
                self.tell_of_trial(ended.trial, told);
            }
            _ => {}
        }
    }

    /// How many workers a trial with this config has, and what each of them reserves.
    fn scaling(&self, config: &Metrics) -> (u32, Resources) {
        let run = &self.spec.run;
        let own = match config.get("scaling_config") {
            Some(Value::Map(own)) if self.spec.scaled_by_config => own,
            _ => return (run.num_workers, run.resources_per_worker.clone()),
        };
        let workers = match own.get("num_workers") {
            Some(Value::Int(workers)) => u32::try_from(*workers).unwrap_or(run.num_workers),
            _ => run.num_workers,
        };
        let resources = match own.get("resources_per_worker") {
            Some(Value::Map(amounts)) => talking::amounts_of(amounts).ok(),
            _ => None,
        };
        (workers, resources.unwrap_or_else(|| run.resources_per_worker.clone()))
    }

    /// What all workers of a trial with this config reserve.
    fn resources_of(&self, config: &Metrics) -> Resources {
        let (workers, each) = self.scaling(config);
        each.times(workers)
    }

    fn submit(&mut self, trial: TrialId, resources: Option<Resources>, free: u64) {
        let known = &mut self.trials[trial.0 as usize];
        known.ended = None;
        known.submitted = (resources.clone(), free);
        let known = &self.trials[trial.0 as usize];
        let names = &known.names;
        let (num_workers, each) = self.scaling(&known.config);
        let spec = RunSpec {
            name: names.directory.clone(),
            storage_path: self.location.clone(),
            num_workers,
            resources_per_worker: resources.unwrap_or(each),
            on_existing: OnExisting::Reuse,
            trial: Some(TrialSpec {
                experiment: self.id.as_str().to_owned(),
                number: trial.0,
                id: names.id.clone(),
                tag: names.tag.clone(),
                reuse: self.spec.reuse,
                own_directory: self.spec.own_directory,
                free,
            }),
            ..self.spec.run.clone()
        };
        let request = v1::RunRequest {
            spec: serde_json::to_string(&spec).expect("a specification of plain fields is always JSON"),
            config: Some(Value::Map(known.config.clone()).into()),
            function: self.function.clone(),
            environment: self.environment.clone(),
        };
        self.wishes.push(Wish::Submit { trial, request: Box::new(request) });
    }

    fn adopt(&mut self, trial: TrialId, from: TrialId) {
        let Some(storage) = &self.storage else { return };
        let place = |trial: TrialId| storage.join(&self.trials[trial.0 as usize].names.directory);
        let (to, source) = (place(trial), place(from));
        self.trials[trial.0 as usize].adopting = true;
        if trial == from {
            return self.trials[trial.0 as usize].adopting = false;
        }
        self.wishes.push(Wish::Adopt { trial, places: Box::new((to, source)) });
    }

    pub fn on_adopted(&mut self, trial: TrialId, result: Result<Option<String>, Failure>) {
        let known = &mut self.trials[trial.0 as usize];
        known.adopting = false;
        let waiting = known.waits_for_adoption.take();
        let own = known.names.name.clone();
        match result {
            Ok(Some(_)) => {}
            Ok(None) => {
                self.warn(format!("`{own}` goes on from its own checkpoint: the other trial has none any more"))
            }
            Err(failure) => self.warn(format!("`{own}` goes on from its own checkpoint: {}", failure.message)),
        }
        if let Some((resources, free)) = waiting {
            self.submit(trial, resources, free);
        }
    }

    /// The run of the trial has begun to exist, or cannot.
    pub fn on_submitted(&mut self, trial: TrialId, run: RunId) {
        self.live.insert(run.clone());
        self.trials[trial.0 as usize].run = Some(run);
    }

    pub fn on_waits(&mut self, trial: TrialId, reason: &str) {
        self.waiting.begin(trial, reason);
        self.tell_state(trial, TrialState::Pending.word(), reason);
    }

    pub fn on_started(&mut self, trial: TrialId) {
        self.tell_state(trial, TrialState::Running.word(), "");
    }

    /// Something was told of the run of a trial.
    pub fn on_trial_event(
        &mut self,
        trial: TrialId,
        event: v1::RunEvent,
        checkpoints: u64,
        outside: &mut dyn Outside,
    ) -> Option<ExperimentEvent> {
        use v1::run_event::Kind;
        self.machine.set_checkpoints(trial, checkpoints);
        let known = self.trials.get_mut(trial.0 as usize)?;
        match event.kind {
            Some(Kind::Reported(report)) => {
                let number = report.iteration;
                let result: Metrics = report.metrics.clone().unwrap_or_default().into();
                // One that goes on from another trial counts from there.
                let shown = result.get("training_iteration").and_then(Value::as_f64);
                known.iterations = shown.map_or(number, |shown| shown as u64);
                known.seconds = result.get("time_total_s").and_then(Value::as_f64).unwrap_or(known.seconds);
                known.last = result.clone();
                if let Some(checkpoint) = &report.checkpoint {
                    known.checkpoint = checkpoint.path.rsplit('/').next().map(str::to_owned);
                }
                let now = outside.clock();
                if self.watchers.want_reports() {
                    self.tell_of_trial(trial, report);
                } else {
                    let time_total_s = known.seconds;
                    let progress = v1::Progress {
                        iteration: number,
                        metrics: report.metrics,
                        checkpoints,
                        time_total_s,
                        saved: 0,
                    };
                    known.untold = Some(progress);
                    if known.last_progress.is_none_or(|last| now.saturating_sub(last) >= PROGRESS_EVERY) {
                        self.tell_progress(trial, now);
                    } else {
                        self.untold.insert(trial);
                    }
                }
                Some(ExperimentEvent::Reported { trial, number, result })
            }
            Some(Kind::Ended(ended)) => {
                self.tell_progress(trial, outside.clock());
                let known = &mut self.trials[trial.0 as usize];
                known.last_run = known.run.clone().or(known.last_run.take());
                self.forget_run(trial);
                let known = &mut self.trials[trial.0 as usize];
                let newest = ended.checkpoints.iter().max_by_key(|checkpoint| checkpoint.iteration);
                if let Some(newest) = newest {
                    known.checkpoint = newest.path.rsplit('/').next().map(str::to_owned);
                }
                if let Some(metrics) = ended.metrics.clone().filter(|metrics| !metrics.entries.is_empty()) {
                    known.last = metrics.into();
                }
                let failure = ended.failure.clone().map(Failure::from).filter(|_| ended.status == "failed");
                if let Some(failure) = failure.filter(|failure| self.is_storage_lost(failure, outside.now())) {
                    self.tell_state(trial, TrialState::Pending.word(), &failure.message);
                    return Some(ExperimentEvent::Broken {
                        trial: Some(trial),
                        failure: self.storage_failure(failure),
                    });
                }
                let end = match ended.status.as_str() {
                    "finished" => RunEnd::Finished,
                    "failed" => RunEnd::Failed(self.own_words(&ended.headline)),
                    _ => RunEnd::Aborted(ended.headline.clone()),
                };
                self.trials[trial.0 as usize].ended = Some(ended);
                Some(ExperimentEvent::RunEnded { trial, end })
            }
            Some(Kind::State(_)) | None => None,
            Some(kind) => {
                self.tell_of_trial(trial, v1::RunEvent { kind: Some(kind) });
                None
            }
        }
    }

    /// The last report that those have not heard of who do not want every one.
    fn tell_progress(&mut self, trial: TrialId, now: Duration) {
        self.untold.remove(&trial);
        let known = &mut self.trials[trial.0 as usize];
        if let Some(progress) = known.untold.take() {
            known.last_progress = Some(now);
            self.tell_of_trial(trial, progress);
        }
    }

    /// No report stays untold for long, also where no other follows it.
    fn tell_what_is_untold(&mut self, now: Duration) {
        let last = |trial: &TrialId| self.trials[trial.0 as usize].last_progress;
        let is_due = |trial: &&TrialId| last(trial).is_none_or(|last| now.saturating_sub(last) >= PROGRESS_EVERY);
        for trial in self.untold.iter().filter(is_due).copied().collect::<Vec<_>>() {
            self.tell_progress(trial, now);
        }
    }

    /// For a scheduler that changes what trials hold.
    pub fn wants_resources(&self) -> bool {
        self.machine.changes_resources()
    }

    pub fn tell_resources(&mut self, free: &Resources) {
        let base = self.spec.run.resources_per_worker.clone();
        self.machine.holdings(&base, free);
    }

    pub fn stop(&mut self, reason: String, force: bool, outside: &mut dyn Outside) {
        self.forced |= force;
        if force {
            let live = self.live.iter().cloned();
            let stops: Vec<Wish> = live.map(|run| Wish::Stop { run, reason: reason.clone(), force }).collect();
            self.wishes.extend(stops);
        }
        self.on_event(ExperimentEvent::StopRequested { reason }, outside);
    }

    pub fn live_runs(&self) -> Vec<RunId> {
        self.live.iter().cloned().collect()
    }

    pub fn flush(&mut self, now: f64, clock: Duration) {
        self.tell_what_is_untold(clock);
        for (trial, reason) in self.waiting.due(clock.saturating_sub(self.began).as_secs_f64()) {
            self.disk.append(&records::waits_line(trial, now, &reason));
        }
        let flushed = self.disk.flush();
        self.written(&flushed);
    }

    fn written(&mut self, tried: &Result<(), Failure>) {
        let refused = self.refusals.warning("the experiment's", tried);
        for text in refused.into_iter().chain(self.disk.take_warnings()) {
            self.warn(text);
        }
    }

    pub fn on_upkeep_due(&mut self, outside: &mut dyn Outside) {
        if self.ended || self.ending.is_some() {
            return;
        }
        self.tell_what_is_untold(outside.clock());
        outside.set_upkeep_timer(self.id.clone(), UPKEEP_EVERY);
        self.restore_files();
        self.upkeeps = self.upkeeps.wrapping_add(1);
        if !self.upkeeps.is_multiple_of(RENEW_EACH) {
            return;
        }
        let renewed = self.disk.renew(outside.now());
        self.written(&renewed);
        if let Some(mirror) = self.mirror.take_if(|mirror| mirror.is_due()) {
            outside.mirror(self.id.clone(), mirror);
        }
    }

    pub fn summary(&self) -> v1::RunSummary {
        v1::RunSummary {
            run_id: self.id.as_str().to_owned(),
            name: self.spec.name.clone(),
            path: self.location.clone(),
            directory: self.location.clone(),
            status: self.status.name().to_owned(),
            reason: format!("{} trials, {}", self.trials.len(), self.machine.describe()),
            started: self.created,
            iterations: self.trials.len() as u64,
            ..Default::default()
        }
    }

    fn end(&mut self, end: ExperimentEnd, outside: &mut dyn Outside) {
        self.status = match &end {
            ExperimentEnd::Finished(_) => RunStatus::Finished,
            ExperimentEnd::Stopped(_) => RunStatus::Aborted,
            ExperimentEnd::Failed(_) | ExperimentEnd::Broken(_) => RunStatus::Failed,
        };
        let failure = match &end {
            ExperimentEnd::Failed(reason) => Some(Failure::new(ErrorCode::InvalidConfig, reason.clone()).into()),
            ExperimentEnd::Broken(failure) => Some(failure.clone().into()),
            _ => None,
        };
        self.ending = Some(v1::RunEnded {
            status: self.status.name().to_owned(),
            headline: end.reason().to_owned(),
            failure,
            seconds: outside.clock().saturating_sub(self.began).as_secs_f64(),
            iterations: self.trials.len() as u64,
            ..Default::default()
        });
        self.wishes.push(Wish::DropPool);
        // What was waited for already is not waited for again.
        let waited = if matches!(end, ExperimentEnd::Broken(_)) { deadline() } else { Duration::ZERO };
        self.closing = Some((outside.now(), outside.clock().saturating_sub(waited)));
        self.close(outside);
    }

    /// Writes down the end, and announces it. What the files lack after `deadline` is read back from the trials' own by the next head.
    fn close(&mut self, outside: &mut dyn Outside) {
        let (Some((at, since)), Some(ending)) = (self.closing, &self.ending) else { return };
        let word = if self.status == RunStatus::Aborted { "stopped" } else { self.status.name() };
        let headline = ending.headline.clone();
        self.restore_files();
        let ended = self.disk.end(word, &headline, at);
        self.written(&ended);
        if ended.is_err() && outside.clock().saturating_sub(since) < deadline() {
            return outside.set_retry_timer(self.id.clone(), RETRY);
        }
        if ended.is_err() {
            self.disk.abandon();
        }
        self.closing = None;
        self.last_round_since = Some(outside.clock());
        let elsewhere = self.storage.take().is_some_and(|storage| storage.local_path().is_none());
        match self.mirror.take() {
            Some(mirror) => self.begin_last_round(mirror, outside),
            // A round that is going on is followed by the last one when it comes back.
            None if elsewhere => {}
            None => self.tell_ending(),
        }
    }

    fn begin_last_round(&mut self, mirror: Mirror, outside: &mut dyn Outside) {
        self.last_round = true;
        outside.mirror(self.id.clone(), mirror);
    }

    pub fn on_mirrored(&mut self, mirror: Mirror, result: Result<(), Failure>, outside: &mut dyn Outside) {
        if let Err(failure) = &result {
            self.warn(format!("the storage is behind: {}", failure.message));
        }
        if self.ending.is_none() || self.closing.is_some() {
            self.mirror = Some(mirror);
        } else if !self.last_round {
            self.begin_last_round(mirror, outside);
        } else {
            let waited = self.last_round_since.map_or(Duration::ZERO, |since| outside.clock().saturating_sub(since));
            match result {
                Ok(()) => mirror.remove_local(),
                Err(_) if waited < deadline() => {
                    self.mirror = Some(mirror);
                    return outside.set_retry_timer(self.id.clone(), RETRY);
                }
                Err(_) => {}
            }
            self.tell_ending();
        }
    }

    fn tell_ending(&mut self) {
        if let Some(ending) = self.ending.take() {
            self.ended = true;
            self.tell(ending);
        }
    }
}

impl Known {
    fn new(names: Names, config: Metrics) -> Self {
        Self {
            names,
            config,
            resources: None,
            run: None,
            last_run: None,
            adopting: false,
            waits_for_adoption: None,
            submitted: (None, 0),
            last_progress: None,
            untold: None,
            last: Metrics::default(),
            iterations: 0,
            seconds: 0.0,
            checkpoint: None,
            ended: None,
        }
    }
}
