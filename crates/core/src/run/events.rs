//! The words of the run controller: what can happen, what it can order, and how a run can end.

use std::time::Duration;

use carril_types::{Attempt, ExitStatus, Failure, Rank, Restart, RunStatus, WorkerFailure};

use crate::collate::Collated;
use crate::retention::Kept;
use crate::stacks::RankStack;
use crate::waits::WaitKind;

/// How a checkpoint was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saving {
    Sync,
    /// It may be dropped for a newer one, if retention would delete it anyway.
    Async,
    /// Because the rank was told of a preemption: it waits for the end.
    Last,
}

/// What is known of a process that the kernel ended for its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// What the kernel's counters say.
    pub counted: String,
    /// The most bytes that the process had.
    pub peak: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Event<R> {
    /// The placement found room.
    Placed,
    /// The group can never be placed, or its files cannot be made.
    Refused(Failure),
    /// What no restart mends: the journal cannot be written, or an agent and this head do not understand each other.
    Broken(Failure),
    /// `how` says by which way, and why not by the usual one.
    WorkerStarted {
        rank: Rank,
        how: String,
    },
    WorkerReady {
        rank: Rank,
    },
    Reported {
        rank: Rank,
        sequence: u64,
        report: R,
        /// Its files have been taken.
        checkpoint: Option<Saving>,
        /// The checkpoint is to be validated.
        validate: bool,
    },
    /// The rank's files for that report are safe and counted, or cannot be had.
    CheckpointPrepared {
        rank: Rank,
        iteration: u64,
        result: Result<(), Failure>,
    },
    CheckpointCommitted {
        iteration: u64,
        path: String,
    },
    CheckpointRejected {
        iteration: u64,
        failure: Failure,
    },
    /// The check of that report's checkpoint is over, however it went; the checkpoint is worth `score` now.
    Validated {
        iteration: u64,
        score: Option<f64>,
        how: String,
    },
    ValidationKept {
        iteration: u64,
    },
    WorkerWaits {
        rank: Rank,
        kind: WaitKind,
        sequence: u64,
        payload: Vec<u8>,
    },
    /// `preempted`: the function had asked, and was told that the machine is going.
    WorkerReturned {
        rank: Rank,
        value: Option<String>,
        preempted: bool,
    },
    /// `alone`: no other process of the group was ending when the function failed, so that it did not fail because of one.
    WorkerFailed {
        failure: WorkerFailure,
        alone: bool,
    },
    WorkerExited {
        rank: Rank,
        exit: ExitStatus,
        last_output: String,
        /// When it was the kernel that ended the process for its memory.
        out_of_memory: Option<OutOfMemory>,
    },
    /// The rank has printed something: it lives.
    Progressed {
        rank: Rank,
    },
    /// The process was stopped by a signal, or goes on.
    WorkerHalted {
        rank: Rank,
        halted: bool,
    },
    StacksGathered(Vec<RankStack>),
    WorkerNotStarted {
        rank: Rank,
        failure: Failure,
    },
    /// The machine that had these ranks is gone, and they with it.
    NodeLost {
        ranks: Vec<Rank>,
        failure: Failure,
    },
    /// What the next attempt goes on from, and all that is kept.
    LatestFound {
        newest: Option<(u64, String)>,
        kept: Vec<Kept>,
    },
    StopRequested {
        reason: String,
        force: bool,
    },
    /// The machine is going to be taken away after that time.
    Preempted {
        reason: String,
        grace: Duration,
    },
    TimerFired(Timer),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Timer {
    /// The other ranks of this attempt have had their time to tell of their failures.
    Gather(Attempt),
    /// A wait or a start is still going on.
    Warn,
    /// Time to look for ranks of this attempt without progress.
    Hang(Attempt),
    /// The time for a last checkpoint is over.
    Preempt,
    /// The time for the check of that report's checkpoint is over.
    Validation(u64),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Command<R> {
    ChangeStatus(RunStatus),
    /// The group goes on after that many reports.
    StartGroup {
        attempt: Attempt,
        reports: u64,
    },
    /// Asks for the newest checkpoint that verifies; the answer is `LatestFound`.
    FindLatest,
    /// The group needs another place; the answer is `Placed`.
    Place,
    /// Workers that do not leave within `grace` are killed.
    StopGroup {
        attempt: Attempt,
        grace: Duration,
    },
    /// With `checkpoint`, one of that number is stored next or soon.
    CommitReport {
        collated: Collated<R>,
        checkpoint: bool,
    },
    /// Brings these ranks' files together as one checkpoint, and then deletes those of the displaced reports.
    /// The answer is `CheckpointCommitted` or `CheckpointRejected`.
    StoreCheckpoint {
        iteration: u64,
        ranks: Vec<Rank>,
        displaced: Vec<u64>,
    },
    /// What was taken for it is of no use any more.
    DropCheckpoint {
        iteration: u64,
    },
    /// The run has to end now: gives up the checkpoint that is being stored, unless its commit has begun. A commit is not cut: what it
    /// displaces may be gone already. The answer is that of `StoreCheckpoint`.
    CutStoring {
        iteration: u64,
    },
    /// Has the checkpoint of that report checked; the answer is `Validated`.
    Validate {
        iteration: u64,
    },
    /// The check is ended, whatever it is doing. It is still answered by `Validated`.
    StopValidation {
        iteration: u64,
        late: bool,
    },
    /// Writes down what came of the check, and deletes the checkpoints that have to go for it.
    /// The answer is `ValidationKept`.
    KeepValidation {
        iteration: u64,
        displaced: Vec<u64>,
    },
    Release {
        rank: Rank,
        kind: WaitKind,
        sequence: u64,
        result: Result<Vec<u8>, Failure>,
    },
    SetTimer {
        timer: Timer,
        after: Duration,
    },
    Warn(String),
    /// Asks every rank where it is; the answer is `StacksGathered`.
    GatherStacks {
        attempt: Attempt,
    },
    /// The workers are told that they have so long to bring a last checkpoint.
    AskForCheckpoint {
        attempt: Attempt,
        reason: String,
        grace: Duration,
    },
    TellFailures(Vec<WorkerFailure>),
    /// Why the next attempt is made.
    TellRestart(Restart),
    EndRun(Ending),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Ending {
    pub status: RunStatus,
    pub headline: String,
    /// Absent when the run finished.
    pub failure: Option<Failure>,
    /// The first failure first.
    pub failures: Vec<WorkerFailure>,
    /// By rank.
    pub return_values: Vec<Option<String>>,
    /// It was preempted, and no last checkpoint came in the time that there was.
    pub timed_out: bool,
}

impl Ending {
    /// For a failure that is no rank's own.
    pub(super) fn of_failure(failure: Failure) -> Self {
        Self {
            status: RunStatus::Failed,
            headline: failure.message.clone(),
            failure: Some(failure),
            failures: Vec::new(),
            return_values: Vec::new(),
            timed_out: false,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Outcome<R> {
    pub commands: Vec<Command<R>>,
    /// Why, in a sentence that the journal, the log and the status show. Empty for an event that decides nothing.
    pub reason: String,
}

/// The rank that an event shows to be alive and getting on.
pub(super) fn progress_of<R>(event: &Event<R>) -> Option<Rank> {
    match event {
        Event::WorkerStarted { rank, .. }
        | Event::WorkerReady { rank }
        | Event::Reported { rank, .. }
        | Event::WorkerWaits { rank, .. }
        | Event::Progressed { rank } => Some(*rank),
        _ => None,
    }
}
