//! The head as a shell: messages of agents in, orders and words to the watcher out, the disk failing when the test says so.

mod world;

use std::path::Path;

use carril_head::Committed;
use carril_proto::v1;
use carril_proto::v1::agent_message::Kind;
use carril_types::{Metrics, NodeId, Value};
use tokio::sync::oneshot;

use world::World;

#[test]
fn a_message_that_had_to_wait_is_still_of_the_node_that_sent_it() {
    // The watcher has room for one event: it is behind before the first worker is told of.
    let mut world = World::new(false, 1);
    for _ in 0..2 {
        let worker = world.worker(0, 0);
        world.tell(0, v1::WorkerOutput { worker, text: b"words".to_vec() });
    }
    world.begin(0);
    assert!(world.head.runs()[0].workers.is_empty(), "they wait");
    world.told();
    let workers = world.head.runs()[0].workers.clone();
    let nodes: Vec<&str> = workers.iter().map(|worker| worker.node.as_str()).collect();
    assert_eq!(nodes, ["host-one", "host-two"]);
}

fn stack(world: &World, rank: u32) -> v1::StacksGathered {
    let stacks = vec![v1::RankStack { rank, text: String::new(), state: "sleeping".into() }];
    v1::StacksGathered { worker: world.worker(0, 0), stacks }
}

#[test]
fn stacks_are_answered_when_every_node_has_answered() {
    let mut world = World::new(false, 1_024);
    world.begin(0);
    let (first, mut first_answer) = oneshot::channel();
    let run = world.run.clone();
    world.head.ask_for_stacks(&run, first).unwrap();
    let late = stack(&world, 1);
    world.tell(1, late.clone());
    assert!(first_answer.try_recv().is_err(), "STACKS-1: node `one` has not answered");
    // One who asks meanwhile gets the same answer, and one node does not answer for two.
    let (second, mut second_answer) = oneshot::channel();
    world.head.ask_for_stacks(&run, second).unwrap();
    world.tell(1, late);
    assert!(second_answer.try_recv().is_err());
    let own = stack(&world, 0);
    world.tell(0, own);
    for answer in [&mut first_answer, &mut second_answer] {
        let ranks: Vec<u32> = answer.try_recv().unwrap().stacks.iter().map(|stack| stack.rank).collect();
        assert_eq!(ranks, [0, 1]);
    }
}

#[test]
fn a_lost_node_is_not_waited_for_with_its_stacks() {
    let mut world = World::new(false, 1_024);
    world.begin(0);
    let (sender, mut answer) = oneshot::channel();
    let run = world.run.clone();
    world.head.ask_for_stacks(&run, sender).unwrap();
    let own = stack(&world, 0);
    world.tell(0, own);
    world.head.on_node_lost(&NodeId::new("two"), "its lease is over");
    assert_eq!(answer.try_recv().unwrap().stacks.len(), 1, "STACKS-1");
}

/// One message of each kind that speaks of a worker.
fn every_message(worker: Option<v1::WorkerKey>) -> Vec<Kind> {
    let report = v1::Report { checkpoint: true, ..Default::default() };
    let failure = Some(v1::WorkerFailure::default());
    vec![
        Kind::Started(v1::WorkerStarted { worker: worker.clone(), ..Default::default() }),
        Kind::Ready(v1::WorkerReady { worker: worker.clone(), ..Default::default() }),
        Kind::Reports(v1::Reports { worker: worker.clone(), reports: vec![report] }),
        Kind::Returned(v1::WorkerReturned { worker: worker.clone(), ..Default::default() }),
        Kind::Failed(v1::WorkerFailed { worker: worker.clone(), failure, alone: true }),
        Kind::Exited(v1::WorkerExited { worker: worker.clone(), signal: 9, ..Default::default() }),
        Kind::Waits(v1::WorkerWaits { worker: worker.clone(), kind: "barrier".into(), ..Default::default() }),
        Kind::Output(v1::WorkerOutput { worker: worker.clone(), text: b"text".to_vec() }),
        Kind::Stacks(v1::StacksGathered { worker: worker.clone(), stacks: Vec::new() }),
        Kind::Prepared(v1::CheckpointPrepared { worker: worker.clone(), ..Default::default() }),
        Kind::Uploaded(v1::CheckpointUploaded { worker: worker.clone(), ..Default::default() }),
        Kind::Halted(v1::WorkerHalted { worker, halted: true }),
    ]
}

#[test]
fn a_rank_that_the_group_does_not_have_ends_the_run_with_a_typed_failure() {
    for number in 0..every_message(None).len() {
        for rank in [2, u32::MAX] {
            let mut world = World::new(false, 1_024);
            world.begin(0);
            let kind = every_message(world.worker(0, rank)).swap_remove(number);
            world.tell(1, v1::AgentMessage { kind: Some(kind) });
            assert_eq!(world.stopped(), ["one", "two"], "the workers that there are go");
            for rank in 0..2 {
                let worker = world.worker(0, rank);
                world.tell(rank as usize, v1::WorkerExited { worker, signal: 9, ..Default::default() });
            }
            let failure = world.ending().expect("it ends").failure.unwrap();
            assert_eq!(failure.code, "internal");
            assert_eq!(failure.message, format!("node `two` reported rank {rank}, and the run has 2 workers"));
        }
    }
}

#[test]
fn messages_without_a_worker_or_with_nonsense_in_them_do_no_harm() {
    let mut world = World::new(false, 1_024);
    world.begin(0);
    for kind in every_message(None) {
        world.tell(0, v1::AgentMessage { kind: Some(kind) });
    }
    world.tell(0, v1::AgentMessage { kind: None });
    let worker = world.worker(0, 0);
    let stacks = vec![v1::RankStack { rank: 9, ..Default::default() }];
    world.tell(0, v1::StacksGathered { worker: worker.clone(), stacks });
    let shard = Some(v1::Shard { rank: 77, ..Default::default() });
    world.tell(0, v1::CheckpointPrepared { worker: worker.clone(), iteration: 0, shard, ..Default::default() });
    for sequence in [0, u64::MAX] {
        let (kind, worker) = ("checkpoint".to_owned(), worker.clone());
        world.tell(0, v1::WorkerWaits { worker, kind, sequence, payload: Vec::new() });
    }
    assert!(world.ending().is_none(), "the run goes on");
}

#[test]
fn behind_1_nothing_is_started_before_the_journal_says_so() {
    let mut world = World::new(true, 1_024);
    assert!(world.started().is_empty(), "BEHIND-1");
    world.retry_timer_after(1);
    assert!(world.started().is_empty(), "BEHIND-1: it is still full");
    world.set_full(false);
    world.retry_timer_after(1);
    assert_eq!(world.started(), ["one", "two"]);
    let events = world.journalled();
    assert_eq!(events, ["Opened", "Placed", "AttemptBegun"], "BEHIND-2");
    let warnings = world.told().into_iter().filter(|kind| matches!(kind, v1::run_event::Kind::Warning(_)));
    assert_eq!(warnings.count(), 2, "one when it begins, and one when it is over");
}

#[test]
fn behind_1_no_checkpoint_is_committed_meanwhile() {
    let mut world = World::new(false, 1_024);
    world.begin(0);
    world.set_full(true);
    world.report_checkpoint(0);
    assert_eq!(world.asked(|asked| asked.commits.len()), 0, "BEHIND-1");
    world.set_full(false);
    world.retry_timer_after(1);
    assert_eq!(world.asked(|asked| asked.commits.clone()), [1]);
}

#[test]
fn behind_3_stops_do_not_wait_and_a_disk_that_stays_full_ends_the_run() {
    let mut world = World::new(false, 1_024);
    world.begin(0);
    world.set_full(true);
    let worker = world.worker(0, 1);
    world.tell(1, v1::WorkerExited { worker, signal: 9, ..Default::default() });
    assert_eq!(world.stopped(), ["one", "two"], "BEHIND-1: a stop is carried out");
    let worker = world.worker(0, 0);
    world.tell(0, v1::WorkerExited { worker, signal: 9, ..Default::default() });
    assert_eq!(world.started().len(), 2, "BEHIND-1: the next attempt waits");
    world.retry_timer_after(10);
    assert!(world.ending().is_none());
    world.retry_timer_after(20);
    let ended = world.ending().expect("BEHIND-3");
    let failure = ended.failure.unwrap();
    assert_eq!((ended.status.as_str(), failure.code.as_str()), ("failed", "storage"));
    assert_eq!(failure.message, "the run's journal cannot be written for 30 s: the disk is full");
    assert_eq!(world.started().len(), 2, "and nothing was started for it");
}

#[test]
fn a_group_that_waits_for_the_journal_can_be_stopped() {
    let mut world = World::new(true, 1_024);
    let run = world.run.clone();
    world.head.stop_run(&run, "interrupted".into(), false).unwrap();
    let ended = world.ending().expect("nobody has to be waited for");
    assert_eq!(ended.status, "aborted");
    world.set_full(false);
    world.retry_timer_after(1);
    assert!(world.started().is_empty(), "it stays stopped");
}

/// Both ranks return and leave.
fn finish(world: &mut World) {
    for rank in 0..2 {
        let worker = world.worker(0, rank);
        world.tell(rank as usize, v1::WorkerReturned { worker: worker.clone(), ..Default::default() });
        world.tell(rank as usize, v1::WorkerExited { worker, ..Default::default() });
    }
}

#[test]
fn close_1_an_end_that_cannot_be_written_is_retried_and_announced_when_it_is_there() {
    let mut world = World::new(false, 1_024);
    world.begin(0);
    world.set_sealed(true);
    finish(&mut world);
    assert!(world.ending().is_none(), "CLOSE-1: the files do not say it");
    world.retry_timer_after(29);
    assert!(world.ending().is_none());
    world.set_sealed(false);
    world.retry_timer_after(0);
    assert_eq!(world.ending().expect("it is written").status, "finished");
    assert_eq!(world.asked(|asked| asked.retry_timers), 0);
}

#[test]
fn close_1_after_the_deadline_the_files_are_rescued_and_the_run_fails_with_that_cause() {
    let mut world = World::new(false, 1_024);
    world.begin(0);
    for rank in 0..2 {
        let (worker, metrics) = (world.worker(0, rank), Some(Metrics(vec![("loss".into(), Value::Int(7))]).into()));
        world.tell(rank as usize, v1::Reports { worker, reports: vec![v1::Report { metrics, ..Default::default() }] });
    }
    world.set_sealed(true);
    finish(&mut world);
    world.retry_timer_after(30);
    let ended = world.ending().expect("CLOSE-1");
    let failure = ended.failure.unwrap();
    assert_eq!((ended.status.as_str(), failure.code.as_str()), ("failed", "storage-refused"));
    assert_eq!(failure.message, "the run's files cannot be written for 30 s: the disk is sealed");
    let rescued = Path::new(failure.hints[0].split('`').nth(1).expect("the hint names the directory"));
    for file in ["result.json", "progress.csv", "ranks/rank_1.json"] {
        let text = std::fs::read_to_string(rescued.join(file)).unwrap();
        assert!(text.contains("loss") && text.contains('7'), "{file}: {text}");
    }
    std::fs::remove_dir_all(rescued).unwrap();
}

#[test]
fn save_5_a_forced_stop_takes_no_files_from_under_a_commit() {
    let mut world = World::new(false, 1_024);
    world.begin(0);
    world.report_checkpoint(0);
    assert_eq!(world.asked(|asked| asked.commits.clone()), [1]);
    let run = world.run.clone();
    world.head.stop_run(&run, "interrupted".into(), true).unwrap();
    for rank in 0..2 {
        let worker = world.worker(0, rank);
        world.tell(rank as usize, v1::WorkerExited { worker, signal: 9, ..Default::default() });
    }
    let drops = |world: &World| world.ordered(|kind| matches!(kind, v1::agent_order::Kind::Drop(_))).len();
    assert!(world.ending().is_none() && drops(&world) == 0, "SAVE-5: the commit is going on");
    let committed = Committed { location: "there".into(), bytes: 1, free: None, trouble: None };
    world.head.on_committed(&run, 1, Ok(committed), None);
    let ended = world.ending().expect("nothing is left to wait for");
    assert_eq!((ended.status.as_str(), ended.saved), ("aborted", 1));
    assert!(drops(&world) > 0);
}

#[test]
fn checkpoints_that_are_away_at_a_restart_are_waited_for() {
    for comes_back in [true, false] {
        let mut world = World::new(false, 1_024);
        world.begin(0);
        let away = world.commit_one();
        for rank in 0..2 {
            let worker = world.worker(0, rank);
            world.tell(rank as usize, v1::WorkerExited { worker, signal: 9, ..Default::default() });
        }
        assert_eq!(world.started().len(), 2, "the next attempt waits");
        world.retry_timer_after(29);
        assert_eq!(world.started().len(), 2);
        if comes_back {
            world.bring_back(&away);
            world.retry_timer_after(0);
            assert_eq!(world.started().len(), 4, "it resumes");
            continue;
        }
        world.retry_timer_after(1);
        let failure = world.ending().expect("it ends").failure.unwrap();
        assert_eq!(failure.code, "storage");
        assert!(failure.message.contains("are not in"), "{}", failure.message);
    }
}

#[test]
fn a_checkpoint_that_comes_when_the_journal_was_given_up_does_not_hold_the_end() {
    let mut world = World::new(false, 1_024);
    world.begin(0);
    world.set_full(true);
    for sequence in 0..2 {
        world.report_checkpoint(sequence);
    }
    world.retry_timer_after(30);
    for rank in 0..2 {
        let worker = world.worker(0, rank);
        world.tell(rank as usize, v1::WorkerExited { worker, signal: 9, ..Default::default() });
    }
    assert_eq!(world.ending().expect("nothing is waited for").status, "failed");
}
