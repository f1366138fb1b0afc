//! Finds runs: in the heads of this user on this machine, and in the storage.

use std::path::{Path, PathBuf};
use std::time::Duration;

use carril_client::Client;
use carril_head::Mirror;
use carril_net::{PrivateDirectory, head_sockets};
use carril_proto::v1::RunSummary;
use carril_store::Storage as Place;
use carril_types::{ErrorCode, Failure, shell_quoted};
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

    /// Where runs and experiments are looked for. A place that was named has to be there; of one in a URI that is only seen by looking.
    pub fn places(&self) -> Result<Vec<Place>, Failure> {
        if let Some(storage) = &self.storage {
            return Ok(vec![Place::open(&there(&storage.to_string_lossy())?, None)?]);
        }
        let open = |path: &PathBuf| Ok(Place::open(&absolute(&path.to_string_lossy()), None)?);
        self.directories().iter().map(open).collect()
    }

    /// Whether the user named a place to look in.
    pub fn is_given(&self) -> bool {
        self.storage.is_some()
    }
}

/// The whole path of a directory that was named, or its URI.
pub fn there(path: &str) -> Result<String, Failure> {
    let whole = absolute(path);
    if !whole.contains("://") && !Path::new(&whole).is_dir() {
        return Err(Failure::new(ErrorCode::NotFound, format!("there is no directory `{path}`")));
    }
    Ok(whole)
}

/// How to name on a command line what was found at `location` by `word`: every hint with a command goes through here. The word
/// alone is enough where commands look of their own accord; elsewhere the location is.
pub fn typed(word: &str, location: &str) -> String {
    let usual = Storage::default().directories();
    let is_usual = usual.iter().any(|directory| Path::new(location).starts_with(directory));
    shell_quoted(if is_usual { word } else { location })
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
    if !path.join("run.json").exists() {
        return Err(Failure::new(ErrorCode::NotFound, format!("there is no run in `{location}`")));
    }
    Ok(RunFiles { path, _fetched: Some(fetched) })
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

/// The first digits of an id are enough.
pub fn is_id(run: &str, id: &str) -> bool {
    run.len() >= 4 && id.starts_with(run)
}
