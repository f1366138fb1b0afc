//! What a trial is worth: its metric, turned so that more is better, and which reports say it and when.

use std::cmp::Ordering;

use carril_types::{Metrics, exact, significant};
use serde::{Deserialize, Serialize};

use crate::tune::Mode;

/// More is better, and not a number is the worst (SCHED-2).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Score(#[serde(with = "exact")] f64);

impl Score {
    pub fn new(metric: f64, mode: Mode) -> Self {
        let turned = match mode {
            Mode::Max => metric,
            Mode::Min => -metric,
        };
        // Minus zero would be below zero.
        Self(turned + 0.0)
    }

    /// The metric again.
    pub fn metric(self, mode: Mode) -> f64 {
        Self::new(self.0, mode).0
    }

    pub(super) fn value(self) -> f64 {
        self.0
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.0.is_nan(), other.0.is_nan()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => self.0.total_cmp(&other.0),
        }
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Score {}

/// The quantile of scores in ascending order, between neighbours in a straight line, as numpy's `percentile` has it. Between
/// one that is not finite and the next one, it is the worse of the two.
pub(super) fn quantile(ascending: &[Score], fraction: f64) -> Option<Score> {
    let last = ascending.len().checked_sub(1)?;
    let position = last as f64 * fraction.clamp(0.0, 1.0);
    let below = position.floor();
    let (low, high) = (ascending[below as usize], ascending[(position.ceil() as usize).min(last)]);
    let share = position - below;
    if low == high || share == 0.0 || !low.0.is_finite() || !high.0.is_finite() {
        return Some(low);
    }
    // Held between the two, so that no rounding puts it above the best.
    Some(Score((low.0 + (high.0 - low.0) * share).clamp(low.0, high.0)))
}

/// Which reported values a scheduler looks at, by flattened name (`a/b`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    pub time_attr: String,
    pub metric: String,
    pub mode: Mode,
}

impl Target {
    pub fn new(time_attr: &str, metric: &str, mode: Mode) -> Self {
        Self { time_attr: time_attr.to_owned(), metric: metric.to_owned(), mode }
    }

    pub(super) fn names(&self) -> Vec<String> {
        vec![self.time_attr.clone(), self.metric.clone()]
    }

    /// Nothing where either of them was not reported (SCHED-1).
    pub fn read(&self, result: &Metrics) -> Option<(f64, Score)> {
        let time = number(result, &self.time_attr).filter(|time| !time.is_nan())?;
        Some((time, Score::new(number(result, &self.metric)?, self.mode)))
    }

    /// Why a report decides nothing.
    pub(super) fn missing(&self) -> String {
        format!("no `{}` or no `{}` in the report", self.metric, self.time_attr)
    }

    /// The metric that this score stands for, in the user's sign, with as many digits as people read.
    pub(super) fn show(&self, score: Score) -> String {
        significant(score.metric(self.mode))
    }
}

/// The number of this flattened name.
pub(super) fn number(metrics: &Metrics, name: &str) -> Option<f64> {
    metrics.find(name)?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(values: &[f64]) -> Vec<Score> {
        let mut scores: Vec<Score> = values.iter().map(|value| Score::new(*value, Mode::Max)).collect();
        scores.sort();
        scores
    }

    #[test]
    fn a_quantile_lies_between_its_neighbours() {
        let of = |values: &[f64], fraction| quantile(&scores(values), fraction).map(Score::value);
        assert_eq!(of(&[], 0.5), None);
        assert_eq!(of(&[7.0], 0.75), Some(7.0));
        assert_eq!(of(&[1.0, 2.0, 3.0, 4.0], 0.75), Some(3.25));
        assert_eq!(of(&[4.0, 1.0], 0.5), Some(2.5));
        assert_eq!(of(&[1.0, 2.0], 1.0), Some(2.0));
    }

    #[test]
    fn a_quantile_beside_what_is_no_number_is_the_worse_neighbour() {
        assert!(quantile(&scores(&[f64::NAN, 1.0]), 0.5).unwrap().value().is_nan());
        assert_eq!(quantile(&scores(&[f64::NAN, 1.0]), 1.0).unwrap().value(), 1.0);
        assert_eq!(quantile(&scores(&[1.0, f64::INFINITY]), 0.5).unwrap().value(), 1.0);
    }

    #[test]
    fn what_is_no_number_is_the_worst_in_both_modes() {
        for mode in [Mode::Min, Mode::Max] {
            let nan = Score::new(f64::NAN, mode);
            assert!(nan < Score::new(f64::INFINITY, mode) && nan < Score::new(f64::NEG_INFINITY, mode), "SCHED-2");
        }
        assert_eq!(Score::new(0.0, Mode::Min), Score::new(-0.0, Mode::Max));
        assert_eq!(Score::new(3.0, Mode::Min).metric(Mode::Min), 3.0);
    }
}
