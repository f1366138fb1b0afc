//! The agent's own book of its workers.
//!
//! AGENT-1: the head hears of a worker's start, then that its function begins, then of its reports, and of those before it
//!   hears that the worker returned, failed, waits or ended.
//! AGENT-2: every worker that was ordered is told of as ended exactly once, whether it ever started or not.
//! AGENT-4: the order of a head that was followed by another is not carried out.
//! AGENT-3: a worker that is to stop is gone when its grace is over, with all that it started.
//! AGENT-6: when a worker fails or dies, the head has heard of every report that the others of its group had made by then.
//! AGENT-5: a process that serves one trial after the other is another worker to the head each time; it is started once and is
//!   gone with its pool.

mod pool;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use carril_proto::v1;
use carril_types::{Attempt, ErrorCode, ExitStatus, Failure, Rank, RunId, WorkerCommand, WorkerKey};
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use self::pool::{Idle, pool_of};
use crate::checkpoints::{Forget, SavePlace};
use crate::environment::{Place, environment};
use crate::world::{StartRequest, World};

/// How long a process may take from its start until it says hello.
const HELLO: Duration = Duration::from_secs(120);

/// How long a process that is not needed any more may take to leave.
const LEAVE: Duration = Duration::from_secs(5);

/// What an agent has open for each worker: its report log, its output, its process, its connection, and one to spare.
const DESCRIPTORS_PER_WORKER: u64 = 5;
/// And for itself, the head and whoever copies checkpoints.
const OWN_DESCRIPTORS: u64 = 48;

pub type Orders = mpsc::UnboundedSender<Result<v1::WorkerOrder, Status>>;
type WaitAnswer = oneshot::Sender<Result<Vec<u8>, Failure>>;

/// Whose use of the machine is measured together.
pub struct Measured {
    pub key: WorkerKey,
    pub pids: Vec<u32>,
    pub devices: Vec<String>,
}

struct Worker {
    pid: Option<u32>,
    /// Under which the process said hello, where it has served another trial before.
    first: Option<WorkerKey>,
    /// Serves the next trial when this one is over.
    pool: String,
    assignment: v1::Assignment,
    orders: Option<Orders>,
    waits: BTreeMap<(String, u64), WaitAnswer>,
    /// Has said that its function begins.
    ready: bool,
    /// Has said how its function ended.
    told: bool,
    /// Is to go; set before the process is there when the order to stop overtakes its start.
    stopping: bool,
    /// To be told once it is there.
    preempt: Option<v1::Preempt>,
    hello_missed: bool,
    /// Writes its stacks when it is asked to.
    stacks: bool,
    /// What the kernel had counted when the process was started.
    memory_kills: u64,
}

impl Worker {
    fn new(assignment: v1::Assignment, memory_kills: u64) -> Self {
        Self {
            pid: None,
            first: None,
            pool: String::new(),
            assignment,
            orders: None,
            waits: BTreeMap::new(),
            ready: false,
            told: false,
            stopping: false,
            preempt: None,
            hello_missed: false,
            stacks: false,
            memory_kills,
        }
    }

    fn let_in(&mut self, orders: &Orders) {
        let _ = orders.send(Ok(self.assignment.clone().into()));
        if let Some(preempt) = self.preempt.take() {
            let _ = orders.send(Ok(preempt.into()));
        }
    }
}

pub struct Agent {
    world: Box<dyn World>,
    socket: PathBuf,
    workers: BTreeMap<WorkerKey, Worker>,
    /// Of every run that has not ended: its checkpoints may be on their way when its workers are gone.
    places: BTreeMap<RunId, SavePlace>,
    pools: BTreeMap<String, Vec<Idle>>,
    /// Processes that serve no trial any more, by the key that they began with.
    leaving: BTreeMap<WorkerKey, u32>,
    /// Which worker a process is now that said hello as another one.
    now: BTreeMap<WorkerKey, WorkerKey>,
    /// Of the head that was heard of last.
    epoch: u64,
}

impl Agent {
    pub fn new(world: Box<dyn World>, socket: PathBuf) -> Self {
        Self {
            world,
            socket,
            workers: BTreeMap::new(),
            places: BTreeMap::new(),
            pools: BTreeMap::new(),
            leaving: BTreeMap::new(),
            now: BTreeMap::new(),
            epoch: 0,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.workers.is_empty()
    }

    pub fn on_order(&mut self, order: v1::AgentOrder) {
        use v1::agent_order::Kind;
        if order.epoch < self.epoch {
            return;
        }
        self.epoch = order.epoch;
        match order.kind {
            Some(Kind::Prepare(request)) => self.world.prepare(request),
            Some(Kind::Start(group)) => self.start_group(group),
            Some(Kind::Stop(stop)) => self.stop_group(&stop),
            Some(Kind::WaitOver(over)) => self.on_wait_over(over),
            Some(Kind::Stacks(asked)) => self.gather_stacks(&asked),
            Some(Kind::Upload(order)) => self.world.upload(order),
            Some(Kind::Drop(order)) => self.drop_checkpoint(&order),
            Some(Kind::Ask(asked)) => self.ask_for_checkpoint(&asked),
            Some(Kind::DropPool(order)) => self.drop_pool(&order.pool),
            None => {}
        }
    }

    fn start_group(&mut self, group: v1::Group) {
        let keys: Vec<WorkerKey> = group.ranks.iter().map(|rank| key_of(&group, *rank)).collect();
        let run = RunId::new(group.run_id.clone());
        let last = self.places.remove(&run);
        let place = SavePlace::of(&group, &self.world.spool(), last.as_ref(), |hash| self.world.blob_path(hash));
        self.places.insert(run, place);
        if let Some(last) = last {
            self.world.forget(last, Forget::Attempt);
        }
        let pool = pool_of(&group);
        // Only groups of one worker have a pool.
        if let [key] = keys.as_slice()
            && let Some(idle) = self.pools.get_mut(&pool).and_then(Vec::pop)
        {
            if let Err(failure) = self.reuse(&group, key, idle) {
                self.tell_not_started(key, failure);
            }
            return;
        }
        let prepared = self.prepare_group(&group, &keys);
        for (local_rank, key) in keys.iter().enumerate() {
            let result = match &prepared {
                Ok((port, command)) => self.start_worker(&group, key, local_rank, *port, command.clone()),
                Err(failure) => Err(failure.clone()),
            };
            if let Err(failure) = result {
                self.tell_not_started(key, failure);
            }
        }
    }

    fn prepare_group(&mut self, group: &v1::Group, keys: &[WorkerKey]) -> Result<(u16, WorkerCommand), Failure> {
        self.check_descriptors(keys.len())?;
        let command = group.command.clone().unwrap_or_default().try_into()?;
        let rank_zero = keys.iter().find(|key| key.rank == Rank::ZERO);
        let port = rank_zero.map_or(Ok(0), |key| self.world.bind_meeting_point(key))?;
        Ok((port, command))
    }

    /// Before the first of them is started: half of a group is of no use, and what fails then says less.
    fn check_descriptors(&self, workers: usize) -> Result<(), Failure> {
        let Some(limit) = self.world.descriptor_limit() else { return Ok(()) };
        let needed = OWN_DESCRIPTORS + (self.workers.len() + workers) as u64 * DESCRIPTORS_PER_WORKER;
        if needed <= limit {
            return Ok(());
        }
        let others = match self.workers.len() {
            0 => String::new(),
            others => format!(" beside the {others} of other runs"),
        };
        Err(carril_net::too_few(&format!("{workers} workers{others} need {needed}"), limit))
    }

    fn start_worker(
        &mut self,
        group: &v1::Group,
        key: &WorkerKey,
        local_rank: usize,
        port: u16,
        command: WorkerCommand,
    ) -> Result<(), Failure> {
        let report_log = self.world.report_log(key);
        let output = output_of(group, key);
        self.world.follow(key, report_log.clone(), output.clone())?;
        let (visible, devices) = devices_for(group, local_rank);
        let place = Place {
            key,
            world_size: group.world_size,
            local_rank: local_rank as u32,
            local_world_size: group.ranks.len() as u32,
            node_rank: group.node_rank,
            master_address: "127.0.0.1",
            master_port: port,
            visible_devices: visible,
            agent_socket: &self.socket,
            run_name: &group.run_name,
        };
        let given: Vec<(String, String)> = group.environment.clone().into_iter().collect();
        let mut environment = environment(&self.world.inherited_environment(), &given, &place);
        environment.push(("CARRIL_STACKS".to_owned(), self.world.stack_file(key).display().to_string()));
        let assignment = self.assignment(group, local_rank, &report_log, devices);
        let worker = Worker {
            pool: if group.world_size == 1 { pool_of(group) } else { String::new() },
            ..Worker::new(assignment, self.world.memory_kills())
        };
        self.workers.insert(key.clone(), worker);
        self.world.start(StartRequest {
            key: key.clone(),
            command,
            environment,
            directory: PathBuf::from(&group.working_directory),
            output,
            threads: (group.threads_per_worker.max(1.0)) as u32,
        });
        Ok(())
    }

    fn assignment(
        &self,
        group: &v1::Group,
        local_rank: usize,
        report_log: &Path,
        devices: Vec<String>,
    ) -> v1::Assignment {
        let function_path = match group.function.as_str() {
            "" => String::new(),
            hash => self.world.blob_path(hash).map(|path| path.display().to_string()).unwrap_or_default(),
        };
        let filesystem = group.filesystem.as_ref().and_then(|filesystem| self.world.blob_path(&filesystem.pickle));
        let filesystem_path = filesystem.map(|path| path.display().to_string()).unwrap_or_default();
        v1::Assignment {
            world_size: group.world_size,
            local_rank: local_rank as u32,
            local_world_size: group.ranks.len() as u32,
            node_rank: group.node_rank,
            run_name: group.run_name.clone(),
            run_directory: group.run_directory.clone(),
            function_path,
            report_log: report_log.display().to_string(),
            granted: group.granted,
            latest_checkpoint: group.latest_checkpoint.clone(),
            devices,
            storage: group.storage.clone(),
            filesystem_path,
            reports: group.reports,
            trial: group.trial.clone(),
            ..Default::default()
        }
    }

    /// `how` says by which way the process was started, and why not by the usual one.
    pub fn on_started(&mut self, key: &WorkerKey, result: Result<(u32, String), Failure>) {
        self.take_start(key, result);
        self.world.start_done();
    }

    fn take_start(&mut self, key: &WorkerKey, result: Result<(u32, String), Failure>) {
        let Some(worker) = self.workers.get_mut(key) else { return };
        match result {
            Ok((pid, how)) => {
                worker.pid = Some(pid);
                let stopping = worker.stopping;
                if let Some(orders) = worker.orders.clone() {
                    worker.let_in(&orders);
                }
                self.world.to_head(v1::WorkerStarted { worker: Some(key.clone().into()), pid, how }.into());
                self.world.watch(key, pid);
                if stopping {
                    self.world.kill(key, pid);
                } else {
                    self.world.set_hello_timer(key.clone(), HELLO);
                }
            }
            Err(failure) => self.tell_not_started(&key.clone(), failure),
        }
    }

    fn tell_not_started(&mut self, key: &WorkerKey, failure: Failure) {
        self.workers.remove(key);
        self.world.unfollow(key);
        let exited =
            v1::WorkerExited { worker: Some(key.clone().into()), failure: Some(failure.into()), ..Default::default() };
        self.world.to_head(exited.into());
    }

    /// The first word of a worker: it gets its assignment, and from then on its orders.
    pub fn on_hello(&mut self, key: &WorkerKey, orders: Orders) -> Result<(), Failure> {
        let unknown = || Failure::new(ErrorCode::NotFound, format!("no worker `{key}` is expected here"));
        let worker = self.workers.get_mut(key).filter(|worker| worker.orders.is_none()).ok_or_else(unknown)?;
        // A worker may be faster than the news of its start: it is then let in when that has come.
        if worker.pid.is_some() {
            worker.let_in(&orders);
        }
        worker.orders = Some(orders);
        Ok(())
    }

    pub fn on_worker_message(&mut self, key: &WorkerKey, message: v1::WorkerMessage) {
        use v1::worker_message::Kind;
        let key = &self.now.get(key).unwrap_or(key).clone();
        let worker = Some(key.clone().into());
        match message.kind {
            Some(Kind::Ready(ready)) => {
                if let Some(known) = self.workers.get_mut(key) {
                    known.stacks = ready.stacks;
                    known.ready = true;
                }
                self.world.to_head(v1::WorkerReady { worker, ..ready }.into());
                self.pass_on_reports(key);
            }
            Some(Kind::Returned(returned)) => {
                self.before_telling(key);
                self.world.to_head(v1::WorkerReturned { worker, ..returned }.into());
                self.keep_for_another(key);
            }
            Some(Kind::Failed(failed)) => {
                // Asked first: a connection breaks after the process that had it has begun to end.
                let alone = self.others(key).iter().all(|(_, pid)| pid.is_none_or(|pid| !self.world.is_ending(pid)));
                self.before_telling(key);
                self.pass_on_reports_of_others(key);
                self.world.to_head(v1::WorkerFailed { worker, alone, ..failed }.into());
            }
            Some(Kind::Progressed(progressed)) => {
                self.world.to_head(v1::WorkerProgressed { worker, ..progressed }.into());
            }
            Some(Kind::Hello(_)) | None => {}
        }
    }

    /// The other workers of the same group here.
    fn others(&self, key: &WorkerKey) -> Vec<(WorkerKey, Option<u32>)> {
        let same = |other: &WorkerKey| other.run == key.run && other.attempt == key.attempt && other != key;
        self.workers
            .iter()
            .filter(|(other, _)| same(other))
            .map(|(other, worker)| (other.clone(), worker.pid))
            .collect()
    }

    /// AGENT-6: what the others had reported before is heard of before a failure that ends them.
    fn pass_on_reports_of_others(&mut self, key: &WorkerKey) {
        for (other, _) in self.others(key) {
            if self.workers.get(&other).is_some_and(|worker| worker.ready) {
                self.pass_on_reports(&other);
            }
        }
    }

    /// The processes of each run's group here that train now, and the devices that they were given.
    pub fn groups(&self) -> Vec<Measured> {
        let mut groups: Vec<Measured> = Vec::new();
        for (key, worker) in self.workers.iter().filter(|(_, worker)| worker.ready && !worker.told) {
            let Some(pid) = worker.pid else { continue };
            let devices = &worker.assignment.devices;
            match groups.last_mut().filter(|group| group.key.run == key.run && group.key.attempt == key.attempt) {
                Some(group) => {
                    group.pids.push(pid);
                    group.devices.extend(devices.iter().cloned());
                }
                None => groups.push(Measured { key: key.clone(), pids: vec![pid], devices: devices.clone() }),
            }
        }
        groups
    }

    pub fn on_usage(&mut self, key: WorkerKey, usage: v1::Usage) {
        if self.workers.contains_key(&key) {
            self.world.to_head(v1::GroupUsage { worker: Some(key.into()), usage: Some(usage) }.into());
        }
    }

    fn before_telling(&mut self, key: &WorkerKey) {
        if let Some(worker) = self.workers.get_mut(key) {
            worker.told = true;
        }
        self.pass_on_output(key, false);
        self.pass_on_reports(key);
    }

    pub fn on_wait(&mut self, key: &WorkerKey, wait: v1::WorkerWaits, answer: WaitAnswer) {
        let Some(worker) = self.workers.get_mut(key) else {
            let _ = answer.send(Err(Failure::new(ErrorCode::NotFound, format!("no worker `{key}` is known here"))));
            return;
        };
        worker.waits.insert((wait.kind.clone(), wait.sequence), answer);
        self.pass_on_reports(key);
        self.world.to_head(wait.into());
    }

    fn on_wait_over(&mut self, over: v1::WaitOver) {
        let Some(key) = over.worker.map(WorkerKey::from) else { return };
        let Some(worker) = self.workers.get_mut(&key) else { return };
        if let Some(answer) = worker.waits.remove(&(over.kind, over.sequence)) {
            let _ = answer.send(over.failure.map_or(Ok(over.payload), |failure| Err(failure.into())));
        }
    }

    pub fn on_changes(&mut self) {
        for key in self.world.changed() {
            self.pass_on_output(&key, false);
            // A report may overtake the word that the function begins: they come by two ways.
            if self.workers.get(&key).is_some_and(|worker| worker.ready) {
                self.pass_on_reports(&key);
            }
        }
    }

    pub fn on_child_signal(&mut self) {
        self.world.reap_orphans();
        for (key, worker) in &self.workers {
            if let Some(halted) = worker.pid.and_then(|pid| self.world.halted(pid)) {
                self.world.to_head(v1::WorkerHalted { worker: Some(key.clone().into()), halted }.into());
            }
        }
    }

    /// A signal says that the node is going to be taken away.
    pub fn on_preemption_signal(&mut self, reason: String) {
        self.world.to_head(v1::NodePreempted { reason }.into());
    }

    fn ask_for_checkpoint(&mut self, asked: &v1::AskForCheckpoint) {
        let (run, attempt) = (RunId::new(asked.run_id.clone()), Attempt(asked.attempt));
        for (_, worker) in self.workers.iter_mut().filter(|(key, _)| key.run == run && key.attempt == attempt) {
            let preempt = v1::Preempt { reason: asked.reason.clone(), deadline: asked.deadline };
            match &worker.orders {
                Some(orders) if worker.pid.is_some() => drop(orders.send(Ok(preempt.into()))),
                _ => worker.preempt = Some(preempt),
            }
        }
    }

    /// Where the checkpoints of the worker's run go.
    pub fn save_place(&self, key: &WorkerKey) -> Result<SavePlace, Failure> {
        let unknown = || Failure::new(ErrorCode::NotFound, format!("no worker `{key}` is known here"));
        let known = self.workers.contains_key(key).then(|| self.places.get(&key.run)).flatten();
        known.cloned().ok_or_else(unknown)
    }

    /// The files that a worker gave are safe, or cannot be had. `in_place` names the checkpoint where they lie already.
    pub fn on_prepared(
        &mut self,
        key: &WorkerKey,
        iteration: u64,
        in_place: String,
        result: Result<v1::Shard, Failure>,
    ) {
        let (shard, failure) = match result {
            Ok(shard) => (Some(shard), None),
            Err(failure) => (None, Some(failure.into())),
        };
        let worker = Some(key.clone().into());
        self.world.to_head(v1::CheckpointPrepared { worker, iteration, shard, in_place, failure }.into());
    }

    pub fn on_uploaded(&mut self, key: WorkerKey, iteration: u64, result: Result<(), Failure>) {
        let failure = result.err().map(Into::into);
        self.world.to_head(v1::CheckpointUploaded { worker: Some(key.into()), iteration, failure }.into());
    }

    fn drop_checkpoint(&mut self, order: &v1::DropCheckpoint) {
        let run = RunId::new(order.run_id.clone());
        let (place, what) = match order.iteration {
            Some(iteration) => (self.places.get(&run).cloned(), Forget::Checkpoint(iteration)),
            None => (self.places.remove(&run), Forget::Run),
        };
        if let Some(place) = place {
            self.world.forget(place, what);
        }
    }

    fn pass_on_reports(&mut self, key: &WorkerKey) {
        match self.world.read_reports(key) {
            Ok(reports) if reports.is_empty() => {}
            Ok(reports) => {
                self.world.to_head(v1::Reports { worker: Some(key.clone().into()), reports }.into());
            }
            Err(failure) => {
                let failure =
                    v1::WorkerFailure { rank: key.rank.0, failure: Some(failure.into()), ..Default::default() };
                let worker = Some(key.clone().into());
                self.world.to_head(v1::WorkerFailed { worker, failure: Some(failure), alone: false }.into());
            }
        }
    }

    fn pass_on_output(&mut self, key: &WorkerKey, all: bool) {
        loop {
            let text = self.world.read_output(key, all);
            if text.is_empty() {
                return;
            }
            self.world.to_head(v1::WorkerOutput { worker: Some(key.clone().into()), text }.into());
        }
    }

    fn stop_group(&mut self, stop: &v1::StopGroup) {
        let (run, attempt) = (RunId::new(stop.run_id.clone()), Attempt(stop.attempt));
        let grace = Duration::from_millis(stop.grace_ms);
        let keys: Vec<WorkerKey> =
            self.workers.keys().filter(|key| key.run == run && key.attempt == attempt).cloned().collect();
        for key in keys {
            self.stop_worker(&key, grace);
        }
    }

    fn stop_worker(&mut self, key: &WorkerKey, grace: Duration) {
        let Some(worker) = self.workers.get_mut(key) else { return };
        worker.stopping = true;
        let Some(pid) = worker.pid else { return };
        if grace.is_zero() {
            self.world.kill(key, pid);
            return;
        }
        if let Some(orders) = &worker.orders {
            let _ = orders.send(Ok(v1::Exit {}.into()));
        }
        if !worker.told {
            self.world.terminate(pid);
        }
        self.world.set_stop_timer(key.clone(), grace);
    }

    pub fn on_stop_timer(&mut self, key: &WorkerKey) {
        let pid = self.workers.get(key).and_then(|worker| worker.pid);
        if let Some(pid) = pid.or_else(|| self.leaving.get(key).copied()) {
            self.world.kill(key, pid);
        }
    }

    pub fn on_hello_timer(&mut self, key: &WorkerKey) {
        let Some(worker) = self.workers.get_mut(key).filter(|worker| worker.orders.is_none()) else { return };
        worker.hello_missed = true;
        if let Some(pid) = worker.pid {
            self.world.kill(key, pid);
        }
    }

    /// `peak_memory` is the most bytes that the process had.
    pub fn on_exited(&mut self, key: &WorkerKey, pid: u32, exit: ExitStatus, peak_memory: u64) {
        self.pools.values_mut().for_each(|pool| pool.retain(|idle| idle.pid != pid));
        self.leaving.remove(key);
        let key = &self.now.remove(key).unwrap_or_else(|| key.clone());
        self.world.ended(pid);
        self.world.kill(key, pid);
        self.pass_on_output(key, true);
        self.pass_on_reports(key);
        let last_output = self.world.last_output(key);
        self.world.unfollow(key);
        let Some(worker) = self.workers.remove(key) else { return };
        if !worker.told && !worker.stopping {
            self.pass_on_reports_of_others(key);
        }
        let (code, signal) = match exit {
            ExitStatus::Code(code) => (code, 0),
            ExitStatus::Signal(signal) => (0, signal),
        };
        let failure = worker.hello_missed.then(|| {
            let message = format!("the worker process {pid} did not connect within {} s", HELLO.as_secs());
            Failure::new(ErrorCode::WorkerStartFailed, message).into()
        });
        let killed = exit == ExitStatus::Signal(9);
        let kills = if killed { self.world.memory_kills() } else { worker.memory_kills };
        let by_kernel = killed && kills > worker.memory_kills;
        if by_kernel {
            // The counter is that of all: one that is killed later by somebody else must not be taken for this one.
            for other in self.workers.values_mut() {
                other.memory_kills = (other.memory_kills + 1).min(kills);
            }
        }
        let out_of_memory = if by_kernel { self.world.memory_limit() } else { String::new() };
        let worker = Some(key.clone().into());
        let exited = v1::WorkerExited { worker, code, signal, failure, last_output, out_of_memory, peak_memory };
        self.world.to_head(exited.into());
    }

    /// Asks the ranks of a run where they are. One that cannot answer is told of by its state.
    fn gather_stacks(&mut self, asked: &v1::GatherStacks) {
        let (run, attempt) = (RunId::new(asked.run_id.clone()), Attempt(asked.attempt));
        let of_run = self.workers.iter().filter(|(key, _)| key.run == run && key.attempt == attempt);
        // The file that a process writes its stacks to has the name that it began with.
        let first = |key: &WorkerKey, worker: &Worker| worker.first.clone().unwrap_or_else(|| key.clone());
        let ranks: Vec<(WorkerKey, u32, bool)> =
            of_run.filter_map(|(key, worker)| Some((first(key, worker), worker.pid?, worker.stacks))).collect();
        let key = WorkerKey { run, attempt, rank: Rank::ZERO };
        self.world.gather_stacks(key, ranks);
    }

    pub fn on_stacks(&mut self, key: WorkerKey, stacks: Vec<v1::RankStack>) {
        self.world.to_head(v1::StacksGathered { worker: Some(key.into()), stacks }.into());
    }

    /// Ends everything at once: the agent is going.
    pub fn kill_all(&mut self) {
        for pool in self.pools.keys().cloned().collect::<Vec<_>>() {
            self.drop_pool(&pool);
        }
        let all: Vec<(WorkerKey, Option<u32>)> = self.workers.iter().map(|(key, w)| (key.clone(), w.pid)).collect();
        for (key, pid) in all {
            match (pid, self.workers.get_mut(&key)) {
                (Some(pid), _) => self.world.kill(&key, pid),
                (None, Some(worker)) => worker.stopping = true,
                (None, None) => {}
            }
        }
    }
}

fn output_of(group: &v1::Group, key: &WorkerKey) -> PathBuf {
    let name = format!("rank_{}.attempt_{}.log", key.rank, key.attempt.0);
    Path::new(&group.run_directory).join("ranks").join(name)
}

fn key_of(group: &v1::Group, rank: u32) -> WorkerKey {
    WorkerKey { run: RunId::new(group.run_id.clone()), attempt: Attempt(group.attempt), rank: Rank(rank) }
}

/// What the worker may see, and which of it is its own. With shared devices every worker of the node sees all of the
/// group's, its own at its local rank, which is what the frameworks expect.
fn devices_for(group: &v1::Group, local_rank: usize) -> (Option<String>, Vec<String>) {
    let own = group.devices.get(local_rank).map(|share| share.devices.clone()).unwrap_or_default();
    let all: Vec<String> = group.devices.iter().flat_map(|share| share.devices.clone()).collect();
    if all.is_empty() {
        return (None, own);
    }
    let visible = if group.share_devices { all } else { own.clone() };
    (Some(visible.join(",")), own)
}
