//! The lines of `trials.jsonl` in the order in which a head writes them, whatever has happened to the file since.
//!
//! An editor, a merge of two copies or a bad disk may exchange lines, write them twice, or add some of somebody else's.
//!
//! ORDER-1: a line that no head writes (a field of another kind, the id of another experiment) is left out and counted.
//! ORDER-2: lines that are in a possible order stay in it; others are sorted by their time.
//! ORDER-3: a trial that has ended without an error is over: no line of it counts after that one.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use carril_types::{Metrics, Value, write_json};

use super::{integer, map, number, text};
use crate::experiment_files::{CLOSED, OPENED, RESUMED};

pub(super) struct Ordered {
    pub lines: Vec<Metrics>,
    pub left_out: usize,
    /// The lines are not those of the file.
    pub changed: bool,
}

/// `prefix`: with which the ids of the trials begin.
pub(super) fn in_order(lines: Vec<Metrics>, prefix: &str) -> Ordered {
    let before = lines.len();
    let mut lines: Vec<Metrics> = lines.into_iter().filter(|line| is_ours(line, prefix)).collect();
    let left_out = before - lines.len();
    let mut seen = HashSet::new();
    lines.retain(|line| seen.insert(hash_of(line)));
    let is_sorted = is_possible(&lines);
    if !is_sorted {
        sort_by_time(&mut lines);
    }
    let (mut over, mut made) = (HashSet::new(), HashSet::new());
    lines.retain(|line| {
        let Some(trial) = trial_of(line) else { return true };
        let is_over = over.contains(&trial);
        if is_end(line) {
            over.insert(trial);
        }
        // One that was begun again after a failure has another directory.
        let is_new = event_of(line) != "made" || made.insert((trial, text(line, "directory")));
        is_new && !is_over
    });
    Ordered { changed: !is_sorted || lines.len() != before, lines, left_out }
}

pub(super) fn event_of(line: &Metrics) -> &str {
    match line.get("event") {
        Some(Value::Text(event)) => event,
        _ => "",
    }
}

pub(super) fn trial_of(line: &Metrics) -> Option<u64> {
    integer(line, "trial")
}

/// ORDER-1.
pub(super) fn is_ours(line: &Metrics, prefix: &str) -> bool {
    match (event_of(line), trial_of(line)) {
        (OPENED | RESUMED | CLOSED, _) => true,
        ("", _) | (_, None) => false,
        ("made", Some(trial)) => {
            let is_text = |name: &&str| text(line, name).is_some();
            let is_whole = ["id", "name", "directory", "tag"].iter().all(is_text) && map(line, "config").is_some();
            let own = format!("_{trial:05}");
            is_whole && text(line, "id").is_some_and(|id| id.starts_with(prefix) && id.ends_with(&own))
        }
        _ => true,
    }
}

/// The end of a trial after which none of its lines comes.
fn is_end(line: &Metrics) -> bool {
    let failed = text(line, "error").is_some() || text(line, "status").is_some_and(|status| status == "error");
    event_of(line) == "ended" && !failed
}

fn hash_of(line: &Metrics) -> u64 {
    let mut json = String::new();
    write_json(&mut json, line);
    let mut hasher = DefaultHasher::new();
    json.hash(&mut hasher);
    hasher.finish()
}

/// Whether a head may have written them one after the other, some of them lost: ORDER-2.
fn is_possible(lines: &[Metrics]) -> bool {
    let is_made = |line: &&Metrics| event_of(line) == "made";
    let all: BTreeSet<u64> = lines.iter().filter(is_made).filter_map(trial_of).collect();
    let (mut made, mut over) = (BTreeSet::new(), HashSet::new());
    lines.iter().all(|line| {
        let Some(trial) = trial_of(line) else { return true };
        if over.contains(&trial) {
            return false;
        }
        if is_end(line) {
            over.insert(trial);
        }
        match is_made(&line) {
            true => !made.insert(trial) || made.last() == Some(&trial),
            false => made.contains(&trial) || !all.contains(&trial),
        }
    })
}

/// A line without a time stays behind the one before it.
fn sort_by_time(lines: &mut Vec<Metrics>) {
    let mut last = 0.0;
    let mut timed: Vec<(f64, (u8, u64), Metrics)> = Vec::with_capacity(lines.len());
    for line in lines.drain(..) {
        last = number(&line, "at").unwrap_or(last);
        timed.push((last, among_equals(&line), line));
    }
    timed.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
    lines.extend(timed.into_iter().map(|(.., line)| line));
}

/// Of lines of one moment a trial is made before anything else is said of it, and ends last.
fn among_equals(line: &Metrics) -> (u8, u64) {
    match event_of(line) {
        OPENED | RESUMED => (0, 0),
        "made" => (1, trial_of(line).unwrap_or(0)),
        "ended" => (3, 0),
        CLOSED => (4, 0),
        _ => (2, 0),
    }
}
