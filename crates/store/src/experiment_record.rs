//! `experiment.json`: what was asked of a search and how it stands; and what there is instead where that file is lost.
//!
//! RECORD-1: each start of a search writes the record into `trials.jsonl` too, so that a search without a readable `experiment.json`
//!   is the same search. Without both files its trials are in their directories, and keep their configs.

use std::collections::BTreeMap;
use std::path::Path;

use carril_types::{Metrics, Value, count, write_json};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::experiment::{PREFIX, recover};
use crate::experiment_files::{CLOSED, OPENED, RESUMED, TRIALS, read_lines};
use crate::owner::Owner;
use crate::python_json::{find_in_object, parse_object};
use crate::regular;
use crate::run_directory::refuse_newer;
use crate::storage::Storage;

pub const EXPERIMENT: &str = "experiment.json";
/// In the line of a start: the record.
pub(crate) const RECORD: &str = "record";

/// How long an owner that cannot be seen counts as alive, in seconds.
pub(crate) const LEASE: f64 = 60.0;

/// The format of an experiment's own files: `experiment.json`, `trials.jsonl` and what is beside them.
pub const EXPERIMENT_FORMAT: u32 = 1;

fn first_format() -> u32 {
    1
}

/// `experiment.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExperimentRecord {
    #[serde(default = "first_format")]
    pub format: u32,
    pub name: String,
    pub id: String,
    /// running, finished, stopped or failed.
    pub status: String,
    #[serde(default)]
    pub reason: String,
    pub created: f64,
    #[serde(default)]
    pub ended: Option<f64>,
    pub carril_version: String,
    pub trainable: String,
    pub metric: Option<String>,
    pub mode: Option<String>,
    pub num_samples: Option<u64>,
    pub searcher: String,
    pub scheduler: String,
    /// What the searcher is, without its limits.
    #[serde(default)]
    pub searcher_kind: Option<String>,
    /// Each parameter in words.
    #[serde(default)]
    pub space: Option<BTreeMap<String, String>>,
    /// So many trials come from another space or searcher than the one that stands here.
    #[serde(default)]
    pub made_before: u64,
    pub seed: u64,
    pub owner: Owner,
    pub renewed: f64,
    /// What the driver recorded of its request.
    pub asked: serde_json::Value,
}

impl ExperimentRecord {
    /// What the directory says of its experiment; `None` where it holds none.
    pub fn read(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&regular::read(&directory.join(EXPERIMENT)).ok()?).ok()
    }

    pub(crate) fn write(&self, directory: &Path) -> Result<(), StoreError> {
        let text = serde_json::to_string_pretty(self).expect("a record of plain fields is always JSON");
        let path = directory.join(EXPERIMENT);
        regular::replace(&path, &format!("{text}\n")).map_err(StoreError::io("write", &path))
    }

    fn of(fields: &Metrics) -> Option<Self> {
        let mut text = String::new();
        write_json(&mut text, fields);
        serde_json::from_str(&text).ok()
    }

    pub(crate) fn fields(&self) -> Metrics {
        let text = serde_json::to_string(self).expect("a record of plain fields is always JSON");
        parse_object(&text).unwrap_or_default()
    }

    pub fn is_live(&self, now: f64) -> bool {
        self.status == "running" && self.owner.is_alive().unwrap_or(now - self.renewed < LEASE)
    }

    /// The name of the record once another experiment has begun in the same directory.
    pub(crate) fn kept_as(&self) -> String {
        format!("experiment-{}.json", self.id)
    }

    pub(crate) fn trials_kept_as(&self) -> String {
        format!("trials-{}.jsonl", self.id)
    }

    /// How to get back to it, where it did not finish and another one begins in its directory.
    pub(crate) fn left_aside(&self, directory: &Path, location: &str) -> Result<Option<String>, StoreError> {
        if self.status == "finished" {
            return Ok(None);
        }
        let lines = read_lines(&directory.join(TRIALS))?.readable;
        let trials = |event: &str| {
            let said = lines.iter().filter(|line| line.get("event") == Some(&Value::Text(event.to_owned())));
            let mut trials: Vec<u64> = said.filter_map(|line| line.get("trial")?.as_f64()).map(|n| n as u64).collect();
            trials.sort_unstable();
            trials.dedup();
            trials.len()
        };
        let (made, ended, own, its) = (trials("made"), trials("ended"), self.kept_as(), self.trials_kept_as());
        Ok((made > 0).then(|| {
            format!(
                "the earlier search in `{location}` did not finish ({ended} of {} ended): its trials are kept, and this one starts \
                 new ones beside them, as in Ray; `Tuner.restore(\"{location}\", trainable).fit()` or `tune.run(…, resume=True)` \
                 resumes a search instead (the earlier one once this one has ended, and `{own}` and `{its}` are moved back to \
                 `{EXPERIMENT}` and `{TRIALS}`)",
                count(made as u64, "trial"),
            )
        }))
    }
}

/// The fields of the record that the last start has written into these lines, and how the search ended since.
pub(crate) fn fields_in(lines: &str) -> Option<Metrics> {
    let mut found: Option<Metrics> = None;
    for line in lines.lines() {
        match find_in_object(line, "event") {
            Some(Value::Text(event)) if event == CLOSED => {
                let (Some(record), Some(end)) = (&mut found, parse_object(line)) else { continue };
                for (name, of) in [("status", "status"), ("reason", "reason"), ("ended", "at")] {
                    if let Some(value) = end.get(of) {
                        record.set(name, value.clone());
                    }
                }
            }
            Some(Value::Text(event)) if event == OPENED || event == RESUMED => {
                if let Some(Value::Map(record)) = parse_object(line).and_then(|line| line.get(RECORD).cloned()) {
                    found = Some(record);
                }
            }
            _ => {}
        }
    }
    found
}

/// RECORD-1: writes the record again that a directory has lost, `new` being that of the start that needs it. What is to be said of that;
/// `None` where nothing was lost, or there is nothing to make it from.
pub fn restore_record(
    storage: &Storage,
    directory: &Path,
    new: &ExperimentRecord,
) -> Result<Option<String>, StoreError> {
    let path = directory.join(EXPERIMENT);
    refuse_newer(&path, EXPERIMENT_FORMAT)?;
    if ExperimentRecord::read(directory).is_some() {
        return Ok(None);
    }
    let lines = regular::read(&directory.join(TRIALS)).unwrap_or_default();
    let lines = String::from_utf8_lossy(&lines);
    let (record, from) = match fields_in(&lines).and_then(|fields| ExperimentRecord::of(&fields)) {
        Some(record) => (record, format!("`{TRIALS}`")),
        None => match from_trials(storage, &lines, new)? {
            Some(record) => {
                let trials = count(record.made_before, "trial");
                let from =
                    format!("the directories of its {trials}, which keep their configs; the searcher begins again");
                (record, from)
            }
            None => return Ok(None),
        },
    };
    let what = if path.exists() { "damaged" } else { "missing" };
    record.write(directory)?;
    Ok(Some(format!("`{EXPERIMENT}` of the search was {what}, and is made again from {from}")))
}

/// Of a search whose lines say nothing of it: the ids of its trials begin with its own.
fn from_trials(storage: &Storage, lines: &str, new: &ExperimentRecord) -> Result<Option<ExperimentRecord>, StoreError> {
    let lines: Vec<Metrics> = lines.lines().filter_map(parse_object).collect();
    let Some(id) = id_in(storage, &lines)? else { return Ok(None) };
    let began = lines.iter().filter_map(|line| line.get("at")?.as_f64()).fold(new.created, f64::min);
    let made_before = recover(storage, &id, lines, None)?.made();
    let status = "stopped".to_owned();
    Ok(Some(ExperimentRecord { id, status, created: began, made_before, ended: None, ..new.clone() }))
}

/// What the ids of its trials begin with, which is as much of its own as is known. Searches that began here before it are left out: their
/// records are kept under their ids.
fn id_in(storage: &Storage, lines: &[Metrics]) -> Result<Option<String>, StoreError> {
    let made = lines.iter().filter_map(|line| match line.get("id")? {
        Value::Text(id) => prefix_in(id).map(str::to_owned),
        _ => None,
    });
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    made.for_each(|prefix| *found.entry(prefix).or_default() += 1);
    let names = storage.names()?;
    for directory in storage.directories()? {
        let directory = directory.trim_end_matches('/');
        let prefix = prefix_in(directory).filter(|_| !directory.starts_with('.'));
        if let Some(prefix) = prefix.filter(|prefix| !found.contains_key(*prefix))
            && storage.join(directory).read("params.json")?.is_some()
        {
            *found.entry(prefix.to_owned()).or_default() += 1;
        }
    }
    found.retain(|prefix, _| !names.iter().any(|name| name.starts_with(&format!("experiment-{prefix}"))));
    Ok(found.into_iter().max_by_key(|(_, trials)| *trials).map(|(prefix, _)| prefix))
}

/// `abcde` of `train_abcde_00003_x=1`.
fn prefix_in(name: &str) -> Option<&str> {
    let parts: Vec<&str> = name.split('_').collect();
    let is_id = |part: &str| part.len() == PREFIX && part.chars().all(|one| one.is_ascii_hexdigit());
    let is_number = |part: &str| part.len() >= 5 && part.chars().all(|one| one.is_ascii_digit());
    let found = parts.windows(2).position(|two| is_id(two[0]) && is_number(two[1]))?;
    // An id may be all digits: then the word before it looks like one, and it like a number.
    let is_next = is_id(parts[found + 1]) && parts.get(found + 2).is_some_and(|part| is_number(part));
    Some(if is_next { parts[found + 1] } else { parts[found] })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::experiment_files::{Existing, ExperimentFiles};

    fn record(seed: u64) -> ExperimentRecord {
        let record = serde_json::json!({
            "name": "search", "id": "abcde0123", "status": "running", "created": 1.0, "carril_version": "0", "trainable": "train",
            "metric": "loss", "mode": "min", "num_samples": 1, "searcher": "", "scheduler": "", "seed": seed, "renewed": 1.0,
            "owner": Owner { pid: 0, ..Owner::this_process() }, "asked": null,
        });
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn record_1_a_search_without_its_record_is_the_same_search() {
        let root = tempfile::tempdir().unwrap();
        let (storage, new) = (Storage::local(root.path()), record(3));
        assert_eq!(restore_record(&storage, root.path(), &new).unwrap(), None, "nothing is there");
        let (mut files, _) = ExperimentFiles::open(root.path(), "search", record(u64::MAX), Existing::Resume).unwrap();
        files.begin(Some(2)).unwrap();
        files.end("failed", "no room", 9.0).unwrap();
        for content in [None, Some(""), Some("{\"name\": \"sea")] {
            let path = root.path().join(EXPERIMENT);
            match content {
                Some(content) => fs::write(&path, content).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            let warning = restore_record(&storage, root.path(), &new).unwrap().unwrap();
            let what = if content.is_some() { "damaged" } else { "missing" };
            assert!(warning.contains(what) && warning.contains(TRIALS), "RECORD-1: {warning}");
            let made = ExperimentRecord::read(root.path()).unwrap();
            assert_eq!((made.id.as_str(), made.seed, made.made_before), ("abcde0123", u64::MAX, 2), "RECORD-1");
            assert_eq!((made.status.as_str(), made.reason.as_str(), made.ended), ("failed", "no room", Some(9.0)));
            assert_eq!(restore_record(&storage, root.path(), &new).unwrap(), None);
        }
    }

    #[test]
    fn the_id_of_a_search_is_known_by_the_names_of_its_trials() {
        for (name, prefix) in [
            ("train_abcde_00003_x=1", Some("abcde")),
            ("train_24123_00003_3_x=0.5_2026-11-18", Some("24123")),
            ("faced_24123_00003", Some("24123")),
            ("24123_00003", Some("24123")),
            ("train_00003", None),
            ("notes", None),
        ] {
            assert_eq!(prefix_in(name), prefix, "{name}");
        }
    }

    #[test]
    fn record_1_without_lines_the_trials_keep_their_configs() {
        let root = tempfile::tempdir().unwrap();
        for name in ["train_abcde_00000_x=1", "train_abcde_00002_x=3", "train_fffff_00000_x=1", "train_fffff_00001"] {
            fs::create_dir(root.path().join(name)).unwrap();
            fs::write(root.path().join(name).join("params.json"), "{}").unwrap();
        }
        fs::write(root.path().join("experiment-fffff0123.json"), "{}").unwrap();
        let warning = restore_record(&Storage::local(root.path()), root.path(), &record(3)).unwrap().unwrap();
        assert!(warning.contains("the directories of its 3 trials"), "{warning}");
        let made = ExperimentRecord::read(root.path()).unwrap();
        assert_eq!((made.id.as_str(), made.made_before, made.status.as_str()), ("abcde", 3, "stopped"));
    }
}
