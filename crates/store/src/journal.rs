//! What the head decided, in order, with the reasons: one checksummed line per record, in numbered segments.
//!
//! JOURNAL-1: a record is appended before what it says is carried out.
//! JOURNAL-2: a line that was torn by a crash is told from a whole one by its checksum.

use std::fs;
use std::path::{Path, PathBuf};

use carril_types::{Attempt, Restart};
use serde::{Deserialize, Serialize};

use crate::append::AppendFile;
use crate::error::StoreError;
use crate::regular;

const SEGMENT: u64 = 16 << 20;
/// What the record of a checkpoint that was saved begins with.
pub const COMMITTED: &str = "CheckpointCommitted";

/// The words are for people; what a later head goes by is the fact.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JournalRecord {
    /// Unix time in seconds, by the head's clock.
    pub at: f64,
    pub event: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fact: Option<Fact>,
}

impl JournalRecord {
    /// The number of the report whose checkpoint was saved, where the record says that.
    pub fn committed(&self) -> Option<u64> {
        let about = self.event.strip_prefix(COMMITTED)?;
        let report = about.strip_prefix(": report ").and_then(|rest| rest.split(',').next()?.parse().ok());
        Some(report.unwrap_or(0))
    }
}

/// How many checkpoints a run has saved: those that its journal tells of, and those that are there besides. A head that is killed between
/// the two has not written down its last one.
pub fn saved_checkpoints(told: impl IntoIterator<Item = u64>, there: impl IntoIterator<Item = u64>) -> u64 {
    let told: Vec<u64> = told.into_iter().collect();
    let untold = there.into_iter().filter(|report| !told.contains(report)).count();
    (told.len() + untold) as u64
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// A head has taken the run; `continues` when the same driver lost the head before.
    Opened {
        continues: bool,
    },
    AttemptBegun {
        attempt: Attempt,
        nodes: Vec<String>,
        /// The name of the first node's host: the id of a node says nothing to people.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        host: String,
    },
    Restarted(Restart),
}

/// What the heads before have left of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The number of the next attempt.
    pub next_attempt: Attempt,
    /// Where the last one ran.
    pub nodes: Vec<String>,
    /// Since the driver called `fit`, with their times.
    pub restarts: Vec<(f64, Restart)>,
    /// The reports whose checkpoints were saved.
    pub saved: Vec<u64>,
}

impl History {
    /// The facts in order, each taken for what it says.
    pub fn replay(records: impl IntoIterator<Item = JournalRecord>) -> Self {
        let mut history = Self::default();
        for record in records {
            history.saved.extend(record.committed());
            match record.fact {
                Some(Fact::Opened { continues: false }) => history.restarts.clear(),
                Some(Fact::AttemptBegun { attempt, nodes, .. }) => {
                    history.next_attempt = history.next_attempt.max(Attempt(attempt.0 + 1));
                    history.nodes = nodes;
                }
                Some(Fact::Restarted(restart)) => history.restarts.push((record.at, restart)),
                Some(Fact::Opened { continues: true }) | None => {}
            }
        }
        history
    }
}

pub struct Journal {
    directory: PathBuf,
    segment: u32,
    file: AppendFile,
    length: u64,
}

impl Journal {
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        fs::create_dir_all(directory).map_err(StoreError::io("make", directory))?;
        // A new segment for each opening: nothing is ever appended to a line that a crash has torn.
        let segment = segments(directory)?.last().map_or(0, |(number, _)| number + 1);
        let (file, length) = open_segment(directory, segment)?;
        Ok(Self { directory: directory.to_owned(), segment, file, length })
    }

    pub fn append(&mut self, record: &JournalRecord) -> Result<(), StoreError> {
        let json = serde_json::to_string(record).expect("a record of plain fields is always JSON");
        let line = format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()));
        if self.length > 0 && self.length + line.len() as u64 > SEGMENT {
            (self.file, self.length) = open_segment(&self.directory, self.segment + 1)?;
            self.segment += 1;
        }
        self.file.append(line.as_bytes())?;
        self.length += line.len() as u64;
        Ok(())
    }

    /// Makes the segment again if it was taken away; true where it was.
    pub fn restore(&mut self) -> Result<bool, StoreError> {
        self.file.restore()
    }

    /// Every whole record, oldest first. What is torn or foreign is passed over.
    pub fn read(directory: &Path) -> Result<Vec<JournalRecord>, StoreError> {
        let mut records = Vec::new();
        for (_, path) in segments(directory)? {
            records.extend(Self::parse(&regular::read(&path).map_err(StoreError::io("read", &path))?));
        }
        Ok(records)
    }

    /// The whole records of one segment.
    pub fn parse(segment: &[u8]) -> Vec<JournalRecord> {
        segment.split(|byte| *byte == b'\n').filter_map(parse).collect()
    }
}

fn parse(line: &[u8]) -> Option<JournalRecord> {
    let (checksum, json) = line.split_at_checked(8)?;
    let json = json.strip_prefix(b" ")?;
    let checksum = u32::from_str_radix(std::str::from_utf8(checksum).ok()?, 16).ok()?;
    if checksum != crc32fast::hash(json) {
        return None;
    }
    serde_json::from_slice(json).ok()
}

fn open_segment(directory: &Path, segment: u32) -> Result<(AppendFile, u64), StoreError> {
    let path = directory.join(format!("{segment:06}.log"));
    let file = AppendFile::open(&path)?;
    let length = fs::metadata(&path).map_err(StoreError::io("look at", &path))?.len();
    Ok((file, length))
}

fn segments(directory: &Path) -> Result<Vec<(u32, PathBuf)>, StoreError> {
    let entries = fs::read_dir(directory).map_err(StoreError::io("read", directory))?;
    let mut all: Vec<(u32, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((name.strip_suffix(".log")?.parse().ok()?, entry.path()))
        })
        .collect();
    all.sort();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(event: &str) -> JournalRecord {
        JournalRecord {
            at: 1.5,
            event: event.into(),
            reason: "because".into(),
            commands: vec!["do".into()],
            fact: None,
        }
    }

    #[test]
    fn journal_2_a_torn_line_is_passed_over_and_the_rest_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(directory.path()).unwrap();
        journal.append(&record("one")).unwrap();
        journal.append(&record("two")).unwrap();
        drop(journal);
        let path = directory.path().join("000000.log");
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 4]).unwrap();
        let mut journal = Journal::open(directory.path()).unwrap();
        journal.append(&record("three")).unwrap();
        let events: Vec<String> = Journal::read(directory.path()).unwrap().into_iter().map(|r| r.event).collect();
        assert_eq!(events, ["one", "three"]);
    }

    #[test]
    fn what_is_torn_in_the_middle_or_foreign_costs_itself_alone() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(directory.path()).unwrap();
        journal.append(&record("one")).unwrap();
        let path = directory.path().join("000000.log");
        for foreign in [&b"0123"[..], b"\xff\xfe\x00 binary\n", b"deadbeef {}\n", b"[1, 2]\n"] {
            let before = fs::read(&path).unwrap();
            fs::write(&path, [&before, foreign].concat()).unwrap();
            journal = Journal { file: AppendFile::open(&path).unwrap(), ..journal };
            journal.append(&record("next")).unwrap();
        }
        assert_eq!(Journal::read(directory.path()).unwrap().len(), 5);
    }

    #[test]
    fn a_later_head_counts_on_and_a_later_fit_begins_its_budgets_anew() {
        let restart = |attempt| Restart {
            attempt: Attempt(attempt),
            reason: "rank 0 failed".into(),
            code: carril_types::ErrorCode::UserException,
            headline: "rank 0 failed".into(),
            reports: 3,
        };
        let directory = tempfile::tempdir().unwrap();
        let replayed = |facts: Vec<Fact>| {
            let mut journal = Journal::open(directory.path()).unwrap();
            for fact in facts {
                journal.append(&JournalRecord { fact: Some(fact), ..record("fact") }).unwrap();
            }
            History::replay(Journal::read(directory.path()).unwrap())
        };
        let first = vec![
            Fact::Opened { continues: false },
            Fact::AttemptBegun { attempt: Attempt(0), nodes: vec!["one".into()], host: String::new() },
            Fact::Restarted(restart(1)),
            Fact::AttemptBegun { attempt: Attempt(1), nodes: vec!["two".into()], host: String::new() },
        ];
        let history = replayed(first);
        assert_eq!((history.next_attempt, history.restarts.len()), (Attempt(2), 1));
        assert_eq!(history.nodes, ["two"]);
        let history = replayed(vec![Fact::Opened { continues: true }, Fact::Restarted(restart(2))]);
        assert_eq!((history.next_attempt, history.restarts.len()), (Attempt(2), 2));
        let history = replayed(vec![Fact::Opened { continues: false }]);
        assert_eq!((history.next_attempt, history.restarts.len()), (Attempt(2), 0));
    }
}
