//! All runs and all nodes, and what is shared between them: the resources.

mod experiments;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use carril_core::tune::TrialId;
use carril_core::tune::experiment::ExperimentEvent;
use carril_core::{Decision, Event, Placement, PlacementRequest, Share, Timer};
use carril_proto::v1;
use carril_types::{ErrorCode, Failure, NodeId, OtherConfig, Resources, RunId, RunSpec, RunStatus};

use tokio::sync::oneshot;

use self::experiments::OpeningExperiment;
use crate::experiment::ExperimentRun;
use crate::mirror::Mirror;
use crate::outside::{Checkpoints, Committed, OpenRequest, Outside, RunOpened};
use crate::run::{Check, Earlier, Run, budget_of, worker_of};
use crate::watchers::Watcher;

/// Runs that have ended are remembered, so that a late watcher still hears how.
const REMEMBERED: usize = 100;

pub struct Head {
    outside: Box<dyn Outside>,
    placement: Placement,
    nodes: BTreeMap<NodeId, Arc<v1::Node>>,
    runs: BTreeMap<RunId, Run>,
    /// Submitted, and their files are not there yet.
    opening: BTreeMap<RunId, Opening>,
    /// Runs that have ended, oldest first.
    ended: Vec<RunId>,
    experiments: BTreeMap<RunId, ExperimentRun>,
    opening_experiments: BTreeMap<RunId, OpeningExperiment>,
    /// What experiments are still to be told, and whether one is being told something.
    experiment_events: VecDeque<(RunId, ExperimentEvent)>,
    telling: bool,
}

struct Opening {
    spec: RunSpec,
    request: v1::RunRequest,
    decision: Decision,
    asker: Asker,
    /// It is to end as soon as it is there.
    unwanted: bool,
}

/// Who has submitted a run.
enum Asker {
    Driver(oneshot::Sender<Result<v1::RunReply, Failure>>),
    /// A run that wants a checkpoint checked.
    Run(RunId),
    /// An experiment that wants this trial run.
    Trial(RunId, TrialId),
}

impl Head {
    pub fn new(outside: Box<dyn Outside>) -> Self {
        Self {
            outside,
            opening: BTreeMap::new(),
            placement: Placement::default(),
            nodes: BTreeMap::new(),
            runs: BTreeMap::new(),
            ended: Vec::new(),
            experiments: BTreeMap::new(),
            opening_experiments: BTreeMap::new(),
            experiment_events: VecDeque::new(),
            telling: false,
        }
    }

    pub fn on_agent_message(&mut self, from: &NodeId, message: v1::AgentMessage) {
        use v1::agent_message::Kind;
        if let Some(Kind::Joined(node)) = message.kind {
            if let Ok(total) = node.total_resources() {
                self.placement.add_node(from.clone(), total, node.devices.clone());
                self.nodes.insert(from.clone(), Arc::new(v1::Node { id: from.as_str().to_owned(), ..node }));
                self.on_node_joined(from);
            }
            return;
        }
        if let Some(Kind::Preempted(preempted)) = message.kind {
            return self.on_node_preempted(from, &preempted.reason);
        }
        let Some(node) = self.nodes.get(from) else { return };
        let Some(id) = worker_of(&message).map(|worker| RunId::new(worker.run_id.clone())) else { return };
        if let Some(run) = self.runs.get_mut(&id) {
            run.on_agent_message(node, message, &mut *self.outside);
        }
        self.after(&id);
    }

    /// The answer comes when the run's files are there, which may take a while: a checkpoint is read in full.
    pub fn submit(&mut self, request: v1::RunRequest, reply: oneshot::Sender<Result<v1::RunReply, Failure>>) {
        self.submit_for(request, Asker::Driver(reply));
    }

    fn submit_for(&mut self, request: v1::RunRequest, asker: Asker) {
        match self.begin(&request) {
            Ok((id, spec, decision)) => {
                if let Asker::Run(run) = &asker
                    && let Some(run) = self.runs.get_mut(run)
                {
                    run.check_begins(&id);
                }
                let config = request.config.clone().unwrap_or_default().into();
                let variables = carril_store::storage_variables(&request.environment);
                let now = self.outside.now();
                let open = OpenRequest { id: id.clone(), spec: spec.clone(), config, variables, now };
                let told = decision.clone();
                let trial = match &asker {
                    Asker::Trial(experiment, trial) => Some((experiment.clone(), *trial)),
                    _ => None,
                };
                self.opening.insert(id.clone(), Opening { spec, request, decision, asker, unwanted: false });
                self.outside.open_run(open);
                if let Some((experiment, trial)) = trial {
                    self.on_trial_submitted(&experiment, trial, &id, &told);
                }
            }
            Err(failure) => self.refuse(asker, failure),
        }
    }

    fn refuse(&mut self, asker: Asker, failure: Failure) {
        match asker {
            Asker::Driver(reply) => drop(reply.send(Err(failure))),
            Asker::Run(run) => self.on_check_ended(&run, Err(failure)),
            Asker::Trial(experiment, trial) => self.on_trial_refused(&experiment, trial, failure),
        }
    }

    fn on_check_ended(&mut self, id: &RunId, result: Result<v1::RunEnded, Failure>) {
        if let Some(run) = self.runs.get_mut(id).filter(|run| !run.ended) {
            run.on_check_ended(result, &mut *self.outside);
            self.after(id);
        }
    }

    pub fn on_validation_kept(&mut self, id: &RunId, result: Result<(), Failure>) {
        if let Some(run) = self.runs.get_mut(id).filter(|run| !run.ended) {
            run.on_validation_kept(result, &mut *self.outside);
            self.after(id);
        }
    }

    fn begin(&mut self, request: &v1::RunRequest) -> Result<(RunId, RunSpec, Decision), Failure> {
        let mut spec: RunSpec = serde_json::from_str(&request.spec)
            .map_err(|error| Failure::new(ErrorCode::InvalidConfig, format!("the run's specification: {error}")))?;
        if is_requeued(&request.environment) {
            spec.other_config = OtherConfig::Warn;
        }
        spec.check().map_err(|error| Failure::new(ErrorCode::InvalidConfig, error.to_string()))?;
        let live = |name: &str, storage: &str| name == spec.name && storage == spec.storage_path;
        let mut opening = self.opening.values();
        if opening.any(|opening| live(&opening.spec.name, &opening.spec.storage_path)) {
            let message = format!("a run named `{}` is being started in `{}`", spec.name, spec.storage_path);
            return Err(Failure::new(ErrorCode::RunLive, message).hint("give the run another `name`"));
        }
        let id = spec.continues.clone().map_or_else(|| self.outside.fresh_run_id(), RunId::new);
        let asked = request_of(&id, &spec);
        // Before any file is made: what can never run leaves no trace.
        // One that has run before fits somewhere: its node may only have to come back.
        let decision = match (&spec.continues, &spec.parent) {
            (None, Some(parent)) => {
                let (decision, placed) = self.placement.ask_within(&RunId::new(parent.clone()), asked);
                for (next, shares) in placed {
                    self.start(&next, shares);
                }
                decision
            }
            (Some(_), _) => self.placement.ask_patiently(asked),
            (None, None) => self.placement.ask(asked),
        };
        match decision {
            Decision::Never(failure) => Err(failure),
            decision => Ok((id, spec, decision)),
        }
    }

    pub fn on_run_opened(&mut self, id: &RunId, result: Result<RunOpened, Failure>) {
        let Some(Opening { spec, request, decision, asker, unwanted }) = self.opening.remove(id) else { return };
        let mut opened = match result {
            Ok(opened) => opened,
            Err(failure) => {
                self.give_back(id);
                return self.refuse(asker, failure);
            }
        };
        // A check is part of its run: only an earlier head of the same `fit` may have left one running.
        let part_of = if let Asker::Run(of) = &asker { self.runs.get(of).map(|of| &of.spec) } else { Some(&spec) };
        if part_of.is_none_or(|spec| spec.continues.is_none()) {
            opened.history.nodes.clear();
        }
        let (name, now) = (spec.name.clone(), (self.outside.now(), self.outside.clock()));
        let reports = opened.checkpoints.kept.last().map_or(0, |(_, manifest)| manifest.iteration);
        let (budget, lost) = match budget_of(&spec, &opened.history, reports) {
            Ok(left) => left,
            Err(failure) => {
                self.give_back(id);
                let failure = self.end_at_once(opened, failure);
                return self.refuse(asker, failure);
            }
        };
        let set_aside = opened.checkpoints.set_aside.clone();
        let rescued = std::mem::take(&mut opened.rescued);
        let earlier =
            Earlier { differences: std::mem::take(&mut opened.differences), attempts: opened.history.next_attempt };
        let mut run = Run::new(id.clone(), spec, request, opened, budget, now);
        let path = run.location.clone();
        if let Decision::Waits(reason) = &decision {
            run.publish(
                v1::StateChanged { state: "waiting".into(), reason: reason.clone(), ..Default::default() },
                &mut *self.outside,
            );
        }
        run.opened(earlier, set_aside, rescued, lost, &mut *self.outside);
        if let Some(until) = run.free_at() {
            let after = until.saturating_sub(now.1);
            self.outside.set_lease_timer(id.clone(), after);
        }
        let unwanted =
            unwanted || matches!(&asker, Asker::Run(of) if !self.runs.get(of).is_some_and(|of| of.wants(id)));
        match asker {
            Asker::Driver(reply) => {
                let _ = reply.send(Ok(v1::RunReply { run_id: id.as_str().to_owned(), path, name }));
            }
            Asker::Run(of) => run.checks_for = Some(of),
            Asker::Trial(experiment, _) => self.on_trial_opened(&experiment),
        }
        self.runs.insert(id.clone(), run);
        if unwanted {
            let _ = self.stop_run(id, "it is not wanted any more".to_owned(), true);
        } else if let Decision::Placed(shares) = decision {
            self.start(id, shares);
        }
    }

    /// The run has ended before this head could begin.
    fn end_at_once(&mut self, mut opened: RunOpened, failure: Failure) -> Failure {
        let error = (failure.message.clone(), serde_json::json!({ "headline": failure.message, "failure": failure }));
        let ended = opened.disk.end(RunStatus::Failed, self.outside.now(), Some(error));
        ended.err().unwrap_or(failure)
    }

    pub fn on_latest_found(&mut self, id: &RunId, found: Result<Checkpoints, Failure>) {
        if let Some(run) = self.runs.get_mut(id) {
            run.on_latest_found(found, &mut *self.outside);
            self.after(id);
        }
    }

    pub fn preempt_run(&mut self, id: &RunId, reason: String) -> Result<(), Failure> {
        if self.experiments.contains_key(id) {
            return self.stop_run(id, reason, false);
        }
        let run = self.runs.get_mut(id).ok_or_else(|| no_such_run(id))?;
        let grace = Duration::from_secs_f64(run.spec.preemption_grace_s);
        run.decide(Event::Preempted { reason, grace }, &mut *self.outside);
        self.after(id);
        Ok(())
    }

    fn on_node_joined(&mut self, node: &NodeId) {
        for id in self.runs.keys().cloned().collect::<Vec<_>>() {
            if self.runs.get_mut(&id).is_some_and(|run| run.is_freed_by(node)) {
                self.start_if_free(&id);
            }
        }
        for (id, shares) in self.placement.try_waiting() {
            self.start(&id, shares);
        }
    }

    /// A node cannot be seen, or can be again. That is told, and nothing else is done.
    pub fn on_node_seen(&mut self, node: &NodeId, seen: bool) {
        for run in self.runs.values_mut().filter(|run| !run.ended) {
            if run.shares.iter().any(|share| share.node == *node) {
                let how = if seen { "can be seen again" } else { "cannot be seen; its workers go on" };
                run.publish(v1::Warning { text: format!("node `{node}` {how}") }, &mut *self.outside);
            }
        }
    }

    /// There is evidence that a node is gone, or its lease has run out: its workers do not run any more.
    pub fn on_node_lost(&mut self, node: &NodeId, why: &str) {
        if self.nodes.remove(node).is_none() {
            return;
        }
        self.placement.remove_node(node);
        let on_it = |decision: &Decision| matches!(decision, Decision::Placed(shares) if shares.iter().any(|share| share.node == *node));
        let opening: Vec<RunId> =
            self.opening.iter().filter(|(_, opening)| on_it(&opening.decision)).map(|(id, _)| id.clone()).collect();
        for id in opening {
            self.give_back(&id);
            if let Some(opening) = self.opening.get_mut(&id) {
                opening.decision = self.placement.ask_patiently(request_of(&id, &opening.spec));
            }
        }
        for id in self.runs.keys().cloned().collect::<Vec<_>>() {
            if let Some(run) = self.runs.get_mut(&id).filter(|run| !run.ended) {
                run.on_node_lost(node, why, &mut *self.outside);
                self.after(&id);
            }
        }
    }

    /// Every run with a worker on that node, or waiting for one, is preempted.
    fn on_node_preempted(&mut self, node: &NodeId, reason: &str) {
        // Their trials are left for the next head.
        for id in self.experiments.keys().cloned().collect::<Vec<_>>() {
            let _ = self.stop_run(&id, reason.to_owned(), false);
        }
        let touched = |run: &&Run| run.shares.is_empty() || run.shares.iter().any(|share| share.node == *node);
        let live = self.runs.values().filter(|run| !run.ended).filter(touched);
        let ids: Vec<RunId> = live.map(|run| run.id.clone()).collect();
        for id in ids {
            let _ = self.preempt_run(&id, reason.to_owned());
        }
    }

    pub fn on_committed(
        &mut self,
        id: &RunId,
        iteration: u64,
        result: Result<Committed, Failure>,
        mirror: Option<Mirror>,
    ) {
        if let Some(run) = self.runs.get_mut(id) {
            if let Some(mirror) = mirror {
                run.on_mirrored(mirror, Ok(()), &mut *self.outside);
            }
            run.on_committed(iteration, result, &mut *self.outside);
            self.after(id);
        }
    }

    pub fn on_discarded(&mut self, id: &RunId, name: &str, result: Result<(), Failure>) {
        if let Some(run) = self.runs.get_mut(id) {
            run.on_discarded(name, result, &mut *self.outside);
            self.after(id);
        }
    }

    pub fn on_mirrored(&mut self, id: &RunId, mirror: Mirror, result: Result<(), Failure>) {
        if let Some(run) = self.runs.get_mut(id) {
            run.on_mirrored(mirror, result, &mut *self.outside);
            self.after(id);
        } else if let Some(experiment) = self.experiments.get_mut(id) {
            experiment.on_mirrored(mirror, result, &mut *self.outside);
            self.grant_wishes(id);
        }
    }

    pub fn on_upkeep_due(&mut self, id: &RunId) {
        if let Some(run) = self.runs.get_mut(id) {
            run.on_upkeep_due(&mut *self.outside);
        } else if let Some(experiment) = self.experiments.get_mut(id) {
            experiment.on_upkeep_due(&mut *self.outside);
        }
    }

    pub fn watch(&mut self, run: &RunId, watcher: Watcher) -> Result<(), Failure> {
        if let Some(experiment) = self.experiments.get_mut(run) {
            experiment.watchers.add(watcher);
            self.on_experiment_watcher_ready(run, u64::MAX);
            return Ok(());
        }
        let run = self.runs.get_mut(run).ok_or_else(|| no_such_run(run))?;
        run.watchers.add(watcher);
        let id = run.id.clone();
        self.on_watcher_ready(&id, u64::MAX);
        Ok(())
    }

    pub fn stop_run(&mut self, id: &RunId, reason: String, force: bool) -> Result<(), Failure> {
        if let Some(experiment) = self.experiments.get_mut(id) {
            experiment.stop(reason, force, &mut *self.outside);
            self.grant_wishes(id);
            return Ok(());
        }
        let run = self.runs.get_mut(id).ok_or_else(|| no_such_run(id))?;
        run.decide(Event::StopRequested { reason, force }, &mut *self.outside);
        self.after(id);
        Ok(())
    }

    pub fn runs(&self) -> Vec<v1::RunSummary> {
        let runs = self.runs.values().filter(|run| run.checks_for.is_none()).map(|run| run.summary(self.outside.now()));
        self.experiments.values().map(ExperimentRun::summary).chain(runs).collect()
    }

    /// The answer comes when the agents have asked every rank, within seconds.
    pub fn ask_for_stacks(&mut self, id: &RunId, asker: oneshot::Sender<v1::StacksReply>) -> Result<(), Failure> {
        let run = self.runs.get_mut(id).filter(|run| !run.ended).ok_or_else(|| no_such_run(id))?;
        run.ask_for_stacks(asker, &mut *self.outside);
        Ok(())
    }

    /// What all runs need is gone: each ends with that cause, and with what it has.
    pub fn break_all(&mut self, failure: &Failure) {
        let experiments = self.experiments.values().filter(|one| !one.ended).map(|one| one.id.clone());
        for id in experiments.collect::<Vec<_>>() {
            self.tell_experiment(&id, ExperimentEvent::Broken { trial: None, failure: failure.clone() });
        }
        let runs = self.runs.values().filter(|run| !run.ended && run.trial.is_none()).map(|run| run.id.clone());
        for id in runs.collect::<Vec<_>>() {
            if let Some(run) = self.runs.get_mut(&id) {
                run.decide(Event::Broken(failure.clone()), &mut *self.outside);
            }
            self.after(&id);
        }
    }

    /// Ends every run; true when none is left.
    pub fn stop_all(&mut self, reason: &str, force: bool) -> bool {
        let experiments = self.experiments.values().filter(|one| !one.ended).map(|one| one.id.clone());
        let runs = self.runs.values().filter(|run| !run.ended).map(|run| run.id.clone());
        for id in experiments.chain(runs).collect::<Vec<_>>() {
            let _ = self.stop_run(&id, reason.to_owned(), force);
        }
        self.is_idle()
    }

    pub fn is_idle(&self) -> bool {
        let experiments = self.opening_experiments.is_empty() && self.experiments.values().all(|one| one.ended);
        self.opening.is_empty() && self.runs.values().all(|run| run.ended) && experiments
    }

    pub fn prepare(&mut self, request: &v1::PrepareRequest) {
        for node in self.nodes.keys() {
            self.outside.to_agent(node, request.clone().into());
        }
    }

    pub fn nodes(&self) -> Vec<v1::Node> {
        let with_amounts = |(id, resources): (&NodeId, &carril_core::NodeResources)| {
            let amounts = |all: &Resources| all.iter().map(|(name, amount)| (name.to_owned(), amount)).collect();
            let node = v1::Node::clone(self.nodes.get(id)?);
            Some(v1::Node { total: amounts(&resources.total), free: amounts(&resources.free), ..node })
        };
        self.placement.nodes().filter_map(with_amounts).collect()
    }

    pub fn on_timer(&mut self, id: &RunId, timer: Timer) {
        if let Some(run) = self.runs.get_mut(id) {
            run.decide(Event::TimerFired(timer), &mut *self.outside);
            self.after(id);
        }
    }

    pub fn on_retry_timer(&mut self, id: &RunId) {
        if let Some(run) = self.runs.get_mut(id) {
            run.on_retry_timer(&mut *self.outside);
            self.after(id);
        } else if let Some(experiment) = self.experiments.get_mut(id) {
            let events = experiment.on_retry_timer(&mut *self.outside);
            self.grant_wishes(id);
            for event in events {
                self.tell_experiment(id, event);
            }
        }
    }

    pub fn on_progress_due(&mut self, id: &RunId) {
        if let Some(run) = self.runs.get_mut(id) {
            run.on_progress_due(&mut *self.outside);
        }
    }

    pub fn on_watcher_ready(&mut self, id: &RunId, watcher: u64) {
        if self.experiments.contains_key(id) {
            return self.on_experiment_watcher_ready(id, watcher);
        }
        let Some(run) = self.runs.get_mut(id) else { return };
        run.on_watcher_ready(watcher, &mut *self.outside);
        self.after(id);
    }

    /// Writes out what the files are behind: called whenever there is nothing else to do.
    pub fn flush(&mut self) {
        for run in self.runs.values_mut().filter(|run| !run.ended) {
            run.flush(&mut *self.outside);
        }
        let (now, clock) = (self.outside.now(), self.outside.clock());
        self.experiments.values_mut().filter(|one| !one.ended).for_each(|one| one.flush(now, clock));
    }

    fn start(&mut self, id: &RunId, shares: Vec<Share>) {
        if let Some(opening) = self.opening.get_mut(id) {
            opening.decision = Decision::Placed(shares);
            if let Asker::Trial(experiment, trial) = &opening.asker {
                let (experiment, trial) = (experiment.clone(), *trial);
                self.on_trial_placed(&experiment, trial);
            }
            return;
        }
        let Some(run) = self.runs.get_mut(id) else { return };
        let now = self.outside.clock();
        if let Some(node) = shares.first().and_then(|share| self.nodes.get(&share.node)) {
            run.placed(node, now);
        }
        run.shares = shares;
        run.placed = true;
        let trial = run.trial.as_ref().map(|trial| (RunId::new(trial.spec.experiment.clone()), trial.spec.number));
        self.start_if_free(id);
        if let Some((experiment, number)) = trial {
            self.on_trial_started(&experiment, TrialId(number));
        }
    }

    /// Once nothing of an earlier head's attempt can still be running.
    fn start_if_free(&mut self, id: &RunId) {
        let Some(run) = self.runs.get_mut(id) else { return };
        if run.placed && run.is_free(&self.nodes, self.outside.clock()) {
            run.placed = false;
            run.decide(Event::Placed, &mut *self.outside);
            self.after(id);
        }
    }

    pub fn on_lease_over(&mut self, id: &RunId) {
        self.start_if_free(id);
    }

    fn place_again(&mut self, id: &RunId) {
        self.give_back(id);
        let Some(run) = self.runs.get_mut(id) else { return };
        match self.placement.ask_patiently(request_of(id, &run.spec)) {
            Decision::Placed(shares) => self.start(id, shares),
            Decision::Waits(reason) | Decision::Never(Failure { message: reason, .. }) => {
                run.publish(
                    v1::StateChanged { state: "waiting".into(), reason, ..Default::default() },
                    &mut *self.outside,
                );
            }
        }
    }

    /// Once a run has ended: its resources go to those that wait, and what it held in memory goes.
    fn after(&mut self, id: &RunId) {
        let Some(run) = self.runs.get_mut(id) else { return };
        if std::mem::take(&mut run.misplaced) {
            return self.place_again(id);
        }
        match run.check.take() {
            // The next head does it: the manifest says that it is due.
            Some(Check::Begin) if run.ended => {}
            Some(Check::Begin) => match run.check_request() {
                // One of an earlier `fit` is on its way out: this one begins when that is gone.
                Ok(request) if self.is_live(&request) => {
                    if let Some(run) = self.runs.get_mut(id) {
                        run.check = Some(Check::Begin);
                    }
                }
                Ok(request) => {
                    self.submit_for(request, Asker::Run(id.clone()));
                    return self.after(id);
                }
                Err(failure) => {
                    self.on_check_ended(id, Err(failure));
                    return self.after(id);
                }
            },
            Some(Check::Stop(check)) => drop(self.stop_run(&check, "its time is over".to_owned(), true)),
            None => {}
        }
        if let Some(run) = self.runs.get_mut(id)
            && let Some(trial) = &mut run.trial
        {
            let (experiment, number) = (RunId::new(trial.spec.experiment.clone()), trial.spec.number);
            let events = std::mem::take(&mut trial.outbox);
            let checkpoints = run.saving.count() as u64;
            let disk = trial.disk.take();
            if run.ended {
                // Its room is there for the next one before the experiment hears of the end.
                self.runs.remove(id);
                self.give_back(id);
            }
            if let (Some(disk), Some(experiment)) = (disk, self.experiments.get_mut(&experiment)) {
                experiment.hold(disk);
            }
            if !events.is_empty() {
                self.pass_on(&experiment, number, events, checkpoints);
            }
            return;
        }
        let Some(run) = self.runs.get_mut(id).filter(|run| run.ended) else { return };
        if let Some(of) = run.checks_for.clone() {
            let outcome = run.outcome.take();
            self.runs.remove(id);
            self.give_back(id);
            let waiting: Vec<RunId> =
                self.runs.values().filter(|run| run.check.is_some()).map(|run| run.id.clone()).collect();
            for next in waiting {
                self.after(&next);
            }
            let lost = || Failure::new(ErrorCode::Internal, "the check reported nothing");
            return self.on_check_ended(&of, outcome.ok_or_else(lost));
        }
        if let Some(check) = run.check_of().filter(|_| !self.ended.contains(id)) {
            let _ = self.stop_run(&check, "the run has ended".to_owned(), true);
        }
        if !self.ended.contains(id) {
            self.ended.push(id.clone());
            self.give_back(id);
        }
        while self.ended.len() > REMEMBERED {
            let oldest = self.ended.remove(0);
            self.runs.remove(&oldest);
        }
        if let Some(run) = self.runs.get_mut(id)
            && run.watchers.is_drained()
        {
            run.watchers.close();
        }
    }

    /// Whether a run of the same name and place has not ended.
    fn is_live(&self, request: &v1::RunRequest) -> bool {
        let Ok(asked) = serde_json::from_str::<RunSpec>(&request.spec) else { return false };
        let same = |spec: &RunSpec| spec.name == asked.name && spec.storage_path == asked.storage_path;
        self.runs.values().any(|run| !run.ended && same(&run.spec))
    }

    fn give_back(&mut self, id: &RunId) {
        for (next, shares) in self.placement.release(id) {
            self.start(&next, shares);
        }
    }
}

fn request_of(id: &RunId, spec: &RunSpec) -> PlacementRequest {
    PlacementRequest { run: id.clone(), workers: spec.num_workers, per_worker: spec.resources_per_worker.clone() }
}

fn no_such_run(id: &RunId) -> Failure {
    Failure::new(ErrorCode::NotFound, format!("there is no run with the id `{id}` in this head"))
}

/// Nobody is there to answer when a scheduler has started the job again.
fn is_requeued(environment: &HashMap<String, String>) -> bool {
    environment.get("SLURM_RESTART_COUNT").is_some_and(|count| count.parse::<u32>().is_ok_and(|restarts| restarts > 0))
}
