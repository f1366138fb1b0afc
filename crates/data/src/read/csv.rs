//! CSV: a unit is a range of bytes that holds whole records, or a compressed file.
//!
//! The types of columns are inferred from the beginning of each file and hold for all of it: a value that does not fit is an
//! error that names its line, never a null. A file without a record, not even the names of columns, has no rows, like an empty file of JSON
//! or text, and says nothing of the columns.

mod infer;
mod times;
mod tokens;
mod values;

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use serde::Deserialize;

use crate::error::DataError;
use crate::files::{FileOptions, FileRef, in_parallel};
use crate::read::BLOCK_ROWS;
use crate::read::file_source::{Damages, FileSource, Take, UnitReader};
use crate::read::layout::Layout;
use crate::read::records::{Ends, Extent, cut, last_end, line_at};
use crate::read::types::parse_type;
use crate::source::Flow;
use infer::Kinds;
use tokens::{Dialect, Tokens};
use values::{Nulls, array};

/// What is looked at of each file to find its types.
const SAMPLE: u64 = 1 << 20;
/// A block of CSV is smaller than others: its rows are parsed while their text is in the cache of the processor.
const ROWS: usize = BLOCK_ROWS / 4;
const BOM: &[u8] = b"\xef\xbb\xbf";

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CsvOptions {
    /// Whether the first record has the names of the columns; without it they are `f0`, `f1`, ….
    pub header: bool,
    pub column_names: Option<Vec<String>>,
    pub delimiter: char,
    pub quote: Option<char>,
    pub escape: Option<char>,
    /// Lines before the header.
    pub skip_rows: usize,
    pub columns: Option<Vec<String>>,
    pub column_types: HashMap<String, String>,
    pub null_values: Option<Vec<String>>,
    pub strings_can_be_null: bool,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self {
            header: true,
            column_names: None,
            delimiter: ',',
            quote: Some('"'),
            escape: None,
            skip_rows: 0,
            columns: None,
            column_types: HashMap::new(),
            null_values: None,
            strings_can_be_null: false,
        }
    }
}

struct CsvReader {
    files: Arc<[FileRef]>,
    extents: Vec<Extent>,
    /// The names of the columns of each file, in its order.
    names: Vec<Vec<String>>,
    own: SchemaRef,
    layout: Layout,
    dialect: Dialect,
    ends: Ends,
    nulls: Nulls,
}

/// What the beginning of a file tells.
struct Opened {
    names: Vec<String>,
    kinds: Vec<Kinds>,
    extents: Vec<Extent>,
}

pub(crate) fn open(files: Vec<FileRef>, common: &FileOptions, options: CsvOptions) -> Result<FileSource, DataError> {
    let files: Arc<[FileRef]> = files.into();
    let dialect = Dialect {
        delimiter: one_byte("delimiter", options.delimiter)?,
        quote: options.quote.map(|quote| one_byte("quote", quote)).transpose()?,
        escape: options.escape.map(|escape| one_byte("escape", escape)).transpose()?,
    };
    let ends = match dialect {
        Dialect { escape: Some(_), .. } => Ends::Whole,
        Dialect { quote: Some(quote), delimiter, .. } => Ends::Quoted { quote, delimiter },
        _ => Ends::Lines,
    };
    let nulls = Nulls::new(options.null_values.as_deref(), options.strings_can_be_null);
    let damages = Arc::new(Damages::new(common.max_errors));
    let indices: Vec<usize> = (0..files.len()).collect();
    let opened =
        in_parallel(&indices, |index| damages.tolerate(look(&files[*index], *index, &options, dialect, ends, &nulls)))?;
    let own = join_types(&files, &opened, &options)?;
    let mut layout = Layout::new(&own, &files, common.include_paths);
    if let Some(mut columns) = options.columns {
        if common.include_paths && !columns.iter().any(|column| column == "path") {
            columns.push("path".to_owned());
        }
        layout = layout.select(&columns)?;
    }
    let extents: Vec<Extent> = opened.iter().flatten().flat_map(|file| file.extents.clone()).collect();
    let units = extents.iter().map(|extent| extent.unit(&files, 2)).collect();
    let names = opened.into_iter().map(|file| file.map_or_else(Vec::new, |file| file.names)).collect();
    let own = Arc::new(layout.own());
    let reader = CsvReader { files: files.clone(), extents, names, own, layout, dialect, ends, nulls };
    Ok(FileSource { schema: reader.layout.schema(), units, files, damages, reader: Box::new(reader) })
}

fn one_byte(what: &str, character: char) -> Result<u8, DataError> {
    let is_free = character.is_ascii() && !"\r\n".contains(character);
    is_free.then_some(character as u8).ok_or_else(|| {
        DataError::invalid(format!("`{what}` must be one ASCII character that is no line end, not {character:?}"))
    })
}

/// The names and types of a file's columns, and its units.
fn look(
    file: &FileRef,
    index: usize,
    options: &CsvOptions,
    dialect: Dialect,
    ends: Ends,
    nulls: &Nulls,
) -> Result<Opened, DataError> {
    let (sample, is_all) = file.read_plain_start(SAMPLE)?;
    let mut begin = if sample.starts_with(BOM) { BOM.len() } else { 0 };
    let lines = |line: usize| format!("line {line}");
    for _ in 0..options.skip_rows {
        begin += memchr::memchr(b'\n', &sample[begin..]).map_or(sample.len() - begin, |at| at + 1);
    }
    // The last record of a sample may be cut.
    let end = match is_all {
        true => sample.len(),
        false => last_end(&sample[begin..], ends).map_or(sample.len(), |end| begin + end),
    };
    let bad = |error: tokens::BadRecord, from: usize| {
        let line = memchr::memchr_iter(b'\n', &sample[..(from + error.offset).min(sample.len())]).count() + 1;
        DataError::damaged(&file.name, Some(lines(line)), error.why)
    };
    let not_utf8 = || {
        let line = memchr::memchr_iter(b'\n', &sample[..begin]).count() + 1;
        DataError::damaged(&file.name, Some(lines(line)), "it is not UTF-8")
    };
    let mut first = Tokens::new(&sample[begin..end], dialect, None).map_err(|error| bad(error, begin))?;
    if !first.fill(1).map_err(|error| bad(error, begin))? {
        let names = options.column_names.clone().unwrap_or_default();
        return Ok(Opened { kinds: vec![Kinds::ALL; names.len()], names, extents: Vec::new() });
    }
    let name = |name: &[u8]| String::from_utf8(name.to_vec()).map_err(|_| not_utf8());
    let mut names: Vec<String> = match options.header {
        true => first.record().into_iter().map(name).collect::<Result<_, _>>()?,
        false => (0..first.record().len()).map(|number| format!("f{number}")).collect(),
    };
    if options.header {
        begin += first.position();
    }
    if let Some(own) = &options.column_names {
        if own.len() != names.len() {
            let why = format!("it has {} columns, and `column_names` has {}", names.len(), own.len());
            return Err(DataError::damaged(&file.name, None, why));
        }
        names = own.clone();
    }
    if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)).map(|(_, name)| name) {
        return Err(DataError::damaged(&file.name, Some(lines(1)), format!("two columns are named `{twice}`")));
    }
    let mut tokens = Tokens::new(&sample[begin..end], dialect, Some(names.len())).map_err(|error| bad(error, begin))?;
    let mut kinds = vec![Kinds::ALL; names.len()];
    // A record that is wrong is an error when it is read: its unit may be passed over.
    while let Ok(true) = tokens.fill(ROWS) {
        for (column, kind) in kinds.iter_mut().enumerate() {
            *kind = *kind & Kinds::of(tokens.column(column), nulls);
        }
    }
    if !is_all {
        // What is null so far may be anything later on.
        kinds.iter_mut().filter(|kind| kind.is_unknown()).for_each(|kind| *kind = Kinds::TEXT);
    }
    Ok(Opened { names, kinds, extents: cut(file, index, begin as u64, ends)? })
}

fn join_types(files: &[FileRef], opened: &[Option<Opened>], options: &CsvOptions) -> Result<Schema, DataError> {
    let both = files.iter().zip(opened).filter_map(|(file, opened)| Some((file, opened.as_ref()?)));
    let mut both = both.filter(|(_, opened)| !opened.names.is_empty());
    let Some((first_file, first)) = both.next() else { return Ok(Schema::empty()) };
    let mut kinds = first.kinds.clone();
    for (file, other) in both {
        let only = |names: &[String], others: &[String]| names.iter().find(|name| !others.contains(name)).cloned();
        let difference = match (only(&first.names, &other.names), only(&other.names, &first.names)) {
            (Some(name), _) => Some(format!("`{name}` is only in the first")),
            (None, Some(name)) => Some(format!("`{name}` is only in the second")),
            (None, None) => None,
        };
        if let Some(difference) = difference {
            let (first, second) = (first_file.name.clone(), file.name.clone());
            return Err(DataError::SchemasDiffer { first, second, difference });
        }
        for (name, kind) in first.names.iter().zip(&mut kinds) {
            let at = other.names.iter().position(|known| known == name).expect("the same names, as was seen above");
            *kind = *kind & other.kinds[at];
        }
    }
    let mut types: Vec<DataType> = kinds.into_iter().map(Kinds::data_type).collect();
    for (name, kind) in &options.column_types {
        let at = first.names.iter().position(|known| known == name).ok_or_else(|| DataError::NoColumn {
            column: name.clone(),
            there: first.names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
        })?;
        types[at] = parse_type(kind)?;
    }
    let fields = first.names.iter().zip(types).map(|(name, kind)| Field::new(name, kind, true));
    Ok(Schema::new(fields.collect::<Vec<_>>()))
}

impl CsvReader {
    /// The blocks of a piece of text; false where the reader is to stop.
    fn read_piece(&self, index: usize, offset: u64, text: &Bytes, take: Take<'_>) -> Result<bool, DataError> {
        let file = &self.files[index];
        let damaged = |at: usize, why: String| {
            let line = line_at(file, offset + at as u64);
            DataError::damaged(&file.name, Some(format!("line {line}")), why)
        };
        if let Err(error) = std::str::from_utf8(text) {
            return Err(damaged(error.valid_up_to(), "it is not UTF-8".to_owned()));
        }
        let bad = |error: tokens::BadRecord| damaged(error.offset, error.why);
        let names = &self.names[index];
        let mut tokens = Tokens::new(text, self.dialect, Some(names.len())).map_err(bad)?;
        while tokens.fill(ROWS).map_err(bad)? {
            let columns = self.own.fields().iter().map(|field| {
                let at = names.iter().position(|name| name == field.name()).expect("every file has all columns");
                array(tokens.column(at), field.data_type(), &self.nulls).map_err(|error| {
                    let (value, name, kind) = (error.value, field.name(), field.data_type());
                    let why =
                        format!("`{value}` in column `{name}` is no {kind}; `column_types` can give it another type");
                    damaged(tokens.begin(error.row), why)
                })
            });
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            let options = RecordBatchOptions::new().with_row_count(Some(tokens.rows()));
            let block = RecordBatch::try_new_with_options(self.own.clone(), columns, &options)?;
            if take(self.layout.finish_one(block, file)?)? == Flow::Stop {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl UnitReader for CsvReader {
    fn read(&self, unit: usize, take: Take<'_>) -> Result<(), DataError> {
        let extent = &self.extents[unit];
        extent.pieces(&self.files, self.ends, &mut |offset, text| self.read_piece(extent.file, offset, &text, take))
    }
}
