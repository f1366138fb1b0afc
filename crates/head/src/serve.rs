//! The real world around a `Head`: one task owns it and does one job after the other.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carril_core::Timer;
use carril_core::tune::TrialId;
use carril_proto::v1;
use carril_store::Storage;
use carril_types::{ErrorCode, Failure, NodeId, RunId};
use tokio::sync::{mpsc, oneshot};

use crate::head::Head;
use crate::mirror::Mirror;
use crate::outside::{Annotation, Checkpoints, Commit, Disk, OpenExperiment, OpenRequest, Outside};

/// The files are written out at least after this many jobs, also when more are waiting.
const FLUSH_EVERY: usize = 64;

type Job = Box<dyn FnOnce(&mut Head) + Send>;

/// The way to the task that owns the head.
#[derive(Clone)]
pub struct HeadHandle {
    jobs: mpsc::UnboundedSender<Job>,
}

impl HeadHandle {
    /// Queues a job. The queue is bounded by what feeds it: agents by the window of reports, drivers by their waiting.
    pub fn tell(&self, job: impl FnOnce(&mut Head) + Send + 'static) {
        let _ = self.jobs.send(Box::new(job));
    }

    pub async fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Head) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let (sender, receiver) = oneshot::channel();
        self.tell(move |head| {
            let _ = sender.send(job(head));
        });
        receiver.await.map_err(|_| Failure::new(ErrorCode::HeadLost, "the head is shutting down"))
    }

    pub fn agent_message(&self, from: NodeId, message: v1::AgentMessage) {
        self.tell(move |head| head.on_agent_message(&from, message));
    }
}

/// Starts the task. `agents` is the way to each agent.
pub fn start(agents: HashMap<NodeId, mpsc::UnboundedSender<v1::AgentOrder>>, disk: Arc<dyn Disk>) -> HeadHandle {
    let (jobs, mut queue) = mpsc::unbounded_channel::<Job>();
    let handle = HeadHandle { jobs };
    let world = World { agents, disk, handle: handle.clone(), began: Instant::now() };
    tokio::spawn(async move {
        let mut head = Head::new(Box::new(world));
        let mut unflushed = 0;
        while let Some(job) = queue.recv().await {
            job(&mut head);
            unflushed += 1;
            if queue.is_empty() || unflushed >= FLUSH_EVERY {
                head.flush();
                unflushed = 0;
                // One busy run must not keep the sockets of the others waiting.
                tokio::task::yield_now().await;
            }
        }
    });
    handle
}

struct World {
    agents: HashMap<NodeId, mpsc::UnboundedSender<v1::AgentOrder>>,
    disk: Arc<dyn Disk>,
    handle: HeadHandle,
    began: Instant,
}

impl World {
    /// Does what blocks on a thread of its own, and then hands the result to the head.
    fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
        then: impl FnOnce(&mut Head, Result<T, Failure>) + Send + 'static,
    ) {
        let handle = self.handle.clone();
        tokio::spawn(async move {
            let done = tokio::task::spawn_blocking(work).await;
            let done = done.map_err(|error| Failure::new(ErrorCode::Internal, format!("work was cut short: {error}")));
            handle.tell(move |head| then(head, done));
        });
    }
}

impl Outside for World {
    fn now(&self) -> f64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
    }

    fn clock(&self) -> Duration {
        self.began.elapsed()
    }

    fn fresh_run_id(&mut self) -> RunId {
        let mut bytes = [0u8; 8];
        getrandom::fill(&mut bytes).expect("the system has random bytes");
        RunId::new(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    fn to_agent(&mut self, node: &NodeId, order: v1::AgentOrder) {
        if let Some(agent) = self.agents.get(node) {
            let _ = agent.send(order);
        }
    }

    fn set_timer(&mut self, run: RunId, timer: Timer, after: Duration) {
        let handle = self.handle.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            handle.tell(move |head| head.on_timer(&run, timer));
        });
    }

    fn set_retry_timer(&mut self, run: RunId, after: Duration) {
        let handle = self.handle.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            handle.tell(move |head| head.on_retry_timer(&run));
        });
    }

    fn set_progress_timer(&mut self, run: RunId, after: Duration) {
        let handle = self.handle.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            handle.tell(move |head| head.on_progress_due(&run));
        });
    }

    fn set_upkeep_timer(&mut self, run: RunId, after: Duration) {
        let handle = self.handle.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            handle.tell(move |head| head.on_upkeep_due(&run));
        });
    }

    fn set_lease_timer(&mut self, run: RunId, after: Duration) {
        let handle = self.handle.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            handle.tell(move |head| head.on_lease_over(&run));
        });
    }

    fn open_run(&mut self, request: OpenRequest) {
        let (disk, id) = (self.disk.clone(), request.id.clone());
        self.aside(move || disk.open_run(&request), move |head, result| head.on_run_opened(&id, result.flatten()));
    }

    fn find_latest(&mut self, run: RunId, storage: Storage) {
        let look = move || Checkpoints::look(&storage);
        self.aside(look, move |head, result| head.on_latest_found(&run, result.flatten()));
    }

    fn commit(&mut self, run: RunId, mut commit: Commit) {
        let iteration = commit.iteration;
        let work = move || {
            let result = commit.carry_out();
            (commit.mirror, result)
        };
        self.aside(work, move |head, done| match done {
            Ok((mirror, result)) => head.on_committed(&run, iteration, result, mirror),
            Err(failure) => head.on_committed(&run, iteration, Err(failure), None),
        });
    }

    fn keep_validation(&mut self, run: RunId, annotation: Annotation) {
        let keep = move || annotation.carry_out();
        self.aside(keep, move |head, result| head.on_validation_kept(&run, result.flatten()));
    }

    fn open_experiment(&mut self, request: OpenExperiment) {
        let (disk, id) = (self.disk.clone(), request.id.clone());
        let open = move || disk.open_experiment(&request);
        self.aside(open, move |head, result| head.on_experiment_opened(&id, result.flatten()));
    }

    fn set_budget_timer(&mut self, experiment: RunId, after: Duration) {
        let handle = self.handle.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            handle.tell(move |head| head.on_budget_over(&experiment));
        });
    }

    fn adopt(&mut self, experiment: RunId, trial: TrialId, to: Storage, from: Storage) {
        let now = self.now();
        let adopt = move || carril_store::adopt(&to, &from, now).map_err(Failure::from);
        self.aside(adopt, move |head, result| head.on_adopted(&experiment, trial, result.flatten()));
    }

    fn discard(&mut self, run: RunId, name: String, checkpoint: Storage) {
        let delete = move || checkpoint.delete_all().map_err(Failure::from);
        self.aside(delete, move |head, result| head.on_discarded(&run, &name, result.flatten()));
    }

    fn mirror(&mut self, run: RunId, mut mirror: Mirror) {
        let round = move || {
            let result = mirror.round();
            (mirror, result)
        };
        self.aside(round, move |head, result| {
            if let Ok((mirror, result)) = result {
                head.on_mirrored(&run, mirror, result);
            }
        });
    }

    fn when_watcher_ready(&mut self, run: RunId, watcher: u64, sender: mpsc::Sender<v1::RunEvent>) {
        let handle = self.handle.clone();
        tokio::spawn(async move {
            // An error means that the watcher has gone, which is room enough.
            drop(sender.reserve().await);
            handle.tell(move |head| head.on_watcher_ready(&run, watcher));
        });
    }
}
