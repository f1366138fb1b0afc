//! A save that is cut short at any of its calls: the checkpoint before it stays, and the run goes on or is gone on with.
//!
//! The calls are not written down here: a first run has them logged (`CARRIL_FAULT=0:…`), and each one is then made to fail.

mod programs;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carril_store::{Storage, list_checkpoints, verify};
use carril_testkit::Fixture;
use carril_types::ErrorCode;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use programs::programs;

/// What the ranks do: given away, copied, and not waited for.
const SAVES: &[&str] = &["checkpoint", "latest", "copy", "latest", "async", "latest"];
const RANKS: u32 = 2;

/// A head whose saves fail at the n-th call, and the log of the calls.
async fn fixture(n: usize, kind: &str) -> (Fixture, PathBuf) {
    let storage = tempfile::tempdir().unwrap();
    let log = storage.path().join("faults.log");
    let fault = format!("{n}:{kind}:{}", log.display());
    (Fixture::start_on(&programs(), 8.0, storage, &[("CARRIL_FAULT", &fault)]).await, log)
}

fn fired(log: &Path) -> bool {
    std::fs::read_to_string(log).unwrap_or_default().lines().any(|line| line.ends_with(" fired"))
}

/// How many calls the saves make; checked to be more than a few, so that the tests below try something.
async fn calls() -> usize {
    let (fixture, log) = fixture(0, "eio").await;
    let end = fixture.run(RANKS, SAVES).await;
    assert_eq!(end.ended.status, "finished", "{end:?}");
    let calls = std::fs::read_to_string(&log).unwrap().lines().count();
    assert!(calls > 30, "{calls} calls");
    calls
}

/// In `make test` every third call, beginning with another one each time; all of them in the long tests.
fn chosen(calls: usize, offset: usize) -> Vec<usize> {
    let step = if std::env::var_os("CARRIL_LONG").is_some() { 1 } else { 3 };
    (1..=calls).skip(offset % step).step_by(step).collect()
}

/// Every checkpoint that is listed is whole; their names.
fn whole_checkpoints(run: &Path) -> Vec<String> {
    let storage = Storage::open(&run.display().to_string(), None).unwrap();
    let listed = list_checkpoints(&storage).unwrap();
    for one in &listed {
        let whole = verify(&storage.join(&one.name)).unwrap();
        assert!(whole.is_ok(), "{} is listed and damaged: {}", one.name, whole.err().unwrap());
    }
    listed.into_iter().map(|one| one.name).collect()
}

#[tokio::test]
async fn a_disk_that_fails_at_any_call_costs_one_checkpoint_at_most() {
    for (offset, kind) in ["enospc", "eio"].into_iter().enumerate() {
        for n in chosen(calls().await, offset) {
            let (fixture, log) = fixture(n, kind).await;
            let submitted = fixture.submit(&fixture.spec(RANKS, SAVES)).await;
            let reply = match submitted {
                Ok(reply) => reply,
                // The first calls take the run: it cannot begin without them.
                Err(refused) => {
                    let code = if kind == "enospc" { ErrorCode::StorageRefused } else { ErrorCode::Storage };
                    assert_eq!(refused.code, code, "{kind} at call {n}: {refused}");
                    assert!(fired(&log), "call {n} was made");
                    continue;
                }
            };
            let end = fixture.follow(&reply, |_| {}).await;
            let whole = whole_checkpoints(&end.path);
            assert!(fired(&log), "call {n} was made");
            assert!(whole.len() >= 2, "{kind} at call {n} left {whole:?}: {end:#?}");
            if end.ended.status == "finished" {
                continue;
            }
            // Only the loss of the last one is a failure of the run.
            assert!(end.ended.headline.starts_with("the last checkpoint could not be stored: "), "{end:#?}");
            // It may be there all the same, when only the flush of its name was refused.
            assert_eq!(whole[..2], ["checkpoint_000000", "checkpoint_000001"], "{kind} at call {n}");
        }
    }
}

#[tokio::test]
async fn a_head_and_agent_that_is_killed_at_any_call_leaves_what_can_be_gone_on_from() {
    for n in chosen(calls().await, 2) {
        let (fixture, log) = fixture(n, "kill").await;
        let spec = fixture.spec(RANKS, SAVES);
        let run = fixture.storage.path().join(&spec.name);
        // It dies while this is submitted or after it.
        let _ = fixture.submit(&spec).await;
        wait_for(|| fired(&log)).await;
        let storage = fixture.into_storage();
        let before = whole_checkpoints(&run);
        let fixture = Fixture::start_on(&programs(), 8.0, storage, &[]).await;
        let reply = fixture.submit(&fixture.spec(RANKS, &["latest", "checkpoint"])).await.unwrap();
        let end = fixture.follow(&reply, |_| {}).await;
        assert_eq!(end.ended.status, "finished", "killed at call {n}: {end:#?}");
        let told = String::from_utf8(end.output[&0].clone()).unwrap();
        match before.last() {
            Some(newest) => assert!(told.contains(newest.as_str()), "killed at call {n}: {told}"),
            None => assert!(told.contains("None"), "killed at call {n}: {told}"),
        }
        let reports = end.reports.last().map_or(0, |report| report.iteration);
        assert_eq!(reports as usize, before.len() + 1, "the count of reports goes on");
        assert_eq!(whole_checkpoints(&run).len(), before.len() + 1, "killed at call {n}");
        assert!(!run.join(".staging").exists(), "nothing half-made stays");
    }
}

#[tokio::test]
async fn a_worker_that_is_killed_at_any_call_loses_nothing_that_was_committed() {
    for n in chosen(calls().await, 1) {
        let (fixture, log) = fixture(n, "stop").await;
        let spec = fixture.spec(RANKS, SAVES);
        let head = Pid::from_raw(fixture.head.child.id() as i32);
        let meanwhile = async {
            wait_for(|| fired(&log)).await;
            // The log is written before the signal: what goes on before it has stopped would stop for good.
            wait_for(|| is_stopped(head)).await;
            let worker = worker_of(head);
            if let Some(worker) = worker {
                kill(worker, Signal::SIGKILL).unwrap();
            }
            let before = whole_checkpoints(&fixture.storage.path().join(&spec.name));
            kill(head, Signal::SIGCONT).unwrap();
            (worker, before)
        };
        // A head that stops while it opens the run answers only when it goes on.
        let (reply, (worker, before)) = tokio::join!(fixture.submit(&spec), meanwhile);
        let end = fixture.follow(&reply.expect("the run was accepted"), |_| {}).await;
        let whole = whole_checkpoints(&end.path);
        assert!(whole.starts_with(&before), "killed at call {n}: {before:?} before, {whole:?} after");
        assert!(worker.is_some() || end.ended.status == "finished", "{end:#?}");
    }
}

fn is_stopped(head: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{head}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && line.contains("stopped"))
}

/// A test worker below the head.
fn worker_of(head: Pid) -> Option<Pid> {
    let children = std::fs::read_to_string(format!("/proc/{head}/task/{head}/children")).unwrap_or_default();
    let is_worker = |pid: &&str| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains("carril-test-worker")
    };
    children.split_whitespace().find(is_worker).and_then(|pid| pid.parse().ok()).map(Pid::from_raw)
}

async fn wait_for(condition: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < until, "the fault did not fire");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
