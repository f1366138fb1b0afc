//! PB2 (Parker-Holder et al. 2020): the values between bounds that promise most, by what every trial gained with its own so far.
//!
//! What is learnt is the gain of a metric over one interval, given the parameters and the time. A config is chosen by its upper
//! confidence bound; where others are being tried, less is to be found out, so that those replaced together look at different places.
//!
//! PB2-1: a new value lies between its bounds, and a whole number stays whole.
//! PB2-2: until two different gains are known, values are drawn at random.
//! PB2-3: only the newest `MAX_SEEN` gains are remembered.

use carril_types::{Metrics, Value, exact};
use serde::{Deserialize, Serialize};

use super::explore::Explored;
use super::paths::{get_at, set_at};
use crate::tune::random::Rng;
use crate::tune::random::elementary::ln;
use crate::tune::scheduler::gaussian::{Coordinate, Gaussian, Input};
use crate::tune::scheduler::{NewConfig, Path, SchedulerError};

/// Which value of the config is looked for, and where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    pub path: Path,
    #[serde(with = "exact")]
    pub low: f64,
    #[serde(with = "exact")]
    pub high: f64,
}

const MAX_SEEN: usize = 100;
const RANDOM_CANDIDATES: usize = 200;
/// How far candidates beside the best one so far are from it, and how many there are each time.
const REFINEMENTS: [f64; 4] = [0.2, 0.1, 0.05, 0.02];
const PER_REFINEMENT: usize = 25;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Bandit {
    bounds: Vec<Bound>,
    seen: Vec<Seen>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Seen {
    input: Input,
    #[serde(with = "exact")]
    gain: f64,
}

impl Bandit {
    pub(super) fn new(bounds: Vec<Bound>) -> Result<Self, SchedulerError> {
        if bounds.is_empty() {
            return Err(SchedulerError::NothingToChange { name: "hyperparam_bounds" });
        }
        let wrong = |bound: &&Bound| !(bound.low < bound.high && (bound.high - bound.low).is_finite());
        match bounds.iter().find(wrong) {
            Some(bound) => {
                let why = "needs two finite bounds, the lower one first";
                Err(SchedulerError::Parameter { path: bound.path.join("/"), why })
            }
            None => Ok(Self { bounds, seen: Vec::new() }),
        }
    }

    /// What the config lacks is drawn.
    pub(super) fn fill(&self, config: &Metrics, rng: &mut Rng) -> NewConfig {
        let mut filled = config.clone();
        for bound in &self.bounds {
            if get_at(config, &bound.path).is_none() {
                set_at(&mut filled, &bound.path, bound.value(rng.f64(), None));
            }
        }
        NewConfig { config: filled, ask: Vec::new() }
    }

    /// Where a config is. Nothing if it lacks a number that is looked for.
    pub(super) fn input(&self, round: f64, config: &Metrics) -> Option<Input> {
        let coordinate = |bound: &Bound| bound.coordinate(get_at(config, &bound.path)?.as_f64()?);
        Some(Input { round, point: self.bounds.iter().map(coordinate).collect::<Option<_>>()? })
    }

    /// With this config, a trial gained so much in the interval that began with this round.
    pub(super) fn learn(&mut self, round: f64, config: &Metrics, gain: f64) {
        let Some(input) = self.input(round, config).filter(|_| gain.is_finite()) else { return };
        if self.seen.len() == MAX_SEEN {
            self.seen.remove(0);
        }
        self.seen.push(Seen { input, gain });
    }

    /// `running` are the configs whose gain is not known yet.
    pub(super) fn explore(&self, round: f64, source: &Metrics, running: &[Input], rng: &mut Rng) -> Explored {
        let inputs: Vec<Input> = self.seen.iter().map(|seen| seen.input.clone()).collect();
        let gains: Vec<f64> = self.seen.iter().map(|seen| seen.gain).collect();
        let gaussian = Gaussian::fit(&inputs, &gains, running);
        let point = match &gaussian {
            Some(gaussian) => self.most_promising(gaussian, round, rng),
            None => self.random(round, rng),
        };
        let mut config = source.clone();
        let mut changes = Vec::new();
        for (bound, Coordinate(unit)) in self.bounds.iter().zip(point.point) {
            let value = bound.value(unit, get_at(source, &bound.path));
            changes.push(format!("`{}` {}", bound.path.join("/"), value.as_f64().unwrap_or(f64::NAN)));
            set_at(&mut config, &bound.path, value);
        }
        let how = if gaussian.is_some() { "by the bandit" } else { "at random" };
        let changes = format!("{} {how}", changes.join(", "));
        Explored { with: NewConfig { config, ask: Vec::new() }, changes }
    }

    fn random(&self, round: f64, rng: &mut Rng) -> Input {
        Input { round, point: self.bounds.iter().map(|_| Coordinate(rng.f64())).collect() }
    }

    fn most_promising(&self, gaussian: &Gaussian, round: f64, rng: &mut Rng) -> Input {
        let width = confidence(round);
        let promise = |input: &Input| gaussian.mean(input) + width * gaussian.deviation(input);
        let mut best = self.random(round, rng);
        let mut most = promise(&best);
        let mut consider = |candidate: Input, best: &mut Input| {
            let promised = promise(&candidate);
            if promised > most {
                (*best, most) = (candidate, promised);
            }
        };
        for _ in 1..RANDOM_CANDIDATES {
            consider(self.random(round, rng), &mut best);
        }
        for spread in REFINEMENTS {
            for _ in 0..PER_REFINEMENT {
                let beside = beside(&best, spread, rng);
                consider(beside, &mut best);
            }
        }
        best
    }
}

/// √β of the paper, with the constants of its experiments.
fn confidence(round: f64) -> f64 {
    (0.2 + ln(0.4 * round.max(1.0)).max(0.0)).sqrt()
}

fn beside(input: &Input, spread: f64, rng: &mut Rng) -> Input {
    let moved = |Coordinate(at): &Coordinate| Coordinate((at + spread * rng.normal()).clamp(0.0, 1.0));
    Input { round: input.round, point: input.point.iter().map(moved).collect() }
}

impl Bound {
    fn coordinate(&self, number: f64) -> Option<Coordinate> {
        let unit = (number - self.low) / (self.high - self.low);
        unit.is_finite().then(|| Coordinate(unit.clamp(0.0, 1.0)))
    }

    /// The number at this part of the way between the bounds, whole if the old one was and the bounds allow it (PB2-1).
    fn value(&self, unit: f64, old: Option<&Value>) -> Value {
        let number = (self.low + unit * (self.high - self.low)).clamp(self.low, self.high);
        let (first, last) = (self.low.ceil(), self.high.floor());
        match old {
            Some(Value::Int(_)) if first <= last => Value::Int(number.round().clamp(first, last) as i64),
            _ => Value::Float(number),
        }
    }
}
