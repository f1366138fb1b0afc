//! Tensors in columns: Arrow's canonical extension types for tensors of one shape and of several.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field};

pub(crate) const NAME: &str = "ARROW:extension:name";
const METADATA: &str = "ARROW:extension:metadata";
const FIXED: &str = "arrow.fixed_shape_tensor";
const VARIABLE: &str = "arrow.variable_shape_tensor";

/// A column whose rows are tensors of this shape, stored as lists of their elements in row-major order.
pub fn fixed_field(name: &str, element: DataType, shape: &[usize]) -> Field {
    let elements: usize = shape.iter().product();
    let list = DataType::FixedSizeList(Arc::new(Field::new("item", element, false)), elements as i32);
    let metadata = serde_json::json!({ "shape": shape }).to_string();
    Field::new(name, list, false)
        .with_metadata(HashMap::from([(NAME.to_owned(), FIXED.to_owned()), (METADATA.to_owned(), metadata)]))
}

/// A column whose rows are tensors of `dimensions` dimensions: a structure of `data`, a list of the elements in row-major
/// order, and `shape`, a fixed list of `i32`.
pub fn variable_field(name: &str, element: DataType, dimensions: usize) -> Field {
    let data = Field::new("data", DataType::List(Arc::new(Field::new("item", element, false))), false);
    let length = DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Int32, false)), dimensions as i32);
    let both = DataType::Struct(vec![data, Field::new("shape", length, false)].into());
    Field::new(name, both, false)
        .with_metadata(HashMap::from([(NAME.to_owned(), VARIABLE.to_owned()), (METADATA.to_owned(), "{}".to_owned())]))
}

/// The shape of a row, if the column holds tensors of one shape.
pub fn fixed_shape(field: &Field) -> Option<Vec<usize>> {
    if field.metadata().get(NAME).is_none_or(|name| name != FIXED) {
        return None;
    }
    let metadata: serde_json::Value = serde_json::from_str(field.metadata().get(METADATA)?).ok()?;
    let shape = metadata.get("shape")?.as_array()?;
    shape.iter().map(|length| length.as_u64().map(|length| length as usize)).collect()
}

pub fn is_variable(field: &Field) -> bool {
    field.metadata().get(NAME).is_some_and(|name| name == VARIABLE)
}
