//! What is wrong with the arguments of a scheduler, in one sentence each.

use std::fmt;

#[derive(Clone, Debug, PartialEq)]
pub enum SchedulerError {
    /// An argument is not what it must be.
    Argument { name: &'static str, value: String, must: &'static str },
    /// Two arguments do not go together.
    Below { name: &'static str, value: f64, limit_name: &'static str, limit: f64 },
    /// There is nothing to change in a config.
    NothingToChange { name: &'static str },
    /// What is said about a value of the config makes no sense.
    Parameter { path: String, why: &'static str },
}

impl fmt::Display for SchedulerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SchedulerError::Argument { name, value, must } => write!(f, "`{name}` is `{value}`: it must be {must}"),
            SchedulerError::Below { name, value, limit_name, limit } => {
                write!(f, "`{name}` is `{value}`: it must be at least `{limit_name}`, which is `{limit}`")
            }
            SchedulerError::NothingToChange { name } => {
                write!(f, "`{name}` is empty: it must name at least one value of the config")
            }
            SchedulerError::Parameter { path, why } => write!(f, "`{path}` {why}"),
        }
    }
}

impl std::error::Error for SchedulerError {}

/// Fails with a sentence unless the argument is right.
pub(super) fn check(
    right: bool,
    name: &'static str,
    value: impl fmt::Display,
    must: &'static str,
) -> Result<(), SchedulerError> {
    if right { Ok(()) } else { Err(SchedulerError::Argument { name, value: value.to_string(), must }) }
}

pub(super) fn check_not_below(
    (name, value): (&'static str, f64),
    (limit_name, limit): (&'static str, f64),
) -> Result<(), SchedulerError> {
    if value >= limit { Ok(()) } else { Err(SchedulerError::Below { name, value, limit_name, limit }) }
}
