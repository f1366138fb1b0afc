//! The machine as a simulated agent sees it, and the workers on it.
//!
//! A worker does what a training function does: it goes on from the checkpoint that it is given, meets the others in
//! barriers, reports, and with every second report brings a checkpoint whose file says which step it is of.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use carril_agent::{Agent, Forget, SavePlace, StartRequest, World};
use carril_proto::v1;
use carril_types::{ExitStatus, Failure, WorkerKey};
use tokio::sync::{mpsc, oneshot};

use crate::kernel::Kernel;

/// What a worker is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    Connecting,
    Step,
    Waiting,
    Returned,
}

pub struct Worker {
    pub pid: u32,
    pub doing: Doing,
    pub orders: Option<mpsc::UnboundedReceiver<Result<v1::WorkerOrder, tonic::Status>>>,
    pub answer: Option<oneshot::Receiver<Result<Vec<u8>, Failure>>>,
    pub assignment: Option<v1::Assignment>,
    /// Reports that were made, the ones before this attempt included.
    pub reports: u64,
    pub barriers: u64,
    /// Of the next step, whose barrier is passed.
    pub met: bool,
    pub has_place: bool,
}

#[derive(Default)]
pub struct Workers {
    pub all: BTreeMap<WorkerKey, Worker>,
    /// What each has reported, and how much of it the agent has read: files, which outlive the process.
    pub logs: BTreeMap<WorkerKey, (Vec<v1::Report>, usize)>,
    next_pid: u32,
}

pub type Shared = Arc<Mutex<Workers>>;

pub fn lock(workers: &Shared) -> MutexGuard<'_, Workers> {
    workers.lock().unwrap_or_else(PoisonError::into_inner)
}

pub struct SimNode {
    pub kernel: Kernel,
    pub place: usize,
    pub life: u64,
    pub workers: Shared,
    pub spool: PathBuf,
}

impl SimNode {
    fn to_agent(&self, after: f64, job: impl FnOnce(&mut Agent) + Send + 'static) {
        let (place, life) = (self.place, self.life);
        self.kernel.after(after, move |sim| sim.with_agent(place, life, job));
    }

    /// The process goes, and the agent hears of it a moment later.
    fn ends(&self, key: &WorkerKey, exit: ExitStatus) {
        if let Some(worker) = lock(&self.workers).all.remove(key) {
            let (key, pid) = (key.clone(), worker.pid);
            self.to_agent(self.kernel.between(0.001, 0.05), move |agent| agent.on_exited(&key, pid, exit, 0));
        }
    }
}

impl World for SimNode {
    fn to_head(&mut self, message: v1::AgentMessage) {
        let (place, life) = (self.place, self.life);
        self.kernel.after(0.0, move |sim| sim.agent_tells(place, life, message));
    }

    fn prepare(&mut self, _: v1::PrepareRequest) {}

    fn inherited_environment(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn bind_meeting_point(&mut self, _: &WorkerKey) -> Result<u16, Failure> {
        Ok(1)
    }

    fn start(&mut self, request: StartRequest) {
        let (place, life, workers) = (self.place, self.life, self.workers.clone());
        self.kernel.after(self.kernel.between(0.01, 0.5), move |sim| {
            if !sim.is_agent(place, life) {
                return;
            }
            let key = request.key;
            let pid = {
                let mut workers = lock(&workers);
                workers.next_pid += 1;
                let pid = workers.next_pid;
                let worker = Worker {
                    pid,
                    doing: Doing::Connecting,
                    orders: None,
                    answer: None,
                    assignment: None,
                    reports: 0,
                    barriers: 0,
                    met: false,
                    has_place: false,
                };
                workers.all.insert(key.clone(), worker);
                pid
            };
            sim.worker_started(place, &key);
            let told = key.clone();
            sim.with_agent(place, life, move |agent| agent.on_started(&told, Ok((pid, "simulated".into()))));
            let hello = sim.kernel.between(0.01, 0.5);
            sim.kernel.after(hello, move |sim| sim.worker_connects(place, life, &key));
        });
    }

    fn start_done(&mut self) {}

    fn watch(&mut self, _: &WorkerKey, _: u32) {}

    fn terminate(&mut self, pid: u32) {
        let key = lock(&self.workers).all.iter().find(|(_, worker)| worker.pid == pid).map(|(key, _)| key.clone());
        if let Some(key) = key {
            self.ends(&key, ExitStatus::Signal(15));
        }
    }

    fn kill(&mut self, key: &WorkerKey, _: u32) {
        self.ends(key, ExitStatus::Signal(9));
    }

    fn ended(&mut self, _: u32) {}

    fn reap_orphans(&mut self) {}

    fn set_stop_timer(&mut self, key: WorkerKey, after: Duration) {
        self.to_agent(after.as_secs_f64(), move |agent| agent.on_stop_timer(&key));
    }

    fn set_hello_timer(&mut self, key: WorkerKey, after: Duration) {
        self.to_agent(after.as_secs_f64(), move |agent| agent.on_hello_timer(&key));
    }

    fn follow(&mut self, _: &WorkerKey, _: PathBuf, _: PathBuf) -> Result<(), Failure> {
        Ok(())
    }

    fn changed(&mut self) -> Vec<WorkerKey> {
        let workers = lock(&self.workers);
        workers.logs.iter().filter(|(_, (log, read))| *read < log.len()).map(|(key, _)| key.clone()).collect()
    }

    fn read_reports(&mut self, key: &WorkerKey) -> Result<Vec<v1::Report>, Failure> {
        let mut workers = lock(&self.workers);
        let Some((log, read)) = workers.logs.get_mut(key) else { return Ok(Vec::new()) };
        let new = log[*read..].to_vec();
        *read = log.len();
        Ok(new)
    }

    fn read_output(&mut self, _: &WorkerKey, _: bool) -> Vec<u8> {
        Vec::new()
    }

    fn last_output(&mut self, _: &WorkerKey) -> String {
        String::new()
    }

    fn follow_on(&mut self, _: &WorkerKey, _: &WorkerKey, _: PathBuf) -> Result<(), Failure> {
        Ok(())
    }

    fn unfollow(&mut self, _: &WorkerKey) {}

    fn gather_stacks(&mut self, key: WorkerKey, _: Vec<(WorkerKey, u32, bool)>) {
        self.to_agent(0.01, move |agent| agent.on_stacks(key, Vec::new()));
    }

    fn stack_file(&self, _: &WorkerKey) -> PathBuf {
        self.spool.join("stacks")
    }

    fn memory_kills(&self) -> u64 {
        0
    }

    fn memory_limit(&self) -> String {
        String::new()
    }

    fn report_log(&self, _: &WorkerKey) -> PathBuf {
        self.spool.join("reports")
    }

    fn blob_path(&self, _: &str) -> Option<PathBuf> {
        None
    }

    fn spool(&self) -> PathBuf {
        self.spool.clone()
    }

    fn upload(&mut self, _: v1::UploadCheckpoint) {
        unreachable!("the storage of a simulation is a local path");
    }

    fn forget(&mut self, place: SavePlace, what: Forget) {
        place.forget(what);
    }

    fn descriptor_limit(&self) -> Option<u64> {
        None
    }

    fn is_ending(&self, _: u32) -> bool {
        // Not known: the head then waits for a cause behind a failure.
        true
    }

    fn halted(&mut self, _: u32) -> Option<bool> {
        None
    }
}
