//! The config that is expected to improve most: of random ones and neighbours of the best, then up the hill from there.

use carril_types::Metrics;

use super::model::{Expected, Model};
use crate::tune::random::Rng;
use crate::tune::random::elementary::{normal_below, normal_density};
use crate::tune::space::{Coordinate, Kind, Parameters, Point};

const RANDOM: usize = 128;
const NEIGHBOURS: usize = 8;
/// How many candidates are improved on, and by how wide steps, ever narrower.
const CLIMBERS: usize = 3;
const STEPS: [f64; 5] = [0.1, 0.05, 0.025, 0.01, 0.004];

struct Candidate {
    gain: f64,
    point: Point,
    config: Metrics,
}

pub(super) fn best_candidate(
    parameters: &Parameters,
    model: &Model,
    best: &[Point],
    rng: &mut Rng,
) -> Option<(Point, Metrics)> {
    let kinds = parameters.kinds();
    let best_loss = model.best_loss();
    let judged = |(point, config): (Point, Metrics)| {
        let gain = expected_improvement(model.expect(kinds, &point), best_loss);
        Candidate { gain, point, config }
    };
    let mut candidates: Vec<Candidate> = (0..RANDOM).map(|_| judged(parameters.draw(rng))).collect();
    for point in best {
        candidates.extend((0..NEIGHBOURS).map(|_| judged(neighbour(parameters, point, STEPS[0], rng))));
    }
    candidates.sort_by(|left, right| right.gain.total_cmp(&left.gain));
    candidates.truncate(CLIMBERS);
    for candidate in &mut candidates {
        for step in STEPS {
            for _ in 0..NEIGHBOURS {
                let other = judged(neighbour(parameters, &candidate.point, step, rng));
                if other.gain > candidate.gain {
                    *candidate = other;
                }
            }
        }
    }
    let best = candidates.into_iter().max_by(|left, right| left.gain.total_cmp(&right.gain))?;
    Some((best.point, best.config))
}

fn expected_improvement(expected: Expected, best_loss: f64) -> f64 {
    let gain = best_loss - expected.mean;
    let z = gain / expected.deviation;
    let improvement = gain * normal_below(z) + expected.deviation * normal_density(z);
    // Where nothing is to be gained, the least known is worth most.
    improvement.max(0.0) + 1e-9 * expected.deviation
}

/// About half of the numbers move a step, and now and then an option changes.
fn neighbour(parameters: &Parameters, point: &Point, step: f64, rng: &mut Rng) -> (Point, Metrics) {
    parameters.make(|index, kind| match (kind, point[index]) {
        (Kind::Number, Coordinate::Number(at)) if rng.f64() < 0.5 => {
            Coordinate::Number((at + step * rng.normal()).clamp(0.0, 1.0))
        }
        (Kind::Number, Coordinate::Number(at)) => Coordinate::Number(at),
        (Kind::Choice(_), Coordinate::Option(at)) if rng.f64() >= 0.1 => Coordinate::Option(at),
        _ => kind.draw(rng),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expected_improvement_is_that_of_its_formula() {
        let sure = expected_improvement(Expected { mean: -1.0, deviation: 1e-6 }, 0.0);
        assert!((sure - 1.0).abs() < 1e-6, "{sure}");
        let even = expected_improvement(Expected { mean: 0.0, deviation: 2.0 }, 0.0);
        assert!((even - 2.0 * 0.398_942_280_401_432_7).abs() < 1e-8, "{even}");
        let hopeless = expected_improvement(Expected { mean: 5.0, deviation: 1e-3 }, 0.0);
        assert!(hopeless < 1e-9, "{hopeless}");
    }
}
