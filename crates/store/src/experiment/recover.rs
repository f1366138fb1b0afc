//! What `trials.jsonl` does not say of an experiment, read back from the directories of its trials: for a head that resumes it.
//!
//! A file that was cut off, or lost a line, has lost neither trials nor reports: each trial has its config, its reports and its end
//! (`trial.json`) in its own directory. A head that was killed has not written down the end of a trial whose run it had ended.
//!
//! RECOVER-1: the lines that come back make every trial exactly once, in the order of their numbers, without a gap.
//! RECOVER-2: a line that is there counts: a directory only adds what no line says.
//! RECOVER-4: what a line says of a trial that neither a `made` line nor a directory knows, or whose number is far beyond the others, is
//!   left out and counted: there is no such trial.
//! RECOVER-3: a trial that was cut off has the newest whole checkpoint of its directory, from which it resumes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use carril_types::{Metrics, RunStatus, Value};

use super::order::{Ordered, event_of, in_order, trial_of};
use super::{integer, text};
use crate::error::StoreError;
use crate::experiment_files::{RUN, TRIAL};
use crate::last_report::{RESULTS, last_report};
use crate::python_json::{find_in_object, parse_object};
use crate::run_directory::RunRecord;
use crate::storage::Storage;
use crate::verify::list_checkpoints;

/// Of a `made` line that was lost; what is there instead was read from the trial's directory.
pub const RECOVERED: &str = "recovered";

/// The ids of an experiment's trials begin with so many characters of its own.
pub(crate) const PREFIX: usize = 5;

/// A number may be so far beyond twice the count of the trials that are known.
const GAP: u64 = 16;

#[derive(Debug, Default)]
pub struct Recovered {
    pub lines: Vec<Metrics>,
    /// Trials without an end, by number, as their own files have them.
    pub reached: BTreeMap<u64, Reached>,
    /// Trials that no line had made.
    pub found: Vec<u64>,
    /// How many ends no line told of, and stand in the trials' directories.
    pub ends: usize,
    /// Lines that are not of this experiment.
    pub left_out: usize,
    /// The lines are not those that were there, or stand in another order.
    pub changed: bool,
}

impl Recovered {
    /// How many trials there are.
    pub fn made(&self) -> u64 {
        let made = self.lines.iter().filter(|line| text(line, "event").is_some_and(|event| event == "made"));
        made.filter_map(|line| integer(line, "trial")).max().map_or(0, |last| last + 1)
    }
}

/// How far a trial came whose end is not written down.
#[derive(Debug, Default)]
pub struct Reached {
    pub last: Option<Metrics>,
    /// Whether any of its reports had the metric.
    pub has_metric: bool,
    /// How its run has ended, with the headline of a failure.
    pub ended: Option<(RunStatus, String)>,
    pub checkpoint: Option<String>,
}

impl Reached {
    /// The same as a line of `trials.jsonl`: its end, or that it was started.
    pub(super) fn line(&self, number: u64) -> Metrics {
        let text = |text: &str| Value::Text(text.to_owned());
        let last = self.last.clone().unwrap_or_default();
        let event = if self.ended.is_some() { "ended" } else { "started" };
        let mut line =
            Metrics(vec![("event".to_owned(), text(event)), ("trial".to_owned(), Value::Int(number as i64))]);
        let Some((status, headline)) = &self.ended else { return line };
        let failed = *status == RunStatus::Failed;
        line.set("status", text(if failed { "error" } else { "terminated" }));
        line.set("error", if failed { text(headline.trim_start_matches("rank 0 failed: ")) } else { Value::None });
        for (name, of) in [("iterations", "training_iteration"), ("seconds", "time_total_s")] {
            line.set(name, last.get(of).cloned().unwrap_or(Value::Int(0)));
        }
        line.set("checkpoint", self.checkpoint.as_deref().map_or(Value::None, text));
        line.set("metrics", Value::Map(last));
        line
    }
}

/// Completes the lines of the experiment of this id.
pub fn recover(place: &Storage, id: &str, lines: Vec<Metrics>, metric: Option<&str>) -> Result<Recovered, StoreError> {
    let directories = place.directories()?;
    recover_some(place, id, lines, metric, directories, Looks { for_ends: true, at_all: true })
}

/// For whoever looks: trials are searched for in these directories, and only of those that no line tells of is it read how far they came.
/// Without directories nothing is searched for.
pub(super) fn recover_lost(
    place: &Storage,
    id: &str,
    lines: Vec<Metrics>,
    directories: Option<Vec<String>>,
) -> Result<Recovered, StoreError> {
    let looks = Looks { for_ends: directories.is_some(), at_all: false };
    recover_some(place, id, lines, None, directories.unwrap_or_default(), looks)
}

/// What is looked for in the directories of trials that a line has made, and none has ended; those of others are read whole.
#[derive(Clone, Copy)]
struct Looks {
    for_ends: bool,
    /// How far they came.
    at_all: bool,
}

fn recover_some(
    place: &Storage,
    id: &str,
    lines: Vec<Metrics>,
    metric: Option<&str>,
    directories: Vec<String>,
    looks: Looks,
) -> Result<Recovered, StoreError> {
    let prefix = id.get(..PREFIX).unwrap_or(id);
    let Ordered { mut lines, mut left_out, mut changed } = in_order(lines, prefix);
    let there = lines.len();
    let limit = limit_of(&lines, directories.len());
    // Before anything is taken from them: such a line may name the directory of another trial.
    lines.retain(|line| trial_of(line).is_none_or(|number| number < limit));
    let told = Told::by(&lines);
    let mut lost: BTreeMap<u64, String> = BTreeMap::new();
    for directory in directories {
        let directory = directory.trim_end_matches('/').to_owned();
        if told.directories.contains(&directory) || directory.starts_with('.') {
            continue;
        }
        if let Some(number) = number_of(place, &directory, prefix)?.filter(|number| !told.made.contains(number)) {
            lost.insert(number, directory);
        }
    }
    lost.retain(|number, _| *number < limit);
    let end = told.made.iter().chain(lost.keys()).max().map_or(0, |last| last + 1);
    lines.retain(|line| trial_of(line).is_none_or(|number| number < end));
    left_out += there - lines.len();
    let found: Vec<u64> = (0..end).filter(|number| !told.made.contains(number)).collect();
    changed |= there != lines.len() || !found.is_empty();
    let mut made = BTreeMap::new();
    for number in &found {
        made.insert(*number, made_line(place, prefix, *number, lost.get(number))?);
    }
    let mut reached = BTreeMap::new();
    let mut ends = Vec::new();
    let known = told.directory_of.iter().map(|(number, directory)| (*number, directory.clone()));
    let known = known.map(|one| (one, false)).chain(lost.into_iter().map(|one| (one, true)));
    for ((number, directory), is_lost) in known {
        if number >= end || told.over.contains(&number) || !(is_lost || looks.for_ends) {
            continue;
        }
        let own = place.join(&directory);
        let record: Option<RunRecord> = own.read("run.json")?.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        match end_line(&own, number, record.as_ref())? {
            Some(line) => ends.push(line),
            None if !(is_lost || looks.at_all) => {}
            None => {
                let started = told.started.get(&number).copied();
                reached.insert(number, look_at(&own, metric, started, record)?);
            }
        }
    }
    ends.sort_by(|left, right| at_of(left).total_cmp(&at_of(right)));
    let count = ends.len();
    changed |= count > 0;
    lines.append(&mut ends);
    Ok(Recovered { lines: merged(lines, made), reached, found, ends: count, left_out, changed })
}

/// The line that its head wrote when the trial ended, from the trial's own directory; `None` where it has run again since.
fn end_line(own: &Storage, number: u64, record: Option<&RunRecord>) -> Result<Option<Metrics>, StoreError> {
    let Some(bytes) = own.read(TRIAL)? else { return Ok(None) };
    let Some(mut line) = parse_object(&String::from_utf8_lossy(&bytes)) else { return Ok(None) };
    let is_last = record.is_none_or(|record| text(&line, RUN).is_some_and(|run| run == record.run_id));
    let is_end = event_of(&line) == "ended" && text(&line, "status").is_some() && trial_of(&line) == Some(number);
    line.0.retain(|(name, _)| name != RUN);
    Ok((is_end && is_last).then_some(line))
}

fn at_of(line: &Metrics) -> f64 {
    super::number(line, "at").unwrap_or(0.0)
}

/// RECOVER-4: no trial has this number or a greater one. Trials are numbered without a gap, so that most of them are known by a line or
/// a directory: what is missing in between is made again, and takes memory.
fn limit_of(lines: &[Metrics], directories: usize) -> u64 {
    let made = lines.iter().filter(|line| event_of(line) == "made").filter_map(trial_of);
    let known = made.collect::<BTreeSet<u64>>().len() + directories;
    2 * known as u64 + GAP
}

/// What the lines that are there say.
#[derive(Default)]
struct Told {
    made: BTreeSet<u64>,
    over: HashSet<u64>,
    /// Every directory that a trial had, and the one that it has.
    directories: HashSet<String>,
    directory_of: HashMap<u64, String>,
    /// When it was last started.
    started: HashMap<u64, f64>,
}

impl Told {
    fn by(lines: &[Metrics]) -> Self {
        let mut told = Self::default();
        for line in lines {
            let (Some(event), Some(number)) = (text(line, "event"), integer(line, "trial")) else { continue };
            match event.as_str() {
                "made" => {
                    told.made.insert(number);
                    told.over.remove(&number);
                    if let Some(directory) = text(line, "directory") {
                        told.directories.insert(directory.clone());
                        told.directory_of.insert(number, directory);
                    }
                }
                "started" => {
                    told.over.remove(&number);
                    told.started.insert(number, super::number(line, "at").unwrap_or(0.0));
                }
                "ended" => drop(told.over.insert(number)),
                _ => {}
            }
        }
        told
    }
}

/// RECOVER-1: a trial stands before everything that is said of it, and before every later one.
fn merged(lines: Vec<Metrics>, mut made: BTreeMap<u64, Metrics>) -> Vec<Metrics> {
    let mut all = Vec::with_capacity(lines.len() + made.len());
    // Those that are made stand where the first line needs them.
    let mut rest = Vec::with_capacity(lines.len());
    for line in lines {
        match trial_of(&line) {
            Some(number) if event_of(&line) == "made" && !made.contains_key(&number) => {
                rest.push((Some(number), None));
                made.insert(number, line);
            }
            number => rest.push((number, Some(line))),
        }
    }
    for (number, line) in rest {
        while let Some(entry) = made.first_entry().filter(|entry| Some(*entry.key()) <= number) {
            all.push(entry.remove());
        }
        all.extend(line);
    }
    all.extend(made.into_values());
    all
}

/// The number of the trial that a directory belongs to; `None` where it is no trial's, or another experiment's.
fn number_of(place: &Storage, directory: &str, prefix: &str) -> Result<Option<u64>, StoreError> {
    let place = place.join(directory);
    let Some(params) = place.read("params.json")? else { return Ok(None) };
    if let Some(number) = number_in(directory, prefix) {
        return Ok(Some(number));
    }
    // A name of the user's own: its reports say whose they are.
    drop(params);
    let id = last_report(&place)?.and_then(|result| text(&result, "trial_id"));
    Ok(id.and_then(|id| number_in(&id, prefix)))
}

fn number_in(name: &str, prefix: &str) -> Option<u64> {
    let mark = format!("{prefix}_");
    name.match_indices(&mark).find_map(|(at, _)| {
        let rest = &name[at + mark.len()..];
        let digits = rest.len() - rest.trim_start_matches(|character: char| character.is_ascii_digit()).len();
        if digits >= 5 { rest[..digits].parse().ok() } else { None }
    })
}

/// Of one without a directory the config is not known: it had not begun.
fn made_line(place: &Storage, prefix: &str, number: u64, directory: Option<&String>) -> Result<Metrics, StoreError> {
    let id = format!("{prefix}_{number:05}");
    let own = directory.map(|directory| place.join(directory));
    let read = |name: &str| own.as_ref().map_or(Ok(None), |own| own.read(name));
    let config = read("params.json")?.and_then(|bytes| parse_object(&String::from_utf8_lossy(&bytes)));
    let first = read(RESULTS)?.and_then(|bytes| {
        String::from_utf8_lossy(&bytes).lines().find_map(|line| find_in_object(line, "experiment_tag"))
    });
    let directory = directory.cloned().unwrap_or_else(|| id.clone());
    let name = match directory.find(&id) {
        Some(at) => directory[..at + id.len()].to_owned(),
        None => directory.clone(),
    };
    let mut line = Metrics(vec![
        ("event".to_owned(), Value::Text("made".into())),
        ("at".to_owned(), Value::Float(0.0)),
        ("trial".to_owned(), Value::Int(number as i64)),
        ("id".to_owned(), Value::Text(id)),
        ("name".to_owned(), Value::Text(name)),
        ("directory".to_owned(), Value::Text(directory)),
        ("tag".to_owned(), first.unwrap_or_else(|| Value::Text(number.to_string()))),
    ]);
    if let Some(config) = config {
        line.0.push(("config".to_owned(), Value::Map(config)));
    }
    line.0.push((RECOVERED.to_owned(), Value::Bool(true)));
    Ok(line)
}

fn look_at(
    place: &Storage,
    metric: Option<&str>,
    started: Option<f64>,
    record: Option<RunRecord>,
) -> Result<Reached, StoreError> {
    let last = last_report(place)?;
    // The end of an earlier life, as of a trial that was paused, is not this one's.
    let is_last = |record: &RunRecord| record.ended.unwrap_or(0.0) >= started.unwrap_or(0.0);
    let status = record.filter(is_last).map(|record| record.status);
    let ended = match status.filter(|status| matches!(status, RunStatus::Finished | RunStatus::Failed)) {
        Some(RunStatus::Failed) => {
            let error = place.read("error.txt")?.unwrap_or_default();
            let headline = String::from_utf8_lossy(&error).lines().next().unwrap_or("it failed").to_owned();
            Some((RunStatus::Failed, headline))
        }
        other => other.map(|status| (status, String::new())),
    };
    // One that was cut off resumes from it; one that has neither reported nor ended has none.
    let checkpoint = match (&ended, &last) {
        (None, None) => None,
        _ => list_checkpoints(place)?.into_iter().rev().find(|listed| listed.state.is_ok()).map(|one| one.name),
    };
    let has_metric = match (metric, &last) {
        (Some(metric), Some(last)) if last.find(metric).and_then(Value::as_f64).is_none() => {
            let bytes = place.read(RESULTS)?.unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            text.lines().any(|line| find_in_object(line, metric).is_some_and(|value| value.as_f64().is_some()))
        }
        (_, last) => last.is_some(),
    };
    Ok(Reached { last, has_metric, ended, checkpoint })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use crate::manifest::{Manifest, ManifestFile, VERSION};

    /// One has a name of the user's own.
    fn directory_of(number: u64) -> String {
        if number == 4 { "named by the user".to_owned() } else { format!("train_abcde_{number:05}_1") }
    }

    fn line(event: &str, number: u64) -> Metrics {
        let text = |text: &str| Value::Text(text.into());
        let mut fields = vec![("event".to_owned(), text(event)), ("trial".to_owned(), Value::Int(number as i64))];
        let at =
            number as f64 + ["made", "started", "ended"].iter().position(|one| *one == event).unwrap() as f64 * 0.1;
        fields.push(("at".to_owned(), Value::Float(at)));
        if event == "made" {
            let names = ["name", "tag"].map(|name| (name.to_owned(), text("any")));
            fields.extend(names);
            fields.push(("id".to_owned(), text(&format!("abcde_{number:05}"))));
            fields.push(("directory".to_owned(), text(&directory_of(number))));
            fields.push(("config".to_owned(), Value::Map(Metrics::default())));
        }
        Metrics(fields)
    }

    fn trial(root: &std::path::Path, directory: &str, number: u64) {
        let place = root.join(directory);
        fs::create_dir(&place).unwrap();
        fs::write(place.join("params.json"), format!("{{\"x\": {number}}}\n")).unwrap();
        let report = |at: u64| {
            format!("{{\"loss\": {at}.5, \"training_iteration\": {at}, \"trial_id\": \"abcde_{number:05}\"}}\n")
        };
        fs::write(place.join(RESULTS), report(1) + &report(2) + "{\"loss\": 9").unwrap();
    }

    #[test]
    fn a_trial_that_was_cut_off_has_its_newest_whole_checkpoint() {
        let root = tempfile::tempdir().unwrap();
        let place = Storage::local(root.path());
        let lines: Vec<Metrics> = (0..2).flat_map(|number| [line("made", number), line("started", number)]).collect();
        for number in 0..2 {
            trial(root.path(), &directory_of(number), number);
        }
        let own = root.path().join(directory_of(0));
        // The last one was being written.
        for (iteration, is_whole) in [(1, true), (2, true), (3, false)] {
            let at = own.join(format!("checkpoint_{:06}", iteration - 1));
            fs::create_dir(&at).unwrap();
            let manifest = Manifest {
                version: VERSION,
                iteration,
                attempt: 1,
                created: 0.0,
                ranks: vec![0],
                metrics: serde_json::Value::Null,
                own: Vec::new(),
                data_position: serde_json::Value::Null,
                validation: None,
                files: vec![ManifestFile { path: "state".into(), size: 2, crc32c: None, rank: 0 }],
            };
            fs::write(at.join(".manifest.json"), manifest.to_bytes()).unwrap();
            if is_whole {
                fs::write(at.join("state"), "ab").unwrap();
            }
        }
        let recovered = recover(&place, "abcde0123", lines, Some("loss")).unwrap();
        let of = |number: u64| recovered.reached[&number].checkpoint.as_deref();
        assert_eq!((of(0), of(1)), (Some("checkpoint_000001"), None), "RECOVER-3");
    }

    #[test]
    fn whatever_lines_are_lost_every_trial_is_made_once_and_in_order() {
        let root = tempfile::tempdir().unwrap();
        let mut whole = Vec::new();
        for number in 0..6 {
            if number != 2 {
                trial(root.path(), &directory_of(number), number);
            }
            whole.extend([line("made", number), line("started", number), line("ended", number)]);
        }
        trial(root.path(), "train_fffff_00009_1", 9);
        fs::remove_file(root.path().join("train_fffff_00009_1").join(RESULTS)).unwrap();
        fs::create_dir(root.path().join("notes")).unwrap();
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let kept: Vec<Metrics> = whole.iter().filter(|_| random.f64() < 0.6).cloned().collect();
            let recovered = recover(&Storage::local(root.path()), "abcde0123", kept.clone(), Some("loss")).unwrap();
            let mut made = Vec::new();
            for line in &recovered.lines {
                let number = integer(line, "trial").unwrap();
                match text(line, "event").unwrap().as_str() {
                    "made" => made.push(number),
                    _ => assert!(made.contains(&number), "RECOVER-1: {kept:?}"),
                }
            }
            assert_eq!(made, (0..6).collect::<Vec<_>>(), "RECOVER-1");
            let others: Vec<&Metrics> = recovered.lines.iter().filter(|line| line.get(RECOVERED).is_none()).collect();
            assert_eq!(others, kept.iter().collect::<Vec<_>>(), "RECOVER-2, ORDER-2");
            for (number, reached) in &recovered.reached {
                let last = reached.last.as_ref().and_then(|last| last.get("loss"));
                assert_eq!(
                    (last, reached.has_metric),
                    if *number == 2 { (None, false) } else { (Some(&Value::Float(2.5)), true) }
                );
            }
        }
    }

    /// Lines that no head writes.
    fn foreign() -> impl Strategy<Value = Metrics> {
        let number = prop_oneof![
            any::<u64>().prop_map(|number| Value::Int((number >> 1) as i64)),
            Just(Value::Map(Metrics(vec![("a".into(), Value::Int(1))]))),
            Just(Value::Text("0".into())),
            Just(Value::Int(-1)),
            Just(Value::None),
        ];
        let event = prop_oneof![Just("made"), Just("started"), Just("ended"), Just("told")];
        (number, event).prop_map(|(number, event)| {
            let number = if matches!(number, Value::Int(0..=1000)) { Value::Int(i64::MAX) } else { number };
            let mut line = line(if event == "told" { "started" } else { event }, 0);
            // Also one that looks like ours, but for the number.
            if let (Value::Int(number), "made") = (&number, event) {
                line.set("id", Value::Text(format!("abcde_{number:05}")));
            }
            line.set("trial", number);
            if event == "told" {
                line.set("event", Value::List(vec![]));
            }
            line
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        /// RECOVER-1, RECOVER-4, ORDER-1, ORDER-3: whatever has happened to the lines.
        #[test]
        fn every_trial_is_made_once_and_what_is_over_stays_over(
            kept in prop::collection::vec(0_usize..3, 18),
            foreign in prop::collection::vec(foreign(), 0..4),
            seed in any::<u64>(),
            shuffles in any::<bool>(),
        ) {
            let root = tempfile::tempdir().unwrap();
            let mut lines = Vec::new();
            for number in 0..6 {
                trial(root.path(), &directory_of(number), number);
                lines.extend(["made", "started", "ended"].map(|event| line(event, number)));
            }
            let mut lines: Vec<Metrics> =
                lines.into_iter().zip(kept).flat_map(|(line, times)| vec![line; times]).collect();
            let mut random = fastrand::Rng::with_seed(seed);
            for line in &foreign {
                lines.insert(random.usize(..=lines.len()), line.clone());
            }
            if shuffles {
                random.shuffle(&mut lines);
            }
            let ended: BTreeSet<u64> = lines.iter().filter(|line| event_of(line) == "ended").filter_map(trial_of).collect();
            let recovered = recover(&Storage::local(root.path()), "abcde0123", lines, Some("loss")).unwrap();
            prop_assert_eq!(recovered.left_out, foreign.len(), "ORDER-1, RECOVER-4");
            let (mut made, mut over) = (Vec::new(), BTreeSet::new());
            for line in &recovered.lines {
                let number = trial_of(line).unwrap();
                prop_assert!(!over.contains(&number), "ORDER-3");
                match event_of(line) {
                    "made" => made.push(number),
                    _ => prop_assert!(made.contains(&number), "RECOVER-1"),
                }
                if event_of(line) == "ended" {
                    over.insert(number);
                }
            }
            prop_assert_eq!(made, (0..6).collect::<Vec<_>>(), "RECOVER-1");
            prop_assert_eq!(&over, &ended.into_iter().filter(|number| *number < 6).collect());
            prop_assert!((0..6).all(|number| recovered.reached.contains_key(&number) != over.contains(&number)));
        }
    }
}
