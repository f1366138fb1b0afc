//! What the run controller does with reports, and with the checkpoints that come with them.

use carril_types::{ErrorCode, ExitStatus, Failure, Rank};

use super::{Command, OutOfMemory, Outcome, RunMachine, Saving, State, WorkerState, ranks_text, release};

impl<R> RunMachine<R> {
    pub(super) fn on_reported(
        &mut self,
        rank: Rank,
        sequence: u64,
        report: R,
        checkpoint: Option<Saving>,
        validate: bool,
        out: &mut Outcome<R>,
    ) {
        if self.workers[rank.index()] == WorkerState::Gone || matches!(self.state, State::Stopping(_)) {
            return;
        }
        let fresh = sequence == self.collator.delivered(rank);
        if let Err(error) = self.collator.on_report(rank, sequence, report) {
            let message = format!("rank {rank} sent report {} where {} was due", error.got, error.expected);
            self.fail_run(Failure::new(ErrorCode::Internal, message), out);
            return;
        }
        if let Some(saving) = checkpoint.filter(|_| fresh) {
            self.checkpoints.on_reported(sequence + 1, rank, saving == Saving::Async, validate);
            if let Some(preemption) = self.preemption.as_mut().filter(|_| saving == Saving::Last) {
                preemption.answers.insert(sequence + 1);
            }
        }
        self.commit_collated(out);
        self.stop_if_caught_up(out);
    }

    pub(super) fn commit_collated(&mut self, out: &mut Outcome<R>) {
        while let Some(collated) = self.collator.next_collated() {
            let checkpoint = self.checkpoints.take_reported(collated.iteration);
            let absent: Vec<Rank> =
                (0..).zip(&collated.by_rank).filter(|(_, r)| r.is_none()).map(|(rank, _)| Rank(rank)).collect();
            if !absent.is_empty() && !checkpoint.is_empty() {
                let failure = mismatch(&checkpoint, &absent, collated.iteration);
                self.checkpoints.forget(&checkpoint);
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
            let iteration = collated.iteration;
            let score = if checkpoint.is_empty() { None } else { (self.score)(&collated) };
            out.commands.push(Command::CommitReport { collated, checkpoint: !checkpoint.is_empty() });
            if !checkpoint.is_empty() {
                self.queue_checkpoint(iteration, checkpoint, score);
                self.lose_unprepared(out);
                self.store_next(out);
            }
        }
        let granted = self.collator.granted();
        release(self.waits.release_grants(granted), out);
        release(self.waits.release_settled(self.settled_reports()), out);
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

pub(super) fn failure_of_exit(exit: ExitStatus, out_of_memory: Option<OutOfMemory>) -> Failure {
    if let Some(OutOfMemory { counted, peak }) = out_of_memory {
        let own = match peak as f64 / (1u64 << 30) as f64 {
            0.0 => String::new(),
            gib => format!("; this process had up to {gib:.2} GiB"),
        };
        let message = format!("the worker process ran out of memory and the kernel ended it: {counted}{own}");
        return Failure::new(ErrorCode::OutOfMemory, message)
            .hint("raise the memory limit of the job or container, or use less memory per rank");
    }
    Failure::new(exit.error_code(), format!("the worker process {}", exit.what_happened()))
}
