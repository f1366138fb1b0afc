//! Scripted restarts and preemptions: one attempt after the other, and how it ends.

use std::time::Duration;

use carril_core::{
    Budget, Command, Ending, Event, FailureRule, Infrastructure, Kept, Limit, RunMachine, RunOptions, Saving, Timer,
    WaitKind,
};
use carril_types::{Attempt, ErrorCode, ExitStatus, Failure, Rank, RunStatus, WorkerFailure};

type Commands = Vec<Command<u64>>;

struct Script {
    machine: RunMachine<u64>,
}

impl Script {
    fn running(world_size: u32, rule: FailureRule) -> Self {
        let options = RunOptions { budget: Budget::new(rule), ..RunOptions::default() };
        let mut script = Self { machine: RunMachine::new(world_size, options) };
        script.tell(Event::Placed);
        script.group_runs(world_size);
        script
    }

    fn tell(&mut self, event: Event<u64>) -> Commands {
        let outcome = self.machine.on_event(Duration::ZERO, event);
        self.machine.check_invariants();
        outcome.commands
    }

    fn group_runs(&mut self, world_size: u32) {
        for rank in (0..world_size).map(Rank) {
            self.tell(Event::WorkerStarted { rank, how: "forked".into() });
            self.tell(Event::WorkerReady { rank });
        }
    }

    fn report(&mut self, rank: u32, sequence: u64, checkpoint: Option<Saving>) -> Commands {
        let rank = Rank(rank);
        let mut commands = self.tell(Event::Reported { rank, sequence, report: sequence, checkpoint, validate: false });
        if checkpoint.is_some() {
            commands.extend(self.tell(Event::CheckpointPrepared { rank, iteration: sequence + 1, result: Ok(()) }));
        }
        commands
    }

    fn commits(&mut self, iteration: u64) -> Commands {
        self.tell(Event::CheckpointCommitted { iteration, path: format!("checkpoint of {iteration}") })
    }

    fn exits(&mut self, rank: u32, exit: ExitStatus) -> Commands {
        self.tell(Event::WorkerExited { rank: Rank(rank), exit, last_output: String::new(), out_of_memory: None })
    }

    fn raises(&mut self, rank: u32, message: &str) -> Commands {
        let failure = Failure::new(ErrorCode::UserException, message);
        self.tell(Event::WorkerFailed {
            failure: WorkerFailure::of_process(Rank(rank), failure, String::new()),
            alone: true,
        })
    }

    fn preempts(&mut self) -> Commands {
        self.tell(Event::Preempted { reason: "SIGTERM".into(), grace: Duration::from_secs(30) })
    }
}

fn allowing(failures: Limit, infrastructure: u32) -> FailureRule {
    let infrastructure = Infrastructure::OnItsOwn(Limit::AtMost(infrastructure));
    FailureRule { failures, infrastructure, fail_fast: false }
}

fn ending(commands: &Commands) -> Option<&Ending> {
    commands.iter().find_map(|command| match command {
        Command::EndRun(ending) => Some(ending),
        _ => None,
    })
}

fn restart(commands: &Commands) -> Option<(u32, &str)> {
    commands.iter().find_map(|command| match command {
        Command::TellRestart(restart) => Some((restart.attempt.0, restart.reason.as_str())),
        _ => None,
    })
}

fn stops(commands: &Commands) -> bool {
    commands.iter().any(|command| matches!(command, Command::StopGroup { .. }))
}

#[test]
fn a_killed_worker_brings_the_next_attempt_from_the_newest_checkpoint() {
    let mut script = Script::running(2, allowing(Limit::AtMost(0), 3));
    for sequence in 0..3 {
        script.report(0, sequence, (sequence == 1).then_some(Saving::Sync));
        script.report(1, sequence, None);
    }
    script.commits(2);
    assert!(stops(&script.exits(1, ExitStatus::Signal(9))), "a signal is a certain cause: nobody is waited for");
    let commands = script.exits(0, ExitStatus::Signal(9));
    let (attempt, reason) = restart(&commands).expect("there is budget");
    assert_eq!(attempt, 1);
    assert!(reason.starts_with("rank 1 failed: ") && reason.contains("SIGKILL"), "{reason}");
    assert!(reason.contains("failure 1 of 3 by `max_infrastructure_failures`"), "{reason}");
    assert!(commands.contains(&Command::FindLatest));
    assert_eq!(script.machine.status(), RunStatus::Restarting);

    let newest = Some((2, "checkpoint of 2".to_owned()));
    let kept = vec![Kept { iteration: 2, score: None }];
    let commands = script.tell(Event::LatestFound { newest, kept });
    assert!(commands.contains(&Command::StartGroup { attempt: Attempt(1), reports: 2 }), "RESTART-2: {commands:?}");
    script.group_runs(2);
    assert_eq!(script.machine.status(), RunStatus::Running);
    script.report(0, 2, None);
    let commands = script.report(1, 2, None);
    assert!(matches!(&commands[..], [Command::CommitReport { collated, .. }] if collated.iteration == 3));
    for rank in 0..2 {
        script.tell(Event::WorkerReturned { rank: Rank(rank), value: None, preempted: false });
    }
    script.exits(0, ExitStatus::Code(0));
    let commands = script.exits(1, ExitStatus::Code(0));
    assert_eq!(ending(&commands).unwrap().status, RunStatus::Finished);
}

#[test]
fn a_checkpoint_that_is_being_stored_is_waited_for_before_the_next_attempt() {
    let mut script = Script::running(1, allowing(Limit::AtMost(1), 0));
    script.report(0, 0, Some(Saving::Sync));
    script.raises(0, "mistake");
    assert_eq!(restart(&script.exits(0, ExitStatus::Code(1))), None, "RESTART-1");
    assert!(restart(&script.commits(1)).is_some());
}

#[test]
fn a_budget_that_is_used_up_ends_the_run_with_its_last_failure() {
    let mut script = Script::running(1, allowing(Limit::AtMost(1), 0));
    script.raises(0, "first");
    assert!(restart(&script.exits(0, ExitStatus::Code(1))).is_some());
    script.tell(Event::LatestFound { newest: None, kept: Vec::new() });
    script.group_runs(1);
    script.raises(0, "second");
    let commands = script.exits(0, ExitStatus::Code(1));
    let ending = ending(&commands).unwrap();
    assert_eq!(ending.status, RunStatus::Failed);
    assert_eq!(ending.headline, "rank 0 failed: second (attempt 2: `max_failures=1` is used up)");
}

#[test]
fn timers_of_an_earlier_attempt_mean_nothing() {
    let mut script = Script::running(2, allowing(Limit::AtMost(2), 0));
    script.raises(0, "first");
    script.raises(1, "first");
    script.exits(0, ExitStatus::Code(1));
    script.exits(1, ExitStatus::Code(1));
    script.tell(Event::LatestFound { newest: None, kept: Vec::new() });
    script.group_runs(2);
    script.raises(0, "second");
    assert!(!stops(&script.tell(Event::TimerFired(Timer::Gather(Attempt(0))))), "rank 1 still has its time");
    assert_eq!(script.tell(Event::TimerFired(Timer::Hang(Attempt(0)))), []);
    assert!(stops(&script.tell(Event::TimerFired(Timer::Gather(Attempt(1))))));
}

#[test]
fn a_stop_between_two_attempts_ends_the_run() {
    let mut script = Script::running(1, allowing(Limit::Any, 0));
    script.raises(0, "mistake");
    assert!(restart(&script.exits(0, ExitStatus::Code(1))).is_some());
    let commands = script.tell(Event::StopRequested { reason: "interrupted".into(), force: false });
    assert_eq!(ending(&commands).unwrap().status, RunStatus::Aborted);
    assert_eq!(script.tell(Event::LatestFound { newest: None, kept: Vec::new() }), []);
}

#[test]
fn a_process_that_is_stopped_by_a_signal_is_said_and_is_no_mistake_of_the_users() {
    let hang_timeout = Some(Duration::from_secs(8));
    let budget = Budget::new(allowing(Limit::AtMost(0), 1));
    let mut machine = RunMachine::<u64>::new(1, RunOptions { hang_timeout, budget, ..RunOptions::default() });
    machine.on_event(Duration::ZERO, Event::Placed);
    machine.on_event(Duration::ZERO, Event::WorkerReady { rank: Rank(0) });
    let outcome = machine.on_event(Duration::ZERO, Event::WorkerHalted { rank: Rank(0), halted: true });
    assert!(matches!(&outcome.commands[..], [Command::Warn(text)] if text.contains("rank 0 was stopped by a signal")));
    let late = Duration::from_secs(9);
    for second in 1..9 {
        machine.on_event(Duration::from_secs(second), Event::TimerFired(Timer::Gather(Attempt(9))));
    }
    machine.on_event(late, Event::TimerFired(Timer::Hang(Attempt(0))));
    machine.on_event(late, Event::StacksGathered(Vec::new()));
    let exit = Event::WorkerExited {
        rank: Rank(0),
        exit: ExitStatus::Signal(9),
        last_output: String::new(),
        out_of_memory: None,
    };
    assert!(restart(&machine.on_event(late, exit).commands).is_some(), "its budget is that of machines");
}

#[test]
fn a_preempted_run_ends_with_the_checkpoint_that_it_was_asked_for() {
    let mut script = Script::running(2, FailureRule::default());
    script.report(0, 0, Some(Saving::Sync));
    let commands = script.preempts();
    assert!(commands.iter().any(|command| matches!(command, Command::AskForCheckpoint { .. })), "{commands:?}");
    assert_eq!(script.preempts(), [], "the workers are warned once");
    script.report(1, 0, None);
    assert!(!stops(&script.commits(1)), "PREEMPT-1: that one was reported before rank 0 was warned");
    script.report(0, 1, Some(Saving::Last));
    script.report(1, 1, None);
    let wait = Event::WorkerWaits { rank: Rank(0), kind: WaitKind::Preempted, sequence: 1, payload: Vec::new() };
    script.tell(wait);
    assert!(stops(&script.commits(2)));
    script.exits(0, ExitStatus::Signal(15));
    let commands = script.exits(1, ExitStatus::Signal(15));
    let ending = ending(&commands).unwrap();
    assert_eq!(ending.status, RunStatus::Preempted);
    assert_eq!(ending.headline, "preempted: SIGTERM; the last checkpoint is `checkpoint of 2`, of report 2");
}

#[test]
fn a_last_checkpoint_that_is_lost_may_be_tried_again() {
    let mut script = Script::running(1, FailureRule::default());
    script.preempts();
    script.report(0, 0, Some(Saving::Last));
    let waits = |sequence| Event::WorkerWaits { rank: Rank(0), kind: WaitKind::Preempted, sequence, payload: vec![] };
    assert!(!script.tell(waits(0)).iter().any(|command| matches!(command, Command::Release { .. })));
    let failure = Failure::new(ErrorCode::Storage, "no space left");
    let commands = script.tell(Event::CheckpointRejected { iteration: 1, failure });
    assert!(commands.iter().any(|command| matches!(command, Command::Release { .. })));
    script.report(0, 1, Some(Saving::Last));
    assert!(stops(&script.commits(2)));
}

#[test]
fn a_training_that_returned_is_not_made_again_for_its_last_checkpoint() {
    for code in [ErrorCode::Storage, ErrorCode::StorageRefused, ErrorCode::Checkpoint] {
        let mut script = Script::running(1, allowing(Limit::Any, 3));
        script.report(0, 0, Some(Saving::Sync));
        let failure = Failure::new(code, "no space left");
        script.tell(Event::CheckpointRejected { iteration: 1, failure });
        script.tell(Event::WorkerReturned { rank: Rank(0), value: None, preempted: false });
        let commands = script.exits(0, ExitStatus::Code(0));
        let ending = ending(&commands).unwrap();
        assert_eq!(ending.status, RunStatus::Failed);
        assert_eq!(ending.headline, "the last checkpoint could not be stored: no space left");
    }
}

#[test]
fn without_a_checkpoint_the_time_ends_a_preempted_run() {
    let mut script = Script::running(1, allowing(Limit::Any, 3));
    script.preempts();
    assert!(stops(&script.tell(Event::TimerFired(Timer::Preempt))));
    let commands = script.exits(0, ExitStatus::Signal(9));
    let headline = "preempted: SIGTERM; no last checkpoint came in time; there is no checkpoint";
    let ending = ending(&commands).unwrap();
    assert_eq!((ending.headline.as_str(), ending.timed_out), (headline, true));
}

#[test]
fn a_failure_while_the_machine_is_taken_away_is_the_preemptions() {
    let mut script = Script::running(1, allowing(Limit::Any, 3));
    script.preempts();
    let commands = script.exits(0, ExitStatus::Signal(9));
    let ending = ending(&commands).unwrap();
    assert_eq!(ending.status, RunStatus::Preempted);
    assert!(ending.headline.contains("SIGKILL"), "{}", ending.headline);
}

#[test]
fn only_a_function_that_has_looked_is_preempted_by_returning() {
    for (looked, status) in [(true, RunStatus::Preempted), (false, RunStatus::Finished)] {
        let mut script = Script::running(1, FailureRule::default());
        script.preempts();
        script.tell(Event::WorkerReturned { rank: Rank(0), value: None, preempted: looked });
        let commands = script.exits(0, ExitStatus::Code(0));
        assert_eq!(ending(&commands).unwrap().status, status, "PREEMPT-3");
    }
}
