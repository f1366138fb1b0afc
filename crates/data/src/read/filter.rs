//! Conditions on rows: `[["x", ">", 3], ["y", "in", ["a", "b"]]]`, all of which must hold.
//!
//! FILTER-1: a comparison with null is not true; one with NaN is as in IEEE 754: only `!=` holds.
//! FILTER-2: what is pruned by bounds holds no row for which all conditions are true.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, Scalar, StringArray};
use arrow_ord::cmp;
use arrow_schema::{ArrowError, DataType, Schema};
use arrow_select::filter::filter_record_batch;
use serde::{Deserialize, Serialize};

use crate::engine::Transform;
use crate::error::DataError;
use crate::read::layout::to_type;
use crate::read::schema::{Lacking, unify_types};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operator {
    #[serde(rename = "=", alias = "==")]
    Equal,
    #[serde(rename = "!=")]
    NotEqual,
    #[serde(rename = "<")]
    Less,
    #[serde(rename = "<=")]
    LessOrEqual,
    #[serde(rename = ">")]
    Greater,
    #[serde(rename = ">=")]
    GreaterOrEqual,
    #[serde(rename = "in")]
    In,
    #[serde(rename = "not in")]
    NotIn,
}

/// A column, an operator and a value: a number, a text, true or false, null, or a list of these for `in`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Condition(pub String, pub Operator, pub serde_json::Value);

/// Conditions on what comes out of another transform.
pub struct Conditions(pub Vec<Condition>);

impl Transform for Conditions {
    fn apply(&self, block: RecordBatch) -> Result<Vec<RecordBatch>, DataError> {
        self.0.iter().try_for_each(|condition| condition.check(block.schema_ref()))?;
        Ok(vec![filter(block, &self.0)?])
    }

    fn keeps_rows(&self) -> bool {
        false
    }
}

/// The least and the greatest value of a column in each of several places; null where that is not known.
pub(crate) struct Bounds {
    pub least: ArrayRef,
    pub greatest: ArrayRef,
}

impl Condition {
    pub fn column(&self) -> &str {
        &self.0
    }

    pub fn check(&self, schema: &Schema) -> Result<(), DataError> {
        let Ok(field) = schema.field_with_name(&self.0) else {
            let there = schema.fields().iter().map(|field| format!("`{}`", field.name())).collect::<Vec<_>>();
            return Err(DataError::NoColumn { column: self.0.clone(), there: there.join(", ") });
        };
        let empty = arrow_array::new_empty_array(field.data_type());
        self.holds(&empty).map(drop)
    }

    fn holds(&self, array: &ArrayRef) -> Result<BooleanArray, DataError> {
        let Condition(column, operator, value) = self;
        let failed = |error: DataError| match error {
            DataError::Arrow(error) => DataError::invalid(format!(
                "`{column}` of type {} cannot be compared with {value}: {error}",
                array.data_type()
            )),
            error => error,
        };
        let one = |operator, value: &serde_json::Value| compare(array, operator, value).map_err(failed);
        match (operator, value) {
            (Operator::In | Operator::NotIn, serde_json::Value::Array(values)) => {
                let mut any = BooleanArray::from(vec![false; array.len()]);
                for value in values {
                    any = or(&any, &one(Operator::Equal, value)?);
                }
                let keep = *operator == Operator::In;
                let known = (0..array.len()).map(|row| array.is_valid(row) && any.value(row) == keep);
                Ok(BooleanArray::from(known.collect::<Vec<_>>()))
            }
            (Operator::In | Operator::NotIn, _) => {
                Err(DataError::invalid(format!("`in` needs a list of values, and `{column}` was given {value}")))
            }
            (operator, value) => one(*operator, value),
        }
    }

    /// Of each place, whether a row there may fulfil the condition.
    pub(crate) fn may_hold(&self, bounds: &Bounds) -> Result<Vec<bool>, DataError> {
        let places = bounds.least.len();
        let either = |operator: Operator,
                      array: &ArrayRef,
                      value: &serde_json::Value|
         -> Result<Vec<bool>, DataError> {
            let holds = compare(array, operator, value)?;
            // What is not known may be anything.
            Ok((0..places).map(|place| array.is_null(place) || holds.is_null(place) || holds.value(place)).collect())
        };
        let equal = |value: &serde_json::Value| -> Result<Vec<bool>, DataError> {
            if value.is_null() {
                return Ok(vec![true; places]);
            }
            let from = either(Operator::LessOrEqual, &bounds.least, value)?;
            let to = either(Operator::GreaterOrEqual, &bounds.greatest, value)?;
            Ok(from.into_iter().zip(to).map(|(from, to)| from && to).collect())
        };
        match (self.1, &self.2) {
            (_, serde_json::Value::Null) => Ok(vec![true; places]),
            (Operator::Equal, value) => equal(value),
            (Operator::Less | Operator::LessOrEqual, value) => either(self.1, &bounds.least, value),
            (Operator::Greater | Operator::GreaterOrEqual, value) => either(self.1, &bounds.greatest, value),
            (Operator::In, serde_json::Value::Array(values)) => {
                let mut any = vec![false; places];
                for value in values {
                    any.iter_mut().zip(equal(value)?).for_each(|(any, one)| *any |= one);
                }
                Ok(any)
            }
            _ => Ok(vec![true; places]),
        }
    }
}

/// The rows for which all conditions are true.
pub(crate) fn filter(batch: RecordBatch, conditions: &[Condition]) -> Result<RecordBatch, DataError> {
    let mut keep: Option<BooleanArray> = None;
    for condition in conditions {
        let column = batch.column_by_name(condition.column()).expect("conditions are checked when a file is opened");
        let holds = condition.holds(column)?;
        keep = Some(match keep {
            Some(keep) => and(&keep, &holds),
            None => holds,
        });
    }
    match keep {
        Some(keep) => Ok(filter_record_batch(&batch, &keep)?),
        None => Ok(batch),
    }
}

fn is_true(array: &BooleanArray, row: usize) -> bool {
    array.is_valid(row) && array.value(row)
}

fn and(left: &BooleanArray, right: &BooleanArray) -> BooleanArray {
    BooleanArray::from((0..left.len()).map(|row| is_true(left, row) && is_true(right, row)).collect::<Vec<_>>())
}

fn or(left: &BooleanArray, right: &BooleanArray) -> BooleanArray {
    BooleanArray::from((0..left.len()).map(|row| is_true(left, row) || is_true(right, row)).collect::<Vec<_>>())
}

fn compare(array: &ArrayRef, operator: Operator, value: &serde_json::Value) -> Result<BooleanArray, DataError> {
    use serde_json::Value;
    let literal: ArrayRef = match value {
        Value::Null => {
            let wanted = operator == Operator::Equal;
            if !wanted && operator != Operator::NotEqual {
                return Err(DataError::invalid("null can be compared with `=` and `!=` only"));
            }
            return Ok(BooleanArray::from(
                (0..array.len()).map(|row| array.is_null(row) == wanted).collect::<Vec<_>>(),
            ));
        }
        Value::Bool(value) => Arc::new(BooleanArray::from(vec![*value])),
        Value::Number(number) => match number.as_i64() {
            Some(number) => Arc::new(Int64Array::from(vec![number])),
            None => Arc::new(Float64Array::from(vec![number.as_f64().unwrap_or(f64::NAN)])),
        },
        Value::String(text) => Arc::new(StringArray::from(vec![text.as_str()])),
        other => {
            let what = format!("a value that is compared is a number, a text, true, false or null, not {other}");
            return Err(DataError::invalid(what));
        }
    };
    let kind = match array.data_type() {
        DataType::Dictionary(_, value) => value.as_ref(),
        kind => kind,
    };
    // A date or a decimal is compared as what it is, however it was typed; numbers as the wider of both.
    let common = match (kind, literal.data_type()) {
        (kind, DataType::Int64 | DataType::Float64) if kind.is_integer() || kind.is_floating() => {
            unify_types(kind, literal.data_type(), Lacking::IsAnError).unwrap_or(DataType::Float64)
        }
        (kind, DataType::Utf8) if !kind.is_numeric() && *kind != DataType::Boolean => kind.clone(),
        // No digit of either is rounded away.
        (kind, DataType::Int64 | DataType::Utf8) if kind.is_decimal() => wide_decimal(kind, value),
        (kind, DataType::Float64) if kind.is_decimal() => DataType::Float64,
        (DataType::Boolean, DataType::Boolean) => DataType::Boolean,
        (kind, other) => {
            return Err(ArrowError::CastError(format!("{kind} and {other} have no common type")).into());
        }
    };
    let (array, literal) = (to_type(array, &common)?, to_type(&literal, &common)?);
    if common == DataType::Float64 {
        return Ok(compare_floats(
            array.as_primitive::<Float64Type>(),
            operator,
            literal.as_primitive::<Float64Type>().value(0),
        ));
    }
    let literal = Scalar::new(literal);
    Ok(match operator {
        Operator::Equal => cmp::eq(&array, &literal)?,
        Operator::NotEqual => cmp::neq(&array, &literal)?,
        Operator::Less => cmp::lt(&array, &literal)?,
        Operator::LessOrEqual => cmp::lt_eq(&array, &literal)?,
        Operator::Greater => cmp::gt(&array, &literal)?,
        Operator::GreaterOrEqual => cmp::gt_eq(&array, &literal)?,
        Operator::In | Operator::NotIn => unreachable!("taken apart by the caller"),
    })
}

/// The widest decimal, with as many digits behind the point as a column and a literal have.
fn wide_decimal(kind: &DataType, literal: &serde_json::Value) -> DataType {
    let own = match kind {
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) => *scale,
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale,
        _ => 0,
    };
    let digits = literal.as_str().and_then(|text| text.split_once('.')).map_or(0, |(_, behind)| behind.len());
    DataType::Decimal256(76, own.max(digits.min(38) as i8))
}

/// FILTER-1: Arrow's own comparison puts NaN above everything and -0 below 0.
fn compare_floats(array: &Float64Array, operator: Operator, wanted: f64) -> BooleanArray {
    BooleanArray::from_unary(array, |value| match operator {
        Operator::Equal => value == wanted,
        Operator::NotEqual => value != wanted,
        Operator::Less => value < wanted,
        Operator::LessOrEqual => value <= wanted,
        Operator::Greater => value > wanted,
        Operator::GreaterOrEqual => value >= wanted,
        Operator::In | Operator::NotIn => unreachable!("taken apart by the caller"),
    })
}
