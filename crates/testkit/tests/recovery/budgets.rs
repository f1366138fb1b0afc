//! How often a run is restarted, who pays for it, and what is said when nobody does.

use std::fs;

use carril_types::FailureSpec;
use nix::sys::signal::{Signal, kill};

use crate::evidence::{assert_contiguous, assert_nothing_left, starts, undisturbed, weights};
use crate::{Fault, allowing, fixture, training};

const STEPS: u64 = 5;
const AGAIN: &str = "the same as the last time, at the same step";

#[tokio::test]
async fn a_budget_that_is_used_up_ends_the_run_and_the_next_one_goes_on() {
    let fixture = fixture().await;
    let expected = undisturbed(&fixture, STEPS).await;
    let fault = Fault::new(&fixture, "always", "error", 1, "code", 3).in_attempt(None);
    let mut spec = training(&fixture, STEPS, &[&fault]);
    spec.failures = allowing(2, 0);
    let reply = fixture.submit(&spec).await.unwrap();
    let end = fixture.follow(&reply, |_| {}).await;
    fault.witness();
    assert_eq!(end.ended.status, "failed");
    let headline =
        format!("rank 1 failed: Error: a mistake on purpose (attempt 3: `max_failures=2` is used up, {AGAIN})");
    assert_eq!(end.ended.headline, headline);
    let reasons: Vec<&str> = end.restarts.iter().map(|restart| restart.reason.as_str()).collect();
    let because = "rank 1 failed: Error: a mistake on purpose (failure";
    assert_eq!(
        reasons,
        [format!("{because} 1 of 2 by `max_failures`)"), format!("{because} 2 of 2 by `max_failures`, {AGAIN})")]
    );
    assert!(fs::read_to_string(end.path.join("error.txt")).unwrap().starts_with(&headline));
    assert_nothing_left(&fixture, &end, &reply.run_id).await;

    // The same again, with its mistake mended.
    spec.worker = training(&fixture, STEPS, &[]).worker;
    let reply = fixture.submit(&spec).await.unwrap();
    let again = fixture.follow(&reply, |_| {}).await;
    assert_eq!((again.ended.status.as_str(), again.restarts.len()), ("finished", 0), "{again:#?}");
    assert_eq!(starts(&again, 0), [0, 3, 3, 3]);
    assert_eq!(again.ended.restarts, [], "those of the run before are its own");
    assert!(!again.path.join("error.txt").exists());
    assert_contiguous(&again.path, &[0, 3, 3, 3], STEPS);
    assert_eq!(weights(&again), expected);
}

#[tokio::test]
async fn fail_fast_is_for_mistakes_and_not_for_machines() {
    let fixture = fixture().await;
    for (kind, status, restarts) in [("error", "failed", 0), ("exit", "failed", 0), ("kill", "finished", 1)] {
        let fault = Fault::new(&fixture, kind, kind, 0, "code", 1);
        let mut spec = training(&fixture, 2, &[&fault]);
        spec.failures = FailureSpec { fail_fast: true, ..allowing(5, 5) };
        let reply = fixture.submit(&spec).await.unwrap();
        let end = fixture.follow(&reply, |_| {}).await;
        fault.witness();
        assert_eq!((end.ended.status.as_str(), end.restarts.len()), (status, restarts), "{end:#?}");
    }
}

#[tokio::test]
async fn without_an_end_of_the_budget_only_the_same_failure_at_the_same_step_ends_a_run() {
    let fixture = fixture().await;
    let expected = undisturbed(&fixture, STEPS).await;
    let faults: Vec<Fault> = (0..4)
        .map(|step| Fault::new(&fixture, &format!("step{step}"), "error", 1, "code", step))
        .zip(0..)
        .map(|(fault, attempt)| fault.in_attempt(Some(attempt)))
        .collect();
    let mut spec = training(&fixture, STEPS, &faults.iter().collect::<Vec<_>>());
    spec.failures = allowing(-1, 0);
    let reply = fixture.submit(&spec).await.unwrap();
    let end = fixture.follow(&reply, |_| {}).await;
    for fault in &faults {
        fault.witness();
    }
    assert_eq!((end.ended.status.as_str(), end.restarts.len()), ("finished", 4), "{end:#?}");
    assert!(end.restarts[3].reason.contains("failure 4 of any number by `max_failures`"), "{end:#?}");
    assert_eq!(weights(&end), expected);

    let fault = Fault::new(&fixture, "always", "exit", 0, "code", 3).in_attempt(None);
    let mut spec = training(&fixture, STEPS, &[&fault]);
    spec.failures = allowing(-1, -1);
    let reply = fixture.submit(&spec).await.unwrap();
    let end = fixture.follow(&reply, |_| {}).await;
    assert_eq!((end.ended.status.as_str(), end.restarts.len()), ("failed", 1), "{end:#?}");
    let why = "(attempt 2: the same failure came twice at the same step, after report 3)";
    assert_eq!(end.ended.headline, format!("rank 0 failed: the worker process left with exit code 1 {why}"));
}

#[tokio::test]
async fn a_machine_that_fails_more_than_three_times_ends_the_run() {
    let fixture = fixture().await;
    let fault = Fault::new(&fixture, "always", "kill", 1, "code", 2).in_attempt(None);
    let mut spec = training(&fixture, STEPS, &[&fault]);
    spec.failures = allowing(0, 3);
    let reply = fixture.submit(&spec).await.unwrap();
    let end = fixture.follow(&reply, |_| {}).await;
    assert_eq!((end.ended.status.as_str(), end.restarts.len()), ("failed", 3), "{end:#?}");
    let why = format!("(attempt 4: `max_infrastructure_failures=3` is used up, {AGAIN})");
    assert_eq!(end.ended.headline, format!("rank 1 failed: the worker process was ended by SIGKILL {why}"));
    assert_nothing_left(&fixture, &end, &reply.run_id).await;

    // Where machines have no budget of their own, the user's pays.
    spec.name = "as-ray".into();
    spec.failures = FailureSpec { max_failures: 1, max_infrastructure_failures: None, fail_fast: false };
    let reply = fixture.submit(&spec).await.unwrap();
    let end = fixture.follow(&reply, |_| {}).await;
    assert!(end.restarts[0].reason.contains("failure 1 of 1 by `max_failures`"), "{end:#?}");
    assert!(end.ended.headline.contains("`max_failures=1` is used up"), "{end:#?}");
}

#[tokio::test]
async fn a_second_failure_is_charged_once_it_is_that_of_another_attempt() {
    let fixture = fixture().await;
    let expected = undisturbed(&fixture, STEPS).await;
    // Both stand still before they are killed: the death of one would end the other before it came so far.
    let first = Fault::new(&fixture, "first", "pause", 0, "code", 2);
    let with_it = Fault::new(&fixture, "with-it", "pause", 1, "code", 2);
    let while_starting = Fault::new(&fixture, "while-starting", "exit", 1, "start", 0).in_attempt(Some(1));
    let mut spec = training(&fixture, STEPS, &[&first, &with_it, &while_starting]);
    spec.failures = allowing(1, 1);
    let reply = fixture.submit(&spec).await.unwrap();
    let paused = [first.wait_until_fired().await.pid, with_it.wait_until_fired().await.pid];
    for pid in paused {
        kill(pid, Signal::SIGKILL).unwrap();
    }
    let end = fixture.follow(&reply, |_| {}).await;
    while_starting.witness();
    assert_eq!(end.ended.status, "finished", "{end:#?}");
    let codes: Vec<&str> = end.restarts.iter().map(|restart| restart.code.as_str()).collect();
    assert_eq!(codes, ["worker-killed", "worker-exited"], "{end:#?}");
    assert!(end.restarts[1].reason.starts_with("rank 1 failed: the worker process left with exit code 1"), "{end:#?}");
    assert_eq!(weights(&end), expected);
    assert_nothing_left(&fixture, &end, &reply.run_id).await;
}
