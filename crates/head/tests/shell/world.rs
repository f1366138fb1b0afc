//! A head with nothing real around it but files in a temporary directory: orders, timers and work are kept for the test.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use carril_core::Timer;
use carril_core::tune::TrialId;
use carril_head::{
    Annotation, Checkpoints, Commit, Committed, Disk, ExperimentOpened, Head, Mirror, OpenExperiment, OpenRequest,
    Outside, RealDisk, RunDisk, RunOpened, Watcher,
};
use carril_proto::v1;
use carril_store::{BlobStore, Header, Journal, JournalRecord, Owner, Shard, Storage, StoredFile};
use carril_types::{
    ErrorCode, Failure, FailureSpec, Metrics, NodeId, Rank, Resources, RunId, RunSpec, RunStatus, WorkerCommand,
};
use tokio::sync::{mpsc, oneshot};

type Job = Box<dyn FnOnce(&mut Head) + Send>;

/// What the head has asked of the world.
#[derive(Default)]
pub struct Asked {
    pub orders: Vec<(NodeId, v1::AgentOrder)>,
    pub commits: Vec<u64>,
    pub retry_timers: usize,
    jobs: VecDeque<Job>,
    clock: Duration,
}

type Shared = Arc<Mutex<Asked>>;

fn lock(shared: &Shared) -> MutexGuard<'_, Asked> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Recorder {
    asked: Shared,
    disk: Arc<FaultyDisk>,
}

impl Recorder {
    fn job(&self, job: impl FnOnce(&mut Head) + Send + 'static) {
        lock(&self.asked).jobs.push_back(Box::new(job));
    }
}

impl Outside for Recorder {
    fn now(&self) -> f64 {
        1_000.0
    }
    fn clock(&self) -> Duration {
        lock(&self.asked).clock
    }
    fn fresh_run_id(&mut self) -> RunId {
        RunId::new("0123456789abcdef")
    }
    fn to_agent(&mut self, node: &NodeId, order: v1::AgentOrder) {
        lock(&self.asked).orders.push((node.clone(), order));
    }
    fn set_timer(&mut self, _: RunId, _: Timer, _: Duration) {}
    fn set_retry_timer(&mut self, _: RunId, _: Duration) {
        lock(&self.asked).retry_timers += 1;
    }
    fn set_progress_timer(&mut self, _: RunId, _: Duration) {}
    fn set_upkeep_timer(&mut self, _: RunId, _: Duration) {}
    fn set_lease_timer(&mut self, _: RunId, _: Duration) {}
    fn when_watcher_ready(&mut self, _: RunId, _: u64, _: mpsc::Sender<v1::RunEvent>) {}
    fn open_run(&mut self, request: OpenRequest) {
        let opened = self.disk.open_run(&request);
        self.job(move |head| head.on_run_opened(&request.id, opened));
    }
    fn find_latest(&mut self, run: RunId, storage: Storage) {
        self.job(move |head| head.on_latest_found(&run, Checkpoints::look(&storage)));
    }
    fn commit(&mut self, _: RunId, commit: Commit) {
        lock(&self.asked).commits.push(commit.iteration);
    }
    fn keep_validation(&mut self, _: RunId, _: Annotation) {}
    fn discard(&mut self, _: RunId, _: String, _: Storage) {}
    fn open_experiment(&mut self, _: OpenExperiment) {}
    fn set_budget_timer(&mut self, _: RunId, _: Duration) {}
    fn adopt(&mut self, _: RunId, _: TrialId, _: Storage, _: Storage) {}
    fn mirror(&mut self, _: RunId, _: Mirror) {}
}

/// The real disk, whose journals cannot be written while `full` is set, and on which no run can end while `sealed` is.
struct FaultyDisk {
    real: RealDisk,
    full: Arc<AtomicBool>,
    sealed: Arc<AtomicBool>,
}

impl Disk for FaultyDisk {
    fn open_run(&self, request: &OpenRequest) -> Result<RunOpened, Failure> {
        let opened = self.real.open_run(request)?;
        let (full, sealed) = (self.full.clone(), self.sealed.clone());
        Ok(RunOpened { disk: Box::new(FaultyRun { real: opened.disk, full, sealed }), ..opened })
    }
    fn open_experiment(&self, request: &OpenExperiment) -> Result<ExperimentOpened, Failure> {
        self.real.open_experiment(request)
    }
}

struct FaultyRun {
    real: Box<dyn RunDisk>,
    full: Arc<AtomicBool>,
    sealed: Arc<AtomicBool>,
}

impl RunDisk for FaultyRun {
    fn journal(&mut self, record: &JournalRecord) -> Result<(), Failure> {
        match self.full.load(Ordering::Relaxed) {
            true => Err(Failure::new(ErrorCode::Storage, "the disk is full")),
            false => self.real.journal(record),
        }
    }
    fn append(&mut self, at: f64, iteration: u64, reported: &Metrics, automatic: &Metrics) -> Result<(), Failure> {
        self.real.append(at, iteration, reported, automatic)
    }
    fn append_rank(&mut self, rank: Rank, metrics: &Metrics) -> Result<(), Failure> {
        self.real.append_rank(rank, metrics)
    }
    fn flush(&mut self) -> Result<(), Failure> {
        self.real.flush()
    }
    fn set_status(&mut self, status: RunStatus) -> Result<(), Failure> {
        self.real.set_status(status)
    }
    fn renew(&mut self, now: f64) -> Result<(), Failure> {
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
        match self.sealed.load(Ordering::Relaxed) {
            true => Err(Failure::new(ErrorCode::StorageRefused, "the disk is sealed")),
            false => self.real.end(status, at, error),
        }
    }
    fn rescue(&mut self) -> Result<PathBuf, Failure> {
        self.real.rescue()
    }
    fn is_in_place(&self) -> bool {
        self.real.is_in_place()
    }
    fn hold(&mut self) -> Result<(), Failure> {
        self.real.hold()
    }
}

/// A head, two nodes of one CPU each, and one run with a rank on each of them.
pub struct World {
    pub head: Head,
    pub run: RunId,
    pub events: mpsc::Receiver<v1::RunEvent>,
    asked: Shared,
    full: Arc<AtomicBool>,
    sealed: Arc<AtomicBool>,
    directory: tempfile::TempDir,
}

pub const NODES: [&str; 2] = ["one", "two"];

impl World {
    /// `full`: the journal cannot be written from the beginning on. `room` is for how many events the watcher has.
    pub fn new(full: bool, room: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let full = Arc::new(AtomicBool::new(full));
        let blobs = BlobStore::create(directory.path().join("blobs")).unwrap();
        let real = RealDisk::new(directory.path().join("spool"), blobs, Owner::this_process());
        let asked = Shared::default();
        let sealed = Arc::new(AtomicBool::new(false));
        let disk = Arc::new(FaultyDisk { real, full: full.clone(), sealed: sealed.clone() });
        let mut head = Head::new(Box::new(Recorder { asked: asked.clone(), disk }));
        for name in NODES {
            let total = HashMap::from([("CPU".to_owned(), 1.0)]);
            let node = v1::Node { id: name.into(), hostname: format!("host-{name}"), total, ..Default::default() };
            head.on_agent_message(&NodeId::new(name), node.into());
        }
        let spec = serde_json::to_string(&spec(&directory)).unwrap();
        let (sender, mut reply) = oneshot::channel();
        head.submit(v1::RunRequest { spec, ..Default::default() }, sender);
        let (sender, events) = mpsc::channel(room);
        let mut world = Self { head, run: RunId::new("0123456789abcdef"), events, asked, full, sealed, directory };
        world.work();
        reply.try_recv().expect("it is answered").expect("it is taken");
        let watcher = Watcher { id: 1, reports: true, output: true, quiet: false, sender };
        world.head.watch(&world.run, watcher).unwrap();
        world
    }

    /// Does what the head has asked for.
    pub fn work(&mut self) {
        loop {
            let Some(job) = lock(&self.asked).jobs.pop_front() else { return };
            job(&mut self.head);
        }
    }

    pub fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }

    pub fn set_sealed(&self, sealed: bool) {
        self.sealed.store(sealed, Ordering::Relaxed);
    }

    pub fn asked<T>(&self, look: impl FnOnce(&Asked) -> T) -> T {
        look(&lock(&self.asked))
    }

    /// That time passes, and the retry is due.
    pub fn retry_timer_after(&mut self, seconds: u64) {
        let due = std::mem::take(&mut lock(&self.asked).retry_timers);
        assert_eq!(due, 1, "one retry is due");
        lock(&self.asked).clock += Duration::from_secs(seconds);
        let run = self.run.clone();
        self.head.on_retry_timer(&run);
        self.work();
    }

    pub fn tell(&mut self, node: usize, message: impl Into<v1::AgentMessage>) {
        self.head.on_agent_message(&NodeId::new(NODES[node]), message.into());
        self.work();
    }

    pub fn worker(&self, attempt: u32, rank: u32) -> Option<v1::WorkerKey> {
        Some(v1::WorkerKey { run_id: self.run.as_str().to_owned(), attempt, rank })
    }

    /// Both ranks run the function.
    pub fn begin(&mut self, attempt: u32) {
        for rank in 0..2 {
            let worker = self.worker(attempt, rank);
            self.tell(rank as usize, v1::WorkerStarted { worker, pid: 10 + rank, how: "forked".into() });
        }
        for rank in 0..2 {
            let worker = self.worker(attempt, rank);
            self.tell(rank as usize, v1::WorkerReady { worker, at: 1_000.0, ..Default::default() });
        }
    }

    /// Both ranks make the report with that number, with a checkpoint.
    pub fn report_checkpoint(&mut self, sequence: u64) {
        for rank in 0..2 {
            let report = v1::Report { sequence, checkpoint: true, ..Default::default() };
            let worker = self.worker(0, rank);
            self.tell(rank as usize, v1::Reports { worker: worker.clone(), reports: vec![report] });
            let shard = Some(v1::Shard { rank, ..Default::default() });
            let iteration = sequence + 1;
            self.tell(rank as usize, v1::CheckpointPrepared { worker, iteration, shard, ..Default::default() });
        }
    }

    /// A checkpoint is committed, and its directory taken away: where it is now.
    pub fn commit_one(&mut self) -> PathBuf {
        self.report_checkpoint(0);
        let (run, away) = (self.directory.path().join("runs/run"), self.directory.path().join("away"));
        let (created, metrics, data_position) = (1.0, serde_json::Value::Null, serde_json::Value::Null);
        let header =
            Header { iteration: 1, attempt: 0, created, metrics, own: Vec::new(), validation: None, data_position };
        let spool = self.directory.path().join("spool/one");
        std::fs::create_dir_all(&spool).unwrap();
        std::fs::write(spool.join("file"), "content").unwrap();
        let files =
            carril_store::prepare(&spool, vec![StoredFile { path: "file".into(), size: 0, crc32c: None }], false);
        let shards = [Shard { rank: Rank(0), spool, files: files.unwrap() }];
        let (storage, name) = (Storage::local(&run), "checkpoint_000000");
        let committed = carril_store::commit(&storage, name, &header, &shards, false).unwrap();
        let committed = Committed { location: committed.location, bytes: 7, free: None, trouble: None };
        let id = self.run.clone();
        self.head.on_committed(&id, 1, Ok(committed), None);
        std::fs::rename(run.join(name), &away).unwrap();
        away
    }

    pub fn bring_back(&self, away: &Path) {
        std::fs::rename(away, self.directory.path().join("runs/run/checkpoint_000000")).unwrap();
    }

    /// The nodes that were ordered to do something of the kind, in order.
    pub fn ordered(&self, is: fn(&v1::agent_order::Kind) -> bool) -> Vec<String> {
        self.asked(|asked| {
            let meant = asked.orders.iter().filter(|(_, order)| order.kind.as_ref().is_some_and(is));
            meant.map(|(node, _)| node.as_str().to_owned()).collect()
        })
    }

    pub fn started(&self) -> Vec<String> {
        self.ordered(|kind| matches!(kind, v1::agent_order::Kind::Start(_)))
    }

    pub fn stopped(&self) -> Vec<String> {
        self.ordered(|kind| matches!(kind, v1::agent_order::Kind::Stop(_)))
    }

    /// Everything that the watcher was told since the last call.
    pub fn told(&mut self) -> Vec<v1::run_event::Kind> {
        let mut told = Vec::new();
        loop {
            while let Ok(event) = self.events.try_recv() {
                told.extend(event.kind);
            }
            let run = self.run.clone();
            self.head.on_watcher_ready(&run, 1);
            if self.events.is_empty() {
                return told;
            }
        }
    }

    pub fn ending(&mut self) -> Option<v1::RunEnded> {
        self.told()
            .into_iter()
            .find_map(|kind| if let v1::run_event::Kind::Ended(ended) = kind { Some(ended) } else { None })
    }

    pub fn journalled(&self) -> Vec<String> {
        let records = Journal::read(&self.directory.path().join("runs/run/journal")).unwrap();
        records.into_iter().map(|record| record.event).collect()
    }
}

fn spec(directory: &tempfile::TempDir) -> RunSpec {
    RunSpec {
        name: "run".into(),
        storage_path: directory.path().join("runs").display().to_string(),
        num_workers: 2,
        resources_per_worker: Resources::from_amounts([("CPU", 1.0)]).unwrap(),
        worker: WorkerCommand::Command { arguments: vec!["pretended".into()] },
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
        num_to_keep: None,
        checkpoint_score_attribute: None,
        checkpoint_score_order: Default::default(),
        failures: FailureSpec { max_failures: 0, max_infrastructure_failures: Some(3), fail_fast: false },
        preemption_grace_s: 30.0,
        continues: None,
        head_panic: None,
        validation: None,
        trial: None,
        parent: None,
    }
}
