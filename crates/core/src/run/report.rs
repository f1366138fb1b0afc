//! What the run controller does with reports, and with the checkpoints that come with them.

use std::collections::BTreeMap;

use carril_types::{ErrorCode, ExitStatus, Failure, Rank};

use super::{Command, Outcome, RunMachine, State, WorkerState, ranks_text, release};

/// Which ranks have staged files for which report.
#[derive(Clone, Debug, Default)]
pub(super) struct Staged(BTreeMap<u64, Vec<Rank>>);

impl Staged {
    fn add(&mut self, iteration: u64, rank: Rank) {
        self.0.entry(iteration).or_default().push(rank);
    }

    fn take(&mut self, iteration: u64) -> Vec<Rank> {
        let mut ranks = self.0.remove(&iteration).unwrap_or_default();
        ranks.sort_unstable();
        ranks
    }
}

impl<R> RunMachine<R> {
    pub(super) fn on_reported(&mut self, rank: Rank, sequence: u64, report: R, checkpoint: bool, out: &mut Outcome<R>) {
        if self.workers[rank.index()] == WorkerState::Gone || matches!(self.state, State::Stopping(_)) {
            return;
        }
        let fresh = sequence == self.collator.delivered(rank);
        if let Err(error) = self.collator.on_report(rank, sequence, report) {
            let message = format!("rank {rank} sent report {} where {} was due", error.got, error.expected);
            self.fail_run(Failure::new(ErrorCode::Internal, message), out);
            return;
        }
        if checkpoint && fresh {
            self.staged.add(sequence + 1, rank);
        }
        self.commit_collated(out);
    }

    pub(super) fn commit_collated(&mut self, out: &mut Outcome<R>) {
        while let Some(collated) = self.collator.next_collated() {
            let checkpoint = self.staged.take(collated.iteration);
            let absent: Vec<Rank> =
                (0..).zip(&collated.by_rank).filter(|(_, r)| r.is_none()).map(|(rank, _)| Rank(rank)).collect();
            if !absent.is_empty() && !checkpoint.is_empty() {
                let failure = mismatch(&checkpoint, &absent, collated.iteration);
                self.fail_run(failure, out);
                return;
            }
            if !absent.is_empty() && !self.warned_of_absence {
                self.warned_of_absence = true;
                let counts: Vec<String> =
                    absent.iter().map(|rank| format!("rank {rank} made {}", self.collator.delivered(*rank))).collect();
                out.commands.push(Command::Warn(format!(
                    "the ranks report unequally often: {} and returned, others go on with report {}",
                    counts.join(", "),
                    collated.iteration
                )));
            }
            if !checkpoint.is_empty() {
                self.committing.push(collated.iteration);
            }
            out.commands.push(Command::CommitReport { collated, checkpoint });
        }
        let granted = self.collator.granted();
        release(self.waits.release_grants(granted), out);
    }

    pub(super) fn on_commit(&mut self, iteration: u64, result: Result<String, Failure>, out: &mut Outcome<R>) {
        self.committing.retain(|k| *k != iteration);
        out.reason = match &result {
            Ok(path) => format!("every rank's report {iteration} is in: its checkpoint is `{path}`"),
            Err(failure) => failure.message.clone(),
        };
        let bytes = result.clone().map(String::into_bytes);
        release(self.waits.release_checkpoint(iteration - 1, &bytes), out);
        if let Err(failure) = &result {
            self.fail_run(failure.clone(), out);
        }
        self.committed.push_back((iteration, result));
        // Only the newest few are ever asked for: a rank asks for its last one.
        if self.committed.len() > 64 {
            self.committed.pop_front();
        }
        self.fail_if_hopeless(out);
        self.finish_if_returned(out);
    }
}

fn mismatch(with: &[Rank], absent: &[Rank], iteration: u64) -> Failure {
    let message = format!(
        "{} reported a checkpoint with report {iteration}, and {} returned before making that report",
        ranks_text(with),
        ranks_text(absent)
    );
    Failure::new(ErrorCode::ReportMismatch, message)
        .hint("every rank must call `report` as often as the others when a checkpoint is reported")
}

pub(super) fn failure_of_exit(exit: ExitStatus, out_of_memory: Option<String>) -> Failure {
    if let Some(counted) = out_of_memory {
        let message = format!("the worker process ran out of memory and the kernel ended it: {counted}");
        return Failure::new(ErrorCode::OutOfMemory, message)
            .hint("raise the memory limit of the job or container, or use less memory per rank");
    }
    match exit {
        ExitStatus::Code(code) => {
            Failure::new(ErrorCode::WorkerExited, format!("the worker process left with exit code {code}"))
        }
        ExitStatus::Signal(signal) => {
            let name = signal_name(signal);
            let code = match signal {
                4 | 6 | 7 | 8 | 11 | 31 => ErrorCode::WorkerExited,
                _ => ErrorCode::WorkerKilled,
            };
            Failure::new(code, format!("the worker process was ended by {name}"))
        }
    }
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}
