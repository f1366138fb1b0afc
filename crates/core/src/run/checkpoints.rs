//! The way of a checkpoint through the run controller: reported, prepared, stored, settled.
//!
//! SAVE-1: one checkpoint of a run is stored at a time, in the order of the reports.
//! SAVE-2: a checkpoint that cannot be stored costs itself only: the one before stays, and the run goes on. Only files that
//!   do not fit together end a run, and a last checkpoint that was lost ends it as failed.
//! SAVE-3: a rank has at most `PLACES` checkpoints that are not settled; the next one waits for a place.
//! SAVE-4: one that waits behind another is dropped only if it was not promised (ASYNC) and retention would delete it at once.
//! SAVE-5: what is being committed is waited for, also by a run that is forced to end: what it displaces goes with it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use carril_types::{ErrorCode, Failure, Rank};

use super::{Command, Outcome, RunMachine, release};
use crate::retention::{Kept, Retention};

type Prepared = (Rank, Result<(), Failure>);

/// One that is being stored, one that waits, and the newest.
pub(super) const PLACES: usize = 3;
/// A rank asks for its last checkpoint, so only the newest few outcomes are ever looked up.
const REMEMBERED: usize = 64;

#[derive(Clone, Debug)]
struct Pending {
    iteration: u64,
    ranks: Vec<Rank>,
    score: Option<f64>,
    droppable: bool,
    validate: bool,
    /// What retention lets go for it, once it is being stored.
    storing: Option<Vec<u64>>,
}

pub(super) struct Checkpoints {
    pub retention: Retention,
    /// Who has reported one with which report, before all ranks have.
    reported: BTreeMap<u64, Vec<Rank>>,
    droppable: BTreeMap<u64, bool>,
    validate: BTreeSet<u64>,
    prepared: BTreeMap<u64, Vec<Prepared>>,
    pending: VecDeque<Pending>,
    settled: VecDeque<u64>,
    newest: Option<(u64, String)>,
    /// Checkpoints of each rank that are not settled.
    unsettled: Vec<usize>,
    /// The newest reported one, if it could not be stored.
    lost: Option<Failure>,
    /// Ranks whose machine is gone, and why.
    gone: Option<(Vec<Rank>, Failure)>,
}

impl Checkpoints {
    pub fn new(world_size: u32, retention: Retention, newest: Option<(u64, String)>) -> Self {
        Self {
            retention,
            reported: BTreeMap::new(),
            droppable: BTreeMap::new(),
            validate: BTreeSet::new(),
            prepared: BTreeMap::new(),
            pending: VecDeque::new(),
            settled: VecDeque::new(),
            newest,
            unsettled: vec![0; world_size as usize],
            lost: None,
            gone: None,
        }
    }

    /// For the next attempt: what was not settled with the last one is not missed.
    pub fn begin_anew(&mut self) {
        self.reported.clear();
        self.droppable.clear();
        self.validate.clear();
        self.prepared.clear();
        self.unsettled.fill(0);
        self.lost = None;
        self.gone = None;
    }

    pub fn found(&mut self, newest: Option<(u64, String)>, kept: Vec<Kept>) {
        self.retention = self.retention.with(kept);
        self.settled.clear();
        self.newest = newest;
    }

    pub fn on_reported(&mut self, iteration: u64, rank: Rank, droppable: bool, validate: bool) {
        if validate {
            self.validate.insert(iteration);
        }
        self.reported.entry(iteration).or_default().push(rank);
        *self.droppable.entry(iteration).or_insert(true) &= droppable;
        self.unsettled[rank.index()] += 1;
    }

    /// Who has reported a checkpoint with this report, now that every rank has made it.
    pub fn take_reported(&mut self, iteration: u64) -> Vec<Rank> {
        let mut ranks = self.reported.remove(&iteration).unwrap_or_default();
        ranks.sort_unstable();
        ranks
    }

    /// These ranks' checkpoint will never be queued.
    pub fn forget(&mut self, ranks: &[Rank]) {
        for rank in ranks {
            self.unsettled[rank.index()] -= 1;
        }
    }

    pub fn are_settled(&self) -> bool {
        self.pending.is_empty()
    }

    pub fn has_place(&self, rank: Rank) -> bool {
        self.unsettled[rank.index()] < PLACES
    }

    pub fn lose(&mut self, ranks: &[Rank], failure: &Failure) {
        let (gone, _) = self.gone.get_or_insert_with(|| (Vec::new(), failure.clone()));
        gone.extend(ranks);
    }

    pub fn lost(&self) -> Option<&Failure> {
        self.lost.as_ref()
    }

    /// The checkpoint of that report, and nothing newer, was tried and not stored.
    pub fn was_lost(&self, iteration: u64) -> bool {
        self.lost.is_some() && self.settled.contains(&iteration)
    }

    pub fn newest(&self) -> Option<&(u64, String)> {
        self.newest.as_ref()
    }

    fn newest_text(&self) -> Vec<u8> {
        self.newest.as_ref().map(|(_, path)| path.clone().into_bytes()).unwrap_or_default()
    }

    fn is_prepared(&self, pending: &Pending) -> bool {
        self.prepared.get(&pending.iteration).is_some_and(|told| told.len() == pending.ranks.len())
    }
}

impl<R> RunMachine<R> {
    pub(super) fn queue_checkpoint(&mut self, iteration: u64, ranks: Vec<Rank>, score: Option<f64>) {
        let validate = self.checkpoints.validate.remove(&iteration);
        let droppable = self.checkpoints.droppable.remove(&iteration).unwrap_or(false) && !validate;
        self.checkpoints.pending.push_back(Pending { iteration, ranks, score, droppable, validate, storing: None });
    }

    pub(super) fn on_checkpoint_prepared(
        &mut self,
        rank: Rank,
        iteration: u64,
        result: Result<(), Failure>,
        out: &mut Outcome<R>,
    ) {
        let told = self.checkpoints.prepared.entry(iteration).or_default();
        if told.iter().all(|(known, _)| *known != rank) {
            told.push((rank, result));
        }
        self.store_next(out);
    }

    /// Drops what nobody will miss, and starts to store the oldest one that is ready.
    pub(super) fn store_next(&mut self, out: &mut Outcome<R>) {
        self.drop_superseded(out);
        while let Some(first) = self.checkpoints.pending.front() {
            if first.storing.is_some() || !self.checkpoints.is_prepared(first) {
                return;
            }
            let iteration = first.iteration;
            let told = &self.checkpoints.prepared[&iteration];
            let failure = told.iter().find_map(|(rank, result)| Some((*rank, result.as_ref().err()?.clone())));
            if let Some((rank, mut failure)) = failure {
                failure.message = format!("rank {rank}: {}", failure.message);
                self.on_settled(iteration, Err(failure), out);
                continue;
            }
            let (ranks, score) = (first.ranks.clone(), first.score);
            let displaced = self.checkpoints.retention.displaced_by(Kept { iteration, score });
            self.checkpoints.pending[0].storing = Some(displaced.clone());
            out.commands.push(Command::StoreCheckpoint { iteration, ranks, displaced });
        }
    }

    fn drop_superseded(&mut self, out: &mut Outcome<R>) {
        let pending = &self.checkpoints.pending;
        let kept = |pending: &Pending| Kept { iteration: pending.iteration, score: pending.score };
        let superseded = (1..pending.len().saturating_sub(1)).find(|at| {
            let later: Vec<Kept> = pending.iter().skip(at + 1).map(kept).collect();
            let one = &pending[*at];
            one.droppable && one.storing.is_none() && self.checkpoints.retention.is_superseded(kept(one), &later)
        });
        let Some(one) = superseded.and_then(|at| self.checkpoints.pending.remove(at)) else { return };
        out.reason = format!("the checkpoint of report {} is superseded before it was stored", one.iteration);
        out.commands.push(Command::DropCheckpoint { iteration: one.iteration });
        self.settle(&one, out);
        self.drop_superseded(out);
    }

    /// The checkpoint of that report is stored, or never will be.
    pub(super) fn on_settled(&mut self, iteration: u64, result: Result<String, Failure>, out: &mut Outcome<R>) {
        let Some(at) = self.checkpoints.pending.iter().position(|pending| pending.iteration == iteration) else {
            return;
        };
        let Some(one) = self.checkpoints.pending.remove(at) else { return };
        match result {
            Ok(path) => {
                out.reason = format!("every rank's report {iteration} is in: its checkpoint is `{path}`");
                self.keep(&one, out);
                self.checkpoints.newest = Some((iteration, path));
                self.checkpoints.lost = None;
                self.settle(&one, out);
                self.stop_if_answered(iteration, out);
            }
            Err(failure) => {
                out.reason = format!("the checkpoint of report {iteration} was not stored: {}", failure.message);
                out.commands.push(Command::DropCheckpoint { iteration });
                self.settle(&one, out);
                if failure.code == ErrorCode::CheckpointConflict {
                    self.fail_run(failure, out);
                } else if failure.code != ErrorCode::Aborted {
                    out.commands.push(Command::Warn(out.reason.clone()));
                    self.checkpoints.lost = Some(failure);
                    release(self.waits.release_preempted(iteration - 1), out);
                }
            }
        }
        self.store_next(out);
        self.fail_if_hopeless(out);
        self.finish_if_returned(out);
    }

    /// It is there, and what it displaced is gone.
    fn keep(&mut self, one: &Pending, out: &mut Outcome<R>) {
        let kept = Kept { iteration: one.iteration, score: one.score };
        self.checkpoints.retention.replace(one.storing.as_deref().unwrap_or_default(), kept);
        if one.validate {
            self.queue_validation(one.iteration, out);
        }
    }

    fn settle(&mut self, one: &Pending, out: &mut Outcome<R>) {
        self.checkpoints.prepared.remove(&one.iteration);
        self.checkpoints.forget(&one.ranks);
        self.checkpoints.settled.push_back(one.iteration);
        if self.checkpoints.settled.len() > REMEMBERED {
            self.checkpoints.settled.pop_front();
        }
        let newest = self.checkpoints.newest_text();
        release(self.waits.release_checkpoint(one.iteration - 1, &Ok(newest)), out);
        release(self.waits.release_settled(self.settled_reports()), out);
        let checkpoints = &self.checkpoints;
        release(self.waits.release_places(|rank| checkpoints.has_place(rank)), out);
    }

    /// What ranks of a lost machine have not made ready they never will.
    pub(super) fn lose_unprepared(&mut self, out: &mut Outcome<R>) {
        let Some((lost, failure)) = self.checkpoints.gone.clone() else { return };
        let told = &self.checkpoints.prepared;
        let unprepared = |one: &Pending, rank: &Rank| {
            one.ranks.contains(rank)
                && !told.get(&one.iteration).is_some_and(|told| told.iter().any(|(known, _)| known == rank))
        };
        let pending = self.checkpoints.pending.iter().filter(|one| lost.iter().any(|rank| unprepared(one, rank)));
        let iterations: Vec<u64> = pending.map(|one| one.iteration).collect();
        for iteration in iterations {
            self.on_settled(iteration, Err(failure.clone()), out);
        }
    }

    /// Forgets everything that is not being stored: for a run that must end now.
    pub(super) fn abandon_checkpoints(&mut self, out: &mut Outcome<R>) {
        for one in std::mem::take(&mut self.checkpoints.pending) {
            let iteration = one.iteration;
            if one.storing.is_some() {
                out.commands.push(Command::CutStoring { iteration });
                self.checkpoints.pending.push_back(one);
            } else {
                out.commands.push(Command::DropCheckpoint { iteration });
                self.settle(&one, out);
            }
        }
    }

    /// What a rank that asks for the checkpoint of its report is told; `None` while that is open.
    pub(super) fn known_checkpoint(&self, iteration: u64) -> Option<Result<Vec<u8>, Failure>> {
        if self.checkpoints.settled.contains(&iteration) {
            return Some(Ok(self.checkpoints.newest_text()));
        }
        let open = self.checkpoints.pending.iter().any(|pending| pending.iteration == iteration);
        let past = iteration <= self.collator.collated() && !open;
        past.then(|| Err(Failure::new(ErrorCode::NotFound, format!("report {iteration} brought no checkpoint"))))
    }

    /// Up to which report every checkpoint is stored or lost.
    pub(super) fn settled_reports(&self) -> u64 {
        let pending = self.checkpoints.pending.front().map(|first| first.iteration - 1);
        pending.unwrap_or_else(|| self.collator.collated())
    }

    pub(super) fn check_checkpoints(&self) {
        let checkpoints = &self.checkpoints;
        let storing = checkpoints.pending.iter().filter(|pending| pending.storing.is_some()).count();
        assert!(storing <= 1, "SAVE-1: {storing} are stored at once");
        let in_order = checkpoints.pending.iter().zip(checkpoints.pending.iter().skip(1));
        assert!(
            in_order.clone().all(|(one, next)| one.iteration < next.iteration),
            "SAVE-1: in the order of the reports"
        );
        for (rank, unsettled) in (0..).zip(&checkpoints.unsettled) {
            let of_rank = |ranks: &Vec<Rank>| usize::from(ranks.contains(&Rank(rank)));
            let pending: usize = checkpoints.pending.iter().map(|pending| of_rank(&pending.ranks)).sum();
            let reported: usize = checkpoints.reported.values().map(of_rank).sum();
            assert_eq!(*unsettled, pending + reported, "SAVE-3: the places of rank {rank} follow its checkpoints");
        }
    }
}
