//! What the head decided, in order, with the reasons: one checksummed line per record, in numbered segments.
//!
//! JOURNAL-1: a record is appended before what it says is carried out.
//! JOURNAL-2: a line that was torn by a crash is told from a whole one by its checksum.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use carril_types::{Attempt, Restart};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;

const SEGMENT: u64 = 16 << 20;

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
}

impl History {
    /// The facts in order, each taken for what it says.
    pub fn replay(records: impl IntoIterator<Item = JournalRecord>) -> Self {
        let mut history = Self::default();
        for record in records {
            match record.fact {
                Some(Fact::Opened { continues: false }) => history.restarts.clear(),
                Some(Fact::AttemptBegun { attempt, nodes }) => {
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
    file: File,
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
            self.segment += 1;
            (self.file, self.length) = open_segment(&self.directory, self.segment)?;
        }
        self.file.write_all(line.as_bytes()).map_err(StoreError::io("write", &self.directory))?;
        self.length += line.len() as u64;
        Ok(())
    }

    /// Every whole record, oldest first. A torn line ends its segment.
    pub fn read(directory: &Path) -> Result<Vec<JournalRecord>, StoreError> {
        let mut records = Vec::new();
        for (_, path) in segments(directory)? {
            let file = File::open(&path).map_err(StoreError::io("open", &path))?;
            for line in BufReader::new(file).lines().map_while(Result::ok) {
                match parse(&line) {
                    Some(record) => records.push(record),
                    None => break,
                }
            }
        }
        Ok(records)
    }
}

fn parse(line: &str) -> Option<JournalRecord> {
    let (checksum, json) = line.split_once(' ')?;
    if u32::from_str_radix(checksum, 16).ok()? != crc32fast::hash(json.as_bytes()) {
        return None;
    }
    serde_json::from_str(json).ok()
}

fn open_segment(directory: &Path, segment: u32) -> Result<(File, u64), StoreError> {
    let path = directory.join(format!("{segment:06}.log"));
    let file = File::options().create(true).append(true).open(&path).map_err(StoreError::io("open", &path))?;
    let length = file.metadata().map_err(StoreError::io("look at", &path))?.len();
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
            Fact::AttemptBegun { attempt: Attempt(0), nodes: vec!["one".into()] },
            Fact::Restarted(restart(1)),
            Fact::AttemptBegun { attempt: Attempt(1), nodes: vec!["two".into()] },
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
