//! A save is killed, or told of an I/O error or a full disk, at every call that it makes: the previous checkpoint stays, and the
//! next save works.
//!
//! The save runs in a process of its own: this same program, started as `faults save RUN FROM`. A first save without a fault
//! enumerates the calls; each is then failed in every way, on a copy of the same run.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use carril_store::{Header, STAGING, Shard, Storage, StoreError, Take, commit, find_latest, prepare, remove, take};
use carril_types::Rank;

const FIRST: &str = "checkpoint_000000";
const SECOND: &str = "checkpoint_000001";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|word| word == "save") {
        let (run, from) = (PathBuf::from(&arguments[2]), PathBuf::from(&arguments[3]));
        // As whoever commits does: what could not be saved goes, and the one before stays.
        match save(&run, &from, 2, SECOND).and_then(|()| remove(&Storage::local(&run), FIRST)) {
            Ok(()) => return,
            Err(error) => {
                eprintln!("{error}");
                std::process::exit(1);
            }
        }
    }
    let points = enumerate();
    assert!(points.len() > 30, "a save has more calls than {points:?}");
    for (at, point) in points.iter().enumerate() {
        for kind in ["kill", "eio", "enospc"] {
            fail_at(at + 1, kind, point);
        }
    }
    println!("{} calls of a save, each failed in three ways", points.len());
}

/// Two ranks, one giving its files away, as agents and head would do it.
fn save(run: &Path, from: &Path, iteration: u64, name: &str) -> Result<(), StoreError> {
    let mut shards = Vec::new();
    for rank in 0..2 {
        let from = from.join(format!("rank_{rank}"));
        let spool = run.join(STAGING).join(iteration.to_string()).join(format!("rank_{rank}"));
        let asked =
            Take { from: &from, to: &spool, run: Some(run), give_away: rank == 1, durable: true, may_be_empty: false };
        let files = prepare(&spool, take(&asked)?, true)?;
        shards.push(Shard { rank: Rank(rank), spool, files });
    }
    let header = Header {
        iteration,
        attempt: 0,
        created: 0.0,
        metrics: serde_json::Value::Null,
        own: Vec::new(),
        validation: None,
        data_position: serde_json::Value::Null,
    };
    commit(&Storage::local(run), name, &header, &shards, false).map(drop)
}

/// A run with one checkpoint, and what the ranks report next.
fn prepared(root: &Path) -> (PathBuf, PathBuf) {
    let (run, from) = (root.join("run"), root.join("from"));
    fs::create_dir(&run).unwrap();
    report(&from, 1);
    save(&run, &from, 1, FIRST).unwrap();
    report(&from, 2);
    (run, from)
}

fn report(from: &Path, iteration: u64) {
    let _ = fs::remove_dir_all(from);
    for file in ["rank_0/model.bin", "rank_0/deep/common.bin", "rank_1/deep/common.bin", "rank_1/more/shard_1.bin"] {
        let path = from.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let content = if file.ends_with("common.bin") { "common" } else { file };
        fs::write(path, format!("{content} {iteration}")).unwrap();
    }
}

fn run_save(run: &Path, from: &Path, fault: &str) -> ExitStatus {
    Command::new(std::env::current_exe().unwrap())
        .arg("save")
        .args([run, from])
        .env("CARRIL_FAULT", fault)
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap()
}

fn enumerate() -> Vec<String> {
    let root = tempfile::tempdir().unwrap();
    let (run, from) = prepared(root.path());
    let log = root.path().join("log");
    assert!(run_save(&run, &from, &format!("0:eio:{}", log.display())).success());
    assert_eq!(latest(&run), 2);
    fs::read_to_string(log).unwrap().lines().map(str::to_owned).collect()
}

fn fail_at(number: usize, kind: &str, point: &str) {
    let root = tempfile::tempdir().unwrap();
    let (run, from) = prepared(root.path());
    let log = root.path().join("log");
    let status = run_save(&run, &from, &format!("{number}:{kind}:{}", log.display()));
    let told = format!("{kind} at {point}");
    let log = fs::read_to_string(log).unwrap();
    let fired = log.lines().filter(|line| line.ends_with(" fired")).count();
    assert_eq!(fired, 1, "{told}: the fault was injected");
    match kind {
        "kill" => assert_eq!(status.signal(), Some(9), "{told}"),
        // A spool that could not be cleared is no reason to refuse what is stored.
        _ => assert!(matches!(status.code(), Some(0 | 1)), "{told}: {status}"),
    }
    let latest_now = latest(&run);
    assert!(latest_now == 2 || (latest_now == 1 && !status.success()), "{told}: {latest_now} after {status}");
    // The run goes on: the next save finds nothing in its way.
    report(&from, 3);
    save(&run, &from, 3, "checkpoint_000002").unwrap_or_else(|error| panic!("{told}: {error}"));
    assert_eq!(latest(&run), 3, "{told}");
    let staging = run.join(STAGING);
    assert!(!staging.exists(), "{told}: {:?}", fs::read_dir(&staging).map(|found| found.count()));
}

/// The iteration of the checkpoint that a run would go on from; nothing may have been damaged on the way.
fn latest(run: &Path) -> u64 {
    let found = find_latest(&Storage::local(run)).unwrap();
    assert_eq!(found.set_aside, [], "a fault leaves a whole checkpoint or none");
    found.kept.last().map_or(0, |(_, manifest)| manifest.iteration)
}
