//! Real head, agent and workers; no Python anywhere.

mod programs;

use std::path::Path;
use std::time::{Duration, Instant};

use carril_proto::v1;
use carril_proto::v1::run_event::Kind;
use carril_testkit::{Fixture, RunEnd};
use carril_types::ErrorCode;
use programs::programs;

async fn fixture() -> Fixture {
    Fixture::start(&programs(), 8.0).await
}

fn failure(end: &RunEnd) -> (ErrorCode, &str) {
    let failure = end.ended.failure.as_ref().expect("the run failed");
    (ErrorCode::from_name(&failure.code).expect("a known code"), &end.ended.headline)
}

/// Waits until the process is gone or only its name is left.
async fn wait_until_gone(pid: u32) {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if stat.is_empty() || stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')) {
            return;
        }
        assert!(Instant::now() < until, "process {pid} is still there: {stat}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The pids that the ranks printed as `child N`.
fn children(end: &RunEnd) -> Vec<u32> {
    let text = end.output.values().flat_map(|text| text.iter().copied()).collect::<Vec<u8>>();
    let text = String::from_utf8(text).unwrap();
    text.lines().filter_map(|line| line.strip_prefix("child ")?.parse().ok()).collect()
}

#[tokio::test]
async fn a_group_reports_and_finishes() {
    let fixture = fixture().await;
    let end = fixture.run(3, &["report", "5", "barrier", "report", "1"]).await;
    assert_eq!(end.ended.status, "finished");
    assert_eq!(end.states, ["starting", "running", "stopping"]);
    let iterations: Vec<u64> = end.reports.iter().map(|report| report.iteration).collect();
    assert_eq!(iterations, [1, 2, 3, 4, 5, 6]);
    assert!(end.reports.iter().all(|report| report.ranks.len() == 3));
    let lines = std::fs::read_to_string(end.path.join("result.json")).unwrap();
    assert_eq!(lines.lines().count(), 6);
    assert_eq!(std::fs::read_to_string(end.path.join("ranks/rank_2.json")).unwrap().lines().count(), 6);
    assert_eq!(std::fs::read_to_string(end.path.join("progress.csv")).unwrap().lines().count(), 7);
}

#[tokio::test]
async fn every_way_to_die_is_named_with_its_rank() {
    let fixture = fixture().await;
    for (word, code, text) in [
        ("panic", ErrorCode::UserException, "rank 1 failed: Error: a mistake on purpose"),
        ("abort", ErrorCode::WorkerExited, "rank 1 failed: the worker process was ended by SIGABRT"),
        ("kill", ErrorCode::WorkerKilled, "rank 1 failed: the worker process was ended by SIGKILL"),
    ] {
        // The barrier is the proof that both ranks have reported when one of them dies.
        let end = fixture.run(2, &["report", "1", "barrier", "rank", "1", word, "barrier"]).await;
        assert_eq!(failure(&end), (code, text));
        assert_eq!(end.reports.len(), 1, "what was reported before is kept");
        assert!(end.path.join("error.txt").exists() && end.path.join("error.json").exists());
    }
    let end = fixture.run(2, &["rank", "0", "exit", "7", "barrier"]).await;
    assert_eq!(failure(&end), (ErrorCode::WorkerExited, "rank 0 failed: the worker process left with exit code 7"));
}

#[tokio::test]
async fn a_million_lines_before_an_exit_are_all_there() {
    let fixture = fixture().await;
    let count = if std::env::var_os("CARRIL_LONG").is_some() { 1_000_000 } else { 100_000 };
    let end = fixture.run(1, &["print", &count.to_string(), "exit", "1"]).await;
    assert_eq!(end.ended.status, "failed");
    let text = std::fs::read_to_string(end.path.join("ranks/rank_0.attempt_0.log")).unwrap();
    assert_eq!(text.lines().count(), count);
    assert!(text.ends_with(&format!("line {} of rank 0\n", count - 1)));
}

#[tokio::test]
async fn nothing_that_a_worker_started_outlives_it() {
    let fixture = fixture().await;
    for ending in [&["exit", "1"][..], &["kill"], &["report", "1"]] {
        // The barrier is the proof that both have started theirs when one of them ends.
        let mut behaviour = vec!["orphan", "child", "barrier"];
        behaviour.extend(ending);
        let end = fixture.run(2, &behaviour).await;
        let children = children(&end);
        assert_eq!(children.len(), 4, "the children were there: {:?}", end.output);
        for pid in children {
            wait_until_gone(pid).await;
        }
    }
}

#[tokio::test]
async fn the_death_of_the_head_takes_everything_with_it() {
    let mut fixture = fixture().await;
    let spec = fixture.spec(2, &["child", "hang"]);
    let reply = fixture.submit(&spec).await.unwrap();
    let mut watch = fixture.watch(&reply.run_id).await;
    let mut workers = Vec::new();
    let mut printed = Vec::new();
    while printed.len() < 2 || workers.is_empty() {
        match watch.next().await.unwrap().expect("the run goes on") {
            Kind::Started(started) => workers = started.workers,
            Kind::Output(output) => printed.push(output),
            _ => {}
        }
    }
    fixture.head.child.kill().unwrap();
    fixture.head.child.wait().unwrap();
    for worker in workers {
        wait_until_gone(worker.pid).await;
    }
}

#[tokio::test]
async fn a_stop_ends_a_run_that_hangs() {
    let fixture = fixture().await;
    let spec = fixture.spec(2, &["report", "1", "hang"]);
    let reply = fixture.submit(&spec).await.unwrap();
    let (client, run_id) = (fixture.client.clone(), reply.run_id.clone());
    let mut asked = false;
    let end = fixture
        .follow(&reply, |event| {
            if matches!(event, Kind::Reported(_)) && !std::mem::replace(&mut asked, true) {
                let (client, run_id) = (client.clone(), run_id.clone());
                tokio::spawn(async move { client.stop_run(run_id, "enough".into(), false).await });
            }
        })
        .await;
    assert_eq!((end.ended.status.as_str(), end.ended.headline.as_str()), ("aborted", "stopped: enough"));
    assert_eq!(end.reports.len(), 1, "what was reported is kept");
}

#[tokio::test]
async fn checkpoints_of_all_ranks_are_one_and_the_latest_is_known() {
    let fixture = fixture().await;
    let end = fixture.run(2, &["checkpoint", "latest", "checkpoint", "latest"]).await;
    assert_eq!(end.ended.status, "finished", "{end:#?}");
    let paths: Vec<&str> = end.ended.checkpoints.iter().map(|c| c.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(paths, ["checkpoint_000000", "checkpoint_000001"]);
    for rank in 0..2 {
        assert!(Path::new(&end.ended.checkpoints[0].path).join(format!("rank_{rank}.txt")).exists());
        let output = String::from_utf8(end.output[&rank].clone()).unwrap();
        assert!(output.contains("checkpoint_000000") && output.contains("checkpoint_000001"), "{output}");
    }
    assert!(!end.path.join(".staging").exists());
}

#[tokio::test]
async fn a_rank_far_ahead_is_slowed_and_nothing_is_lost() {
    let fixture = fixture().await;
    let end = fixture.run(2, &["rank", "0", "report", "25000", "rank", "1", "report", "25000"]).await;
    assert_eq!((end.ended.status.as_str(), end.ended.iterations), ("finished", 25_000));
    assert_eq!(end.reports.len(), 25_000, "WATCH-1: a watcher that wants every report gets every report");
    assert_eq!(std::fs::read_to_string(end.path.join("result.json")).unwrap().lines().count(), 25_000);
}

#[tokio::test]
async fn ranks_that_wait_for_each_other_are_told_so() {
    let fixture = fixture().await;
    let end = fixture.run(2, &["rank", "0", "barrier"]).await;
    let (code, headline) = failure(&end);
    assert_eq!(code, ErrorCode::CollectiveMismatch);
    assert_eq!(headline, "rank 1 returned while rank 0 waits in `barrier` number 1");
}

#[tokio::test]
async fn groups_wait_for_their_turn_and_the_impossible_is_refused() {
    let fixture = fixture().await;
    let first = fixture.submit(&fixture.spec(6, &["hang"])).await.unwrap();
    let second = fixture.submit(&fixture.spec(4, &["report", "1"])).await.unwrap();
    let client = fixture.client.clone();
    let mut waited = String::new();
    let end = fixture
        .follow(&second, |event| {
            if let Kind::State(v1::StateChanged { state, reason, .. }) = event
                && state == "waiting"
            {
                waited.clone_from(reason);
                let (client, run) = (client.clone(), first.run_id.clone());
                tokio::spawn(async move { client.stop_run(run, "room is needed".into(), true).await });
            }
        })
        .await;
    assert_eq!(waited, "asks for 4 CPU, free is 2 CPU: waits for 1 other run");
    assert_eq!(end.ended.status, "finished");
    let refused = fixture.submit(&fixture.spec(9, &[])).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::PlacementImpossible);
    assert_eq!(refused.hints[0], "carril.init(num_cpus=9)");
    let free = fixture.client.nodes().await.unwrap()[0].free["CPU"];
    assert_eq!(free, 8.0, "everything has been given back");
}

#[tokio::test]
async fn a_name_is_never_written_over() {
    let fixture = fixture().await;
    let mut spec = fixture.spec(1, &["report", "1"]);
    let reply = fixture.submit(&spec).await.unwrap();
    fixture.follow(&reply, |_| {}).await;
    assert_eq!(fixture.submit(&spec).await.unwrap_err().code, ErrorCode::RunExists);
    spec.name = "live".into();
    spec.worker = fixture.spec(1, &["hang"]).worker;
    let live = fixture.submit(&spec).await.unwrap();
    assert_eq!(fixture.submit(&spec).await.unwrap_err().code, ErrorCode::RunLive);
    fixture.client.stop_run(live.run_id, "done".into(), true).await.unwrap();
}

#[tokio::test]
async fn a_command_that_cannot_be_started_is_named() {
    let fixture = fixture().await;
    let mut spec = fixture.spec(2, &[]);
    spec.worker = carril_types::WorkerCommand::Command { arguments: vec!["/no/such/program".into()] };
    let reply = fixture.submit(&spec).await.unwrap();
    let end = fixture.follow(&reply, |_| {}).await;
    assert_eq!(failure(&end).0, ErrorCode::WorkerStartFailed);
}
