//! Columns of Python's own objects: bytes that were pickled, under an extension type of ours.
//!
//! Whoever reads such a column unpickles it, and so runs what the bytes say. The mark is for blocks that this run made: what
//! comes in from outside loses it (`without_mark`), and is bytes.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};

use crate::tensor::NAME;

const OBJECT: &str = "carril.object";

pub fn field(name: &str) -> Field {
    Field::new(name, DataType::Binary, true).with_metadata(HashMap::from([(NAME.to_owned(), OBJECT.to_owned())]))
}

pub fn is_object(field: &Field) -> bool {
    field.metadata().get(NAME).is_some_and(|name| name == OBJECT)
}

pub fn without_mark(field: &FieldRef) -> FieldRef {
    if is_object(field) {
        return Arc::new(field.as_ref().clone().with_metadata(HashMap::new()));
    }
    field.clone()
}
