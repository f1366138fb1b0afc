use std::collections::BTreeMap;

use carril_core::tune::scheduler::{AnyScheduler, Decision, HyperBand, HyperBandOptions, Scheduler, plan};
use carril_core::tune::{Mode, TrialId};
use carril_types::Metrics;
use proptest::prelude::*;

use crate::world::World;
use crate::{add, ids, says, target, tell};

fn options(max_t: f64) -> HyperBandOptions {
    HyperBandOptions { max_t, ..HyperBandOptions::new(target(Mode::Max)) }
}

fn hyperband(max_t: f64) -> HyperBand {
    HyperBand::new(options(max_t)).unwrap()
}

fn table(max_t: f64, reduction_factor: f64) -> Vec<Vec<(usize, f64)>> {
    let rungs =
        |plan: &carril_core::tune::scheduler::Plan| plan.0.iter().map(|rung| (rung.trials, rung.until)).collect();
    plan(max_t, reduction_factor).iter().map(rungs).collect()
}

fn stopped(hyperband: &mut HyperBand) -> Vec<u64> {
    let orders = hyperband.take_orders().into_iter();
    let stop = |(trial, decision, _): (TrialId, Decision, String)| {
        assert_eq!(decision, Decision::Stop);
        trial.0
    };
    orders.map(stop).collect()
}

#[test]
fn the_brackets_are_those_of_the_papers_table() {
    let expected = [
        vec![(81, 1.0), (27, 3.0), (9, 9.0), (3, 27.0), (1, 81.0)],
        vec![(34, 3.0), (11, 9.0), (3, 27.0), (1, 81.0)],
        vec![(15, 9.0), (5, 27.0), (1, 81.0)],
        vec![(8, 27.0), (2, 81.0)],
        vec![(5, 81.0)],
    ];
    assert_eq!(table(81.0, 3.0), expected, "BAND-1");
    assert_eq!(table(243.0, 3.0).len(), 6, "no logarithm rounds a bracket away");
    assert_eq!(table(1.0, 3.0), [[(1, 1.0)]]);
}

#[test]
fn a_full_bracket_is_halved_when_all_are_there() {
    let mut hyperband = hyperband(9.0);
    add(&mut hyperband, 0..9);
    for trial in 0..8 {
        assert_eq!(tell(&mut hyperband, trial, 1.0, trial as f64), Decision::Pause);
        assert_eq!(stopped(&mut hyperband), [] as [u64; 0], "BAND-2");
    }
    assert_eq!(hyperband.choose(&[], &ids(&[0, 7])), None, "those that wait for the last one wait");
    assert_eq!(tell(&mut hyperband, 8, 1.0, 8.0), Decision::Continue, "BAND-4: the best");
    assert_eq!(stopped(&mut hyperband), [5, 4, 3, 2, 1, 0], "three of nine go on");
    assert_eq!(hyperband.choose(&[], &ids(&[6, 7])), Some(TrialId(6)));
    assert_eq!(tell(&mut hyperband, 6, 3.0, 1.0), Decision::Pause);
    assert_eq!(tell(&mut hyperband, 8, 3.0, 0.0), Decision::Pause);
    assert_eq!(tell(&mut hyperband, 7, 2.0, 9.0), Decision::Continue);
    assert_eq!(tell(&mut hyperband, 7, 3.0, 0.5), Decision::Stop, "only one of three goes on");
    assert_eq!(stopped(&mut hyperband), [8]);
    assert_eq!(tell(&mut hyperband, 6, 9.0, 1.0), Decision::Complete, "it is done");
}

#[test]
fn a_trial_that_failed_leaves_its_place_to_the_others() {
    let mut hyperband = hyperband(9.0);
    add(&mut hyperband, 0..9);
    for trial in 0..5 {
        assert_eq!(tell(&mut hyperband, trial, 1.0, trial as f64), Decision::Pause);
    }
    for trial in 5..9 {
        assert_eq!(stopped(&mut hyperband), [] as [u64; 0]);
        hyperband.on_trial_failed(TrialId(trial));
    }
    assert_eq!(stopped(&mut hyperband), [1, 0], "BAND-2: three go on, as if nobody had failed");
}

#[test]
fn a_bracket_that_nobody_joins_any_more_is_halved_as_it_is() {
    let mut finished = hyperband(9.0);
    add(&mut finished, 0..4);
    for trial in 0..4 {
        assert_eq!(tell(&mut finished, trial, 1.0, trial as f64), Decision::Pause, "there is room for five more");
    }
    finished.on_no_more_trials();
    assert_eq!(stopped(&mut finished), [2, 1, 0], "BAND-3");
    let mut stuck = hyperband(9.0);
    add(&mut stuck, 0..4);
    for trial in 0..4 {
        tell(&mut stuck, trial, 1.0, trial as f64);
    }
    assert_eq!(stuck.choose(&[], &ids(&[0, 1, 2, 3])), Some(TrialId(3)), "BAND-3: nothing else can run");
    assert_eq!(stopped(&mut stuck), [2, 1, 0]);
}

#[test]
fn for_bohb_one_bracket_is_done_before_the_next_begins() {
    let mut both = [hyperband(9.0), HyperBand::for_bohb(options(9.0)).unwrap()];
    for hyperband in &mut both {
        add(hyperband, 0..10);
        for trial in 0..8 {
            assert_eq!(hyperband.choose(&ids(&[trial, 9]), &[]), Some(TrialId(trial)));
            tell(hyperband, trial, 1.0, trial as f64);
        }
        assert_eq!(hyperband.choose(&ids(&[8, 9]), &[]), Some(TrialId(8)));
        assert_eq!(hyperband.budget(TrialId(8)), Some(1.0));
        assert_eq!(hyperband.budget(TrialId(9)), Some(3.0));
    }
    let [pipelined, bohb] = &mut both;
    assert_eq!(pipelined.choose(&ids(&[9]), &ids(&[0])), Some(TrialId(9)));
    assert_eq!(bohb.choose(&ids(&[9]), &ids(&[0])), None);
}

#[test]
fn whoever_jumps_over_milestones_is_compared_at_each_of_them() {
    let mut hyperband = hyperband(9.0);
    add(&mut hyperband, 0..9);
    for trial in 0..8 {
        tell(&mut hyperband, trial, 5.0, trial as f64);
    }
    assert_eq!(tell(&mut hyperband, 8, 5.0, 8.0), Decision::Continue, "halved at 1 and at 3");
    assert_eq!(stopped(&mut hyperband).len(), 8);
}

#[test]
fn without_a_stop_at_the_end_the_last_ones_go_on() {
    let mut hyperband = HyperBand::new(HyperBandOptions { stop_last_trials: false, ..options(1.0) }).unwrap();
    add(&mut hyperband, 0..1);
    assert_eq!(tell(&mut hyperband, 0, 1.0, 0.0), Decision::Continue);
    assert_eq!(tell(&mut hyperband, 0, 2.0, 0.0), Decision::Continue);
    assert_eq!(hyperband.choose(&[], &ids(&[0])), Some(TrialId(0)), "also after it was interrupted");
    let (decision, _) = hyperband.on_result(TrialId(0), &Metrics::default());
    assert_eq!(decision, Decision::Continue, "SCHED-1");
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    says(HyperBand::new(options(0.5)), "`max_t` is `0.5`: it must be a finite number of at least 1");
    let factor = HyperBandOptions { reduction_factor: f64::NAN, ..options(9.0) };
    says(HyperBand::new(factor), "`reduction_factor` is `NaN`: it must be above 1");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_round_trains_as_many_for_as_long_as_the_paper_says_in_whatever_order_they_report(seed in any::<u64>(), bohb in any::<bool>()) {
        let hyperband = if bohb { HyperBand::for_bohb(options(9.0)) } else { HyperBand::new(options(9.0)) };
        let mut world = World::new(AnyScheduler::HyperBand(hyperband.unwrap()), 17, seed);
        world.failures = false;
        world.run();
        // 9 trials for 1, 3 for 3 and 1 for 9; 5 for 3 and 1 for 9; 3 for 9.
        let trained = BTreeMap::from([(1, 9 - 3), (3, 3 - 1 + 5 - 1), (9, 1 + 1 + 3)]);
        prop_assert_eq!(world.trained(), trained, "BAND-1");
    }
}
