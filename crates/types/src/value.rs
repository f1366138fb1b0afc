//! What a report may hold. Numbers keep their value, whatever they were in Python.

use serde::{Deserialize, Serialize};

/// Something that only Python understands: its pickle travels to callbacks and `Result`, its repr to the files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Object {
    pub repr: String,
    pub pickle: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// An integer beyond 64 bits, in decimal.
    BigInt(String),
    Float(#[serde(with = "exact")] f64),
    Text(String),
    List(Vec<Value>),
    Map(Metrics),
    Object(Object),
}

impl Value {
    /// The value as a number, where it is one.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Bool(value) => Some(f64::from(u8::from(*value))),
            Value::Int(value) => Some(*value as f64),
            Value::BigInt(digits) => digits.parse().ok(),
            Value::Float(value) => Some(*value),
            _ => None,
        }
    }
}

/// Named values in the order in which they were reported.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics(pub Vec<(String, Value)>);

impl Metrics {
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The value under a key or, in nested maps, under its flattened name `a/b`.
    pub fn find(&self, name: &str) -> Option<&Value> {
        self.get(name).or_else(|| {
            self.0.iter().find_map(|(key, value)| match value {
                Value::Map(inner) => inner.find(name.strip_prefix(key.as_str())?.strip_prefix('/')?),
                _ => None,
            })
        })
    }

    pub fn set(&mut self, key: &str, value: Value) {
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    /// Adds a value unless the user reported one under this name.
    pub fn set_default(&mut self, key: &str, value: Value) {
        if self.get(key).is_none() {
            self.0.push((key.to_owned(), value));
        }
    }

    /// Calls `visit` with each leaf under its flattened name, `a/b` for `{"a": {"b": …}}`.
    pub fn for_each_flat(&self, visit: &mut impl FnMut(&str, &Value)) {
        let mut name = String::new();
        self.visit_flat(&mut name, visit);
    }

    fn visit_flat(&self, name: &mut String, visit: &mut impl FnMut(&str, &Value)) {
        for (key, value) in &self.0 {
            let length = name.len();
            if !name.is_empty() {
                name.push('/');
            }
            name.push_str(key);
            match value {
                Value::Map(inner) if !inner.0.is_empty() => inner.visit_flat(name, visit),
                _ => visit(name, value),
            }
            name.truncate(length);
        }
    }
}

/// Floats as text in saved state: JSON has neither NaN nor infinity, and its readers may be off by the last bit, after which
/// a restored search would go another way. For `#[serde(with = "carril_types::exact")]`.
pub mod exact {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{number:?}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|_| D::Error::custom(format!("`{text}` is not a number")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_maps_are_flattened_with_slashes() {
        let inner = Metrics(vec![("b".into(), Value::Int(1)), ("c".into(), Value::Map(Metrics::default()))]);
        let metrics = Metrics(vec![("a".into(), Value::Map(inner)), ("d".into(), Value::Float(2.0))]);
        let mut names = Vec::new();
        metrics.for_each_flat(&mut |name, _| names.push(name.to_owned()));
        assert_eq!(names, ["a/b", "a/c", "d"]);
    }

    #[test]
    fn a_value_is_found_by_its_flattened_name() {
        let inner = Metrics(vec![("b".into(), Value::Int(2))]);
        let metrics = Metrics(vec![("a".into(), Value::Map(inner)), ("ab".into(), Value::Float(1.5))]);
        assert_eq!(metrics.find("a/b"), Some(&Value::Int(2)));
        assert_eq!(metrics.find("ab"), Some(&Value::Float(1.5)));
        assert_eq!(metrics.find("a/c"), None);
        assert_eq!(metrics.find("b"), None);
    }

    #[test]
    fn the_users_own_key_wins() {
        let mut metrics = Metrics(vec![("done".into(), Value::Text("mine".into()))]);
        metrics.set_default("done", Value::Bool(true));
        assert_eq!(metrics.get("done"), Some(&Value::Text("mine".into())));
    }
}
