//! One file on its way: rows in, bytes of a format out.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use arrow_array::RecordBatch;
use arrow_json::WriterBuilder;
use arrow_json::writer::{JsonArray, LineDelimited};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use serde::Deserialize;

use super::csv::CsvWriter;
use crate::error::DataError;

const BUFFER: usize = 256 << 10;

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
pub enum Format {
    Parquet(ParquetOptions),
    Csv(CsvOptions),
    Json(JsonOptions),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ParquetOptions {
    /// `snappy` where nothing is said.
    pub compression: Option<String>,
    pub compression_level: Option<i32>,
    /// In rows, at most.
    pub row_group_size: Option<usize>,
    pub use_dictionary: Option<bool>,
    pub write_statistics: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CsvOptions {
    pub include_header: Option<bool>,
    pub delimiter: Option<char>,
    pub quoting_style: Quoting,
    pub compression: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quoting {
    #[default]
    Needed,
    AllValid,
    None,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JsonOptions {
    /// One array in each file instead of a value in each line.
    pub is_array: bool,
    pub compression: Option<String>,
}

impl Format {
    /// What the names of files end in.
    pub fn ending(&self) -> String {
        let (name, compression) = match self {
            Format::Parquet(_) => return "parquet".to_owned(),
            Format::Csv(options) => ("csv", &options.compression),
            Format::Json(options) => ("json", &options.compression),
        };
        match Packing::of(compression.as_deref()) {
            Ok(packing) => format!("{name}{}", packing.ending()),
            Err(_) => name.to_owned(),
        }
    }
}

fn unknown(compression: &str, known: &str) -> DataError {
    let hint = Some(format!("there are {known}"));
    DataError::Invalid { what: format!("nothing is known of the compression `{compression}`"), hint }
}

fn parquet_compression(options: &ParquetOptions) -> Result<Compression, DataError> {
    let level = options.compression_level;
    let name = options.compression.as_deref().unwrap_or("snappy").to_lowercase();
    let wrong = |_| DataError::invalid(format!("`{name}` has no `compression_level={}`", level.unwrap_or_default()));
    Ok(match name.as_str() {
        "none" | "uncompressed" => Compression::UNCOMPRESSED,
        "snappy" => Compression::SNAPPY,
        "lz4" => Compression::LZ4_RAW,
        "gzip" => Compression::GZIP(match level {
            Some(level) => GzipLevel::try_new(level.max(0) as u32).map_err(wrong)?,
            None => GzipLevel::default(),
        }),
        "zstd" => Compression::ZSTD(match level {
            Some(level) => ZstdLevel::try_new(level).map_err(wrong)?,
            None => ZstdLevel::default(),
        }),
        "brotli" => Compression::BROTLI(match level {
            Some(level) => BrotliLevel::try_new(level.max(0) as u32).map_err(wrong)?,
            None => BrotliLevel::default(),
        }),
        _ => return Err(unknown(&name, "`snappy`, `zstd`, `gzip`, `lz4`, `brotli` and `none`")),
    })
}

fn parquet_properties(options: &ParquetOptions, schema: &Schema) -> Result<WriterProperties, DataError> {
    let mut properties = WriterProperties::builder().set_compression(parquet_compression(options)?);
    if let Some(rows) = options.row_group_size {
        properties = properties.set_max_row_group_row_count(Some(rows.max(1)));
    }
    match options.use_dictionary {
        Some(uses) => properties = properties.set_dictionary_enabled(uses),
        None => {
            let mut paths = Vec::new();
            schema.fields().iter().for_each(|field| add_floats(field, &[field.name().as_str()], &mut paths));
            for path in paths {
                properties = properties.set_column_dictionary_enabled(path, false);
            }
        }
    }
    if options.write_statistics == Some(false) {
        properties = properties.set_statistics_enabled(EnabledStatistics::None);
    }
    Ok(properties.build())
}

/// Numbers that are measured are seldom the same: a dictionary of them takes longer and makes files larger.
fn add_floats(field: &Field, path: &[&str], found: &mut Vec<ColumnPath>) {
    match field.data_type() {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            found.push(ColumnPath::new(path.iter().map(|part| (*part).to_owned()).collect()));
        }
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            add_floats(item, &[path, &["list", item.name().as_str()]].concat(), found);
        }
        DataType::Struct(fields) => {
            fields.iter().for_each(|field| add_floats(field, &[path, &[field.name().as_str()]].concat(), found));
        }
        _ => {}
    }
}

/// How a file of text is compressed.
#[derive(Clone, Copy)]
enum Packing {
    None,
    Gzip,
    Zstd,
    Bzip2,
}

impl Packing {
    fn of(name: Option<&str>) -> Result<Self, DataError> {
        Ok(match name.map(str::to_lowercase).as_deref() {
            None | Some("none") => Packing::None,
            Some("gzip" | "gz") => Packing::Gzip,
            Some("zstd" | "zst") => Packing::Zstd,
            Some("bz2" | "bzip2") => Packing::Bzip2,
            Some(other) => return Err(unknown(other, "`gzip`, `zstd`, `bz2` and `none`")),
        })
    }

    fn ending(self) -> &'static str {
        match self {
            Packing::None => "",
            Packing::Gzip => ".gz",
            Packing::Zstd => ".zst",
            Packing::Bzip2 => ".bz2",
        }
    }
}

pub(super) enum Packed {
    Plain(BufWriter<File>),
    Gzip(flate2::write::GzEncoder<BufWriter<File>>),
    Zstd(zstd::stream::write::Encoder<'static, BufWriter<File>>),
    Bzip2(bzip2::write::BzEncoder<BufWriter<File>>),
}

impl Packed {
    fn new(file: File, compression: Option<&str>) -> Result<Self, DataError> {
        let file = BufWriter::with_capacity(BUFFER, file);
        Ok(match Packing::of(compression)? {
            Packing::None => Packed::Plain(file),
            Packing::Gzip => Packed::Gzip(flate2::write::GzEncoder::new(file, flate2::Compression::default())),
            Packing::Zstd => Packed::Zstd(zstd::stream::write::Encoder::new(file, 0).map_err(ArrowError::from)?),
            Packing::Bzip2 => Packed::Bzip2(bzip2::write::BzEncoder::new(file, bzip2::Compression::default())),
        })
    }

    fn finish(self) -> io::Result<File> {
        let file = match self {
            Packed::Plain(file) => file,
            Packed::Gzip(encoder) => encoder.finish()?,
            Packed::Zstd(encoder) => encoder.finish()?,
            Packed::Bzip2(encoder) => encoder.finish()?,
        };
        file.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

impl Write for Packed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Packed::Plain(file) => file.write(bytes),
            Packed::Gzip(encoder) => encoder.write(bytes),
            Packed::Zstd(encoder) => encoder.write(bytes),
            Packed::Bzip2(encoder) => encoder.write(bytes),
        }
    }

    /// Only the end of a file is worth a flush: in between it would cut what is compressed into pieces.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) enum Encoder {
    Parquet(Box<ArrowWriter<BufWriter<File>>>),
    Csv(Box<CsvWriter<Packed>>),
    Lines(Box<arrow_json::Writer<Packed, LineDelimited>>),
    Array(Box<arrow_json::Writer<Packed, JsonArray>>),
}

/// What stops an encoder: the disk, or rows that it cannot hold.
pub(super) enum Stopped {
    Disk(io::Error),
    Rows(String),
}

impl From<ArrowError> for Stopped {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::IoError(_, source) => Stopped::Disk(source),
            ArrowError::JsonError(why) | ArrowError::InvalidArgumentError(why) => Stopped::Rows(why),
            other => Stopped::Rows(other.to_string()),
        }
    }
}

impl From<ParquetError> for Stopped {
    fn from(error: ParquetError) -> Self {
        match error {
            ParquetError::External(source) => match source.downcast::<io::Error>() {
                Ok(source) => Stopped::Disk(*source),
                Err(other) => Stopped::Rows(other.to_string()),
            },
            ParquetError::General(why) | ParquetError::NYI(why) | ParquetError::ArrowError(why) => Stopped::Rows(why),
            other => Stopped::Rows(other.to_string()),
        }
    }
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Stopped::Disk(error)
    }
}

impl Encoder {
    pub fn new(file: File, schema: SchemaRef, format: &Format) -> Result<Self, DataError> {
        Ok(match format {
            Format::Parquet(options) => {
                let properties = parquet_properties(options, &schema)?;
                let file = BufWriter::with_capacity(BUFFER, file);
                let made = ArrowWriter::try_new(file, schema, Some(properties));
                Encoder::Parquet(Box::new(made.map_err(|error| DataError::Arrow(error.into()))?))
            }
            Format::Csv(options) => {
                let delimiter = options.delimiter.unwrap_or(',');
                let delimiter = u8::try_from(delimiter)
                    .map_err(|_| DataError::invalid(format!("the delimiter `{delimiter}` is longer than a byte")))?;
                let file = Packed::new(file, options.compression.as_deref())?;
                let has_header = options.include_header.unwrap_or(true);
                Encoder::Csv(Box::new(CsvWriter::new(file, delimiter, options.quoting_style, has_header)))
            }
            Format::Json(options) => {
                let file = Packed::new(file, options.compression.as_deref())?;
                // A column that is null in the first row is a column all the same.
                let builder = WriterBuilder::new().with_explicit_nulls(true);
                match options.is_array {
                    true => Encoder::Array(Box::new(builder.build(file))),
                    false => Encoder::Lines(Box::new(builder.build(file))),
                }
            }
        })
    }

    pub fn write(&mut self, rows: &RecordBatch) -> Result<(), Stopped> {
        match self {
            Encoder::Parquet(writer) => writer.write(rows)?,
            Encoder::Csv(writer) => writer.write(rows)?,
            Encoder::Lines(writer) => writer.write(rows)?,
            Encoder::Array(writer) => writer.write(rows)?,
        }
        Ok(())
    }

    /// Bytes that wait for the end of a row group.
    pub fn held(&self) -> usize {
        match self {
            Encoder::Parquet(writer) => writer.memory_size(),
            _ => 0,
        }
    }

    pub fn flush(&mut self) -> Result<(), Stopped> {
        match self {
            Encoder::Parquet(writer) => Ok(writer.flush()?),
            _ => Ok(()),
        }
    }

    /// With everything in the file.
    pub fn finish(self) -> Result<File, Stopped> {
        Ok(match self {
            Encoder::Parquet(writer) => writer.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error)?,
            Encoder::Csv(writer) => writer.into_inner().finish()?,
            Encoder::Lines(mut writer) => {
                writer.finish()?;
                writer.into_inner().finish()?
            }
            Encoder::Array(mut writer) => {
                writer.finish()?;
                writer.into_inner().finish()?
            }
        })
    }
}
