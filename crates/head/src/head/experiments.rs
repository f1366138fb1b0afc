//! The experiments of a head: their trials are runs, and what those tell comes back here.

use carril_core::tune::TrialId;
use carril_core::tune::experiment::{ExperimentEvent, Verdict};
use carril_core::tune::spec::ExperimentSpec;
use carril_core::{Decision, PlacementRequest};
use carril_proto::v1;
use carril_types::{ErrorCode, Failure, OtherConfig, Resources, RunId, Value};
use tokio::sync::oneshot;

use super::{Asker, Head};
use crate::experiment::{ExperimentRun, UPKEEP_EVERY, Wish, answer_of};
use crate::outside::{ExperimentOpened, OpenExperiment};

pub(super) struct OpeningExperiment {
    spec: ExperimentSpec,
    request: v1::ExperimentRequest,
    reply: oneshot::Sender<Result<v1::ExperimentReply, Failure>>,
}

impl Head {
    /// The answer comes when the experiment's files are there.
    pub fn submit_experiment(
        &mut self,
        request: v1::ExperimentRequest,
        reply: oneshot::Sender<Result<v1::ExperimentReply, Failure>>,
    ) {
        match self.checked_experiment(&request) {
            Ok(spec) => {
                let id = self.outside.fresh_run_id();
                let space = spec.recorded_space.as_ref().unwrap_or(&spec.space).describe(&constants_of(&request));
                let variables = carril_store::storage_variables(&request.environment);
                let now = self.outside.now();
                let open = OpenExperiment { id: id.clone(), spec: spec.clone(), space, variables, now };
                self.opening_experiments.insert(id, OpeningExperiment { spec, request, reply });
                self.outside.open_experiment(open);
            }
            Err(failure) => drop(reply.send(Err(failure))),
        }
    }

    /// What can never run leaves no trace.
    fn checked_experiment(&self, request: &v1::ExperimentRequest) -> Result<ExperimentSpec, Failure> {
        let wrong = |text: String| Failure::new(ErrorCode::InvalidConfig, text);
        let mut spec: ExperimentSpec = serde_json::from_str(&request.spec)
            .map_err(|error| wrong(format!("the experiment's specification: {error}")))?;
        if super::is_requeued(&request.environment) {
            spec.run.other_config = OtherConfig::Warn;
            spec.begins_anew = false;
        }
        spec.run.check().map_err(|error| wrong(error.to_string()))?;
        spec.build(&constants_of(request), spec.seed).map_err(wrong)?;
        let one = PlacementRequest {
            run: RunId::new(""),
            workers: spec.run.num_workers,
            per_worker: spec.run.resources_per_worker.clone(),
        };
        match self.placement.never(&one) {
            Some(failure) => {
                let hint = "`tune.with_resources(trainable, {…})` says what a trial reserves";
                Err(Failure::new(failure.code, format!("no trial can ever run: {}", failure.message)).hint(hint))
            }
            None => Ok(spec),
        }
    }

    pub fn on_experiment_opened(&mut self, id: &RunId, result: Result<ExperimentOpened, Failure>) {
        let Some(OpeningExperiment { spec, request, reply }) = self.opening_experiments.remove(id) else { return };
        let now = (self.outside.now(), self.outside.clock());
        let (name, budget) = (spec.name.clone(), spec.time_budget_s);
        let opened = result.and_then(|opened| ExperimentRun::new(id.clone(), spec, request, opened, now));
        let experiment = match opened {
            Ok(experiment) => experiment,
            Err(failure) => return drop(reply.send(Err(failure))),
        };
        let (experiment_id, path) = (id.as_str().to_owned(), experiment.location.clone());
        self.experiments.insert(id.clone(), experiment);
        let _ = reply.send(Ok(v1::ExperimentReply { experiment_id, path, name }));
        self.outside.set_upkeep_timer(id.clone(), UPKEEP_EVERY);
        if let Some(after) = budget.and_then(|seconds| std::time::Duration::try_from_secs_f64(seconds).ok()) {
            self.outside.set_budget_timer(id.clone(), after);
        }
        self.tell_experiment(id, ExperimentEvent::Begun);
    }

    pub fn on_budget_over(&mut self, id: &RunId) {
        let reason = "the time budget is used up".to_owned();
        self.tell_experiment(id, ExperimentEvent::EnoughSeen { reason });
    }

    pub fn answer(&mut self, id: &RunId, question: u64, answer: Value) -> Result<(), Failure> {
        if !self.experiments.contains_key(id) {
            return Err(super::no_such_run(id));
        }
        let (answer, orders) = answer_of(answer)?;
        self.tell_experiment(id, ExperimentEvent::Answered { question, answer, orders });
        Ok(())
    }

    /// One event after the other, however they bring each other about.
    pub(super) fn tell_experiment(&mut self, id: &RunId, event: ExperimentEvent) {
        self.experiment_events.push_back((id.clone(), event));
        if std::mem::replace(&mut self.telling, true) {
            return;
        }
        while let Some((id, event)) = self.experiment_events.pop_front() {
            if self.experiments.get(&id).is_some_and(ExperimentRun::wants_resources) {
                let free = self.free_resources();
                self.experiments.entry(id.clone()).and_modify(|experiment| experiment.tell_resources(&free));
            }
            let Some(experiment) = self.experiments.get_mut(&id) else { continue };
            experiment.on_event(event, &mut *self.outside);
            self.grant_wishes(&id);
        }
        self.telling = false;
    }

    fn free_resources(&self) -> Resources {
        let mut free = Resources::default();
        self.placement.nodes().for_each(|(_, node)| free.add(&node.free));
        free
    }

    pub(super) fn grant_wishes(&mut self, id: &RunId) {
        let Some(experiment) = self.experiments.get_mut(id) else { return };
        for wish in std::mem::take(&mut experiment.wishes) {
            match wish {
                Wish::Submit { trial, request } => self.submit_for(*request, Asker::Trial(id.clone(), trial)),
                Wish::Stop { run, reason, force } => self.stop_trial(&run, reason, force),
                Wish::Decide { run, number, verdict, free } => self.decide_trial(&run, number, verdict, free),
                Wish::Adopt { trial, places } => self.outside.adopt(id.clone(), trial, places.0, places.1),
                Wish::DropPool => {
                    for node in self.nodes.keys() {
                        self.outside.to_agent(node, v1::DropPool { pool: id.as_str().to_owned() }.into());
                    }
                }
            }
        }
        self.ask_for_room(id);
        let Some(experiment) = self.experiments.get_mut(id) else { return };
        if experiment.ended && experiment.watchers.is_drained() {
            experiment.watchers.close();
        }
    }

    fn stop_trial(&mut self, run: &RunId, reason: String, force: bool) {
        // One whose files are not there yet is stopped when they are.
        if let Some(opening) = self.opening.get_mut(run) {
            opening.unwanted = true;
            return;
        }
        let _ = self.stop_run(run, reason, force);
    }

    fn decide_trial(&mut self, run: &RunId, number: u64, verdict: Verdict, free: u64) {
        if let Some(run) = self.runs.get_mut(run) {
            run.decided(number, verdict, free, &mut *self.outside);
        }
    }

    pub fn on_adopted(&mut self, id: &RunId, trial: TrialId, result: Result<Option<String>, Failure>) {
        if let Some(experiment) = self.experiments.get_mut(id) {
            experiment.on_adopted(trial, result);
            self.grant_wishes(id);
        }
    }

    /// A trial's run was submitted: it has room, or waits for it.
    pub(super) fn on_trial_submitted(&mut self, id: &RunId, trial: TrialId, run: &RunId, decision: &Decision) {
        let Some(experiment) = self.experiments.get_mut(id) else { return };
        experiment.on_submitted(trial, run.clone());
        match decision {
            Decision::Waits(reason) => experiment.on_waits(trial, reason),
            _ => self.on_trial_placed(id, trial),
        }
        self.ask_for_room(id);
    }

    pub(super) fn on_trial_placed(&mut self, id: &RunId, trial: TrialId) {
        self.tell_experiment(id, ExperimentEvent::Placed { trial });
    }

    pub(super) fn on_trial_started(&mut self, id: &RunId, trial: TrialId) {
        if let Some(experiment) = self.experiments.get_mut(id) {
            experiment.on_started(trial);
        }
        self.on_trial_placed(id, trial);
    }

    pub(super) fn on_trial_opened(&mut self, id: &RunId) {
        if let Some(experiment) = self.experiments.get_mut(id) {
            experiment.on_opened();
        }
    }

    pub(super) fn on_trial_refused(&mut self, id: &RunId, trial: TrialId, failure: Failure) {
        let Some(experiment) = self.experiments.get_mut(id) else { return };
        if let Some(event) = experiment.on_refused(trial, failure, &mut *self.outside) {
            self.tell_experiment(id, event);
        }
    }

    /// What the run of a trial has to tell.
    pub(super) fn pass_on(&mut self, id: &RunId, number: u64, events: Vec<v1::RunEvent>, checkpoints: u64) {
        for event in events {
            let Some(experiment) = self.experiments.get_mut(id) else { return };
            let told = experiment.on_trial_event(TrialId(number), event, checkpoints, &mut *self.outside);
            if let Some(told) = told {
                self.tell_experiment(id, told);
            }
        }
        self.ask_for_room(id);
    }

    /// While a watcher is behind, the trials are not heard.
    fn ask_for_room(&mut self, id: &RunId) {
        let Some(experiment) = self.experiments.get_mut(id) else { return };
        for (watcher, sender) in experiment.watchers.take_full() {
            self.outside.when_watcher_ready(id.clone(), watcher, sender);
        }
        if experiment.watchers.are_behind() {
            for run in experiment.live_runs() {
                if let Some(trial) = self.runs.get_mut(&run).and_then(|run| run.trial.as_mut()) {
                    trial.held = true;
                }
            }
        }
    }

    pub(super) fn on_experiment_watcher_ready(&mut self, id: &RunId, watcher: u64) {
        let Some(experiment) = self.experiments.get_mut(id) else { return };
        experiment.watchers.on_ready(watcher);
        if !experiment.watchers.are_behind() {
            for run in experiment.live_runs() {
                let Some(live) = self.runs.get_mut(&run) else { continue };
                if let Some(trial) = live.trial.as_mut().filter(|trial| trial.held) {
                    trial.held = false;
                    self.on_watcher_ready(&run, u64::MAX);
                }
            }
        }
        self.ask_for_room(id);
        let Some(experiment) = self.experiments.get_mut(id) else { return };
        if experiment.ended && experiment.watchers.is_drained() {
            experiment.watchers.close();
        }
    }
}

fn constants_of(request: &v1::ExperimentRequest) -> Vec<Value> {
    request.constants.clone().unwrap_or_default().items.into_iter().map(Into::into).collect()
}
