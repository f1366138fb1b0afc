//! JSON as Python's `json` writes and reads it: NaN and the infinities keep their values.

use std::fmt::Write;

use crate::value::{Metrics, Value};

/// Appends the metrics as one JSON object, without a line end.
pub fn write_json(out: &mut String, metrics: &Metrics) {
    out.push('{');
    for (index, (key, value)) in metrics.0.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        write_text(out, key);
        out.push_str(": ");
        write_value(out, value);
    }
    out.push('}');
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::None => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(value) => write_display(out, value),
        Value::BigInt(digits) => out.push_str(digits),
        Value::Float(value) => write_float(out, *value),
        Value::Text(text) => write_text(out, text),
        Value::Object(object) => write_text(out, &object.repr),
        Value::Map(metrics) => write_json(out, metrics),
        Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_value(out, item);
            }
            out.push(']');
        }
    }
}

fn write_display(out: &mut String, value: impl std::fmt::Display) {
    write!(out, "{value}").expect("writing to a String cannot fail");
}

fn write_float(out: &mut String, value: f64) {
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
    } else {
        // Debug keeps the point in `1.0` and the exponent in `1e-9`, and reads back to the same bits.
        write!(out, "{value:?}").expect("writing to a String cannot fail");
    }
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if (control as u32) < 0x20 => {
                write!(out, "\\u{:04x}", control as u32).expect("writing to a String cannot fail");
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_value_is_written_as_python_would() {
        let metrics = Metrics(vec![
            ("nan".into(), Value::Float(f64::NAN)),
            ("low".into(), Value::Float(f64::NEG_INFINITY)),
            ("one".into(), Value::Float(1.0)),
            ("big".into(), Value::BigInt("123456789012345678901234567890".into())),
            ("list".into(), Value::List(vec![Value::None, Value::Bool(true), Value::Int(-3)])),
            ("quo\"te".into(), Value::Text("a\nb\u{1}é".into())),
        ]);
        let mut out = String::new();
        write_json(&mut out, &metrics);
        assert_eq!(
            out,
            "{\"nan\": NaN, \"low\": -Infinity, \"one\": 1.0, \"big\": 123456789012345678901234567890, \
             \"list\": [null, true, -3], \"quo\\\"te\": \"a\\nb\\u0001é\"}"
        );
    }
}
