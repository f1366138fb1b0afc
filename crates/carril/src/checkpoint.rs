//! A checkpoint that is known to be whole.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use carril_proto::v1;
use carril_store::{MANIFEST, Manifest, STAGING, Storage, Trust, check, download};
use carril_types::ErrorCode;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::metrics::Metrics;

/// A directory of files that was reported with metrics, and that is what it was when it was saved: every checksum is compared before
/// the files are handed out, once per process while a file stays the same.
///
/// ```no_run
/// let checkpoint = carril::Checkpoint::open("/results/digits/checkpoint_000004")?;
/// let weights: Vec<f32> = checkpoint.read_json("weights.json")?;
/// # Ok::<(), carril::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Checkpoint {
    location: String,
    metrics: Metrics,
    iteration: u64,
    trust: Trust,
    /// Where the workers of a run tell each other what they have compared.
    shared: Option<PathBuf>,
    files: Arc<OnceLock<Files>>,
}

/// Where the files are, and what takes them away again.
#[derive(Debug)]
struct Files {
    path: PathBuf,
    _brought: Option<tempfile::TempDir>,
}

impl Checkpoint {
    /// Opens the checkpoint at a path, or at a URI (`s3://…`, `gs://…`, `az://…`), which brings its files here. Every file is read
    /// and compared with what was saved; a checkpoint that was damaged is an error that names the file.
    ///
    /// ```
    /// let error = carril::Checkpoint::open("/no/such/directory").unwrap_err();
    /// assert!(error.to_string().starts_with("`/no/such/directory` is no checkpoint"));
    /// ```
    pub fn open(location: impl AsRef<str>) -> Result<Self> {
        let checkpoint = Self::stored(&absolute(location.as_ref()))?;
        checkpoint.path()?;
        Ok(checkpoint)
    }

    /// As [`open`](Self::open), for files that were changed on purpose, or are too large to be read twice: they are taken as they are.
    ///
    /// ```no_run
    /// let checkpoint = carril::Checkpoint::open_unverified("/results/digits/checkpoint_000004")?;
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn open_unverified(location: impl AsRef<str>) -> Result<Self> {
        Ok(Self { trust: Trust::Blindly, ..Self::stored(&absolute(location.as_ref()))? })
    }

    /// By its manifest alone: the files are compared when they are asked for.
    pub(crate) fn stored(location: &str) -> Result<Self> {
        let bytes = Storage::open(location, None)?.read(MANIFEST)?;
        let bytes = bytes.ok_or_else(|| damaged(location, "its manifest is missing"))?;
        let manifest = Manifest::from_bytes(&bytes).map_err(|damage| damaged(location, &damage.to_string()))?;
        Ok(Self::of(location.to_owned(), Metrics(manifest.reported()), manifest.iteration))
    }

    /// For a worker, which need not compare what another one of its run on the same node has.
    pub(crate) fn shared_in(mut self, run_directory: &Path) -> Self {
        let shared = run_directory.join(STAGING).join("temporary");
        self.shared = fs::create_dir_all(&shared).is_ok().then_some(shared);
        self
    }

    /// One that the head has told of.
    pub(crate) fn told(told: v1::Checkpoint) -> Self {
        Self::of(told.path, Metrics(told.metrics.unwrap_or_default().into()), told.iteration)
    }

    fn of(location: String, metrics: Metrics, iteration: u64) -> Self {
        Self { location, metrics, iteration, trust: Trust::Compare, shared: None, files: Arc::default() }
    }

    /// The directory with its files, which are compared when this is first called. Nothing may be written there. Of a checkpoint that
    /// is stored elsewhere the files are brought here, and are gone with the last clone of it.
    ///
    /// ```no_run
    /// # fn load(checkpoint: &carril::Checkpoint) -> carril::TrainResult<Vec<u8>> {
    /// Ok(std::fs::read(checkpoint.path()?.join("model.bin"))?)
    /// # }
    /// ```
    pub fn path(&self) -> Result<&Path> {
        if let Some(files) = self.files.get() {
            return Ok(&files.path);
        }
        let storage = Storage::open(&self.location, None)?;
        let files = match storage.local_path() {
            Some(path) => {
                if self.trust == Trust::Compare {
                    check(&storage, self.shared.as_deref())?;
                }
                Files { path: path.to_owned(), _brought: None }
            }
            None => {
                let here = tempfile::tempdir()
                    .map_err(|error| Error::new(ErrorCode::Storage, format!("no temporary directory: {error}")))?;
                let manifest = download(&storage, here.path(), self.trust)?;
                if manifest.is_none() && self.trust == Trust::Compare {
                    return Err(damaged(&self.location, "its manifest is missing"));
                }
                Files { path: here.path().to_owned(), _brought: Some(here) }
            }
        };
        Ok(&self.files.get_or_init(|| files).path)
    }

    /// Where it is kept: a path, or a URI.
    ///
    /// ```no_run
    /// # fn show(checkpoint: &carril::Checkpoint) {
    /// println!("the best one is in {}", checkpoint.location());
    /// # }
    /// ```
    pub fn location(&self) -> &str {
        &self.location
    }

    /// What was reported with it.
    ///
    /// ```no_run
    /// # fn next_step(checkpoint: &carril::Checkpoint) -> carril::Result<u64> {
    /// Ok(checkpoint.metrics().get("step")?.unwrap_or(0) + 1)
    /// # }
    /// ```
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The number of the report that it came with, from 1.
    ///
    /// ```no_run
    /// # fn show(checkpoint: &carril::Checkpoint) {
    /// println!("saved with report {}", checkpoint.iteration());
    /// # }
    /// ```
    pub fn iteration(&self) -> u64 {
        self.iteration
    }

    /// Reads a file of it that holds JSON.
    ///
    /// ```no_run
    /// # fn load(checkpoint: &carril::Checkpoint) -> carril::Result<()> {
    /// let weights: Vec<f64> = checkpoint.read_json("weights.json")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_json<T: DeserializeOwned>(&self, file: &str) -> Result<T> {
        let path = self.path()?.join(file);
        let unread = |why: String| {
            let what = format!("`{file}` of the checkpoint `{}` cannot be read: {why}", self.location);
            Error::new(ErrorCode::Checkpoint, what)
        };
        let bytes = fs::read(path).map_err(|error| unread(error.to_string()))?;
        serde_json::from_slice(&bytes).map_err(|error| unread(error.to_string()))
    }
}

fn absolute(location: &str) -> String {
    match location.contains("://") {
        true => location.to_owned(),
        false => std::path::absolute(location).map_or_else(|_| location.to_owned(), |path| path.display().to_string()),
    }
}

fn damaged(location: &str, why: &str) -> Error {
    let what = match Path::new(location).exists() || location.contains("://") {
        true => format!("`{location}` is no checkpoint that can be believed: {why}"),
        false => format!("`{location}` is no checkpoint: there is no such directory"),
    };
    Error::new(ErrorCode::Checkpoint, what)
}
