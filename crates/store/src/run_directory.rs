//! A run's directory: who may make it, what `run.json` and `params.json` say, where things lie.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use carril_types::{OnExisting, RunStatus, Value};
use serde::{Deserialize, Serialize};

use crate::differences::write_params;
use crate::error::StoreError;
use crate::local::Place;
use crate::owner::Owner;
use crate::regular;
use crate::storage::Storage;

/// How long an owner that cannot be seen counts as alive, in seconds.
const LEASE: f64 = 60.0;

/// The format of a run's directory: of `run.json`, and of every file beside it that has no number of its own (`result.json`, the journal).
pub const RUN_FORMAT: u32 = 1;

fn first_format() -> u32 {
    1
}

/// `run.json`: what was asked, by whom, and how it stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    #[serde(default = "first_format")]
    pub format: u32,
    pub name: String,
    pub run_id: String,
    pub status: RunStatus,
    pub started: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<f64>,
    pub carril_version: String,
    pub owner: Owner,
    /// When the owner was last heard of: one on another host is alive for a lease beyond that.
    #[serde(default)]
    pub renewed: f64,
    /// Files that the driver wants kept with the run, with the hashes of their content: those that are there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kept: BTreeMap<String, String>,
    /// How many workers it has, and its data sets in words. What an older version wrote has neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_workers: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<BTreeMap<String, String>>,
    /// What the driver recorded of its request.
    pub asked: serde_json::Value,
}

impl RunRecord {
    /// What the directory says of its run; `None` where it holds none.
    pub fn read(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&regular::read(&directory.join("run.json")).ok()?).ok()
    }

    /// Whether its owner still has it: seen on this host, by its lease elsewhere.
    pub fn is_live(&self, now: f64) -> bool {
        !self.status.is_end() && self.owner.is_alive().unwrap_or(now - self.renewed < LEASE)
    }

    /// The status in the word for people: a run whose owner is gone is not running, whatever it says.
    pub fn status_word(&self) -> &'static str {
        if self.status.is_end() || self.owner.is_alive() == Some(true) {
            return self.status.name();
        }
        if self.owner.is_alive().is_none() { "unreachable" } else { "unfinished" }
    }
}

pub struct RunDirectory {
    path: PathBuf,
    record: RunRecord,
    /// `run.json` does not say yet what the record does.
    behind: bool,
    place: Place,
}

impl RunDirectory {
    /// Makes the directory, goes on in that of a run which did not finish, or refuses. `location` is its name for people. A trial has
    /// its record when it has ended: until then its experiment's says who has it.
    pub fn create(
        path: &Path,
        location: &str,
        record: RunRecord,
        on_existing: OnExisting,
        is_trial: bool,
    ) -> Result<Self, StoreError> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(StoreError::io("make", parent))?;
        }
        match fs::create_dir(path) {
            Ok(()) if is_trial => return Ok(Self::new(path, record, false)),
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                // Of a trial the experiment knows what is needed: a record that is missing or damaged is written again.
                if is_trial && RunRecord::read(path).is_none() {
                    refuse_newer(&path.join("run.json"), RUN_FORMAT)?;
                } else {
                    check_existing(path, location, &record, on_existing)?;
                }
            }
            Err(source) => return Err(StoreError::Io { what: "make", path: path.to_owned(), source }),
        }
        let mut directory = Self::new(path, record, true);
        for name in ["error.txt", "error.json"] {
            let _ = fs::remove_file(path.join(name));
        }
        directory.write_record()?;
        Ok(directory)
    }

    fn new(path: &Path, record: RunRecord, behind: bool) -> Self {
        Self { path: path.to_owned(), record, behind, place: Place::of(path) }
    }

    /// Whether it is the directory that it was when the run was opened.
    pub fn is_in_place(&self) -> bool {
        self.place.is_in_place()
    }

    /// Writes down that a run has failed whose owner could not.
    pub fn close(path: &Path, record: RunRecord) -> Result<(), StoreError> {
        Self::new(path, record, true).set_status(RunStatus::Failed, None)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Into another directory, as it would stand in this one.
    pub fn copy_record(&self, directory: &Path, status: RunStatus, ended: f64) -> Result<(), StoreError> {
        let record = RunRecord { status, ended: Some(ended), ..self.record.clone() };
        Self::new(directory, record, true).write_record()
    }

    pub fn run_id(&self) -> &str {
        &self.record.run_id
    }

    pub fn write_params(&self, config: &Value) -> Result<(), StoreError> {
        let mut text = String::new();
        write_params(&mut text, config);
        text.push('\n');
        self.write_text("params.json", &text)
    }

    pub fn set_status(&mut self, status: RunStatus, ended: Option<f64>) -> Result<(), StoreError> {
        self.record.status = status;
        self.record.ended = ended;
        self.write_record()
    }

    /// Puts files of the driver's into the run's storage, by name, with the hash and the place of their content. What is there
    /// is not written again. They may hold secrets: on a local path others cannot read them.
    pub fn keep(&mut self, storage: &Storage, wanted: &[(String, String, PathBuf)]) -> Result<(), StoreError> {
        let is_there = |name: &String, hash: &String| self.record.kept.get(name) == Some(hash);
        let new: Vec<_> = wanted.iter().filter(|(name, hash, _)| !is_there(name, hash)).collect();
        if new.is_empty() {
            return Ok(());
        }
        match storage.local_path() {
            Some(directory) => new.iter().try_for_each(|(name, _, from)| copy_private(from, &directory.join(name)))?,
            None => {
                let files: Vec<_> = new.iter().map(|(name, _, from)| (from.clone(), name.clone())).collect();
                storage.upload_all(&files)?;
            }
        }
        // Only now: what is said to be there is not written again.
        self.record.kept.extend(new.into_iter().map(|(name, hash, _)| (name.clone(), hash.clone())));
        self.write_record()
    }

    /// As `keep`, in a directory that was taken away and is made again; also where there is nothing to keep.
    pub fn keep_again(&mut self, storage: &Storage, wanted: &[(String, String, PathBuf)]) -> Result<(), StoreError> {
        self.record.kept.clear();
        self.write_record()?;
        // Blobs may be gone by the end of a run: what can be kept is kept.
        let there: Vec<_> = wanted.iter().filter(|(_, _, blob)| blob.exists()).cloned().collect();
        self.keep(storage, &there)
    }

    /// The owner is alive at this time.
    pub fn renew(&mut self, now: f64) -> Result<(), StoreError> {
        self.record.renewed = now;
        self.write_record()
    }

    pub fn write_text(&self, name: &str, text: &str) -> Result<(), StoreError> {
        let path = self.path.join(name);
        regular::replace(&path, text).map_err(StoreError::io("write", &path))
    }

    /// `error.txt` for people and `error.json` for programs.
    pub fn write_error(&self, text: &str, json: &serde_json::Value) -> Result<(), StoreError> {
        self.write_text("error.txt", text)?;
        self.write_text("error.json", &format!("{json:#}\n"))
    }

    /// What is only needed while the run goes on.
    pub fn remove_staging(&self) {
        let _ = fs::remove_dir_all(self.path.join(".staging"));
    }

    /// Writes the record where that has failed before.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        if self.behind { self.write_record() } else { Ok(()) }
    }

    fn write_record(&mut self) -> Result<(), StoreError> {
        self.behind = true;
        let path = self.path.join("run.json");
        let text = serde_json::to_string_pretty(&self.record).expect("a record of plain fields is always JSON");
        let written = fs::create_dir_all(&self.path).and_then(|()| regular::replace(&path, &format!("{text}\n")));
        written.map_err(StoreError::io("write", &path))?;
        self.behind = false;
        Ok(())
    }
}

fn copy_private(from: &Path, to: &Path) -> Result<(), StoreError> {
    let mut part = to.as_os_str().to_owned();
    part.push(".part");
    let copy = || -> std::io::Result<()> {
        let _ = fs::remove_file(&part);
        let mut target = File::options().write(true).create_new(true).mode(0o600).open(&part)?;
        std::io::copy(&mut File::open(from)?, &mut target)?;
        fs::rename(&part, to)
    };
    copy().map_err(StoreError::io("write", to))
}

/// Whether a file of ours, JSON with a `format`, is one that only a newer version reads.
pub(crate) fn refuse_newer(path: &Path, known: u32) -> Result<(), StoreError> {
    let content: serde_json::Value =
        regular::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    match content["format"].as_u64() {
        Some(format) if format > u64::from(known) => {
            Err(StoreError::Newer { location: path.display().to_string(), format, known })
        }
        _ => Ok(()),
    }
}

fn check_existing(path: &Path, location: &str, new: &RunRecord, on_existing: OnExisting) -> Result<(), StoreError> {
    let (name, path, place) = (new.name.clone(), path.to_owned(), PathBuf::from(location));
    refuse_newer(&path.join("run.json"), RUN_FORMAT)?;
    let Some(record) = RunRecord::read(&path) else {
        // But for what a start has left that was cut off in its first file.
        let is_part = |entry: fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".part");
        let empty = fs::read_dir(&path).is_ok_and(|mut entries| entries.all(|entry| entry.is_ok_and(is_part)));
        return match path.join("run.json").exists() {
            // Who asks for it resumes from the checkpoints, which know themselves whether they are whole.
            true if on_existing == OnExisting::Reuse => Ok(()),
            true => Err(StoreError::RunRecordDamaged { path: place.join("run.json") }),
            false if empty => Ok(()),
            false => Err(StoreError::NotARun { path: place }),
        };
    };
    if record.is_live(new.started) {
        return Err(StoreError::RunLive { name, path: place, pid: record.owner.pid, host: record.owner.host });
    }
    if record.status == RunStatus::Finished && on_existing == OnExisting::Refuse {
        return Err(StoreError::RunExists { name, path: place });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn record() -> RunRecord {
        RunRecord {
            format: RUN_FORMAT,
            name: "run".into(),
            run_id: "0123456789abcdef".into(),
            status: RunStatus::Waiting,
            started: 1.0,
            ended: None,
            carril_version: "0".into(),
            owner: Owner::this_process(),
            renewed: 1.0,
            kept: BTreeMap::new(),
            num_workers: Some(1),
            data: None,
            asked: serde_json::Value::Null,
        }
    }

    #[test]
    fn what_is_kept_is_the_owners_alone_and_is_written_again_when_it_changes() {
        let root = tempfile::tempdir().unwrap();
        let (path, blob) = (root.path().join("run"), root.path().join("blob"));
        let mut directory = RunDirectory::create(&path, "run", record(), OnExisting::Refuse, false).unwrap();
        let storage = Storage::local(&path);
        let mut keep = |hash: &str, content: &str| {
            fs::write(&blob, content).unwrap();
            directory.keep(&storage, &[("trainer.pkl".into(), hash.into(), blob.clone())]).unwrap();
            let kept = RunRecord::read(&path).unwrap().kept;
            assert_eq!(kept.get("trainer.pkl").map(String::as_str), Some(hash));
            let file = path.join("trainer.pkl");
            assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
            fs::read_to_string(&file).unwrap()
        };
        assert_eq!(keep("a", "first"), "first");
        assert_eq!(keep("a", "not looked at"), "first");
        assert_eq!(keep("b", "second"), "second");
    }
}
