//! A run's directory: who may make it, what `run.json` and `params.json` say, where things lie.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use carril_types::{Metrics, OnExisting, RunStatus, Value, write_json};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::owner::Owner;

/// How long an owner that cannot be seen counts as alive, in seconds.
const LEASE: f64 = 60.0;

/// `run.json`: what was asked, by whom, and how it stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRecord {
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
    /// What the driver recorded of its request.
    pub asked: serde_json::Value,
}

impl RunRecord {
    /// What the directory says of its run; `None` where it holds none.
    pub fn read(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(directory.join("run.json")).ok()?).ok()
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
}

impl RunDirectory {
    /// Makes the directory, goes on in that of a run which did not finish, or refuses. `location` is its name for people.
    pub fn create(path: &Path, location: &str, record: RunRecord, on_existing: OnExisting) -> Result<Self, StoreError> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(StoreError::io("make", parent))?;
        }
        match fs::create_dir(path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                check_existing(path, location, &record, on_existing)?
            }
            Err(source) => return Err(StoreError::Io { what: "make", path: path.to_owned(), source }),
        }
        let directory = Self { path: path.to_owned(), record };
        for name in ["error.txt", "error.json"] {
            let _ = fs::remove_file(path.join(name));
        }
        directory.write_record()?;
        Ok(directory)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn write_params(&self, config: &Value) -> Result<(), StoreError> {
        let mut text = String::new();
        match config {
            Value::Map(metrics) => write_json(&mut text, metrics),
            other => write_json(&mut text, &Metrics(vec![("config".into(), other.clone())])),
        }
        text.push('\n');
        let path = self.path.join("params.json");
        fs::write(&path, text).map_err(StoreError::io("write", &path))
    }

    pub fn set_status(&mut self, status: RunStatus, ended: Option<f64>) -> Result<(), StoreError> {
        self.record.status = status;
        self.record.ended = ended;
        self.write_record()
    }

    /// The owner is alive at this time.
    pub fn renew(&mut self, now: f64) -> Result<(), StoreError> {
        self.record.renewed = now;
        self.write_record()
    }

    pub fn write_text(&self, name: &str, text: &str) -> Result<(), StoreError> {
        let path = self.path.join(name);
        fs::write(&path, text).map_err(StoreError::io("write", &path))
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

    fn write_record(&self) -> Result<(), StoreError> {
        let path = self.path.join("run.json");
        let part = self.path.join("run.json.part");
        let text = serde_json::to_string_pretty(&self.record).expect("a record of plain fields is always JSON");
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&part)?;
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")?;
            fs::rename(&part, &path)
        };
        write().map_err(StoreError::io("write", &path))
    }
}

fn check_existing(path: &Path, location: &str, new: &RunRecord, on_existing: OnExisting) -> Result<(), StoreError> {
    let (name, path, place) = (new.name.clone(), path.to_owned(), PathBuf::from(location));
    let Some(record) = RunRecord::read(&path) else {
        let empty = fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_none());
        return if empty { Ok(()) } else { Err(StoreError::NotARun { path: place }) };
    };
    if record.is_live(new.started) {
        return Err(StoreError::RunLive { name, path: place, pid: record.owner.pid, host: record.owner.host });
    }
    if record.status == RunStatus::Finished && on_existing == OnExisting::Refuse {
        return Err(StoreError::RunExists { name, path: place });
    }
    Ok(())
}
