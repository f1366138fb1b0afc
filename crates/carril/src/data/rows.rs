//! Rows as values of the user's own types.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_json::ReaderBuilder;
use arrow_json::reader::infer_json_schema_from_iterator;
use arrow_schema::{ArrowError, DataType, Schema};
use carril_types::{Metrics, Value};
use serde::Serialize;

use super::error::invalid;
use crate::error::Result;

/// One batch of all rows.
pub(crate) fn batch_of<R: Serialize>(rows: &[R]) -> Result<RecordBatch> {
    let unfit = |error: &dyn std::fmt::Display| {
        invalid(format!("rows are structs or maps of columns: {error}"))
            .hint("a row derives `Serialize` and has named fields")
    };
    // Two passes over the rows: the first finds the types.
    let values =
        rows.iter().map(|row| serde_json::to_value(row).map_err(|error| ArrowError::JsonError(error.to_string())));
    let schema = infer_json_schema_from_iterator(values).map_err(|error| unfit(&error))?;
    if rows.is_empty() {
        return Ok(RecordBatch::new_empty(Arc::new(Schema::empty())));
    }
    let mut decoder = ReaderBuilder::new(Arc::new(schema)).with_batch_size(rows.len()).build_decoder()?;
    decoder.serialize(rows).map_err(|error| unfit(&error))?;
    decoder.flush()?.ok_or_else(|| unfit(&"there are none"))
}

/// Each row as a map of its columns.
pub(crate) fn rows_of(batch: &RecordBatch) -> Result<Vec<Value>> {
    let schema = batch.schema();
    let columns = batch.columns().iter().map(values_of).collect::<Result<Vec<_>>>()?;
    let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
    let row = |_| {
        let fields = schema.fields().iter().zip(&mut columns);
        Value::Map(Metrics(
            fields.map(|(field, column)| (field.name().clone(), column.next().unwrap_or(Value::None))).collect(),
        ))
    };
    Ok((0..batch.num_rows()).map(row).collect())
}

fn values_of(array: &ArrayRef) -> Result<Vec<Value>> {
    let rows = 0..array.len();
    let known = |make: &dyn Fn(usize) -> Value| -> Vec<Value> {
        rows.clone().map(|row| if array.is_null(row) { Value::None } else { make(row) }).collect()
    };
    let lists = |make: &dyn Fn(usize) -> ArrayRef| -> Result<Vec<Value>> {
        let list = |row| if array.is_null(row) { Ok(Value::None) } else { Ok(Value::List(values_of(&make(row))?)) };
        rows.clone().map(list).collect()
    };
    Ok(match array.data_type() {
        DataType::Null => rows.map(|_| Value::None).collect(),
        DataType::Boolean => known(&|row| Value::Bool(array.as_boolean().value(row))),
        DataType::UInt64 => known(&|row| {
            let number = array.as_primitive::<UInt64Type>().value(row);
            i64::try_from(number).map_or_else(|_| Value::BigInt(number.to_string()), Value::Int)
        }),
        DataType::Int64 => known(&|row| Value::Int(array.as_primitive::<Int64Type>().value(row))),
        kind if kind.is_integer() => return values_of(&cast(array, &DataType::Int64)?),
        DataType::Float64 => known(&|row| Value::Float(array.as_primitive::<Float64Type>().value(row))),
        DataType::Float32 => known(&|row| Value::Float(array.as_primitive::<Float32Type>().value(row).into())),
        DataType::Float16 => known(&|row| Value::Float(array.as_primitive::<Float16Type>().value(row).into())),
        DataType::Utf8 => known(&|row| Value::Text(array.as_string::<i32>().value(row).to_owned())),
        DataType::Binary => known(&|row| {
            let bytes = array.as_binary::<i32>().value(row);
            Value::List(bytes.iter().map(|byte| Value::Int((*byte).into())).collect())
        }),
        DataType::LargeUtf8 | DataType::Utf8View => return values_of(&cast(array, &DataType::Utf8)?),
        DataType::LargeBinary | DataType::BinaryView => return values_of(&cast(array, &DataType::Binary)?),
        DataType::Dictionary(_, value) => return values_of(&cast(array, value)?),
        DataType::List(_) => lists(&|row| array.as_list::<i32>().value(row))?,
        DataType::LargeList(_) => lists(&|row| array.as_list::<i64>().value(row))?,
        DataType::FixedSizeList(..) => lists(&|row| array.as_fixed_size_list().value(row))?,
        DataType::Struct(_) => {
            let inside = array.as_struct();
            let values = rows_of(&RecordBatch::from(inside.clone()))?;
            values
                .into_iter()
                .enumerate()
                .map(|(row, value)| if array.is_null(row) { Value::None } else { value })
                .collect()
        }
        // Times, decimals and the like, as people write them.
        _ => {
            let options = FormatOptions::default();
            let formatter = ArrayFormatter::try_new(array, &options)?;
            known(&|row| Value::Text(formatter.value(row).to_string()))
        }
    })
}

/// Rows below the names of their columns.
pub(crate) fn table_of(batch: &RecordBatch) -> String {
    let options = FormatOptions::default();
    let schema = batch.schema();
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| {
        let cell = |row| match ArrayFormatter::try_new(column, &options) {
            _ if column.is_null(row) => String::new(),
            Ok(formatter) => formatter.value(row).to_string(),
            Err(_) => "?".to_owned(),
        };
        std::iter::once(field.name().clone()).chain((0..batch.num_rows()).map(cell)).collect::<Vec<String>>()
    });
    let columns: Vec<Vec<String>> = columns.collect();
    let widths: Vec<usize> =
        columns.iter().map(|column| column.iter().map(|cell| cell.chars().count()).max().unwrap_or(0)).collect();
    let line = |row: usize| {
        let cells = columns.iter().zip(&widths).map(|(column, width)| format!("{:<width$}", column[row]));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    (0..=batch.num_rows()).map(line).collect::<Vec<_>>().join("\n")
}
