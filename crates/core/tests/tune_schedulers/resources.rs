use carril_core::tune::scheduler::{
    Allocation, AnyScheduler, Decision, Distribution, Fifo, Holding, ResourceChanging, Scheduler,
};
use carril_core::tune::{Mode, TrialId};
use carril_types::Resources;

use crate::{add, tell};

fn amounts(cpus: f64, gpus: f64) -> Resources {
    Resources::from_amounts([("CPU", cpus), ("GPU", gpus)]).unwrap()
}

fn cpus(amount: f64) -> Resources {
    amounts(amount, 0.0)
}

/// Trials that asked for one CPU each and hold so many.
fn holding(now: &[f64]) -> Vec<Holding> {
    let one = |(trial, now): (u64, &f64)| Holding { trial: TrialId(trial), base: cpus(1.0), now: cpus(*now) };
    (0..).zip(now).map(one).collect()
}

#[test]
fn what_is_left_is_shared_evenly() {
    let plain = Distribution::default();
    assert_eq!(plain.evenly(TrialId(0), &holding(&[1.0, 1.0]), &cpus(6.0)), Some(cpus(4.0)));
    assert_eq!(plain.evenly(TrialId(0), &holding(&[1.0, 1.0, 1.0]), &cpus(5.0)), Some(cpus(2.0)), "only whole ones");
    assert_eq!(
        plain.evenly(TrialId(0), &holding(&[1.0, 5.0]), &cpus(2.0)),
        Some(cpus(3.0)),
        "GROW-2: what is free now"
    );
    assert_eq!(
        plain.evenly(TrialId(1), &holding(&[1.0, 5.0]), &cpus(2.0)),
        Some(cpus(4.0)),
        "and the other one shrinks"
    );
    assert_eq!(plain.evenly(TrialId(0), &holding(&[1.0, 0.0, 0.0, 0.0]), &cpus(3.0)), Some(cpus(1.0)), "GROW-3");
    assert_eq!(plain.evenly(TrialId(9), &holding(&[1.0]), &cpus(3.0)), None);
    let reserved = Distribution { reserve: cpus(2.0), ..Distribution::default() };
    assert_eq!(reserved.evenly(TrialId(0), &holding(&[1.0, 1.0]), &cpus(6.0)), Some(cpus(3.0)), "GROW-3");
}

#[test]
fn cpus_and_gpus_grow_on_their_own_unless_said_otherwise() {
    let both = [Holding { trial: TrialId(0), base: amounts(1.0, 1.0), now: amounts(1.0, 1.0) }];
    assert_eq!(Distribution::default().evenly(TrialId(0), &both, &amounts(7.0, 1.0)), Some(amounts(8.0, 2.0)));
    assert_eq!(Distribution::default().evenly(TrialId(0), &holding(&[1.0]), &amounts(1.0, 4.0)), Some(cpus(2.0)));
    let together = Distribution { increase_by: amounts(2.0, 1.0), ..Distribution::default() };
    assert_eq!(together.evenly(TrialId(0), &both, &amounts(7.0, 2.0)), Some(amounts(5.0, 3.0)));
    let once = Distribution { increase_by_times: Some(1), ..together };
    assert_eq!(once.evenly(TrialId(0), &both, &amounts(7.0, 2.0)), Some(amounts(3.0, 2.0)));
}

#[test]
fn only_the_top_one_grows_and_the_others_have_what_they_asked_for() {
    let plain = Distribution::default();
    let top = TrialId(1);
    assert_eq!(plain.to_the_top(top, top, &holding(&[1.0, 1.0]), &cpus(6.0)), Some(cpus(7.0)));
    assert_eq!(plain.to_the_top(TrialId(0), top, &holding(&[4.0, 1.0]), &cpus(1.0)), Some(cpus(1.0)), "GROW-1");
}

#[test]
fn a_trial_that_goes_on_gets_its_part() {
    let allocation =
        Allocation::ToTheTop { distribution: Distribution::default(), metric: "score".to_owned(), mode: Mode::Min };
    let mut scheduler = ResourceChanging::new(AnyScheduler::Fifo(Fifo::default()), allocation);
    add(&mut scheduler, 0..2);
    assert_eq!(tell(&mut scheduler, 0, 1.0, 5.0), Decision::Continue, "nobody has said who holds what");
    scheduler.on_resources(&holding(&[1.0, 1.0]), &cpus(2.0));
    assert_eq!(tell(&mut scheduler, 1, 1.0, 4.0), Decision::Resize(cpus(3.0)));
    scheduler.on_resources(&holding(&[1.0, 3.0]), &cpus(0.0));
    assert_eq!(tell(&mut scheduler, 0, 2.0, 4.5), Decision::Continue);
    assert_eq!(tell(&mut scheduler, 1, 2.0, 4.0), Decision::Continue, "it has its part");
    scheduler.on_trial_failed(TrialId(1));
    scheduler.on_resources(&holding(&[1.0]), &cpus(3.0));
    assert_eq!(tell(&mut scheduler, 0, 3.0, 4.5), Decision::Resize(cpus(4.0)));
    assert!(scheduler.describe().contains("2 times"), "{}", scheduler.describe());
}
