//! What happens between two attempts: the group is gone, and the next one does not run yet.
//!
//! The next attempt looks at the newest checkpoint first. A lease on one of its files keeps it there for as long as a test
//! needs.

use std::fs;
use std::path::PathBuf;

use carril_proto::v1;
use carril_testkit::Fixture;
use carril_types::{RunSpec, WorkerCommand};
use nix::sys::signal::{Signal, kill};

use crate::evidence::{
    Lease, assert_contiguous, assert_nothing_left, is_state, newest, starts, undisturbed, wait_for,
    wait_for_checkpoint, wait_for_event, wait_until_gone, weights,
};
use crate::programs::programs;
use crate::{Fault, allowing, fixture, training};

const STEPS: u64 = 5;

/// A run whose rank 1 was killed in its fourth step, held where it looks for what it goes on from.
struct Held {
    spec: RunSpec,
    reply: v1::RunReply,
    lease: Lease,
}

async fn held(fixture: &Fixture, name: &str) -> Held {
    let paused = Fault::new(fixture, name, "pause", 1, "code", 3);
    let mut spec = training(fixture, STEPS, &[&paused]);
    spec.failures = allowing(0, 1);
    let reply = fixture.submit(&spec).await.unwrap();
    let witness = paused.wait_until_fired().await;
    let checkpoint = wait_for_checkpoint(&fixture.storage.path().join(&spec.name), 3).await;
    let lease = Lease::take(&checkpoint.join("rank_0.txt")).await;
    kill(witness.pid, Signal::SIGKILL).unwrap();
    wait_for("a look at the checkpoint", || lease.is_wanted()).await;
    Held { spec, reply, lease }
}

#[tokio::test]
async fn a_stop_ends_the_run_at_once() {
    let fixture = fixture().await;
    let Held { reply, lease, .. } = held(&fixture, "held").await;
    fixture.client.stop_run(reply.run_id.clone(), "enough".into(), false).await.unwrap();
    let end = fixture.follow(&reply, |_| {}).await;
    assert!(lease.is_wanted(), "it was not waited for");
    drop(lease);
    assert_eq!((end.ended.status.as_str(), end.ended.headline.as_str()), ("aborted", "stopped: enough"), "{end:#?}");
    assert_eq!(end.states.last().map(String::as_str), Some("restarting"), "{end:#?}");
    assert_eq!(end.restarts.len(), 1);
    assert_nothing_left(&fixture, &end, &reply.run_id).await;
    let free = fixture.client.nodes().await.unwrap()[0].free["CPU"];
    assert_eq!(free, 16.0, "everything has been given back");
}

#[tokio::test]
async fn a_preemption_ends_the_run_at_once_with_what_it_has() {
    let fixture = fixture().await;
    let expected = undisturbed(&fixture, STEPS).await;
    let Held { spec, reply, lease } = held(&fixture, "held").await;
    kill(nix::unistd::Pid::from_raw(fixture.head.child.id() as i32), Signal::SIGTERM).unwrap();
    let end = fixture.follow(&reply, |_| {}).await;
    drop(lease);
    assert_eq!(end.ended.status, "preempted", "{end:#?}");
    assert!(end.ended.headline.ends_with("checkpoint_000002`, of report 3"), "{}", end.ended.headline);
    let reply = fixture.submit(&spec).await.unwrap();
    let end = fixture.follow(&reply, |_| {}).await;
    assert_eq!((end.ended.status.as_str(), starts(&end, 0)), ("finished", vec![0, 3]), "{end:#?}");
    assert_eq!(weights(&end), expected);
}

#[tokio::test]
async fn a_run_that_restarts_keeps_its_room() {
    let fixture = Fixture::start(&programs(), 2.0).await;
    let Held { reply, lease, .. } = held(&fixture, "held").await;
    let other = fixture.submit(&fixture.spec(1, &["report", "1"])).await.unwrap();
    wait_for_event(&fixture, &other, |event| is_state(event, "waiting")).await;
    drop(lease);
    let end = fixture.follow(&reply, |_| {}).await;
    assert_eq!((end.ended.status.as_str(), end.restarts.len()), ("finished", 1), "{end:#?}");
    let end = fixture.follow(&other, |_| {}).await;
    assert_eq!(end.ended.status, "finished", "{end:#?}");
}

#[tokio::test]
async fn a_checkpoint_that_was_damaged_meanwhile_is_passed_over() {
    let fixture = fixture().await;
    let expected = undisturbed(&fixture, STEPS).await;
    let paused = Fault::new(&fixture, "paused", "pause", 0, "code", 3);
    let mut spec = training(&fixture, STEPS, &[&paused]);
    spec.failures = allowing(0, 1);
    let reply = fixture.submit(&spec).await.unwrap();
    let witness = paused.wait_until_fired().await;
    let checkpoint = wait_for_checkpoint(&fixture.storage.path().join(&spec.name), 3).await;
    fs::write(checkpoint.join("rank_1.txt"), "3 0").unwrap();
    kill(witness.pid, Signal::SIGKILL).unwrap();
    let end = fixture.follow(&reply, |_| {}).await;
    assert_eq!(end.ended.status, "finished", "{end:#?}");
    assert!(end.warnings.iter().any(|text| text.contains("is damaged and was set aside")), "{:?}", end.warnings);
    assert_eq!(starts(&end, 0), [0, 2]);
    assert_contiguous(&end.path, &[0, 2], STEPS);
    assert_eq!(weights(&end), expected);
}

#[tokio::test]
async fn a_save_that_outlives_its_attempt_or_its_run_leaves_nothing() {
    let fixture = fixture().await;
    let expected = undisturbed(&fixture, STEPS).await;
    for (failures, status) in [(0, "failed"), (1, "finished")] {
        let paused = Fault::new(&fixture, status, "pause", 1, "code", 3);
        let mut spec = training(&fixture, STEPS, &[&paused]);
        spec.failures = allowing(0, failures);
        let reply = fixture.submit(&spec).await.unwrap();
        let witness = paused.wait_until_fired().await;
        // One more file in the checkpoint that comes next, which the agent cannot open before the run has ended.
        let directory = fixture.storage.path().join(format!("work/saved-{}", witness.pid));
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("late.txt"), "late").unwrap();
        let lease = Lease::take(&directory.join("late.txt")).await;
        paused.go();
        wait_for("the agent", || lease.is_wanted()).await;
        kill(witness.pid, Signal::SIGKILL).unwrap();
        let end = fixture.follow(&reply, |_| {}).await;
        assert_eq!(end.ended.status, status, "{end:#?}");
        drop(lease);
        assert_nothing_left(&fixture, &end, &reply.run_id).await;
        if status == "finished" {
            assert_eq!(weights(&end), expected);
        } else {
            assert_eq!(newest(&end.path).map(|(iteration, _)| iteration), Some(3));
        }
    }
}

#[tokio::test]
async fn what_an_attempt_has_started_goes_with_it() {
    let fixture = fixture().await;
    let fault = Fault::new(&fixture, "fault", "kill", 0, "code", 1);
    let mut spec = training(&fixture, 2, &[&fault]);
    if let WorkerCommand::Command { arguments } = &mut spec.worker {
        arguments.splice(1..1, ["orphan".to_owned(), "child".to_owned()]);
    }
    spec.failures = allowing(0, 1);
    let reply = fixture.submit(&spec).await.unwrap();
    let end = fixture.follow(&reply, |_| {}).await;
    fault.witness();
    assert_eq!((end.ended.status.as_str(), end.restarts.len()), ("finished", 1), "{end:#?}");
    let text: Vec<u8> = end.output.values().flatten().copied().collect();
    let text = String::from_utf8(text).unwrap();
    let children: Vec<u32> = text.lines().filter_map(|line| line.strip_prefix("child ")?.parse().ok()).collect();
    assert_eq!(children.len(), 8, "two of each rank in each attempt: {text}");
    for pid in children {
        wait_until_gone(pid).await;
    }
    assert_nothing_left(&fixture, &end, &reply.run_id).await;
}

#[tokio::test]
async fn a_program_that_is_gone_by_then_ends_the_run_and_is_named() {
    let fixture = fixture().await;
    let paused = Fault::new(&fixture, "paused", "pause", 1, "code", 1);
    let mut spec = training(&fixture, 2, &[&paused]);
    let program = fixture.storage.path().join("program");
    let WorkerCommand::Command { arguments } = &mut spec.worker else { panic!("the test worker is a command") };
    fs::copy(PathBuf::from(&arguments[0]), &program).unwrap();
    arguments[0] = program.display().to_string();
    spec.failures = allowing(5, 3);
    let reply = fixture.submit(&spec).await.unwrap();
    let witness = paused.wait_until_fired().await;
    fs::remove_file(program).unwrap();
    kill(witness.pid, Signal::SIGKILL).unwrap();
    let end = fixture.follow(&reply, |_| {}).await;
    assert_eq!((end.ended.status.as_str(), end.restarts.len()), ("failed", 3), "{end:#?}");
    assert!(end.ended.headline.contains("cannot be started"), "{}", end.ended.headline);
    assert_nothing_left(&fixture, &end, &reply.run_id).await;
}

#[tokio::test]
async fn many_that_end_as_they_start_are_each_told_for_what_they_are() {
    let fixture = fixture().await;
    for (program, words) in [("/no/such/program", "cannot be started: No such file"), ("/bin/false", "exit code 1")] {
        let mut spec = fixture.spec(12, &[]);
        spec.worker = WorkerCommand::Command { arguments: vec![program.into()] };
        spec.failures = allowing(5, 5);
        let reply = fixture.submit(&spec).await.unwrap();
        let end = fixture.follow(&reply, |_| {}).await;
        assert_eq!((end.ended.status.as_str(), end.restarts.len()), ("failed", 5), "{end:#?}");
        assert!(end.restarts.iter().all(|restart| restart.reason.contains(words)), "{end:#?}");
        assert!(end.ended.headline.contains(words), "{end:#?}");
        assert_nothing_left(&fixture, &end, &reply.run_id).await;
    }
}

#[tokio::test]
async fn a_rank_that_dies_when_all_steps_are_made_costs_none_of_them() {
    let fixture = fixture().await;
    let expected = undisturbed(&fixture, STEPS).await;
    let fault = Fault::new(&fixture, "fault", "kill", 1, "reported", STEPS - 1);
    let mut spec = training(&fixture, STEPS, &[&fault]);
    spec.failures = allowing(0, 1);
    let reply = fixture.submit(&spec).await.unwrap();
    let end = fixture.follow(&reply, |_| {}).await;
    fault.witness();
    assert_eq!((end.ended.status.as_str(), end.restarts.len()), ("finished", 1), "{end:#?}");
    assert_eq!(starts(&end, 0), [0, STEPS]);
    assert_eq!(end.ended.iterations, STEPS);
    assert_eq!(weights(&end), expected);
}
