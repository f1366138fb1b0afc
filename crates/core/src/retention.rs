//! Which checkpoints stay: the best few by their score, or the newest few where nothing scores them.
//!
//! RETAIN-1: the newest checkpoint is never deleted.
//! RETAIN-2: a score that is missing or not a number is the worst there is, whichever way the scores are ordered.
//! RETAIN-3: nothing is deleted before the checkpoint that displaces it has been committed.
//! RETAIN-4: what somebody still needs is not deleted, whatever it is worth.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use carril_types::ScoreOrder;

/// What the user asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionRule {
    pub num_to_keep: Option<usize>,
    /// `None` orders by age.
    pub score: Option<ScoreOrder>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    pub iteration: u64,
    pub score: Option<f64>,
}

#[derive(Clone, Debug)]
pub struct Retention {
    rule: RetentionRule,
    /// The worst first.
    kept: Vec<Kept>,
    needed: BTreeSet<u64>,
}

impl Retention {
    /// `kept` are the checkpoints that an earlier attempt has left.
    pub fn new(rule: RetentionRule, kept: Vec<Kept>) -> Self {
        let mut retention = Self { rule, kept, needed: BTreeSet::new() };
        retention.sort();
        retention
    }

    /// By the same rule, of what is there now.
    pub fn with(&self, kept: Vec<Kept>) -> Self {
        let needed = self.needed.iter().copied().filter(|needed| kept.iter().any(|kept| kept.iteration == *needed));
        let needed = needed.collect();
        Self { needed, ..Self::new(self.rule, kept) }
    }

    /// This one stays until it is let go.
    pub fn need(&mut self, iteration: u64) {
        self.needed.insert(iteration);
    }

    /// This one, which is needed, is worth `score` now. Returns those that go, it among them or not; if it stays, it is needed
    /// until it is let go.
    pub fn judge(&mut self, iteration: u64, score: Option<f64>) -> Vec<u64> {
        if let Some(kept) = self.kept.iter_mut().find(|kept| kept.iteration == iteration) {
            kept.score = score;
        }
        self.sort();
        let needed = self.needed.remove(&iteration);
        let gone = self.prune();
        if needed && !gone.contains(&iteration) {
            self.need(iteration);
        }
        gone
    }

    /// Nobody needs this one any more. Should it be due by now, it goes with the next one.
    pub fn let_go(&mut self, iteration: u64) {
        self.needed.remove(&iteration);
    }

    /// A checkpoint was committed, and those that it displaced when that began are gone. Should others be due by now, they
    /// go with the next one.
    pub fn replace(&mut self, gone: &[u64], new: Kept) {
        self.forget(gone);
        self.insert(new);
    }

    /// The checkpoints that have to go once this one is there.
    pub fn displaced_by(&self, new: Kept) -> Vec<u64> {
        self.clone().add(new)
    }

    fn add(&mut self, new: Kept) -> Vec<u64> {
        self.insert(new);
        self.prune()
    }

    fn insert(&mut self, new: Kept) {
        self.forget(&[new.iteration]);
        self.kept.push(new);
        self.sort();
    }

    fn forget(&mut self, gone: &[u64]) {
        self.kept.retain(|kept| !gone.contains(&kept.iteration));
    }

    fn prune(&mut self) -> Vec<u64> {
        let Some(keep) = self.rule.num_to_keep else { return Vec::new() };
        let newest = self.kept.iter().map(|kept| kept.iteration).max();
        let surplus = self.kept.len().saturating_sub(keep);
        let stays = |kept: &Kept| Some(kept.iteration) == newest || self.needed.contains(&kept.iteration);
        let worst = self.kept.iter().take(surplus).filter(|kept| !stays(kept));
        let gone: Vec<u64> = worst.map(|kept| kept.iteration).collect();
        self.forget(&gone);
        gone
    }

    /// Whether a checkpoint would be gone as soon as those that follow it are there.
    pub fn is_superseded(&self, one: Kept, followed_by: &[Kept]) -> bool {
        let mut then = self.clone();
        let mut gone = then.add(one);
        for next in followed_by {
            gone.extend(then.add(*next));
        }
        gone.contains(&one.iteration)
    }

    /// The best last.
    pub fn in_order(&self) -> impl Iterator<Item = u64> + '_ {
        self.kept.iter().map(|kept| kept.iteration)
    }

    fn sort(&mut self) {
        let rule = self.rule;
        self.kept.sort_by(|left, right| {
            let by_score = rule.score.map_or(Ordering::Equal, |order| compare(left.score, right.score, order));
            by_score.then(left.iteration.cmp(&right.iteration))
        });
    }
}

fn compare(left: Option<f64>, right: Option<f64>, order: ScoreOrder) -> Ordering {
    let number = |score: Option<f64>| score.filter(|score| !score.is_nan());
    match (number(left), number(right)) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(left), Some(right)) => match order {
            ScoreOrder::Max => left.total_cmp(&right),
            ScoreOrder::Min => right.total_cmp(&left),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(rule: RetentionRule, scores: &[Option<f64>]) -> Vec<u64> {
        let mut retention = Retention::new(rule, Vec::new());
        for (iteration, score) in (1..).zip(scores) {
            let announced = retention.displaced_by(Kept { iteration, score: *score });
            assert_eq!(announced, retention.add(Kept { iteration, score: *score }));
        }
        retention.in_order().collect()
    }

    #[test]
    fn the_newest_few_stay_where_nothing_scores() {
        let rule = RetentionRule { num_to_keep: Some(2), score: None };
        assert_eq!(after(rule, &[None; 5]), [4, 5]);
        assert_eq!(after(RetentionRule::default(), &[None; 3]), [1, 2, 3]);
    }

    #[test]
    fn the_best_stay_in_both_orders_and_the_newest_beside_them() {
        let scores = [Some(0.5), Some(0.9), Some(0.7), Some(0.1)];
        let rule = |order| RetentionRule { num_to_keep: Some(2), score: Some(order) };
        assert_eq!(after(rule(ScoreOrder::Max), &scores), [4, 3, 2]);
        assert_eq!(after(rule(ScoreOrder::Min), &scores), [1, 4]);
    }

    #[test]
    fn no_score_and_nan_are_worst_in_both_orders() {
        let scores = [Some(f64::NAN), Some(3.0), None, Some(f64::INFINITY), Some(1.0)];
        for order in [ScoreOrder::Max, ScoreOrder::Min] {
            let kept = after(RetentionRule { num_to_keep: Some(3), score: Some(order) }, &scores);
            assert!(!kept.contains(&1) && !kept.contains(&3), "{order:?} keeps {kept:?}");
        }
    }

    #[test]
    fn what_is_needed_stays_until_it_is_let_go_and_is_judged_by_its_new_score() {
        let kept = |iteration, score| Kept { iteration, score: Some(score) };
        let rule = RetentionRule { num_to_keep: Some(2), score: Some(ScoreOrder::Max) };
        let mut retention = Retention::new(rule, Vec::new());
        retention.need(1);
        assert!(retention.add(kept(1, 0.0)).is_empty());
        assert!(retention.add(kept(2, 0.5)).is_empty());
        assert!(retention.add(kept(3, 0.6)).is_empty(), "the worst of three is needed");
        assert_eq!(retention.judge(1, Some(0.9)), [2], "it turned out to be the best");
        assert!(retention.displaced_by(kept(9, 1.0)) == [3], "and is still needed");
        retention.let_go(1);
        retention.need(4);
        assert_eq!(retention.add(kept(4, 0.0)), [] as [u64; 0]);
        assert_eq!(retention.with(vec![kept(3, 0.6)]).needed.len(), 0, "what is not there is not needed");
    }

    #[test]
    fn only_what_retention_deletes_at_once_is_superseded() {
        let kept = |iteration| Kept { iteration, score: None };
        let one = Retention::new(RetentionRule { num_to_keep: Some(1), score: None }, vec![kept(1)]);
        assert!(one.is_superseded(kept(2), &[kept(3)]));
        let two = Retention::new(RetentionRule { num_to_keep: Some(2), score: None }, vec![kept(1)]);
        assert!(!two.is_superseded(kept(2), &[kept(3)]));
        assert!(two.is_superseded(kept(2), &[kept(3), kept(4)]));
    }
}
