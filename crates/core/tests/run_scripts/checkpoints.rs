//! Checkpoints: who brings what, what is stored, dropped and displaced, and what is checked.

use super::*;

#[test]
fn the_run_waits_for_its_last_checkpoint() {
    let mut script = Script::running(2);
    script.report_checkpoint(0, 0);
    let commands = script.report(1, 0);
    assert!(matches!(&commands[0], Command::CommitReport { checkpoint: true, .. }));
    assert_eq!(stored(&commands), [1]);
    script.returns(0);
    assert_eq!(stop(&script.returns(1)), None, "RUN-4: the commit is on its way");
    assert!(stop(&script.commits(1)).is_some());
}

fn stored(commands: &[Command<&'static str>]) -> Vec<u64> {
    let iteration = |command: &Command<&'static str>| match command {
        Command::StoreCheckpoint { iteration, .. } => Some(*iteration),
        _ => None,
    };
    commands.iter().filter_map(iteration).collect()
}

fn dropped(commands: &[Command<&'static str>]) -> Vec<u64> {
    let iteration = |command: &Command<&'static str>| match command {
        Command::DropCheckpoint { iteration } => Some(*iteration),
        _ => None,
    };
    commands.iter().filter_map(iteration).collect()
}

fn rejected(iteration: u64, code: ErrorCode) -> Event<&'static str> {
    Event::CheckpointRejected { iteration, failure: Failure::new(code, "no space left") }
}

#[test]
fn a_checkpoint_that_cannot_be_kept_costs_itself_only() {
    let mut script = Script::running(1);
    script.report_checkpoint(0, 0);
    script.commits(1);
    script.report_checkpoint(0, 1);
    script.waits(0, WaitKind::Checkpoint, 1);
    let commands = script.tell(rejected(2, ErrorCode::Storage));
    let older = b"checkpoint of 1".to_vec();
    assert!(commands.iter().any(|c| matches!(c, Command::Release { result: Ok(path), .. } if *path == older)));
    assert!(commands.iter().any(|c| matches!(c, Command::Warn(text) if text.contains("no space left"))));
    assert_eq!((stop(&commands), dropped(&commands)), (None, vec![2]));
    script.report_checkpoint(0, 2);
    script.commits(3);
    script.returns(0);
    let commands = script.exits(0, ExitStatus::Code(0));
    assert_eq!(ending(&commands).unwrap().status, RunStatus::Finished);
}

#[test]
fn a_run_whose_last_checkpoint_is_lost_has_failed() {
    let mut script = Script::running(1);
    script.report_checkpoint(0, 0);
    script.tell(rejected(1, ErrorCode::Storage));
    script.report(0, 1);
    script.returns(0);
    let commands = script.exits(0, ExitStatus::Code(0));
    let ending = ending(&commands).unwrap();
    assert_eq!(ending.status, RunStatus::Failed);
    assert_eq!(ending.headline, "the last checkpoint could not be stored: no space left");
}

#[test]
fn a_rank_that_gave_no_checkpoint_waits_for_those_of_the_others() {
    let mut script = Script::running(2);
    assert!(matches!(&script.waits(1, WaitKind::Settled, 0)[..], [Command::Release { .. }]), "there is none yet");
    script.report(1, 0);
    let waits = script.waits(1, WaitKind::Settled, 1);
    assert!(!waits.iter().any(|c| matches!(c, Command::Release { .. })), "rank 0 has not reported: {waits:?}");
    let reported = script.report_checkpoint(0, 0);
    assert!(!reported.iter().any(|c| matches!(c, Command::Release { .. })), "it is being stored: {reported:?}");
    let released = script.commits(1);
    assert!(released.iter().any(|c| matches!(c, Command::Release { rank: Rank(1), kind: WaitKind::Settled, .. })));
    script.report(1, 1);
    script.waits(1, WaitKind::Settled, 2);
    let released = script.report(0, 1);
    assert!(released.iter().any(|c| matches!(c, Command::Release { rank: Rank(1), kind: WaitKind::Settled, .. })));
}

#[test]
fn files_that_do_not_fit_together_end_the_run() {
    let mut script = Script::running(1);
    script.report_checkpoint(0, 0);
    assert_eq!(stop(&script.tell(rejected(1, ErrorCode::CheckpointConflict))), Some(Duration::ZERO));
}

#[test]
fn checkpoints_are_stored_one_at_a_time_in_order_when_every_rank_is_prepared() {
    let mut script = Script::running(2);
    assert_eq!(stored(&script.report_checkpoint(0, 0)), []);
    let reported = Event::Reported {
        rank: Rank(1),
        sequence: 0,
        report: "metrics",
        checkpoint: Some(Saving::Sync),
        validate: false,
    };
    assert_eq!(stored(&script.tell(reported)), [], "rank 1 is not prepared yet");
    script.report_checkpoint(0, 1);
    assert_eq!(stored(&script.report_checkpoint(1, 1)), [], "the first one has to go first");
    let prepared = Event::CheckpointPrepared { rank: Rank(1), iteration: 1, result: Ok(()) };
    assert_eq!(stored(&script.tell(prepared)), [1]);
    assert_eq!(stored(&script.commits(1)), [2]);
}

#[test]
fn a_rank_has_three_places_and_waits_for_the_next() {
    let mut script = Script::running(1);
    for sequence in 0..3 {
        assert!(matches!(&script.waits(0, WaitKind::Place, sequence)[..], [Command::Release { .. }]));
        script.report_checkpoint(0, sequence);
    }
    let released = |commands: &[Command<&'static str>]| commands.iter().any(|c| matches!(c, Command::Release { .. }));
    assert!(!released(&script.waits(0, WaitKind::Place, 3)));
    assert!(released(&script.commits(1)));
}

#[test]
fn only_what_was_not_promised_and_would_be_deleted_at_once_is_dropped() {
    let keep = |num_to_keep| {
        let retention = Retention::new(RetentionRule { num_to_keep, score: None }, Vec::new());
        let mut script = Script::running(1);
        script.machine = RunMachine::new(1, RunOptions { retention, ..RunOptions::default() });
        script.tell(Event::Placed);
        script.tell(Event::WorkerReady { rank: Rank(0) });
        script
    };
    for (num_to_keep, saving, goes) in [
        (Some(1), Saving::Async, vec![2]),
        (Some(1), Saving::Sync, vec![]),
        (Some(2), Saving::Async, vec![]),
        (None, Saving::Async, vec![]),
    ] {
        let mut script = keep(num_to_keep);
        assert_eq!(stored(&script.report_saving(0, 0, saving)), [1]);
        script.report_saving(0, 1, saving);
        assert_eq!(dropped(&script.report_saving(0, 2, saving)), goes, "{num_to_keep:?} {saving:?}");
    }
}

#[test]
fn a_displaced_checkpoint_goes_with_the_commit_of_the_next() {
    let retention = Retention::new(RetentionRule { num_to_keep: Some(1), score: None }, Vec::new());
    let mut machine = RunMachine::<()>::new(1, RunOptions { retention, ..RunOptions::default() });
    let mut displaced = Vec::new();
    for iteration in 1..4 {
        let checkpoint = Some(Saving::Sync);
        let (now, rank) = (Duration::ZERO, Rank(0));
        machine
            .on_event(now, Event::Reported { rank, sequence: iteration - 1, report: (), checkpoint, validate: false });
        let outcome = machine.on_event(now, Event::CheckpointPrepared { rank, iteration, result: Ok(()) });
        for command in outcome.commands {
            if let Command::StoreCheckpoint { displaced: gone, .. } = command {
                displaced.push(gone);
            }
        }
        machine.on_event(now, Event::CheckpointCommitted { iteration, path: "path".into() });
    }
    assert_eq!(displaced, [vec![], vec![1], vec![2]]);
}

#[test]
fn a_run_goes_on_with_the_numbers_it_had() {
    let mut machine = RunMachine::<()>::new(1, RunOptions { reports: 7, ..RunOptions::default() });
    let reported = Event::Reported { rank: Rank(0), sequence: 7, report: (), checkpoint: None, validate: false };
    let commands = machine.on_event(Duration::ZERO, reported).commands;
    assert!(matches!(&commands[..], [Command::CommitReport { collated, .. }] if collated.iteration == 8));
}

#[test]
fn a_forced_end_waits_for_no_checkpoint_but_the_one_that_is_being_committed() {
    for is_committed in [false, true] {
        let mut script = Script::running(1);
        script.report_checkpoint(0, 0);
        script.report_checkpoint(0, 1);
        script.tell(Event::StopRequested { reason: "interrupted".into(), force: false });
        assert!(ending(&script.exits(0, ExitStatus::Signal(15))).is_none(), "RUN-4: it is being stored");
        let commands = script.tell(Event::StopRequested { reason: "interrupted".into(), force: true });
        assert_eq!(dropped(&commands), [2], "what waits is not stored any more");
        assert!(commands.contains(&Command::CutStoring { iteration: 1 }) && ending(&commands).is_none(), "SAVE-5");
        let commands = match is_committed {
            true => script.commits(1),
            false => {
                let failure = Failure::new(ErrorCode::Aborted, "the run was stopped");
                script.tell(Event::CheckpointRejected { iteration: 1, failure })
            }
        };
        assert_eq!(dropped(&commands).is_empty(), is_committed);
        assert_eq!(ending(&commands).unwrap().status, RunStatus::Aborted);
        assert!(!commands.iter().any(|command| matches!(command, Command::Warn(_))), "it was asked for: {commands:?}");
    }
}

#[test]
fn checkpoints_are_checked_one_after_the_other_and_the_end_waits_for_the_last() {
    let mut script = Script::running(1);
    script.report_for_validation(0, 0);
    assert_eq!(validates(&script.commits(1)), [1]);
    script.report_for_validation(0, 1);
    assert_eq!(validates(&script.commits(2)), [] as [u64; 0], "VALIDATE-1");
    assert_eq!(script.waits(0, WaitKind::Validated, 2), [], "both checks are waited for");
    assert_eq!(validates(&script.validated(1)), [2]);
    let released = script.validated(2);
    assert!(matches!(&released[..], [Command::Release { kind: WaitKind::Validated, .. }]), "{released:?}");
    script.report_for_validation(0, 2);
    assert_eq!(validates(&script.commits(3)), [3]);
    script.returns(0);
    assert!(ending(&script.exits(0, ExitStatus::Code(0))).is_none(), "VALIDATE-3");
    let commands = script.validated(3);
    assert_eq!(ending(&commands).map(|ending| ending.status), Some(RunStatus::Finished));
}

#[test]
fn a_stop_or_a_preemption_does_not_wait_for_checks() {
    for event in [
        Event::StopRequested { reason: "interrupted".into(), force: false },
        Event::Preempted { reason: "SIGTERM".into(), grace: Duration::from_secs(30) },
    ] {
        let mut script = Script::running(1);
        for report in 0..2 {
            script.report_for_validation(0, report);
            script.commits(report + 1);
        }
        script.returns(0);
        script.exits(0, ExitStatus::Code(0));
        let commands = script.tell(event);
        let stopped = |command: &_| matches!(command, Command::StopValidation { iteration: 1, late: false });
        assert!(commands.iter().any(stopped), "{commands:?}");
        let warned = |command: &_| matches!(command, Command::Warn(text) if text.contains("2 checkpoints are left"));
        assert!(commands.iter().any(warned), "{commands:?}");
        let commands = script.validated(1);
        assert_eq!(ending(&commands).map(|ending| ending.status), Some(RunStatus::Finished));
    }
}

#[test]
fn a_check_that_takes_too_long_is_stopped() {
    let mut script = Script::running(1);
    script.report_for_validation(0, 0);
    script.commits(1);
    let late = Event::TimerFired(Timer::Validation(1));
    assert_eq!(script.tell(late.clone()), [Command::StopValidation { iteration: 1, late: true }]);
    script.validated(1);
    assert_eq!(script.tell(late), [], "it is over by then");
}

fn validates(commands: &[Command<&'static str>]) -> Vec<u64> {
    let validated = |command: &Command<&'static str>| match command {
        Command::Validate { iteration } => Some(*iteration),
        _ => None,
    };
    commands.iter().filter_map(validated).collect()
}
