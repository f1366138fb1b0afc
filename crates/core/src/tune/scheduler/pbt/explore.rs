//! How population-based training changes a config: each value is resampled, or moved a little.
//!
//! A list moves to a neighbour, a number is multiplied and brought back into its domain, and whole numbers stay whole.

use carril_types::{Metrics, Value, exact};
use serde::{Deserialize, Serialize};

use super::paths::{get_at, set_at};
use crate::tune::random::Rng;
use crate::tune::scheduler::errors::check;
use crate::tune::scheduler::{NewConfig, Path, SchedulerError};
use crate::tune::space::{Domain, Node};

/// Where the values of one parameter come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Mutation {
    /// In an order: the neighbours of a value are near to it.
    Choices(Vec<Value>),
    Domain(Domain),
    /// A function of the user, which the driver asks.
    Ask,
    Map(Vec<(String, Mutation)>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MutationOptions {
    pub mutations: Vec<(String, Mutation)>,
    #[serde(with = "exact")]
    pub resample_probability: f64,
    pub perturbation_factors: Vec<Factor>,
    /// A function of the user changes the config too, in the driver: then there may be no mutations.
    pub custom_explore: bool,
}

/// What a number is multiplied by.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Factor(#[serde(with = "exact")] pub f64);

impl MutationOptions {
    /// What Ray has where nothing is said.
    pub fn new(mutations: Vec<(String, Mutation)>) -> Self {
        let perturbation_factors = vec![Factor(1.2), Factor(0.8)];
        Self { mutations, resample_probability: 0.25, perturbation_factors, custom_explore: false }
    }

    fn check(&self) -> Result<(), SchedulerError> {
        if self.mutations.is_empty() && !self.custom_explore {
            return Err(SchedulerError::NothingToChange { name: "hyperparam_mutations" });
        }
        let probability = self.resample_probability;
        check((0.0..=1.0).contains(&probability), "resample_probability", probability, "between 0 and 1")?;
        let factors = &self.perturbation_factors;
        check(!factors.is_empty(), "perturbation_factors", "()", "at least one number")?;
        for Factor(factor) in factors {
            check(factor.is_finite() && *factor > 0.0, "perturbation_factors", factor, "finite numbers above 0")?;
        }
        check_mutations(&self.mutations, "")
    }
}

fn check_mutations(mutations: &[(String, Mutation)], above: &str) -> Result<(), SchedulerError> {
    mutations.iter().try_for_each(|(key, mutation)| {
        let path = format!("{above}{key}");
        match mutation {
            Mutation::Choices(values) if values.is_empty() => {
                Err(SchedulerError::Parameter { path, why: "has an empty list of values to choose from" })
            }
            Mutation::Map(inner) => check_mutations(inner, &format!("{path}/")),
            _ => Ok(()),
        }
    })
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Mutations {
    options: MutationOptions,
}

/// A new config, and what is new in it, for people.
pub(super) struct Explored {
    pub(super) with: NewConfig,
    pub(super) changes: String,
}

/// One value on its way to be changed.
enum Change {
    To(Value, &'static str),
    Ask,
}

impl Mutations {
    pub(super) fn new(options: MutationOptions) -> Result<Self, SchedulerError> {
        options.check()?;
        Ok(Self { options })
    }

    /// The parameters with the paths to them, maps taken apart.
    fn leaves(&self) -> Vec<(Path, &Mutation)> {
        fn collect<'a>(above: &[String], mutations: &'a [(String, Mutation)], leaves: &mut Vec<(Path, &'a Mutation)>) {
            for (key, mutation) in mutations {
                let path = [above, std::slice::from_ref(key)].concat();
                match mutation {
                    Mutation::Map(inner) => collect(&path, inner, leaves),
                    leaf => leaves.push((path, leaf)),
                }
            }
        }
        let mut leaves = Vec::new();
        collect(&[], &self.options.mutations, &mut leaves);
        leaves
    }

    /// What the config lacks is drawn.
    pub(super) fn fill(&self, config: &Metrics, rng: &mut Rng) -> NewConfig {
        let mut filled = NewConfig { config: config.clone(), ask: Vec::new() };
        for (path, mutation) in self.leaves() {
            if get_at(config, &path).is_none() {
                let change = resample(mutation, rng);
                apply(&mut filled, path, change);
            }
        }
        filled
    }

    pub(super) fn explore(&self, source: &Metrics, rng: &mut Rng) -> Explored {
        let mut with = NewConfig { config: source.clone(), ask: Vec::new() };
        let mut changes = Vec::new();
        for (path, mutation) in self.leaves() {
            let change = self.change(mutation, get_at(source, &path), rng);
            let how = match &change {
                Change::To(_, how) => *how,
                Change::Ask => "resampled",
            };
            changes.push(format!("`{}` {how}", path.join("/")));
            apply(&mut with, path, change);
        }
        Explored { with, changes: changes.join(", ") }
    }

    fn change(&self, mutation: &Mutation, old: Option<&Value>, rng: &mut Rng) -> Change {
        let resamples = rng.f64() < self.options.resample_probability;
        let Some(old) = old.filter(|_| !resamples) else { return resample(mutation, rng) };
        match mutation {
            Mutation::Choices(values) => match values.iter().position(|value| is_same(value, old)) {
                Some(index) => {
                    let (index, how) = neighbour(index, values.len(), rng);
                    Change::To(values[index].clone(), how)
                }
                None => resample(mutation, rng),
            },
            Mutation::Domain(Domain::Choice(options)) => match options.iter().position(|option| option.matches(old)) {
                Some(index) => {
                    let (index, how) = neighbour(index, options.len(), rng);
                    Change::To(options[index].sample(rng), how)
                }
                None => resample(mutation, rng),
            },
            Mutation::Domain(domain) => match self.moved(old, rng) {
                Some(moved) => nearest(domain, old, moved),
                None => resample(mutation, rng),
            },
            Mutation::Ask | Mutation::Map(_) => match (self.moved(old, rng), old) {
                (Some(moved), Value::Int(_)) => Change::To(Value::Int(moved.round() as i64), MULTIPLIED),
                (Some(moved), _) => Change::To(Value::Float(moved), MULTIPLIED),
                // As in Ray: times a factor, true is true.
                (None, Value::Bool(_)) => Change::To(old.clone(), "kept"),
                (None, _) => Change::Ask,
            },
        }
    }

    /// A number, multiplied. A boolean is none here.
    fn moved(&self, old: &Value, rng: &mut Rng) -> Option<f64> {
        let factors = &self.options.perturbation_factors;
        let Factor(factor) = factors[rng.index(factors.len())];
        match old {
            Value::Int(_) | Value::Float(_) => old.as_f64().map(|number| number * factor),
            _ => None,
        }
    }
}

/// As the user would compare them: 1 is 1.0.
fn is_same(left: &Value, right: &Value) -> bool {
    Node::Constant(left.clone()).matches(right)
}

const MULTIPLIED: &str = "multiplied";

fn apply(new: &mut NewConfig, path: Path, change: Change) {
    match change {
        Change::To(value, _) => set_at(&mut new.config, &path, value),
        Change::Ask => new.ask.push(path),
    }
}

fn resample(mutation: &Mutation, rng: &mut Rng) -> Change {
    match mutation {
        Mutation::Choices(values) => Change::To(values[rng.index(values.len())].clone(), "resampled"),
        Mutation::Domain(domain) => Change::To(domain.sample(rng), "resampled"),
        Mutation::Ask | Mutation::Map(_) => Change::Ask,
    }
}

/// One step to either side; at an end, the step beyond it stays.
fn neighbour(index: usize, length: usize, rng: &mut Rng) -> (usize, &'static str) {
    if rng.below(2) == 0 {
        (index.saturating_sub(1), "moved to the left")
    } else {
        ((index + 1).min(length - 1), "moved to the right")
    }
}

/// The value of the domain that is nearest to a number (PBT-2).
fn nearest(domain: &Domain, old: &Value, number: f64) -> Change {
    let value = match domain {
        Domain::Integer(integer) => Value::Int(integer.at(integer.position(number))),
        Domain::Real(_) if matches!(old, Value::Int(_)) && domain.contains(&Value::Float(number.round())) => {
            Value::Int(number.round() as i64)
        }
        Domain::Real(real) if real.contains(number) => Value::Float(number),
        Domain::Real(real) => Value::Float(real.at(real.position(number))),
        Domain::Choice(_) => unreachable!("a choice has neighbours, and no numbers"),
    };
    if domain.contains(&value) { Change::To(value, MULTIPLIED) } else { Change::To(old.clone(), "kept") }
}
