//! JSON: a record per line, or an array of records in a file.
//!
//! The types are inferred from the beginning of each file, over all files. A key that a record lacks is null; one that was not
//! seen at first is an error that names its line, never lost.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_json::ReaderBuilder;
use arrow_json::reader::Decoder;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use crate::error::DataError;
use crate::files::{FileOptions, FileRef, in_parallel};
use crate::read::BLOCK_ROWS;
use crate::read::file_source::{Damages, FileSource, Take, UnitReader};
use crate::read::layout::Layout;
use crate::read::records::{Ends, Extent, cut, line_at};
use crate::read::schema::{Lacking, unify, unify_types};
use crate::read::types::parse_type;
use crate::source::Flow;

const ROWS: usize = BLOCK_ROWS / 4;
const BOM: &[u8] = b"\xef\xbb\xbf";

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JsonOptions {
    pub columns: Option<Vec<String>>,
    pub column_types: HashMap<String, String>,
    /// How much of each file is looked at to find its types; 0 for all.
    pub infer_bytes: u64,
}

impl Default for JsonOptions {
    fn default() -> Self {
        Self { columns: None, column_types: HashMap::new(), infer_bytes: 4 << 20 }
    }
}

struct JsonReader {
    files: Arc<[FileRef]>,
    extents: Vec<(Extent, Ends)>,
    own: SchemaRef,
    layout: Layout,
}

struct Opened {
    schema: Schema,
    ends: Ends,
    extents: Vec<Extent>,
}

pub(crate) fn open(files: Vec<FileRef>, common: &FileOptions, options: JsonOptions) -> Result<FileSource, DataError> {
    let files: Arc<[FileRef]> = files.into();
    let damages = Arc::new(Damages::new(common.max_errors));
    let indices: Vec<usize> = (0..files.len()).collect();
    let opened = in_parallel(&indices, |index| damages.tolerate(look(&files[*index], *index, options.infer_bytes)))?;
    let schemas = files.iter().zip(&opened);
    let schemas = schemas.filter_map(|(file, opened)| Some((file.name.as_str(), &opened.as_ref()?.schema)));
    let found = unify(schemas, Lacking::IsNull)?;
    let mut fields: Vec<Arc<Field>> = found.fields().iter().cloned().collect();
    for (name, kind) in &options.column_types {
        let field = Arc::new(Field::new(name, parse_type(kind)?, true));
        match fields.iter_mut().find(|known| known.name() == name) {
            Some(known) => *known = field,
            None => fields.push(field),
        }
    }
    let own = Arc::new(Schema::new(fields));
    let mut layout = Layout::new(&own, &files, common.include_paths);
    if let Some(mut columns) = options.columns {
        if common.include_paths && !columns.iter().any(|column| column == "path") {
            columns.push("path".to_owned());
        }
        layout = layout.select(&columns)?;
    }
    let extents: Vec<(Extent, Ends)> = opened
        .into_iter()
        .flatten()
        .flat_map(|file| file.extents.into_iter().map(move |extent| (extent, file.ends)))
        .collect();
    let units = extents.iter().map(|(extent, _)| extent.unit(&files, 1)).collect();
    let reader = JsonReader { files: files.clone(), extents, own, layout };
    Ok(FileSource { schema: reader.layout.schema(), units, files, damages, reader: Box::new(reader) })
}

fn look(file: &FileRef, index: usize, infer_bytes: u64) -> Result<Opened, DataError> {
    let most = if infer_bytes == 0 { u64::MAX / 4 } else { infer_bytes };
    let (sample, _) = file.read_plain_start(most)?;
    let begin = if sample.starts_with(BOM) { BOM.len() } else { 0 };
    let text = &sample[begin..];
    let is_array = text.trim_ascii_start().first() == Some(&b'[');
    // A record that goes over several lines is not cut.
    let line = text.trim_ascii_start();
    let line = &line[..memchr::memchr(b'\n', line).unwrap_or(line.len())];
    let whole_line = serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok() || line.len() as u64 >= most;
    let ends = if is_array || !whole_line { Ends::Whole } else { Ends::Lines };
    let mut kind = DataType::Struct(Default::default());
    for value in Values::new(text, is_array) {
        let found = infer(&value);
        kind = match (&found, join(&kind, &found)) {
            (Some(DataType::Struct(_)), Some(joined)) => joined,
            _ => {
                let why = format!("types that do not go together are in one column; one record is {}", shorten(&value));
                return Err(DataError::damaged(&file.name, None, why));
            }
        };
    }
    let DataType::Struct(fields) = kind else { unreachable!("it began as a structure") };
    let schema = Schema::new(fields);
    if schema.fields().is_empty() && !text.trim_ascii().is_empty() && !is_array {
        return Err(DataError::damaged(&file.name, Some("line 1".to_owned()), "it is no JSON record"));
    }
    Ok(Opened { schema, ends, extents: cut(file, index, begin as u64, ends)? })
}

fn shorten(value: &Value) -> String {
    value.to_string().chars().take(120).collect()
}

/// The records at the beginning of a text, as far as they are whole and right.
struct Values<'a> {
    text: &'a [u8],
}

impl<'a> Values<'a> {
    fn new(text: &'a [u8], is_array: bool) -> Self {
        let text = text.trim_ascii_start();
        Self { text: if is_array { &text[1..] } else { text } }
    }
}

impl Iterator for Values<'_> {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == b',';
        self.text = &self.text[self.text.iter().take_while(|byte| blank(byte)).count()..];
        let mut values = serde_json::Deserializer::from_slice(self.text).into_iter::<Value>();
        let value = values.next()?.ok()?;
        self.text = &self.text[values.byte_offset()..];
        Some(value)
    }
}

fn infer(value: &Value) -> Option<DataType> {
    Some(match value {
        Value::Null => DataType::Null,
        Value::Bool(_) => DataType::Boolean,
        Value::Number(number) if number.is_i64() => DataType::Int64,
        Value::Number(_) => DataType::Float64,
        Value::String(_) => DataType::Utf8,
        Value::Array(values) => {
            let mut item = DataType::Null;
            for value in values {
                item = join(&item, &infer(value))?;
            }
            DataType::List(Arc::new(Field::new("item", item, true)))
        }
        Value::Object(entries) => {
            let field = |(name, value): (&String, &Value)| Some(Arc::new(Field::new(name, infer(value)?, true)));
            DataType::Struct(entries.iter().map(field).collect::<Option<Vec<_>>>()?.into())
        }
    })
}

/// Different scalars in one column are text.
fn join(left: &DataType, right: &Option<DataType>) -> Option<DataType> {
    let right = right.as_ref()?;
    if let (DataType::Struct(a), DataType::Struct(b)) = (left, right) {
        let mut fields: Vec<Arc<Field>> = a.iter().cloned().collect();
        for field in b {
            match fields.iter_mut().find(|known| known.name() == field.name()) {
                Some(known) if known.data_type() == field.data_type() => {}
                Some(known) => {
                    let joined = join(known.data_type(), &Some(field.data_type().clone()))?;
                    *known = Arc::new(known.as_ref().clone().with_data_type(joined));
                }
                None => fields.push(field.clone()),
            }
        }
        return Some(DataType::Struct(fields.into()));
    }
    if let (DataType::List(a), DataType::List(b)) = (left, right) {
        let item = join(a.data_type(), &Some(b.data_type().clone()))?;
        return Some(DataType::List(Arc::new(Field::new("item", item, true))));
    }
    let scalar = |kind: &DataType| !kind.is_nested();
    unify_types(left, right, Lacking::IsNull).or_else(|| (scalar(left) && scalar(right)).then_some(DataType::Utf8))
}

impl JsonReader {
    fn decoder(&self, rows: usize) -> Result<Decoder, ArrowError> {
        ReaderBuilder::new(self.own.clone())
            .with_batch_size(rows)
            .with_coerce_primitive(true)
            .with_strict_mode(true)
            .with_flatten(true)
            .build_decoder()
    }

    fn read_piece(&self, index: usize, offset: u64, text: &Bytes, take: Take<'_>) -> Result<bool, DataError> {
        let file = &self.files[index];
        let whole = text.trim_ascii();
        if whole.first() == Some(&b'[') && whole.last() != Some(&b']') {
            return Err(DataError::damaged(&file.name, None, "it is cut short: the array is never closed"));
        }
        let mut decoder = self.decoder(ROWS)?;
        let mut at = 0;
        loop {
            let begin = at;
            let mut fill = || -> Result<_, ArrowError> {
                while at < text.len() {
                    let read = decoder.decode(&text[at..])?;
                    at += read;
                    if read == 0 {
                        break;
                    }
                }
                decoder.flush()
            };
            let block = fill().map_err(|error| self.explain(file, offset, text, begin, &error))?;
            let Some(block) = block else { return Ok(true) };
            let block = self.layout.finish_one(block, file)?;
            if take(block)? == Flow::Stop {
                return Ok(false);
            }
        }
    }

    /// Finds the line that is wrong, by reading each alone.
    fn explain(&self, file: &FileRef, offset: u64, text: &Bytes, begin: usize, error: &ArrowError) -> DataError {
        let why = |error: &ArrowError| {
            let text = error.to_string();
            match text.contains("missing from schema") {
                true => format!("{text}; raise `infer_bytes`, or give the type with `column_types`"),
                false => text,
            }
        };
        let mut at = begin;
        while at < text.len() {
            let end = memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |length| at + length + 1);
            let alone = self.decoder(ROWS).and_then(|mut decoder| {
                decoder.decode(&text[at..end])?;
                decoder.flush().map(drop)
            });
            if let Err(error) = alone {
                let line = line_at(file, offset + at as u64);
                return DataError::damaged(&file.name, Some(format!("line {line}")), why(&error));
            }
            at = end;
        }
        DataError::damaged(&file.name, None, why(error))
    }
}

impl UnitReader for JsonReader {
    fn read(&self, unit: usize, take: Take<'_>) -> Result<(), DataError> {
        let (extent, ends) = &self.extents[unit];
        extent.pieces(&self.files, *ends, &mut |offset, text| self.read_piece(extent.file, offset, &text, take))
    }
}
