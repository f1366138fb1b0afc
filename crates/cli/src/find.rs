//! Finds runs: in the heads of this user on this machine, and in the storage.

use std::path::{Path, PathBuf};
use std::time::Duration;

use carril_client::Client;
use carril_head::Mirror;
use carril_net::{PrivateDirectory, head_sockets};
use carril_proto::v1::RunSummary;
use carril_store::RunRecord;
use carril_types::{ErrorCode, Failure};
use clap::Args;

/// A head that does not answer within this time is passed over.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where runs are looked for besides the live heads.
#[derive(Args, Clone, Debug, Default)]
pub struct Storage {
    /// Where runs are kept, instead of ~/carril_results and ~/ray_results
    #[arg(long, value_name = "PATH")]
    storage: Option<PathBuf>,
}

/// A run that is known to a live head.
pub struct Live {
    pub client: Client,
    pub summary: RunSummary,
}

impl Storage {
    pub fn directories(&self) -> Vec<PathBuf> {
        if let Some(storage) = &self.storage {
            return vec![storage.clone()];
        }
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        vec![home.join("carril_results"), home.join("ray_results")]
    }

    /// Every run in the storage, with its directory.
    pub fn stored(&self) -> Vec<(PathBuf, RunRecord)> {
        let directories = self.directories();
        let entries = directories.iter().filter_map(|directory| std::fs::read_dir(directory).ok()).flatten().flatten();
        entries.filter_map(|entry| RunRecord::read(&entry.path()).map(|record| (entry.path(), record))).collect()
    }

    /// Where a run is kept: a path, or a URI.
    pub async fn location_of(&self, run: &str) -> Result<String, Failure> {
        if let Some(live) = live_runs().await.into_iter().find(|live| is_meant(run, &live.summary)) {
            return Ok(live.summary.path);
        }
        if run.contains("://") {
            return Ok(run.to_owned());
        }
        self.stored_directory(run).map(|path| absolute(&path.display().to_string()))
    }

    /// Where a run is kept, and what is recorded of it.
    pub async fn record_of(&self, run: &str) -> Result<(String, RunRecord), Failure> {
        let location = self.location_of(without_scheme(run)).await?.trim_end_matches('/').to_owned();
        let read = {
            let location = location.clone();
            move || Ok(carril_store::Storage::open(&location, None)?.read("run.json")?)
        };
        let record = blocking(read).await?.and_then(|data| serde_json::from_slice(&data).ok());
        match record {
            Some(record) => Ok((location, record)),
            None => Err(Failure::new(ErrorCode::NotFound, format!("there is no run in `{location}`"))),
        }
    }

    fn stored_directory(&self, run: &str) -> Result<PathBuf, Failure> {
        if RunRecord::read(Path::new(run)).is_some() {
            return Ok(PathBuf::from(run));
        }
        let stored = self.stored();
        let meant = |(path, record): &&(PathBuf, RunRecord)| {
            record.name == run || is_id(run, &record.run_id) || path.file_name().is_some_and(|name| name == run)
        };
        match stored.iter().find(meant) {
            Some((path, _)) => Ok(path.clone()),
            None => Err(unknown(run, stored.iter().map(|(_, record)| record.name.as_str()))),
        }
    }
}

/// The files of a run, where they can be read; what had to be fetched goes when this does.
pub struct RunFiles {
    path: PathBuf,
    _fetched: Option<PrivateDirectory>,
}

impl RunFiles {
    pub fn local(path: PathBuf) -> Self {
        Self { path, _fetched: None }
    }
}

impl std::ops::Deref for RunFiles {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

/// Fetches the small files of a run from storage that is not a local path.
pub async fn fetch(location: String) -> Result<RunFiles, Failure> {
    blocking(move || fetch_now(&location)).await
}

/// Storage waits on a runtime of its own, which cannot be done on the thread that drives this one.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Failure::new(ErrorCode::Internal, format!("a thread has ended: {error}"))))
}

fn fetch_now(location: &str) -> Result<RunFiles, Failure> {
    let mut random = [0; 4];
    getrandom::fill(&mut random)
        .map_err(|error| Failure::new(ErrorCode::Internal, format!("no random bytes: {error}")))?;
    let fetched =
        PrivateDirectory::create_large(random).map_err(|error| Failure::new(ErrorCode::Storage, error.to_string()))?;
    let path = fetched.path().join("run");
    Mirror::open(carril_store::Storage::open(location, None)?, &path)?;
    if RunRecord::read(&path).is_none() {
        return Err(Failure::new(ErrorCode::NotFound, format!("there is no run in `{location}`")));
    }
    Ok(RunFiles { path, _fetched: Some(fetched) })
}

/// A local path may be given as a URI too.
fn without_scheme(run: &str) -> &str {
    run.strip_prefix("file://").filter(|path| path.starts_with('/')).unwrap_or(run)
}

/// A path as the storage wants it; a URI is left as it is.
pub fn absolute(path: &str) -> String {
    if path.contains("://") {
        return path.to_owned();
    }
    std::path::absolute(path).map_or_else(|_| path.to_owned(), |path| path.display().to_string())
}

/// Every run of every live head of this user.
pub async fn live_runs() -> Vec<Live> {
    let mut all = Vec::new();
    for socket in head_sockets() {
        let asked = async {
            let client = Client::connect(&socket).await?;
            let runs = client.runs().await?;
            Ok::<_, Failure>((client, runs))
        };
        // One that is dead or of another version is not ours to speak of here.
        let Ok(Ok((client, runs))) = tokio::time::timeout(PATIENCE, asked).await else { continue };
        all.extend(runs.into_iter().map(|summary| Live { client: client.clone(), summary }));
    }
    all
}

/// Drives one question to its end.
pub fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(ErrorCode::Internal, format!("cannot start: {error}")))?;
    runtime.block_on(future)
}

/// Whether a status that a head told of is the last one.
pub fn is_end(status: &str) -> bool {
    matches!(status, "finished" | "failed" | "aborted" | "preempted")
}

fn is_meant(run: &str, summary: &RunSummary) -> bool {
    summary.name == run || is_id(run, &summary.run_id) || summary.path == run.trim_end_matches('/')
}

/// The first digits of an id are enough.
pub fn is_id(run: &str, id: &str) -> bool {
    run.len() >= 4 && id.starts_with(run)
}

fn unknown<'a>(run: &str, names: impl Iterator<Item = &'a str>) -> Failure {
    let failure = Failure::new(ErrorCode::NotFound, format!("there is no run `{run}`"));
    let near = names.filter(|name| name.starts_with(run) || run.starts_with(name)).take(5).collect::<Vec<_>>();
    if near.is_empty() {
        failure.hint("`carril runs` lists them; --storage says where they are kept")
    } else {
        failure.hint(format!("perhaps one of: {}", near.join(", ")))
    }
}
