//! A process that is stopped and not dead. A rank's is said at once, costs nothing when it goes on, and is replaced when it
//! does not; the head's costs nothing, however long it was.

use std::time::{Duration, Instant};

use carril_proto::v1::run_event::Kind;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::evidence::{assert_contiguous, assert_nothing_left, starts, undisturbed, weights};
use crate::{Fault, allowing, fixture, training};

const STEPS: u64 = 4;
const STOPPED: &str = "the process of rank 1 was stopped by a signal; SIGCONT lets it go on";

#[tokio::test]
async fn a_rank_that_is_stopped_and_goes_on_costs_nothing() {
    let fixture = fixture().await;
    let expected = undisturbed(&fixture, STEPS).await;
    let paused = Fault::new(&fixture, "paused", "pause", 1, "code", 2);
    let mut spec = training(&fixture, STEPS, &[&paused]);
    spec.hang_timeout_s = Some(60.0);
    let reply = fixture.submit(&spec).await.unwrap();
    let pid = paused.wait_until_fired().await.pid;
    let stopped = Instant::now();
    kill(pid, Signal::SIGSTOP).unwrap();
    let mut seen = None;
    let end = fixture
        .follow(&reply, |event| {
            if matches!(event, Kind::Warning(warning) if warning.text == STOPPED) {
                seen = Some(stopped.elapsed());
                kill(pid, Signal::SIGCONT).unwrap();
                paused.go();
            }
        })
        .await;
    let seen = seen.expect("it was said");
    assert!(seen < Duration::from_secs(3), "said after {seen:?}");
    assert!(end.warnings.iter().any(|text| text == "the process of rank 1 goes on"), "{:?}", end.warnings);
    assert_eq!((end.ended.status.as_str(), end.restarts.len()), ("finished", 0), "{end:#?}");
    assert_eq!(weights(&end), expected);
}

#[tokio::test]
async fn a_rank_that_stays_stopped_is_killed_and_the_group_goes_on_without_a_mistake_of_the_users() {
    let fixture = fixture().await;
    let expected = undisturbed(&fixture, STEPS).await;
    let paused = Fault::new(&fixture, "paused", "pause", 1, "code", 2);
    let mut spec = training(&fixture, STEPS, &[&paused]);
    spec.hang_timeout_s = Some(2.0);
    spec.failures = allowing(0, 1);
    let reply = fixture.submit(&spec).await.unwrap();
    let pid = paused.wait_until_fired().await.pid;
    kill(pid, Signal::SIGSTOP).unwrap();
    let end = fixture.follow(&reply, |_| {}).await;
    assert!(end.warnings.iter().any(|text| text == STOPPED), "{:?}", end.warnings);
    assert_eq!(end.ended.status, "finished", "{end:#?}");
    let [restart] = &end.restarts[..] else { panic!("one restart: {:?}", end.restarts) };
    assert_eq!(restart.code, "worker-stopped");
    let reason = &restart.reason;
    assert!(
        reason.starts_with("no progress for 2 s: ") && reason.contains("rank 1 is stopped by a signal"),
        "{reason}"
    );
    assert!(reason.contains("failure 1 of 1 by `max_infrastructure_failures`"), "{reason}");
    let begun = starts(&end, 0);
    assert_contiguous(&end.path, &begun, STEPS);
    assert_eq!(begun.len(), 2);
    assert_eq!(weights(&end), expected);
    assert_nothing_left(&fixture, &end, &reply.run_id).await;
}

#[tokio::test]
async fn a_rank_that_only_stands_still_is_a_mistake_of_the_users() {
    let fixture = fixture().await;
    let expected = undisturbed(&fixture, STEPS).await;
    let paused = Fault::new(&fixture, "paused", "pause", 0, "code", 2);
    let mut spec = training(&fixture, STEPS, &[&paused]);
    spec.hang_timeout_s = Some(1.0);
    spec.failures = allowing(1, 0);
    let reply = fixture.submit(&spec).await.unwrap();
    let end = fixture.follow(&reply, |_| {}).await;
    paused.witness();
    assert_eq!((end.ended.status.as_str(), end.restarts.len()), ("finished", 1), "{end:#?}");
    let restart = &end.restarts[0];
    assert_eq!(restart.code, "hang");
    assert!(restart.reason.starts_with("no progress for 1 s: rank"), "{}", restart.reason);
    assert!(restart.reason.contains("failure 1 of 1 by `max_failures`"), "{}", restart.reason);
    assert_eq!(weights(&end), expected);
}

#[tokio::test]
async fn a_head_that_was_stopped_does_not_take_its_own_absence_for_that_of_the_ranks() {
    let fixture = fixture().await;
    let expected = undisturbed(&fixture, STEPS).await;
    let paused = Fault::new(&fixture, "paused", "pause", 1, "code", 2);
    let mut spec = training(&fixture, STEPS, &[&paused]);
    spec.hang_timeout_s = Some(1.0);
    let reply = fixture.submit(&spec).await.unwrap();
    paused.wait_until_fired().await;
    let head = Pid::from_raw(fixture.head.child.id() as i32);
    kill(head, Signal::SIGSTOP).unwrap();
    // Longer than a rank may go without progress.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    kill(head, Signal::SIGCONT).unwrap();
    paused.go();
    let end = fixture.follow(&reply, |_| {}).await;
    assert_eq!((end.ended.status.as_str(), end.restarts.len()), ("finished", 0), "{end:#?}");
    assert_eq!(weights(&end), expected);
}
