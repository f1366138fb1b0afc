//! `.npy` files: rows along the first axis, in a column `data` of numbers or of tensors of one shape.
//!
//! A single number is one row. Times of days and hours become such of seconds, and "not a time" is null. Texts are read from
//! arrays of one axis. Python objects never are: that would run what the file says.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, FixedSizeListArray, Int64Array, RecordBatch, StringArray, make_array,
};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use bytes::Bytes;
use serde::Deserialize;

use crate::error::DataError;
use crate::files::{FileOptions, FileRef, in_parallel};
use crate::read::BLOCK_ROWS;
use crate::read::file_source::{Damages, FileSource, Take, UnitReader};
use crate::read::layout::Layout;
use crate::read::schema::{Lacking, unify};
use crate::source::Unit;
use crate::tensor::fixed_field;

const MAGIC: &[u8] = b"\x93NUMPY";
/// The header of an array of numbers is some 118 bytes long.
const START: u64 = 4096;
const UNIT: u64 = 16 << 20;
/// Rows of no bytes (a shape of `(5, 0)`, texts of no characters) cost a file nothing and memory something.
const MOST_EMPTY_ROWS: usize = 1 << 24;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NumpyOptions {}

/// How an element lies in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stored {
    Number,
    /// A time in units of so many of the column's.
    Time(i64),
    /// UTF-32, filled up with zeros.
    Text,
    /// Filled up with zeros.
    Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Header {
    element: DataType,
    stored: Stored,
    /// The bytes of an element.
    width: usize,
    is_big_endian: bool,
    is_fortran: bool,
    shape: Vec<usize>,
    /// Where the elements begin.
    begin: u64,
}

impl Header {
    fn elements(&self) -> usize {
        self.shape[1..].iter().product()
    }

    fn row_bytes(&self) -> u64 {
        (self.elements() * self.width) as u64
    }

    fn field(&self) -> Field {
        match self.shape.len() {
            1 => Field::new("data", self.element.clone(), matches!(self.stored, Stored::Time(_))),
            _ => fixed_field("data", self.element.clone(), &self.shape[1..]),
        }
    }
}

struct NumpyReader {
    files: Arc<[FileRef]>,
    headers: Vec<Option<Header>>,
    places: Vec<(usize, Range<usize>)>,
    layout: Layout,
}

pub(crate) fn open(files: Vec<FileRef>, common: &FileOptions, _options: NumpyOptions) -> Result<FileSource, DataError> {
    let files: Arc<[FileRef]> = files.into();
    let damages = Arc::new(Damages::new(common.max_errors));
    let headers = in_parallel(&files, |file| damages.tolerate(look(file)))?;
    let known = || files.iter().zip(&headers).filter_map(|(file, header)| Some((file, header.as_ref()?)));
    if let Some((first_file, first)) = known().next() {
        for (file, header) in known() {
            if header.shape[1..] != first.shape[1..] {
                return Err(DataError::SchemasDiffer {
                    first: first_file.name.clone(),
                    second: file.name.clone(),
                    difference: format!(
                        "a row of `data` has the shape {:?} in the one and {:?} in the other",
                        &first.shape[1..],
                        &header.shape[1..]
                    ),
                });
            }
        }
    }
    let schemas: Vec<(&str, Schema)> =
        known().map(|(file, header)| (file.name.as_str(), Schema::new(vec![header.field()]))).collect();
    let own = unify(schemas.iter().map(|(name, schema)| (*name, schema)), Lacking::IsAnError)?;
    let layout = Layout::new(&own, &files, common.include_paths);
    let (mut units, mut places) = (Vec::new(), Vec::new());
    for (index, header) in headers.iter().enumerate() {
        let Some(header) = header else { continue };
        let rows = header.shape[0];
        // The rows of an array in Fortran's order lie all over the file.
        let step = match header.is_fortran && header.shape.len() > 1 {
            true => rows.max(1),
            false if header.row_bytes() == 0 => BLOCK_ROWS,
            false => (UNIT / header.row_bytes()).max(1) as usize,
        };
        for begin in (0..rows).step_by(step) {
            let range = begin..rows.min(begin + step);
            units.push(Unit {
                rows: Some(range.len() as u64),
                bytes: range.len() as u64 * header.row_bytes(),
                ..Unit::default()
            });
            places.push((index, range));
        }
    }
    let reader = NumpyReader { files: files.clone(), headers, places, layout };
    Ok(FileSource { schema: reader.layout.schema(), units, files, damages, reader: Box::new(reader) })
}

fn look(file: &FileRef) -> Result<Header, DataError> {
    let damaged = |why: String| DataError::damaged(&file.name, Some("its header".to_owned()), why);
    let mut start = file.read_start(START)?;
    let (text, begin) = loop {
        if start.len() < 12 || !start.starts_with(MAGIC) {
            return Err(damaged(match start.starts_with(b"PK") {
                true => "it is an `.npz` archive: save its arrays as `.npy` files".to_owned(),
                false => "it is no `.npy` file".to_owned(),
            }));
        }
        let (at, length) = match start[6] {
            1 => (10, usize::from(u16::from_le_bytes([start[8], start[9]]))),
            _ => (12, u32::from_le_bytes([start[8], start[9], start[10], start[11]]) as usize),
        };
        match start.get(at..at + length) {
            Some(text) => break (String::from_utf8_lossy(text).into_owned(), at + length),
            None if (start.len() as u64) < file.size && length < 1 << 20 => {
                start = file.read_start((at + length) as u64)?;
            }
            None => return Err(damaged("it is cut short".to_owned())),
        }
    };
    let mut header = parse(&text).map_err(damaged)?;
    header.begin = begin as u64;
    let wanted = header.begin + header.shape[0] as u64 * header.row_bytes();
    if header.row_bytes() == 0 && header.shape[0] > MOST_EMPTY_ROWS {
        return Err(damaged(format!("it says that it has {} rows of no bytes", header.shape[0])));
    }
    match file.size >= wanted {
        true => Ok(header),
        false => Err(DataError::damaged(&file.name, None, format!("it has {} bytes instead of {wanted}", file.size))),
    }
}

/// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`
fn parse(text: &str) -> Result<Header, String> {
    let after = |key: &str| {
        let (_, rest) = text.split_once(&format!("'{key}':")).ok_or(format!("it lacks `{key}`"))?;
        Ok::<&str, String>(rest.trim_start())
    };
    let descr = after("descr")?;
    let descr = descr.strip_prefix('\'').and_then(|rest| rest.split('\'').next()).ok_or("its rows are structures")?;
    // A damaged one may begin with a character of several bytes.
    let (order, name) =
        descr.split_at_checked(descr.len().min(1)).ok_or_else(|| format!("its elements are `{descr}`"))?;
    let (element, stored, width) = parse_element(name).ok_or_else(|| match name {
        "O" => format!("its elements are `{descr}`, Python objects, which are not unpickled"),
        _ => format!("its elements are `{descr}`, not numbers, truth values, times or texts"),
    })?;
    let is_fortran = after("fortran_order")?.starts_with("True");
    let shape =
        after("shape")?.strip_prefix('(').and_then(|rest| rest.split(')').next()).ok_or("its shape is unknown")?;
    let lengths = shape.split(',').map(str::trim).filter(|length| !length.is_empty());
    let shape = lengths.map(|length| length.trim_end_matches('L').parse()).collect::<Result<Vec<usize>, _>>();
    let mut shape = shape.map_err(|_| "its shape is unknown")?;
    if shape.is_empty() {
        shape.push(1);
    }
    if shape.len() > 1 && matches!(stored, Stored::Text | Stored::Bytes) {
        return Err("it has texts in more than one axis".to_owned());
    }
    // An axis of length 0 must not hide that the others are too long to be multiplied.
    let product = |lengths: &[usize], from: usize| {
        lengths.iter().try_fold(from, |bytes: usize, length| bytes.checked_mul((*length).max(1)))
    };
    let fits = |most: u64, product: Option<usize>| product.is_some_and(|product| product as u64 <= most);
    match fits(1 << 50, product(&shape, width.max(1))) && fits((1 << 31) - 1, product(&shape[1..], 1)) {
        true => Ok(Header { element, stored, width, is_big_endian: order == ">", is_fortran, shape, begin: 0 }),
        false => Err(format!("its shape {shape:?} is too large")),
    }
}

/// The type of a column, how its elements lie in the file, and their width.
fn parse_element(name: &str) -> Option<(DataType, Stored, usize)> {
    let number = match name {
        "b1" => DataType::Boolean,
        "i1" => DataType::Int8,
        "i2" => DataType::Int16,
        "i4" => DataType::Int32,
        "i8" => DataType::Int64,
        "u1" => DataType::UInt8,
        "u2" => DataType::UInt16,
        "u4" => DataType::UInt32,
        "u8" => DataType::UInt64,
        "f2" => DataType::Float16,
        "f4" => DataType::Float32,
        "f8" => DataType::Float64,
        name => {
            let (kind, rest) = name.split_at_checked(1)?;
            return match kind {
                "U" => Some((DataType::Utf8, Stored::Text, rest.parse::<usize>().ok()?.checked_mul(4)?)),
                "S" => Some((DataType::Binary, Stored::Bytes, rest.parse().ok()?)),
                "M" | "m" => {
                    let (unit, times) = match rest.strip_prefix("8[")?.strip_suffix(']')? {
                        "W" => (TimeUnit::Second, 604_800),
                        "D" => (TimeUnit::Second, 86_400),
                        "h" => (TimeUnit::Second, 3_600),
                        "m" => (TimeUnit::Second, 60),
                        "s" => (TimeUnit::Second, 1),
                        "ms" => (TimeUnit::Millisecond, 1),
                        "us" => (TimeUnit::Microsecond, 1),
                        "ns" => (TimeUnit::Nanosecond, 1),
                        _ => return None,
                    };
                    let is_moment = kind == "M";
                    let kind = if is_moment { DataType::Timestamp(unit, None) } else { DataType::Duration(unit) };
                    Some((kind, Stored::Time(times), 8))
                }
                _ => None,
            };
        }
    };
    Some((number, Stored::Number, name[1..].parse().ok()?))
}

impl UnitReader for NumpyReader {
    fn read(&self, unit: usize, take: Take<'_>) -> Result<(), DataError> {
        let (index, rows) = &self.places[unit];
        let file = &self.files[*index];
        let header = self.headers[*index].as_ref().expect("a unit's file was opened");
        let at = |row: usize| header.begin + row as u64 * header.row_bytes();
        let mut bytes = file.read_range(at(rows.start)..at(rows.end))?;
        if header.is_fortran && header.shape.len() > 1 {
            bytes = to_row_major(&bytes, header).into();
        }
        let width = if header.stored == Stored::Text { 4 } else { header.width };
        if header.is_big_endian && width > 1 && header.stored != Stored::Bytes {
            bytes =
                bytes.chunks_exact(width).flat_map(|element| element.iter().rev().copied()).collect::<Vec<_>>().into();
        }
        let values = values(bytes, header, rows.len() * header.elements())
            .map_err(|why| DataError::damaged(&file.name, Some(format!("rows {} to {}", rows.start, rows.end)), why))?;
        let field = header.field();
        let column: ArrayRef = match field.data_type() {
            DataType::FixedSizeList(item, size) => {
                let list = FixedSizeListArray::try_new_with_length(item.clone(), *size, values, None, rows.len())?;
                Arc::new(list)
            }
            _ => values,
        };
        let schema: SchemaRef = Arc::new(Schema::new(vec![field]));
        take(self.layout.finish_one(RecordBatch::try_new(schema, vec![column])?, file)?).map(drop)
    }
}

fn values(bytes: Bytes, header: &Header, length: usize) -> Result<ArrayRef, String> {
    let rows = || (0..length).map(|row| &bytes[row * header.width..(row + 1) * header.width]);
    match (header.stored, &header.element) {
        (Stored::Text, _) => Ok(Arc::new(rows().map(text).collect::<Result<StringArray, _>>()?)),
        (Stored::Bytes, _) => {
            let shown = |row: &'_ [u8]| row.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            Ok(Arc::new(BinaryArray::from_iter_values(rows().map(|row| &row[..shown(row)]))))
        }
        (Stored::Time(times), kind) => {
            let number = |row: &[u8]| i64::from_le_bytes(row.try_into().expect("eight bytes"));
            // numpy's "not a time" is the least number. In a tensor it stays one: its elements are never null.
            let is_time = |number: &i64| *number != i64::MIN || header.shape.len() > 1;
            let scaled = |number: i64| match number {
                i64::MIN => Ok(i64::MIN),
                number => number.checked_mul(times).ok_or_else(|| format!("the time {number} is too far away")),
            };
            let times = rows().map(|row| Some(number(row)).filter(is_time).map(scaled).transpose());
            let whole = times.collect::<Result<Int64Array, _>>()?;
            arrow_cast::cast(&whole, kind).map_err(|error| error.to_string())
        }
        (Stored::Number, DataType::Boolean) => {
            Ok(Arc::new(bytes.iter().map(|byte| Some(*byte != 0)).collect::<BooleanArray>()))
        }
        (Stored::Number, kind) => {
            let data = ArrayData::builder(kind.clone()).len(length).add_buffer(Buffer::from(bytes));
            Ok(make_array(data.align_buffers(true).build().map_err(|error| error.to_string())?))
        }
    }
}

fn text(row: &[u8]) -> Result<Option<String>, String> {
    let character = |bytes: &[u8]| {
        let number = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        char::from_u32(number).ok_or_else(|| format!("{number:#x} is no character"))
    };
    let whole = row.chunks_exact(4).map(character).collect::<Result<String, _>>()?;
    Ok(Some(whole.trim_end_matches('\0').to_owned()))
}

/// From the order in which the first index runs fastest to that in which the last one does.
fn to_row_major(bytes: &[u8], header: &Header) -> Vec<u8> {
    let (shape, width) = (&header.shape, header.width);
    let strides: Vec<usize> = shape
        .iter()
        .scan(1, |stride, length| {
            let here = *stride;
            *stride *= length;
            Some(here)
        })
        .collect();
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = vec![0; shape.len()];
    let mut at = 0;
    for _ in 0..bytes.len() / width {
        out.extend_from_slice(&bytes[at * width..(at + 1) * width]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            at -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
    out
}
