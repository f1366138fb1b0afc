//! What is searched: a tree of constants, domains, grids and functions of the user.
//!
//! SPACE-1: every sample of a domain is contained in it.
//! SPACE-2: a domain that cannot be sampled cannot be made: the constructors say what is wrong with their arguments.
//! SPACE-3: a config has the shape of its space and the order of its keys.
//!
//! Bounds are those that Ray documents: the upper one is exclusive for `uniform`, `loguniform`, `randint` and `lograndint`, and
//! inclusive where a step `q` is given, except that integers with `q=1` are those without. One trap of Ray is not copied:
//! `quniform` with `q=1` rounds as with any other `q`.

mod error;
mod integer;
mod node;
mod parameters;
mod real;

use carril_types::Value;
use serde::{Deserialize, Serialize};

pub use self::error::SpaceError;
pub use self::integer::Integer;
pub use self::node::{Node, Options, unresolved_index, unresolved_value};
pub(crate) use self::node::{config_of, merge};
pub(crate) use self::parameters::{Coordinate, Kind, Parameters, Point};
pub use self::real::Real;
use super::random::Rng;

/// Where one parameter is drawn from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Domain {
    Real(Real),
    Integer(Integer),
    /// Each option as likely as the others. One that is a tree of its own has parameters that exist only with it.
    Choice(Options),
}

impl Domain {
    pub fn uniform(low: f64, high: f64) -> Result<Self, SpaceError> {
        Real::linear("uniform", low, high, None).map(Domain::Real)
    }

    pub fn quniform(low: f64, high: f64, q: f64) -> Result<Self, SpaceError> {
        Real::linear("quniform", low, high, Some(q)).map(Domain::Real)
    }

    pub fn loguniform(low: f64, high: f64) -> Result<Self, SpaceError> {
        Real::log("loguniform", low, high, None).map(Domain::Real)
    }

    pub fn qloguniform(low: f64, high: f64, q: f64) -> Result<Self, SpaceError> {
        Real::log("qloguniform", low, high, Some(q)).map(Domain::Real)
    }

    pub fn randn(mean: f64, sd: f64) -> Result<Self, SpaceError> {
        Real::normal("randn", mean, sd, None).map(Domain::Real)
    }

    pub fn qrandn(mean: f64, sd: f64, q: f64) -> Result<Self, SpaceError> {
        Real::normal("qrandn", mean, sd, Some(q)).map(Domain::Real)
    }

    pub fn randint(low: i64, high: i64) -> Result<Self, SpaceError> {
        Integer::new("randint", (low, high), 1, false).map(Domain::Integer)
    }

    pub fn qrandint(low: i64, high: i64, q: i64) -> Result<Self, SpaceError> {
        Integer::new("qrandint", (low, high), q, false).map(Domain::Integer)
    }

    pub fn lograndint(low: i64, high: i64) -> Result<Self, SpaceError> {
        Integer::new("lograndint", (low, high), 1, true).map(Domain::Integer)
    }

    pub fn qlograndint(low: i64, high: i64, q: i64) -> Result<Self, SpaceError> {
        Integer::new("qlograndint", (low, high), q, true).map(Domain::Integer)
    }

    pub fn choice(options: Vec<Node>) -> Result<Self, SpaceError> {
        let options = Options::new("choice", options)?;
        match options.iter().find_map(Node::path_of_grid) {
            Some(path) => Err(SpaceError::GridInChoice { path }),
            None => Ok(Domain::Choice(options)),
        }
    }

    pub fn sample(&self, rng: &mut Rng) -> Value {
        match self {
            Domain::Real(real) => Value::Float(real.sample(rng)),
            Domain::Integer(integer) => Value::Int(integer.sample(rng)),
            Domain::Choice(options) => options[rng.index(options.len())].sample(rng),
        }
    }

    pub fn contains(&self, value: &Value) -> bool {
        match (self, value) {
            (Domain::Real(real), Value::Float(number)) => real.contains(*number),
            (Domain::Real(real), Value::Int(number)) => real.contains(*number as f64),
            (Domain::Integer(integer), Value::Int(number)) => integer.contains(*number),
            (Domain::Choice(options), value) => options.iter().any(|option| option.matches(value)),
            _ => false,
        }
    }
}
