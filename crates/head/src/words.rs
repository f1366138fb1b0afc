//! What the head decides, in the words of the journal and of the error files.

use carril_core::{Command, Ending, Event, Timer};
use carril_store::COMMITTED;
use carril_types::{Rank, WorkerFailure};

use crate::run::RankReport;

/// How an event stands in the journal, and whether it does when nothing was decided on it: reports are not in it.
pub(crate) fn describe(event: &Event<RankReport>) -> (Described, bool) {
    let (text, always) = match event {
        Event::Reported { rank, sequence, .. } => return (Described::Reported(*rank, *sequence), false),
        Event::Progressed { rank } => return (Described::Progressed(*rank), false),
        Event::WorkerWaits { rank, kind, sequence, .. } => {
            (format!("WorkerWaits: rank {rank}, {} {}", kind.name(), sequence + 1), false)
        }
        Event::TimerFired(Timer::Gather(_)) => ("TimerFired: the failures are gathered".into(), false),
        Event::TimerFired(Timer::Hang(_)) => ("TimerFired: time to look for ranks without progress".into(), false),
        Event::TimerFired(Timer::Warn) => ("TimerFired: a wait or a start goes on".into(), false),
        Event::TimerFired(Timer::Validation(iteration)) => {
            (format!("TimerFired: the time for the validation of report {iteration}'s checkpoint is over"), false)
        }
        Event::Validated { iteration, .. } => (format!("Validated: report {iteration}"), true),
        Event::ValidationKept { iteration } => (format!("ValidationKept: report {iteration}"), false),
        Event::TimerFired(Timer::Preempt) => ("TimerFired: the time for a last checkpoint is over".into(), false),
        Event::StacksGathered(_) => ("StacksGathered".into(), true),
        Event::Placed => ("Placed".into(), true),
        Event::Broken(failure) => (format!("Broken: {}", failure.message), true),
        Event::Refused(failure) => (format!("Refused: {}", failure.message), true),
        Event::WorkerStarted { rank, .. } => (format!("WorkerStarted: rank {rank}"), true),
        Event::WorkerReady { rank } => (format!("WorkerReady: rank {rank}"), true),
        Event::CheckpointCommitted { iteration, path } => (format!("{COMMITTED}: report {iteration}, {path}"), true),
        Event::CheckpointPrepared { rank, iteration, result } => {
            let how = if result.is_ok() { "prepared" } else { "not prepared" };
            (format!("CheckpointPrepared: rank {rank}, report {iteration}, {how}"), result.is_err())
        }
        Event::CheckpointRejected { iteration, .. } => (format!("CheckpointRejected: report {iteration}"), true),
        Event::WorkerReturned { rank, .. } => (format!("WorkerReturned: rank {rank}"), true),
        Event::WorkerFailed { failure, .. } => (format!("WorkerFailed: {}", failure.headline()), true),
        Event::WorkerExited { rank, exit, .. } => (format!("WorkerExited: rank {rank}, {exit}"), true),
        Event::WorkerNotStarted { rank, failure } => {
            (format!("WorkerNotStarted: rank {rank}, {}", failure.message), true)
        }
        Event::WorkerHalted { rank, halted } => {
            (format!("WorkerHalted: rank {rank}, {}", if *halted { "stopped" } else { "goes on" }), true)
        }
        Event::NodeLost { failure, .. } => (format!("NodeLost: {}", failure.message), true),
        Event::LatestFound { .. } => ("LatestFound".into(), true),
        Event::Preempted { reason, grace } => (format!("Preempted: {reason}, {grace:?} for a checkpoint"), true),
        Event::StopRequested { reason, force } => (format!("StopRequested: {reason}, force {force}"), true),
    };
    (Described::Text(text), always)
}

/// What happens a hundred thousand times a second is put into words only when it has to be.
pub(crate) enum Described {
    Text(String),
    Reported(Rank, u64),
    Progressed(Rank),
}

impl From<Described> for String {
    fn from(described: Described) -> Self {
        match described {
            Described::Text(text) => text,
            Described::Reported(rank, sequence) => {
                format!("Collated: report {}, with rank {rank}'s the last", sequence + 1)
            }
            Described::Progressed(rank) => format!("Progressed: rank {rank}"),
        }
    }
}

pub(crate) fn name_of(command: &Command<RankReport>) -> Option<String> {
    match command {
        Command::ChangeStatus(status) => Some(format!("ChangeStatus: {status}")),
        Command::StartGroup { attempt, reports } => {
            Some(format!("StartGroup: attempt {}, after report {reports}", attempt.0 + 1))
        }
        Command::FindLatest => Some("FindLatest".to_owned()),
        Command::Place => Some("Place".to_owned()),
        Command::TellRestart(restart) => {
            Some(format!("Restart: attempt {}, {}", restart.attempt.0 + 1, restart.reason))
        }
        Command::AskForCheckpoint { grace, .. } => Some(format!("AskForCheckpoint: within {grace:?}")),
        Command::StopGroup { attempt, grace } => Some(format!("StopGroup: attempt {}, grace {grace:?}", attempt.0 + 1)),
        Command::EndRun(ending) => Some(format!("EndRun: {}, {}", ending.status, ending.headline)),
        Command::GatherStacks { .. } => Some("GatherStacks".to_owned()),
        Command::Warn(text) => Some(format!("Warn: {text}")),
        Command::StoreCheckpoint { iteration, displaced, .. } => match displaced.as_slice() {
            [] => Some(format!("StoreCheckpoint: of report {iteration}")),
            displaced => Some(format!("StoreCheckpoint: of report {iteration}, in place of those of {displaced:?}")),
        },
        Command::DropCheckpoint { iteration } => Some(format!("DropCheckpoint: of report {iteration}")),
        Command::CutStoring { iteration } => Some(format!("CutStoring: of report {iteration}")),
        Command::Validate { iteration } => Some(format!("Validate: the checkpoint of report {iteration}")),
        Command::StopValidation { iteration, .. } => Some(format!("StopValidation: of report {iteration}")),
        Command::KeepValidation { iteration, displaced } => match displaced.as_slice() {
            [] => Some(format!("KeepValidation: of report {iteration}")),
            displaced => Some(format!("KeepValidation: of report {iteration}; those of {displaced:?} go")),
        },
        Command::CommitReport { .. }
        | Command::Release { .. }
        | Command::SetTimer { .. }
        | Command::TellFailures(_) => None,
    }
}

pub(crate) fn error_files(ending: &Ending) -> (String, serde_json::Value) {
    let mut text = ending.headline.clone();
    for hint in ending.failure.iter().flat_map(|failure| &failure.hints) {
        text.push_str("\nhint: ");
        text.push_str(hint);
    }
    if let Some((first, others)) = ending.failures.split_first() {
        text.push_str("\n\n");
        text.push_str(first.traceback.trim_end());
        text.push('\n');
        for group in folded(others) {
            let ranks: Vec<String> = group.iter().map(|failure| failure.rank.to_string()).collect();
            let who = format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, ranks.join(", "));
            let headline = group[0].headline();
            let how = headline.split_once(" failed: ").map_or(headline.as_str(), |(_, how)| how);
            let same = alike(group[0]) == alike(first);
            let line = if same { format!("{who} failed in the same way") } else { format!("{who} failed: {how}") };
            text.push_str(&format!("\n{line}"));
        }
    }
    text.push('\n');
    let json = serde_json::json!({
        "headline": ending.headline,
        "status": ending.status,
        "failure": ending.failure,
        "failures": ending.failures,
    });
    (text, json)
}

/// Failures of several ranks, those together that differ only in numbers.
fn folded(failures: &[WorkerFailure]) -> Vec<Vec<&WorkerFailure>> {
    let mut groups: Vec<Vec<&WorkerFailure>> = Vec::new();
    for failure in failures {
        match groups.iter_mut().find(|group| alike(group[0]) == alike(failure)) {
            Some(group) => group.push(failure),
            None => groups.push(vec![failure]),
        }
    }
    groups
}

fn alike(failure: &WorkerFailure) -> String {
    let headline = failure.headline();
    headline.chars().map(|character| if character.is_ascii_digit() { '#' } else { character }).collect()
}
