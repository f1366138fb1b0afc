//! An axis: what stands on it, where, and on which scale.
//!
//! AXIS-1: every place is between 0 and 1, whatever the value.
//! AXIS-2: the places of an axis are in the order of its values.

use std::collections::BTreeMap;

use carril_types::{ScoreOrder, Value};

use super::ticks::{linear, logarithmic};
use crate::tune::parameters::Parameter;
use crate::tune::words::short;

/// Values of a ratio below this are never shown on a logarithmic scale.
const LEAST_RATIO: f64 = 16.0;
/// A metric whose greatest value is between this and 1 is taken for a fraction, and its decades count below `NEAR_ZERO`.
const FRACTION: f64 = 0.1;
const NEAR_ZERO: f64 = 1e-3;
/// So few different numbers, as of a grid or a choice, are shown side by side, each with its label.
const FEW: usize = 6;
/// More categories than this are not all labelled.
const MOST_LABELS: usize = 12;
/// On an axis of numbers, the part that is kept for trials that do not have the parameter.
const ABSENT: f64 = 0.12;
const NOT_SET: &str = "not set";

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    Linear { low: f64, high: f64 },
    Log { low: f64, high: f64 },
}

/// A mark beside the axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    pub place: f64,
    pub label: String,
}

#[derive(Clone, Debug)]
pub struct Axis {
    pub name: String,
    /// One for each value, from 0 at the low end to 1.
    pub places: Vec<f64>,
    pub marks: Vec<Mark>,
    pub is_log: bool,
}

/// The axis of the metric, on which a few very bad values do not squeeze all the others.
pub struct MetricAxis {
    pub axis: Axis,
    pub scale: Scale,
    /// How many values are worse than the axis is long; they stand at its end.
    pub beyond: usize,
}

impl Scale {
    /// The scale on which these numbers are spread best.
    pub fn of(values: &[f64]) -> Self {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if low <= 0.0 || high / low < LEAST_RATIO {
            return Self::Linear { low, high };
        }
        // Of numbers that are even on a linear scale, `1 / sqrt(ratio)` are below the geometric middle; of others, more.
        let ratio = high / low;
        // A value that is the middle itself must not be lost in rounding.
        let middle = (low.ln() + ratio.ln() / 2.0).exp() * 1.0001;
        let below = values.iter().filter(|value| **value <= middle).count() as f64 / values.len() as f64;
        if below >= (3.0 / ratio.sqrt()).min(0.4) { Self::Log { low, high } } else { Self::Linear { low, high } }
    }

    /// The same for a metric: a fraction such as an accuracy is read on a linear scale, unless it spans decades near 0.
    pub fn of_metric(values: &[f64]) -> Self {
        match Self::of(values) {
            Self::Log { low, high } if low > NEAR_ZERO && (FRACTION..=1.0).contains(&high) => {
                Self::Linear { low, high }
            }
            scale => scale,
        }
    }

    /// With room at both ends, so that nothing stands on the frame; a single value stands in the middle.
    pub fn padded(self, part: f64) -> Self {
        match self {
            Self::Linear { low, high } if low == high => {
                let room = if low == 0.0 { 1.0 } else { low.abs() * 0.1 };
                Self::Linear { low: low - room, high: high + room }
            }
            Self::Linear { low, high } => {
                let room = (high - low) * part;
                Self::Linear { low: low - room, high: high + room }
            }
            Self::Log { low, high } => {
                let room = (high / low).powf(part);
                Self::Log { low: low / room, high: high * room }
            }
        }
    }

    pub fn is_log(self) -> bool {
        matches!(self, Self::Log { .. })
    }

    pub fn place(self, value: f64) -> f64 {
        let place = match self {
            Self::Linear { low, high } => (value - low) / (high - low),
            Self::Log { low, high } => (value / low).ln() / (high / low).ln(),
        };
        if place.is_nan() { 0.5 } else { place.clamp(0.0, 1.0) }
    }

    pub fn marks(self, wanted: usize, is_integer: bool) -> Vec<Mark> {
        let ticks = match self {
            Self::Linear { low, high } => linear(low, high, wanted, is_integer),
            Self::Log { low, high } => logarithmic(low, high, wanted + 2),
        };
        ticks.into_iter().map(|tick| Mark { place: self.place(tick.value), label: tick.label }).collect()
    }

    /// Cuts off the worse end where a few values are much worse than nearly all.
    fn without_outliers(self, values: &[f64], mode: ScoreOrder) -> Self {
        let mut badness: Vec<f64> = values.iter().map(|value| self.place(*value)).collect();
        if mode == ScoreOrder::Max {
            badness.iter_mut().for_each(|place| *place = 1.0 - *place);
        }
        badness.sort_by(f64::total_cmp);
        let most = badness[(badness.len() - 1) * 9 / 10];
        // All but a tenth stand in the best quarter.
        if badness.len() < 10 || most >= 0.25 || most <= 0.0 {
            return self;
        }
        let end = if mode == ScoreOrder::Max { 1.0 - most * 1.3 } else { most * 1.3 };
        match (self, mode) {
            (Self::Linear { low, high }, ScoreOrder::Min) => Self::Linear { low, high: low + (high - low) * end },
            (Self::Linear { low, high }, ScoreOrder::Max) => Self::Linear { low: low + (high - low) * end, high },
            (Self::Log { low, high }, ScoreOrder::Min) => Self::Log { low, high: low * (high / low).powf(end) },
            (Self::Log { low, high }, ScoreOrder::Max) => Self::Log { low: low * (high / low).powf(end), high },
        }
    }

    fn reaches(self, value: f64) -> bool {
        match self {
            Self::Linear { low, high } | Self::Log { low, high } => (low..=high).contains(&value),
        }
    }
}

impl Axis {
    /// A parameter of these trials: numbers on a scale, everything else as categories side by side.
    pub fn of_parameter(parameter: &Parameter, trials: &[usize]) -> Self {
        let values: Vec<Option<&Value>> = trials.iter().map(|at| parameter.values[*at].as_ref()).collect();
        if !parameter.is_number() {
            return Self::of_categories(&parameter.name, &values);
        }
        let numbers: Vec<f64> = values.iter().flatten().filter_map(|value| value.as_f64()).collect();
        let scale = Scale::of(&numbers);
        if numbers.is_empty() || is_choice(&numbers, scale) {
            return Self::of_categories(&parameter.name, &values);
        }
        // Trials without the parameter stand apart, below all numbers.
        let foot = if numbers.len() < values.len() { ABSENT } else { 0.0 };
        let raised = |place: f64| foot + place * (1.0 - foot);
        let place =
            |value: &Option<&Value>| value.and_then(Value::as_f64).map_or(0.0, |value| raised(scale.place(value)));
        let scaled = scale.marks(5, parameter.is_integer());
        let mut marks: Vec<Mark> = scaled.into_iter().map(|mark| Mark { place: raised(mark.place), ..mark }).collect();
        if foot > 0.0 {
            marks.insert(0, Mark { place: 0.0, label: NOT_SET.into() });
        }
        let places = values.iter().map(place).collect();
        Self { name: parameter.name.clone(), places, marks, is_log: scale.is_log() }
    }

    /// In the order of the values: numbers by size, texts by the alphabet, what is not set first.
    fn of_categories(name: &str, values: &[Option<&Value>]) -> Self {
        let key = |value: &Option<&Value>| match value {
            None => (0, 0, NOT_SET.to_owned()),
            Some(value @ (Value::Int(_) | Value::Float(_))) => (1, order(value.as_f64().unwrap_or(0.0)), short(value)),
            Some(Value::Bool(flag)) => (2, i64::from(*flag), short(&Value::Bool(*flag))),
            Some(Value::Text(text)) => (3, 0, text.clone()),
            Some(value) => (3, 0, short(value)),
        };
        let mut cells: BTreeMap<(u8, i64, String), usize> = values.iter().map(|value| (key(value), 0)).collect();
        cells.values_mut().enumerate().for_each(|(at, cell)| *cell = at);
        let cell = 1.0 / cells.len() as f64;
        let middle = |at: usize| (at as f64 + 0.5) * cell;
        let places = values.iter().map(|value| middle(cells[&key(value)])).collect();
        let every = cells.len().div_ceil(MOST_LABELS);
        let marks = cells.into_iter().step_by(every);
        let marks = marks.map(|((_, _, label), at)| Mark { place: middle(at), label }).collect();
        Self { name: name.to_owned(), places, marks, is_log: false }
    }
}

/// Numbers as integers of the same order.
fn order(number: f64) -> i64 {
    let bits = number.to_bits() as i64;
    if bits < 0 { i64::MIN - bits } else { bits }
}

/// A few numbers that come again and again, or could not be told apart on the scale.
fn is_choice(numbers: &[f64], scale: Scale) -> bool {
    let mut places: Vec<f64> = numbers.iter().map(|number| scale.place(*number)).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let comes_again = numbers.len() >= 3 * places.len();
    places.len() <= FEW && (comes_again || places.windows(2).any(|pair| pair[1] - pair[0] < 0.05))
}

impl MetricAxis {
    pub fn of(name: &str, values: &[f64], mode: ScoreOrder) -> Self {
        let scale = Scale::of_metric(values).without_outliers(values, mode);
        let beyond = values.iter().filter(|value| !scale.reaches(**value)).count();
        let scale = scale.padded(0.03);
        let places = values.iter().map(|value| scale.place(*value)).collect();
        let is_integer = values.iter().all(|value| value.fract() == 0.0);
        let marks = scale.marks(6, is_integer);
        let axis = Axis { name: name.to_owned(), places, marks, is_log: scale.is_log() };
        Self { axis, scale, beyond }
    }
}

#[cfg(test)]
mod tests;
