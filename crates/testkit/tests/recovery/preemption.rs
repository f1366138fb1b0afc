//! A machine that is going to be taken away: a last checkpoint, an orderly end, and no step lost.

use std::fs;
use std::time::{Duration, Instant};

use carril_proto::v1;
use carril_testkit::{Fixture, RunEnd};
use carril_types::RunSpec;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::evidence::{assert_contiguous, assert_nothing_left, send, starts, state_of, undisturbed, wait_for, weights};
use crate::programs::programs;
use crate::{Fault, fixture, training};

const STEPS: u64 = 10;
const SIGNALS: [Signal; 3] = [Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2];

fn head(fixture: &Fixture) -> Pid {
    Pid::from_raw(fixture.head.child.id() as i32)
}

/// The run has ended with its last report kept, and the same again goes on right after it.
async fn assert_no_step_is_lost(fixture: &Fixture, spec: &RunSpec, end: &RunEnd, why: &str, expected: &[String]) {
    assert_eq!((end.ended.status.as_str(), end.restarts.len()), ("preempted", 0), "{end:#?}");
    let last = end.reports.last().expect("there were reports").iteration;
    assert!(last < STEPS, "it did not finish before");
    let newest = end.ended.checkpoints.iter().map(|checkpoint| checkpoint.iteration).max();
    assert_eq!(newest, Some(last), "{end:#?}");
    let headline = &end.ended.headline;
    assert!(headline.starts_with(&format!("preempted: {why}; the last checkpoint is `")), "{headline}");
    assert!(headline.ends_with(&format!("`, of report {last}")), "{headline}");
    assert_eq!(end.ended.failure.as_ref().unwrap().code, "preempted");

    let reply = fixture.submit(spec).await.unwrap();
    let again = fixture.follow(&reply, |_| {}).await;
    assert_eq!((again.ended.status.as_str(), again.restarts.len()), ("finished", 0), "{again:#?}");
    assert_eq!(starts(&again, 0), [0, last]);
    assert_eq!(starts(&again, 1), [0, last]);
    assert_contiguous(&again.path, &[0, last], STEPS);
    assert_eq!(weights(&again), expected);
    assert_nothing_left(fixture, &again, &reply.run_id).await;
}

#[tokio::test]
async fn however_it_is_told_a_run_ends_with_its_last_step_and_goes_on_after_it() {
    let fixture = fixture().await;
    let expected = undisturbed(&fixture, STEPS).await;
    let ways = [None].into_iter().chain(SIGNALS.map(Some));
    for (number, way) in ways.enumerate() {
        let paused = Fault::new(&fixture, &format!("paused{number}"), "pause", 0, "code", 3);
        let spec = training(&fixture, STEPS, &[&paused]);
        let reply = fixture.submit(&spec).await.unwrap();
        paused.wait_until_fired().await;
        let why = match way {
            None => {
                fixture.client.preempt_run(reply.run_id.clone(), "the queue says so".into()).await.unwrap();
                "the queue says so".to_owned()
            }
            Some(signal) => {
                kill(head(&fixture), signal).unwrap();
                format!("{signal} to the agent")
            }
        };
        let end = follow_and_let_go(&fixture, &reply, &paused).await;
        assert_no_step_is_lost(&fixture, &spec, &end, &why, &expected).await;
    }
}

/// Lets the rank go on when the run has heard of the preemption.
async fn follow_and_let_go(fixture: &Fixture, reply: &v1::RunReply, paused: &Fault) -> RunEnd {
    let told = |event: &v1::run_event::Kind| match event {
        v1::run_event::Kind::Warning(warning) => warning.text.starts_with("preempted: "),
        _ => false,
    };
    fixture
        .follow(reply, |event| {
            if told(event) {
                paused.go();
            }
        })
        .await
}

#[tokio::test]
async fn a_function_that_brings_no_checkpoint_has_its_time_and_no_more() {
    let fixture = fixture().await;
    let mut spec = fixture.spec(2, &["report", "2", "hang"]);
    spec.preemption_grace_s = 0.4;
    let reply = fixture.submit(&spec).await.unwrap();
    let mut told = None;
    let client = fixture.client.clone();
    let end = fixture
        .follow(&reply, |event| {
            if told.is_none() && matches!(event, v1::run_event::Kind::Reported(_)) {
                told = Some(Instant::now());
                let (client, run_id) = (client.clone(), reply.run_id.clone());
                tokio::spawn(async move { client.preempt_run(run_id, "over".into()).await });
            }
        })
        .await;
    let took = told.expect("it reported").elapsed();
    assert!(took >= Duration::from_millis(400), "it had its time: {took:?}");
    assert_eq!(end.ended.status, "preempted", "{end:#?}");
    assert_eq!(end.ended.headline, "preempted: over; no last checkpoint came in time; there is no checkpoint");
    assert_nothing_left(&fixture, &end, &reply.run_id).await;
}

#[tokio::test]
async fn a_run_that_waits_ends_at_once_and_one_that_starts_makes_a_step() {
    let fixture = Fixture::start(&programs(), 2.0).await;
    let expected = undisturbed(&fixture, STEPS).await;
    let paused = Fault::new(&fixture, "paused", "pause", 0, "start", 0);
    let spec = training(&fixture, STEPS, &[&paused]);
    let reply = fixture.submit(&spec).await.unwrap();
    let waiting = fixture.submit(&training(&fixture, STEPS, &[])).await.unwrap();
    paused.wait_until_fired().await;
    kill(head(&fixture), Signal::SIGUSR1).unwrap();
    let end = fixture.follow(&waiting, |_| {}).await;
    let headline = "preempted: SIGUSR1 to the agent; there is no checkpoint";
    assert_eq!((end.ended.status.as_str(), end.ended.headline.as_str()), ("preempted", headline), "{end:#?}");
    let end = follow_and_let_go(&fixture, &reply, &paused).await;
    assert_eq!(end.reports.len(), 1, "{end:#?}");
    assert_no_step_is_lost(&fixture, &spec, &end, "SIGUSR1 to the agent", &expected).await;
}

#[tokio::test]
async fn a_signal_to_every_process_of_the_job_harms_none_of_them() {
    let fixture = fixture().await;
    let expected = undisturbed(&fixture, STEPS).await;
    let first = Fault::new(&fixture, "first", "pause", 0, "code", 1);
    let second = Fault::new(&fixture, "second", "pause", 1, "code", 3);
    let spec = training(&fixture, STEPS, &[&first, &second]);
    let reply = fixture.submit(&spec).await.unwrap();
    first.wait_until_fired().await;
    let below = descendants(head(&fixture));
    assert_eq!(below.len(), 2, "the workers: {below:?}");
    for pid in &below {
        for signal in SIGNALS {
            send(*pid, signal).await;
        }
        assert!(is_alive(*pid), "{pid} lives on");
    }
    first.go();
    second.wait_until_fired().await;
    for pid in below.iter().chain([&head(&fixture)]) {
        kill(*pid, Signal::SIGTERM).unwrap();
    }
    let end = follow_and_let_go(&fixture, &reply, &second).await;
    assert_no_step_is_lost(&fixture, &spec, &end, "SIGTERM to the agent", &expected).await;
}

#[tokio::test]
async fn a_forked_child_ignores_it_as_well_and_ends_when_its_worker_ends_it() {
    let fixture = fixture().await;
    let witness = fixture.storage.path().join("child");
    let reply = fixture.submit(&fixture.spec(1, &["fork", &witness.display().to_string()])).await.unwrap();
    wait_for("the child", || witness.exists()).await;
    let child = Pid::from_raw(fs::read_to_string(&witness).unwrap().parse().unwrap());
    for signal in SIGNALS {
        send(child, signal).await;
        assert!(is_alive(child), "{signal} from outside is not for it");
    }
    fs::write(witness.with_extension("go"), "").unwrap();
    let end = fixture.follow(&reply, |_| {}).await;
    assert_eq!(end.ended.status, "finished", "{end:#?}");
    let printed = String::from_utf8(end.output[&0].clone()).unwrap();
    assert_eq!(printed, format!("Signaled(Pid({child}), SIGTERM, false)\n"));
}

fn is_alive(pid: Pid) -> bool {
    !matches!(state_of(pid.as_raw() as u32), None | Some('Z' | 'X'))
}

fn descendants(of: Pid) -> Vec<Pid> {
    let mut found = Vec::new();
    let tasks = fs::read_dir(format!("/proc/{of}/task")).into_iter().flatten().flatten();
    for task in tasks {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw) {
            found.push(child);
            found.extend(descendants(child));
        }
    }
    found
}
