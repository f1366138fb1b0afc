//! One run in the head: its machine, its files, its watchers. Carries out the machine's commands one by one.

mod attempts;
mod ending;
mod journal;
mod reports;
mod stacks;
mod standing;
mod trial;
mod validation;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use carril_core::{Budget, Command, Event, OutOfMemory, Outcome, RunMachine, Share, WaitKind};
use carril_proto::v1;
use carril_store::{Differences, Fact, Storage, report_number, saved_checkpoints};
use carril_types::{
    Attempt, CheckpointFiles, ErrorCode, ExitStatus, Failure, Metrics, NodeId, Rank, Restart, RunId, RunSpec,
    RunStatus, Value, WorkerKey,
};
use prost::Message;

use crate::automatic::Automatic;
use crate::mirror::Mirror;
use crate::outside::{Outside, RunDisk, RunOpened};
use crate::refusals::Refusals;
use crate::saving::Saving;
use crate::watchers::Watchers;
use crate::words::{describe, name_of};

pub(crate) use self::attempts::budget_of;
use self::ending::{Closing, UPKEEP_EVERY};
use self::journal::Behind;
pub(crate) use self::reports::RankReport;
use self::reports::options;
use self::stacks::Gathering;
use self::standing::Standing;
use self::trial::DECISION;
pub(crate) use self::trial::Trial;
pub(crate) use self::validation::Check;
use self::validation::Validating;

/// What the files of a run say of the attempts before.
pub(crate) struct Earlier {
    pub differences: Differences,
    /// How many there were.
    pub attempts: Attempt,
}

pub(crate) struct Run {
    pub id: RunId,
    pub spec: RunSpec,
    pub function: String,
    pub environment: Vec<(String, String)>,
    /// A local directory: the run's own, or the one that is mirrored to its storage.
    pub path: PathBuf,
    /// Where the run is kept, for people.
    pub location: String,
    /// `None` once the run has ended: a connection or a helper process goes with it.
    pub storage: Option<Storage>,
    pub watchers: Watchers,
    pub shares: Vec<Share>,
    /// The placement has found room; the group starts when nothing of an earlier head can still be running.
    pub placed: bool,
    /// The group needs another place.
    pub misplaced: bool,
    /// The nodes of the attempt that an earlier head has lost sight of, and when their leases are over.
    earlier: (BTreeSet<NodeId>, Duration),
    pub machine: RunMachine<RankReport>,
    standing: Standing,
    /// `Closed` once the run has ended, so that a head that remembers many runs holds no file of theirs.
    disk: Box<dyn RunDisk>,
    automatic: Automatic,
    config: Value,
    pub epoch: u64,
    pub saving: Saving,
    /// The number of the report that this attempt goes on from.
    reports: u64,
    restarts: Vec<v1::Restarted>,
    /// Away while a round is going on.
    mirror: Option<Mirror>,
    /// The round that is going on began after the run's last word was written.
    last_round: bool,
    /// What the watchers are told once the storage has everything.
    ending: Option<v1::RunEnded>,
    /// While the run's files do not say its end.
    closing: Option<Closing>,
    /// When they did, and only storage elsewhere is behind.
    last_round_since: Option<Duration>,
    /// The last round to storage elsewhere has failed, and was warned of.
    mirror_failed: bool,
    started: Vec<v1::StartedWorker>,
    last: Option<Metrics>,
    last_by_rank: Vec<Metrics>,
    iterations: u64,
    last_progress: Option<Duration>,
    upkeeps: u32,
    refusals: Refusals,
    /// The same for files that were moved or removed.
    restoring: Refusals,
    /// Since when the checkpoints of this run are looked for, which were there.
    looking_since: Option<Duration>,
    progress_due: bool,
    submitted: f64,
    /// How the run stands, and why.
    status: (RunStatus, String),
    gathering: Gathering,
    /// While the journal cannot be written.
    behind: Option<Behind>,
    /// Messages of agents that wait for a watcher to catch up, and whose they are.
    deferred: VecDeque<(Arc<v1::Node>, v1::AgentMessage)>,
    pub ended: bool,
    /// The check of a checkpoint that is going on.
    validating: Option<Validating>,
    /// What the head is to do about it.
    pub check: Option<Check>,
    /// The run whose checkpoint this one checks.
    pub checks_for: Option<RunId>,
    /// What came of it.
    pub outcome: Option<v1::RunEnded>,
    /// Where the run is a trial of an experiment.
    pub trial: Option<Trial>,
}

impl Run {
    pub fn new(
        id: RunId,
        spec: RunSpec,
        request: v1::RunRequest,
        opened: RunOpened,
        budget: Budget,
        now: (f64, Duration),
    ) -> Self {
        let (now, clock) = now;
        let world = spec.num_workers;
        let there = opened.checkpoints.kept.iter().map(|(_, manifest)| manifest.iteration);
        let saved = saved_checkpoints(opened.history.saved, there);
        let saving = Saving::new(opened.storage.location(), opened.checkpoints, saved);
        let reached = saving.reached();
        let reports = reached.reports;
        // Those of an earlier `fit` are told with that one's end.
        let told = opened.history.restarts.iter().filter(|_| spec.continues.is_some());
        let restarts = told.map(|(at, restart)| attempts::to_wire(*at, restart)).collect();
        let nodes = opened.history.nodes.into_iter().map(NodeId::new);
        let earlier = (nodes.collect(), clock + carril_net::LEASE);
        let options = options(&spec, &saving, budget, opened.history.next_attempt);
        let machine = RunMachine::new(world, options);
        // The files keep what was reported behind the checkpoint: until there is something newer, that was the last report.
        let last_number = opened.last.as_ref().and_then(report_number);
        let iterations = last_number.map_or(reports, |shown| shown.saturating_add_signed(-reached.ahead));
        Self {
            automatic: Automatic::new(id.clone(), spec.trial.as_ref(), clock, reached, now - opened.started),
            trial: spec.trial.clone().map(Trial::new),
            id,
            function: request.function,
            environment: request.environment.into_iter().collect(),
            path: opened.path,
            location: opened.storage.location().to_owned(),
            storage: Some(opened.storage),
            watchers: Watchers::new(),
            shares: Vec::new(),
            placed: false,
            misplaced: false,
            earlier,
            machine,
            standing: Standing::default(),
            disk: opened.disk,
            config: request.config.unwrap_or_default().into(),
            epoch: opened.epoch,
            saving,
            reports,
            restarts,
            last_round: false,
            mirror: opened.mirror,
            ending: None,
            closing: None,
            last_round_since: None,
            mirror_failed: false,
            started: Vec::new(),
            last: opened.last,
            last_by_rank: vec![Metrics::default(); world as usize],
            iterations,
            last_progress: None,
            upkeeps: 0,
            refusals: Refusals::default(),
            restoring: Refusals::default(),
            looking_since: None,
            progress_due: false,
            submitted: opened.started,
            status: (RunStatus::Waiting, String::new()),
            gathering: Gathering::default(),
            behind: None,
            deferred: VecDeque::new(),
            ended: false,
            validating: None,
            check: None,
            checks_for: None,
            outcome: None,
            spec,
        }
    }

    /// The files are there: what was found among them is told.
    pub fn opened(
        &mut self,
        earlier: Earlier,
        set_aside: Vec<(String, String)>,
        rescued: Vec<String>,
        lost: Option<Restart>,
        outside: &mut dyn Outside,
    ) {
        let opened = Fact::Opened { continues: self.spec.continues.is_some() };
        self.journal_fact("Opened", String::new(), opened, outside);
        if let Some(restart) = lost {
            self.tell_restart(restart, outside);
        }
        self.tell_set_aside(set_aside, outside);
        for text in rescued {
            self.journal("Rescued".into(), text.clone(), Vec::new(), outside);
            self.publish(v1::Warning { text }, outside);
        }
        if self.last.is_none() && self.trial.is_none() && self.reports > 0 {
            let text = format!("`result.json` lacks the {} reports before: it was emptied or removed", self.reports);
            self.publish(v1::Warning { text }, outside);
        }
        let goes_on = self.tell_resumed(earlier.attempts, outside);
        if !earlier.differences.is_empty() && self.checks_for.is_none() && goes_on {
            let text = format!("the run resumes with another config: {}", earlier.differences.describe());
            self.journal("OtherConfig".into(), text.clone(), Vec::new(), outside);
            self.publish(v1::Warning { text }, outside);
        }
        outside.set_upkeep_timer(self.id.clone(), UPKEEP_EVERY);
    }

    /// Takes a message of an agent, or lets it wait while a watcher that wants everything is behind.
    pub fn on_agent_message(&mut self, node: &Arc<v1::Node>, message: v1::AgentMessage, outside: &mut dyn Outside) {
        if self.watchers.are_behind() || !self.deferred.is_empty() || self.is_held() {
            self.deferred.push_back((node.clone(), message));
            return;
        }
        self.take_agent_message(node, message, outside);
    }

    pub fn on_watcher_ready(&mut self, watcher: u64, outside: &mut dyn Outside) {
        self.watchers.on_ready(watcher);
        while !self.watchers.are_behind() && !self.is_held() {
            let Some((node, message)) = self.deferred.pop_front() else { break };
            self.take_agent_message(&node, message, outside);
        }
        self.ask_for_room(outside);
    }

    fn take_agent_message(&mut self, node: &v1::Node, message: v1::AgentMessage, outside: &mut dyn Outside) {
        use v1::agent_message::Kind;
        // What an earlier attempt still has to say is of no use to anybody.
        if worker_of(&message).is_some_and(|worker| Attempt(worker.attempt) != self.machine.attempt()) {
            return;
        }
        if let Some(worker) = worker_of(&message).filter(|worker| worker.rank >= self.spec.num_workers) {
            return self.refuse_rank(node, worker.rank, outside);
        }
        match message.kind {
            Some(Kind::Started(started)) => {
                let (rank, how) = (rank_of(started.worker.as_ref()), started.how.clone());
                self.started.push(v1::StartedWorker {
                    rank: rank.0,
                    pid: started.pid,
                    node: node.hostname.clone(),
                    address: node.address.clone(),
                    how: started.how,
                });
                if self.started.len() == self.spec.num_workers as usize {
                    let workers = self.started.clone();
                    self.publish(v1::WorkersStarted { workers }, outside);
                }
                self.decide(Event::WorkerStarted { rank, how }, outside);
            }
            Some(Kind::Ready(ready)) => {
                let rank = rank_of(ready.worker.as_ref());
                if rank == Rank::ZERO {
                    self.automatic.ready(ready.pid, ready.clock, outside.clock());
                }
                self.decide(Event::WorkerReady { rank }, outside);
            }
            Some(Kind::Reports(reports)) => {
                let rank = rank_of(reports.worker.as_ref());
                for report in reports.reports {
                    self.on_report(rank, report, outside);
                }
            }
            Some(Kind::Waits(wait)) => self.on_wait(wait, outside),
            Some(Kind::Returned(returned)) => {
                let rank = rank_of(returned.worker.as_ref());
                let value = Some(returned.value).filter(|hash| !hash.is_empty());
                self.decide(Event::WorkerReturned { rank, value, preempted: returned.preempted }, outside);
            }
            Some(Kind::Failed(failed)) => {
                let mut failure: carril_types::WorkerFailure = failed.failure.unwrap_or_default().into();
                failure.rank = rank_of(failed.worker.as_ref());
                // An agent sees its own node only.
                let alone = failed.alone && self.shares.len() == 1;
                self.decide(Event::WorkerFailed { failure, alone }, outside);
            }
            Some(Kind::Exited(exited)) => {
                let rank = rank_of(exited.worker.as_ref());
                let exit = match exited.signal {
                    0 => ExitStatus::Code(exited.code),
                    signal => ExitStatus::Signal(signal),
                };
                let event = match exited.failure {
                    Some(failure) => Event::WorkerNotStarted { rank, failure: failure.into() },
                    None => Event::WorkerExited {
                        rank,
                        exit,
                        last_output: exited.last_output,
                        out_of_memory: Some(exited.out_of_memory)
                            .filter(|counted| !counted.is_empty())
                            .map(|counted| OutOfMemory { counted, peak: exited.peak_memory }),
                    },
                };
                self.decide(event, outside);
            }
            Some(Kind::Output(output)) => {
                let rank = rank_of(output.worker.as_ref());
                self.publish(v1::Output { rank: rank.0, text: output.text }, outside);
                self.decide(Event::Progressed { rank }, outside);
            }
            Some(Kind::Stacks(gathered)) => {
                self.on_stacks(&NodeId::new(node.id.clone()), gathered.stacks, outside);
            }
            Some(Kind::Prepared(prepared)) => self.on_prepared(prepared, outside),
            Some(Kind::Uploaded(uploaded)) => {
                self.on_uploaded(&NodeId::new(node.id.clone()), uploaded, outside);
            }
            Some(Kind::Halted(halted)) => {
                let rank = rank_of(halted.worker.as_ref());
                self.decide(Event::WorkerHalted { rank, halted: halted.halted }, outside);
            }
            Some(Kind::Progressed(progressed)) => {
                let rank = rank_of(progressed.worker.as_ref());
                self.on_progressed(rank, progressed, outside);
            }
            Some(Kind::Usage(used)) => {
                let rank = rank_of(used.worker.as_ref());
                self.on_usage(rank, used.usage.unwrap_or_default(), outside);
            }
            Some(Kind::Joined(_) | Kind::Preempted(_)) | None => {}
        }
    }

    /// A rank that the group does not have: this head and that agent do not mean the same group.
    fn refuse_rank(&mut self, node: &v1::Node, rank: u32, outside: &mut dyn Outside) {
        let (name, world) = (&node.id, self.spec.num_workers);
        let message = format!("node `{name}` reported rank {rank}, and the run has {world} workers");
        let failure = Failure::new(ErrorCode::Internal, message)
            .hint("this is a bug in carril: please report it with the run's `journal` directory");
        self.decide(Event::Broken(failure), outside);
    }

    pub fn summary(&self, now: f64) -> v1::RunSummary {
        v1::RunSummary {
            run_id: self.id.as_str().to_owned(),
            name: self.spec.name.clone(),
            path: self.location.clone(),
            directory: self.path.display().to_string(),
            status: self.status.0.name().to_owned(),
            reason: self.status.1.clone(),
            started: self.submitted,
            iterations: self.iterations,
            metrics: self.last.clone().map(Into::into),
            workers: self.started.clone(),
            checkpoints: self.saving.count() as u64,
            attempt: self.machine.attempt().0,
            saved: self.saving.saved,
            standing: Some(self.standing.to_wire(self.spec.num_workers, now)),
        }
    }

    fn on_wait(&mut self, wait: v1::WorkerWaits, outside: &mut dyn Outside) {
        let rank = rank_of(wait.worker.as_ref());
        if wait.kind == DECISION {
            return self.on_decision_wanted(rank, wait.sequence, outside);
        }
        if wait.kind == "checkpoints" {
            let list = v1::CheckpointList { checkpoints: self.kept_checkpoints() }.encode_to_vec();
            return self.wait_over(rank, &wait.kind, wait.sequence, Ok(list), outside);
        }
        match WaitKind::from_name(&wait.kind) {
            Some(kind) => {
                let (sequence, payload) = (wait.sequence, wait.payload);
                self.decide(Event::WorkerWaits { rank, kind, sequence, payload }, outside);
            }
            None => {
                let message = format!("rank {rank} waits for `{}`, which is not known", wait.kind);
                let failure = Failure::new(ErrorCode::Internal, message);
                self.wait_over(rank, &wait.kind, wait.sequence, Err(failure), outside);
            }
        }
    }

    /// Asks the machine and carries out what it says. What it decided is journalled first.
    pub fn decide(&mut self, event: Event<RankReport>, outside: &mut dyn Outside) {
        let (described, always) = describe(&event);
        let Outcome { commands, reason } = self.machine.on_event(outside.clock(), event);
        let named: Vec<String> = commands.iter().filter_map(name_of).collect();
        if always || !named.is_empty() {
            self.journal(described.into(), reason.clone(), named, outside);
        }
        for command in commands {
            self.carry_out_when_written(command, &reason, outside);
        }
    }

    fn carry_out(&mut self, command: Command<RankReport>, reason: &str, outside: &mut dyn Outside) {
        match command {
            Command::ChangeStatus(status) => {
                self.status = (status, reason.to_owned());
                // A trial is over in a moment, and the experiment's files say how it stands.
                let written = if self.trial.is_some() { Ok(()) } else { self.disk.set_status(status) };
                if written.is_err() {
                    // The next flush writes it.
                    self.written(written, outside);
                }
                self.publish(
                    v1::StateChanged { state: status.name().into(), reason: reason.into(), ..Default::default() },
                    outside,
                );
            }
            Command::StartGroup { attempt, reports } => self.start_group(attempt, reports, outside),
            Command::FindLatest => self.find_latest(outside),
            Command::Place => self.misplaced = true,
            Command::TellRestart(restart) => self.tell_restart(restart, outside),
            Command::AskForCheckpoint { attempt, reason, grace } => {
                let (run_id, deadline) = (self.id.as_str().to_owned(), outside.now() + grace.as_secs_f64());
                for share in &self.shares {
                    let (run_id, reason) = (run_id.clone(), reason.clone());
                    let ask = v1::AskForCheckpoint { run_id, attempt: attempt.0, reason, deadline };
                    outside.to_agent(&share.node, ask.into());
                }
            }
            Command::StopGroup { attempt, grace } => {
                let run_id = self.id.as_str().to_owned();
                for share in &self.shares {
                    let grace_ms = grace.as_millis() as u64;
                    let stop = v1::StopGroup { run_id: run_id.clone(), attempt: attempt.0, grace_ms };
                    outside.to_agent(&share.node, stop.into());
                }
            }
            Command::CommitReport { collated, checkpoint } => self.commit_report(collated, checkpoint, outside),
            Command::StoreCheckpoint { iteration, displaced, .. } => self.store(iteration, displaced, outside),
            Command::DropCheckpoint { iteration } => self.give_up(iteration, outside),
            Command::CutStoring { iteration } => self.cut_storing(iteration, outside),
            Command::Validate { iteration } => self.validate(iteration, outside),
            Command::StopValidation { iteration, late } => self.stop_validation(iteration, late),
            Command::KeepValidation { iteration, displaced } => self.keep_validation(iteration, displaced, outside),
            Command::Release { rank, kind, sequence, result } => {
                self.wait_over(rank, kind.name(), sequence, result, outside);
            }
            Command::SetTimer { timer, after } => outside.set_timer(self.id.clone(), timer, after),
            Command::Warn(text) => self.publish(v1::Warning { text }, outside),
            Command::GatherStacks { .. } => self.gather_stacks(outside),
            Command::TellFailures(failures) => {
                let failures = failures.into_iter().map(Into::into).collect();
                self.publish_in_order(v1::WorkersFailed { failures }, None, outside);
            }
            Command::EndRun(ending) => self.end(ending, outside),
        }
    }

    fn start_group(&mut self, attempt: Attempt, reports: u64, outside: &mut dyn Outside) {
        let nodes = self.shares.iter().map(|share| share.node.as_str().to_owned()).collect();
        let host = self.automatic.hostname().to_owned();
        self.journal_fact("AttemptBegun", String::new(), Fact::AttemptBegun { attempt, nodes, host }, outside);
        if !self.holds_group(attempt, reports) {
            self.send_group(attempt, reports, outside);
        }
    }

    fn send_group(&mut self, attempt: Attempt, reports: u64, outside: &mut dyn Outside) {
        self.mirror_now(outside);
        self.forget_stacks();
        self.reports = reports;
        self.started.clear();
        self.standing.clear();
        let trial = self.trial_for_worker();
        let mut next_rank = 0;
        for (node_rank, share) in self.shares.iter().enumerate() {
            let count = share.devices.len() as u32;
            let group = v1::Group {
                run_id: self.id.as_str().to_owned(),
                attempt: attempt.0,
                ranks: (next_rank..next_rank + count).collect(),
                world_size: self.spec.num_workers,
                node_rank: node_rank as u32,
                command: Some(self.spec.worker.clone().into()),
                function: self.function.clone(),
                environment: self.environment.iter().cloned().collect(),
                working_directory: self.working_directory(),
                run_directory: self.path.display().to_string(),
                run_name: self.spec.name.clone(),
                share_devices: self.spec.share_devices,
                devices: share.devices.iter().map(|names| v1::DeviceShare { devices: names.clone() }).collect(),
                granted: self.reports + carril_core::REPORT_WINDOW,
                latest_checkpoint: self.saving.newest().map(|newest| newest.path.clone()).unwrap_or_default(),
                storage: self.location.clone(),
                filesystem: self.filesystem(),
                reports: self.reports,
                threads_per_worker: self.spec.threads_per_worker,
                trial: trial.clone(),
                may_be_empty: self.is_lenient(),
            };
            next_rank += count;
            outside.to_agent(&share.node, group.into());
        }
    }

    pub fn placed(&mut self, node: &v1::Node, now: Duration) {
        self.automatic.placed(&node.hostname, &node.address, now);
    }

    fn wait_over(
        &self,
        rank: Rank,
        kind: &str,
        sequence: u64,
        result: Result<Vec<u8>, Failure>,
        outside: &mut dyn Outside,
    ) {
        let worker = WorkerKey { run: self.id.clone(), attempt: self.machine.attempt(), rank };
        let (payload, failure) = match result {
            Ok(payload) => (payload, None),
            Err(failure) => (Vec::new(), Some(failure.into())),
        };
        let over = v1::WaitOver { worker: Some(worker.into()), kind: kind.to_owned(), sequence, payload, failure };
        if let Some(node) = self.node_of(rank) {
            outside.to_agent(node, over.into());
        }
    }

    /// Whether a checkpoint may have no files, or two of one name.
    pub(crate) fn is_lenient(&self) -> bool {
        self.spec.checkpoint_files == CheckpointFiles::Lenient
    }

    /// What the driver's environment says of storage.
    pub(crate) fn storage_variables(&self) -> BTreeMap<String, String> {
        carril_store::storage_variables(self.environment.iter().map(|(name, value)| (name, value)))
    }

    pub(crate) fn filesystem(&self) -> Option<v1::PythonFilesystem> {
        let spec = self.spec.filesystem.clone()?;
        let runtime = Some(v1::PythonRuntime { executable: spec.executable, path: spec.path });
        Some(v1::PythonFilesystem { runtime, pickle: spec.pickle })
    }

    pub(crate) fn node_of(&self, rank: Rank) -> Option<&NodeId> {
        let mut first = 0;
        for share in &self.shares {
            first += share.devices.len();
            if rank.index() < first {
                return Some(&share.node);
            }
        }
        None
    }

    pub fn publish(&mut self, event: impl Into<v1::RunEvent>, outside: &mut dyn Outside) {
        match &mut self.trial {
            Some(trial) => trial.outbox.push(event.into()),
            None => {
                self.watchers.publish(&event.into());
                self.ask_for_room(outside);
            }
        }
    }

    fn ask_for_room(&mut self, outside: &mut dyn Outside) {
        for (watcher, sender) in self.watchers.take_full() {
            outside.when_watcher_ready(self.id.clone(), watcher, sender);
        }
    }

    pub fn flush(&mut self, outside: &mut dyn Outside) {
        let flushed = self.disk.flush();
        self.written(flushed, outside);
    }
}

/// Whose word it is.
pub(crate) fn worker_of(message: &v1::AgentMessage) -> Option<&v1::WorkerKey> {
    use v1::agent_message::Kind;
    match message.kind.as_ref()? {
        Kind::Joined(_) | Kind::Preempted(_) => None,
        Kind::Started(m) => m.worker.as_ref(),
        Kind::Ready(m) => m.worker.as_ref(),
        Kind::Reports(m) => m.worker.as_ref(),
        Kind::Returned(m) => m.worker.as_ref(),
        Kind::Failed(m) => m.worker.as_ref(),
        Kind::Exited(m) => m.worker.as_ref(),
        Kind::Waits(m) => m.worker.as_ref(),
        Kind::Output(m) => m.worker.as_ref(),
        Kind::Stacks(m) => m.worker.as_ref(),
        Kind::Prepared(m) => m.worker.as_ref(),
        Kind::Uploaded(m) => m.worker.as_ref(),
        Kind::Halted(m) => m.worker.as_ref(),
        Kind::Progressed(m) => m.worker.as_ref(),
        Kind::Usage(m) => m.worker.as_ref(),
    }
}

pub(crate) fn rank_of(worker: Option<&v1::WorkerKey>) -> Rank {
    Rank(worker.map_or(0, |worker| worker.rank))
}
