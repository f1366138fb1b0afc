//! The whole of one simulation: the processes, the network between them, what befalls them, and the driver that wants a
//! result.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use carril_agent::Agent;
use carril_head::{Head, RealDisk, Watcher};
use carril_net::{Change, Frame, Given, Held, Link, Received};
use carril_proto::v1;
use carril_store::{BlobStore, Crashed, Owner, crash_at};
use carril_types::{ErrorCode, Failure, FailureSpec, NodeId, Resources, RunId, RunSpec, WorkerCommand, WorkerKey};
use tokio::sync::{mpsc, oneshot};

use crate::kernel::Kernel;
use crate::node::{Shared, SimNode, lock};
use crate::outside::{Fuse, FusedDisk, Pending, SimOutside};

pub(crate) const STEPS: u64 = 12;
pub(crate) const RUN: &str = "run";
const WORKERS: u32 = 3;
const NODES: usize = 3;
/// No run may take longer, in simulated seconds; the worst that can befall one is over long before.
const BOUND: f64 = 1_800.0;
const TICK: f64 = 1.0;

struct HeadProcess {
    head: Head,
    life: u64,
    links: BTreeMap<usize, HeadLink>,
    next_link: u64,
    fuse: Fuse,
    pending: Pending,
}

/// The head's end of the way to one place.
struct HeadLink {
    link: Link<v1::AgentOrder>,
    given: Given,
    node: NodeId,
    /// The agent's time that it sent last.
    asked: f64,
}

struct AgentProcess {
    agent: Agent,
    life: u64,
    link: Link<v1::AgentMessage>,
    held: Option<Held>,
    /// The head has to be told of this node, once nothing runs here.
    joins: bool,
    pub workers: Shared,
}

#[derive(Default)]
struct Driver {
    run: Option<RunId>,
    reply: Option<oneshot::Receiver<Result<v1::RunReply, Failure>>>,
    events: Option<mpsc::Receiver<v1::RunEvent>>,
    ended: Vec<v1::RunEnded>,
}

pub struct Sim {
    pub(crate) kernel: Kernel,
    pub(crate) directory: tempfile::TempDir,
    head: Option<HeadProcess>,
    agents: Vec<Option<AgentProcess>>,
    lives: u64,
    /// Until when a place is cut off.
    cut_off: Vec<f64>,
    driver: Driver,
    pub(crate) newest: u64,
    pub(crate) violation: Option<String>,
}

/// How a seed went.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub seconds: f64,
    pub attempts: u32,
    pub trace: Vec<String>,
}

/// Runs one seed to its end. An error says what was violated, with all that happened before.
pub fn simulate(seed: u64) -> Result<Outcome, String> {
    let kernel = Kernel::new(seed);
    let mut sim = Sim {
        directory: tempfile::Builder::new().prefix("carril-sim").tempdir_in(memory()).expect("there is room in memory"),
        head: None,
        agents: (0..NODES).map(|_| None).collect(),
        lives: 0,
        cut_off: vec![0.0; NODES],
        driver: Driver::default(),
        newest: 0,
        violation: None,
        kernel: kernel.clone(),
    };
    sim.start_head();
    for place in 0..NODES {
        sim.start_agent(place);
    }
    sim.plan_faults();
    kernel.after(TICK, Sim::tick);
    kernel.after(2.0, Sim::submit);
    while sim.violation.is_none() && sim.driver.ended.is_empty() {
        let Some(job) = kernel.next() else { break };
        if kernel.elapsed() > BOUND {
            sim.violated("SIM-5: the run has not ended".into());
            break;
        }
        job(&mut sim);
        sim.settle();
    }
    sim.check_ending();
    // The directory has another name each time.
    let directory = sim.directory.path().display().to_string();
    let trace: Vec<String> = kernel.trace().iter().map(|line| line.replace(&directory, "")).collect();
    match sim.violation.take() {
        Some(violation) => Err(format!("seed {seed}: {violation}\n{}", trace.join("\n"))),
        None => Ok(Outcome { seconds: kernel.elapsed(), attempts: sim.attempts(), trace }),
    }
}

/// Files that need no disk, where there is such a place.
fn memory() -> std::path::PathBuf {
    let shared = std::path::PathBuf::from("/dev/shm");
    if shared.is_dir() { shared } else { std::env::temp_dir() }
}

impl Sim {
    pub(crate) fn violated(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    pub(crate) fn ended(&self) -> &[v1::RunEnded] {
        &self.driver.ended
    }

    fn new_life(&mut self) -> u64 {
        self.lives += 1;
        self.lives
    }

    // ------------------------------------------------------------ the head

    fn start_head(&mut self) {
        let life = self.new_life();
        let (fuse, pending): (Fuse, Pending) = (Arc::new(AtomicI64::new(-1)), Arc::default());
        let blobs = BlobStore::create(self.directory.path().join(format!("blobs{life}"))).expect("it can be made");
        // Heads run on the driver's host, one after the other: that the last one is gone is seen at once.
        let owner = Owner { boot: "an earlier one".into(), start: life, ..Owner::this_process() };
        let real = RealDisk::new(self.directory.path().join("spool"), blobs, owner);
        let outside = SimOutside {
            kernel: self.kernel.clone(),
            life,
            disk: Arc::new(FusedDisk { real, fuse: fuse.clone() }),
            pending: pending.clone(),
            next_commit: 0,
        };
        let head = Head::new(Box::new(outside));
        self.kernel.note(format!("head {life} starts"));
        self.head = Some(HeadProcess { head, life, links: BTreeMap::new(), next_link: life << 20, fuse, pending });
    }

    pub(crate) fn is_head(&self, life: u64) -> bool {
        self.head.as_ref().is_some_and(|process| process.life == life)
    }

    /// Lets the head of that life do something, which may be its end.
    pub(crate) fn with_head(&mut self, life: u64, job: impl FnOnce(&mut Head)) {
        let Some(process) = self.head.as_mut().filter(|process| process.life == life) else { return };
        let done = catch_unwind(AssertUnwindSafe(|| {
            job(&mut process.head);
            process.head.flush();
        }));
        match done {
            Ok(()) => {}
            Err(panic) if panic.is::<Crashed>() => self.crash_head(),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    fn crash_head(&mut self) {
        let Some(process) = self.head.take() else { return };
        self.kernel.note(format!("head {} dies", process.life));
        // What it was writing may be there in part.
        let pending = std::mem::take(&mut *process.pending.lock().unwrap_or_else(PoisonError::into_inner));
        for (_, mut commit) in pending {
            let calls = self.kernel.below(40) as u64;
            if calls > 0 {
                crash_at(Some(calls));
                let cut_short = catch_unwind(AssertUnwindSafe(|| commit.carry_out())).is_err();
                crash_at(None);
                let how = if cut_short { "half-way" } else { "whole" };
                self.kernel.note(format!("  the commit of report {} is left {how}", commit.iteration));
            }
        }
        self.check_storage();
        (self.driver.reply, self.driver.events) = (None, None);
        let later = self.kernel.between(0.5, 30.0);
        self.kernel.after(later, |sim| {
            sim.start_head();
            sim.kernel.after(1.0, Sim::submit);
        });
    }

    pub(crate) fn head_orders(&mut self, life: u64, node: &NodeId, mut order: v1::AgentOrder) {
        order.epoch = life;
        let Some(process) = self.head.as_mut().filter(|process| process.life == life) else { return };
        let Some((place, link)) = process.links.iter_mut().find(|(_, link)| link.node == *node) else { return };
        let (place, asked) = (*place, link.asked);
        let frame = link.link.send(order);
        self.send_to_agent(place, frame, asked);
    }

    /// A packet of an agent has come.
    fn head_hears(&mut self, place: usize, frame: Frame<v1::AgentMessage>, asked: f64) {
        let now = Duration::from_secs_f64(self.kernel.now());
        let Some(process) = self.head.as_mut() else { return };
        let life = process.life;
        let agent_life = frame.from;
        let next_link = &mut process.next_link;
        let link = process.links.entry(place).or_insert_with(|| {
            *next_link += 1;
            let node = NodeId::new(format!("node{place}#{agent_life}"));
            HeadLink { link: Link::new(*next_link), given: Given::new(now), node, asked }
        });
        let received = match link.link.receive(frame.clone()) {
            Received::Anew => {
                let lost = std::mem::replace(&mut link.node, NodeId::new(format!("node{place}#{agent_life}")));
                let received = link.link.receive(frame);
                self.kernel.note(format!("head: {lost} restarted"));
                self.with_head(life, |head| head.on_node_lost(&lost, "its agent restarted"));
                received
            }
            received => received,
        };
        let Some(link) = self.head.as_mut().and_then(|process| process.links.get_mut(&place)) else { return };
        if received == Received::Stale {
            return;
        }
        link.asked = link.asked.max(asked);
        let (node, back) = (link.node.clone(), link.given.on_heard(now));
        if back == Some(Change::Back) {
            self.with_head(life, |head| head.on_node_seen(&node, true));
        }
        if let Received::Message(message) = received {
            self.with_head(life, |head| head.on_agent_message(&node, message));
        }
    }

    // ------------------------------------------------------------ the agents

    fn start_agent(&mut self, place: usize) {
        let life = self.new_life();
        let workers = Shared::default();
        let spool = self.directory.path().join(format!("spool_of_{place}_{life}"));
        let world = SimNode { kernel: self.kernel.clone(), place, life, workers: workers.clone(), spool };
        let agent = Agent::new(Box::new(world), "agent.sock".into());
        self.kernel.note(format!("agent {life} starts at place {place}"));
        let process = AgentProcess { agent, life, link: Link::new(life), held: None, joins: true, workers };
        self.agents[place] = Some(process);
    }

    pub(crate) fn is_agent(&self, place: usize, life: u64) -> bool {
        self.agents[place].as_ref().is_some_and(|process| process.life == life)
    }

    pub(crate) fn with_agent(&mut self, place: usize, life: u64, job: impl FnOnce(&mut Agent)) {
        if let Some(process) = self.agents[place].as_mut().filter(|process| process.life == life) {
            job(&mut process.agent);
        }
    }

    fn crash_agent(&mut self, place: usize) {
        // Its workers go with it: one that loses its agent ends itself.
        let Some(process) = self.agents[place].take() else { return };
        self.kernel.note(format!("agent {} dies at place {place}", process.life));
        let later = self.kernel.between(0.5, 40.0);
        self.kernel.after(later, move |sim| sim.start_agent(place));
    }

    pub(crate) fn agent_tells(&mut self, place: usize, life: u64, message: v1::AgentMessage) {
        let now = self.kernel.now();
        let Some(process) = self.agents[place].as_mut().filter(|process| process.life == life) else { return };
        let frame = process.link.send(message);
        self.send_to_head(place, frame, now);
    }

    fn agent_hears(&mut self, place: usize, frame: Frame<v1::AgentOrder>, asked: f64) {
        let Some(process) = self.agents[place].as_mut() else { return };
        let mut received = process.link.receive(frame.clone());
        if received == Received::Anew {
            received = process.link.receive(frame);
            // Another head, or one that has taken this node for lost: nothing of what runs here is wanted any more.
            process.joins = true;
            process.held = None;
            process.agent.kill_all();
            self.kernel.note(format!("agent at place {place} hears a new head"));
        }
        if received == Received::Stale {
            return;
        }
        let (asked, now) = (Duration::from_secs_f64(asked), Duration::from_secs_f64(self.kernel.now()));
        let held = process.held.get_or_insert(Held::new(asked));
        held.on_answer(asked);
        // An order may have been on its way for longer than the lease that it was given under.
        if held.is_over(now) {
            return self.end_lease(place);
        }
        if let Received::Message(order) = received {
            process.agent.on_order(order);
        }
    }

    fn end_lease(&mut self, place: usize) {
        let life = self.new_life();
        let Some(process) = self.agents[place].as_mut() else { return };
        self.kernel.note(format!("agent at place {place}: its lease is over"));
        process.agent.kill_all();
        // What the head has sent until now, and may still arrive, was meant for one that had a lease.
        process.link = Link::new(life);
        (process.held, process.joins) = (None, true);
    }

    fn join_if_idle(&mut self, place: usize) {
        let Some(process) = self.agents[place].as_mut() else { return };
        if process.joins && process.agent.is_idle() && lock(&process.workers).all.is_empty() {
            process.joins = false;
            let node = v1::Node {
                id: format!("node{place}#{}", process.link.life()),
                hostname: format!("node{place}"),
                address: "10.0.0.1".into(),
                total: [("CPU".to_owned(), 2.0)].into(),
                ..Default::default()
            };
            let life = process.life;
            self.agent_tells(place, life, node.into());
        }
    }

    // ------------------------------------------------------------ the network

    fn send_to_head(&mut self, place: usize, frame: Frame<v1::AgentMessage>, asked: f64) {
        self.across(place, move |sim| sim.head_hears(place, frame.clone(), asked));
    }

    fn send_to_agent(&mut self, place: usize, frame: Frame<v1::AgentOrder>, asked: f64) {
        self.across(place, move |sim| sim.agent_hears(place, frame.clone(), asked));
    }

    /// Once, twice or never, now or later.
    fn across(&mut self, place: usize, arrives: impl Fn(&mut Sim) + Send + Clone + 'static) {
        let times = if self.kernel.chance(0.05) { 0 } else { 1 + usize::from(self.kernel.chance(0.05)) };
        for _ in 0..times {
            let (delay, arrives) = (self.kernel.between(0.001, 0.3), arrives.clone());
            self.kernel.after(delay, move |sim| {
                if sim.kernel.now() >= sim.cut_off[place] {
                    arrives(sim);
                }
            });
        }
    }

    /// Signs of life, what has not arrived, and leases.
    fn tick(&mut self) {
        let now = self.kernel.now();
        for place in 0..NODES {
            self.join_if_idle(place);
            let held = self.agents[place].as_ref().and_then(|process| process.held);
            if held.is_some_and(|held| held.is_over(Duration::from_secs_f64(now))) {
                self.end_lease(place);
            }
            if let Some(process) = &mut self.agents[place] {
                for frame in process.link.again() {
                    self.send_to_head(place, frame, now);
                }
            }
        }
        let Some(process) = &mut self.head else { return self.kernel.after(TICK, Sim::tick) };
        let life = process.life;
        let mut changes = Vec::new();
        let mut frames = Vec::new();
        for (place, link) in &mut process.links {
            frames.extend(link.link.again().into_iter().map(|frame| (*place, frame, link.asked)));
            if let Some(change) = link.given.look(Duration::from_secs_f64(now)) {
                changes.push((*place, link.node.clone(), change));
            }
        }
        for (place, frame, asked) in frames {
            self.send_to_agent(place, frame, asked);
        }
        for (place, node, change) in changes {
            self.kernel.note(format!("head: {node} {change:?}"));
            match change {
                Change::Lost => {
                    if let Some(process) = &mut self.head {
                        process.links.remove(&place);
                    }
                    self.with_head(life, |head| head.on_node_lost(&node, "its lease is over"));
                }
                Change::Unreachable => self.with_head(life, |head| head.on_node_seen(&node, false)),
                Change::Back => {}
            }
        }
        self.kernel.after(TICK, Sim::tick);
    }

    // ------------------------------------------------------------ what befalls them

    fn plan_faults(&mut self) {
        for _ in 0..self.kernel.below(7) {
            let at = self.kernel.between(3.0, 120.0);
            match self.kernel.below(6) {
                0 => self.kernel.after(at, |sim| sim.crash_head()),
                1 => {
                    let writes = self.kernel.below(40) as i64;
                    self.kernel.after(at, move |sim| {
                        if let Some(process) = &sim.head {
                            process.fuse.store(writes, Ordering::Relaxed);
                        }
                    });
                }
                2 => {
                    let place = self.kernel.below(NODES);
                    self.kernel.after(at, move |sim| sim.crash_agent(place));
                }
                3 | 4 => {
                    let (place, seconds) = (self.kernel.below(NODES), self.kernel.between(1.0, 130.0));
                    self.kernel.after(at, move |sim| {
                        sim.kernel.note(format!("place {place} is cut off for {seconds:.0} s"));
                        sim.cut_off[place] = sim.kernel.now() + seconds;
                    });
                }
                _ => {
                    let place = self.kernel.below(NODES);
                    self.kernel.after(at, move |sim| sim.kill_a_worker(place));
                }
            }
        }
    }

    fn kill_a_worker(&mut self, place: usize) {
        let Some(process) = &self.agents[place] else { return };
        let life = process.life;
        let first = lock(&process.workers).all.pop_first();
        if let Some((key, worker)) = first {
            self.kernel.note(format!("{key} is killed at place {place}"));
            let exit = carril_types::ExitStatus::Signal(9);
            self.kernel.after(0.01, move |sim| {
                sim.with_agent(place, life, |agent| agent.on_exited(&key, worker.pid, exit, 0));
            });
        }
    }

    // ------------------------------------------------------------ the driver

    fn spec(&self) -> RunSpec {
        RunSpec {
            name: RUN.into(),
            storage_path: self.directory.path().display().to_string(),
            num_workers: WORKERS,
            resources_per_worker: Resources::from_amounts([("CPU", 1.0)]).expect("one CPU is an amount"),
            worker: WorkerCommand::Command { arguments: vec!["simulated".into()] },
            working_directory: "/".into(),
            metrics_reduce: Default::default(),
            share_devices: false,
            on_existing: Default::default(),
            other_config: Default::default(),
            checkpoint_files: Default::default(),
            data: Default::default(),
            record: "{}".into(),
            threads_per_worker: 1.0,
            hang_timeout_s: None,
            filesystem: None,
            num_to_keep: Some(2),
            checkpoint_score_attribute: None,
            checkpoint_score_order: Default::default(),
            failures: FailureSpec { max_failures: 0, max_infrastructure_failures: Some(-1), fail_fast: false },
            preemption_grace_s: 30.0,
            head_panic: None,
            continues: self.driver.run.as_ref().map(|run| run.as_str().to_owned()),
            validation: Some(String::new()),
            trial: None,
            parent: None,
        }
    }

    fn submit(&mut self) {
        if self.driver.reply.is_some() || self.driver.events.is_some() || !self.driver.ended.is_empty() {
            return;
        }
        let Some(life) = self.head.as_ref().map(|process| process.life) else { return };
        let spec = serde_json::to_string(&self.spec()).expect("a specification is JSON");
        let request = v1::RunRequest { spec, ..Default::default() };
        let (sender, reply) = oneshot::channel();
        self.driver.reply = Some(reply);
        self.with_head(life, |head| head.submit(request, sender));
    }

    fn drive(&mut self) {
        if let Some(answer) = self.driver.reply.as_mut().and_then(|reply| reply.try_recv().ok()) {
            self.driver.reply = None;
            match answer {
                Ok(reply) => {
                    let run = RunId::new(reply.run_id);
                    self.kernel.note(format!("driver: the run is {run}"));
                    self.driver.run = Some(run.clone());
                    let (sender, events) = mpsc::channel(1_024);
                    self.driver.events = Some(events);
                    let watcher = Watcher { id: 1, reports: false, output: false, quiet: false, sender };
                    if let Some(life) = self.head.as_ref().map(|process| process.life) {
                        self.with_head(life, |head| drop(head.watch(&run, watcher)));
                    }
                }
                // The record of the head that died is still fresh, or no node has come yet.
                Err(failure) if matches!(failure.code, ErrorCode::RunLive | ErrorCode::PlacementImpossible) => {
                    self.kernel.note(format!("driver: {failure}"));
                    self.kernel.after(5.0, Sim::submit);
                }
                Err(failure) => self.violated(format!("the run is refused: {failure}")),
            }
        }
        while let Some(event) = self.driver.events.as_mut().and_then(|events| events.try_recv().ok()) {
            match event.kind {
                Some(v1::run_event::Kind::Ended(ended)) => self.driver.ended.push(ended),
                Some(v1::run_event::Kind::State(state)) => {
                    self.kernel.note(format!("run: {} ({})", state.state, state.reason));
                }
                Some(v1::run_event::Kind::Restarted(restarted)) => {
                    self.kernel.note(format!("run: attempt {} because {}", restarted.attempt, restarted.reason));
                }
                _ => {}
            }
        }
    }

    fn settle(&mut self) {
        self.drive();
        for place in 0..NODES {
            self.poll_workers(place);
        }
    }

    /// Everything that lives, with its place.
    pub(crate) fn live_workers(&self) -> Vec<WorkerKey> {
        let alive = |process: &AgentProcess| lock(&process.workers).all.keys().cloned().collect::<Vec<_>>();
        self.agents.iter().flatten().flat_map(alive).collect()
    }

    pub(crate) fn workers_at(&self, place: usize) -> Option<(u64, Shared)> {
        self.agents[place].as_ref().map(|process| (process.life, process.workers.clone()))
    }

    pub(crate) fn agent_mut(&mut self, place: usize, life: u64) -> Option<&mut Agent> {
        self.agents[place].as_mut().filter(|process| process.life == life).map(|process| &mut process.agent)
    }
}
