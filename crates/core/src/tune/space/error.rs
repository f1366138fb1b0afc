//! What can be wrong with a space, each in one sentence that names the argument.

use std::fmt::{self, Display, Formatter};

#[derive(Clone, Debug, PartialEq)]
pub enum SpaceError {
    /// `low` is not below `high`.
    Empty {
        domain: &'static str,
        low: f64,
        high: f64,
    },
    NotFinite {
        domain: &'static str,
        name: &'static str,
        value: f64,
    },
    /// An argument that has to be above zero.
    NotPositive {
        domain: &'static str,
        name: &'static str,
        value: f64,
    },
    /// No multiple of `q` lies between the bounds.
    NoMultiple {
        domain: &'static str,
        q: f64,
        low: f64,
        high: f64,
    },
    NoOptions {
        domain: &'static str,
    },
    GridInChoice {
        path: String,
    },
    /// A grid in the space of a searcher that models what it learns.
    Grid {
        path: String,
    },
    NotAMap,
    /// A point to evaluate names something that the space does not have.
    UnknownKey {
        point: usize,
        key: String,
    },
    /// A number of a searcher that is too small.
    TooSmall {
        name: &'static str,
        value: i64,
        least: i64,
    },
}

impl Display for SpaceError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            SpaceError::Empty { domain, low, high } => {
                write!(f, "the lower bound {low} of `{domain}` is not below the upper bound {high}")
            }
            SpaceError::NotFinite { domain, name, value } => {
                write!(f, "`{name}` of `{domain}` is {value}, which is not a finite number")
            }
            SpaceError::NotPositive { domain, name, value } => {
                write!(f, "`{name}` of `{domain}` is {value}, and has to be above 0")
            }
            SpaceError::NoMultiple { domain, q, low, high } => {
                write!(f, "no multiple of `q={q}` of `{domain}` lies between {low} and {high}")
            }
            SpaceError::NoOptions { domain } => write!(f, "`{domain}` has nothing to choose from"),
            SpaceError::GridInChoice { path } => {
                write!(f, "an option of `choice` holds a `grid_search`{}", at(path))
            }
            SpaceError::Grid { path } => {
                write!(f, "this search cannot use the `grid_search`{}: write `choice`", at(path))
            }
            SpaceError::NotAMap => write!(f, "a search space is a dict of parameters by name"),
            SpaceError::UnknownKey { point, key } => {
                write!(f, "`points_to_evaluate[{point}]` names `{key}`, which the search space does not have")
            }
            SpaceError::TooSmall { name, value, least } => {
                write!(f, "`{name}` is {value}, and has to be at least {least}")
            }
        }
    }
}

impl std::error::Error for SpaceError {}

fn at(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(" at `{path}`") }
}
