//! Brings the k-th reports of all ranks together.
//!
//! COLLATE-1: the k-th collated report holds the k-th report of every rank that made one, and they come in order of k.
//! COLLATE-2: a rank that has returned is waited for no more; what the others report later collates without it.
//! COLLATE-3: no rank is more than `REPORT_WINDOW` reports ahead of the collation, so memory is bounded.

use std::collections::VecDeque;

use carril_types::Rank;

/// How far ahead of the slowest a rank may run before its `report` waits.
pub const REPORT_WINDOW: u64 = 10_000;

/// The k-th reports of all ranks. `by_rank[r]` is `None` where rank r has returned before its k-th.
#[derive(Clone, Debug, PartialEq)]
pub struct Collated<R> {
    pub iteration: u64,
    pub by_rank: Vec<Option<R>>,
}

/// A rank's log that does not count its reports one by one: a bug of ours, never the user's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportError {
    pub rank: Rank,
    pub expected: u64,
    pub got: u64,
}

#[derive(Clone, Debug)]
struct RankReports<R> {
    pending: VecDeque<R>,
    delivered: u64,
    returned: bool,
}

#[derive(Clone, Debug)]
pub struct Collator<R> {
    ranks: Vec<RankReports<R>>,
    collated: u64,
    /// Ranks whose next report is still to come. At zero, one more can be collated.
    missing: usize,
    /// Ranks that have returned and whose reports are all collated.
    absent: usize,
}

impl<R> Collator<R> {
    /// Goes on after that many reports.
    pub fn new(world_size: u32, reports: u64) -> Self {
        let ranks = (0..world_size)
            .map(|_| RankReports { pending: VecDeque::new(), delivered: reports, returned: false })
            .collect::<Vec<_>>();
        Self { missing: ranks.len(), ranks, collated: reports, absent: 0 }
    }

    /// Takes a rank's report. One that was delivered before is passed over, so a repeated message does no harm.
    pub fn on_report(&mut self, rank: Rank, sequence: u64, report: R) -> Result<(), ReportError> {
        let of_rank = &mut self.ranks[rank.index()];
        if sequence < of_rank.delivered {
            return Ok(());
        }
        if sequence > of_rank.delivered || of_rank.returned {
            return Err(ReportError { rank, expected: of_rank.delivered, got: sequence });
        }
        of_rank.delivered += 1;
        of_rank.pending.push_back(report);
        if of_rank.pending.len() == 1 {
            self.missing -= 1;
        }
        Ok(())
    }

    pub fn on_returned(&mut self, rank: Rank) {
        let of_rank = &mut self.ranks[rank.index()];
        if !of_rank.returned {
            of_rank.returned = true;
            if of_rank.pending.is_empty() {
                self.missing -= 1;
                self.absent += 1;
            }
        }
    }

    /// The next report that is complete, if there is one.
    pub fn next_collated(&mut self) -> Option<Collated<R>> {
        if self.missing > 0 || self.absent == self.ranks.len() {
            return None;
        }
        let mut by_rank = Vec::with_capacity(self.ranks.len());
        for of_rank in &mut self.ranks {
            let report = of_rank.pending.pop_front();
            if report.is_some() && of_rank.pending.is_empty() {
                if of_rank.returned {
                    self.absent += 1;
                } else {
                    self.missing += 1;
                }
            }
            by_rank.push(report);
        }
        self.collated += 1;
        Some(Collated { iteration: self.collated, by_rank })
    }

    /// How many reports a rank may have made by now.
    pub fn granted(&self) -> u64 {
        self.collated + REPORT_WINDOW
    }

    pub fn collated(&self) -> u64 {
        self.collated
    }

    pub fn delivered(&self, rank: Rank) -> u64 {
        self.ranks[rank.index()].delivered
    }

    /// Ranks whose next report the others wait for.
    pub fn behind(&self) -> Vec<Rank> {
        (0..).zip(&self.ranks).filter(|(_, r)| !r.returned && r.pending.is_empty()).map(|(i, _)| Rank(i)).collect()
    }

    /// Whether this rank has made reports that others have not made yet. A run that has ended has no ranks any more.
    pub fn is_ahead(&self, rank: Rank) -> bool {
        self.ranks.get(rank.index()).is_some_and(|of_rank| of_rank.delivered > self.collated)
    }

    pub fn check_invariants(&self) {
        let missing = self.ranks.iter().filter(|r| r.pending.is_empty() && !r.returned).count();
        let absent = self.ranks.iter().filter(|r| r.pending.is_empty() && r.returned).count();
        assert_eq!((self.missing, self.absent), (missing, absent), "COLLATE-1: the counts follow the queues");
        for of_rank in &self.ranks {
            let ahead = of_rank.pending.len() as u64;
            assert!(of_rank.delivered <= self.collated + ahead, "COLLATE-1: nothing is delivered but not queued");
            assert!(of_rank.returned || ahead <= REPORT_WINDOW, "COLLATE-3: {ahead} reports ahead");
        }
    }
}
