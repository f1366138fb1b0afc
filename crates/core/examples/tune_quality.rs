//! What our searches find on the problems of the tests, a JSON line for each problem, search and seed.
//!
//! `tune_quality search SEEDS` searches. `tune_quality loss PROBLEM` says how many trials the problem has, and then answers
//! each config that it reads, a JSON object per line, with its loss: a rival searches the same functions, not a copy of them.

#[path = "../tests/tune_quality/problems.rs"]
mod problems;

use std::io::{BufRead, Write};
use std::process::exit;

use carril_types::{Metrics, Value};

use problems::{Kind, Problem, best, branin, hartmann, models};

type Named = (&'static str, fn() -> Problem);

const PROBLEMS: [Named; 3] = [("branin", branin), ("hartmann", hartmann), ("models", models)];
const SEARCHES: [(&str, Kind); 3] =
    [("random", Kind::Random), ("tpe", Kind::Tpe), ("gaussian process", Kind::GaussianProcess)];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["search", seeds] => match seeds.parse() {
            Ok(seeds) => search(seeds),
            Err(error) => refuse(&format!("`{seeds}` is not a number of seeds: {error}")),
        },
        ["loss", wanted] => match PROBLEMS.iter().find(|(name, _)| *name == wanted) {
            Some((_, problem)) => answer(&problem()),
            None => refuse(&format!("there is no problem `{wanted}`")),
        },
        _ => refuse("usage: tune_quality search SEEDS | tune_quality loss PROBLEM"),
    }
}

fn refuse(why: &str) -> ! {
    eprintln!("error: {why}");
    exit(2)
}

fn search(seeds: u64) {
    for (name, problem) in PROBLEMS {
        let problem = problem();
        for (search, kind) in SEARCHES {
            for seed in 0..seeds {
                let loss = best(&problem, kind, seed);
                let line = serde_json::json!({
                    "problem": name, "search": search, "seed": seed, "trials": problem.trials, "loss": loss,
                });
                println!("{line}");
            }
        }
    }
}

fn answer(problem: &Problem) {
    println!("{}", problem.trials);
    for line in std::io::stdin().lock().lines() {
        let config = line.map_err(|error| error.to_string()).and_then(|line| {
            let value: serde_json::Value = serde_json::from_str(&line).map_err(|error| error.to_string())?;
            match from_json(&value) {
                Value::Map(config) => Ok(config),
                _ => Err(format!("no object: `{line}`")),
            }
        });
        match config {
            Ok(config) => println!("{:?}", (problem.loss)(&config)),
            Err(error) => refuse(&error),
        }
        std::io::stdout().flush().expect("whoever asks also reads");
    }
}

fn from_json(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::None,
        serde_json::Value::Bool(value) => Value::Bool(*value),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(number) => Value::Int(number),
            None => Value::Float(number.as_f64().expect("a number of JSON is one of ours")),
        },
        serde_json::Value::String(text) => Value::Text(text.clone()),
        serde_json::Value::Array(items) => Value::List(items.iter().map(from_json).collect()),
        serde_json::Value::Object(object) => {
            Value::Map(Metrics(object.iter().map(|(key, value)| (key.clone(), from_json(value))).collect()))
        }
    }
}
