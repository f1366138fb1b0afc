//! The schemas of several files, brought together: numbers become wider, null becomes anything.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};

use crate::error::DataError;

/// What it means that a file lacks a column that another has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lacking {
    IsNull,
    IsAnError,
}

/// One schema for all, in the order of the first; `named` are the files' names.
pub(crate) fn unify<'a>(
    named: impl IntoIterator<Item = (&'a str, &'a Schema)>,
    lacking: Lacking,
) -> Result<Schema, DataError> {
    let mut all: Vec<Arc<Field>> = Vec::new();
    let mut first_file: Option<&str> = None;
    for (file, schema) in named {
        let Some(first) = first_file else {
            first_file = Some(file);
            all = schema.fields().iter().map(|field| Arc::new(without_ids(field))).collect();
            continue;
        };
        let differ = |difference: String| DataError::SchemasDiffer {
            first: first.to_owned(),
            second: file.to_owned(),
            difference,
        };
        for field in schema.fields() {
            match all.iter_mut().find(|known| known.name() == field.name()) {
                Some(known) => {
                    let joined = unify_types(known.data_type(), field.data_type(), lacking).ok_or_else(|| {
                        let (one, other) = (known.data_type(), field.data_type());
                        differ(format!("`{}` is {one} in the one and {other} in the other", field.name()))
                    })?;
                    let nullable = known.is_nullable() || field.is_nullable();
                    let changed = known.as_ref().clone().with_data_type(joined).with_nullable(nullable);
                    *known = Arc::new(changed);
                }
                None if lacking == Lacking::IsNull => all.push(Arc::new(without_ids(field).with_nullable(true))),
                None => return Err(differ(format!("`{}` is only in the second", field.name()))),
            }
        }
        for known in &mut all {
            if schema.column_with_name(known.name()).is_none() {
                if lacking == Lacking::IsAnError {
                    return Err(differ(format!("`{}` is only in the first", known.name())));
                }
                *known = Arc::new(known.as_ref().clone().with_nullable(true));
            }
        }
    }
    Ok(Schema::new(all))
}

/// The numbers that Parquet gives fields are no part of what they hold.
fn without_ids(field: &Field) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.retain(|key, _| key != "PARQUET:field_id");
    field.clone().with_metadata(metadata)
}

/// The type that holds the values of both, where there is one.
pub(crate) fn unify_types(left: &DataType, right: &DataType, lacking: Lacking) -> Option<DataType> {
    use DataType::*;
    if left == right {
        return Some(left.clone());
    }
    let both = |a: &Arc<Field>, b: &Arc<Field>| -> Option<Arc<Field>> {
        let joined = unify_types(a.data_type(), b.data_type(), lacking)?;
        Some(Arc::new(a.as_ref().clone().with_data_type(joined).with_nullable(a.is_nullable() || b.is_nullable())))
    };
    match (left, right) {
        (Null, other) | (other, Null) => Some(other.clone()),
        (a, b) if a.is_integer() && b.is_integer() => Some(wider_integer(a, b)),
        (Float16, Float32) | (Float32, Float16) => Some(Float32),
        (a, b) if a.is_floating() && (b.is_floating() || b.is_integer()) => Some(Float64),
        (a, b) if a.is_integer() && b.is_floating() => Some(Float64),
        (Utf8 | LargeUtf8 | Utf8View, Utf8 | LargeUtf8 | Utf8View) => Some(LargeUtf8),
        (Binary | LargeBinary | BinaryView, Binary | LargeBinary | BinaryView) => Some(LargeBinary),
        (Dictionary(_, value), other) | (other, Dictionary(_, value)) => unify_types(value, other, lacking),
        (Date32, Timestamp(unit, None)) | (Timestamp(unit, None), Date32) => Some(Timestamp(*unit, None)),
        (Timestamp(a, zone), Timestamp(b, other)) if zone == other => Some(Timestamp(finer(*a, *b), zone.clone())),
        (List(a), List(b)) => both(a, b).map(List),
        (LargeList(a) | List(a), LargeList(b) | List(b)) => both(a, b).map(LargeList),
        (FixedSizeList(a, n), FixedSizeList(b, m)) if n == m => both(a, b).map(|field| FixedSizeList(field, *n)),
        (Struct(a), Struct(b)) => unify_structs(a, b, lacking).map(Struct),
        _ => None,
    }
}

fn unify_structs(left: &Fields, right: &Fields, lacking: Lacking) -> Option<Fields> {
    let same = left.len() == right.len() && left.iter().zip(right).all(|(a, b)| a.name() == b.name());
    if lacking == Lacking::IsAnError && !same {
        return None;
    }
    let schemas = [Schema::new(left.clone()), Schema::new(right.clone())];
    unify(schemas.iter().map(|schema| ("", schema)), lacking).ok().map(|schema| schema.fields)
}

fn wider_integer(left: &DataType, right: &DataType) -> DataType {
    use DataType::*;
    let width = |kind: &DataType| kind.primitive_width().unwrap_or(8);
    let (a, b) = (width(left), width(right));
    match (left.is_signed_integer(), right.is_signed_integer()) {
        (x, y) if x == y => if a >= b { left } else { right }.clone(),
        (signed, _) => {
            let (signed, unsigned) = if signed { (a, b) } else { (b, a) };
            match signed.max(unsigned * 2) {
                2 => Int16,
                4 => Int32,
                _ => Int64,
            }
        }
    }
}

fn finer(left: TimeUnit, right: TimeUnit) -> TimeUnit {
    let rank = |unit: TimeUnit| match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    };
    if rank(left) >= rank(right) { left } else { right }
}
