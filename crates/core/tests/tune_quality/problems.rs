//! Known functions as problems of a search, and what a search of a given kind finds on them.

use carril_core::tune::search::{
    AnySearcher, Basic, BasicOptions, GaussianProcess, GaussianProcessOptions, Objective, Searcher, Suggestion, Tpe,
    TpeOptions,
};
use carril_core::tune::space::{Domain, Node};
use carril_core::tune::{Mode, TrialId};
use carril_types::{Metrics, Value};

#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Random,
    Tpe,
    GaussianProcess,
}

pub struct Problem {
    pub space: Node,
    pub loss: fn(&Metrics) -> f64,
    pub trials: u64,
    /// How many trials run at a time.
    pub parallel: usize,
}

fn searcher(kind: Kind, space: Node, seed: u64) -> AnySearcher {
    let objective = Objective { metric: "loss".to_owned(), mode: Mode::Min };
    match kind {
        Kind::Random => {
            let options = BasicOptions { num_samples: None, seed, ..BasicOptions::default() };
            AnySearcher::Basic(Basic::new(space, options).unwrap())
        }
        Kind::Tpe => {
            let options = TpeOptions { seed, ..TpeOptions::default() };
            AnySearcher::Tpe(Tpe::new(space, objective, options).unwrap())
        }
        Kind::GaussianProcess => {
            let options = GaussianProcessOptions { seed, ..GaussianProcessOptions::default() };
            AnySearcher::GaussianProcess(GaussianProcess::new(space, objective, options).unwrap())
        }
    }
}

/// The best loss after all trials.
pub fn best(problem: &Problem, kind: Kind, seed: u64) -> f64 {
    let mut searcher = searcher(kind, problem.space.clone(), seed);
    let mut running = Vec::new();
    let mut best = f64::INFINITY;
    for trial in (0..problem.trials).map(TrialId) {
        let Suggestion::Config(config) = searcher.suggest(trial) else { panic!("there is no limit") };
        running.push((trial, (problem.loss)(&config)));
        if running.len() == problem.parallel {
            let (trial, loss) = running.remove(0);
            best = best.min(loss);
            let result = Metrics(vec![("loss".to_owned(), Value::Float(loss))]);
            searcher.on_completed(trial, Some(&result), false);
        }
    }
    running.iter().fold(best, |best, (_, loss)| best.min(*loss))
}

fn uniform(low: f64, high: f64) -> Node {
    Node::Domain(Domain::uniform(low, high).unwrap())
}

fn number(config: &Metrics, key: &str) -> f64 {
    config.get(key).and_then(Value::as_f64).expect("a number")
}

pub fn branin() -> Problem {
    let space = Node::Map(vec![("x".into(), uniform(-5.0, 10.0)), ("y".into(), uniform(0.0, 15.0))]);
    Problem { space, loss: branin_loss, trials: 50, parallel: 1 }
}

pub fn branin_loss(config: &Metrics) -> f64 {
    use std::f64::consts::PI;
    let (x, y) = (number(config, "x"), number(config, "y"));
    let bend = y - 5.1 / (4.0 * PI * PI) * x * x + 5.0 / PI * x - 6.0;
    bend * bend + 10.0 * (1.0 - 1.0 / (8.0 * PI)) * x.cos() + 10.0
}

pub const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

pub fn hartmann() -> Problem {
    let space = Node::Map(KEYS.iter().map(|key| ((*key).to_owned(), uniform(0.0, 1.0))).collect());
    Problem { space, loss: hartmann_loss, trials: 100, parallel: 1 }
}

pub fn hartmann_loss(config: &Metrics) -> f64 {
    const HEIGHTS: [f64; 4] = [1.0, 1.2, 3.0, 3.2];
    const SHARPNESS: [[f64; 6]; 4] = [
        [10.0, 3.0, 17.0, 3.5, 1.7, 8.0],
        [0.05, 10.0, 17.0, 0.1, 8.0, 14.0],
        [3.0, 3.5, 1.7, 10.0, 17.0, 8.0],
        [17.0, 8.0, 0.05, 10.0, 0.1, 14.0],
    ];
    const PLACES: [[f64; 6]; 4] = [
        [0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886],
        [0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991],
        [0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650],
        [0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381],
    ];
    let at = KEYS.map(|key| number(config, key));
    let hill = |index: usize| {
        let distance: f64 = (0..6).map(|axis| SHARPNESS[index][axis] * (at[axis] - PLACES[index][axis]).powi(2)).sum();
        HEIGHTS[index] * (-distance).exp()
    };
    -(0..4).map(hill).sum::<f64>()
}

/// Three models with parameters of their own; the best is a net whose rate and width have to fit.
pub fn models() -> Problem {
    let map =
        |items: Vec<(&str, Node)>| Node::Map(items.into_iter().map(|(key, node)| (key.to_owned(), node)).collect());
    let text = |text: &str| Node::Constant(Value::Text(text.to_owned()));
    let activation = Domain::choice(vec![text("relu"), text("tanh"), text("gelu")]).unwrap();
    let linear = map(vec![("kind", text("linear")), ("penalty", Node::Domain(Domain::loguniform(1e-6, 1.0).unwrap()))]);
    let tree = map(vec![("kind", text("tree")), ("depth", Node::Domain(Domain::randint(1, 17).unwrap()))]);
    let net = map(vec![
        ("kind", text("net")),
        ("rate", Node::Domain(Domain::loguniform(1e-6, 1.0).unwrap())),
        ("width", Node::Domain(Domain::qlograndint(16, 1024, 16).unwrap())),
        ("activation", Node::Domain(activation)),
        ("dropout", Node::Domain(Domain::quniform(0.0, 0.9, 0.05).unwrap())),
    ]);
    let model = Node::Domain(Domain::choice(vec![linear, tree, net]).unwrap());
    let space = map(vec![("model", model), ("warmup", uniform(0.0, 1.0))]);
    Problem { space, loss: models_loss, trials: 60, parallel: 1 }
}

fn models_loss(config: &Metrics) -> f64 {
    let Some(Value::Map(model)) = config.get("model") else { panic!("{config:?}") };
    let square = |x: f64| x * x;
    let base = 0.3 * square(number(config, "warmup") - 0.2);
    let Some(Value::Text(kind)) = model.get("kind") else { panic!("{model:?}") };
    base + match kind.as_str() {
        "linear" => 0.5 + 0.02 * square(number(model, "penalty").log10() + 3.0),
        "tree" => 0.4 + 0.005 * square(number(model, "depth") - 7.0),
        _ => {
            let activation = if model.get("activation") == Some(&Value::Text("gelu".into())) { 0.0 } else { 0.05 };
            let rate = 0.1 * square(number(model, "rate").log10() + 2.5);
            let width = 0.05 * square((number(model, "width") / 256.0).log2());
            0.1 + activation + rate + width + 0.2 * square(number(model, "dropout") - 0.3)
        }
    }
}
