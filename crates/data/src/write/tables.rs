//! Blocks made ready for a format: which columns it can hold, and which rows belong to which partition.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::take::take_record_batch;

use super::encoder::Format;
use crate::error::DataError;
use crate::object::is_object;
use crate::tensor::{fixed_shape, is_variable};

/// What Hive writes for a value that is null.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// Rows that belong to the files of one directory.
pub(super) struct Partition {
    pub directory: String,
    pub rows: RecordBatch,
}

/// Whether the format can hold these columns.
pub(super) fn check(schema: &Schema, format: &Format, partitions: &[String]) -> Result<(), DataError> {
    for name in partitions {
        if schema.column_with_name(name).is_none() {
            let there = schema.fields().iter().map(|field| format!("`{}`", field.name())).collect::<Vec<_>>();
            return Err(DataError::NoColumn { column: name.clone(), there: there.join(", ") });
        }
    }
    if !partitions.is_empty() && schema.fields().iter().all(|field| partitions.contains(field.name())) {
        return Err(DataError::invalid("all columns are in `partition_cols`, and none is left to write"));
    }
    if let Some(field) = schema.fields().iter().find(|field| is_object(field)) {
        return Err(DataError::Invalid {
            what: format!("no file can hold the column `{}`, which has objects of Python", field.name()),
            hint: Some(
                "make numbers, texts, lists or arrays of them with `map`, or drop it with `drop_columns`".to_owned(),
            ),
        });
    }
    if !matches!(format, Format::Csv(_)) {
        return Ok(());
    }
    for field in schema.fields() {
        if let Some(kind) = beyond_text(field) {
            return Err(DataError::Invalid {
                what: format!("CSV cannot hold the column `{}`, which has {kind}", field.name()),
                hint: Some("drop it with `drop_columns`, or write Parquet or JSON".to_owned()),
            });
        }
    }
    Ok(())
}

/// What a field of text has no way to say.
fn beyond_text(field: &Field) -> Option<&'static str> {
    match field.data_type() {
        _ if fixed_shape(field).is_some() || is_variable(field) => Some("tensors"),
        DataType::List(_)
        | DataType::LargeList(_)
        | DataType::ListView(_)
        | DataType::LargeListView(_)
        | DataType::FixedSizeList(..) => Some("lists"),
        DataType::Struct(_) => Some("structures"),
        DataType::Map(..) => Some("maps"),
        DataType::Union(..) => Some("values of several types"),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => Some("bytes"),
        DataType::Dictionary(_, value) => beyond_text(&Field::new("", value.as_ref().clone(), true)),
        _ => None,
    }
}

/// The same rows with the columns of the first block: what differs in no more than nulls and order is the same.
pub(super) fn with_schema(block: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, DataError> {
    let hint = || Some("make every batch with the same columns and types".to_owned());
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let Some((number, here)) = block.schema_ref().column_with_name(field.name()) else {
            let what = format!("the column `{}` is missing in some of the rows", field.name());
            return Err(DataError::Invalid { what, hint: hint() });
        };
        let column = block.column(number);
        match (here.data_type() == field.data_type(), here.data_type()) {
            (true, _) if field.is_nullable() || column.null_count() == 0 => columns.push(column.clone()),
            (true, _) => {
                let what = format!("the column `{}` of tensors has a null", field.name());
                return Err(DataError::Invalid { what, hint: None });
            }
            (false, other) if is_wide_or_narrow(other, field.data_type()) => {
                columns.push(crate::read::layout::to_type(column, field.data_type())?);
            }
            (false, DataType::Null) if field.is_nullable() => {
                columns.push(arrow_array::new_null_array(field.data_type(), block.num_rows()));
            }
            (false, other) => {
                let what = format!(
                    "the column `{}` is of type {} in the first rows and {other} in later ones",
                    field.name(),
                    field.data_type()
                );
                return Err(DataError::Invalid { what, hint: hint() });
            }
        }
    }
    if block.num_columns() > columns.len() {
        let new = block.schema().fields().iter().find(|field| schema.column_with_name(field.name()).is_none()).cloned();
        let name = new.map(|field| field.name().clone()).unwrap_or_default();
        let what = format!("the column `{name}` is in some of the rows only");
        return Err(DataError::Invalid { what, hint: hint() });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(block.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}

/// Whether both are texts, or bytes, counted with 32 or 64 bits: those of a long block are counted with more.
fn is_wide_or_narrow(one: &DataType, other: &DataType) -> bool {
    use DataType::{Binary, LargeBinary, LargeUtf8, Utf8};
    matches!((one, other), (Utf8, LargeUtf8) | (LargeUtf8, Utf8) | (Binary, LargeBinary) | (LargeBinary, Binary))
}

/// The rows of each partition, in the order in which they first come, without the columns that stand in the directory.
pub(super) fn partitions(block: &RecordBatch, names: &[String]) -> Result<Vec<Partition>, DataError> {
    if names.is_empty() {
        return Ok(vec![Partition { directory: String::new(), rows: block.clone() }]);
    }
    let options = FormatOptions::default();
    let mut keys = Vec::with_capacity(names.len());
    for name in names {
        let column = block.column_by_name(name).ok_or_else(|| DataError::invalid(format!("no column `{name}`")))?;
        let formatter = ArrayFormatter::try_new(column, &options).map_err(|_| {
            DataError::invalid(format!("the values of the column `{name}` cannot stand in the name of a directory"))
        })?;
        keys.push((name, column, formatter));
    }
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut found: Vec<(String, Vec<u32>)> = Vec::new();
    for row in 0..block.num_rows() {
        let mut directory = String::new();
        for (name, column, formatter) in &keys {
            let slash = if directory.is_empty() { "" } else { "/" };
            let value = match column.is_null(row) {
                true => NULL.to_owned(),
                false => encoded(&formatter.value(row).try_to_string()?),
            };
            let _ = write!(directory, "{slash}{}={value}", encoded(name));
        }
        let place = *places.entry(directory).or_insert_with_key(|directory| {
            found.push((directory.clone(), Vec::new()));
            found.len() - 1
        });
        found[place].1.push(row as u32);
    }
    let kept: Vec<usize> =
        (0..block.num_columns()).filter(|number| !names.contains(block.schema_ref().field(*number).name())).collect();
    let rest = block.project(&kept)?;
    let partition = |(directory, rows): (String, Vec<u32>)| {
        let rows = take_record_batch(&rest, &UInt32Array::from(rows))?;
        Ok(Partition { directory, rows })
    };
    found.into_iter().map(partition).collect()
}

/// What means something in a path is written as `%2F`.
fn encoded(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b':' => out.push(byte as char),
            byte => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// The columns in the form in which the format, and whoever reads it, has them.
pub(super) fn prepared(block: &RecordBatch, format: &Format) -> Result<RecordBatch, DataError> {
    let mut fields = Vec::with_capacity(block.num_columns());
    let mut columns = Vec::with_capacity(block.num_columns());
    for (field, column) in block.schema_ref().fields().iter().zip(block.columns()) {
        let (field, column) = match (format, fixed_shape(field)) {
            (Format::Parquet(_), Some(_)) => with_nullable_items(field, column)?,
            // A tensor without an element has no lists of lists.
            (Format::Json(_), Some(shape)) if shape.len() > 1 && !shape.contains(&0) => {
                let nested = nested(column, &shape)?;
                (Field::new(field.name(), nested.data_type().clone(), field.is_nullable()), nested)
            }
            (Format::Parquet(_), None) => (field.as_ref().clone(), column.clone()),
            _ => in_universal_time(field, column)?,
        };
        fields.push(field);
        columns.push(column);
    }
    let schema = Schema::new_with_metadata(fields, block.schema_ref().metadata().clone());
    let options = RecordBatchOptions::new().with_row_count(Some(block.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::new(schema), columns, &options)?)
}

/// Arrow's C++ knows a tensor in a Parquet file only if its elements could be null.
fn with_nullable_items(field: &Field, column: &ArrayRef) -> Result<(Field, ArrayRef), DataError> {
    let DataType::FixedSizeList(item, length) = field.data_type() else {
        return Ok((field.clone(), column.clone()));
    };
    let list = column.as_fixed_size_list();
    let item = Arc::new(item.as_ref().clone().with_nullable(true));
    let made = FixedSizeListArray::try_new(item, *length, list.values().clone(), list.nulls().cloned())?;
    Ok((field.clone().with_data_type(made.data_type().clone()), Arc::new(made)))
}

/// The zone of a time is not written, and the time itself not in its zone.
fn in_universal_time(field: &Field, column: &ArrayRef) -> Result<(Field, ArrayRef), DataError> {
    let wanted = universal(field.data_type());
    match wanted == *field.data_type() {
        true => Ok((field.clone(), column.clone())),
        false => Ok((field.clone().with_data_type(wanted.clone()), arrow_cast::cast(column, &wanted)?)),
    }
}

fn universal(data_type: &DataType) -> DataType {
    let inside = |field: &Arc<Field>| Arc::new(field.as_ref().clone().with_data_type(universal(field.data_type())));
    match data_type {
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some("+00:00".into())),
        DataType::List(item) => DataType::List(inside(item)),
        DataType::LargeList(item) => DataType::LargeList(inside(item)),
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(inside(item), *length),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(inside).collect()),
        other => other.clone(),
    }
}

/// Lists of lists, as everybody would write a tensor.
fn nested(column: &ArrayRef, shape: &[usize]) -> Result<ArrayRef, DataError> {
    let list = column.as_fixed_size_list();
    let mut values = list.values().clone();
    for (depth, length) in shape.iter().enumerate().rev() {
        let item = Arc::new(Field::new("item", values.data_type().clone(), values.null_count() > 0));
        let nulls = if depth == 0 { list.nulls().cloned() } else { None };
        values = Arc::new(FixedSizeListArray::try_new(item, *length as i32, values, nulls)?);
    }
    Ok(values)
}
