//! The process itself: what it has seen, and what it expects elsewhere.

use super::scales::Scales;
use crate::tune::linear::{Cholesky, dot};
use crate::tune::random::elementary::{exp, ln};
use crate::tune::space::{Coordinate, Kind, Point};

/// What was seen: points as numbers, and losses with mean 0 and spread 1.
pub(super) struct Data {
    /// For each number of a row, the parameter that it belongs to.
    owners: Vec<usize>,
    rows: Vec<Vec<f64>>,
    points: Vec<Point>,
    losses: Vec<f64>,
}

/// So that two different options are as far apart as the two ends of an interval.
const OPTION: f64 = std::f64::consts::FRAC_1_SQRT_2;
/// The local search starts from so many of the best.
const STARTS: usize = 4;

impl Data {
    /// None as a loss is a failure.
    pub(super) fn new(kinds: &[Kind], seen: Vec<(&Point, Option<f64>)>) -> Self {
        let owners = kinds.iter().enumerate().flat_map(|(index, kind)| vec![index; width(*kind)]).collect();
        let rows = seen.iter().map(|(point, _)| row(kinds, point)).collect();
        let points = seen.iter().map(|(point, _)| (*point).clone()).collect();
        let losses = standardized(seen.into_iter().map(|(_, loss)| loss).collect());
        Self { owners, rows, points, losses }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.losses.is_empty()
    }

    pub(super) fn dimensions(&self) -> usize {
        self.owners.len()
    }

    /// The best first.
    pub(super) fn best_points(&self) -> Vec<Point> {
        let mut order: Vec<usize> = (0..self.losses.len()).collect();
        order.sort_by(|left, right| self.losses[*left].total_cmp(&self.losses[*right]));
        order.into_iter().take(STARTS).map(|index| self.points[index].clone()).collect()
    }
}

/// The numbers of a parameter: one, or one for each option.
fn width(kind: Kind) -> usize {
    match kind {
        Kind::Number => 1,
        Kind::Choice(options) => options,
    }
}

/// A point as numbers, each option of a choice as one.
pub(super) fn row(kinds: &[Kind], point: &Point) -> Vec<f64> {
    let mut row = Vec::new();
    for (kind, at) in kinds.iter().zip(point) {
        match (kind, at) {
            (Kind::Number, Coordinate::Number(at)) => row.push(*at),
            // Absent everywhere in the middle: two configs without it do not differ in it.
            (Kind::Number, _) => row.push(0.5),
            (Kind::Choice(options), at) => {
                row.extend((0..*options).map(|option| if *at == Coordinate::Option(option) { OPTION } else { 0.0 }));
            }
        }
    }
    row
}

/// A failure becomes the worst that was seen, and what is far worse than the middle is drawn in: how bad it is exactly
/// says nothing about where the best is.
fn standardized(losses: Vec<Option<f64>>) -> Vec<f64> {
    let mut sorted: Vec<f64> = losses.iter().flatten().copied().collect();
    sorted.sort_by(f64::total_cmp);
    let (Some(best), Some(worst)) = (sorted.first(), sorted.last()) else { return Vec::new() };
    let middle = sorted[sorted.len() / 2];
    let ceiling = middle + 3.0 * (middle - best);
    let ceiling = if ceiling > *best { ceiling.min(*worst) } else { *worst };
    // Where all that ended are alike, a failure is worse all the same.
    let failure = if ceiling > *best { ceiling } else { best + best.abs().max(1.0) };
    let losses: Vec<f64> = losses.iter().map(|loss| loss.map_or(failure, |loss| loss.min(ceiling))).collect();
    let count = losses.len() as f64;
    let mean = losses.iter().sum::<f64>() / count;
    let variance = losses.iter().map(|loss| (loss - mean) * (loss - mean)).sum::<f64>() / count;
    let spread = if variance.is_normal() { variance.sqrt() } else { 1.0 };
    losses.iter().map(|loss| (loss - mean) / spread).collect()
}

pub(super) struct Model {
    /// By which each number of a row is multiplied.
    factors: Vec<f64>,
    /// The rows of the data, multiplied.
    rows: Vec<Vec<f64>>,
    factor: Cholesky,
    /// The matrix's inverse times the losses.
    weights: Vec<f64>,
    variance: f64,
    best_loss: f64,
}

/// What the process expects at a point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

impl Model {
    /// None: the points are too close to each other for these scales.
    pub(super) fn new(data: &Data, scales: &Scales) -> Option<Self> {
        let factors: Vec<f64> = data.owners.iter().map(|owner| 1.0 / scales.length(*owner)).collect();
        let rows: Vec<Vec<f64>> = data.rows.iter().map(|row| multiplied(row, &factors)).collect();
        let mut matrix = Vec::with_capacity(rows.len() * (rows.len() + 1) / 2);
        for (index, row) in rows.iter().enumerate() {
            matrix.extend(rows[..index].iter().map(|other| matern(row, other)));
            matrix.push(1.0 + scales.noise());
        }
        let factor = Cholesky::new(rows.len(), matrix)?;
        let weights = factor.solve(data.losses.clone());
        // The variance that makes the losses likeliest, given the rest.
        let variance = (dot(&weights, &data.losses) / rows.len() as f64).max(1e-12);
        let best_loss = data.losses.iter().copied().fold(f64::INFINITY, f64::min);
        Some(Self { factors, rows, factor, weights, variance, best_loss })
    }

    /// The same, with trials that run taken as ended where they are expected to.
    pub(super) fn believing(self, mut data: Data, running: &[Vec<f64>], scales: &Scales) -> Option<Self> {
        for row in running {
            data.losses.push(self.mean(&self.against(row)));
            data.rows.push(row.clone());
        }
        // What was only believed says nothing about how much the metric varies.
        Some(Self { variance: self.variance, ..Self::new(&data, scales)? })
    }

    pub(super) fn log_likelihood(&self) -> f64 {
        -0.5 * self.factor.size() as f64 * ln(self.variance) - self.factor.half_log_determinant()
    }

    pub(super) fn best_loss(&self) -> f64 {
        self.best_loss
    }

    pub(super) fn expect(&self, kinds: &[Kind], point: &Point) -> Expected {
        let against = self.against(&row(kinds, point));
        let mean = self.mean(&against);
        let known = self.factor.forward(against);
        let variance = self.variance * (1.0 - dot(&known, &known)).max(1e-12);
        Expected { mean, deviation: variance.sqrt() }
    }

    fn against(&self, row: &[f64]) -> Vec<f64> {
        let row = multiplied(row, &self.factors);
        self.rows.iter().map(|other| matern(&row, other)).collect()
    }

    fn mean(&self, against: &[f64]) -> f64 {
        dot(against, &self.weights)
    }
}

fn multiplied(row: &[f64], factors: &[f64]) -> Vec<f64> {
    row.iter().zip(factors).map(|(value, factor)| value * factor).collect()
}

/// Matérn 5/2, of points that are measured in lengths.
fn matern(left: &[f64], right: &[f64]) -> f64 {
    let square: f64 = left.iter().zip(right).map(|(left, right)| (left - right) * (left - right)).sum();
    let distance = (5.0 * square).sqrt();
    (1.0 + distance + distance * distance / 3.0) * exp(-distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(unit: f64) -> Point {
        vec![Coordinate::Number(unit)]
    }

    #[test]
    fn it_is_sure_of_what_it_saw_and_unsure_far_away() {
        let kinds = [Kind::Number];
        let points = [at(0.1), at(0.2), at(0.3), at(0.4)];
        let seen = points.iter().zip([4.0, 3.0, 2.0, 1.0]).map(|(point, loss)| (point, Some(loss))).collect();
        let model = Model::new(&Data::new(&kinds, seen), &Scales::new(1)).expect("far enough apart");
        let (seen, between, far) =
            (model.expect(&kinds, &at(0.2)), model.expect(&kinds, &at(0.25)), model.expect(&kinds, &at(1.0)));
        let spread = 1.25_f64.sqrt();
        assert!((seen.mean - 0.5 / spread).abs() < 0.01, "{seen:?}");
        assert!(between.mean.abs() < 0.05 && between.deviation < 0.1, "{between:?}");
        assert!(far.deviation > 5.0 * between.deviation, "{far:?}");
    }

    #[test]
    fn the_kernel_has_the_values_of_its_formula() {
        assert_eq!(matern(&[0.3], &[0.3]), 1.0);
        let root = 5.0_f64.sqrt();
        assert!((matern(&[0.0], &[1.0]) - (1.0 + root + 5.0 / 3.0) * (-root).exp()).abs() < 1e-15);
    }

    #[test]
    fn failures_are_the_worst_and_extremes_are_drawn_in() {
        let losses = standardized(vec![Some(1.0), Some(2.0), None, Some(3.0), Some(1e9)]);
        assert!(losses[2] >= losses[4] && losses[2] > losses[3], "{losses:?}");
        assert!(losses[1] - losses[0] > 0.1, "the good ones stay apart: {losses:?}");
        assert!(standardized(vec![None, None]).is_empty());
        let alike = standardized(vec![Some(2.0), None, Some(2.0)]);
        assert!(alike[1] > alike[0] && alike[0] == alike[2], "{alike:?}");
        assert_eq!(standardized(vec![Some(2.0), Some(2.0)]), [0.0, 0.0]);
    }
}
