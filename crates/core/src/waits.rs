//! What ranks wait for, and when a wait has become hopeless.
//!
//! A rank waits in at most one place at a time: a barrier or broadcast, the commit of a checkpoint, a place to report into, or for a batch
//! of a data set that another rank has to read too.
//! WAIT-1: a barrier or broadcast is released when every rank has joined the one of the same number, with rank 0's payload.
//! WAIT-2: only proof ends a wait with an error: a rank that is needed has returned, joined something else under the same
//!   number, or every rank that is left waits for another. Slowness never does.
//! WAIT-3: whoever waits for a batch looks itself whether it has come, and may go on before that is known here. So it is told what is proven,
//!   and looks again: nobody else is ended for it.

use std::collections::BTreeMap;
use std::time::Duration;

use carril_types::{ErrorCode, Failure, Rank};

const READ_BY_ALL: &str = "every rank must read a data set that is split among the ranks, in the same order as the others; \
     `DataConfig(datasets_to_split=[…])` names those that are split, and each rank reads all of the others";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitKind {
    Barrier,
    Broadcast,
    /// For the commit of the checkpoint that came with this rank's report of that number.
    Checkpoint,
    /// For the slower ranks, to report more than that number.
    Grant,
    /// For an older checkpoint to be settled, so that a new one can be taken.
    Place,
    /// For the end of a run that is preempted, with the last checkpoint of that number made.
    Preempted,
    /// For the checkpoints of all reports up to that number, which may be those of other ranks.
    Settled,
    /// For the checks of all checkpoints that are stored.
    Validated,
    /// For other ranks to read a data set. The payload says who and what, as `parse_data_payload` reads it; without one the wait is over.
    Data,
}

/// What the payload of a wait for data says: for which ranks, and for what of them.
pub(crate) fn parse_data_payload(payload: &[u8]) -> (Vec<Rank>, String) {
    let text = String::from_utf8_lossy(payload);
    let (ranks, what) = text.split_once(' ').unwrap_or((&text, ""));
    (ranks.split(',').filter_map(|rank| rank.parse().ok().map(Rank)).collect(), what.to_owned())
}

impl WaitKind {
    pub fn name(self) -> &'static str {
        match self {
            WaitKind::Barrier => "barrier",
            WaitKind::Broadcast => "broadcast",
            WaitKind::Checkpoint => "checkpoint",
            WaitKind::Grant => "grant",
            WaitKind::Place => "place",
            WaitKind::Preempted => "preempted",
            WaitKind::Settled => "settled",
            WaitKind::Validated => "validated",
            WaitKind::Data => "data",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        use WaitKind::{Barrier, Broadcast, Checkpoint, Data, Grant, Place, Preempted, Settled, Validated};
        let all = [Barrier, Broadcast, Checkpoint, Grant, Place, Preempted, Settled, Validated, Data];
        all.into_iter().find(|kind| kind.name() == name)
    }

    fn is_collective(self) -> bool {
        matches!(self, WaitKind::Barrier | WaitKind::Broadcast)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wait {
    pub kind: WaitKind,
    pub sequence: u64,
    pub payload: Vec<u8>,
    pub since: Duration,
}

impl Wait {
    fn describe(&self) -> String {
        let sequence = self.sequence;
        match self.kind {
            WaitKind::Barrier => format!("in `barrier` number {}", sequence + 1),
            WaitKind::Broadcast => format!("in `broadcast_from_rank_zero`, collective number {}", sequence + 1),
            WaitKind::Checkpoint => format!("for the checkpoint of report {}", sequence + 1),
            WaitKind::Grant => format!("to make report {}", sequence + 1),
            WaitKind::Place => format!("to save the checkpoint of report {}", sequence + 1),
            WaitKind::Preempted => format!("for the end, after report {}", sequence + 1),
            WaitKind::Settled => format!("for the checkpoints up to report {sequence}"),
            WaitKind::Validated => "for the validation of checkpoints".to_owned(),
            WaitKind::Data => {
                let (ranks, what) = parse_data_payload(&self.payload);
                format!("for {what} of {}", ranks_text(&ranks))
            }
        }
    }
}

/// A wait that has ended: what the rank is told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Released {
    pub rank: Rank,
    pub kind: WaitKind,
    pub sequence: u64,
    pub result: Result<Vec<u8>, Failure>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    waiting: BTreeMap<Rank, Wait>,
}

impl Waits {
    /// One for data does not take the place of another: a thread beside the function may read.
    pub fn join(&mut self, rank: Rank, wait: Wait) {
        let is_taken = self.waiting.get(&rank).is_some_and(|known| known.kind != WaitKind::Data);
        if wait.kind != WaitKind::Data || !is_taken {
            self.waiting.insert(rank, wait);
        }
    }

    /// What this rank waited for of a data set has come.
    pub fn leave_data(&mut self, rank: Rank, sequence: u64) {
        if self.waiting.get(&rank).is_some_and(|wait| (wait.kind, wait.sequence) == (WaitKind::Data, sequence)) {
            self.waiting.remove(&rank);
        }
    }

    /// Whoever waits for data of ranks that have returned: they will not read any more.
    pub fn release_data_of(&mut self, returned: &[Rank]) -> Vec<Released> {
        let mut released = Vec::new();
        for (rank, wait) in self.waiting.iter().filter(|(_, wait)| wait.kind == WaitKind::Data) {
            let (needed, _) = parse_data_payload(&wait.payload);
            let gone: Vec<String> = needed.iter().filter(|one| returned.contains(one)).map(Rank::to_string).collect();
            if !gone.is_empty() {
                let result = Ok(gone.join(",").into_bytes());
                released.push(Released { rank: *rank, kind: wait.kind, sequence: wait.sequence, result });
            }
        }
        released.iter().for_each(|released| self.leave(released.rank));
        released
    }

    /// Those that wait for data, where no rank can go on: each is told, and looks once more.
    pub fn release_hopeless_data(&mut self, world_size: usize, returned: usize) -> Vec<Released> {
        if self.waiting.len() + returned < world_size {
            return Vec::new();
        }
        let failure = Failure::new(
            ErrorCode::CollectiveMismatch,
            format!("the ranks wait for each other: {}", self.describe(|_| true)),
        )
        .hint(READ_BY_ALL);
        self.take(|_, wait| wait.kind == WaitKind::Data, |_| Err(failure.clone()))
    }

    pub fn leave(&mut self, rank: Rank) {
        self.waiting.remove(&rank);
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Releases the collective in which every rank has arrived, if there is one.
    pub fn release_collective(&mut self, world_size: usize) -> Vec<Released> {
        if self.waiting.len() < world_size {
            return Vec::new();
        }
        let first = &self.waiting[&Rank::ZERO];
        let (kind, sequence) = (first.kind, first.sequence);
        let together = self.waiting.values().all(|wait| wait.kind == kind && wait.sequence == sequence);
        if !kind.is_collective() || !together {
            return Vec::new();
        }
        let payload = first.payload.clone();
        self.take(|_, _| true, |_| Ok(payload.clone()))
    }

    pub fn release_checkpoint(&mut self, sequence: u64, result: &Result<Vec<u8>, Failure>) -> Vec<Released> {
        self.take(|_, wait| wait.kind == WaitKind::Checkpoint && wait.sequence == sequence, |_| result.clone())
    }

    pub fn release_grants(&mut self, granted: u64) -> Vec<Released> {
        let payload = granted.to_string().into_bytes();
        self.take(|_, wait| wait.kind == WaitKind::Grant && wait.sequence < granted, |_| Ok(payload.clone()))
    }

    pub fn release_places(&mut self, has_place: impl Fn(Rank) -> bool) -> Vec<Released> {
        self.take(|rank, wait| wait.kind == WaitKind::Place && has_place(rank), |_| Ok(Vec::new()))
    }

    /// The last checkpoint could not be stored: the rank may try another one.
    pub fn release_preempted(&mut self, sequence: u64) -> Vec<Released> {
        self.take(|_, wait| wait.kind == WaitKind::Preempted && wait.sequence == sequence, |_| Ok(Vec::new()))
    }

    pub fn release_settled(&mut self, settled: u64) -> Vec<Released> {
        self.take(|_, wait| wait.kind == WaitKind::Settled && wait.sequence <= settled, |_| Ok(Vec::new()))
    }

    pub fn release_validated(&mut self) -> Vec<Released> {
        self.take(|_, wait| wait.kind == WaitKind::Validated, |_| Ok(Vec::new()))
    }

    /// The proof that no wait can end, if there is one: who waits where, and who will not come.
    pub fn hopeless(&self, world_size: usize, returned: &[Rank]) -> Option<Failure> {
        let collective = self.waiting.values().find(|wait| wait.kind.is_collective());
        if let Some(wait) = collective
            && !returned.is_empty()
        {
            let waiting = self.describe(|_| true);
            let message = format!("{} returned while {waiting}", ranks_text(returned));
            return Some(
                Failure::new(ErrorCode::CollectiveMismatch, message)
                    .hint(format!("every rank must call `{}` the same number of times", wait.kind.name())),
            );
        }
        if self.waiting.len() + returned.len() < world_size || self.waiting.is_empty() {
            return None;
        }
        let message = format!("the ranks wait for each other: {}", self.describe(|_| true));
        Some(
            Failure::new(ErrorCode::CollectiveMismatch, message)
                .hint("every rank must make the same calls of `barrier`, `broadcast_from_rank_zero` and `report` in the same order"),
        )
    }

    pub fn describe(&self, keep: impl Fn(Rank) -> bool) -> String {
        let mut places: Vec<(String, Vec<Rank>)> = Vec::new();
        for (rank, wait) in self.waiting.iter().filter(|(rank, _)| keep(**rank)) {
            let place = wait.describe();
            match places.iter_mut().find(|(known, _)| *known == place) {
                Some((_, ranks)) => ranks.push(*rank),
                None => places.push((place, vec![*rank])),
            }
        }
        let parts = places.iter().map(|(place, ranks)| {
            let verb = if ranks.len() == 1 { "waits" } else { "wait" };
            format!("{} {verb} {place}", ranks_text(ranks))
        });
        parts.collect::<Vec<_>>().join(", ")
    }

    /// Those that have waited for so long.
    pub fn long(&self, now: Duration, least: Duration) -> Vec<Rank> {
        let long = self.waiting.iter().filter(|(_, wait)| now.saturating_sub(wait.since) >= least);
        long.map(|(rank, _)| *rank).collect()
    }

    /// What to do about one that does not come, where that is not plain.
    pub fn hint(&self, ranks: &[Rank]) -> Option<&'static str> {
        ranks.iter().any(|rank| self.is_for_data(*rank)).then_some(READ_BY_ALL)
    }

    pub fn is_for_data(&self, rank: Rank) -> bool {
        self.waiting.get(&rank).is_some_and(|wait| wait.kind == WaitKind::Data)
    }

    /// Ranks that are not waiting in a collective although others are.
    pub fn missing(&self, world_size: usize) -> Vec<Rank> {
        (0..world_size as u32).map(Rank).filter(|rank| !self.waiting.contains_key(rank)).collect()
    }

    fn take(
        &mut self,
        matches: impl Fn(Rank, &Wait) -> bool,
        result: impl Fn(Rank) -> Result<Vec<u8>, Failure>,
    ) -> Vec<Released> {
        let ranks: Vec<Rank> = self.waiting.iter().filter(|(r, w)| matches(**r, w)).map(|(r, _)| *r).collect();
        ranks
            .into_iter()
            .filter_map(|rank| {
                let wait = self.waiting.remove(&rank)?;
                Some(Released { rank, kind: wait.kind, sequence: wait.sequence, result: result(rank) })
            })
            .collect()
    }
}

/// `rank 3`, `ranks 0 and 2`, `ranks 0, 1, 2, 3, 4 and 12 more`.
pub(crate) fn ranks_text(ranks: &[Rank]) -> String {
    const SHOWN: usize = 5;
    let names: Vec<String> = ranks.iter().take(SHOWN).map(Rank::to_string).collect();
    match (ranks.len(), names.split_last()) {
        (1, _) => format!("rank {}", names[0]),
        (count, _) if count > SHOWN => format!("ranks {} and {} more", names.join(", "), count - SHOWN),
        (_, Some((last, first))) => format!("ranks {} and {last}", first.join(", ")),
        (_, None) => "no rank".to_owned(),
    }
}
