//! The real node around an `Agent`: one task owns it and does one job after the other.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::PoisonError;
use std::time::Duration;

use carril_process::{kill_leftovers, reap_orphans, send_signal};
use carril_proto::v1;
use carril_store::{BlobStore, Storage};
use carril_types::{Attempt, ErrorCode, Failure, NodeId, Rank, RunId, WorkerKey};
use nix::sys::signal::Signal;
use tokio::sync::{mpsc, oneshot};

use crate::agent::Agent;
use crate::checkpoints::{self, Forget, SavePlace, cut_short, python_filesystem};
use crate::devices::{present_devices, visible_devices};
use crate::follow::Followers;
use crate::process::{end_sooner_for_memory, exit_of_child, halted, is_ending};
use crate::resources::{Limits, node_resources};
use crate::starter::{self, Task, ZygotePids};
use crate::usage::keep_measuring;
use crate::world::{StartRequest, World};

type Job = Box<dyn FnOnce(&mut Agent) + Send>;
type ToHead = Box<dyn Fn(v1::AgentMessage) + Send>;

pub struct AgentConfig {
    /// Private to this agent: sockets, blobs and report logs lie here.
    pub directory: PathBuf,
    pub socket: PathBuf,
    pub limits: Limits,
    pub blobs: BlobStore,
    /// On a real disk: what is on its way to storage elsewhere lies here.
    pub spool: PathBuf,
}

/// The way to the task that owns the agent.
#[derive(Clone)]
pub struct AgentHandle {
    jobs: mpsc::UnboundedSender<Job>,
}

impl AgentHandle {
    pub fn tell(&self, job: impl FnOnce(&mut Agent) + Send + 'static) {
        let _ = self.jobs.send(Box::new(job));
    }

    pub async fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Agent) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let (sender, receiver) = oneshot::channel();
        self.tell(move |agent| {
            let _ = sender.send(job(agent));
        });
        receiver.await.map_err(|_| Failure::new(ErrorCode::AgentLost, "the agent is shutting down"))
    }
}

/// Makes this process the parent of every orphan below it.
pub fn become_reaper() -> io::Result<()> {
    use nix::libc;
    // SAFETY: sets an attribute of this process.
    let result = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Starts the agent and tells the head of the node. Orders come from `orders`.
pub fn start(
    config: AgentConfig,
    id: &NodeId,
    to_head: impl Fn(v1::AgentMessage) + Send + 'static,
    mut orders: mpsc::UnboundedReceiver<v1::AgentOrder>,
) -> Result<AgentHandle, Failure> {
    let trouble = |error: io::Error| Failure::new(ErrorCode::Internal, format!("the agent cannot start: {error}"));
    let narrowed = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let devices = visible_devices(&present_devices(), narrowed.as_deref());
    let (total, devices) = node_resources(&config.limits, &devices)
        .map_err(|error| Failure::new(ErrorCode::InvalidConfig, error.to_string()))?;
    to_head(
        v1::Node {
            id: id.as_str().to_owned(),
            hostname: nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            address: own_address(),
            total: total.iter().map(|(name, amount)| (name.to_owned(), amount)).collect(),
            free: HashMap::new(),
            devices,
        }
        .into(),
    );

    let (jobs, mut queue) = mpsc::unbounded_channel::<Job>();
    let handle = AgentHandle { jobs };
    let zygotes = ZygotePids::default();
    let (tasks, _thread) = starter::spawn(zygotes.clone(), config.directory.clone()).map_err(trouble)?;
    let followers = Followers::new().map_err(trouble)?;
    let changes = followers.descriptor().map_err(trouble)?;
    let node = RealNode {
        handle: handle.clone(),
        to_head: Box::new(to_head),
        tasks,
        zygotes,
        followers,
        directory: config.directory,
        blobs: config.blobs,
        spool: config.spool,
        storages: HashMap::new(),
        meeting_points: HashMap::new(),
        own: BTreeSet::new(),
        starting: 0,
    };
    let mut agent = Agent::new(Box::new(node), config.socket);
    let mut orphans = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::child()).map_err(trouble)?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                biased;
                Some(order) = orders.recv() => agent.on_order(order),
                Some(job) = queue.recv() => job(&mut agent),
                _ = changes.wait() => agent.on_changes(),
                _ = orphans.recv() => agent.on_child_signal(),
                else => break,
            }
        }
    });
    tokio::spawn(keep_measuring(handle.clone()));
    Ok(handle)
}

struct RealNode {
    handle: AgentHandle,
    to_head: ToHead,
    tasks: std::sync::mpsc::Sender<Task>,
    zygotes: ZygotePids,
    followers: Followers,
    directory: PathBuf,
    blobs: BlobStore,
    spool: PathBuf,
    /// Connections to storage, by run.
    storages: HashMap<String, Storage>,
    meeting_points: HashMap<WorkerKey, TcpListener>,
    /// The pids of live workers.
    own: BTreeSet<u32>,
    /// How many workers are being started.
    starting: usize,
}

impl RealNode {
    fn storage_of(&mut self, order: &v1::UploadCheckpoint) -> Result<Storage, Failure> {
        if let Some(storage) = self.storages.get(&order.storage) {
            return Ok(storage.clone());
        }
        let filesystem =
            order.filesystem.clone().and_then(|filesystem| python_filesystem(filesystem, |hash| self.blobs.path(hash)));
        let variables = order.variables.clone().into_iter().collect();
        let storage = Storage::open_with(&order.storage, filesystem, &variables)?;
        self.storages.insert(order.storage.clone(), storage.clone());
        Ok(storage)
    }

    fn known(&self) -> BTreeSet<u32> {
        let zygotes = self.zygotes.lock().unwrap_or_else(PoisonError::into_inner);
        self.own.iter().chain(zygotes.iter()).copied().collect()
    }
}

impl World for RealNode {
    fn to_head(&mut self, message: v1::AgentMessage) {
        (self.to_head)(message);
    }

    fn prepare(&mut self, request: v1::PrepareRequest) {
        let _ = self.tasks.send(Task::Prepare(request));
    }

    fn inherited_environment(&self) -> Vec<(String, String)> {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    fn bind_meeting_point(&mut self, rank_zero: &WorkerKey) -> Result<u16, Failure> {
        let bound = TcpListener::bind(("127.0.0.1", 0)).and_then(|socket| Ok((socket.local_addr()?.port(), socket)));
        let (port, socket) = bound.map_err(|error| {
            Failure::new(ErrorCode::WorkerStartFailed, format!("cannot bind a port on 127.0.0.1: {error}"))
        })?;
        self.meeting_points.insert(rank_zero.clone(), socket);
        Ok(port)
    }

    fn start(&mut self, request: StartRequest) {
        self.starting += 1;
        let (handle, key) = (self.handle.clone(), request.key.clone());
        let meeting_point = self.meeting_points.remove(&key);
        let done = Box::new(move |result| handle.tell(move |agent| agent.on_started(&key, result)));
        let _ = self.tasks.send(Task::Start { request: Box::new(request), meeting_point, done });
    }

    fn start_done(&mut self) {
        self.starting -= 1;
        self.reap_orphans();
    }

    fn watch(&mut self, key: &WorkerKey, pid: u32) {
        self.own.insert(pid);
        end_sooner_for_memory(pid);
        let (handle, key) = (self.handle.clone(), key.clone());
        tokio::spawn(async move {
            let (exit, peak_memory) = exit_of_child(pid).await;
            handle.tell(move |agent| agent.on_exited(&key, pid, exit, peak_memory));
        });
    }

    fn terminate(&mut self, pid: u32) {
        send_signal(pid, Signal::SIGTERM);
    }

    fn kill(&mut self, key: &WorkerKey, pid: u32) {
        send_signal_if_own(&self.own, pid);
        kill_leftovers(key, pid, &self.known(), self.starting > 0);
    }

    fn ended(&mut self, pid: u32) {
        self.own.remove(&pid);
    }

    fn set_stop_timer(&mut self, key: WorkerKey, after: Duration) {
        let handle = self.handle.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            handle.tell(move |agent| agent.on_stop_timer(&key));
        });
    }

    fn set_hello_timer(&mut self, key: WorkerKey, after: Duration) {
        let handle = self.handle.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            handle.tell(move |agent| agent.on_hello_timer(&key));
        });
    }

    fn follow(&mut self, key: &WorkerKey, reports: PathBuf, output: PathBuf) -> Result<(), Failure> {
        self.followers.follow(key, reports, output)
    }

    fn changed(&mut self) -> Vec<WorkerKey> {
        self.followers.changed()
    }

    fn read_reports(&mut self, key: &WorkerKey) -> Result<Vec<v1::Report>, Failure> {
        self.followers.read_reports(key)
    }

    fn read_output(&mut self, key: &WorkerKey, all: bool) -> Vec<u8> {
        self.followers.read_output(key, all)
    }

    fn last_output(&mut self, key: &WorkerKey) -> String {
        self.followers.last_output(key)
    }

    fn follow_on(&mut self, before: &WorkerKey, key: &WorkerKey, output: PathBuf) -> Result<(), Failure> {
        self.followers.follow_on(before, key, output)
    }

    fn unfollow(&mut self, key: &WorkerKey) {
        self.followers.unfollow(key);
        // Of a rank that was never started.
        self.meeting_points.remove(key);
    }

    fn reap_orphans(&mut self) {
        if self.starting == 0 {
            reap_orphans(&self.known());
        }
    }

    fn gather_stacks(&mut self, key: WorkerKey, ranks: Vec<(WorkerKey, u32, bool)>) {
        let handle = self.handle.clone();
        let asked =
            ranks.into_iter().map(|(key, pid, answers)| (key.rank, pid, answers, self.stack_file(&key))).collect();
        tokio::spawn(async move {
            let stacks = crate::stacks::gather(asked).await;
            handle.tell(move |agent| agent.on_stacks(key, stacks));
        });
    }

    fn stack_file(&self, key: &WorkerKey) -> PathBuf {
        self.directory.join(format!("{}.{}.{}.stacks", key.run, key.attempt.0, key.rank))
    }

    fn memory_kills(&self) -> u64 {
        crate::resources::memory_kills().map_or(0, |(count, _)| count)
    }

    fn memory_limit(&self) -> String {
        crate::resources::memory_limit()
    }

    fn report_log(&self, key: &WorkerKey) -> PathBuf {
        self.directory.join(format!("{}.{}.{}.reports", key.run, key.attempt.0, key.rank))
    }

    fn blob_path(&self, hash: &str) -> Option<PathBuf> {
        self.blobs.path(hash)
    }

    fn spool(&self) -> PathBuf {
        self.spool.clone()
    }

    fn upload(&mut self, order: v1::UploadCheckpoint) {
        let (run, attempt) = (RunId::new(order.run_id.clone()), Attempt(order.attempt));
        let (key, iteration) = (WorkerKey { run, attempt, rank: Rank::ZERO }, order.iteration);
        let handle = self.handle.clone();
        let storage = match self.storage_of(&order) {
            Ok(storage) => storage,
            Err(failure) => return handle.tell(move |agent| agent.on_uploaded(key, iteration, Err(failure))),
        };
        tokio::spawn(async move {
            let uploaded = tokio::task::spawn_blocking(move || checkpoints::upload(&order, &storage)).await;
            let result = uploaded.map_err(cut_short).and_then(|uploaded| uploaded);
            handle.tell(move |agent| agent.on_uploaded(key, iteration, result));
        });
    }

    fn descriptor_limit(&self) -> Option<u64> {
        carril_net::descriptor_limit()
    }

    fn is_ending(&self, pid: u32) -> bool {
        is_ending(pid)
    }

    fn halted(&mut self, pid: u32) -> Option<bool> {
        halted(pid)
    }

    fn forget(&mut self, place: SavePlace, what: Forget) {
        if what == Forget::Run {
            self.storages.remove(&place.storage);
            if place.goes_on {
                return;
            }
        }
        let removal = place.begin_removal();
        tokio::task::spawn_blocking(move || {
            place.forget(what);
            drop(removal);
        });
    }
}

/// A pid that has been collected may belong to somebody else by now.
fn send_signal_if_own(own: &BTreeSet<u32>, pid: u32) {
    if own.contains(&pid) {
        send_signal(pid, Signal::SIGKILL);
    }
}

/// The address under which other machines would reach this one; loopback where there is none.
fn own_address() -> String {
    let all = nix::ifaddrs::getifaddrs().map(|all| all.collect::<Vec<_>>()).unwrap_or_default();
    all.iter()
        .filter_map(|interface| Some(interface.address.as_ref()?.as_sockaddr_in()?.ip()))
        .find(|address| !address.is_loopback() && !address.is_link_local())
        .map_or_else(|| "127.0.0.1".to_owned(), |address| address.to_string())
}
