//! The parameters of an experiment: what its trials' configurations hold, and which of it differs between them.

use std::collections::{HashMap, HashSet};

use carril_store::Experiment;
use carril_types::Value;

use super::words::short;

/// One parameter under its flattened name, `optimizer/lr`.
pub struct Parameter {
    pub name: String,
    /// By trial, in their order; `None` where a trial's configuration does not have it.
    pub values: Vec<Option<Value>>,
}

impl Parameter {
    /// Numbers throughout: what is placed on a scale. Others are categories.
    pub fn is_number(&self) -> bool {
        let is_number = |value: &Value| match value {
            Value::Int(_) => true,
            Value::Float(number) => number.is_finite(),
            _ => false,
        };
        self.values.iter().flatten().all(is_number)
    }

    /// Whether every value is a whole number.
    pub fn is_integer(&self) -> bool {
        self.values.iter().flatten().all(|value| matches!(value, Value::Int(_)))
    }

    fn varies(&self) -> bool {
        let mut seen = HashSet::new();
        self.values.iter().any(|value| {
            seen.insert(value.as_ref().map(exact));
            seen.len() > 1
        })
    }
}

/// A text that differs where values do, NaN included.
fn exact(value: &Value) -> String {
    match value {
        Value::Text(text) => format!("'{text}"),
        other => {
            let mut text = String::new();
            carril_store::write_csv_cell(&mut text, other);
            text
        }
    }
}

/// Every parameter, in the order in which the configurations hold them.
pub fn all(experiment: &Experiment) -> Vec<Parameter> {
    let count = experiment.trials.len();
    let mut index: HashMap<String, usize> = HashMap::new();
    let mut parameters: Vec<Parameter> = Vec::new();
    for (at, trial) in experiment.trials.iter().enumerate() {
        trial.config.for_each_flat(&mut |name, value| {
            let column = index.get(name).copied().unwrap_or_else(|| {
                index.insert(name.to_owned(), parameters.len());
                parameters.push(Parameter { name: name.to_owned(), values: vec![None; count] });
                parameters.len() - 1
            });
            parameters[column].values[at] = Some(value.clone());
        });
    }
    parameters
}

/// Those that differ between trials; all of them where there is a single trial.
pub fn varying(experiment: &Experiment) -> Vec<Parameter> {
    let mut parameters = all(experiment);
    if experiment.trials.len() > 1 {
        parameters.retain(Parameter::varies);
    }
    parameters
}

/// What the names of all of these begin with, as far as whole parts go: `train/` of `train/lr` and `train/opt/name`.
pub fn shared_prefix(parameters: &[Parameter]) -> String {
    let above = |parameter: &Parameter| parameter.name.rfind('/').map_or("", |at| &parameter.name[..=at]).to_owned();
    let mut shared = parameters.first().map(above).unwrap_or_default();
    for parameter in parameters {
        while !parameter.name.starts_with(&shared) {
            let shorter = shared.trim_end_matches('/').rfind('/').map_or(0, |at| at + 1);
            shared.truncate(shorter);
        }
    }
    shared
}

/// A parameter's value in a cell; a stroke where the trial does not have it.
pub fn cell(value: Option<&Value>) -> String {
    value.map_or_else(|| "-".into(), short)
}
