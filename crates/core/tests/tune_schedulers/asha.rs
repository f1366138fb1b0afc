use carril_core::tune::Mode;
use carril_core::tune::scheduler::{Asha, AshaOptions, Decision, Scheduler};
use carril_types::{Metrics, Value};
use proptest::prelude::*;

use crate::{add, says, target, tell};

fn options(max_t: f64, reduction_factor: f64) -> AshaOptions {
    AshaOptions { max_t, reduction_factor, ..AshaOptions::new(target(Mode::Max)) }
}

fn asha(max_t: f64, reduction_factor: f64) -> Asha {
    Asha::new(options(max_t, reduction_factor)).unwrap()
}

#[test]
fn the_rungs_are_those_of_the_papers_example() {
    let three = AshaOptions { brackets: 3, ..options(9.0, 3.0) };
    assert_eq!(Asha::new(three).unwrap().rungs(), [vec![1.0, 3.0, 9.0], vec![3.0, 9.0], vec![9.0]]);
    assert_eq!(asha(100.0, 4.0).rungs(), [[1.0, 4.0, 16.0, 64.0]], "as in Ray by default");
    assert_eq!(asha(243.0, 3.0).rungs()[0].len(), 6, "no logarithm rounds the last one away");
}

#[test]
fn a_trial_stops_below_the_quantile_of_those_before_it() {
    let mut asha = asha(9.0, 3.0);
    add(&mut asha, 0..6);
    assert_eq!(tell(&mut asha, 0, 1.0, 1.0), Decision::Continue, "ASHA-2: the first one");
    assert_eq!(tell(&mut asha, 1, 1.0, 2.0), Decision::Continue);
    // Of 1 and 2, two thirds of the way: 1.67.
    assert_eq!(tell(&mut asha, 2, 1.0, 1.66), Decision::Stop);
    // Of 1, 1.66 and 2: 1.773.
    assert_eq!(tell(&mut asha, 3, 1.0, 1.78), Decision::Continue);
    assert_eq!(tell(&mut asha, 4, 2.0, -5.0), Decision::Stop, "late at the rung is at the rung");
    assert_eq!(tell(&mut asha, 0, 2.0, -5.0), Decision::Continue, "between rungs nothing is compared");
    assert_eq!(tell(&mut asha, 0, 3.0, -5.0), Decision::Continue, "the first at the next one");
    assert!(asha.describe().contains("2 stopped"), "{}", asha.describe());
}

#[test]
fn less_is_better_where_that_is_asked() {
    let mut asha = Asha::new(AshaOptions { target: target(Mode::Min), ..options(9.0, 3.0) }).unwrap();
    add(&mut asha, 0..3);
    tell(&mut asha, 0, 1.0, 1.0);
    assert_eq!(tell(&mut asha, 1, 1.0, 0.5), Decision::Continue);
    assert_eq!(tell(&mut asha, 2, 1.0, 0.9), Decision::Stop);
}

#[test]
fn a_rung_that_was_jumped_over_is_not_visited_later() {
    let mut asha = asha(9.0, 3.0);
    add(&mut asha, 0..3);
    tell(&mut asha, 0, 1.0, 100.0);
    assert_eq!(tell(&mut asha, 1, 4.0, 5.0), Decision::Continue, "the first at 3");
    assert_eq!(tell(&mut asha, 1, 5.0, 6.0), Decision::Continue, "ASHA-3: not compared with 100 at 1");
    assert_eq!(tell(&mut asha, 2, 1.0, 99.0), Decision::Stop, "and it was not recorded at 1");
}

#[test]
fn at_the_end_a_trial_is_done_or_goes_on() {
    let mut stops = asha(9.0, 3.0);
    add(&mut stops, 0..2);
    assert_eq!(tell(&mut stops, 0, 9.0, 1.0), Decision::Complete, "ASHA-4");
    let mut goes_on = Asha::new(AshaOptions { stop_last_trials: false, ..options(9.0, 3.0) }).unwrap();
    add(&mut goes_on, 0..2);
    assert_eq!(tell(&mut goes_on, 0, 9.0, 1.0), Decision::Continue);
    assert_eq!(tell(&mut goes_on, 1, 9.0, 0.0), Decision::Continue, "nothing is left to halve");
}

#[test]
fn what_was_not_reported_decides_nothing() {
    let mut asha = asha(9.0, 3.0);
    add(&mut asha, 0..1);
    let inner = Metrics(vec![("score".to_owned(), Value::Float(1.0))]);
    for result in [Metrics::default(), inner] {
        let (decision, why) = asha.on_result(carril_core::tune::TrialId(0), &result);
        assert_eq!(decision, Decision::Continue, "SCHED-1");
        assert_eq!(why, "no `score` or no `t` in the report");
    }
}

#[test]
fn what_is_no_number_is_the_worst() {
    for mode in [Mode::Min, Mode::Max] {
        let mut asha = Asha::new(AshaOptions { target: target(mode), ..options(9.0, 3.0) }).unwrap();
        add(&mut asha, 0..3);
        tell(&mut asha, 0, 1.0, f64::NAN);
        assert_eq!(tell(&mut asha, 1, 1.0, 1.0), Decision::Continue);
        tell(&mut asha, 1, 3.0, 1.0);
        assert_eq!(tell(&mut asha, 0, 3.0, f64::NAN), Decision::Stop, "SCHED-2");
    }
}

#[test]
fn brackets_that_stop_early_get_more_trials() {
    let mut asha = Asha::new(AshaOptions { brackets: 2, ..options(9.0, 3.0) }).unwrap();
    add(&mut asha, 0..1_000);
    // Worse and worse: those of the first bracket stop at 1, except the first of them.
    let stopped = (0..1_000).filter(|trial| tell(&mut asha, *trial, 1.0, -(*trial as f64)) == Decision::Stop).count();
    // e to 1: 0.731 of them.
    assert!((690..770).contains(&stopped), "{stopped}");
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let grace = AshaOptions { grace_period: 10.0, ..options(9.0, 3.0) };
    says(Asha::new(grace), "`max_t` is `9`: it must be at least `grace_period`, which is `10`");
    says(Asha::new(options(9.0, 1.0)), "`reduction_factor` is `1`: it must be above 1");
    says(Asha::new(options(0.0, 3.0)), "`max_t` is `0`: it must be a finite number above 0");
    let none = AshaOptions { brackets: 0, ..options(9.0, 3.0) };
    says(Asha::new(none), "`brackets` is `0`: it must be at least 1 and at most 64");
}

/// By the definition, over again for each one.
fn quantile(scores: &[f64], fraction: f64) -> Option<f64> {
    let mut sorted = scores.to_vec();
    sorted.sort_by(f64::total_cmp);
    let position = sorted.len().checked_sub(1)? as f64 * fraction;
    let (low, high) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
    Some(low + (high - low) * (position - position.floor()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_rung_stops_by_its_quantile_and_never_its_best(scores in prop::collection::vec(-20_i32..20, 1..40), factor in 2_u8..6) {
        let mut asha = asha(1_000.0, f64::from(factor));
        add(&mut asha, 0..scores.len() as u64);
        let mut before: Vec<f64> = Vec::new();
        for (trial, score) in (0..).zip(scores.into_iter().map(f64::from)) {
            let cutoff = quantile(&before, 1.0 - 1.0 / f64::from(factor));
            let decision = tell(&mut asha, trial, 1.0, score);
            let expected = if cutoff.is_some_and(|cutoff| score < cutoff) { Decision::Stop } else { Decision::Continue };
            prop_assert_eq!(&decision, &expected, "ASHA-1: {} after {:?}", score, before);
            if before.iter().all(|other| *other <= score) {
                prop_assert_eq!(decision, Decision::Continue, "ASHA-2");
            }
            before.push(score);
        }
    }
}
