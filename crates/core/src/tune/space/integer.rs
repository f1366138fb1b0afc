//! Whole numbers: the multiples of a step, each as likely as the others or less likely the larger it is.

use serde::{Deserialize, Serialize};

use super::error::SpaceError;
use crate::tune::random::Rng;
use crate::tune::random::elementary::{exp, ln};

/// The multiples of `step` from `first` times to `last` times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Integer {
    first: i64,
    last: i64,
    step: i64,
    log: bool,
}

impl Integer {
    /// The upper bound belongs to the domain unless `q` is 1.
    pub(super) fn new(domain: &'static str, bounds: (i64, i64), q: i64, log: bool) -> Result<Self, SpaceError> {
        let (low, high) = bounds;
        let not_positive = |name, value| SpaceError::NotPositive { domain, name, value: value as f64 };
        if low >= high {
            return Err(SpaceError::Empty { domain, low: low as f64, high: high as f64 });
        }
        if q < 1 {
            return Err(not_positive("q", q));
        }
        if log && low < 1 {
            return Err(not_positive("lower", low));
        }
        let first = low.div_euclid(q) + i64::from(low.rem_euclid(q) != 0);
        let last = if q == 1 { high - 1 } else { high.div_euclid(q) };
        if first > last {
            return Err(SpaceError::NoMultiple { domain, q: q as f64, low: low as f64, high: high as f64 });
        }
        Ok(Self { first, last, step: q, log })
    }

    pub(crate) fn sample(&self, rng: &mut Rng) -> i64 {
        if self.log {
            return self.at(rng.f64());
        }
        // The count of all 64-bit numbers but one fits: the upper bound is exclusive.
        let count = self.last.wrapping_sub(self.first) as u64 + 1;
        self.first.wrapping_add(rng.below(count) as i64) * self.step
    }

    pub(crate) fn contains(&self, value: i64) -> bool {
        value % self.step == 0 && (self.first..=self.last).contains(&(value / self.step))
    }

    /// The value that the share `unit` of all samples lies below.
    pub(crate) fn at(&self, unit: f64) -> i64 {
        let (first, end) = self.stretch();
        let index = if self.log { exp(ln(first) + unit * (ln(end) - ln(first))) } else { first + unit * (end - first) };
        (index.floor() as i64).clamp(self.first, self.last) * self.step
    }

    /// The middle of a value's share of the unit interval; what is out of bounds lies at its end.
    pub(crate) fn position(&self, value: f64) -> f64 {
        let (first, end) = self.stretch();
        let middle = ((value / self.step as f64).round() + 0.5).clamp(first, end);
        let unit =
            if self.log { (ln(middle) - ln(first)) / (ln(end) - ln(first)) } else { (middle - first) / (end - first) };
        if unit.is_nan() { 0.5 } else { unit.clamp(0.0, 1.0) }
    }

    fn stretch(&self) -> (f64, f64) {
        (self.first as f64, self.last as f64 + 1.0)
    }
}
