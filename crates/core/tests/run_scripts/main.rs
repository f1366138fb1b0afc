//! Scripted runs: events in, commands and reasons out, and nothing that was not expected.

use std::time::Duration;

use carril_core::{
    Command, Ending, Event, OutOfMemory, Outcome, REPORT_WINDOW, RankStack, Retention, RetentionRule, RunMachine,
    RunOptions, Saving, Timer, WaitKind,
};
use carril_types::{Attempt, ErrorCode, ExitStatus, Failure, Rank, RunStatus, WorkerFailure};

mod checkpoints;

struct Script {
    machine: RunMachine<&'static str>,
    now: Duration,
}

impl Script {
    /// A run whose ranks have all begun the function.
    fn running(world_size: u32) -> Self {
        let mut script = Self { machine: RunMachine::new(world_size, RunOptions::default()), now: Duration::ZERO };
        let started = script.tell(Event::Placed);
        assert!(matches!(
            &started[..],
            [
                Command::ChangeStatus(RunStatus::Starting),
                Command::StartGroup { .. },
                Command::SetTimer { timer: Timer::Hang(_), .. },
                Command::SetTimer { timer: Timer::Warn, .. }
            ]
        ));
        for rank in 0..world_size {
            assert_eq!(script.tell(Event::WorkerStarted { rank: Rank(rank), how: "forked".into() }), []);
        }
        for rank in 0..world_size {
            let commands = script.tell(Event::WorkerReady { rank: Rank(rank) });
            let last = rank + 1 == world_size;
            assert_eq!(commands.first() == Some(&Command::ChangeStatus(RunStatus::Running)), last);
        }
        script
    }

    fn tell(&mut self, event: Event<&'static str>) -> Vec<Command<&'static str>> {
        self.tell_with_reason(event).commands
    }

    fn tell_with_reason(&mut self, event: Event<&'static str>) -> Outcome<&'static str> {
        let outcome = self.machine.on_event(self.now, event);
        self.machine.check_invariants();
        let stops = outcome.commands.iter().any(|command| matches!(command, Command::StopGroup { .. }));
        assert!(!stops || !outcome.reason.is_empty(), "RUN-3: nobody is stopped without a reason");
        outcome
    }

    /// Time passes, second by second, and a head that is awake hears of it.
    fn until(&mut self, seconds: u64) {
        while self.now < Duration::from_secs(seconds) {
            self.now += Duration::from_secs(1);
            self.tell(Event::TimerFired(Timer::Gather(Attempt(u32::MAX))));
        }
    }

    fn report(&mut self, rank: u32, sequence: u64) -> Vec<Command<&'static str>> {
        self.tell(Event::Reported { rank: Rank(rank), sequence, report: "metrics", checkpoint: None, validate: false })
    }

    fn report_checkpoint(&mut self, rank: u32, sequence: u64) -> Vec<Command<&'static str>> {
        self.report_saving(rank, sequence, Saving::Sync)
    }

    /// Reports with files that were prepared at once.
    fn report_saving(&mut self, rank: u32, sequence: u64, saving: Saving) -> Vec<Command<&'static str>> {
        let rank = Rank(rank);
        let mut commands =
            self.tell(Event::Reported { rank, sequence, report: "metrics", checkpoint: Some(saving), validate: false });
        commands.extend(self.tell(Event::CheckpointPrepared { rank, iteration: sequence + 1, result: Ok(()) }));
        commands
    }

    /// As `report_checkpoint`, to be validated.
    fn report_for_validation(&mut self, rank: u32, sequence: u64) -> Vec<Command<&'static str>> {
        let (rank, checkpoint) = (Rank(rank), Some(Saving::Async));
        let mut commands = self.tell(Event::Reported { rank, sequence, report: "metrics", checkpoint, validate: true });
        commands.extend(self.tell(Event::CheckpointPrepared { rank, iteration: sequence + 1, result: Ok(()) }));
        commands
    }

    fn validated(&mut self, iteration: u64) -> Vec<Command<&'static str>> {
        let keep = self.tell(Event::Validated { iteration, score: None, how: "checked".into() });
        assert_eq!(keep, [Command::KeepValidation { iteration, displaced: Vec::new() }]);
        self.tell(Event::ValidationKept { iteration })
    }

    fn commits(&mut self, iteration: u64) -> Vec<Command<&'static str>> {
        self.tell(Event::CheckpointCommitted { iteration, path: format!("checkpoint of {iteration}") })
    }

    fn returns(&mut self, rank: u32) -> Vec<Command<&'static str>> {
        self.tell(Event::WorkerReturned { rank: Rank(rank), value: Some(format!("value of {rank}")), preempted: false })
    }

    fn exits(&mut self, rank: u32, exit: ExitStatus) -> Vec<Command<&'static str>> {
        self.tell(Event::WorkerExited { rank: Rank(rank), exit, last_output: String::new(), out_of_memory: None })
    }

    fn runs_out_of_memory(&mut self, rank: u32, peak: u64) -> Vec<Command<&'static str>> {
        let counted = "cgroup `/job` has a limit of 1.00 GiB, oom_kill count 1".to_owned();
        let out_of_memory = Some(OutOfMemory { counted, peak });
        let exit = ExitStatus::Signal(9);
        self.tell(Event::WorkerExited { rank: Rank(rank), exit, last_output: String::new(), out_of_memory })
    }

    fn waits_for_data(&mut self, rank: u32, sequence: u64, payload: &str) -> Vec<Command<&'static str>> {
        let payload = payload.as_bytes().to_vec();
        self.tell(Event::WorkerWaits { rank: Rank(rank), kind: WaitKind::Data, sequence, payload })
    }

    fn waits(&mut self, rank: u32, kind: WaitKind, sequence: u64) -> Vec<Command<&'static str>> {
        self.tell(Event::WorkerWaits { rank: Rank(rank), kind, sequence, payload: vec![rank as u8] })
    }
}

fn failed(rank: u32, message: &str) -> WorkerFailure {
    WorkerFailure {
        rank: Rank(rank),
        failure: Failure::new(ErrorCode::UserException, message),
        exception_type: "ValueError".into(),
        traceback: String::new(),
        location: "train.py:7".into(),
        exception: Vec::new(),
        exit: None,
        peak_memory: 0,
    }
}

fn ending<'a>(commands: &'a [Command<&'static str>]) -> Option<&'a Ending> {
    commands.iter().find_map(|command| match command {
        Command::EndRun(ending) => Some(ending),
        _ => None,
    })
}

fn stop(commands: &[Command<&'static str>]) -> Option<Duration> {
    commands.iter().find_map(|command| match command {
        Command::StopGroup { grace, .. } => Some(*grace),
        _ => None,
    })
}

fn committed(commands: &[Command<&'static str>]) -> Vec<(u64, Vec<bool>)> {
    commands
        .iter()
        .filter_map(|command| match command {
            Command::CommitReport { collated, .. } => {
                Some((collated.iteration, collated.by_rank.iter().map(Option::is_some).collect()))
            }
            _ => None,
        })
        .collect()
}

#[test]
fn a_run_finishes_when_every_rank_returned_and_is_gone() {
    let mut script = Script::running(2);
    assert_eq!(script.report(0, 0), []);
    assert_eq!(committed(&script.report(1, 0)), [(1, vec![true, true])]);
    assert_eq!(script.returns(0), []);
    let commands = script.returns(1);
    assert!(stop(&commands).unwrap() > Duration::ZERO, "ranks that returned may leave by themselves");
    assert_eq!(ending(&commands), None, "RUN-1: not before the processes are gone");
    assert_eq!(script.exits(0, ExitStatus::Code(0)), []);
    let commands = script.exits(1, ExitStatus::Code(0));
    let ending = ending(&commands).unwrap();
    assert_eq!((ending.status, ending.return_values[0].as_deref()), (RunStatus::Finished, Some("value of 0")));
    assert_eq!(script.exits(1, ExitStatus::Code(0)), [], "RUN-1: a run ends once");
}

#[test]
fn the_first_failure_is_the_cause_and_the_others_stand_behind_it() {
    let mut script = Script::running(3);
    let commands = script.tell(Event::WorkerFailed { failure: failed(1, "bad learning rate"), alone: true });
    assert!(matches!(
        &commands[..],
        [Command::ChangeStatus(RunStatus::Stopping), Command::SetTimer { timer: Timer::Gather(_), .. }]
    ));
    assert_eq!(script.tell(Event::WorkerFailed { failure: failed(0, "connection closed by peer"), alone: true }), []);
    let commands = script.tell(Event::TimerFired(Timer::Gather(Attempt(0))));
    assert_eq!(stop(&commands), Some(Duration::ZERO), "the rest cannot help any more");
    for rank in 0..2 {
        script.exits(rank, ExitStatus::Code(0));
    }
    let commands = script.exits(2, ExitStatus::Signal(9));
    let ending = ending(&commands).unwrap();
    assert_eq!(ending.headline, "rank 1 failed: ValueError: bad learning rate at train.py:7");
    let ranks: Vec<u32> = ending.failures.iter().map(|failure| failure.rank.0).collect();
    assert_eq!(ranks, [1, 0], "the one that we killed is no failure");
}

#[test]
fn when_every_rank_has_failed_nobody_is_waited_for() {
    let mut script = Script::running(2);
    script.tell(Event::WorkerFailed { failure: failed(0, "the same"), alone: true });
    let commands = script.tell(Event::WorkerFailed { failure: failed(1, "the same"), alone: true });
    assert_eq!(stop(&commands), Some(Duration::ZERO));
}

#[test]
fn a_process_that_dies_without_a_word_is_a_failure_of_its_class() {
    for (exit, code, text) in [
        (ExitStatus::Code(1), ErrorCode::WorkerExited, "exit code 1"),
        (ExitStatus::Code(0), ErrorCode::WorkerExited, "exit code 0"),
        (ExitStatus::Signal(11), ErrorCode::WorkerExited, "SIGSEGV"),
        (ExitStatus::Signal(9), ErrorCode::WorkerKilled, "SIGKILL"),
    ] {
        let mut script = Script::running(2);
        script.exits(1, exit);
        script.tell(Event::TimerFired(Timer::Gather(Attempt(0))));
        let commands = script.exits(0, ExitStatus::Signal(9));
        let ending = ending(&commands).unwrap();
        assert_eq!(ending.failure.as_ref().unwrap().code, code);
        assert!(ending.headline.contains(text) && ending.headline.contains("rank 1"), "{}", ending.headline);
    }
}

#[test]
fn reports_of_ranks_at_different_speeds_collate_in_order() {
    let mut script = Script::running(2);
    for sequence in 0..5 {
        assert_eq!(script.report(0, sequence), []);
    }
    for sequence in 0..5 {
        assert_eq!(committed(&script.report(1, sequence)), [(sequence + 1, vec![true, true])]);
    }
    assert_eq!(script.report(1, 4), [], "a message that comes twice does no harm");
}

#[test]
fn a_rank_that_returned_is_waited_for_no_more_and_said_once() {
    let mut script = Script::running(2);
    script.report(0, 0);
    script.report(1, 0);
    script.returns(0);
    let commands = script.report(1, 1);
    assert!(matches!(&commands[0], Command::Warn(text) if text.contains("rank 0 made 1")), "{commands:?}");
    assert_eq!(committed(&commands), [(2, vec![false, true])]);
    assert_eq!(committed(&script.report(1, 2)), [(3, vec![false, true])]);
    assert!(!script.report(1, 3).iter().any(|command| matches!(command, Command::Warn(_))));
}

#[test]
fn a_checkpoint_without_a_rank_that_returned_is_an_error_that_names_both() {
    let mut script = Script::running(2);
    script.returns(0);
    let outcome = script.tell_with_reason(Event::Reported {
        rank: Rank(1),
        sequence: 0,
        report: "m",
        checkpoint: Some(Saving::Sync),
        validate: false,
    });
    assert_eq!(stop(&outcome.commands), Some(Duration::ZERO));
    assert!(outcome.reason.contains("rank 1") && outcome.reason.contains("rank 0 returned"), "{}", outcome.reason);
}

/// How long the other ranks have to tell of what they saw.
fn gathers(commands: &[Command<&'static str>]) -> Option<Duration> {
    commands.iter().find_map(|command| match command {
        Command::SetTimer { timer: Timer::Gather(_), after } => Some(*after),
        _ => None,
    })
}

#[test]
fn nobody_is_waited_for_where_the_cause_is_certain() {
    for exit in [ExitStatus::Signal(9), ExitStatus::Code(1), ExitStatus::Signal(11)] {
        let mut script = Script::running(2);
        assert_eq!(stop(&script.exits(1, exit)), Some(Duration::ZERO), "{exit}");
    }
    let mut script = Script::running(2);
    let commands = script.tell(Event::WorkerFailed { failure: failed(1, "mistake"), alone: true });
    let patience = gathers(&commands).expect("the other ranks may have failed in the same way");
    assert!(patience <= Duration::from_millis(30), "{patience:?}");
    // The other rank may still bring the report that this one has made.
    let mut script = Script::running(2);
    script.report(1, 0);
    let commands = script.tell(Event::WorkerFailed { failure: failed(1, "mistake"), alone: true });
    assert!(gathers(&commands).is_some_and(|patience| patience >= Duration::from_millis(100)));
    // So it is with one that died, and then nobody is waited for any longer.
    let mut script = Script::running(2);
    script.report(1, 0);
    assert!(gathers(&script.exits(1, ExitStatus::Code(3))).is_some());
    assert_eq!(stop(&script.report(0, 0)), Some(Duration::ZERO));
    // For the memory that one has taken the kernel may have ended another one first.
    let mut script = Script::running(2);
    assert!(gathers(&script.runs_out_of_memory(1, 1 << 20)).is_some());
}

#[test]
fn what_no_restart_mends_ends_the_run_whatever_the_budgets_say() {
    let broken = || Event::Broken(Failure::new(ErrorCode::Storage, "the journal cannot be written"));
    let mut script = Script::running(1);
    assert_eq!(stop(&script.tell(broken())), Some(Duration::ZERO));
    assert!(ending(&script.tell(broken())).is_none(), "RUN-1: not before the process is gone");
    let commands = script.exits(0, ExitStatus::Signal(9));
    assert_eq!(ending(&commands).unwrap().headline, "the journal cannot be written");
    // An ending that was decided before stays.
    let mut script = Script::running(1);
    script.returns(0);
    script.tell(broken());
    assert_eq!(ending(&script.exits(0, ExitStatus::Code(0))).unwrap().status, RunStatus::Finished);
}

#[test]
fn a_rank_that_returned_is_named_where_torch_says_only_that_a_connection_was_closed() {
    let of_torch = |message: &str| WorkerFailure {
        exception_type: "RuntimeError".into(),
        traceback: "File \"/v/site-packages/torch/distributed/distributed_c10d.py\", line 3 in all_reduce".into(),
        ..failed(0, message)
    };
    let gloo = "[/gloo/transport/tcp/pair.cc:538] Connection closed by peer [127.0.0.1]:5";
    let mut script = Script::running(2);
    script.returns(1);
    let outcome = script.tell_with_reason(Event::WorkerFailed { failure: of_torch(gloo), alone: true });
    let named = "rank 0 failed: RuntimeError: rank 1 returned while this rank waited in a collective of torch";
    assert!(outcome.reason.starts_with(named), "{}", outcome.reason);
    // The connections of the one that returns are closed before that is told.
    let mut script = Script::running(2);
    let commands = script.tell(Event::WorkerFailed { failure: of_torch(gloo), alone: true });
    assert!(gathers(&commands).unwrap() >= Duration::from_millis(100), "{commands:?}");
    let commands = script.returns(1);
    assert_eq!(stop(&commands), Some(Duration::ZERO), "everybody has told");
    script.exits(1, ExitStatus::Code(0));
    let ended = script.exits(0, ExitStatus::Code(1));
    assert!(ending(&ended).unwrap().headline.starts_with(named), "{ended:?}");
    // Where nobody has returned, or the mistake is another one, it is the function's own.
    for (returned, failure) in [(false, of_torch(gloo)), (true, of_torch("bad shape")), (true, failed(0, gloo))] {
        let mut script = Script::running(2);
        if returned {
            script.returns(1);
        }
        let outcome = script.tell_with_reason(Event::WorkerFailed { failure, alone: true });
        assert!(!outcome.reason.contains("returned while"), "{}", outcome.reason);
    }
}

#[test]
fn a_process_that_died_without_a_word_is_the_cause_of_what_was_heard_first() {
    let mut script = Script::running(3);
    let commands = script.tell(Event::WorkerFailed { failure: failed(2, "connection reset by peer"), alone: false });
    let patience = gathers(&commands).expect("RUN-2: another process was ending, and may be the cause");
    assert!(patience >= Duration::from_millis(100), "{patience:?}");
    assert_eq!(stop(&script.exits(1, ExitStatus::Signal(9))), Some(Duration::ZERO), "that was it");
    script.tell(Event::WorkerFailed { failure: failed(0, "connection reset by peer"), alone: false });
    script.exits(0, ExitStatus::Code(1));
    let commands = script.exits(2, ExitStatus::Code(1));
    let ending = ending(&commands).unwrap();
    assert!(
        ending.headline.starts_with("rank 1 failed: ") && ending.headline.contains("SIGKILL"),
        "{}",
        ending.headline
    );
    assert_eq!(ending.failures.iter().map(|failure| failure.rank.0).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_barrier_releases_when_all_have_come_with_rank_zeros_payload() {
    let mut script = Script::running(3);
    let first = script.waits(2, WaitKind::Broadcast, 0);
    assert!(matches!(&first[..], [] | [Command::SetTimer { .. }]));
    script.waits(0, WaitKind::Broadcast, 0);
    let commands = script.waits(1, WaitKind::Broadcast, 0);
    let released: Vec<(u32, &Result<Vec<u8>, Failure>)> = commands
        .iter()
        .filter_map(|c| match c {
            Command::Release { rank, result, .. } => Some((rank.0, result)),
            _ => None,
        })
        .collect();
    assert_eq!(released, [(0, &Ok(vec![0])), (1, &Ok(vec![0])), (2, &Ok(vec![0]))]);
}

#[test]
fn a_rank_that_returned_while_others_wait_is_proof() {
    let mut script = Script::running(3);
    script.waits(0, WaitKind::Barrier, 4);
    script.waits(2, WaitKind::Barrier, 4);
    let outcome = script.tell_with_reason(Event::WorkerReturned { rank: Rank(1), value: None, preempted: false });
    assert!(outcome.commands.iter().any(|command| matches!(command, Command::GatherStacks { .. })));
    assert_eq!(stop(&outcome.commands), None, "they are asked where they are first");
    assert_eq!(stop(&script.tell(Event::StacksGathered(Vec::new()))), Some(Duration::ZERO));
    assert_eq!(outcome.reason, "rank 1 returned while ranks 0 and 2 wait in `barrier` number 5");
}

#[test]
fn ranks_that_wait_for_each_other_are_proof() {
    let mut script = Script::running(2);
    script.report_checkpoint(0, 0);
    script.waits(0, WaitKind::Checkpoint, 0);
    let outcome = script.tell_with_reason(Event::WorkerWaits {
        rank: Rank(1),
        kind: WaitKind::Barrier,
        sequence: 0,
        payload: vec![],
    });
    assert!(outcome.commands.iter().any(|command| matches!(command, Command::GatherStacks { .. })));
    assert_eq!(stop(&script.tell(Event::StacksGathered(Vec::new()))), Some(Duration::ZERO));
    assert!(outcome.reason.contains("rank 0 waits for the checkpoint of report 1"), "{}", outcome.reason);
    assert!(outcome.reason.contains("rank 1 waits in `barrier` number 1"), "{}", outcome.reason);
}

#[test]
fn slowness_is_only_ever_a_warning_that_names_the_missing() {
    let mut script = Script::running(3);
    script.waits(0, WaitKind::Barrier, 0);
    assert_eq!(warning(&script.tell(Event::TimerFired(Timer::Warn))), None, "it has not waited long");
    for minute in 1..100 {
        script.until(60 * minute);
        let commands = script.tell(Event::TimerFired(Timer::Warn));
        assert!(warning(&commands).is_some_and(|text| text.contains("ranks 1 and 2 not there")));
        assert_eq!(stop(&commands), None);
    }
}

fn warning<'a>(commands: &'a [Command<&'static str>]) -> Option<&'a str> {
    commands.iter().find_map(|command| match command {
        Command::Warn(text) => Some(text.as_str()),
        _ => None,
    })
}

/// Of a wait for data that has ended: whose it was, and what the rank is told.
fn data_released(commands: &[Command<&'static str>]) -> Vec<(u32, Result<String, Failure>)> {
    let released = commands.iter().filter_map(|command| match command {
        Command::Release { rank, kind: WaitKind::Data, result, .. } => Some((rank.0, result.clone())),
        _ => None,
    });
    released.map(|(rank, result)| (rank, result.map(|bytes| String::from_utf8(bytes).unwrap()))).collect()
}

#[test]
fn nobody_waits_for_data_of_a_rank_that_has_returned() {
    let mut script = Script::running(3);
    assert_eq!(data_released(&script.waits_for_data(0, 0, "1,2 batch 1 of `train`")), []);
    let commands = script.tell(Event::WorkerReturned { rank: Rank(1), value: None, preempted: false });
    assert_eq!(data_released(&commands), [(0, Ok("1".to_owned()))]);
    let again = script.waits_for_data(0, 1, "1 batch 1 of `test`");
    assert_eq!(data_released(&again), [(0, Ok("1".to_owned()))], "it is known already");
    assert_eq!(data_released(&script.waits_for_data(0, 2, "2 batch 9 of `train`")), [], "that one may come");
}

#[test]
fn ranks_that_wait_for_data_and_for_each_other_look_once_more() {
    let mut script = Script::running(2);
    script.waits_for_data(0, 0, "1 batch 1 of `train`");
    let commands = script.waits(1, WaitKind::Barrier, 0);
    let [(0, Err(failure))] = &data_released(&commands)[..] else { panic!("{commands:?}") };
    assert_eq!(failure.code, ErrorCode::CollectiveMismatch);
    assert_eq!(
        failure.message,
        "the ranks wait for each other: rank 0 waits for batch 1 of `train` of rank 1, rank 1 waits in `barrier` number 1"
    );
    assert_eq!(stop(&commands), None, "WAIT-3: the batch may be there");
    let released = script.waits(0, WaitKind::Barrier, 0);
    assert_eq!(released.iter().filter(|command| matches!(command, Command::Release { .. })).count(), 2);
}

#[test]
fn a_wait_for_data_that_is_over_is_no_proof() {
    let mut script = Script::running(2);
    script.waits_for_data(0, 0, "1 batch 1 of `train`");
    script.waits_for_data(0, 0, "");
    assert_eq!(data_released(&script.waits(1, WaitKind::Barrier, 0)), []);
    // A thread beside the function reads: the function's own wait stays what it is.
    script.waits_for_data(1, 0, "0 batch 2 of `train`");
    script.waits_for_data(1, 0, "");
    let released = script.waits(0, WaitKind::Barrier, 0);
    assert_eq!(released.iter().filter(|command| matches!(command, Command::Release { .. })).count(), 2);
}

#[test]
fn a_rank_that_lives_and_does_not_read_is_warned_of_with_a_way_out() {
    let mut script = Script::running(2);
    script.waits_for_data(0, 0, "1 batch 1 of `test`");
    script.until(60);
    let commands = script.tell(Event::TimerFired(Timer::Warn));
    let text = warning(&commands).unwrap();
    assert!(text.starts_with("rank 0 waits for batch 1 of `test` of rank 1 for 60 s: rank 1 not there; "), "{text}");
    assert!(text.contains("datasets_to_split"), "{text}");
}

#[test]
fn a_rank_too_far_ahead_waits_until_the_slowest_moves() {
    let mut script = Script::running(2);
    for sequence in 0..REPORT_WINDOW {
        script.report(0, sequence);
    }
    assert!(!script.waits(0, WaitKind::Grant, REPORT_WINDOW).iter().any(|c| matches!(c, Command::Release { .. })));
    let commands = script.report(1, 0);
    let granted = (REPORT_WINDOW + 1).to_string().into_bytes();
    assert!(
        commands
            .iter()
            .any(|c| matches!(c, Command::Release { rank: Rank(0), result: Ok(text), .. } if *text == granted))
    );
}

#[test]
fn a_stop_gives_time_to_clean_up_and_a_second_one_does_not() {
    let mut script = Script::running(2);
    let stopped = |force| Event::StopRequested { reason: "interrupted".into(), force };
    assert!(stop(&script.tell(stopped(false))).unwrap() > Duration::ZERO);
    assert_eq!(script.tell(stopped(false)), []);
    assert_eq!(stop(&script.tell(stopped(true))), Some(Duration::ZERO));
    script.exits(0, ExitStatus::Signal(15));
    let commands = script.exits(1, ExitStatus::Signal(9));
    assert_eq!(ending(&commands).unwrap().status, RunStatus::Aborted);
}

#[test]
fn a_run_that_is_stopped_before_it_is_placed_ends_at_once() {
    let mut machine = RunMachine::<()>::new(2, RunOptions::default());
    let outcome = machine.on_event(Duration::ZERO, Event::StopRequested { reason: "interrupted".into(), force: false });
    assert!(matches!(&outcome.commands[..], [Command::EndRun(ending)] if ending.status == RunStatus::Aborted));
    assert_eq!(
        machine.on_event(Duration::ZERO, Event::Placed).commands,
        [],
        "a placement that comes too late starts nothing"
    );
}

#[test]
fn a_worker_that_cannot_be_started_is_the_cause() {
    let mut script = Script { machine: RunMachine::new(2, RunOptions::default()), now: Duration::ZERO };
    script.tell(Event::Placed);
    script.tell(Event::WorkerStarted { rank: Rank(0), how: "forked".into() });
    let failure = Failure::new(ErrorCode::WorkerStartFailed, "no such file: python9");
    script.tell(Event::WorkerNotStarted { rank: Rank(1), failure });
    script.tell(Event::TimerFired(Timer::Gather(Attempt(0))));
    let commands = script.exits(0, ExitStatus::Signal(9));
    assert!(ending(&commands).unwrap().headline.contains("no such file: python9"));
}

#[test]
fn a_hang_is_looked_at_before_anybody_is_named() {
    let mut script = Script {
        machine: RunMachine::new(2, RunOptions { hang_timeout: Some(Duration::from_secs(8)), ..RunOptions::default() }),
        now: Duration::ZERO,
    };
    script.tell(Event::Placed);
    for rank in 0..2 {
        script.tell(Event::WorkerReady { rank: Rank(rank) });
    }
    script.until(7);
    script.tell(Event::Progressed { rank: Rank(0) });
    let looked = script.tell(Event::TimerFired(Timer::Hang(Attempt(0))));
    assert!(matches!(&looked[..], [Command::SetTimer { timer: Timer::Hang(_), .. }]), "nobody is late yet: {looked:?}");
    script.until(9);
    let asked = script.tell(Event::TimerFired(Timer::Hang(Attempt(0))));
    assert!(asked.iter().any(|command| matches!(command, Command::GatherStacks { .. })), "{asked:?}");
    let stack = |rank, text: &str| RankStack { rank: Rank(rank), text: text.into(), state: "sleeping".into() };
    let line = "Current thread 0x1 (most recent call first):\n  File \"/me/train.py\", line 3 in loop\n";
    let outcome = script.tell_with_reason(Event::StacksGathered(vec![stack(0, line), stack(1, line)]));
    assert_eq!(stop(&outcome.commands), Some(Duration::ZERO));
    assert_eq!(outcome.reason, "no progress for 8 s: rank 1 is in `loop` at train.py:3");
}

#[test]
fn without_a_time_of_the_users_a_hang_is_a_warning_told_once() {
    let mut script = Script::running(2);
    script.until(601);
    script.tell(Event::TimerFired(Timer::Hang(Attempt(0))));
    let commands = script.tell(Event::StacksGathered(Vec::new()));
    assert!(matches!(&commands[..], [Command::Warn(text)] if text.contains("ranks 0 and 1")), "{commands:?}");
    script.until(700);
    let commands = script.tell(Event::TimerFired(Timer::Hang(Attempt(0))));
    assert!(!commands.iter().any(|command| matches!(command, Command::GatherStacks { .. })), "told once: {commands:?}");
    script.tell(Event::Progressed { rank: Rank(1) });
    script.until(1400);
    let commands = script.tell(Event::TimerFired(Timer::Hang(Attempt(0))));
    assert!(commands.iter().any(|command| matches!(command, Command::GatherStacks { .. })), "and again after it moved");
}

#[test]
fn the_silence_of_a_head_that_was_asleep_is_no_rank_s_standstill() {
    let mut script = Script::running(2);
    script.until(60);
    script.now = Duration::from_secs(7_200);
    let commands = script.tell(Event::TimerFired(Timer::Hang(Attempt(0))));
    assert!(!commands.iter().any(|command| matches!(command, Command::GatherStacks { .. })), "{commands:?}");
}

#[test]
fn memory_that_ran_out_is_told_from_a_kill() {
    let mut script = Script::running(1);
    let commands = script.runs_out_of_memory(0, 1 << 29);
    let ending = ending(&commands).unwrap();
    assert_eq!(ending.failure.as_ref().unwrap().code, ErrorCode::OutOfMemory);
    let told = "a limit of 1.00 GiB, oom_kill count 1; this process had up to 0.50 GiB";
    assert!(ending.headline.contains(told), "{}", ending.headline);
}

/// The kernel may end a second process before the first has given its memory back, and the smaller one is gone sooner.
#[test]
fn of_those_that_the_kernel_ended_the_one_with_the_most_memory_is_the_cause() {
    for peaks in [[1 << 20, 1 << 30, 2], [1 << 20, 2, 1 << 30]] {
        let mut script = Script::running(3);
        let commands: Vec<_> = (0..3).flat_map(|rank| script.runs_out_of_memory(rank, peaks[rank as usize])).collect();
        let hungriest = peaks.iter().position(|peak| *peak == 1 << 30).unwrap();
        let ending = ending(&commands).unwrap();
        assert!(ending.headline.starts_with(&format!("rank {hungriest} failed")), "{}", ending.headline);
        assert_eq!(ending.failures.len(), 3, "nobody is forgotten");
    }
}
