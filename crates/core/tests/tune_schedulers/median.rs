use carril_core::tune::scheduler::{Decision, MedianOptions, MedianStopping, Scheduler};
use carril_core::tune::{Mode, TrialId};

use crate::{add, ids, report, says, target, tell};

fn options(mode: Mode) -> MedianOptions {
    MedianOptions { grace_period: 1.0, min_samples_required: 2, ..MedianOptions::new(target(mode)) }
}

/// Two trials whose averages up to 1, 2 and 3 are 1, 2, 3 and 3, 2, 3.
fn two_before(options: MedianOptions) -> MedianStopping {
    let mut rule = MedianStopping::new(options).unwrap();
    add(&mut rule, 0..4);
    for (trial, scores) in [(0, [1.0, 3.0, 5.0]), (1, [3.0, 1.0, 5.0])] {
        rule.choose(&ids(&[trial]), &[]);
        for (time, score) in (1..).zip(scores) {
            rule.on_result(TrialId(trial), &report(f64::from(time), score));
        }
        rule.on_trial_completed(TrialId(trial), &report(3.0, 5.0));
    }
    rule
}

#[test]
fn a_trial_stops_when_its_best_is_below_the_median_of_averages() {
    let mut rule = two_before(options(Mode::Max));
    assert_eq!(
        tell(&mut rule, 2, 1.0, 2.0),
        Decision::Continue,
        "MEDIAN-1: 2 is not strictly below the median of 1 and 3"
    );
    assert_eq!(tell(&mut rule, 2, 2.0, 0.0), Decision::Continue, "its best is 2, and the median of 2 and 2 is 2");
    // The averages of the others up to 3 are 3 and 3.
    assert_eq!(tell(&mut rule, 2, 3.0, 2.9), Decision::Stop);
    assert_eq!(tell(&mut rule, 3, 1.0, f64::NAN), Decision::Stop, "SCHED-2, of 1, 3 and 2");
}

#[test]
fn in_the_other_mode_the_best_is_the_least() {
    let mut rule = two_before(options(Mode::Min));
    assert_eq!(tell(&mut rule, 2, 1.0, 2.0), Decision::Continue);
    assert_eq!(tell(&mut rule, 3, 2.0, 2.1), Decision::Stop);
}

#[test]
fn too_few_others_decide_nothing() {
    let mut rule = two_before(MedianOptions { min_samples_required: 3, ..options(Mode::Max) });
    rule.choose(&ids(&[3]), &[]);
    assert_eq!(tell(&mut rule, 2, 1.0, -9.0), Decision::Continue);
    let mut rule = two_before(options(Mode::Max));
    rule.choose(&ids(&[3]), &[]);
    assert_eq!(tell(&mut rule, 2, 4.0, -9.0), Decision::Continue, "nobody has come to 4");
    let mut rule = two_before(MedianOptions { grace_period: 2.5, ..options(Mode::Max) });
    assert_eq!(tell(&mut rule, 2, 2.0, -9.0), Decision::Continue, "the grace period is not over");
    assert_eq!(tell(&mut rule, 2, 3.0, 4.9), Decision::Stop, "and its reports are in no average: 5 and 5");
}

#[test]
fn while_too_few_are_there_trials_take_turns() {
    let mut rule = MedianStopping::new(MedianOptions { min_time_slice: 2.0, ..options(Mode::Max) }).unwrap();
    add(&mut rule, 0..2);
    assert_eq!(rule.choose(&ids(&[0, 1]), &[]), Some(TrialId(0)));
    assert_eq!(tell(&mut rule, 0, 2.0, 1.0), Decision::Continue, "MEDIAN-4: its slice is not over");
    assert_eq!(tell(&mut rule, 0, 3.0, 1.0), Decision::Pause, "MEDIAN-4: trial 1 waits");
    assert_eq!(rule.choose(&ids(&[1]), &ids(&[0])), Some(TrialId(1)));
    assert_eq!(rule.choose(&[], &ids(&[0])), Some(TrialId(0)));
    assert_eq!(tell(&mut rule, 0, 6.0, 1.0), Decision::Continue, "nobody waits");
}

#[test]
fn without_a_hard_stop_a_trial_is_paused_once_and_then_left_alone() {
    let mut rule = two_before(MedianOptions { hard_stop: false, ..options(Mode::Max) });
    assert_eq!(tell(&mut rule, 2, 3.0, 0.0), Decision::Pause, "MEDIAN-3");
    assert_eq!(rule.choose(&ids(&[3]), &ids(&[2])), Some(TrialId(3)), "others come first");
    assert_eq!(rule.choose(&[], &ids(&[2])), Some(TrialId(2)));
    assert_eq!(tell(&mut rule, 2, 4.0, -1.0), Decision::Continue);
}

#[test]
fn averages_that_are_no_numbers_are_no_samples() {
    let mut rule = two_before(MedianOptions { min_samples_required: 3, ..options(Mode::Max) });
    rule.choose(&ids(&[3]), &[]);
    tell(&mut rule, 3, 1.0, f64::NEG_INFINITY);
    rule.choose(&[], &ids(&[3]));
    assert_eq!(tell(&mut rule, 2, 1.0, 0.0), Decision::Continue, "MEDIAN-2");
}

#[test]
fn a_trial_that_went_back_to_a_checkpoint_is_averaged_once() {
    let mut rule = MedianStopping::new(MedianOptions { min_samples_required: 1, ..options(Mode::Max) }).unwrap();
    add(&mut rule, 0..2);
    for (time, score) in [(1.0, 0.0), (2.0, 0.0), (1.0, 4.0), (2.0, 6.0)] {
        rule.on_result(TrialId(0), &report(time, score));
    }
    assert_eq!(tell(&mut rule, 1, 2.0, 4.9), Decision::Stop, "the average up to 2 is 5");
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let grace = MedianOptions { grace_period: -1.0, ..options(Mode::Max) };
    says(MedianStopping::new(grace), "`grace_period` is `-1`: it must be at least 0");
    let samples = MedianOptions { min_samples_required: 0, ..options(Mode::Max) };
    says(MedianStopping::new(samples), "`min_samples_required` is `0`: it must be at least 1");
}
