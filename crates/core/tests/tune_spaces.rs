//! Spaces: what their domains hold, what they refuse, and that they can be saved.

use carril_core::tune::random::Rng;
use carril_core::tune::space::{Domain, Node, SpaceError, unresolved_index, unresolved_value};
use carril_types::{Metrics, Value};
use proptest::prelude::*;

fn numbers(domain: &Domain, count: usize) -> Vec<f64> {
    let mut rng = Rng::new(7);
    (0..count).map(|_| domain.sample(&mut rng).as_f64().expect("a number")).collect()
}

fn text(text: &str) -> Node {
    Node::Constant(Value::Text(text.to_owned()))
}

/// The share of samples below a value.
fn share_below(domain: &Domain, bound: f64) -> f64 {
    numbers(domain, 20_000).iter().filter(|number| **number < bound).count() as f64 / 20_000.0
}

fn all_of(domain: Domain) -> Vec<f64> {
    let mut seen = numbers(&domain, 5_000);
    seen.sort_by(f64::total_cmp);
    seen.dedup();
    seen
}

#[test]
fn the_upper_bound_is_exclusive_without_a_step_and_inclusive_with_one() {
    assert_eq!(all_of(Domain::randint(-2, 2).unwrap()), [-2.0, -1.0, 0.0, 1.0]);
    assert_eq!(all_of(Domain::qrandint(-2, 2, 1).unwrap()), [-2.0, -1.0, 0.0, 1.0], "a step of 1 is none");
    assert_eq!(all_of(Domain::qrandint(1, 12, 4).unwrap()), [4.0, 8.0, 12.0]);
    assert_eq!(all_of(Domain::lograndint(1, 4).unwrap()), [1.0, 2.0, 3.0]);
    assert_eq!(all_of(Domain::qlograndint(2, 8, 2).unwrap()), [2.0, 4.0, 6.0, 8.0]);
    assert_eq!(all_of(Domain::quniform(0.0, 0.3, 0.1).unwrap()), [0.0, 0.1, 0.2, 0.3]);
    assert_eq!(all_of(Domain::quniform(0.0, 2.0, 1.0).unwrap()), [0.0, 1.0, 2.0], "also a step of 1 rounds");
    assert_eq!(all_of(Domain::qloguniform(1.0, 2.0, 0.5).unwrap()), [1.0, 1.5, 2.0]);
    assert!(all_of(Domain::uniform(1.0, 1.0_f64.next_up()).unwrap()) == [1.0]);
}

#[test]
fn samples_are_spread_as_their_names_say() {
    let near = |share: f64, expected: f64| (share - expected).abs() < 0.015;
    assert!(near(share_below(&Domain::uniform(-1.0, 3.0).unwrap(), 0.0), 0.25));
    assert!(near(share_below(&Domain::loguniform(1e-4, 1.0).unwrap(), 1e-3), 0.25));
    assert!(near(share_below(&Domain::randint(0, 10).unwrap(), 3.0), 0.3));
    assert!(near(share_below(&Domain::qrandint(0, 30, 10).unwrap(), 5.0), 0.25), "the ends are as likely as the rest");
    assert!(near(share_below(&Domain::quniform(0.0, 3.0, 1.0).unwrap(), 0.5), 0.25));
    assert!(near(share_below(&Domain::lograndint(1, 100).unwrap(), 10.0), 0.5));
    assert!(near(share_below(&Domain::randn(5.0, 2.0).unwrap(), 3.0), 0.1587));
    assert!(near(share_below(&Domain::qrandn(0.0, 1.0, 0.5).unwrap(), -0.75), 0.2266));
}

#[test]
fn a_mistake_is_said_in_one_sentence() {
    let said = |result: Result<Domain, SpaceError>| result.expect_err("refused").to_string();
    assert_eq!(said(Domain::uniform(2.0, 1.0)), "the lower bound 2 of `uniform` is not below the upper bound 1");
    assert_eq!(said(Domain::randint(3, 3)), "the lower bound 3 of `randint` is not below the upper bound 3");
    assert_eq!(said(Domain::loguniform(0.0, 1.0)), "`lower` of `loguniform` is 0, and has to be above 0");
    assert_eq!(said(Domain::lograndint(-1, 5)), "`lower` of `lograndint` is -1, and has to be above 0");
    assert_eq!(said(Domain::uniform(0.0, f64::INFINITY)), "`upper` of `uniform` is inf, which is not a finite number");
    assert_eq!(said(Domain::quniform(0.1, 0.2, 1.0)), "no multiple of `q=1` of `quniform` lies between 0.1 and 0.2");
    assert_eq!(said(Domain::qrandint(5, 9, 10)), "no multiple of `q=10` of `qrandint` lies between 5 and 9");
    assert_eq!(said(Domain::quniform(0.0, 1.0, 0.0)), "`q` of `quniform` is 0, and has to be above 0");
    assert_eq!(said(Domain::randn(0.0, -1.0)), "`sd` of `randn` is -1, and has to be above 0");
    assert_eq!(said(Domain::choice(vec![])), "`choice` has nothing to choose from");
    let grid = Node::Map(vec![("b".into(), Node::grid(vec![text("x")]).unwrap())]);
    assert_eq!(said(Domain::choice(vec![grid])), "an option of `choice` holds a `grid_search` at `b`");
    assert_eq!(Node::grid(vec![]).expect_err("refused").to_string(), "`grid_search` has nothing to choose from");
}

#[test]
fn an_option_of_a_choice_may_be_a_tree_with_domains_and_functions_of_its_own() {
    let tree = Node::Map(vec![
        ("kind".into(), text("tree")),
        ("depth".into(), Node::Domain(Domain::randint(1, 3).unwrap())),
        ("seed".into(), Node::Unresolved(4)),
    ]);
    let domain = Domain::choice(vec![text("none"), tree]).unwrap();
    let mut rng = Rng::new(1);
    let samples: Vec<Value> = (0..100).map(|_| domain.sample(&mut rng)).collect();
    assert!(samples.iter().all(|sample| domain.contains(sample)));
    let Some(Value::Map(tree)) = samples.iter().find(|sample| matches!(sample, Value::Map(_))) else {
        panic!("the tree was never chosen")
    };
    assert_eq!(tree.0.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["kind", "depth", "seed"]);
    assert_eq!(tree.get("seed").and_then(unresolved_index), Some(4));
    let other = Value::Map(Metrics(vec![("kind".into(), Value::Text("tree".into())), ("depth".into(), Value::Int(3))]));
    assert!(!domain.contains(&other), "the upper bound, and no seed");
}

#[test]
fn only_the_stand_in_stands_for_a_function() {
    assert_eq!(unresolved_index(&unresolved_value(3)), Some(3));
    for other in [Value::Int(3), Value::Map(Metrics(vec![("a".into(), Value::Int(3))])), Value::Map(Metrics::default())]
    {
        assert_eq!(unresolved_index(&other), None);
    }
}

/// Arguments of every domain; those that the constructor refuses are left out.
fn domain() -> impl Strategy<Value = Domain> {
    let low = prop_oneof![-1e3..1e3, Just(0.0), 1e-9..1e-3];
    let real = (0..6, low, 1e-6..1e4, 1e-3..10.0).prop_filter_map("refused", |(kind, low, width, q)| {
        let low: f64 = low;
        match kind {
            0 => Domain::uniform(low, low + width),
            1 => Domain::quniform(low, low + width, q),
            2 => Domain::loguniform(low.abs(), low.abs() + width),
            3 => Domain::qloguniform(low.abs(), low.abs() + width, q),
            4 => Domain::randn(low, width),
            _ => Domain::qrandn(low, width, q),
        }
        .ok()
    });
    let integer = (0..4, -1_000..1_000_i64, 1..10_000_i64, 1..50_i64);
    let integer = integer.prop_filter_map("refused", |(kind, low, width, q)| {
        match kind {
            0 => Domain::randint(low, low + width),
            1 => Domain::qrandint(low, low + width, q),
            2 => Domain::lograndint(low.abs(), low.abs() + width),
            _ => Domain::qlograndint(low.abs(), low.abs() + width, q),
        }
        .ok()
    });
    prop_oneof![real, integer]
}

proptest! {
    /// SPACE-1, RANDOM-2.
    #[test]
    fn every_sample_is_contained_and_a_seed_repeats_after_saving(domain in domain(), seed in any::<u64>()) {
        let saved = serde_json::to_string(&(&domain, Rng::new(seed))).unwrap();
        let (again, mut rng_again): (Domain, Rng) = serde_json::from_str(&saved).unwrap();
        prop_assert_eq!(&again, &domain);
        let mut rng = Rng::new(seed);
        for _ in 0..50 {
            let sample = domain.sample(&mut rng);
            prop_assert!(domain.contains(&sample), "{:?} does not contain {:?}", domain, sample);
            prop_assert_eq!(again.sample(&mut rng_again), sample);
        }
    }

    #[test]
    fn every_float_is_saved_exactly(bits in any::<u64>()) {
        let number = f64::from_bits(bits);
        let saved = serde_json::to_string(&Value::Float(number)).unwrap();
        let Value::Float(again) = serde_json::from_str(&saved).unwrap() else { panic!("{saved}") };
        prop_assert!(again == number || again.is_nan() && number.is_nan());
    }

    #[test]
    fn whole_numbers_reach_from_end_to_end(low in any::<i64>(), high in any::<i64>(), seed in any::<u64>()) {
        if let Ok(domain) = Domain::randint(low, high) {
            let Value::Int(drawn) = domain.sample(&mut Rng::new(seed)) else { panic!("not an integer") };
            prop_assert!((low..high).contains(&drawn));
        }
    }
}
