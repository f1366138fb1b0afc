//! How far each parameter reaches, and how noisy the metric is: on a grid, by the likelihood of what was seen.

use serde::{Deserialize, Serialize};

use super::model::{Data, Model};
use crate::tune::random::elementary::exp;

/// Steps from the middle of the grid; whole numbers, so that saved state is exact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Scales {
    /// One for each parameter.
    lengths: Vec<i32>,
    noise: i32,
}

const LENGTH_STEP: f64 = 0.25;
const LONGEST: i32 = 12;
const MOST_NOISE: i32 = 8;
const LEAST_NOISE: i32 = -5;

impl Scales {
    pub(super) fn new(parameters: usize) -> Self {
        Self { lengths: vec![0; parameters], noise: 0 }
    }

    /// The longer the more parameters there are: else every point would be far from every other.
    pub(super) fn length(&self, parameter: usize) -> f64 {
        0.4 * (self.lengths.len() as f64).sqrt() * exp(LENGTH_STEP * f64::from(self.lengths[parameter]))
    }

    /// The variance of the noise, as a part of that of the metric.
    pub(super) fn noise(&self) -> f64 {
        1e-4 * exp(f64::from(self.noise))
    }

    /// Scales of higher likelihood: each in turn is moved up or down, by ever smaller steps.
    pub(super) fn fitted(&self, data: &Data, first: bool) -> Self {
        let mut best = self.clone();
        let mut likelihood = best.likelihood(data);
        for step in if first { [6, 3, 1].as_slice() } else { [2, 1].as_slice() } {
            for index in 0..=best.lengths.len() {
                for step in [*step, -*step] {
                    let other = best.moved(index, step);
                    let better = other.likelihood(data);
                    if better > likelihood {
                        (best, likelihood) = (other, better);
                        break;
                    }
                }
            }
        }
        best
    }

    fn moved(&self, index: usize, step: i32) -> Self {
        let mut moved = self.clone();
        match moved.lengths.get_mut(index) {
            Some(length) => *length = (*length + step).clamp(-LONGEST, LONGEST),
            None => moved.noise = (moved.noise + step).clamp(LEAST_NOISE, MOST_NOISE),
        }
        moved
    }

    /// Of the data, times how plausible such scales are before anything was seen, as a logarithm.
    fn likelihood(&self, data: &Data) -> f64 {
        let Some(model) = Model::new(data, self) else { return f64::NEG_INFINITY };
        let square = |steps: i32, step: f64| (f64::from(steps) * step) * (f64::from(steps) * step);
        let lengths: f64 = self.lengths.iter().map(|steps| square(*steps, LENGTH_STEP)).sum();
        model.log_likelihood() - 0.5 * lengths - 0.5 * square(self.noise, 0.3)
    }
}
