//! What a search may choose from.

use carril_types::{ErrorCode, Value};
use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::encode::to_value;
use crate::error::{Error, Result};

/// What one parameter may be: made by [`uniform`], [`choice`], [`grid`] and the others.
///
/// ```
/// use carril::tune::{Domain, uniform};
///
/// let rate: Domain = uniform(0.0, 1.0);
/// ```
#[derive(Clone, Debug)]
pub struct Domain(Node);

#[derive(Clone, Debug)]
enum Node {
    Map(Vec<(String, Domain)>),
    Fixed(std::result::Result<Value, String>),
    Grid(Vec<Domain>),
    Choice(Vec<Domain>),
    Real(&'static str, Vec<f64>),
    Integer(&'static str, Vec<i64>),
}

/// Any number from `low` up to `high`.
///
/// ```
/// let space = carril::tune::Space::new().add("dropout", carril::tune::uniform(0.0, 0.5));
/// ```
pub fn uniform(low: f64, high: f64) -> Domain {
    Domain(Node::Real("uniform", vec![low, high]))
}

/// Any number from `low` up to `high`, rounded to a multiple of `step`.
///
/// ```
/// let space = carril::tune::Space::new().add("dropout", carril::tune::quniform(0.0, 0.5, 0.1));
/// ```
pub fn quniform(low: f64, high: f64, step: f64) -> Domain {
    Domain(Node::Real("quniform", vec![low, high, step]))
}

/// Any number from `low` up to `high`, each order of magnitude as likely as the others.
///
/// ```
/// let space = carril::tune::Space::new().add("rate", carril::tune::loguniform(1e-4, 1e-1));
/// ```
pub fn loguniform(low: f64, high: f64) -> Domain {
    Domain(Node::Real("loguniform", vec![low, high]))
}

/// Any number around `mean`, with this standard deviation.
///
/// ```
/// let space = carril::tune::Space::new().add("bias", carril::tune::randn(0.0, 1.0));
/// ```
pub fn randn(mean: f64, deviation: f64) -> Domain {
    Domain(Node::Real("randn", vec![mean, deviation]))
}

/// Any whole number from `low` up to `high`, `high` left out.
///
/// ```
/// let space = carril::tune::Space::new().add("layers", carril::tune::randint(1, 5));
/// ```
pub fn randint(low: i64, high: i64) -> Domain {
    Domain(Node::Integer("randint", vec![low, high]))
}

/// Any whole number from `low` up to `high`, `high` left out, each order of magnitude as likely as the others.
///
/// ```
/// let space = carril::tune::Space::new().add("width", carril::tune::lograndint(8, 1024));
/// ```
pub fn lograndint(low: i64, high: i64) -> Domain {
    Domain(Node::Integer("lograndint", vec![low, high]))
}

/// One of these, each as likely as the others.
///
/// ```
/// let space = carril::tune::Space::new().add("activation", carril::tune::choice(["relu", "tanh"]));
/// ```
pub fn choice<T: Serialize>(options: impl IntoIterator<Item = T>) -> Domain {
    Domain(Node::Choice(options.into_iter().map(|option| fixed(&option)).collect()))
}

/// Each of these, with every combination of the other grids, as often as there are samples.
///
/// ```
/// let space = carril::tune::Space::new().add("batch", carril::tune::grid([16, 32, 64]));
/// ```
pub fn grid<T: Serialize>(options: impl IntoIterator<Item = T>) -> Domain {
    Domain(Node::Grid(options.into_iter().map(|option| fixed(&option)).collect()))
}

/// Always this.
///
/// ```
/// let space = carril::tune::Space::new().add("epochs", carril::tune::fixed(10));
/// ```
pub fn fixed<T: Serialize>(value: T) -> Domain {
    Domain(Node::Fixed(to_value(&value).map_err(|unfit| unfit.to_string())))
}

/// Parameters by name: the fields of the config that each trial is given.
///
/// ```
/// use carril::tune::{Space, choice, loguniform, randint};
///
/// let space = Space::new()
///     .add("rate", loguniform(1e-4, 1e-1))
///     .add("network", Space::new().add("layers", randint(1, 5)).add("activation", choice(["relu", "tanh"])));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Space(Vec<(String, Domain)>);

impl Space {
    /// Without parameters.
    ///
    /// ```
    /// let empty = carril::tune::Space::new();
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// With one parameter more: a domain, or a space for a struct inside of the config.
    ///
    /// ```
    /// let space = carril::tune::Space::new().add("rate", carril::tune::uniform(0.0, 1.0));
    /// ```
    pub fn add(mut self, name: impl Into<String>, domain: impl Into<Domain>) -> Self {
        self.0.push((name.into(), domain.into()));
        self
    }

    pub(super) fn encode(&self, constants: &mut Vec<Value>) -> Result<Json> {
        encode_map(&self.0, constants, "")
    }

    /// Each parameter by itself, for a scheduler that changes them.
    pub(super) fn encode_each(&self, constants: &mut Vec<Value>) -> Result<Vec<(String, Json)>> {
        self.0.iter().map(|(name, domain)| Ok((name.clone(), domain.encode(constants, name)?))).collect()
    }
}

impl From<Space> for Domain {
    fn from(space: Space) -> Self {
        Domain(Node::Map(space.0))
    }
}

fn encode_map(entries: &[(String, Domain)], constants: &mut Vec<Value>, path: &str) -> Result<Json> {
    let encoded = entries.iter().map(|(name, domain)| {
        let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
        Ok(json!([name, domain.encode(constants, &path)?]))
    });
    Ok(json!({"map": encoded.collect::<Result<Vec<_>>>()?}))
}

impl Domain {
    fn encode(&self, constants: &mut Vec<Value>, path: &str) -> Result<Json> {
        let wrong = |why: &str| Error::new(ErrorCode::InvalidConfig, format!("the parameter `{path}` {why}"));
        Ok(match &self.0 {
            Node::Map(entries) => encode_map(entries, constants, path)?,
            Node::Grid(options) | Node::Choice(options) if options.is_empty() => {
                return Err(wrong("has nothing to choose from"));
            }
            Node::Grid(options) => json!({"grid": encode_all(options, constants, path)?}),
            Node::Choice(options) => json!({"choice": encode_all(options, constants, path)?}),
            Node::Fixed(value) => {
                let value = value.clone().map_err(|unfit| wrong(&format!("cannot be sent: {unfit}")))?;
                constants.push(value);
                json!({"constant": constants.len() - 1})
            }
            Node::Real(_, numbers) if numbers.iter().any(|number| !number.is_finite()) => {
                return Err(wrong("has a bound that is not a finite number"));
            }
            Node::Real(name, numbers) => json!({*name: numbers}),
            Node::Integer(name, numbers) => json!({*name: numbers}),
        })
    }
}

fn encode_all(options: &[Domain], constants: &mut Vec<Value>, path: &str) -> Result<Vec<Json>> {
    options.iter().map(|option| option.encode(constants, path)).collect()
}
