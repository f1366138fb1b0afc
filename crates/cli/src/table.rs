//! Plain tables and times, for people.

use std::io::Write;

use carril_types::{AUTOMATIC_FIELDS, Metrics, Value};

use crate::tune::words::significant;

/// Columns as wide as their widest cell; the last one is not padded.
pub fn print_table(rows: &[Vec<String>]) {
    print_all(&table(rows));
}

/// Prints a text, unless nobody reads it any more: `| head` is no error.
pub fn print_all(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

pub fn table(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Local time of a Unix time, to the second.
pub fn local_time(seconds: f64) -> String {
    jiff::Timestamp::from_millisecond((seconds * 1000.0) as i64)
        .map(|time| time.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string())
        .unwrap_or_default()
}

/// The user's own metrics of a report, in a line.
pub fn own_metrics(metrics: &Metrics) -> String {
    let mut parts = Vec::new();
    metrics.for_each_flat(&mut |name, value| {
        let top = name.split('/').next().unwrap_or(name);
        if AUTOMATIC_FIELDS.contains(&top) {
            return;
        }
        parts.push(match value {
            Value::Float(number) => format!("{name} {}", significant(*number)),
            Value::Int(number) => format!("{name} {number}"),
            Value::Text(text) => format!("{name} {text}"),
            Value::Bool(flag) => format!("{name} {flag}"),
            _ => return,
        });
    });
    parts.join(", ")
}

/// Bytes in the unit that leaves a number people can read.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 1000.0 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}
