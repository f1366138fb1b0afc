//! Metrics inside a manifest, which is plain JSON: numbers that JSON has no word for are written as texts.

use carril_types::{Metrics, Value};

use crate::manifest::Manifest;

impl Manifest {
    /// What was reported with the checkpoint.
    pub fn reported(&self) -> Metrics {
        match value_of(&self.metrics) {
            Value::Map(metrics) => metrics,
            _ => Metrics::default(),
        }
    }
}

pub fn json_of(value: &Value) -> serde_json::Value {
    use serde_json::Value as Json;
    match value {
        Value::None => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(value) => Json::from(*value),
        Value::BigInt(digits) => Json::String(digits.clone()),
        Value::Float(value) if value.is_nan() => Json::String("NaN".into()),
        Value::Float(value) if value.is_infinite() => {
            Json::String(if *value > 0.0 { "Infinity" } else { "-Infinity" }.into())
        }
        Value::Float(value) => Json::from(*value),
        Value::Text(text) => Json::String(text.clone()),
        Value::List(items) => Json::Array(items.iter().map(json_of).collect()),
        Value::Map(metrics) => {
            Json::Object(metrics.0.iter().map(|(key, value)| (key.clone(), json_of(value))).collect())
        }
        Value::Object(object) => Json::String(object.repr.clone()),
    }
}

pub fn value_of(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::None,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(value) => Value::Int(value),
            None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => match text.as_str() {
            "NaN" => Value::Float(f64::NAN),
            "Infinity" => Value::Float(f64::INFINITY),
            "-Infinity" => Value::Float(f64::NEG_INFINITY),
            _ => Value::Text(text.clone()),
        },
        Json::Array(items) => Value::List(items.iter().map(value_of).collect()),
        Json::Object(map) => {
            Value::Map(Metrics(map.iter().map(|(key, value)| (key.clone(), value_of(value))).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_come_back_from_a_manifest_as_they_went() {
        let metrics = Metrics(vec![
            ("loss".into(), Value::Float(f64::INFINITY)),
            ("steps".into(), Value::Int(3)),
            ("nested".into(), Value::Map(Metrics(vec![("text".into(), Value::Text("a".into()))]))),
            ("half".into(), Value::Float(0.5)),
        ]);
        assert_eq!(value_of(&json_of(&Value::Map(metrics.clone()))), Value::Map(metrics));
        assert!(matches!(value_of(&json_of(&Value::Float(f64::NAN))), Value::Float(number) if number.is_nan()));
    }
}
