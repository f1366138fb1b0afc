//! TensorBoard's event file: TFRecord framing around protobuf messages, of which only the scalars are needed, and for trials of a
//! search the parameters that they were made with.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use carril_types::{Metrics, Value};
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
    #[prost(message, optional, tag = "8")]
    tensor: Option<Tensor>,
    #[prost(message, optional, tag = "9")]
    metadata: Option<Metadata>,
}

#[derive(Clone, PartialEq, Message)]
struct Tensor {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(message, optional, tag = "2")]
    shape: Option<Shape>,
    #[prost(float, repeated, tag = "5")]
    numbers: Vec<f32>,
}

#[derive(Clone, PartialEq, Message)]
struct Shape {
    #[prost(message, repeated, tag = "2")]
    dimensions: Vec<Dimension>,
}

#[derive(Clone, PartialEq, Message)]
struct Dimension {
    #[prost(int64, tag = "1")]
    size: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(message, optional, tag = "1")]
    plugin: Option<Plugin>,
}

#[derive(Clone, PartialEq, Message)]
struct Plugin {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(bytes = "vec", tag = "2")]
    content: Vec<u8>,
}

/// What the plugin for hyper-parameters reads (from TensorBoard's public plugin_data.proto).
#[derive(Clone, PartialEq, Message)]
struct Session {
    #[prost(message, optional, tag = "3")]
    start: Option<SessionStart>,
}

#[derive(Clone, PartialEq, Message)]
struct SessionStart {
    #[prost(btree_map = "string, message", tag = "1")]
    parameters: BTreeMap<String, Parameter>,
    #[prost(double, tag = "5")]
    seconds: f64,
}

#[derive(Clone, PartialEq, Message)]
struct Parameter {
    #[prost(oneof = "ParameterKind", tags = "2, 3, 4")]
    kind: Option<ParameterKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum ParameterKind {
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(bool, tag = "4")]
    Flag(bool),
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
            let simple_value = Some(number as f32);
            value.push(SummaryValue { tag: name.to_owned(), simple_value, ..Default::default() });
        }
    });
    let event = Event { wall_time, step: step as i64, file_version: None, summary: Some(Summary { value }) };
    write_record(out, &event);
}

/// The parameters of a trial, under their flattened names.
pub(crate) fn write_parameters(out: &mut Vec<u8>, wall_time: f64, config: &Metrics) {
    let mut parameters = BTreeMap::new();
    config.for_each_flat(&mut |name, value| {
        let kind = match value {
            Value::Bool(flag) => ParameterKind::Flag(*flag),
            Value::Text(text) => ParameterKind::Text(text.clone()),
            Value::Object(object) => ParameterKind::Text(object.repr.clone()),
            Value::None | Value::List(_) | Value::Map(_) => {
                let mut text = String::new();
                carril_types::write_json(&mut text, &Metrics(vec![(String::new(), value.clone())]));
                // Without the braces and the empty name.
                ParameterKind::Text(text[5..text.len() - 1].to_owned())
            }
            number => ParameterKind::Number(number.as_f64().unwrap_or(f64::NAN)),
        };
        parameters.insert(name.to_owned(), Parameter { kind: Some(kind) });
    });
    if parameters.is_empty() {
        return;
    }
    let session = Session { start: Some(SessionStart { parameters, seconds: wall_time }) };
    let plugin = Plugin { name: "hparams".into(), content: session.encode_to_vec() };
    // The plugin wants a tensor and looks at none: one zero.
    let shape = Shape { dimensions: vec![Dimension { size: 1 }] };
    let value = vec![SummaryValue {
        tag: "_hparams_/session_start_info".into(),
        simple_value: None,
        tensor: Some(Tensor { kind: 1, shape: Some(shape), numbers: vec![0.0] }),
        metadata: Some(Metadata { plugin: Some(plugin) }),
    }];
    write_record(out, &Event { wall_time, step: 0, file_version: None, summary: Some(Summary { value }) });
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
