//! Numbers with a fraction: uniform, log-uniform or normal, in steps or not.
//!
//! Each is a stretch of the unit interval: `at` and `position` go from one to the other, so that what is uniform there
//! is distributed as the user asked. The searchers that learn work in that interval.

use serde::{Deserialize, Serialize};

use super::error::SpaceError;
use crate::tune::random::Rng;
use crate::tune::random::elementary::{exp, ln, normal_below, normal_quantile};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Real {
    scale: Scale,
    step: Option<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Scale {
    Linear {
        #[serde(with = "carril_types::exact")]
        low: f64,
        #[serde(with = "carril_types::exact")]
        high: f64,
    },
    Log {
        #[serde(with = "carril_types::exact")]
        low: f64,
        #[serde(with = "carril_types::exact")]
        high: f64,
    },
    Normal {
        #[serde(with = "carril_types::exact")]
        mean: f64,
        #[serde(with = "carril_types::exact")]
        sd: f64,
    },
}

/// The multiples of `q` from `first` times to `last` times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Step {
    #[serde(with = "carril_types::exact")]
    q: f64,
    #[serde(with = "carril_types::exact")]
    first: f64,
    #[serde(with = "carril_types::exact")]
    last: f64,
}

/// How far a quotient may be from a whole number and still be one: 0.3 / 0.1 is not 3.
const NEARLY: f64 = 1e-9;

impl Real {
    pub(super) fn linear(domain: &'static str, low: f64, high: f64, q: Option<f64>) -> Result<Self, SpaceError> {
        check_bounds(domain, low, high)?;
        let step = q.map(|q| Step::between(domain, q, low, high)).transpose()?;
        Ok(Self { scale: Scale::Linear { low, high }, step })
    }

    pub(super) fn log(domain: &'static str, low: f64, high: f64, q: Option<f64>) -> Result<Self, SpaceError> {
        check_bounds(domain, low, high)?;
        check_positive(domain, "lower", low)?;
        let step = q.map(|q| Step::between(domain, q, low, high)).transpose()?;
        Ok(Self { scale: Scale::Log { low, high }, step })
    }

    pub(super) fn normal(domain: &'static str, mean: f64, sd: f64, q: Option<f64>) -> Result<Self, SpaceError> {
        check_finite(domain, "mean", mean)?;
        check_positive(domain, "sd", sd)?;
        if let Some(q) = q {
            check_positive(domain, "q", q)?;
        }
        let step = q.map(|q| Step { q, first: f64::NEG_INFINITY, last: f64::INFINITY });
        Ok(Self { scale: Scale::Normal { mean, sd }, step })
    }

    pub(crate) fn sample(&self, rng: &mut Rng) -> f64 {
        match self.scale {
            Scale::Normal { mean, sd } => self.rounded(mean + sd * rng.normal()),
            _ => self.at(rng.f64()),
        }
    }

    pub(crate) fn contains(&self, value: f64) -> bool {
        let in_bounds = match self.scale {
            Scale::Linear { low, high } | Scale::Log { low, high } => (low..=high).contains(&value),
            Scale::Normal { .. } => value.is_finite(),
        };
        in_bounds && self.step.is_none_or(|step| is_whole(value / step.q))
    }

    /// The value that the share `unit` of all samples lies below.
    pub(crate) fn at(&self, unit: f64) -> f64 {
        match (self.scale, self.step) {
            // Each multiple has a share of its own size, the outermost too.
            (Scale::Linear { low, high }, Some(step)) => {
                let index = (step.first + (unit * step.count()).floor()).min(step.last);
                (index * step.q).clamp(low, high)
            }
            (Scale::Linear { low, high }, None) => below(low + unit * (high - low), low, high),
            (Scale::Log { low, high }, None) => below(exp(ln(low) + unit * (ln(high) - ln(low))), low, high),
            (Scale::Log { low, high }, Some(_)) => {
                self.rounded(exp(ln(low) + unit * (ln(high) - ln(low)))).clamp(low, high)
            }
            (Scale::Normal { mean, sd }, _) => self.rounded(mean + sd * normal_quantile(unit)),
        }
    }

    /// Where in the unit interval a value lies; what is out of bounds lies at its end.
    pub(crate) fn position(&self, value: f64) -> f64 {
        let unit = match (self.scale, self.step) {
            (Scale::Linear { .. }, Some(step)) => ((value / step.q).round() + 0.5 - step.first) / step.count(),
            (Scale::Linear { low, high }, None) => (value - low) / (high - low),
            (Scale::Log { low, high }, _) => (ln(value.clamp(low, high)) - ln(low)) / (ln(high) - ln(low)),
            (Scale::Normal { mean, sd }, _) => normal_below((value - mean) / sd),
        };
        if unit.is_nan() { 0.5 } else { unit.clamp(0.0, 1.0) }
    }

    fn rounded(&self, value: f64) -> f64 {
        match self.step {
            Some(step) => (value / step.q).round().clamp(step.first, step.last) * step.q,
            None => value,
        }
    }
}

impl Step {
    fn between(domain: &'static str, q: f64, low: f64, high: f64) -> Result<Self, SpaceError> {
        check_positive(domain, "q", q)?;
        let (first, last) = (whole_above(low / q), whole_below(high / q));
        if first > last {
            return Err(SpaceError::NoMultiple { domain, q, low, high });
        }
        Ok(Self { q, first, last })
    }

    fn count(&self) -> f64 {
        self.last - self.first + 1.0
    }
}

/// Rounding may reach the upper bound, which does not belong to the domain.
fn below(value: f64, low: f64, high: f64) -> f64 {
    value.clamp(low, high.next_down().max(low))
}

fn is_whole(quotient: f64) -> bool {
    (quotient - quotient.round()).abs() <= NEARLY * quotient.abs().max(1.0)
}

fn whole_above(quotient: f64) -> f64 {
    if is_whole(quotient) { quotient.round() } else { quotient.ceil() }
}

fn whole_below(quotient: f64) -> f64 {
    if is_whole(quotient) { quotient.round() } else { quotient.floor() }
}

fn check_bounds(domain: &'static str, low: f64, high: f64) -> Result<(), SpaceError> {
    check_finite(domain, "lower", low)?;
    check_finite(domain, "upper", high)?;
    // Their distance has to be a number too.
    check_finite(domain, "upper - lower", high - low)?;
    if low < high { Ok(()) } else { Err(SpaceError::Empty { domain, low, high }) }
}

fn check_finite(domain: &'static str, name: &'static str, value: f64) -> Result<(), SpaceError> {
    if value.is_finite() { Ok(()) } else { Err(SpaceError::NotFinite { domain, name, value }) }
}

fn check_positive(domain: &'static str, name: &'static str, value: f64) -> Result<(), SpaceError> {
    check_finite(domain, name, value)?;
    if value > 0.0 { Ok(()) } else { Err(SpaceError::NotPositive { domain, name, value }) }
}
