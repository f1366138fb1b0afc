//! How far a run is: what its function says, or how much of an epoch it has read; which ranks lag behind; what the group uses.
//!
//! STAND-1: it is told at most twice a second, however often the ranks speak.

use std::collections::BTreeMap;

use carril_proto::v1;
use carril_types::Rank;

use super::Run;
use crate::outside::Outside;

const EVERY: f64 = 0.5;
/// A rank lags when it is so many reports behind, or when the first one has waited so many seconds for it.
const REPORTS_BEHIND: u64 = 3;
const SECONDS_BEHIND: f64 = 2.0;
const NAMED: usize = 4;

#[derive(Default)]
pub(super) struct Standing {
    /// What each rank says is done, of how much.
    said: BTreeMap<u32, (f64, f64)>,
    /// What each rank has read of the data set that it read last.
    read: BTreeMap<u32, Read>,
    /// How many reports each rank has made in this attempt, and when the first rank made its last one.
    reports: BTreeMap<u32, u64>,
    led: f64,
    /// What each node's part of the group uses, by its lowest rank there.
    usage: BTreeMap<u32, v1::Usage>,
    told: f64,
}

#[derive(Clone)]
struct Read {
    data: String,
    epoch: u64,
    done: f64,
    total: f64,
}

impl Standing {
    /// For the next attempt.
    pub fn clear(&mut self) {
        *self = Self { told: self.told, ..Self::default() };
    }

    fn say(&mut self, rank: Rank, progressed: v1::WorkerProgressed) {
        let v1::WorkerProgressed { done, total, data, epoch, .. } = progressed;
        if !done.is_finite() || !total.is_finite() || total <= 0.0 || done < 0.0 {
            return;
        }
        let done = done.min(total);
        if data.is_empty() {
            self.said.insert(rank.0, (done, total));
        } else {
            self.read.insert(rank.0, Read { data, epoch, done, total });
        }
    }

    pub fn reported(&mut self, rank: Rank, now: f64) {
        let before = self.reports.values().copied().max().unwrap_or(0);
        let reports = self.reports.entry(rank.0).or_default();
        *reports += 1;
        if *reports > before {
            self.led = now;
        }
    }

    /// The slowest rank counts: the run is done when every one is.
    fn reached(&self) -> Option<(f64, f64)> {
        self.said.values().copied().min_by(|left, right| (left.0 / left.1).total_cmp(&(right.0 / right.1)))
    }

    /// By what was read, where the function says nothing; with the data set and its epoch.
    fn reached_by_rows(&self) -> Option<&Read> {
        let before = |left: &&Read, right: &&Read| {
            left.epoch.cmp(&right.epoch).then((left.done / left.total).total_cmp(&(right.done / right.total)))
        };
        self.read.values().min_by(before)
    }

    /// Ranks that lag, and how many reports the last of them is behind.
    fn behind(&self, world: u32, now: f64) -> (Vec<u32>, u64) {
        let first = self.reports.values().copied().max().unwrap_or(0);
        let lag = |rank: &u32| first - self.reports.get(rank).copied().unwrap_or(0);
        let waits = now - self.led >= SECONDS_BEHIND;
        let lags = |rank: &u32| lag(rank) >= REPORTS_BEHIND || (lag(rank) > 0 && waits);
        let mut ranks: Vec<u32> = (0..world).filter(lags).collect();
        // Where most have not reported, it is the others that are ahead.
        if first == 0 || ranks.len() * 2 > world as usize {
            return (Vec::new(), 0);
        }
        ranks.sort_by_key(|rank| std::cmp::Reverse(lag(rank)));
        let most = ranks.first().map_or(0, lag);
        ranks.truncate(NAMED);
        (ranks, most)
    }

    pub fn to_wire(&self, world: u32, now: f64) -> v1::Standing {
        let (data, epoch, reached) = match (self.reached(), self.reached_by_rows()) {
            (None, Some(read)) => (read.data.clone(), read.epoch, Some((read.done, read.total))),
            (said, _) => (String::new(), 0, said),
        };
        let (done, total) = reached.map_or((None, 0.0), |(done, total)| (Some(done), total));
        let (behind, reports_behind) = self.behind(world, now);
        let usage = self.usage.values().fold(None, |all: Option<v1::Usage>, one| {
            let all = all.unwrap_or_default();
            let gpus = all.gpus + one.gpus;
            let busy = all.gpu_percent * f64::from(all.gpus) + one.gpu_percent * f64::from(one.gpus);
            Some(v1::Usage {
                cpus: all.cpus + one.cpus,
                memory: all.memory + one.memory,
                gpus,
                gpu_percent: busy / f64::from(gpus.max(1)),
                gpu_memory: all.gpu_memory + one.gpu_memory,
            })
        });
        v1::Standing { done, total, behind, reports_behind, usage, data, epoch }
    }
}

impl Run {
    pub(super) fn on_progressed(&mut self, rank: Rank, progressed: v1::WorkerProgressed, outside: &mut dyn Outside) {
        self.standing.say(rank, progressed);
        self.tell_standing(outside);
    }

    pub(super) fn on_usage(&mut self, rank: Rank, usage: v1::Usage, outside: &mut dyn Outside) {
        self.standing.usage.insert(rank.0, usage);
        self.tell_standing(outside);
    }

    fn tell_standing(&mut self, outside: &mut dyn Outside) {
        let now = outside.now();
        // A search shows its trials in its own way.
        if self.trial.is_some() || (now - self.standing.told).abs() < EVERY {
            return;
        }
        self.standing.told = now;
        let standing = self.standing.to_wire(self.spec.num_workers, now);
        self.publish(standing, outside);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(done: f64, total: f64) -> v1::WorkerProgressed {
        v1::WorkerProgressed { done, total, ..Default::default() }
    }

    fn read(epoch: u64, done: f64) -> v1::WorkerProgressed {
        v1::WorkerProgressed { worker: None, done, total: 100.0, data: "train".to_owned(), epoch }
    }

    #[test]
    fn what_was_read_counts_where_the_function_says_nothing() {
        let mut standing = Standing::default();
        standing.say(Rank(0), read(2, 10.0));
        standing.say(Rank(1), read(1, 90.0));
        let wire = standing.to_wire(2, 0.0);
        assert_eq!((wire.done, wire.total, wire.data.as_str(), wire.epoch), (Some(90.0), 100.0, "train", 1));
        standing.say(Rank(0), said(1.0, 4.0));
        let wire = standing.to_wire(2, 0.0);
        assert_eq!((wire.done, wire.total, wire.data.as_str()), (Some(1.0), 4.0, ""));
    }

    #[test]
    fn the_slowest_rank_says_how_far_the_run_is() {
        let mut standing = Standing::default();
        assert_eq!(standing.to_wire(2, 0.0).done, None);
        standing.say(Rank(0), said(5.0, 10.0));
        standing.say(Rank(1), said(40.0, 100.0));
        for (done, total) in [(1.0, 0.0), (f64::NAN, 1.0), (1.0, f64::INFINITY), (-1.0, 3.0)] {
            standing.say(Rank(1), said(done, total));
        }
        let wire = standing.to_wire(2, 0.0);
        assert_eq!((wire.done, wire.total), (Some(40.0), 100.0));
        standing.clear();
        assert_eq!(standing.to_wire(2, 0.0).done, None);
    }

    #[test]
    fn ranks_that_lag_are_named() {
        let mut standing = Standing::default();
        for report in 0..4 {
            (0..3).for_each(|rank| standing.reported(Rank(rank), f64::from(report)));
        }
        standing.reported(Rank(3), 3.0);
        assert_eq!(standing.behind(4, 3.1), (vec![3], 3), "three reports behind");
        (0..2).for_each(|_| standing.reported(Rank(3), 3.2));
        assert_eq!(standing.behind(4, 3.3), (vec![], 0), "one report behind, and nobody has waited yet");
        assert_eq!(standing.behind(4, 6.0), (vec![3], 1), "the others wait");
        // Before the first report, and where most have not reported, nobody lags.
        assert_eq!(Standing::default().behind(4, 9.0), (vec![], 0));
        let mut ahead = Standing::default();
        ahead.reported(Rank(0), 0.0);
        assert_eq!(ahead.behind(4, 9.0), (vec![], 0));
    }
}
