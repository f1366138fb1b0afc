//! How trials and their directories are called, in the manner that scripts know from Ray.

use std::collections::HashMap;

use carril_core::tune::TrialId;
use carril_core::tune::scheduler::Policy;
use carril_types::{Metrics, Value, write_json};

use crate::automatic::local_date;

/// The part of a directory's name that tells the parameters has at most so many characters.
const LONGEST: usize = 100;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Names {
    pub id: String,
    pub name: String,
    pub directory: String,
    pub tag: String,
}

impl Names {
    /// `given` are the names that a function of the user's made.
    pub fn new(
        prefix: &str,
        trainable: &str,
        trial: TrialId,
        config: &Metrics,
        varying: &[Vec<String>],
        given: Option<&(String, String)>,
        now: f64,
    ) -> Self {
        let id = format!("{prefix}_{:05}", trial.0);
        let parameters: Vec<String> =
            varying.iter().filter_map(|path| Some(format!("{}={}", path.last()?, shown(at(config, path)?)))).collect();
        let mut tag = trial.0.to_string();
        if !parameters.is_empty() {
            tag.push('_');
            tag.push_str(&parameters.join(","));
        }
        let (mut name, mut directory) = match given {
            Some((name, directory)) => (name.clone(), directory.clone()),
            None => (String::new(), String::new()),
        };
        if name.is_empty() {
            name = format!("{trainable}_{id}");
        }
        if directory.is_empty() {
            let short: String = tag.chars().take(LONGEST).collect();
            directory = format!("{}_{}_{}", name, clean(&short), local_date(now as i64));
        }
        Self { id, name, directory: clean(&directory), tag }
    }
}

/// The directories that trials have, each with how often it was wanted again.
#[derive(Default)]
pub(super) struct Directories(HashMap<String, u64>);

impl Directories {
    /// This one belongs to somebody.
    pub fn reserve(&mut self, name: &str) {
        self.0.entry(name.to_owned()).or_default();
    }

    /// A name that no other trial has: the one that is wanted, or that with a number.
    pub fn take(&mut self, wanted: &str) -> String {
        let mut name = wanted.to_owned();
        while self.0.contains_key(&name) {
            let again = self.0.entry(wanted.to_owned()).or_default();
            *again += 1;
            name = format!("{wanted}_{again}");
        }
        self.0.insert(name.clone(), 0);
        name
    }
}

/// What can be part of a file's name everywhere.
fn clean(text: &str) -> String {
    let odd = |character: char| character.is_control() || "/\\()[]{}<>:\"'|?* ".contains(character);
    text.chars().map(|character| if odd(character) { '_' } else { character }).collect()
}

/// Where a config has values, but for what is constant.
pub(super) fn leaves(config: &Metrics, constant: &[Vec<String>]) -> Vec<Vec<String>> {
    fn collect(config: &Metrics, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
        for (key, value) in &config.0 {
            path.push(key.clone());
            match value {
                Value::Map(inner) => collect(inner, path, found),
                _ => found.push(path.clone()),
            }
            path.pop();
        }
    }
    let mut found = Vec::new();
    collect(config, &mut Vec::new(), &mut found);
    found.retain(|path| !constant.contains(path));
    found
}

fn at<'a>(config: &'a Metrics, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    match (config.get(first)?, rest) {
        (value, []) => Some(value),
        (Value::Map(inner), rest) => at(inner, rest),
        _ => None,
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Float(number) => format!("{number:.4}"),
        Value::Int(number) => number.to_string(),
        Value::BigInt(digits) => digits.clone(),
        Value::Text(text) => text.clone(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::None => "None".to_owned(),
        Value::Object(object) => object.repr.chars().take(20).collect(),
        Value::List(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join("-")),
        Value::Map(inner) => {
            let items: Vec<String> = inner.0.iter().map(|(key, value)| format!("{key}={}", shown(value))).collect();
            items.join("-")
        }
    }
}

/// What population-based training changed, as a line of the log that it can be replayed from.
pub(super) fn policy_line(policy: &Policy, id: impl Fn(TrialId) -> String) -> String {
    let json = |config: &Metrics| {
        let mut text = String::new();
        write_json(&mut text, config);
        text
    };
    format!(
        "[\"{}\", \"{}\", {}, {}, {}, {}]",
        id(policy.trial),
        id(policy.from),
        policy.trial_step,
        policy.from_step,
        json(&policy.old_config),
        json(&policy.new_config)
    )
}
