//! Which type a column has: that of all values which were looked at, put together.

use std::fmt;
use std::sync::Arc;

use arrow_schema::{DataType, Field};
use serde_json::Value;

use crate::read::schema::{Lacking, unify_types};

/// Values in one place that no type holds both of.
#[derive(Debug)]
pub(super) struct Clash {
    /// The keys that lead there, the last one first.
    path: Vec<String>,
    kinds: [&'static str; 2],
}

impl Clash {
    fn between(left: &DataType, right: &DataType) -> Self {
        Self { path: Vec::new(), kinds: [name(left), name(right)] }
    }

    fn below(mut self, key: &str) -> Self {
        self.path.push(key.to_owned());
        self
    }
}

impl fmt::Display for Clash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path: Vec<&str> = self.path.iter().rev().map(String::as_str).collect();
        let [one, other] = self.kinds;
        write!(formatter, "`{}` has {other} here and {one} before", path.join("."))
    }
}

fn name(kind: &DataType) -> &'static str {
    match kind {
        DataType::Struct(_) => "an object",
        DataType::List(_) => "a list",
        DataType::Boolean => "a truth value",
        kind if kind.is_numeric() => "a number",
        _ => "a text",
    }
}

pub(super) fn infer(value: &Value) -> Result<DataType, Clash> {
    Ok(match value {
        Value::Null => DataType::Null,
        Value::Bool(_) => DataType::Boolean,
        Value::Number(number) if number.is_i64() => DataType::Int64,
        Value::Number(_) => DataType::Float64,
        Value::String(_) => DataType::Utf8,
        Value::Array(values) => {
            let mut item = DataType::Null;
            for value in values {
                item = join(&item, &infer(value)?)?;
            }
            DataType::List(Arc::new(Field::new("item", item, true)))
        }
        Value::Object(entries) => {
            let field = |(name, value): (&String, &Value)| match infer(value) {
                Ok(kind) => Ok(Arc::new(Field::new(name, kind, true))),
                Err(clash) => Err(clash.below(name)),
            };
            DataType::Struct(entries.iter().map(field).collect::<Result<Vec<_>, _>>()?.into())
        }
    })
}

/// Different scalars in one column are text.
pub(super) fn join(left: &DataType, right: &DataType) -> Result<DataType, Clash> {
    match (left, right) {
        (DataType::Struct(a), DataType::Struct(b)) => {
            let mut fields: Vec<Arc<Field>> = a.iter().cloned().collect();
            for field in b {
                match fields.iter_mut().find(|known| known.name() == field.name()) {
                    Some(known) if known.data_type() == field.data_type() => {}
                    Some(known) => {
                        let joined = join(known.data_type(), field.data_type());
                        let joined = joined.map_err(|clash| clash.below(field.name()))?;
                        *known = Arc::new(known.as_ref().clone().with_data_type(joined));
                    }
                    None => fields.push(field.clone()),
                }
            }
            Ok(DataType::Struct(fields.into()))
        }
        (DataType::List(a), DataType::List(b)) => {
            let item = join(a.data_type(), b.data_type())?;
            Ok(DataType::List(Arc::new(Field::new("item", item, true))))
        }
        _ => {
            let scalars = !left.is_nested() && !right.is_nested();
            let joined = unify_types(left, right, Lacking::IsNull).or_else(|| scalars.then_some(DataType::Utf8));
            joined.ok_or_else(|| Clash::between(left, right))
        }
    }
}
