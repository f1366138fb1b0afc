//! The world as a simulated head sees it: the simulated clock and network, and the real store in a directory of its own,
//! whose every write may be the last one of that head.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use carril_core::Timer;
use carril_core::tune::TrialId;
use carril_head::{
    Annotation, Checkpoints, Commit, Disk, ExperimentOpened, Head, Mirror, OpenExperiment, OpenRequest, Outside,
    RealDisk, RunDisk, RunOpened,
};
use carril_proto::v1;
use carril_store::{Crashed, JournalRecord, Storage};
use carril_types::{Failure, Metrics, NodeId, Rank, RunId, RunStatus};
use tokio::sync::mpsc;

use crate::kernel::Kernel;

/// How long the disk takes, in seconds.
const DISK: (f64, f64) = (0.001, 0.4);

/// Commits that have begun and are not done: what a crash may leave half-way.
pub type Pending = Arc<Mutex<BTreeMap<u64, Commit>>>;

/// The head dies with its n-th write from here; below zero never.
pub type Fuse = Arc<AtomicI64>;

pub struct SimOutside {
    pub kernel: Kernel,
    pub life: u64,
    pub disk: Arc<FusedDisk>,
    pub pending: Pending,
    pub next_commit: u64,
}

impl SimOutside {
    fn to_head(&self, after: f64, job: impl FnOnce(&mut Head) + Send + 'static) {
        let life = self.life;
        self.kernel.after(after, move |sim| sim.with_head(life, job));
    }

    fn disk_time(&self) -> f64 {
        self.kernel.between(DISK.0, DISK.1)
    }
}

impl Outside for SimOutside {
    fn now(&self) -> f64 {
        self.kernel.now()
    }

    fn clock(&self) -> Duration {
        Duration::from_secs_f64(self.kernel.now())
    }

    fn fresh_run_id(&mut self) -> RunId {
        RunId::new(format!("{:016x}", self.kernel.below(usize::MAX)))
    }

    fn to_agent(&mut self, node: &NodeId, order: v1::AgentOrder) {
        let (life, node) = (self.life, node.clone());
        self.kernel.after(0.0, move |sim| sim.head_orders(life, &node, order));
    }

    fn set_timer(&mut self, run: RunId, timer: Timer, after: Duration) {
        self.to_head(after.as_secs_f64(), move |head| head.on_timer(&run, timer));
    }

    fn set_retry_timer(&mut self, run: RunId, after: Duration) {
        self.to_head(after.as_secs_f64(), move |head| head.on_retry_timer(&run));
    }

    fn set_progress_timer(&mut self, run: RunId, after: Duration) {
        self.to_head(after.as_secs_f64(), move |head| head.on_progress_due(&run));
    }

    fn set_upkeep_timer(&mut self, run: RunId, after: Duration) {
        self.to_head(after.as_secs_f64(), move |head| head.on_upkeep_due(&run));
    }

    fn set_lease_timer(&mut self, run: RunId, after: Duration) {
        self.to_head(after.as_secs_f64(), move |head| head.on_lease_over(&run));
    }

    fn when_watcher_ready(&mut self, run: RunId, watcher: u64, _: mpsc::Sender<v1::RunEvent>) {
        self.to_head(0.01, move |head| head.on_watcher_ready(&run, watcher));
    }

    fn open_run(&mut self, request: OpenRequest) {
        let disk = self.disk.clone();
        self.to_head(self.disk_time(), move |head| {
            let result = disk.open_run(&request);
            head.on_run_opened(&request.id, result);
        });
    }

    fn find_latest(&mut self, run: RunId, storage: Storage) {
        self.to_head(self.disk_time(), move |head| head.on_latest_found(&run, Checkpoints::look(&storage)));
    }

    fn commit(&mut self, run: RunId, commit: Commit) {
        self.next_commit += 1;
        let (number, life, pending) = (self.next_commit, self.life, self.pending.clone());
        pending.lock().unwrap_or_else(PoisonError::into_inner).insert(number, commit);
        let (begins, told) = (self.disk_time(), self.disk_time());
        self.kernel.after(begins, move |sim| {
            let commit = pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
            let Some(mut commit) = commit.filter(|_| sim.is_head(life)) else { return };
            let (iteration, result) = (commit.iteration, commit.carry_out());
            sim.check_storage();
            sim.kernel.after(told, move |sim| {
                sim.with_head(life, move |head| head.on_committed(&run, iteration, result, None));
            });
        });
    }

    fn keep_validation(&mut self, run: RunId, annotation: Annotation) {
        let (life, begins, told) = (self.life, self.disk_time(), self.disk_time());
        self.kernel.after(begins, move |sim| {
            if !sim.is_head(life) {
                return;
            }
            let result = annotation.carry_out();
            sim.check_storage();
            sim.kernel.after(told, move |sim| sim.with_head(life, move |head| head.on_validation_kept(&run, result)));
        });
    }

    fn open_experiment(&mut self, request: OpenExperiment) {
        let disk = self.disk.clone();
        self.to_head(self.disk_time(), move |head| {
            let result = disk.open_experiment(&request);
            head.on_experiment_opened(&request.id, result);
        });
    }

    fn set_budget_timer(&mut self, experiment: RunId, after: Duration) {
        self.to_head(after.as_secs_f64(), move |head| head.on_budget_over(&experiment));
    }

    fn adopt(&mut self, experiment: RunId, trial: TrialId, to: Storage, from: Storage) {
        let now = self.now();
        self.to_head(self.disk_time(), move |head| {
            let adopted = carril_store::adopt(&to, &from, now).map_err(Failure::from);
            head.on_adopted(&experiment, trial, adopted);
        });
    }

    fn discard(&mut self, _: RunId, _: String, _: Storage) {
        unreachable!("the storage of a simulation is a local path");
    }

    fn mirror(&mut self, _: RunId, _: Mirror) {
        unreachable!("the storage of a simulation is a local path");
    }
}

/// The real disk, with a fuse in every run that is opened.
pub struct FusedDisk {
    pub real: RealDisk,
    pub fuse: Fuse,
}

impl Disk for FusedDisk {
    fn open_run(&self, request: &OpenRequest) -> Result<RunOpened, Failure> {
        let opened = self.real.open_run(request)?;
        let disk = Box::new(FusedRun { real: opened.disk, fuse: self.fuse.clone() });
        Ok(RunOpened { disk, ..opened })
    }

    fn open_experiment(&self, request: &OpenExperiment) -> Result<ExperimentOpened, Failure> {
        self.real.open_experiment(request)
    }
}

struct FusedRun {
    real: Box<dyn RunDisk>,
    fuse: Fuse,
}

impl FusedRun {
    fn burn(&self) {
        if self.fuse.fetch_sub(1, Ordering::Relaxed) == 0 {
            std::panic::resume_unwind(Box::new(Crashed));
        }
    }
}

impl RunDisk for FusedRun {
    fn journal(&mut self, record: &JournalRecord) -> Result<(), Failure> {
        self.burn();
        self.real.journal(record)
    }

    fn append(&mut self, at: f64, iteration: u64, reported: &Metrics, automatic: &Metrics) -> Result<(), Failure> {
        self.burn();
        self.real.append(at, iteration, reported, automatic)
    }

    fn append_rank(&mut self, rank: Rank, metrics: &Metrics) -> Result<(), Failure> {
        self.burn();
        self.real.append_rank(rank, metrics)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.real.flush()
    }

    fn set_status(&mut self, status: RunStatus) -> Result<(), Failure> {
        self.burn();
        self.real.set_status(status)
    }

    fn renew(&mut self, now: f64) -> Result<(), Failure> {
        self.burn();
        self.real.renew(now)
    }

    fn restore(&mut self) -> Result<bool, Failure> {
        self.real.restore()
    }

    fn take_warnings(&mut self) -> Vec<String> {
        self.real.take_warnings()
    }

    fn write_stacks(&mut self, text: &str) -> Result<(), Failure> {
        self.real.write_stacks(text)
    }

    fn end(&mut self, status: RunStatus, at: f64, error: Option<(String, serde_json::Value)>) -> Result<(), Failure> {
        self.burn();
        self.real.end(status, at, error)
    }

    fn rescue(&mut self) -> Result<PathBuf, Failure> {
        self.burn();
        self.real.rescue()
    }
    fn is_in_place(&self) -> bool {
        self.real.is_in_place()
    }
    fn hold(&mut self) -> Result<(), Failure> {
        self.real.hold()
    }
}
