//! Values inside a config, by the keys on the way to them.

use carril_types::{Metrics, Value};

pub(super) fn get_at<'a>(config: &'a Metrics, path: &[String]) -> Option<&'a Value> {
    let (key, rest) = path.split_first()?;
    match (config.get(key)?, rest) {
        (value, []) => Some(value),
        (Value::Map(inner), rest) => get_at(inner, rest),
        _ => None,
    }
}

/// What is on the way and no map becomes one.
pub(super) fn set_at(config: &mut Metrics, path: &[String], value: Value) {
    let Some((key, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        return config.set(key, value);
    }
    let mut inner = match config.get(key) {
        Some(Value::Map(inner)) => inner.clone(),
        _ => Metrics::default(),
    };
    set_at(&mut inner, rest, value);
    config.set(key, Value::Map(inner));
}
