//! From the values that travel to any `DeserializeOwned`: the other half of `encode`.

use carril_types::{Metrics, Value};
use serde::de::value::{MapDeserializer, SeqDeserializer, StringDeserializer};
use serde::de::{self, DeserializeOwned, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use crate::encode::Unfit;

pub(crate) fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, Unfit> {
    T::deserialize(Decoder(value))
}

struct Decoder(Value);

/// The key of a map, which may be a number that became a text.
struct Key(String);

impl<'de> IntoDeserializer<'de, Unfit> for Decoder {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> IntoDeserializer<'de, Unfit> for Key {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

fn entries(map: Metrics) -> MapDeserializer<'static, impl Iterator<Item = (Key, Decoder)>, Unfit> {
    MapDeserializer::new(map.0.into_iter().map(|(key, value)| (Key(key), Decoder(value))))
}

impl<'de> de::Deserializer<'de> for Decoder {
    type Error = Unfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        match self.0 {
            Value::None => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Int(value) => visitor.visit_i64(value),
            Value::BigInt(digits) => match (digits.parse::<u64>(), digits.parse::<i128>()) {
                (Ok(value), _) => visitor.visit_u64(value),
                (_, Ok(value)) => visitor.visit_i128(value),
                _ => visitor.visit_string(digits),
            },
            Value::Float(value) => visitor.visit_f64(value),
            Value::Text(text) => visitor.visit_string(text),
            Value::List(items) => SeqDeserializer::new(items.into_iter().map(Decoder)).deserialize_any(visitor),
            Value::Map(map) => entries(map).deserialize_any(visitor),
            Value::Object(object) => visitor.visit_string(object.repr),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        match self.0 {
            Value::None => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Unfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        match self.0 {
            Value::Text(variant) => {
                let variant: StringDeserializer<Unfit> = variant.into_deserializer();
                variant.deserialize_enum(name, variants, visitor)
            }
            Value::Map(map) if map.0.len() == 1 => {
                visitor.visit_enum(de::value::MapAccessDeserializer::new(entries(map)))
            }
            _ => Err(Unfit(format!("`{name}` is given by something that names none of its variants"))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

macro_rules! numbers {
    ($($method:ident => $visit:ident),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
            match self.0.parse() {
                Ok(number) => visitor.$visit(number),
                Err(_) => visitor.visit_string(self.0),
            }
        }
    )*};
}

impl<'de> de::Deserializer<'de> for Key {
    type Error = Unfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unfit> {
        visitor.visit_string(self.0)
    }

    numbers! {
        deserialize_i8 => visit_i8, deserialize_i16 => visit_i16, deserialize_i32 => visit_i32,
        deserialize_i64 => visit_i64, deserialize_u8 => visit_u8, deserialize_u16 => visit_u16,
        deserialize_u32 => visit_u32, deserialize_u64 => visit_u64, deserialize_bool => visit_bool
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        let variant: StringDeserializer<Unfit> = self.0.into_deserializer();
        variant.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Unfit> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq tuple tuple_struct map struct identifier
        ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::encode::to_value;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    enum Layer {
        Plain,
        Dense(u32),
        Conv { width: u8, bias: bool },
        Pair(i8, i8),
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Config {
        rate: f64,
        half: f32,
        seed: u64,
        low: i64,
        name: String,
        none: Option<u8>,
        some: Option<String>,
        layers: Vec<Layer>,
        by_number: BTreeMap<u32, f64>,
        pair: (u8, char),
        unit: (),
    }

    fn config() -> Config {
        Config {
            rate: f64::INFINITY,
            half: 0.5,
            seed: u64::MAX,
            low: i64::MIN,
            name: "ä".into(),
            none: None,
            some: Some("x".into()),
            layers: vec![Layer::Plain, Layer::Dense(3), Layer::Conv { width: 1, bias: true }, Layer::Pair(-1, 1)],
            by_number: BTreeMap::from([(7, 0.25)]),
            pair: (9, 'z'),
            unit: (),
        }
    }

    #[test]
    fn a_config_comes_back_as_it_went() {
        let value = to_value(&config()).unwrap();
        assert_eq!(from_value::<Config>(value).unwrap(), config());
    }

    #[test]
    fn nan_is_kept() {
        assert!(from_value::<f64>(to_value(&f64::NAN).unwrap()).unwrap().is_nan());
    }

    #[test]
    fn what_does_not_fit_is_told() {
        #[derive(Debug, Deserialize)]
        struct Wants {
            #[allow(dead_code)]
            rate: f64,
        }
        let given = to_value(&BTreeMap::from([("rate", "fast")])).unwrap();
        let told = from_value::<Wants>(given).unwrap_err().to_string();
        assert_eq!(told, "invalid type: string \"fast\", expected f64");
        assert_eq!(
            from_value::<Layer>(Value::Int(1)).unwrap_err().to_string(),
            "`Layer` is given by something that names none of its variants"
        );
    }
}
