//! What a training function can do: say where it is, report, wait for the others, return.
//!
//! SESSION-1: a report that has returned is in the log: the death of the process right after it loses nothing.
//! SESSION-2: a checkpoint's files are stored before the report that names them is written.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carril_net::from_status;
use carril_proto::v1;
use carril_store::{ReportLogWriter, Tries};
use carril_types::{ErrorCode, Failure, Metrics, ValidationTask, WorkerFailure, WorkerKey};
use prost::Message;

use crate::data_wait::DataWait;
use crate::error::SessionError;
use crate::link::{AGENT_LOST_EXIT, Link, put_blob};

/// So often the agent is told how far the function is.
const BETWEEN_PROGRESS: Duration = Duration::from_millis(200);

/// A rank whose reports are larger waits until they are taken: the log and the head's memory stay small however fast it reports.
const MOST_ON_THEIR_WAY: u64 = 16 << 20;

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

#[derive(Clone, Debug, Default)]
pub struct ReportOptions {
    /// The directory whose files are the checkpoint.
    pub checkpoint: Option<PathBuf>,
    /// The directory is given away: it is moved, not copied.
    pub give_away: bool,
    /// The checkpoint's name, instead of the counted one.
    pub name: Option<String>,
    pub saving: Saving,
    /// This rank was told of a preemption before it made the report: see `wait_for_end`.
    pub last: bool,
    /// The checkpoint is to be checked by the user's function.
    pub validation: Option<ValidationTask>,
    /// Only for its checkpoint: nobody is told of the report.
    pub silent: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Saving {
    /// With storage elsewhere, the report waits for the commit.
    #[default]
    Sync,
    /// The report waits for its files to be taken, and for nothing else.
    Async,
    /// The directory names a place in the run's storage where the files are already.
    InPlace,
}

pub struct Session {
    key: WorkerKey,
    link: Arc<Link>,
    assignment: v1::Assignment,
    /// Reports up to this number are not decided on: in a trial.
    free: AtomicU64,
    log: Mutex<ReportLogWriter>,
    reports: AtomicU64,
    /// How far the data sets have been read, as JSON: it goes with each report.
    data_position: Mutex<String>,
    granted: AtomicU64,
    /// Bytes of reports since the head last said that it has taken all.
    on_their_way: AtomicU64,
    collectives: AtomicU64,
    data_waits: AtomicU64,
    /// The one that runs the function.
    thread: ThreadId,
    latest: Mutex<Latest>,
    /// The function has asked, and was told that the machine is going.
    told_of_preemption: AtomicBool,
    /// When the agent was last told how far the function is.
    progressed: Mutex<Option<Instant>>,
}

enum Latest {
    Known(Option<String>),
    /// Came with this report, and may not be committed yet.
    Reported(u64),
}

impl Session {
    /// By the environment that the agent gave this process.
    pub fn from_environment() -> Result<Self, SessionError> {
        let variable = |name| std::env::var(name).map_err(|_| SessionError::NotAWorker { variable: name });
        let socket = PathBuf::from(variable("CARRIL_AGENT")?);
        let value = variable("CARRIL_WORKER")?;
        let key = value.parse().map_err(|_| SessionError::BadKey { variable: "CARRIL_WORKER", value })?;
        if let Ok(agent) = variable("CARRIL_AGENT_PID")?.parse() {
            die_with(agent);
        }
        Self::connect(socket, key)
    }

    fn connect(socket: PathBuf, key: WorkerKey) -> Result<Self, SessionError> {
        let (link, assignment) = Link::open(socket, &key)?;
        Self::begin(Arc::new(link), key, assignment)
    }

    fn begin(link: Arc<Link>, key: WorkerKey, assignment: v1::Assignment) -> Result<Self, SessionError> {
        let log = ReportLogWriter::open(Path::new(&assignment.report_log)).map_err(Failure::from)?;
        let latest = Some(assignment.latest_checkpoint.clone()).filter(|path| !path.is_empty());
        let reports = assignment.reports;
        crate::title::show(&assignment.run_name, key.rank.0, assignment.world_size);
        Ok(Self {
            granted: AtomicU64::new(assignment.granted),
            free: AtomicU64::new(assignment.trial.as_ref().map_or(u64::MAX, |trial| trial.free)),
            key,
            link,
            assignment,
            log: Mutex::new(log),
            on_their_way: AtomicU64::new(0),
            reports: AtomicU64::new(reports),
            data_position: Mutex::default(),
            collectives: AtomicU64::new(0),
            data_waits: AtomicU64::new(0),
            thread: std::thread::current().id(),
            latest: Mutex::new(Latest::Known(latest)),
            told_of_preemption: AtomicBool::new(false),
            progressed: Mutex::default(),
        })
    }

    pub fn key(&self) -> &WorkerKey {
        &self.key
    }

    pub fn assignment(&self) -> &v1::Assignment {
        &self.assignment
    }

    /// After `returned`: the session of the next trial that this process serves, its output going where it belongs; `None` when the
    /// process is to leave.
    pub async fn next(&self) -> Result<Option<Self>, SessionError> {
        let Some(assignment) = self.link.next_assignment().await else { return Ok(None) };
        let key = assignment.worker.clone().unwrap_or_default().into();
        redirect_output(Path::new(&assignment.output)).map_err(|source| SessionError::ReportLog { source })?;
        Self::begin(self.link.clone(), key, assignment).map(Some)
    }

    /// What becomes of the report that was made last. `asks` where the function itself has said something that counts.
    pub async fn decision(&self, asks: bool) -> Result<String, Failure> {
        let reports = self.reports.load(Ordering::Relaxed);
        if self.assignment.trial.is_none() || (!asks && reports <= self.free.load(Ordering::Relaxed)) {
            return Ok("continue".to_owned());
        }
        let words = self.wait("decision", reports - 1, Vec::new()).await?;
        let words = String::from_utf8_lossy(&words).into_owned();
        let (verdict, free) = words.split_once(' ').unwrap_or((&words, "0"));
        self.free.store(free.parse().unwrap_or(0), Ordering::Relaxed);
        Ok(verdict.to_owned())
    }

    /// The runtime on which the futures of this session are driven.
    pub fn runtime(&self) -> &tokio::runtime::Handle {
        self.link.handle()
    }

    /// The user's function begins now.
    /// With `stacks`, this process writes its stacks into the file `CARRIL_STACKS` on the signal `stack_signal`.
    pub fn ready(&self, stacks: bool) {
        self.link.send(v1::WorkerReady {
            worker: None,
            at: unix_time(),
            pid: std::process::id(),
            stacks,
            clock: clock(),
        });
    }

    /// Whether the next report must wait first (`wait_for_room`): for slower ranks, or for a head that has much to do.
    pub fn is_ahead(&self) -> bool {
        self.reports.load(Ordering::Relaxed) >= self.granted.load(Ordering::Relaxed)
            || self.on_their_way.load(Ordering::Relaxed) > MOST_ON_THEIR_WAY
    }

    /// Waits until this rank may report again. The answer comes behind everything that was reported before, so that nothing is on
    /// its way when it is there.
    pub async fn wait_for_room(&self) -> Result<(), Failure> {
        self.on_their_way.store(0, Ordering::Relaxed);
        let granted = self.wait("grant", self.reports.load(Ordering::Relaxed), Vec::new()).await?;
        let granted = String::from_utf8_lossy(&granted).parse().unwrap_or(0);
        self.granted.fetch_max(granted, Ordering::Relaxed);
        Ok(())
    }

    /// Appends to this rank's log. Waits for nobody: see `is_ahead` and `store_checkpoint` for what must come first. Only where the
    /// disk is full, `pause` is called before the next try.
    /// `stall` is how long the caller has waited for its files to be taken.
    pub fn report(
        &self,
        metrics: Metrics,
        options: &ReportOptions,
        stall: Duration,
        pause: impl Fn(Duration),
    ) -> Result<(), SessionError> {
        let mut report = self.encode_report(metrics, options, stall);
        let tries = Tries::new();
        loop {
            match (self.append(&mut report, options), tries.pause()) {
                (Err(error), Some(time)) if is_full(&error) => pause(time),
                (done, _) => return done.map_err(|source| SessionError::ReportLog { source }),
            }
        }
    }

    fn encode_report(&self, metrics: Metrics, options: &ReportOptions, stall: Duration) -> v1::Report {
        v1::Report {
            sequence: 0,
            at: unix_time(),
            clock: clock(),
            metrics: Some(metrics.into()),
            checkpoint: options.checkpoint.is_some(),
            checkpoint_name: options.name.clone().unwrap_or_default(),
            droppable: options.saving == Saving::Async,
            stall_s: stall.as_secs_f64(),
            last: options.last,
            validation: options.validation.clone().map(Into::into),
            silent: options.silent,
            data_position: self.data_position.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    fn append(&self, report: &mut v1::Report, options: &ReportOptions) -> std::io::Result<()> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let sequence = self.reports.load(Ordering::Relaxed);
        report.sequence = sequence;
        let length = log.append(|out| report.encode(out).expect("a Vec has room"))?;
        self.on_their_way.fetch_add(length as u64, Ordering::Relaxed);
        self.reports.store(sequence + 1, Ordering::Relaxed);
        if options.checkpoint.is_some() {
            *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Latest::Reported(sequence);
        }
        Ok(())
    }

    pub fn set_data_position(&self, position: String) {
        *self.data_position.lock().unwrap_or_else(PoisonError::into_inner) = position;
    }

    /// How far the function is: so much is done of so much. It may be said at every step: only now and then somebody is told.
    pub fn set_progress(&self, done: f64, total: f64) {
        if self.may_tell_progress() || done >= total {
            self.link.send(v1::WorkerProgressed { done, total, ..Default::default() });
        }
    }

    /// How many rows of its part of a data set this rank has read in an epoch. It may be said with every batch.
    pub fn set_rows_read(&self, data: &str, epoch: u64, done: u64, total: u64) {
        if self.may_tell_progress() {
            let (done, total, data) = (done as f64, total as f64, data.to_owned());
            self.link.send(v1::WorkerProgressed { worker: None, done, total, data, epoch });
        }
    }

    fn may_tell_progress(&self) -> bool {
        let mut last = self.progressed.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| last.elapsed() < BETWEEN_PROGRESS) {
            return false;
        }
        *last = Some(Instant::now());
        true
    }

    /// Has the files for the next report taken; returns when the caller may do with them what it wants.
    pub async fn store_checkpoint(&self, options: &ReportOptions) -> Result<(), Failure> {
        let Some(directory) = &options.checkpoint else { return Ok(()) };
        self.wait("place", self.reports.load(Ordering::Relaxed), Vec::new()).await?;
        let mut directory = directory.display().to_string();
        if options.saving == Saving::InPlace {
            // Right inside the run's storage: its name says where.
            let unnamed =
                || Failure::new(ErrorCode::Internal, format!("`{directory}` has no name in the run's storage"));
            directory = options.name.clone().ok_or_else(unnamed)?;
        }
        let request = v1::StoreRequest {
            worker: Some(self.key.clone().into()),
            sequence: self.reports.load(Ordering::Relaxed),
            directory,
            r#move: options.give_away,
            in_place: options.saving == Saving::InPlace,
        };
        let stored = self.link.client().store_checkpoint(request).await;
        stored.map(drop).map_err(|status| from_status(status, ErrorCode::AgentLost))
    }

    /// Whether a report with a checkpoint has to wait for its commit: the promise of SYNC where the files go elsewhere.
    pub fn waits_for_commit(&self, options: &ReportOptions) -> bool {
        let assignment = self.assignment();
        let elsewhere = assignment.storage != assignment.run_directory || !assignment.filesystem_path.is_empty();
        options.checkpoint.is_some() && options.saving == Saving::Sync && elsewhere
    }

    /// The newest checkpoint as this rank knows it, as a path or URI; waits until one that it just reported is settled.
    pub async fn latest_checkpoint(&self) -> Result<Option<String>, Failure> {
        let sequence = match &*self.latest.lock().unwrap_or_else(PoisonError::into_inner) {
            Latest::Known(path) => return Ok(path.clone()),
            Latest::Reported(sequence) => *sequence,
        };
        let path = self.wait("checkpoint", sequence, Vec::new()).await?;
        let path = Some(String::from_utf8_lossy(&path).into_owned()).filter(|path| !path.is_empty());
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*latest, Latest::Reported(newest) if newest == sequence) {
            *latest = Latest::Known(path.clone());
        }
        Ok(path)
    }

    /// The checkpoints that are kept, the best last.
    pub async fn checkpoints(&self) -> Result<Vec<v1::Checkpoint>, Failure> {
        let list = self.wait("checkpoints", self.reports.load(Ordering::Relaxed), Vec::new()).await?;
        let list = v1::CheckpointList::decode(list.as_slice());
        let broken =
            |error| Failure::new(ErrorCode::Internal, format!("the list of checkpoints cannot be read: {error}"));
        list.map(|list| list.checkpoints).map_err(broken)
    }

    /// Waits until every checkpoint of the reports that this rank has made is stored, also where other ranks gave it.
    pub async fn wait_for_checkpoints(&self) -> Result<(), Failure> {
        self.wait("settled", self.reports.load(Ordering::Relaxed), Vec::new()).await.map(drop)
    }

    /// Waits until the user's function has checked every checkpoint that is to be checked.
    pub async fn wait_for_validations(&self) -> Result<(), Failure> {
        self.wait("validated", self.reports.load(Ordering::Relaxed), Vec::new()).await.map(drop)
    }

    pub async fn barrier(&self) -> Result<(), Failure> {
        let sequence = self.collectives.fetch_add(1, Ordering::Relaxed);
        self.wait("barrier", sequence, Vec::new()).await.map(drop)
    }

    /// Every rank gets rank 0's payload.
    pub async fn broadcast(&self, payload: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let sequence = self.collectives.fetch_add(1, Ordering::Relaxed);
        self.wait("broadcast", sequence, payload).await
    }

    /// Tells that the function waits for `what` of these ranks. Nothing in another thread: the function may go on meanwhile.
    pub fn wait_for_data(self: &Arc<Self>, what: &str, ranks: &[usize]) -> Option<DataWait> {
        let sequence = self.data_waits.fetch_add(1, Ordering::Relaxed);
        let is_function = std::thread::current().id() == self.thread;
        is_function.then(|| DataWait::begin(self.clone(), sequence, what, ranks))
    }

    pub(crate) fn wait(
        &self,
        kind: &str,
        sequence: u64,
        payload: Vec<u8>,
    ) -> impl Future<Output = Result<Vec<u8>, Failure>> + use<> {
        let wait = v1::WorkerWaits { worker: Some(self.key.clone().into()), kind: kind.to_owned(), sequence, payload };
        let mut client = self.link.client();
        async move {
            let reply = client.wait(wait).await;
            reply.map(|reply| reply.into_inner().payload).map_err(|status| from_status(status, ErrorCode::AgentLost))
        }
    }

    /// Why and until when, in Unix time, the function may bring a last checkpoint; `None` while nobody takes the machine.
    pub fn preemption(&self) -> Option<(String, f64)> {
        let told = self.link.preemption()?;
        self.told_of_preemption.store(true, Ordering::Relaxed);
        Some((told.reason, told.deadline))
    }

    /// Whether a checkpoint that is reported now is the last one.
    pub fn is_preempted(&self) -> bool {
        self.link.preemption().is_some()
    }

    /// After a last checkpoint: the run ends with it. Returns only when it could not be stored, and another may be tried.
    pub async fn wait_for_end(&self) -> Result<(), Failure> {
        self.wait("preempted", self.reports.load(Ordering::Relaxed) - 1, Vec::new()).await.map(drop)
    }

    /// Stores bytes on the node under their hash.
    pub async fn put_blob(&self, data: Vec<u8>) -> Result<String, Failure> {
        put_blob(self.link.client(), data).await
    }

    pub fn returned(&self, value: Option<String>) {
        let preempted = self.told_of_preemption.load(Ordering::Relaxed);
        self.link.send(v1::WorkerReturned { worker: None, value: value.unwrap_or_default(), preempted });
    }

    pub fn failed(&self, failure: WorkerFailure) {
        self.link.send(v1::WorkerFailed { worker: None, failure: Some(failure.into()), ..Default::default() });
    }

    /// Whether the agent has told this process to go, now or within that time.
    pub async fn is_told_to_exit(&self, within: std::time::Duration) -> bool {
        let mut exit = self.link.exit_order();
        tokio::time::timeout(within, exit.wait_for(|exit| *exit)).await.is_ok()
    }

    /// Whether the agent has told this process to go.
    pub fn is_told(&self) -> bool {
        *self.link.exit_order().borrow()
    }

    /// Waits until the agent lets this process go.
    pub async fn wait_exit(&self) {
        let mut exit = self.link.exit_order();
        // An error means that the connection is gone, and with it the process, very soon.
        let _ = exit.wait_for(|exit| *exit).await;
        self.link.leave();
    }
}

/// The signal on which a worker writes its stacks: one that nobody else uses.
pub fn stack_signal() -> i32 {
    nix::libc::SIGRTMIN() + 9
}

fn redirect_output(path: &Path) -> std::io::Result<()> {
    let file = std::fs::File::options().create(true).append(true).open(path)?;
    nix::unistd::dup2_stdout(&file)?;
    nix::unistd::dup2_stderr(&file)?;
    Ok(())
}

/// The time since a moment that all processes of this host share, in seconds, whatever is done to the system's clock.
fn clock() -> f64 {
    let mut time = nix::libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is there as long as the call lasts.
    unsafe { nix::libc::clock_gettime(nix::libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn unix_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Ties this process to its agent. The thread of the link sees the agent's end and cleans up; should the process be stopped
/// then, the kernel wakes it for that. A worker that was forked from the zygote becomes the agent's child a moment after it
/// begins: asking earlier would tie it to the process in between.
fn die_with(agent: u32) {
    use nix::libc;
    const LOOKS: usize = 5_000;
    let is_parent = || nix::unistd::getppid().as_raw() as u32 == agent;
    // SAFETY: asks whether the process is there, and sends nothing.
    let is_alive = || unsafe { libc::kill(agent as libc::pid_t, 0) } == 0;
    for _ in 0..LOOKS {
        if is_parent() {
            // SAFETY: sets an attribute of this process.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGCONT) };
        }
        // Asked after the line above: an agent that died before it would never be noticed.
        if !is_alive() {
            std::process::exit(AGENT_LOST_EXIT);
        }
        if is_parent() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
