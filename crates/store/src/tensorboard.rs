//! TensorBoard's event file: TFRecord framing around protobuf messages, of which only the scalars are needed.

use std::path::{Path, PathBuf};

use carril_types::Metrics;
use prost::Message;

/// The three messages that a file of scalars is made of (from TensorFlow's public event.proto and summary.proto).
#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<SummaryValue>,
}

#[derive(Clone, PartialEq, Message)]
struct SummaryValue {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

pub(crate) fn file_name(directory: &Path, seconds: u64, host: &str) -> PathBuf {
    directory.join(format!("events.out.tfevents.{seconds}.{host}"))
}

pub(crate) fn write_version(out: &mut Vec<u8>, wall_time: f64) {
    let event = Event { wall_time, step: 0, file_version: Some("brain.Event:2".into()), summary: None };
    write_record(out, &event);
}

/// Every number among the metrics, under its flattened name.
pub(crate) fn write_scalars(out: &mut Vec<u8>, wall_time: f64, step: u64, metrics: &Metrics) {
    let mut value = Vec::new();
    metrics.for_each_flat(&mut |name, metric| {
        if let Some(number) = metric.as_f64() {
            value.push(SummaryValue { tag: name.to_owned(), simple_value: Some(number as f32) });
        }
    });
    let event = Event { wall_time, step: step as i64, file_version: None, summary: Some(Summary { value }) };
    write_record(out, &event);
}

fn write_record(out: &mut Vec<u8>, event: &Event) {
    let length = (event.encoded_len() as u64).to_le_bytes();
    out.extend_from_slice(&length);
    out.extend_from_slice(&masked(&length).to_le_bytes());
    let start = out.len();
    event.encode(out).expect("a Vec has room");
    let checksum = masked(&out[start..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

/// TFRecord stores checksums rotated and shifted, so that a checksum of a file that holds checksums is still good.
fn masked(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}
