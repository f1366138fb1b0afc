//! How columns are compared with values.

use carril_data::read::filter::{Condition, Operator};
use serde_json::Value;

/// How a column is compared: see [`Dataset::filter`](super::Dataset::filter). A missing value fulfils nothing.
///
/// ```
/// use carril::data::{Dataset, Is};
///
/// let some = Dataset::range(100).filter("id", Is::In, vec![3, 5]);
/// assert_eq!(some.count()?, 2);
/// # Ok::<(), carril::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Is {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// One of a list.
    In,
    /// None of a list.
    NotIn,
}

impl Is {
    pub(super) fn condition(self, column: impl Into<String>, value: impl Into<Value>) -> Condition {
        let operator = match self {
            Is::Equal => Operator::Equal,
            Is::NotEqual => Operator::NotEqual,
            Is::Less => Operator::Less,
            Is::LessOrEqual => Operator::LessOrEqual,
            Is::Greater => Operator::Greater,
            Is::GreaterOrEqual => Operator::GreaterOrEqual,
            Is::In => Operator::In,
            Is::NotIn => Operator::NotIn,
        };
        Condition(column.into(), operator, value.into())
    }
}
