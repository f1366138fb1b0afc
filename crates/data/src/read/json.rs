//! JSON: a record per line, or an array of records in a file.
//!
//! The types are inferred from the beginning of each file, over all files. A key that a record lacks is null; one that was not
//! seen at first is an error that names its line, never lost. What JSON says is a text is one: dates are made of texts where
//! `column_types` asks for them.

mod infer;
mod values;

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_json::ReaderBuilder;
use arrow_json::reader::Decoder;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use serde::Deserialize;

use crate::error::DataError;
use crate::files::{FileOptions, FileRef, in_parallel};
use crate::read::BLOCK_ROWS;
use crate::read::file_source::{Damages, FileSource, Take, UnitReader, told};
use crate::read::layout::Layout;
use crate::read::records::{Ends, Extent, cut, line_at};
use crate::read::schema::{Lacking, unify};
use crate::read::types::parse_type;
use crate::source::Flow;
use infer::{infer, join};
use values::{Values, Words, has_rows, made_plain, numbered};

const ROWS: usize = BLOCK_ROWS / 4;
const BOM: &[u8] = b"\xef\xbb\xbf";

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JsonOptions {
    pub columns: Option<Vec<String>>,
    pub column_types: HashMap<String, String>,
    /// How much of each file is looked at to find its types; 0 for all.
    pub infer_bytes: u64,
    /// Whether an array in a line is a record, whose keys are the places of its values.
    pub lines: bool,
}

impl Default for JsonOptions {
    fn default() -> Self {
        Self { columns: None, column_types: HashMap::new(), infer_bytes: 4 << 20, lines: false }
    }
}

struct JsonReader {
    files: Arc<[FileRef]>,
    extents: Vec<(Extent, Ends)>,
    /// The columns as they are decoded.
    decoded: SchemaRef,
    layout: Layout,
    lines: bool,
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
    let opened = in_parallel(&indices, |index| damages.tolerate(look(&files[*index], *index, &options)))?;
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
    let decoded = |field: &Arc<Field>| with_offset(&field.as_ref().clone().with_data_type(exact(field.data_type())));
    let decoded = Arc::new(Schema::new(own.fields().iter().map(decoded).collect::<Vec<_>>()));
    let reader = JsonReader { files: files.clone(), extents, decoded, layout, lines: options.lines };
    Ok(FileSource { schema: reader.layout.schema(), units, files, damages, reader: Box::new(reader) })
}

/// Arrow's decoder knows zones by their offsets, not by their names. That of UTC never changes.
fn with_offset(field: &Field) -> Field {
    match field.data_type() {
        DataType::Timestamp(unit, Some(zone)) if zone.as_ref() == "UTC" => {
            field.clone().with_data_type(DataType::Timestamp(*unit, Some("+00:00".into())))
        }
        _ => field.clone(),
    }
}

/// Whole numbers are decoded as texts: Arrow's decoder makes 1 of 1.5 where a whole number is wanted, and the cast does not.
fn exact(kind: &DataType) -> DataType {
    let inner = |field: &Arc<Field>| Arc::new(field.as_ref().clone().with_data_type(exact(field.data_type())));
    match kind {
        whole if whole.is_integer() => DataType::Utf8,
        DataType::List(item) => DataType::List(inner(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(inner).collect()),
        other => other.clone(),
    }
}

fn look(file: &FileRef, index: usize, options: &JsonOptions) -> Result<Opened, DataError> {
    let most = if options.infer_bytes == 0 { u64::MAX / 4 } else { options.infer_bytes };
    let (sample, is_all) = file.read_plain_start(most)?;
    let begin = if sample.starts_with(BOM) { BOM.len() } else { 0 };
    let text = &sample[begin..];
    let plain = made_plain(text, Words::AreNumbers);
    let text = plain.as_deref().unwrap_or(text);
    let numbered = (options.lines && has_rows(text)).then(|| numbered(text));
    let text = numbered.as_deref().unwrap_or(text);
    let is_array = text.trim_ascii_start().first() == Some(&b'[');
    // A record that goes over several lines is not cut.
    let line = text.trim_ascii_start();
    let line = &line[..memchr::memchr(b'\n', line).unwrap_or(line.len())];
    let whole_line = serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok() || line.len() as u64 >= most;
    let ends = if is_array || !whole_line { Ends::Whole } else { Ends::Lines };
    let damaged = |at: usize, why: String| {
        let line = memchr::memchr_iter(b'\n', &text[..at]).count() + 1;
        DataError::damaged(&file.name, Some(format!("line {line}")), why)
    };
    let mut kind = DataType::Struct(Default::default());
    let mut values = Values::new(text, is_array);
    for (at, value) in values.by_ref() {
        if !value.is_object() {
            let shown: String = value.to_string().chars().take(40).collect();
            let also =
                if (is_array || value.is_array()) && !options.lines { ", or with `lines=True` arrays" } else { "" };
            return Err(damaged(
                at,
                format!("`{shown}` is no record: records are objects, as in `{{\"a\": 1}}`{also}"),
            ));
        }
        let joined = infer(&value).and_then(|found| join(&kind, &found));
        kind = joined.map_err(|clash| damaged(at, clash.to_string()))?;
    }
    let DataType::Struct(fields) = kind else { unreachable!("it began as a structure") };
    let schema = Schema::new(fields);
    if schema.fields().is_empty()
        && let Some((at, why)) = values.wrong()
    {
        return Err(match is_all {
            true => damaged(at, why),
            false => damaged(at, format!("no record ends in the first {most} bytes; raise `infer_bytes`")),
        });
    }
    Ok(Opened { schema, ends, extents: cut(file, index, begin as u64, ends)? })
}

impl JsonReader {
    fn decoder(&self, rows: usize) -> Result<Decoder, ArrowError> {
        ReaderBuilder::new(self.decoded.clone())
            .with_batch_size(rows)
            .with_coerce_primitive(true)
            .with_strict_mode(true)
            .with_flatten(true)
            .build_decoder()
    }

    fn read_piece(&self, index: usize, offset: u64, text: &Bytes, take: Take<'_>) -> Result<bool, DataError> {
        let file = &self.files[index];
        let numbered = (self.lines && has_rows(text)).then(|| numbered(text));
        let text = numbered.as_deref().unwrap_or(text);
        let whole = text.trim_ascii();
        if whole.first() == Some(&b'[') && whole.last() != Some(&b']') {
            return Err(DataError::damaged(&file.name, None, "it is cut short: the array is never closed"));
        }
        let quoted = made_plain(text, Words::AreTexts);
        let text = quoted.as_deref().unwrap_or(text);
        let mut decoder = self.decoder(ROWS)?;
        let mut at = 0;
        loop {
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
            let finished =
                |block: Option<RecordBatch>| block.map(|block| self.layout.finish_one(block, file)).transpose();
            let block = fill().map_err(DataError::from).and_then(finished);
            let block = block.map_err(|error| self.explain(file, offset, text, &error))?;
            let Some(block) = block else { return Ok(true) };
            if take(block)? == Flow::Stop {
                return Ok(false);
            }
        }
    }

    /// Finds the record that is wrong, by reading each alone.
    fn explain(&self, file: &FileRef, offset: u64, text: &[u8], error: &DataError) -> DataError {
        let why = |error: &DataError| {
            let text = match error {
                DataError::Arrow(error) => told(error),
                other => other.to_string(),
            };
            match ["missing from schema", "Cannot cast", "expected null"].iter().any(|sign| text.contains(sign)) {
                true => format!("{text}; raise `infer_bytes`, or give the type with `column_types`"),
                false => text,
            }
        };
        let damaged = |at: usize, why: String| {
            let line = line_at(file, offset) + memchr::memchr_iter(b'\n', &text[..at]).count() as u64;
            DataError::damaged(&file.name, Some(format!("line {line}")), why)
        };
        let mut values = Values::new(text, text.trim_ascii_start().first() == Some(&b'['));
        while let Some((at, _)) = values.next() {
            let alone = || -> Result<(), DataError> {
                let mut decoder = self.decoder(1)?;
                decoder.decode(&text[at..values.position()])?;
                if let Some(block) = decoder.flush()? {
                    self.layout.finish_one(block, file)?;
                }
                Ok(())
            };
            if let Err(error) = alone() {
                return damaged(at, why(&error));
            }
        }
        match values.wrong() {
            Some((at, why)) => damaged(at, why),
            None => DataError::damaged(&file.name, None, why(error)),
        }
    }
}

impl UnitReader for JsonReader {
    fn read(&self, unit: usize, take: Take<'_>) -> Result<(), DataError> {
        let (extent, ends) = &self.extents[unit];
        extent.pieces(&self.files, *ends, &mut |offset, text| self.read_piece(extent.file, offset, &text, take))
    }
}
