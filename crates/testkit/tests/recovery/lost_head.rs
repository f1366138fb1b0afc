//! The head and the agent are killed in each state of a run: a new one goes on, and counts on.

use std::fs;
use std::path::Path;

use carril_proto::v1;
use carril_testkit::{Fixture, RunEnd};
use carril_types::{ErrorCode, RunSpec};
use nix::sys::signal::{Signal, kill};

use crate::evidence::{
    Lease, assert_contiguous, assert_nothing_left, history, is_state, starts, state_of, undisturbed, wait_for,
    wait_for_checkpoint, wait_for_event, wait_until_gone, weights,
};
use crate::programs::programs;
use crate::{Fault, allowing, training};

const STEPS: u64 = 6;

/// Kills the head with SIGKILL and starts another on the same storage; nothing that ran below it may stay.
pub async fn replace(fixture: Fixture, cpus: f64) -> Fixture {
    let below = workers(fixture.storage.path());
    let storage = fixture.into_storage();
    for pid in below {
        wait_until_gone(pid).await;
    }
    Fixture::start_on(&programs(), cpus, storage, &[]).await
}

/// The processes that work below this directory, by the fault's words on their command lines.
fn workers(storage: &Path) -> Vec<u32> {
    let storage = storage.display().to_string();
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_worker = |pid: &u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains(&storage) && state_of(*pid).is_some_and(|state| state != 'Z')
    };
    pids.filter(is_worker).collect()
}

async fn submit_again(fixture: &Fixture, spec: &mut RunSpec, before: &v1::RunReply) -> v1::RunReply {
    spec.continues = Some(before.run_id.clone());
    fixture.submit(spec).await.unwrap()
}

fn restarts(end: &RunEnd) -> Vec<(u32, &str)> {
    end.ended.restarts.iter().map(|restart| (restart.attempt, restart.code.as_str())).collect()
}

#[tokio::test]
async fn a_head_that_is_lost_while_a_run_waits_starts_and_runs_is_replaced_until_it_is_once_too_often() {
    let fixture = Fixture::start(&programs(), 2.0).await;
    let expected = undisturbed(&fixture, STEPS).await;
    let starting = Fault::new(&fixture, "starting", "pause", 0, "start", 0);
    let running = Fault::new(&fixture, "running", "pause", 1, "code", 2).in_attempt(Some(1));
    let again = Fault::new(&fixture, "again", "pause", 0, "collective", 4).in_attempt(Some(2));
    let mut spec = training(&fixture, STEPS, &[&starting, &running, &again]);
    spec.failures = allowing(0, 3);
    let run = fixture.storage.path().join(&spec.name);

    let other = fixture.submit(&fixture.spec(2, &["hang"])).await.unwrap();
    let reply = fixture.submit(&spec).await.unwrap();
    assert_ne!(other.run_id, reply.run_id);
    wait_for_event(&fixture, &reply, |event| is_state(event, "waiting")).await;
    let fixture = replace(fixture, 2.0).await;

    let reply = submit_again(&fixture, &mut spec, &reply).await;
    starting.wait_until_fired().await;
    wait_for_event(&fixture, &reply, |event| is_state(event, "starting")).await;
    let fixture = replace(fixture, 2.0).await;

    let reply = submit_again(&fixture, &mut spec, &reply).await;
    running.wait_until_fired().await;
    wait_for_checkpoint(&run, 2).await;
    let fixture = replace(fixture, 2.0).await;

    let reply = submit_again(&fixture, &mut spec, &reply).await;
    again.wait_until_fired().await;
    wait_for_checkpoint(&run, 4).await;
    let reasons: Vec<String> = history(&run).restarts.into_iter().map(|(_, restart)| restart.reason).collect();
    let lost = "the head was lost and was started again";
    let paid = |number| format!("{lost} (failure {number} of 3 by `max_infrastructure_failures`");
    assert_eq!(reasons.len(), 3, "{reasons:?}");
    assert!(reasons.iter().zip(1..).all(|(reason, number)| reason.starts_with(&paid(number))), "{reasons:?}");
    let fixture = replace(fixture, 2.0).await;

    spec.continues = Some(reply.run_id);
    let refused = fixture.submit(&spec).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::HeadLost);
    let words = format!("{lost} once too often: `max_infrastructure_failures=3` is used up");
    assert_eq!(refused.message, words);
    assert!(fs::read_to_string(run.join("error.txt")).unwrap().starts_with(&words));

    // A new `fit` has its budgets anew, and goes on where the last one was.
    spec.continues = None;
    let reply = fixture.submit(&spec).await.unwrap();
    let end = fixture.follow(&reply, |_| {}).await;
    assert_eq!(end.ended.status, "finished", "{end:#?}");
    assert_eq!(restarts(&end), [], "those of the `fit` before are its own");
    assert_eq!(starts(&end, 0), [0, 2, 4]);
    assert!(run.join("ranks/rank_0.attempt_3.log").exists(), "the attempts count on");
    assert_contiguous(&run, &[0, 2, 4], STEPS);
    assert_eq!(weights(&end), expected);
    assert_nothing_left(&fixture, &end, &reply.run_id).await;
}

#[tokio::test]
async fn a_head_that_is_lost_while_a_run_stores_stops_and_restarts_is_replaced() {
    let fixture = Fixture::start(&programs(), 2.0).await;
    let expected = undisturbed(&fixture, STEPS).await;
    let storing = Fault::new(&fixture, "storing", "pause", 1, "save", 2);
    let stopping = Fault::new(&fixture, "stopping", "pause", 0, "code", 3).in_attempt(Some(1));
    let restarting = Fault::new(&fixture, "restarting", "pause", 1, "code", 4).in_attempt(Some(2));
    let mut spec = training(&fixture, STEPS, &[&storing, &stopping, &restarting]);
    if let carril_types::WorkerCommand::Command { arguments } = &mut spec.worker {
        // Does not leave when it is asked to, so that the run is stopping for as long as it may.
        arguments.insert(1, "stubborn".into());
    }
    spec.failures = allowing(0, 4);
    let run = fixture.storage.path().join(&spec.name);

    let reply = fixture.submit(&spec).await.unwrap();
    storing.wait_until_fired().await;
    wait_for_checkpoint(&run, 2).await;
    assert!(run.join(".staging").exists(), "files are being taken");
    let fixture = replace(fixture, 2.0).await;

    let reply = submit_again(&fixture, &mut spec, &reply).await;
    stopping.wait_until_fired().await;
    wait_for_checkpoint(&run, 3).await;
    fixture.client.stop_run(reply.run_id.clone(), "enough".into(), false).await.unwrap();
    wait_for_event(&fixture, &reply, |event| is_state(event, "stopping")).await;
    let fixture = replace(fixture, 2.0).await;

    let reply = submit_again(&fixture, &mut spec, &reply).await;
    let witness = restarting.wait_until_fired().await;
    let checkpoint = wait_for_checkpoint(&run, 4).await;
    let lease = Lease::take(&checkpoint.join("rank_1.txt")).await;
    kill(witness.pid, Signal::SIGKILL).unwrap();
    wait_for_event(&fixture, &reply, |event| is_state(event, "restarting")).await;
    wait_for("a look at the checkpoint", || lease.is_wanted()).await;
    let fixture = replace(fixture, 2.0).await;
    drop(lease);

    let reply = submit_again(&fixture, &mut spec, &reply).await;
    let end = fixture.follow(&reply, |_| {}).await;
    assert_eq!(end.ended.status, "finished", "{end:#?}");
    let expected_restarts = [(1, "head-lost"), (2, "head-lost"), (3, "worker-killed"), (3, "head-lost")];
    assert_eq!(restarts(&end), expected_restarts, "{end:#?}");
    assert_eq!(starts(&end, 0), [0, 2, 3, 4]);
    assert_eq!(starts(&end, 1), [0, 2, 3, 4]);
    assert_contiguous(&run, &[0, 2, 3, 4], STEPS);
    assert_eq!(weights(&end), expected);
    assert_nothing_left(&fixture, &end, &reply.run_id).await;
}

#[tokio::test]
async fn what_was_paid_for_before_a_head_was_lost_stays_paid() {
    let fixture = Fixture::start(&programs(), 2.0).await;
    let first = Fault::new(&fixture, "first", "error", 1, "code", 1);
    let paused = Fault::new(&fixture, "paused", "pause", 0, "code", 2).in_attempt(Some(1));
    let second = Fault::new(&fixture, "second", "error", 1, "code", 4).in_attempt(Some(2));
    let mut spec = training(&fixture, STEPS, &[&first, &paused, &second]);
    spec.failures = allowing(1, 3);
    let reply = fixture.submit(&spec).await.unwrap();
    paused.wait_until_fired().await;
    first.witness();
    let fixture = replace(fixture, 2.0).await;
    let reply = submit_again(&fixture, &mut spec, &reply).await;
    let end = fixture.follow(&reply, |_| {}).await;
    second.witness();
    assert_eq!(end.ended.status, "failed", "{end:#?}");
    assert_eq!(restarts(&end), [(1, "user-exception"), (2, "head-lost")], "{end:#?}");
    let why = "(attempt 3: `max_failures=1` is used up)";
    assert_eq!(end.ended.headline, format!("rank 1 failed: Error: a mistake on purpose {why}"));
    assert_nothing_left(&fixture, &end, &reply.run_id).await;
}
