//! TFRecord: records with checksums, each a `tf.train.Example` whose features are columns.
//!
//! TFRECORD-1: a record whose checksum is wrong is never decoded.
//! A feature that has one value in every record that was looked at is a column of values; another one, a column of lists.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, Float32Builder, Int64Builder, ListBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use prost::Message;
use serde::Deserialize;

use crate::error::DataError;
use crate::files::{FileOptions, FileRef, in_parallel};
use crate::read::file_source::{Damages, FileSource, Take, UnitReader};
use crate::read::layout::Layout;
use crate::source::{Flow, Unit};

/// What is looked at of each file to find its columns.
const SAMPLE: u64 = 4 << 20;
/// A block is so many records, or so many bytes of them.
const ROWS: usize = 8192;
const BYTES: usize = 32 << 20;
/// What is longer is damage.
const LONGEST: u64 = 1 << 30;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TfRecordOptions {
    /// Features that are columns of lists, however many values they have.
    pub lists: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Example {
    #[prost(message, optional, tag = "1")]
    features: Option<Features>,
}

#[derive(Clone, PartialEq, Message)]
struct Features {
    #[prost(map = "string, message", tag = "1")]
    feature: HashMap<String, Feature>,
}

#[derive(Clone, PartialEq, Message)]
struct Feature {
    #[prost(oneof = "Kind", tags = "1, 2, 3")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Kind {
    #[prost(message, tag = "1")]
    Bytes(BytesList),
    #[prost(message, tag = "2")]
    Float(FloatList),
    #[prost(message, tag = "3")]
    Int64(Int64List),
}

#[derive(Clone, PartialEq, Message)]
struct BytesList {
    #[prost(bytes = "vec", repeated, tag = "1")]
    value: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct FloatList {
    #[prost(float, repeated, tag = "1")]
    value: Vec<f32>,
}

#[derive(Clone, PartialEq, Message)]
struct Int64List {
    #[prost(int64, repeated, tag = "1")]
    value: Vec<i64>,
}

impl Kind {
    fn element(&self) -> DataType {
        match self {
            Kind::Bytes(_) => DataType::Binary,
            Kind::Float(_) => DataType::Float32,
            Kind::Int64(_) => DataType::Int64,
        }
    }

    fn len(&self) -> usize {
        match self {
            Kind::Bytes(list) => list.value.len(),
            Kind::Float(list) => list.value.len(),
            Kind::Int64(list) => list.value.len(),
        }
    }
}

/// What is known of a feature.
#[derive(Clone)]
struct Column {
    element: DataType,
    is_list: bool,
}

struct TfRecordReader {
    files: Arc<[FileRef]>,
    /// The files that are units.
    places: Vec<usize>,
    own: SchemaRef,
    layout: Layout,
}

pub(crate) fn open(
    files: Vec<FileRef>,
    common: &FileOptions,
    options: TfRecordOptions,
) -> Result<FileSource, DataError> {
    let files: Arc<[FileRef]> = files.into();
    let damages = Arc::new(Damages::new(common.max_errors));
    let found = in_parallel(&files, |file| damages.tolerate(look(file)))?;
    let mut columns: BTreeMap<String, (Column, &str)> = BTreeMap::new();
    for (file, found) in files.iter().zip(&found) {
        for (name, column) in found.iter().flatten() {
            let known = columns.entry(name.clone()).or_insert_with(|| (column.clone(), &file.name));
            if known.0.element != column.element {
                return Err(DataError::SchemasDiffer {
                    first: known.1.to_owned(),
                    second: file.name.clone(),
                    difference: format!("`{name}` is {} and {}", known.0.element, column.element),
                });
            }
            known.0.is_list |= column.is_list || options.lists.contains(name);
        }
    }
    let field = |(name, (column, _)): (String, (Column, &str))| match column.is_list {
        true => Field::new(name, DataType::List(Arc::new(Field::new("item", column.element, true))), true),
        false => Field::new(name, column.element, true),
    };
    let own = Arc::new(Schema::new(columns.into_iter().map(field).collect::<Vec<_>>()));
    let layout = Layout::new(&own, &files, common.include_paths);
    let places: Vec<usize> = (0..files.len()).filter(|index| found[*index].is_some()).collect();
    let units = places.iter().map(|index| Unit { bytes: files[*index].size, ..Unit::default() }).collect();
    let reader = TfRecordReader { files: files.clone(), places, own, layout };
    Ok(FileSource { schema: reader.layout.schema(), units, files, damages, reader: Box::new(reader) })
}

fn look(file: &FileRef) -> Result<BTreeMap<String, Column>, DataError> {
    let mut columns: BTreeMap<String, Column> = BTreeMap::new();
    let mut records = Records::open(file)?;
    while let Some(example) = records.next()? {
        for (name, feature) in example {
            let Some(kind) = feature.kind else { continue };
            let (element, is_list) = (kind.element(), kind.len() > 1);
            let known = columns.entry(name).or_insert(Column { element: element.clone(), is_list });
            // One kind per file: another is an error when its record is read.
            known.is_list |= is_list;
        }
        if records.read > SAMPLE {
            break;
        }
    }
    Ok(columns)
}

/// The records of a file, one by one.
struct Records<'a> {
    file: &'a FileRef,
    plain: Box<dyn Read + 'a>,
    number: u64,
    read: u64,
    buffer: Vec<u8>,
}

impl<'a> Records<'a> {
    fn open(file: &'a FileRef) -> Result<Self, DataError> {
        let plain = file.stream_plain().map_err(|error| DataError::damaged(&file.name, None, error))?;
        let plain = Box::new(std::io::BufReader::with_capacity(256 << 10, plain));
        Ok(Self { file, plain, number: 0, read: 0, buffer: Vec::new() })
    }

    fn damaged(&self, why: impl std::fmt::Display) -> DataError {
        DataError::damaged(&self.file.name, Some(format!("record {}", self.number)), why)
    }

    fn next(&mut self) -> Result<Option<HashMap<String, Feature>>, DataError> {
        let mut header = Vec::with_capacity(12);
        let got = self.plain.by_ref().take(12).read_to_end(&mut header).map_err(|error| self.damaged(error))?;
        if got == 0 {
            return Ok(None);
        }
        if got < 12 {
            return Err(self.damaged("it is cut short"));
        }
        let length = u64::from_le_bytes(header[..8].try_into().expect("eight bytes"));
        if masked(&header[..8]) != header[8..] || length > LONGEST {
            return Err(self.damaged("the checksum of its length is wrong"));
        }
        self.buffer.clear();
        let wanted = length + 4;
        let got = self.plain.by_ref().take(wanted).read_to_end(&mut self.buffer);
        if got.map_err(|error| self.damaged(error))? as u64 != wanted {
            return Err(self.damaged("it is cut short"));
        }
        let (data, checksum) = self.buffer.split_at(length as usize);
        if masked(data) != checksum {
            return Err(self.damaged("its checksum is wrong"));
        }
        let example =
            Example::decode(data).map_err(|error| self.damaged(format!("it is no `tf.train.Example`: {error}")))?;
        self.number += 1;
        self.read += 12 + wanted;
        Ok(Some(example.features.unwrap_or_default().feature))
    }
}

/// The checksum as it is stored: turned and shifted, so that a checksum of what holds checksums is none of them.
fn masked(data: &[u8]) -> [u8; 4] {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

impl UnitReader for TfRecordReader {
    fn read(&self, unit: usize, take: Take<'_>) -> Result<(), DataError> {
        let file = &self.files[self.places[unit]];
        let mut records = Records::open(file)?;
        loop {
            let first = records.number;
            let begin = records.read;
            let mut rows = Vec::new();
            while rows.len() < ROWS && records.read - begin < BYTES as u64 {
                let Some(mut features) = records.next()? else { break };
                if let Some(name) = features.keys().find(|name| self.own.index_of(name).is_err()) {
                    let number = records.number - 1;
                    let why = format!("its feature `{name}` was not seen in the first {SAMPLE} bytes of any file");
                    return Err(DataError::damaged(&file.name, Some(format!("record {number}")), why));
                }
                rows.push(
                    self.own.fields().iter().map(|field| features.remove(field.name()).and_then(|f| f.kind)).collect(),
                );
            }
            if rows.is_empty() {
                return Ok(());
            }
            if self.own.fields().is_empty() {
                let why = "no record has a feature, so that there are no columns";
                return Err(DataError::damaged(&file.name, Some(format!("record {first}")), why));
            }
            let columns = self.own.fields().iter().enumerate().map(|(index, field)| {
                column(field, &mut rows, index).map_err(|(row, why)| {
                    DataError::damaged(&file.name, Some(format!("record {}", first + row as u64)), why)
                })
            });
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            let block = RecordBatch::try_new(self.own.clone(), columns)?;
            if take(self.layout.finish_one(block, file)?)? == Flow::Stop {
                return Ok(());
            }
        }
    }
}

/// A column of the records, or the row that does not fit and why.
fn column(field: &Field, rows: &mut [Vec<Option<Kind>>], index: usize) -> Result<ArrayRef, (usize, String)> {
    let name = field.name();
    let (element, is_list) = match field.data_type() {
        DataType::List(item) => (item.data_type(), true),
        kind => (kind, false),
    };
    for (row, kinds) in rows.iter().enumerate() {
        let Some(kind) = &kinds[index] else { continue };
        if kind.element() != *element {
            return Err((row, format!("its feature `{name}` is {}, and {element} in others", kind.element())));
        }
        if !is_list && kind.len() > 1 {
            let why = format!("its feature `{name}` has {} values, and one in others; name it in `lists`", kind.len());
            return Err((row, why));
        }
    }
    macro_rules! build {
        ($builder:ty, $kind:path) => {{
            let mut lists = ListBuilder::new(<$builder>::new());
            let mut values = <$builder>::new();
            for kinds in rows.iter_mut() {
                match (kinds[index].take(), is_list) {
                    (Some($kind(list)), true) => {
                        list.value.into_iter().for_each(|value| lists.values().append_value(value));
                        lists.append(true);
                    }
                    (Some($kind(list)), false) => values.append_option(list.value.into_iter().next()),
                    (_, true) => lists.append(false),
                    (_, false) => values.append_null(),
                }
            }
            match is_list {
                true => Arc::new(lists.finish()) as ArrayRef,
                false => Arc::new(values.finish()) as ArrayRef,
            }
        }};
    }
    Ok(match element {
        DataType::Binary => build!(BinaryBuilder, Kind::Bytes),
        DataType::Float32 => build!(Float32Builder, Kind::Float),
        _ => build!(Int64Builder, Kind::Int64),
    })
}
