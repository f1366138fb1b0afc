//! Do the searches that learn find more than chance does? On known functions, over twenty seeds, by a Mann-Whitney test.

mod problems;

use carril_types::{Metrics, Value};

use problems::{KEYS, Kind, Problem, best, branin, branin_loss, hartmann, hartmann_loss, models};

const SEEDS: u64 = 20;
/// One-sided, p < 0.05.
const SIGNIFICANT: f64 = 1.645;

/// How many standard deviations lie between the U statistic and what chance would give; positive: `left` has the lower values.
fn mann_whitney(left: &[f64], right: &[f64]) -> f64 {
    let win = |left: f64, right: f64| if left < right { 1.0 } else { f64::from(u8::from(left == right)) / 2.0 };
    let u: f64 = left.iter().map(|left| right.iter().map(|right| win(*left, *right)).sum::<f64>()).sum();
    let (n, m) = (left.len() as f64, right.len() as f64);
    let mut all: Vec<f64> = [left, right].concat();
    all.sort_by(f64::total_cmp);
    let ties: f64 =
        all.chunk_by(|left, right| left == right).map(|tied| (tied.len() as f64).powi(3) - tied.len() as f64).sum();
    let variance = n * m / 12.0 * ((n + m + 1.0) - ties / ((n + m) * (n + m - 1.0)));
    (u - n * m / 2.0 - 0.5) / variance.sqrt()
}

fn beats_chance(problem: &Problem, kind: Kind) {
    let of = |kind| (0..SEEDS).map(|seed| best(problem, kind, seed)).collect::<Vec<f64>>();
    let (ours, chance) = (of(kind), of(Kind::Random));
    let z = mann_whitney(&ours, &chance);
    let median = |losses: &[f64]| {
        let mut sorted = losses.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    };
    println!("{kind:?}: z = {z:.2}, median {:.4}, of chance {:.4}", median(&ours), median(&chance));
    assert!(z > SIGNIFICANT, "{kind:?}: z = {z:.2}\nours   {ours:.4?}\nchance {chance:.4?}");
}

#[test]
fn the_functions_have_their_published_minima_and_the_statistic_its_value() {
    let point = |items: &[(&str, f64)]| {
        Metrics(items.iter().map(|(key, value)| ((*key).to_owned(), Value::Float(*value))).collect())
    };
    assert!((branin_loss(&point(&[("x", std::f64::consts::PI), ("y", 2.275)])) - 0.397_887).abs() < 1e-5);
    let best = [0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573];
    let best: Vec<(&str, f64)> = KEYS.into_iter().zip(best).collect();
    assert!((hartmann_loss(&point(&best)) + 3.32237).abs() < 1e-4);
    // U = 9 of 9, expected 4.5, variance 9 × 7 / 12.
    assert!((mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]) - 4.0 / 5.25_f64.sqrt()).abs() < 1e-12);
}

#[test]
fn tpe_beats_chance_on_branin() {
    beats_chance(&branin(), Kind::Tpe);
}

#[test]
fn tpe_beats_chance_on_hartmann() {
    beats_chance(&hartmann(), Kind::Tpe);
}

#[test]
fn tpe_beats_chance_on_a_conditional_space() {
    beats_chance(&models(), Kind::Tpe);
}

#[test]
fn a_gaussian_process_beats_chance_on_branin() {
    beats_chance(&branin(), Kind::GaussianProcess);
}

#[test]
fn a_gaussian_process_beats_chance_on_hartmann() {
    beats_chance(&hartmann(), Kind::GaussianProcess);
}

#[test]
fn a_gaussian_process_beats_chance_on_a_conditional_space() {
    beats_chance(&models(), Kind::GaussianProcess);
}

#[test]
fn both_beat_chance_with_four_trials_at_a_time() {
    let problem = Problem { parallel: 4, ..branin() };
    beats_chance(&problem, Kind::Tpe);
    beats_chance(&problem, Kind::GaussianProcess);
}
