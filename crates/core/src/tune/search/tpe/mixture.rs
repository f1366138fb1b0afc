//! A density over configs: one hill about each config that was seen, and one flat part, the user's own distribution.
//!
//! A hill is a product over the parameters: a normal distribution cut off at the ends of the unit interval, or for options the
//! one that was seen with most of the weight. A parameter that is absent in the config of the hill is flat there (SPACE-4).

use crate::tune::random::Rng;
use crate::tune::random::elementary::{exp, ln, normal_below};
use crate::tune::space::{Coordinate, Kind, Point};

pub(super) struct Mixture<'a> {
    kinds: &'a [Kind],
    hills: Vec<Hill<'a>>,
}

struct Hill<'a> {
    about: &'a Point,
    width: f64,
    /// For each parameter, the logarithm of the density at the top.
    tops: Vec<f64>,
}

/// The width of a hill that stands alone, as a part of the interval.
const WIDTH: f64 = 0.07;
const LEAST_WIDTH: f64 = 0.01;

impl<'a> Mixture<'a> {
    pub(super) fn new(kinds: &'a [Kind], points: Vec<&'a Point>) -> Self {
        let count = points.len() as f64;
        let hills = points.into_iter().map(|about| Hill::new(about, count)).collect();
        Self { kinds, hills }
    }

    /// One of the hills, or the flat part.
    pub(super) fn pick(&self, rng: &mut Rng) -> Option<usize> {
        Some(rng.index(self.hills.len() + 1)).filter(|index| *index < self.hills.len())
    }

    /// Draws one parameter from a hill, or from the flat part.
    pub(super) fn draw(&self, from: Option<usize>, index: usize, kind: Kind, rng: &mut Rng) -> Coordinate {
        let Some(hill) = from.map(|from| &self.hills[from]) else { return kind.draw(rng) };
        match (hill.about[index], kind) {
            (Coordinate::Number(middle), Kind::Number) => Coordinate::Number(cut_normal(middle, hill.width, rng)),
            (Coordinate::Option(seen), Kind::Choice(options)) => {
                let others = self.flat_share(options);
                if rng.f64() < others { kind.draw(rng) } else { Coordinate::Option(seen) }
            }
            _ => kind.draw(rng),
        }
    }

    pub(super) fn log_density(&self, point: &Point) -> f64 {
        let flat: f64 = self.kinds.iter().zip(point).map(|(kind, at)| flat_log_density(*kind, *at)).sum();
        let mut parts: Vec<f64> = self.hills.iter().map(|hill| self.log_density_of(hill, point)).collect();
        parts.push(flat);
        let largest = parts.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = parts.iter().map(|part| exp(part - largest)).sum();
        largest + ln(sum / parts.len() as f64)
    }

    fn log_density_of(&self, hill: &Hill<'_>, point: &Point) -> f64 {
        let parameters = self.kinds.iter().zip(point).enumerate();
        let logs = parameters.map(|(index, (kind, at))| match (*kind, hill.about[index], *at) {
            (Kind::Number, Coordinate::Number(middle), Coordinate::Number(at)) => {
                let distance = (at - middle) / hill.width;
                hill.tops[index] - 0.5 * distance * distance
            }
            (Kind::Choice(options), Coordinate::Option(seen), Coordinate::Option(at)) => {
                let flat = self.flat_share(options);
                let seen = if seen == at { 1.0 - flat } else { 0.0 };
                ln(seen + flat / options as f64)
            }
            (kind, _, at) => flat_log_density(kind, at),
        });
        logs.sum()
    }

    /// The part of a hill's weight that all options share: as if each option had been seen once more.
    fn flat_share(&self, options: usize) -> f64 {
        options as f64 / (options + self.hills.len()) as f64
    }
}

impl<'a> Hill<'a> {
    fn new(about: &'a Point, count: f64) -> Self {
        // Scott's rule, over the parameters that this config has.
        let present = about.iter().filter(|at| !matches!(at, Coordinate::Absent)).count();
        let width = (WIDTH * exp(-ln(count) / (present as f64 + 4.0))).max(LEAST_WIDTH);
        let tops = about.iter().map(|at| match at {
            Coordinate::Number(middle) => {
                let inside = normal_below((1.0 - middle) / width) - normal_below(-middle / width);
                -ln(inside * width * (2.0 * std::f64::consts::PI).sqrt())
            }
            _ => 0.0,
        });
        Self { about, width, tops: tops.collect() }
    }
}

fn flat_log_density(kind: Kind, at: Coordinate) -> f64 {
    match (kind, at) {
        (Kind::Choice(options), Coordinate::Option(_)) => -ln(options as f64),
        _ => 0.0,
    }
}

/// At worst, at a corner, every second draw falls outside.
fn cut_normal(middle: f64, width: f64, rng: &mut Rng) -> f64 {
    for _ in 0..100 {
        let drawn = middle + width * rng.normal();
        if (0.0..=1.0).contains(&drawn) {
            return drawn;
        }
    }
    middle
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hill_and_the_flat_part_weigh_one_together() {
        let kinds = [Kind::Number];
        let seen = [vec![Coordinate::Number(0.1)], vec![Coordinate::Number(0.95)], vec![Coordinate::Absent]];
        let mixture = Mixture::new(&kinds, seen.iter().collect());
        let steps = 2_000;
        let density = |step| exp(mixture.log_density(&vec![Coordinate::Number((f64::from(step) + 0.5) / 2_000.0)]));
        let weight: f64 = (0..steps).map(density).sum::<f64>() / f64::from(steps);
        assert!((weight - 1.0).abs() < 1e-4, "{weight}");
    }

    #[test]
    fn the_share_of_an_option_is_that_of_one_more_of_each() {
        let kinds = [Kind::Choice(3)];
        let seen = vec![vec![Coordinate::Option(1)]; 3];
        let mixture = Mixture::new(&kinds, seen.iter().collect());
        let share = |option| exp(mixture.log_density(&vec![Coordinate::Option(option)]));
        // Each hill gives 1/2 + 1/6 to what it saw; three hills and the flat third.
        assert!((share(1) - (3.0 * (2.0 / 3.0) + 1.0 / 3.0) / 4.0).abs() < 1e-12);
        assert!((share(0) + share(1) + share(2) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn draws_follow_the_density() {
        let kinds = [Kind::Number];
        let seen = [vec![Coordinate::Number(0.3)]];
        let mixture = Mixture::new(&kinds, seen.iter().collect());
        let mut rng = Rng::new(5);
        let near = (0..20_000).filter(|_| {
            let hill = mixture.pick(&mut rng);
            matches!(mixture.draw(hill, 0, Kind::Number, &mut rng), Coordinate::Number(at) if (0.2..0.4).contains(&at))
        });
        let share = near.count() as f64 / 20_000.0;
        let cells =
            (0..100).map(|cell| exp(mixture.log_density(&vec![Coordinate::Number(0.2005 + 0.002 * f64::from(cell))])));
        let expected: f64 = cells.sum::<f64>() * 0.002;
        assert!((share - expected).abs() < 0.015, "{share} instead of {expected}");
    }
}
