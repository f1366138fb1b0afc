//! Columns: which, in which order, under which names.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::Schema;
use serde::{Deserialize, Serialize};

use crate::engine::Transform;
use crate::error::DataError;

/// Which columns stay.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Columns {
    Select(Vec<String>),
    Drop(Vec<String>),
    /// `(there, here)`; the others stay as they are.
    Rename(Vec<(String, String)>),
}

impl Columns {
    fn of(&self, schema: &Schema) -> Vec<(String, String)> {
        let all = schema.fields().iter().map(|field| field.name().clone());
        match self {
            Columns::Select(names) => names.iter().map(|name| (name.clone(), name.clone())).collect(),
            Columns::Drop(names) => all.filter(|name| !names.contains(name)).map(|name| (name.clone(), name)).collect(),
            Columns::Rename(names) => {
                let renamed =
                    |name: &String| names.iter().find(|(there, _)| there == name).map(|(_, here)| here.clone());
                all.map(|name| (name.clone(), renamed(&name).unwrap_or(name))).collect()
            }
        }
    }

    fn asked(&self) -> Vec<&String> {
        match self {
            Columns::Select(names) | Columns::Drop(names) => names.iter().collect(),
            Columns::Rename(names) => names.iter().map(|(there, _)| there).collect(),
        }
    }
}

impl Transform for Columns {
    fn apply(&self, block: RecordBatch) -> Result<Vec<RecordBatch>, DataError> {
        let schema = block.schema();
        for name in self.asked() {
            schema.column_with_name(name).ok_or_else(|| missing(name, &schema))?;
        }
        Ok(vec![project(&block, &self.of(&schema))?])
    }

    fn keeps_rows(&self) -> bool {
        true
    }
}

fn missing(column: &str, schema: &Schema) -> DataError {
    let there = schema.fields().iter().map(|field| format!("`{}`", field.name())).collect::<Vec<_>>().join(", ");
    DataError::NoColumn { column: column.to_owned(), there }
}

/// Each is `(there, here)`: the name that it has in the block, and the one that it gets.
pub fn project(block: &RecordBatch, columns: &[(String, String)]) -> Result<RecordBatch, DataError> {
    let schema = block.schema();
    let mut fields = Vec::with_capacity(columns.len());
    let mut arrays = Vec::with_capacity(columns.len());
    for (there, here) in columns {
        let (number, field) = schema.column_with_name(there).ok_or_else(|| missing(there, &schema))?;
        fields.push(field.clone().with_name(here));
        arrays.push(block.column(number).clone());
    }
    let options = RecordBatchOptions::new().with_row_count(Some(block.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?)
}
