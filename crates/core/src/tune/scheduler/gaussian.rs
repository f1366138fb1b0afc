//! A small Gaussian process that forgets: what was seen long ago says less about now (Bogunovic et al. 2016, as PB2 uses it).
//!
//! Only for a few hundred points: a Cholesky factor is made for each kernel that is tried. Where numbers go through a logarithm or
//! an exponential, they are ours (RANDOM-1).

use carril_types::exact;
use serde::{Deserialize, Serialize};

use crate::tune::linear::Cholesky;
use crate::tune::random::elementary::{exp, ln};

/// A point of the unit cube, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Input {
    #[serde(with = "exact")]
    pub(super) round: f64,
    pub(super) point: Vec<Coordinate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Coordinate(#[serde(with = "exact")] pub(super) f64);

/// Squared exponential in space, times (1 - `forgetting`)^(rounds / 2) in time; its variance is 1.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Kernel {
    length: f64,
    forgetting: f64,
    noise: f64,
}

const LENGTHS: [f64; 5] = [0.1, 0.2, 0.4, 0.8, 1.6];
const FORGETTINGS: [f64; 4] = [0.0, 0.05, 0.15, 0.4];
const NOISES: [f64; 3] = [1e-3, 1e-2, 1e-1];

impl Kernel {
    fn all() -> impl Iterator<Item = Kernel> {
        LENGTHS.into_iter().flat_map(|length| {
            FORGETTINGS
                .into_iter()
                .flat_map(move |forgetting| NOISES.into_iter().map(move |noise| Kernel { length, forgetting, noise }))
        })
    }

    fn between(&self, left: &Input, right: &Input) -> f64 {
        let pairs = left.point.iter().zip(&right.point);
        let square: f64 = pairs.map(|(Coordinate(left), Coordinate(right))| (left - right) * (left - right)).sum();
        let rounds = (left.round - right.round).abs();
        exp(-square / (2.0 * self.length * self.length) + ln(1.0 - self.forgetting) * rounds / 2.0)
    }

    /// The factor of the inputs' matrix; `None` if that is not positive definite.
    fn factor(&self, inputs: &[Input]) -> Option<Cholesky> {
        let row = |index: usize| (0..=index).map(move |other| (index, other));
        let entry = |(index, other): (usize, usize)| {
            self.between(&inputs[index], &inputs[other]) + if index == other { self.noise } else { 0.0 }
        };
        Cholesky::new(inputs.len(), (0..inputs.len()).flat_map(row).map(entry).collect())
    }

    fn towards(&self, inputs: &[Input], input: &Input) -> Vec<f64> {
        inputs.iter().map(|other| self.between(other, input)).collect()
    }
}

/// What is known after some inputs were seen, with the kernel under which they are likeliest.
pub(super) struct Gaussian {
    kernel: Kernel,
    inputs: Vec<Input>,
    weights: Vec<f64>,
    /// Of the inputs, and of those whose outcome is not known yet after them: they tell nothing but that somebody looks there.
    certain: Cholesky,
    looked_at: Vec<Input>,
}

impl Gaussian {
    /// `None` if there is nothing to learn from.
    pub(super) fn fit(inputs: &[Input], outcomes: &[f64], unknown: &[Input]) -> Option<Self> {
        let outcomes = standardised(outcomes)?;
        let fits = Kernel::all().filter_map(|kernel| {
            let factor = kernel.factor(inputs)?;
            let whitened = factor.forward(outcomes.clone());
            let square: f64 = whitened.iter().map(|entry| entry * entry).sum();
            let likelihood = -square / 2.0 - factor.half_log_determinant();
            Some((likelihood, kernel, factor.backward(whitened)))
        });
        let (_, kernel, weights) = fits.max_by(|(left, ..), (right, ..)| left.total_cmp(right))?;
        let looked_at = [inputs, unknown].concat();
        let certain = kernel.factor(&looked_at)?;
        Some(Self { kernel, inputs: inputs.to_vec(), weights, certain, looked_at })
    }

    pub(super) fn mean(&self, input: &Input) -> f64 {
        let covariances = self.kernel.towards(&self.inputs, input);
        covariances.iter().zip(&self.weights).map(|(covariance, weight)| covariance * weight).sum()
    }

    pub(super) fn deviation(&self, input: &Input) -> f64 {
        let explained = self.certain.forward(self.kernel.towards(&self.looked_at, input));
        let explained: f64 = explained.iter().map(|entry| entry * entry).sum();
        (1.0 - explained).max(0.0).sqrt()
    }
}

/// With mean 0 and variance 1.
fn standardised(outcomes: &[f64]) -> Option<Vec<f64>> {
    let count = outcomes.len() as f64;
    if outcomes.len() < 2 {
        return None;
    }
    let mean = outcomes.iter().sum::<f64>() / count;
    let variance = outcomes.iter().map(|outcome| (outcome - mean) * (outcome - mean)).sum::<f64>() / count;
    let spread = variance.sqrt();
    (spread > 0.0 && spread.is_finite()).then(|| outcomes.iter().map(|outcome| (outcome - mean) / spread).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(round: f64, at: f64) -> Input {
        Input { round, point: vec![Coordinate(at)] }
    }

    #[test]
    fn it_knows_what_it_saw_and_is_unsure_elsewhere() {
        let inputs: Vec<Input> = (0..9).map(|index| input(0.0, f64::from(index) / 16.0)).collect();
        let outcomes: Vec<f64> = inputs.iter().map(|input| -(input.point[0].0 - 0.25).powi(2)).collect();
        let gaussian = Gaussian::fit(&inputs, &outcomes, &[]).unwrap();
        let (top, side, far) = (input(0.0, 0.25), input(0.0, 0.0), input(0.0, 1.0));
        assert!(gaussian.mean(&top) > gaussian.mean(&side) + 1.0);
        assert!(gaussian.deviation(&far) > 3.0 * gaussian.deviation(&top));
    }

    #[test]
    fn what_somebody_looks_at_is_less_uncertain_and_the_mean_stays() {
        let inputs = [input(0.0, 0.1), input(0.0, 0.2), input(1.0, 0.4)];
        let outcomes = [0.0, 1.0, 0.5];
        let alone = Gaussian::fit(&inputs, &outcomes, &[]).unwrap();
        let beside = Gaussian::fit(&inputs, &outcomes, &[input(1.0, 0.9)]).unwrap();
        let there = input(1.0, 0.9);
        assert!(beside.deviation(&there) < alone.deviation(&there) / 2.0);
        assert_eq!(beside.mean(&there), alone.mean(&there));
    }

    #[test]
    fn from_outcomes_that_are_all_alike_nothing_is_learnt() {
        let inputs = [input(0.0, 0.1), input(0.0, 0.2)];
        assert!(Gaussian::fit(&inputs, &[1.0, 1.0], &[]).is_none());
        assert!(Gaussian::fit(&inputs[..1], &[1.0], &[]).is_none());
    }
}
