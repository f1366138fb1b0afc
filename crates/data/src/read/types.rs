//! The names of column types, as users and pyarrow write them.

use std::sync::Arc;

use arrow_schema::{DataType, Field, TimeUnit};

use crate::error::DataError;

pub(crate) fn parse_type(name: &str) -> Result<DataType, DataError> {
    parse(name.trim()).ok_or_else(|| {
        let hint = "types are named as in Arrow: `int64`, `float32`, `string`, `bool`, `timestamp[ms]`, `list<int64>`";
        DataError::Invalid { what: format!("nothing is known of the type `{name}`"), hint: Some(hint.to_owned()) }
    })
}

fn parse(name: &str) -> Option<DataType> {
    use DataType::*;
    let inside = |start: &str, end: &str| name.strip_prefix(start)?.strip_suffix(end);
    Some(match name {
        "null" => Null,
        "bool" | "boolean" => Boolean,
        "int8" => Int8,
        "int16" => Int16,
        "int32" => Int32,
        "int64" | "int" => Int64,
        "uint8" => UInt8,
        "uint16" => UInt16,
        "uint32" => UInt32,
        "uint64" => UInt64,
        "halffloat" | "float16" => Float16,
        // pyarrow calls the type of 32 bits `float` and that of 64 `double`.
        "float" | "float32" => Float32,
        "double" | "float64" => Float64,
        "string" | "str" | "utf8" => Utf8,
        "large_string" | "large_utf8" => LargeUtf8,
        "binary" | "bytes" => Binary,
        "large_binary" => LargeBinary,
        "date32[day]" | "date32" | "date" => Date32,
        "date64[ms]" | "date64" => Date64,
        _ if name.starts_with("timestamp[") => {
            let (unit, zone) = match inside("timestamp[", "]")?.split_once(',') {
                Some((unit, zone)) => (unit, Some(zone.trim().trim_start_matches("tz=").into())),
                None => (inside("timestamp[", "]")?, None),
            };
            Timestamp(parse_unit(unit)?, zone)
        }
        _ if name.starts_with("time32[") => Time32(parse_unit(inside("time32[", "]")?)?),
        _ if name.starts_with("time64[") => Time64(parse_unit(inside("time64[", "]")?)?),
        _ if name.starts_with("decimal") => {
            let (precision, scale) = name.split_once('(')?.1.strip_suffix(')')?.split_once(',')?;
            Decimal128(precision.trim().parse().ok()?, scale.trim().parse().ok()?)
        }
        _ if name.starts_with("list<") => {
            let item = inside("list<", ">")?;
            let item = item.trim_start_matches("item: ").trim_start_matches("element: ");
            List(Arc::new(Field::new("item", parse(item)?, true)))
        }
        _ => return None,
    })
}

fn parse_unit(name: &str) -> Option<TimeUnit> {
    Some(match name {
        "s" => TimeUnit::Second,
        "ms" => TimeUnit::Millisecond,
        "us" => TimeUnit::Microsecond,
        "ns" => TimeUnit::Nanosecond,
        _ => return None,
    })
}
