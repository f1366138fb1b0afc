//! Brings the small files of a run to storage that is not a local path, as they grow.
//!
//! MIRROR-1: after the last round everything that the run's directory holds is in the storage.
//! MIRROR-2: a file is sent again only when it has changed, and rounds become rarer as they become slower.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use carril_store::{Storage, StoreError, TRIAL};
use carril_types::Failure;

/// A round is followed by a pause of so many times its own length.
const PAUSE: u32 = 20;
const SNAPSHOT: &str = ".mirror";
/// What belongs to a run besides its checkpoints: names at the top, and these directories.
const DIRECTORIES: [&str; 2] = ["ranks", "journal"];

pub struct Mirror {
    storage: Storage,
    local: PathBuf,
    seen: HashMap<String, (u64, SystemTime)>,
    /// The error of an earlier attempt, which goes from the storage when it has gone here.
    errors: Vec<String>,
    /// The next round may begin then, unless it is the last.
    not_before: Instant,
}

impl Mirror {
    /// Fetches what an earlier attempt has left.
    pub fn open(storage: Storage, local: &Path) -> Result<Self, StoreError> {
        let mut keys: Vec<String> = storage.names()?;
        let mut files = Vec::new();
        for directory in DIRECTORIES {
            if let Some(at) = keys.iter().position(|name| name.trim_end_matches('/') == directory) {
                keys.remove(at);
                let below = storage.join(directory).list()?;
                files.extend(below.into_iter().map(|entry| format!("{directory}/{}", entry.key)));
            }
        }
        if !keys.iter().any(|name| name == "run.json") {
            // What a start that was cut short has left is written over; what is not ours is not.
            let ours = |name: &String| is_file_of_run(name) || name == TRIAL || name.starts_with("checkpoint_");
            return match keys.iter().all(ours) {
                true => Ok(Self::new(storage, local)),
                false => Err(StoreError::NotARun { path: PathBuf::from(storage.location()) }),
            };
        }
        let mut mirror = Self::new(storage, local);
        mirror.errors = keys.iter().filter(|name| name.starts_with("error.")).cloned().collect();
        files.extend(keys.into_iter().filter(|name| is_file_of_run(name)));
        for key in files {
            let to = local.join(&key);
            if let Some(parent) = to.parent() {
                fs::create_dir_all(parent).map_err(|source| StoreError::Io {
                    what: "make",
                    path: parent.to_owned(),
                    source,
                })?;
            }
            mirror.storage.download(&key, &to)?;
        }
        Ok(mirror)
    }

    /// Fetches what an earlier head has left of an experiment; its trials have mirrors of their own.
    pub fn of_experiment(storage: Storage, local: &Path) -> Result<Self, StoreError> {
        let io = |source| StoreError::Io { what: "make", path: local.to_owned(), source };
        fs::create_dir_all(local).map_err(io)?;
        let own = |name: &String| {
            !name.ends_with('/') && (name.ends_with(".json") || name.ends_with(".jsonl") || name.starts_with("pbt_"))
        };
        let mirror = Self::new(storage, local);
        for name in mirror.storage.names()?.into_iter().filter(own) {
            mirror.storage.download(&name, &local.join(&name))?;
        }
        Ok(mirror)
    }

    fn new(storage: Storage, local: &Path) -> Self {
        let (seen, errors, not_before) = (HashMap::new(), Vec::new(), Instant::now());
        Self { storage, local: local.to_owned(), seen, errors, not_before }
    }

    pub fn is_due(&self) -> bool {
        Instant::now() >= self.not_before
    }

    /// Blocks: sends what has changed since the last round.
    pub fn round(&mut self) -> Result<(), Failure> {
        let began = Instant::now();
        let mut changed = Vec::new();
        let mut states = Vec::new();
        for (key, path) in files_below(&self.local) {
            let Ok(meta) = fs::metadata(&path) else { continue };
            let state = (meta.len(), meta.modified().unwrap_or(SystemTime::UNIX_EPOCH));
            if self.seen.get(&key) != Some(&state) {
                changed.push((path, key.clone()));
                states.push((key, state));
            }
        }
        for key in self.errors.iter().filter(|key| !self.local.join(key).exists()) {
            self.storage.delete(key)?;
        }
        self.errors.retain(|key| self.local.join(key).exists());
        let changed = self.snapshot(changed)?;
        // What says how the run stands goes last.
        let (record, others): (Vec<_>, Vec<_>) = changed.into_iter().partition(|(_, key)| key == "run.json");
        self.storage.upload_all(&others)?;
        self.storage.upload_all(&record)?;
        let _ = fs::remove_dir_all(self.local.join(SNAPSHOT));
        self.seen.extend(states);
        self.not_before = Instant::now() + began.elapsed().min(Duration::from_secs(60)) * PAUSE;
        Ok(())
    }

    /// Copies, so that a file that grows while it is sent is sent as it was.
    fn snapshot(&self, files: Vec<(PathBuf, String)>) -> Result<Vec<(PathBuf, String)>, Failure> {
        let copied = files.into_iter().map(|(path, key)| {
            let copy = self.local.join(SNAPSHOT).join(&key);
            let io = |source| StoreError::Io { what: "copy", path: path.clone(), source };
            copy.parent().map_or(Ok(()), fs::create_dir_all).map_err(io)?;
            fs::copy(&path, &copy).map_err(io)?;
            Ok((copy, key))
        });
        copied.collect::<Result<_, StoreError>>().map_err(Failure::from)
    }

    /// Everything is there: the local directory is of no use any more.
    pub fn remove_local(&self) {
        let _ = fs::remove_dir_all(&self.local);
    }
}

fn is_file_of_run(name: &str) -> bool {
    let known = ["run.json", "result.json", "params.json", "progress.csv", "error.txt", "error.json", "stacks.txt"];
    known.contains(&name) || name.starts_with("events.out.tfevents")
}

fn files_below(root: &Path) -> Vec<(String, PathBuf)> {
    let mut files = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(relative) = open.pop() {
        let Ok(entries) = fs::read_dir(root.join(&relative)) else { continue };
        for entry in entries.flatten() {
            let path = relative.join(entry.file_name());
            let key = path.to_string_lossy().into_owned();
            match entry.file_type() {
                // What is on its way, and what readers have fetched for themselves.
                Ok(kind) if kind.is_dir() && key.starts_with('.') => {}
                Ok(kind) if kind.is_dir() => open.push(path),
                Ok(_) if !key.ends_with(".part") => files.push((key, entry.path())),
                _ => {}
            }
        }
    }
    files.sort();
    files
}
