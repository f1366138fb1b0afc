//! One private head for one test, and what a test asks of it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use carril_client::{Client, PrivateHead, PrivateOptions, RunWatch, start_private};
use carril_proto::v1;
use carril_proto::v1::run_event::Kind;
use carril_types::{Failure, OnExisting, Resources, RunSpec, Value, WorkerCommand};

/// Ten times what any of these runs takes on a slow machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// Everything that a watcher was told of a run, sorted by kind.
#[derive(Default)]
pub struct RunEnd {
    pub ended: v1::RunEnded,
    pub states: Vec<String>,
    pub reports: Vec<v1::Reported>,
    pub warnings: Vec<String>,
    pub output: HashMap<u32, Vec<u8>>,
    /// Of the last attempt.
    pub started: Vec<v1::StartedWorker>,
    /// Of every attempt.
    pub pids: Vec<u32>,
    pub restarts: Vec<v1::Restarted>,
    pub path: PathBuf,
}

/// What a failing test shows: the story, without the metrics.
impl fmt::Debug for RunEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let iterations: Vec<u64> = self.reports.iter().map(|report| report.iteration).collect();
        let kept: Vec<&str> = self.ended.checkpoints.iter().map(|checkpoint| checkpoint.path.as_str()).collect();
        let output = self.output.iter().map(|(rank, text)| (rank, String::from_utf8_lossy(text)));
        f.debug_struct("RunEnd")
            .field("status", &self.ended.status)
            .field("headline", &self.ended.headline)
            .field("states", &self.states)
            .field("restarts", &self.restarts)
            .field("warnings", &self.warnings)
            .field("reports", &format!("{iterations:?}"))
            .field("checkpoints", &kept)
            .field("output", &output.collect::<BTreeMap<_, _>>())
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

pub struct Fixture {
    pub head: PrivateHead,
    pub client: Client,
    pub storage: tempfile::TempDir,
    /// Where the head has its directory.
    pub runtime: tempfile::TempDir,
    worker: PathBuf,
    names: std::cell::Cell<u32>,
}

impl Fixture {
    /// `bin` is the directory in which the built programs lie.
    pub async fn start(bin: &Path, cpus: f64) -> Self {
        let storage = tempfile::tempdir().expect("there is a temporary directory");
        Self::start_on(bin, cpus, storage, &[]).await
    }

    /// On storage that is there already, with more environment for the head.
    pub async fn start_on(bin: &Path, cpus: f64, storage: tempfile::TempDir, more: &[(&str, &str)]) -> Self {
        // A runtime directory of its own: the heads of other tests are not seen.
        let runtime = tempfile::tempdir().expect("there is a temporary directory");
        let runtime_directory = runtime.path().display().to_string();
        let more = more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let environment = [("XDG_RUNTIME_DIR".to_owned(), runtime_directory)].into_iter().chain(more).collect();
        let options = PrivateOptions { cpus: Some(cpus), environment, ..PrivateOptions::default() };
        let head = start_private(&bin.join("carril"), std::process::id(), &options).expect("a private head starts");
        let client = Client::connect(&head.socket).await.expect("it answers");
        Self { head, client, storage, runtime, worker: bin.join("carril-test-worker"), names: std::cell::Cell::new(0) }
    }

    pub fn spec(&self, workers: u32, behaviour: &[&str]) -> RunSpec {
        let number = self.names.replace(self.names.get() + 1);
        let mut arguments = vec![self.worker.display().to_string()];
        arguments.extend(behaviour.iter().map(|word| (*word).to_owned()));
        RunSpec {
            name: format!("run{number}"),
            storage_path: self.storage.path().display().to_string(),
            num_workers: workers,
            resources_per_worker: Resources::from_amounts([("CPU", 1.0)]).expect("one CPU is an amount"),
            worker: WorkerCommand::Command { arguments },
            working_directory: "/".into(),
            metrics_reduce: Default::default(),
            share_devices: false,
            on_existing: OnExisting::Refuse,
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
            failures: Default::default(),
            preemption_grace_s: 30.0,
            continues: None,
            head_panic: None,
            validation: None,
            trial: None,
            parent: None,
        }
    }

    pub async fn submit(&self, spec: &RunSpec) -> Result<v1::RunReply, Failure> {
        self.client.submit(spec, Value::None, String::new(), HashMap::new()).await
    }

    /// Runs to the end, or fails the test with all that was seen.
    pub async fn run(&self, workers: u32, behaviour: &[&str]) -> RunEnd {
        let spec = self.spec(workers, behaviour);
        let reply = self.submit(&spec).await.expect("the run is accepted");
        self.follow(&reply, |_| {}).await
    }

    /// Everything that happens in a run.
    pub async fn watch(&self, run_id: &str) -> RunWatch {
        let request = v1::WatchRequest { run_id: run_id.to_owned(), reports: true, output: true, quiet: false };
        self.client.watch(request).await.expect("the run can be watched")
    }

    /// Watches a run to its end; `seen` is called with each event.
    pub async fn follow(&self, reply: &v1::RunReply, mut seen: impl FnMut(&Kind)) -> RunEnd {
        let mut watch = self.watch(&reply.run_id).await;
        let mut end = RunEnd { path: PathBuf::from(&reply.path), ..RunEnd::default() };
        loop {
            let next = tokio::time::timeout(DEADLINE, watch.next()).await;
            let event =
                next.unwrap_or_else(|_| panic!("no event for {DEADLINE:?} after {end:#?}")).expect("the head lives");
            let Some(event) = event else { return end };
            seen(&event);
            match event {
                Kind::State(state) => end.states.push(state.state),
                Kind::Reported(reported) => end.reports.push(reported),
                Kind::Warning(warning) => end.warnings.push(warning.text),
                Kind::Output(output) => end.output.entry(output.rank).or_default().extend(output.text),
                Kind::Started(started) => {
                    end.pids.extend(started.workers.iter().map(|worker| worker.pid));
                    end.started = started.workers;
                }
                Kind::Restarted(restarted) => end.restarts.push(restarted),
                Kind::Ended(ended) => end.ended = ended,
                Kind::Progress(_)
                | Kind::Standing(_)
                | Kind::Failed(_)
                | Kind::Question(_)
                | Kind::Trial(_)
                | Kind::OfTrial(_) => {}
            }
        }
    }
}

impl Fixture {
    /// Ends the head as a crash would, and hands back what is on the disk.
    pub fn into_storage(mut self) -> tempfile::TempDir {
        let empty = tempfile::tempdir().expect("there is a temporary directory");
        std::mem::replace(&mut self.storage, empty)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = self.head.child.kill();
        let _ = self.head.child.wait();
    }
}
