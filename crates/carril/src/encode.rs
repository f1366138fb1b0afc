//! From any `Serialize` to the values that travel: numbers keep their value, NaN and the infinities included, which JSON would
//! lose.

use std::fmt::Display;

use carril_types::{Metrics, Value};
use serde::ser::{self, Serialize};

/// What a type does not have a value for, in one sentence.
#[derive(Debug)]
pub(crate) struct Unfit(pub String);

impl Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unfit {}

impl ser::Error for Unfit {
    fn custom<T: Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

impl serde::de::Error for Unfit {
    fn custom<T: Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

pub(crate) fn to_value<T: Serialize + ?Sized>(value: &T) -> Result<Value, Unfit> {
    value.serialize(Encoder)
}

struct Encoder;

/// A list, or a list under the name of its variant.
struct List {
    variant: Option<&'static str>,
    items: Vec<Value>,
}

/// A map, or a map under the name of its variant.
struct Map {
    variant: Option<&'static str>,
    entries: Vec<(String, Value)>,
    key: Option<String>,
}

fn under(variant: Option<&'static str>, value: Value) -> Value {
    match variant {
        Some(variant) => Value::Map(Metrics(vec![(variant.to_owned(), value)])),
        None => value,
    }
}

impl Map {
    fn new(variant: Option<&'static str>) -> Self {
        Self { variant, entries: Vec::new(), key: None }
    }

    fn add<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> Result<(), Unfit> {
        self.entries.push((key.to_owned(), to_value(value)?));
        Ok(())
    }

    fn end(self) -> Value {
        under(self.variant, Value::Map(Metrics(self.entries)))
    }
}

impl ser::Serializer for Encoder {
    type Ok = Value;
    type Error = Unfit;
    type SerializeSeq = List;
    type SerializeTuple = List;
    type SerializeTupleStruct = List;
    type SerializeTupleVariant = List;
    type SerializeMap = Map;
    type SerializeStruct = Map;
    type SerializeStructVariant = Map;

    fn serialize_bool(self, value: bool) -> Result<Value, Unfit> {
        Ok(Value::Bool(value))
    }

    fn serialize_i8(self, value: i8) -> Result<Value, Unfit> {
        Ok(Value::Int(value.into()))
    }

    fn serialize_i16(self, value: i16) -> Result<Value, Unfit> {
        Ok(Value::Int(value.into()))
    }

    fn serialize_i32(self, value: i32) -> Result<Value, Unfit> {
        Ok(Value::Int(value.into()))
    }

    fn serialize_i64(self, value: i64) -> Result<Value, Unfit> {
        Ok(Value::Int(value))
    }

    fn serialize_i128(self, value: i128) -> Result<Value, Unfit> {
        Ok(i64::try_from(value).map_or_else(|_| Value::BigInt(value.to_string()), Value::Int))
    }

    fn serialize_u8(self, value: u8) -> Result<Value, Unfit> {
        Ok(Value::Int(value.into()))
    }

    fn serialize_u16(self, value: u16) -> Result<Value, Unfit> {
        Ok(Value::Int(value.into()))
    }

    fn serialize_u32(self, value: u32) -> Result<Value, Unfit> {
        Ok(Value::Int(value.into()))
    }

    fn serialize_u64(self, value: u64) -> Result<Value, Unfit> {
        self.serialize_i128(value.into())
    }

    fn serialize_u128(self, value: u128) -> Result<Value, Unfit> {
        Ok(i64::try_from(value).map_or_else(|_| Value::BigInt(value.to_string()), Value::Int))
    }

    fn serialize_f32(self, value: f32) -> Result<Value, Unfit> {
        Ok(Value::Float(value.into()))
    }

    fn serialize_f64(self, value: f64) -> Result<Value, Unfit> {
        Ok(Value::Float(value))
    }

    fn serialize_char(self, value: char) -> Result<Value, Unfit> {
        Ok(Value::Text(value.to_string()))
    }

    fn serialize_str(self, value: &str) -> Result<Value, Unfit> {
        Ok(Value::Text(value.to_owned()))
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<Value, Unfit> {
        Ok(Value::List(value.iter().map(|byte| Value::Int((*byte).into())).collect()))
    }

    fn serialize_none(self) -> Result<Value, Unfit> {
        Ok(Value::None)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, Unfit> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Value, Unfit> {
        Ok(Value::None)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Value, Unfit> {
        Ok(Value::None)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<Value, Unfit> {
        Ok(Value::Text(variant.to_owned()))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<Value, Unfit> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Value, Unfit> {
        Ok(under(Some(variant), to_value(value)?))
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<List, Unfit> {
        Ok(List { variant: None, items: Vec::with_capacity(length.unwrap_or(0)) })
    }

    fn serialize_tuple(self, length: usize) -> Result<List, Unfit> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_struct(self, _: &'static str, length: usize) -> Result<List, Unfit> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<List, Unfit> {
        Ok(List { variant: Some(variant), items: Vec::with_capacity(length) })
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Map, Unfit> {
        Ok(Map::new(None))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Map, Unfit> {
        Ok(Map::new(None))
    }

    fn serialize_struct_variant(self, _: &'static str, _: u32, variant: &'static str, _: usize) -> Result<Map, Unfit> {
        Ok(Map::new(Some(variant)))
    }
}

/// The four ways in which serde adds to a list do the same.
macro_rules! list {
    ($($kind:ident::$add:ident),*) => {$(
        impl ser::$kind for List {
            type Ok = Value;
            type Error = Unfit;

            fn $add<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unfit> {
                self.items.push(to_value(value)?);
                Ok(())
            }

            fn end(self) -> Result<Value, Unfit> {
                Ok(under(self.variant, Value::List(self.items)))
            }
        }
    )*};
}

list!(
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
);

macro_rules! fields {
    ($($kind:ident),*) => {$(
        impl ser::$kind for Map {
            type Ok = Value;
            type Error = Unfit;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), Unfit> {
                self.add(key, value)
            }

            fn end(self) -> Result<Value, Unfit> {
                Ok(Map::end(self))
            }
        }
    )*};
}

fields!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for Map {
    type Ok = Value;
    type Error = Unfit;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Unfit> {
        self.key = Some(match to_value(key)? {
            Value::Text(text) => text,
            Value::Int(number) => number.to_string(),
            Value::BigInt(digits) => digits,
            Value::Bool(value) => value.to_string(),
            _ => return Err(Unfit("the key of a map is neither a text nor a whole number".to_owned())),
        });
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unfit> {
        let key = self.key.take().unwrap_or_default();
        self.add(&key, value)
    }

    fn end(self) -> Result<Value, Unfit> {
        Ok(Map::end(self))
    }
}
