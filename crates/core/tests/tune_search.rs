//! Searchers: their order, their limits, and that a seed, a save and a restore lead to the same future.

use carril_core::tune::search::{
    AnySearcher, Basic, BasicOptions, ConcurrencyLimiter, GaussianProcess, GaussianProcessOptions, Objective, Repeater,
    Searcher, Suggestion, TRIAL_INDEX, Tpe, TpeOptions,
};
use carril_core::tune::space::{Domain, Node};
use carril_core::tune::{Mode, TrialId};
use carril_types::{Metrics, Value};
use proptest::prelude::*;

fn int(value: i64) -> Node {
    Node::Constant(Value::Int(value))
}

fn map<const N: usize>(items: [(&str, Node); N]) -> Node {
    Node::Map(items.into_iter().map(|(key, node)| (key.to_owned(), node)).collect())
}

fn metrics<const N: usize>(items: [(&str, Value); N]) -> Metrics {
    Metrics(items.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn grid(values: &[i64]) -> Node {
    Node::grid(values.iter().map(|value| int(*value)).collect()).unwrap()
}

fn uniform() -> Node {
    Node::Domain(Domain::uniform(0.0, 1.0).unwrap())
}

fn objective(mode: Mode) -> Objective {
    Objective { metric: "score".to_owned(), mode }
}

fn score(value: f64) -> Metrics {
    metrics([("score", Value::Float(value))])
}

fn config(suggestion: Suggestion) -> Metrics {
    match suggestion {
        Suggestion::Config(config) => config,
        other => panic!("a config was expected, and not {other:?}"),
    }
}

/// All configs of a search that ends.
fn all(mut searcher: impl Searcher) -> Vec<Metrics> {
    let mut configs = Vec::new();
    while let Suggestion::Config(config) = searcher.suggest(TrialId(configs.len() as u64)) {
        configs.push(config);
        assert!(configs.len() < 1_000, "this search has an end");
    }
    configs
}

fn values(configs: &[Metrics], keys: &[&str]) -> Vec<Vec<i64>> {
    let number = |config: &Metrics, key: &&str| config.get(key).and_then(Value::as_f64).expect("a number") as i64;
    configs.iter().map(|config| keys.iter().map(|key| number(config, key)).collect()).collect()
}

fn basic(space: Node, options: BasicOptions) -> Basic {
    Basic::new(space, options).unwrap()
}

/// BASIC-1.
#[test]
fn the_first_grid_by_name_changes_fastest_and_samples_repeat_the_whole() {
    let space = map([("b", grid(&[1, 2])), ("a", grid(&[10, 20, 30])), ("c", int(7))]);
    let searcher = basic(space, BasicOptions { num_samples: Some(2), ..BasicOptions::default() });
    assert_eq!(searcher.remaining(), Some(12));
    let once: [[i64; 2]; 6] = [[1, 10], [1, 20], [1, 30], [2, 10], [2, 20], [2, 30]];
    assert_eq!(values(&all(searcher), &["b", "a"]), [once, once].concat());
}

#[test]
fn a_grid_within_an_option_of_a_grid_is_gone_through_with_that_option() {
    let nested = Node::grid(vec![int(1), map([("x", grid(&[5, 6]))])]).unwrap();
    let configs = all(basic(map([("a", nested), ("b", grid(&[0, 1]))]), BasicOptions::default()));
    let inner = |value| Value::Map(metrics([("x", Value::Int(value))]));
    let firsts: Vec<&Value> = configs.iter().map(|config| config.get("a").unwrap()).collect();
    let once = [&Value::Int(1), &inner(5), &inner(6)];
    assert_eq!(firsts, [once, once].concat());
}

/// SEARCH-4.
#[test]
fn points_come_first_count_as_samples_and_leave_their_grids_open() {
    let space = map([("a", grid(&[1, 2])), ("n", map([("b", Node::Domain(Domain::randint(0, 5).unwrap()))]))]);
    let inner = Value::Map(metrics([("b", Value::Int(99))]));
    let points = vec![metrics([("n", inner)]), metrics([("a", Value::Int(2)), ("n/b", Value::Int(98))])];
    let options = BasicOptions { num_samples: Some(3), points_to_evaluate: points, ..BasicOptions::default() };
    let searcher = basic(space.clone(), options);
    assert_eq!(searcher.remaining(), Some(5));
    let configs = all(searcher);
    assert_eq!(values(&configs, &["a"]), [[1_i64], [2], [2], [1], [2]]);
    let inner = |config: &Metrics| match config.get("n") {
        Some(Value::Map(inner)) => inner.get("b").and_then(Value::as_f64).expect("a number"),
        other => panic!("{other:?}"),
    };
    assert_eq!(configs.iter().take(3).map(inner).collect::<Vec<_>>(), [99.0, 99.0, 98.0]);
    assert!(configs.iter().skip(3).all(|config| inner(config) < 5.0));
    let wrong = BasicOptions { points_to_evaluate: vec![metrics([("c", Value::Int(1))])], ..BasicOptions::default() };
    let error = Basic::new(space, wrong).expect_err("refused").to_string();
    assert_eq!(error, "`points_to_evaluate[0]` names `c`, which the search space does not have");
}

/// BASIC-2.
#[test]
fn a_constant_grid_search_draws_once_for_all_combinations_of_a_sample() {
    let space = || map([("a", grid(&[1, 2, 3])), ("x", uniform())]);
    let draws = |constant_grid_search| {
        let options = BasicOptions { num_samples: Some(2), constant_grid_search, ..BasicOptions::default() };
        let mut draws: Vec<f64> = all(basic(space(), options)).iter().map(x).collect();
        draws.dedup();
        draws.len()
    };
    assert_eq!((draws(true), draws(false)), (2, 6));
}

fn x(config: &Metrics) -> f64 {
    config.get("x").and_then(Value::as_f64).expect("a number")
}

#[test]
fn without_a_number_of_samples_there_is_no_end() {
    let mut searcher = basic(map([("x", uniform())]), BasicOptions { num_samples: None, ..BasicOptions::default() });
    assert!((0..5_000).all(|trial| matches!(searcher.suggest(TrialId(trial)), Suggestion::Config(_))));
    assert_eq!(searcher.remaining(), None);
}

#[test]
fn a_search_that_learns_refuses_grids_and_says_what_to_write() {
    let space = map([("a", map([("b", grid(&[1, 2]))]))]);
    let error = Tpe::new(space, objective(Mode::Min), TpeOptions::default()).expect_err("refused");
    assert_eq!(error.to_string(), "this search cannot use the `grid_search` at `a/b`: write `choice`");
    let error = Tpe::new(int(1), objective(Mode::Min), TpeOptions::default()).expect_err("refused");
    assert_eq!(error.to_string(), "a search space is a dict of parameters by name");
}

/// A conditional space with a parameter of every kind.
fn mixed() -> Node {
    let net = map([
        ("rate", Node::Domain(Domain::loguniform(1e-5, 1.0).unwrap())),
        ("width", Node::Domain(Domain::qlograndint(8, 512, 8).unwrap())),
    ]);
    let tree = map([("depth", Node::Domain(Domain::randint(1, 20).unwrap())), ("f", Node::Unresolved(0))]);
    map([
        ("model", Node::Domain(Domain::choice(vec![net, tree, int(0)]).unwrap())),
        ("x", uniform()),
        ("n", Node::Domain(Domain::qrandn(0.0, 2.0, 0.5).unwrap())),
        ("list", Node::List(vec![int(1), Node::Domain(Domain::quniform(0.0, 2.0, 0.25).unwrap())])),
    ])
}

fn learners(mode: Mode, seed: u64, points: &[Metrics]) -> [AnySearcher; 2] {
    let tpe = TpeOptions { n_startup: 4, seed, points_to_evaluate: points.to_vec(), ..TpeOptions::default() };
    let process = GaussianProcessOptions { n_startup: 4, seed, points_to_evaluate: points.to_vec() };
    [
        AnySearcher::Tpe(Tpe::new(mixed(), objective(mode), tpe).unwrap()),
        AnySearcher::GaussianProcess(GaussianProcess::new(mixed(), objective(mode), process).unwrap()),
    ]
}

#[test]
fn every_suggestion_has_the_shape_of_its_space_and_lies_in_it() {
    for mut searcher in learners(Mode::Min, 3, &[]) {
        for trial in (0..40).map(TrialId) {
            let config = config(searcher.suggest(trial));
            assert!(mixed().matches(&Value::Map(config.clone())), "{config:?}");
            searcher.on_completed(trial, Some(&score(x(&config))), false);
        }
    }
}

#[test]
fn points_to_evaluate_come_first_even_from_outside_the_space() {
    let points = [metrics([("x", Value::Float(0.25))]), metrics([("x", Value::Float(7.0)), ("model", Value::Int(0))])];
    for mut searcher in learners(Mode::Min, 3, &points) {
        let first = config(searcher.suggest(TrialId(0)));
        assert!(x(&first) == 0.25 && mixed().matches(&Value::Map(first.clone())), "{first:?}");
        let second = config(searcher.suggest(TrialId(1)));
        assert_eq!((x(&second), second.get("model")), (7.0, Some(&Value::Int(0))));
        for trial in 2..20 {
            searcher.on_completed(TrialId(trial - 2), Some(&score(1.0)), false);
            assert!(x(&config(searcher.suggest(TrialId(trial)))) < 1.0);
        }
    }
}

#[test]
fn to_maximize_is_to_minimize_the_opposite() {
    for (mut low, mut high) in learners(Mode::Min, 5, &[]).into_iter().zip(learners(Mode::Max, 5, &[])) {
        for trial in (0..25).map(TrialId) {
            let config = config(low.suggest(trial));
            assert_eq!(high.suggest(trial), Suggestion::Config(config.clone()));
            low.on_completed(trial, Some(&score(x(&config))), false);
            high.on_completed(trial, Some(&score(-x(&config))), false);
        }
    }
}

/// SEARCH-3.
#[test]
fn failures_and_values_that_are_no_numbers_keep_a_search_away() {
    for mode in [Mode::Min, Mode::Max] {
        for mut searcher in learners(mode, 9, &[]) {
            let mut late = 0;
            for trial in 0..60 {
                let config = config(searcher.suggest(TrialId(trial)));
                let fails = x(&config) > 0.5;
                late += u32::from(fails && trial >= 30);
                match trial % 4 {
                    _ if !fails => searcher.on_completed(TrialId(trial), Some(&score(1.0)), false),
                    0 => searcher.on_completed(TrialId(trial), Some(&score(f64::NAN)), false),
                    1 => searcher.on_completed(TrialId(trial), Some(&score(f64::INFINITY)), false),
                    2 => searcher.on_completed(TrialId(trial), None, false),
                    _ => searcher.on_completed(TrialId(trial), Some(&score(1.0)), true),
                }
            }
            assert!(late < 12, "{late} of 30 where chance would have given 15");
        }
    }
}

#[test]
fn when_all_fail_the_search_goes_on_by_chance() {
    for mut searcher in learners(Mode::Max, 9, &[]) {
        for trial in (0..30).map(TrialId) {
            config(searcher.suggest(trial));
            searcher.on_completed(trial, None, true);
        }
    }
}

#[test]
fn suggestions_beside_trials_that_run_keep_apart() {
    let space = || map([("x", uniform())]);
    let tpe = Tpe::new(space(), objective(Mode::Min), TpeOptions::default()).unwrap();
    let process = GaussianProcess::new(space(), objective(Mode::Min), GaussianProcessOptions::default()).unwrap();
    for mut searcher in [AnySearcher::Tpe(tpe), AnySearcher::GaussianProcess(process)] {
        // So few trials of a function with so many valleys leave more than one place to look at.
        for trial in (0..10).map(TrialId) {
            let config = config(searcher.suggest(trial));
            searcher.on_completed(trial, Some(&score((25.0 * x(&config)).sin())), false);
        }
        let mut beside: Vec<f64> = (10..18).map(|trial| x(&config(searcher.suggest(TrialId(trial))))).collect();
        beside.sort_by(f64::total_cmp);
        assert!(beside.windows(2).all(|pair| pair[1] - pair[0] > 1e-6), "{beside:?}");
        assert!(beside[7] - beside[0] > 0.05, "{beside:?}");
    }
}

/// SEARCH-5, and the last report counts where the end has none.
#[test]
fn only_what_was_suggested_is_learnt_from() {
    for (mut one, mut other) in learners(Mode::Min, 11, &[]).into_iter().zip(learners(Mode::Min, 11, &[])) {
        for trial in 0..20 {
            let config = config(one.suggest(TrialId(trial)));
            assert_eq!(other.suggest(TrialId(trial)), Suggestion::Config(config.clone()));
            one.on_completed(TrialId(trial), Some(&score(x(&config))), false);
            other.on_completed(TrialId(trial + 1_000), Some(&score(-5.0)), false);
            other.on_result(TrialId(trial), &score(x(&config)));
            other.on_completed(TrialId(trial), None, false);
            other.on_completed(TrialId(trial), Some(&score(-5.0)), false);
        }
    }
}

#[test]
fn a_metric_is_found_within_maps() {
    let objective = Objective { metric: "a/b".to_owned(), mode: Mode::Max };
    let nested = metrics([("a", Value::Map(metrics([("b", Value::Int(3))])))]);
    assert_eq!(objective.loss(&nested), Some(-3.0));
    assert_eq!(objective.loss(&metrics([("a/b", Value::Float(2.0))])), Some(-2.0));
    assert_eq!(objective.loss(&metrics([("a", Value::Int(3))])), None);
}

/// Suggests its calls' number and writes down what it hears.
#[derive(Default)]
struct Recorder {
    suggested: i64,
    heard: Vec<(u64, Option<f64>, bool)>,
}

impl Searcher for &mut Recorder {
    fn suggest(&mut self, _trial: TrialId) -> Suggestion {
        self.suggested += 1;
        Suggestion::Config(metrics([("number", Value::Int(self.suggested))]))
    }

    fn on_result(&mut self, _trial: TrialId, _result: &Metrics) {}

    fn on_completed(&mut self, trial: TrialId, result: Option<&Metrics>, failed: bool) {
        let value = result.and_then(|result| result.get("score")).and_then(Value::as_f64);
        self.heard.push((trial.0, value, failed));
    }
}

/// LIMIT-1.
#[test]
fn a_limit_holds_back_until_a_trial_has_ended() {
    let mut recorder = Recorder::default();
    let mut limited = ConcurrencyLimiter::new(&mut recorder, 2, false).unwrap();
    config(limited.suggest(TrialId(0)));
    config(limited.suggest(TrialId(1)));
    assert_eq!(limited.suggest(TrialId(2)), Suggestion::NotNow);
    limited.on_completed(TrialId(7), None, true);
    assert_eq!(limited.suggest(TrialId(2)), Suggestion::NotNow, "a trial of somebody else");
    limited.on_completed(TrialId(0), None, true);
    config(limited.suggest(TrialId(2)));
    assert_eq!(recorder.heard, [(0, None, true)]);
    let error = ConcurrencyLimiter::new(&mut recorder, 0, false).err().expect("refused");
    assert_eq!(error.to_string(), "`max_concurrent` is 0, and has to be at least 1");
}

/// LIMIT-2.
#[test]
fn a_batch_is_told_of_when_all_of_it_have_ended() {
    let mut recorder = Recorder::default();
    let mut limited = ConcurrencyLimiter::new(&mut recorder, 2, true).unwrap();
    config(limited.suggest(TrialId(0)));
    config(limited.suggest(TrialId(1)));
    limited.on_completed(TrialId(1), Some(&score(1.0)), false);
    assert_eq!(limited.suggest(TrialId(2)), Suggestion::NotNow, "the batch has not ended");
    limited.on_completed(TrialId(0), None, true);
    config(limited.suggest(TrialId(2)));
    assert_eq!(recorder.heard, [(1, Some(1.0), false), (0, None, true)]);
}

/// REPEAT-1, REPEAT-2.
#[test]
fn repeats_share_a_config_and_give_their_mean() {
    let mut recorder = Recorder::default();
    let mut repeater = Repeater::new(&mut recorder, objective(Mode::Max), 3, true).unwrap();
    let configs: Vec<Metrics> = (0..7).map(|trial| config(repeater.suggest(TrialId(trial)))).collect();
    let numbers: [[i64; 2]; 7] = [[1, 0], [1, 1], [1, 2], [2, 0], [2, 1], [2, 2], [3, 0]];
    assert_eq!(values(&configs, &["number", TRIAL_INDEX]), numbers);
    repeater.on_completed(TrialId(1), Some(&score(2.0)), false);
    for trial in 3..6 {
        repeater.on_completed(TrialId(trial), None, true);
    }
    repeater.on_completed(TrialId(0), Some(&score(f64::NAN)), false);
    repeater.on_result(TrialId(2), &score(5.0));
    repeater.on_completed(TrialId(2), None, false);
    repeater.on_completed(TrialId(6), Some(&score(1.0)), false);
    assert_eq!(recorder.heard, [(3, None, true), (0, Some(3.5), false)]);
}

/// What may happen to a search.
#[derive(Clone, Copy, Debug)]
enum Step {
    Suggest,
    Report { trial: u64, value: f64 },
    Complete { trial: u64, value: Option<f64>, failed: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let value = prop_oneof![8 => -10.0..10.0, 1 => Just(f64::NAN), 1 => Just(f64::NEG_INFINITY)];
    let trial = 0..12_u64;
    prop_oneof![
        4 => Just(Step::Suggest),
        1 => (trial.clone(), value.clone()).prop_map(|(trial, value)| Step::Report { trial, value }),
        4 => (trial, prop::option::weighted(0.9, value), prop::bool::weighted(0.1))
            .prop_map(|(trial, value, failed)| Step::Complete { trial, value, failed }),
    ]
}

fn searchers(seed: u64) -> Vec<AnySearcher> {
    let options = BasicOptions { num_samples: Some(6), seed, constant_grid_search: true, ..BasicOptions::default() };
    let space = map([("a", grid(&[1, 2, 3])), ("x", uniform())]);
    let points = [metrics([("x", Value::Float(0.1))])];
    let limited =
        |searcher, batch| AnySearcher::Limited(Box::new(ConcurrencyLimiter::new(searcher, 3, batch).unwrap()));
    let [tpe, process] = learners(Mode::Max, seed, &points);
    let repeated = Repeater::new(tpe.clone(), objective(Mode::Max), 2, true).unwrap();
    vec![
        AnySearcher::Basic(basic(space, options)),
        limited(process.clone(), true),
        limited(AnySearcher::Repeated(Box::new(repeated)), false),
        tpe,
        process,
    ]
}

fn play(searcher: &mut AnySearcher, step: Step, next: &mut u64) -> Option<Suggestion> {
    match step {
        Step::Suggest => {
            *next += 1;
            return Some(searcher.suggest(TrialId(*next - 1)));
        }
        // The newest twelve trials are those that something happens to.
        Step::Report { trial, value } => searcher.on_result(TrialId(next.saturating_sub(trial)), &score(value)),
        Step::Complete { trial, value, failed } => {
            searcher.on_completed(TrialId(next.saturating_sub(trial)), value.map(score).as_ref(), failed);
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// SEARCH-1 and SEARCH-2: the saved one, the restored one and one that never stopped agree.
    #[test]
    fn saved_at_any_time_a_search_has_the_same_future(
        steps in prop::collection::vec(step(), 1..60), at in 0..60_usize, seed in 0..1_000_u64,
    ) {
        for (mut searcher, mut again) in searchers(seed).into_iter().zip(searchers(seed)) {
            let (mut next, mut next_again) = (0, 0);
            for (index, step) in steps.iter().enumerate() {
                if index == at {
                    let saved = serde_json::to_string(&searcher).unwrap();
                    searcher = serde_json::from_str(&saved).unwrap();
                    prop_assert_eq!(serde_json::to_string(&searcher).unwrap(), saved);
                }
                let (one, other) = (play(&mut searcher, *step, &mut next), play(&mut again, *step, &mut next_again));
                prop_assert_eq!(one, other);
            }
        }
    }
}

#[test]
fn what_an_earlier_search_has_tried_is_passed_over_as_often_as_it_was_tried() {
    let space = map([("x", grid(&[1, 2, 3])), ("y", uniform())]);
    let options = BasicOptions { num_samples: Some(2), ..BasicOptions::default() };
    let mut searcher = Basic::new(space, options).unwrap();
    for (x, y) in [(2, 0.5), (2, 0.7), (3, 0.1), (4, 0.5), (1, 9.0)] {
        searcher.skip(&metrics([("x", Value::Int(x)), ("y", Value::Float(y))]));
    }
    assert_eq!(searcher.remaining(), Some(3), "BASIC-3: two are outside of the space");
    assert_eq!(values(&all(searcher), &["x"]), [[1], [1], [3]]);
}
