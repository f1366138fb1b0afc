//! Where the marks of an axis stand, and what is written beside them.

use crate::tune::words::significant;

#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    pub value: f64,
    pub label: String,
}

/// Round numbers within the range, about `wanted` of them.
pub fn linear(low: f64, high: f64, wanted: usize, is_integer: bool) -> Vec<Tick> {
    let step = round_step((high - low) / wanted.max(1) as f64, is_integer);
    if !(step.is_finite() && step > 0.0) {
        return Vec::new();
    }
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    let is_plain = (1e-5..).contains(&step) && low.abs().max(high.abs()) < 1e6;
    let tick = |at: i64| {
        let value = at as f64 * step;
        let label = if is_plain { format!("{value:.decimals$}") } else { significant(value) };
        Tick { value, label: if value == 0.0 { "0".into() } else { label } }
    };
    (first..=last).take(4 * wanted).map(tick).collect()
}

/// 1, 2 or 5 times a power of ten, about as much as asked.
fn round_step(least: f64, is_integer: bool) -> f64 {
    let magnitude = 10.0_f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * magnitude).find(|step| *step >= least * 0.7);
    let step = step.unwrap_or(10.0 * magnitude);
    if is_integer { step.max(1.0) } else { step }
}

/// Powers of ten within the range, with steps between them where there are few.
pub fn logarithmic(low: f64, high: f64, most: usize) -> Vec<Tick> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let within = |value: &f64| (low * 0.999..=high * 1.001).contains(value);
    let of = |times: &[f64]| -> Vec<f64> {
        let value = |exponent: i32| times.iter().map(move |times| times * 10.0_f64.powi(exponent));
        (first..=last).flat_map(value).filter(within).collect()
    };
    let mut values = of(&[1.0]);
    if values.len() < 3 {
        values = of(&[1.0, 2.0, 5.0]);
    }
    if values.len() < 2 {
        values = of(&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
    }
    let every = values.len().div_ceil(most.max(1)).max(1);
    values.into_iter().step_by(every).map(|value| Tick { value, label: significant(value) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn marks_are_round_and_within_the_range() {
        assert_eq!(labels(&linear(0.0, 1.0, 5, false)), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(&linear(-0.013, 0.031, 4, false)), ["-0.01", "0", "0.01", "0.02", "0.03"]);
        assert_eq!(labels(&linear(1.0, 4.0, 6, true)), ["1", "2", "3", "4"]);
        assert_eq!(labels(&linear(1e7, 3e7, 2, false)), ["1e7", "2e7", "3e7"]);
        assert_eq!(labels(&linear(1e-7, 3e-7, 2, false)), ["1e-7", "2e-7", "3e-7"]);
        assert_eq!(linear(f64::NAN, 1.0, 5, false), []);
        assert_eq!(labels(&logarithmic(1e-5, 0.1, 7)), ["1e-5", "0.0001", "0.001", "0.01", "0.1"]);
        assert_eq!(labels(&logarithmic(16.0, 512.0, 7)), ["20", "50", "100", "200", "500"]);
        assert_eq!(labels(&logarithmic(2.1, 4.3, 7)), ["3", "4"]);
        assert_eq!(labels(&logarithmic(1e-12, 1.0, 7)).len(), 7);
    }
}
