use std::collections::BTreeMap;

use carril_core::tune::random::Rng;
use carril_core::tune::scheduler::{
    AnyScheduler, Bound, Decision, Factor, Mutation, MutationOptions, NewConfig, Pbt, PbtOptions, Policy, Replay,
    Scheduler,
};
use carril_core::tune::space::Domain;
use carril_core::tune::{Mode, TrialId};
use carril_types::{Metrics, Value};
use proptest::prelude::*;

use crate::world::World;
use crate::{ids, report, says, target, tell};

fn options() -> PbtOptions {
    PbtOptions { perturbation_interval: 1.0, ..PbtOptions::new(target(Mode::Max)) }
}

fn config(items: &[(&str, Value)]) -> Metrics {
    Metrics(items.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
}

fn one(key: &str, mutation: Mutation) -> MutationOptions {
    MutationOptions::new(vec![(key.to_owned(), mutation)])
}

fn uniform() -> Mutation {
    Mutation::Domain(Domain::uniform(0.0, 10.0).unwrap())
}

fn population(options: PbtOptions, mutations: MutationOptions, configs: &[Metrics]) -> Pbt {
    let mut pbt = Pbt::new(options, mutations).unwrap();
    for (trial, config) in (0..).zip(configs) {
        assert_eq!(pbt.on_trial_added(TrialId(trial), config), None);
        assert_eq!(pbt.choose(&ids(&[trial]), &[]), Some(TrialId(trial)));
    }
    pbt
}

/// Trial 0 is the worst of two, and goes on from trial 1, whose config is given.
fn explored(mutations: MutationOptions, source: Metrics, seed: u64) -> NewConfig {
    let mut pbt = population(PbtOptions { seed, ..options() }, mutations, &[source.clone(), source]);
    assert_eq!(tell(&mut pbt, 1, 1.0, 1.0), Decision::Continue);
    match tell(&mut pbt, 0, 1.0, 0.0) {
        Decision::Exploit { from: TrialId(1), with } => with,
        other => panic!("the worse of two goes on from the better one, and not {other:?}"),
    }
}

#[test]
fn the_worst_go_on_from_the_best() {
    let configs: Vec<Metrics> = (0..8).map(|x| config(&[("x", Value::Float(f64::from(x)))])).collect();
    let mut pbt = population(options(), one("x", uniform()), &configs);
    for trial in 1..8 {
        assert_eq!(tell(&mut pbt, trial, 0.5, 0.0), Decision::Continue, "no interval is over");
    }
    for trial in (2..8).rev() {
        let worst_so_far = trial < 7;
        let decision = tell(&mut pbt, trial, 1.0, trial as f64);
        assert_eq!(matches!(decision, Decision::Exploit { .. }), worst_so_far, "the last of those compared");
    }
    assert_eq!(tell(&mut pbt, 0, 1.0, 6.5), Decision::Pause, "not among the two worst of seven, and those wait");
    assert_eq!(pbt.quantiles(), (ids(&[2, 3]), ids(&[0, 7])), "PBT-1");
    assert!(pbt.describe().contains("8 trials, 5 went on"), "{}", pbt.describe());
}

#[test]
fn nothing_is_replaced_before_the_burn_in_is_over_or_without_a_quantile() {
    let configs = [config(&[("x", Value::Float(1.0))]), config(&[("x", Value::Float(1.0))])];
    let late = PbtOptions { burn_in_period: 5.0, ..options() };
    let mut pbt = population(late, one("x", uniform()), &configs);
    for time in 1..5 {
        tell(&mut pbt, 1, f64::from(time), 1.0);
        assert_eq!(tell(&mut pbt, 0, f64::from(time), 0.0), Decision::Continue);
    }
    tell(&mut pbt, 1, 5.0, 1.0);
    assert!(matches!(tell(&mut pbt, 0, 5.0, 0.0), Decision::Exploit { .. }));
    let mut none = population(PbtOptions { quantile_fraction: 0.0, ..options() }, one("x", uniform()), &configs);
    tell(&mut none, 1, 1.0, 1.0);
    assert_eq!(tell(&mut none, 0, 1.0, 0.0), Decision::Continue);
}

#[test]
fn a_list_moves_to_a_neighbour_and_stays_at_its_ends() {
    let list = || Mutation::Choices([1, 2, 4, 8].map(Value::Int).to_vec());
    let never = |mutations| MutationOptions { resample_probability: 0.0, ..mutations };
    let moved = |from: i64| {
        let config = config(&[("x", Value::Int(from))]);
        let all = (0..20).map(|seed| explored(never(one("x", list())), config.clone(), seed).config);
        let mut all: Vec<f64> = all.map(|config| config.get("x").unwrap().as_f64().unwrap()).collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        all
    };
    assert_eq!(moved(2), [1.0, 4.0]);
    assert_eq!(moved(1), [1.0, 2.0]);
    assert_eq!(moved(8), [4.0, 8.0]);
    assert_eq!(moved(3), [1.0, 2.0, 4.0, 8.0], "what is not in the list is resampled");
}

#[test]
fn numbers_are_multiplied_and_whole_numbers_stay_whole() {
    let never = |mutation| MutationOptions { resample_probability: 0.0, ..one("x", mutation) };
    for seed in 0..20 {
        let with =
            |mutation, old| explored(never(mutation), config(&[("x", old)]), seed).config.get("x").cloned().unwrap();
        assert!([Value::Float(6.0), Value::Float(4.0)].contains(&with(uniform(), Value::Float(5.0))));
        let bounded = with(uniform(), Value::Float(9.5)).as_f64().unwrap();
        assert!(bounded == 7.6000000000000005 || (9.99..10.0).contains(&bounded), "PBT-2: {bounded}");
        let integer = || Mutation::Domain(Domain::randint(1, 11).unwrap());
        assert!([Value::Int(8), Value::Int(6)].contains(&with(integer(), Value::Int(7))), "8.4 and 5.6");
        assert!([Value::Int(10), Value::Int(8)].contains(&with(integer(), Value::Int(10))), "PBT-2");
        assert!([Value::Int(12), Value::Int(8)].contains(&with(Mutation::Ask, Value::Int(10))));
        assert_eq!(with(Mutation::Ask, Value::Bool(true)), Value::Bool(true));
    }
}

#[test]
fn what_only_the_user_can_draw_is_asked() {
    let always = MutationOptions { resample_probability: 1.0, ..one("x", Mutation::Ask) };
    let with = explored(always, config(&[("x", Value::Float(5.0)), ("y", Value::Int(1))]), 0);
    assert_eq!(with.ask, [["x"]]);
    assert_eq!(with.config.get("y"), Some(&Value::Int(1)), "the rest is the source's");
}

#[test]
fn nested_values_are_changed_where_they_are() {
    let inner = vec![("rate".to_owned(), uniform()), ("asked".to_owned(), Mutation::Ask)];
    let always = MutationOptions { resample_probability: 1.0, ..one("model", Mutation::Map(inner)) };
    let model = config(&[("rate", Value::Float(1.0)), ("asked", Value::Int(1)), ("depth", Value::Int(3))]);
    let with = explored(always, config(&[("model", Value::Map(model))]), 0);
    let Some(Value::Map(model)) = with.config.get("model") else { panic!("the shape stays") };
    assert_ne!(model.get("rate"), Some(&Value::Float(1.0)));
    assert_eq!(model.get("depth"), Some(&Value::Int(3)));
    assert_eq!(with.ask, [["model", "asked"]]);
}

#[test]
fn what_a_config_lacks_is_drawn_when_the_trial_is_added() {
    let mutations = MutationOptions::new(vec![("x".to_owned(), uniform()), ("y".to_owned(), Mutation::Ask)]);
    let mut pbt = Pbt::new(options(), mutations).unwrap();
    let with = pbt.on_trial_added(TrialId(0), &config(&[("z", Value::Int(1))])).unwrap();
    assert!(with.config.get("x").unwrap().as_f64().is_some_and(|x| (0.0..10.0).contains(&x)));
    assert_eq!(with.ask, [["y"]]);
}

#[test]
fn while_others_wait_trials_take_turns_and_the_least_trained_is_next() {
    let mut pbt = Pbt::new(options(), one("x", uniform())).unwrap();
    for trial in 0..3 {
        pbt.on_trial_added(TrialId(trial), &config(&[("x", Value::Float(1.0))]));
    }
    assert_eq!(pbt.choose(&ids(&[0, 1, 2]), &[]), Some(TrialId(0)));
    assert_eq!(tell(&mut pbt, 0, 1.0, 1.0), Decision::Pause, "PBT-5");
    assert_eq!(pbt.choose(&ids(&[1, 2]), &ids(&[0])), Some(TrialId(1)));
    assert_eq!(tell(&mut pbt, 1, 3.0, 2.0), Decision::Pause);
    assert_eq!(pbt.choose(&ids(&[2]), &ids(&[0, 1])), Some(TrialId(2)));
    assert_eq!(pbt.choose(&[], &ids(&[1, 0])), Some(TrialId(0)), "PBT-5");
    assert_eq!(pbt.choose(&[], &ids(&[1])), Some(TrialId(1)));
    assert_eq!(tell(&mut pbt, 1, 4.0, 2.0), Decision::Continue, "nobody waits");
}

#[test]
fn in_step_all_are_compared_at_once_and_one_that_ends_keeps_nobody_waiting() {
    let configs: Vec<Metrics> = (0..4).map(|x| config(&[("x", Value::Float(f64::from(x)))])).collect();
    let mut pbt = population(PbtOptions { synch: true, ..options() }, one("x", uniform()), &configs);
    assert_eq!(tell(&mut pbt, 0, 1.0, 0.0), Decision::Pause, "PBT-3");
    assert_eq!(tell(&mut pbt, 1, 1.0, 1.0), Decision::Pause);
    assert_eq!(tell(&mut pbt, 2, 1.0, 2.0), Decision::Pause);
    assert_eq!(pbt.choose(&[], &ids(&[0, 1, 2])), None, "they wait for trial 3");
    assert_eq!(tell(&mut pbt, 3, 1.0, 3.0), Decision::Continue);
    let orders = pbt.take_orders();
    let [(TrialId(0), Decision::Exploit { from: TrialId(3), .. }, _)] = orders.as_slice() else {
        panic!("the worst of four goes on from the best: {orders:?}")
    };
    for trial in 0..3 {
        assert_eq!(pbt.choose(&[], &ids(&[trial])), Some(TrialId(trial)), "the next interval");
        assert_eq!(tell(&mut pbt, trial, 2.0, trial as f64), Decision::Pause);
    }
    pbt.on_trial_failed(TrialId(3));
    let orders = pbt.take_orders();
    assert!(matches!(orders.as_slice(), [(TrialId(0), Decision::Exploit { from: TrialId(2), .. }, _)]), "{orders:?}");
}

#[test]
fn in_step_those_that_all_came_too_far_go_on() {
    let configs = [config(&[("x", Value::Float(1.0))]), config(&[("x", Value::Float(2.0))])];
    let mut pbt = population(PbtOptions { synch: true, ..options() }, one("x", uniform()), &configs);
    assert_eq!(tell(&mut pbt, 0, 5.0, 1.0), Decision::Pause);
    assert!(matches!(tell(&mut pbt, 1, 5.0, 0.0), Decision::Exploit { .. }));
    assert_eq!(pbt.choose(&[], &ids(&[0, 1])), Some(TrialId(0)), "PBT-3: nobody is missing, and nobody is waited for");
    assert_eq!(pbt.choose(&[], &ids(&[1])), Some(TrialId(1)));
    assert_eq!(tell(&mut pbt, 0, 5.5, 1.0), Decision::Continue);
    assert_eq!(tell(&mut pbt, 0, 6.0, 1.0), Decision::Pause);
}

#[test]
fn in_step_nobody_is_compared_before_its_interval_is_over() {
    let configs = [config(&[("x", Value::Float(1.0))]), config(&[("x", Value::Float(2.0))])];
    let four = PbtOptions { synch: true, perturbation_interval: 4.0, ..options() };
    let mut pbt = population(four, one("x", uniform()), &configs);
    for (time, is_over) in [(3.0, false), (6.0, true), (9.0, false), (12.0, true), (15.0, false), (18.0, true)] {
        let waits = if is_over { Decision::Pause } else { Decision::Continue };
        assert_eq!(tell(&mut pbt, 0, time, 1.0), waits, "at {time}");
        assert_eq!(matches!(tell(&mut pbt, 1, time, 0.0), Decision::Exploit { .. }), is_over, "at {time}");
        pbt.choose(&[], &ids(&[0]));
        pbt.choose(&[], &ids(&[1]));
    }
}

#[test]
fn a_trial_that_could_not_go_on_from_another_is_as_it_was() {
    let configs = [config(&[("x", Value::Float(1.0))]), config(&[("x", Value::Float(2.0))])];
    let mut pbt = population(options(), one("x", uniform()), &configs);
    tell(&mut pbt, 1, 1.0, 1.0);
    assert!(matches!(tell(&mut pbt, 0, 1.0, 0.0), Decision::Exploit { .. }));
    pbt.on_exploit_refused(TrialId(0));
    assert!(pbt.take_policies().is_empty());
    tell(&mut pbt, 0, 2.0, 5.0);
    assert!(matches!(tell(&mut pbt, 1, 2.0, 1.0), Decision::Exploit { .. }));
    assert_eq!(pbt.take_policies()[0].old_config, configs[0], "trial 0 has its own config still");
}

#[test]
fn a_change_is_logged_with_what_the_user_made_of_it() {
    let configs = [config(&[("x", Value::Float(1.0))]), config(&[("x", Value::Float(2.0))])];
    let mut pbt = population(options(), one("x", Mutation::Ask), &configs);
    tell(&mut pbt, 1, 4.0, 1.0);
    assert!(matches!(tell(&mut pbt, 0, 3.0, 0.0), Decision::Exploit { .. }));
    let new_config = config(&[("x", Value::Float(7.0))]);
    pbt.on_config(TrialId(0), &new_config);
    let [trial, from] = [TrialId(0), TrialId(1)];
    let logged = Policy { trial, from, trial_step: 3, from_step: 4, old_config: configs[1].clone(), new_config };
    assert_eq!(pbt.take_policies(), [logged]);
    assert!(pbt.take_policies().is_empty());
}

#[test]
fn a_trial_is_played_again_along_its_line() {
    let x = |x: i64| config(&[("x", Value::Int(x))]);
    let policy = |trial, from, from_step, old, new| {
        let [trial, from] = [TrialId(trial), TrialId(from)];
        Policy { trial, from, trial_step: 0, from_step, old_config: x(old), new_config: x(new) }
    };
    let log = [policy(0, 2, 5, 20, 1), policy(1, 2, 10, 20, 21), policy(2, 0, 12, 1, 9), policy(0, 1, 20, 21, 30)];
    let mut replay = Replay::of(&log, TrialId(0)).unwrap();
    assert_eq!(replay.start(), &x(20), "REPLAY-1: trial 2 as it began");
    assert_eq!(replay.changes(), [(10, x(21)), (20, x(30))]);
    let with = replay.on_trial_added(TrialId(7), &config(&[("y", Value::Int(1))])).unwrap();
    assert_eq!(with.config, config(&[("y", Value::Int(1)), ("x", Value::Int(20))]));
    assert_eq!(tell(&mut replay, 7, 9.0, 0.0), Decision::Continue);
    let Decision::Exploit { from: TrialId(7), with } = tell(&mut replay, 7, 10.0, 0.0) else { panic!("it is due") };
    assert_eq!(with.config, x(21));
    assert_eq!(tell(&mut replay, 7, 11.0, 0.0), Decision::Continue);
    assert!(matches!(tell(&mut replay, 7, 25.0, 0.0), Decision::Exploit { with, .. } if with.config == x(30)));
    says(Replay::of(&log, TrialId(5)), "`policy_file` holds no change of this trial");
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let fraction = PbtOptions { quantile_fraction: 0.6, ..options() };
    says(Pbt::new(fraction, one("x", uniform())), "`quantile_fraction` is `0.6`: it must be between 0 and 0.5");
    let interval = PbtOptions { perturbation_interval: 0.0, ..options() };
    let sentence = "`perturbation_interval` is `0`: it must be a finite number above 0";
    says(Pbt::new(interval, one("x", uniform())), sentence);
    let nothing = "`hyperparam_mutations` is empty: it must name at least one value of the config";
    says(Pbt::new(options(), MutationOptions::new(Vec::new())), nothing);
    let empty = one("model", Mutation::Map(vec![("x".to_owned(), Mutation::Choices(Vec::new()))]));
    says(Pbt::new(options(), empty), "`model/x` has an empty list of values to choose from");
    let factors = MutationOptions { perturbation_factors: vec![Factor(0.0)], ..one("x", uniform()) };
    says(Pbt::new(options(), factors), "`perturbation_factors` is `0`: it must be finite numbers above 0");
    let bounds = vec![Bound { path: vec!["x".to_owned()], low: 2.0, high: 1.0 }];
    says(Pbt::pb2(options(), bounds), "`x` needs two finite bounds, the lower one first");
}

/// The gain is the greater the nearer `x` is to 7, at all times.
#[test]
fn the_bandit_finds_what_gains_most_and_stays_between_its_bounds() {
    let bounds = || vec![Bound { path: vec!["x".to_owned()], low: 0.0, high: 10.0 }];
    let gain = |config: &Metrics| 1.0 - (config.get("x").unwrap().as_f64().unwrap() - 7.0).abs() / 10.0;
    let mut distances = Vec::new();
    for seed in 0..5 {
        let mut pbt = Pbt::pb2(PbtOptions { seed, synch: true, ..options() }, bounds()).unwrap();
        let mut configs: BTreeMap<u64, Metrics> = BTreeMap::new();
        let mut scores = [0.0; 8];
        for trial in 0..8 {
            configs.insert(trial, pbt.on_trial_added(TrialId(trial), &Metrics::default()).unwrap().config);
        }
        for round in 1..20 {
            let mut decided = Vec::new();
            for trial in 0..8 {
                scores[trial as usize] += gain(&configs[&trial]);
                let (decision, _) = pbt.on_result(TrialId(trial), &report(f64::from(round), scores[trial as usize]));
                decided.push((TrialId(trial), decision));
            }
            decided.extend(pbt.take_orders().into_iter().map(|(trial, decision, _)| (trial, decision)));
            for (TrialId(trial), decision) in decided {
                let Decision::Exploit { from, with } = decision else { continue };
                let x = with.config.get("x").unwrap().as_f64().unwrap();
                assert!((0.0..=10.0).contains(&x), "PB2-1");
                if round > 10 {
                    distances.push((x - 7.0).abs());
                }
                scores[trial as usize] = scores[from.0 as usize];
                configs.insert(trial, with.config);
            }
        }
    }
    let near = distances.iter().filter(|distance| **distance < 1.0).count();
    let all = distances.len();
    // It goes on to look elsewhere now and then: what it saw there long ago may no longer hold.
    assert!(2 * near > all, "at random a fifth would be near, and {near} of {all} are: {distances:?}");
}

#[test]
fn the_bandit_keeps_whole_numbers_whole() {
    let bounds = vec![Bound { path: vec!["n".to_owned()], low: 1.5, high: 8.5 }];
    let mut pbt = Pbt::pb2(options(), bounds).unwrap();
    for trial in 0..2 {
        assert_eq!(pbt.on_trial_added(TrialId(trial), &config(&[("n", Value::Int(4))])), None);
        pbt.choose(&ids(&[trial]), &[]);
    }
    tell(&mut pbt, 1, 1.0, 1.0);
    let Decision::Exploit { with, .. } = tell(&mut pbt, 0, 1.0, 0.0) else { panic!("it is the worse one") };
    assert!(matches!(with.config.get("n"), Some(Value::Int(2..=8))), "PB2-1: {with:?}");
}

/// Who may be replaced and who may be copied, by the definition.
fn quantiles(scores: &BTreeMap<u64, f64>, fraction: f64) -> (Vec<u64>, Vec<u64>) {
    let worst = |score: &f64| if score.is_nan() { f64::NEG_INFINITY } else { *score };
    let mut ranked: Vec<(u64, f64)> = scores.iter().map(|(trial, score)| (*trial, worst(score))).collect();
    ranked.sort_by(|left, right| left.1.total_cmp(&right.1).then(left.0.cmp(&right.0)));
    let share = ((ranked.len() as f64 * fraction).ceil() as usize).min(ranked.len() / 2);
    let trials: Vec<u64> = ranked.into_iter().map(|(trial, _)| trial).collect();
    (trials[..share].to_vec(), trials[trials.len() - share..].to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn only_the_worst_are_replaced_only_by_the_best_and_within_their_domains(
        seed in any::<u64>(),
        fraction in 0.0_f64..=0.5,
        trials in 2_u64..12,
    ) {
        let domains = [
            ("a", Domain::uniform(-1.0, 1.0).unwrap()),
            ("b", Domain::loguniform(1e-5, 1e-1).unwrap()),
            ("c", Domain::qrandint(8, 64, 8).unwrap()),
            ("d", Domain::lograndint(1, 100).unwrap()),
            ("e", Domain::quniform(0.0, 1.0, 0.1).unwrap()),
        ];
        let mutations = domains.iter().map(|(key, domain)| ((*key).to_owned(), Mutation::Domain(domain.clone())));
        let options = PbtOptions { quantile_fraction: fraction, seed, ..options() };
        let mut pbt = Pbt::new(options, MutationOptions::new(mutations.collect())).unwrap();
        for trial in 0..trials {
            pbt.on_trial_added(TrialId(trial), &Metrics::default());
            pbt.choose(&ids(&[trial]), &[]);
        }
        let mut rng = Rng::new(seed);
        let (mut scores, mut times) = (BTreeMap::new(), vec![0.0; trials as usize]);
        for _ in 0..60 {
            let trial = rng.below(trials);
            times[trial as usize] += 1.0;
            let score = rng.f64();
            scores.insert(trial, score);
            let decision = tell(&mut pbt, trial, times[trial as usize], score);
            let (worst, best) = quantiles(&scores, fraction);
            match decision {
                Decision::Exploit { from, with } => {
                    prop_assert!(worst.contains(&trial) && best.contains(&from.0), "PBT-1");
                    for (key, domain) in &domains {
                        prop_assert!(domain.contains(with.config.get(key).unwrap()), "PBT-2: {} in {:?}", key, with);
                    }
                    times[trial as usize] = times[from.0 as usize];
                    pbt.choose(&[], &ids(&[trial]));
                }
                other => {
                    prop_assert_eq!(other, Decision::Continue);
                    prop_assert!(!worst.contains(&trial), "PBT-1");
                }
            }
        }
    }

    #[test]
    fn in_step_nobody_is_further_than_one_interval_from_the_others(seed in 0_u64..10_000, trials in 2_u64..10) {
        let options = PbtOptions { synch: true, seed, ..options() };
        let pbt = Pbt::new(options, one("x", uniform())).unwrap();
        let mut world = World::new(AnyScheduler::Pbt(pbt), trials, seed);
        world.failures = false;
        for _ in 0..200 {
            world.step(|trial, time, _| time + trial.0 as f64);
            let times = world.live_times();
            // Those that are not made yet are not waited for: the world makes its trials as it has places.
            if times.len() as u64 == trials {
                let first = times.iter().copied().fold(0.0, f64::max);
                prop_assert!(times.iter().all(|time| first - time <= 1.0), "PBT-3: {:?}", times);
            }
        }
    }
}
