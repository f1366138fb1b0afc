use super::*;

/// Trials at random places of a unit cube, and what a function makes of them.
fn table(count: usize, columns: usize, seed: u64, value: impl Fn(&[f64]) -> f64) -> (Vec<Column>, Vec<f64>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let rows: Vec<Vec<f64>> = (0..count).map(|_| (0..columns).map(|_| random.f64()).collect()).collect();
    let target = rows.iter().map(|row| value(row)).collect();
    let column = |at: usize| Column { positions: rows.iter().map(|row| row[at]).collect(), low: 0.0, high: 1.0 };
    ((0..columns).map(column).collect(), target)
}

#[test]
fn shares_are_those_of_the_known_function() {
    // Variances of 3a, b and nothing: 9/12, 1/12, 0.
    let (columns, target) = table(1000, 3, 1, |row| 3.0 * row[0] + row[1]);
    let Importance { shares, fit } = importance(&columns, &target, 0).unwrap();
    assert!((shares[0].median - 0.9).abs() < 0.04, "{shares:?}");
    assert!((shares[1].median - 0.1).abs() < 0.04, "{shares:?}");
    assert!(shares[2].median < 0.01, "{shares:?}");
    assert!(fit > 0.95, "{fit}");
    assert!(shares.iter().all(|share| share.low <= share.median && share.median <= share.high), "{shares:?}");
}

#[test]
fn an_interaction_is_no_main_effect() {
    let (columns, target) = table(2000, 2, 2, |row| if (row[0] < 0.5) == (row[1] < 0.5) { 1.0 } else { 0.0 });
    let Importance { shares, fit } = importance(&columns, &target, 0).unwrap();
    assert!(shares[0].median + shares[1].median < 0.1, "what is left is the interaction: {shares:?}");
    assert!(fit > 0.8, "{fit}");
}

#[test]
fn noise_is_told_by_the_fit() {
    let noise = |row: &[f64]| (row[0] * 12345.678).fract() + (row[1] * 98765.432).fract();
    let (columns, target) = table(200, 2, 3, noise);
    assert!(importance(&columns, &target, 0).unwrap().fit < 0.1);
}

#[test]
fn shares_of_every_tree_are_shares_and_a_seed_repeats_them() {
    let value = |row: &[f64]| row[0] * row[1] + (row[2] * 6.0).sin() + if row[3] > 0.7 { 2.0 } else { 0.0 };
    let (columns, target) = table(150, 4, 4, value);
    let first = importance(&columns, &target, 7).unwrap();
    assert_eq!(first, importance(&columns, &target, 7).unwrap(), "FOREST-1");
    assert_ne!(first, importance(&columns, &target, 8).unwrap());
    let sum: f64 = first.shares.iter().map(|share| share.median).sum();
    assert!(sum <= 1.0 + 1e-9 && first.shares.iter().all(|share| share.low >= 0.0), "FOREST-2: {first:?}");
}

#[test]
fn where_nothing_varies_there_is_nothing_to_share() {
    let (columns, _) = table(20, 2, 5, |_| 0.0);
    assert_eq!(importance(&columns, &[1.0; 20], 0), None);
    assert_eq!(importance(&[], &[1.0, 2.0], 0), None);
}

#[test]
fn the_share_lies_within_its_range_whatever_a_few_trees_say() {
    let shares = [vec![0.0; 5], vec![0.95; 59]].concat();
    let share = summary(shares);
    assert!(share.low <= share.median && share.median <= share.high, "{share:?}");
}
