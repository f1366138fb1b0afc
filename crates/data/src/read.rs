//! The readers of files: what is read is described as data (`ReadSpec`), and opened as a `Source`.

pub mod binary;
pub(crate) mod compression;
pub mod csv;
mod file_source;
pub mod filter;
pub mod images;
pub mod ipc;
pub mod json;
pub(crate) mod layout;
pub mod memory;
pub mod numpy;
pub mod parquet;
mod parquet_input;
mod parquet_pages;
mod pixels;
mod records;
pub(crate) mod schema;
pub mod text;
pub mod tfrecord;
mod types;
pub mod webdataset;

use std::sync::Arc;

use serde::Deserialize;

use crate::error::DataError;
use crate::files::{FileOptions, FileRef, find_usual};
use crate::source::Source;
use file_source::FileSource;
pub use pixels::Mode;

/// The most rows of a block that a reader hands over.
pub(crate) const BLOCK_ROWS: usize = 65_536;
/// The most that a block of known size takes, but for one row.
pub(crate) const BLOCK_BYTES: u64 = 16 << 20;

/// How many rows of a unit of this size make a block: a power of two, so that batches seldom lie across two.
pub(crate) fn block_rows(rows: u64, bytes: u64) -> usize {
    let fit = BLOCK_BYTES * rows.max(1) / bytes.max(1);
    if fit >= BLOCK_ROWS as u64 { BLOCK_ROWS } else { 1 << fit.max(1).ilog2() }
}

/// What is read, and how.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "format", rename_all = "snake_case")]
pub enum ReadSpec {
    Parquet(FileSpec<parquet::ParquetOptions>),
    Csv(FileSpec<csv::CsvOptions>),
    Json(FileSpec<json::JsonOptions>),
    Text(FileSpec<text::TextOptions>),
    Binary(FileSpec<binary::BinaryOptions>),
    Images(FileSpec<images::ImageOptions>),
    Numpy(FileSpec<numpy::NumpyOptions>),
    Ipc(FileSpec<ipc::IpcOptions>),
    Tfrecord(FileSpec<tfrecord::TfRecordOptions>),
    Webdataset(FileSpec<webdataset::WebDatasetOptions>),
    Range(memory::RangeOptions),
}

/// Files, and how those of one format are read.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSpec<O: Default> {
    pub paths: Vec<String>,
    #[serde(default)]
    pub files: FileOptions,
    #[serde(default)]
    pub options: O,
}

impl<O: Default> FileSpec<O> {
    /// `usual` are the endings that are looked for below directories.
    fn open(
        self,
        usual: &[&str],
        open: impl FnOnce(Vec<FileRef>, &FileOptions, O) -> Result<FileSource, DataError>,
    ) -> Result<Arc<dyn Source>, DataError> {
        let found = find_usual(&self.paths, &self.files, usual)?;
        let mut source = open(found, &self.files, self.options)?;
        if self.files.max_errors > 0 {
            // The rows of a unit that turns out to be damaged are missing.
            source.units.iter_mut().for_each(|unit| unit.rows = None);
        }
        Ok(Arc::new(source))
    }

    /// As `open`, where files may be compressed.
    fn open_packed(
        self,
        usual: &[&str],
        open: impl FnOnce(Vec<FileRef>, &FileOptions, O) -> Result<FileSource, DataError>,
    ) -> Result<Arc<dyn Source>, DataError> {
        let packed = usual.iter().flat_map(|end| compression::ENDINGS.map(|packed| format!("{end}.{packed}")));
        let all: Vec<String> = usual.iter().map(|end| (*end).to_owned()).chain(packed).collect();
        self.open(&all.iter().map(String::as_str).collect::<Vec<_>>(), open)
    }
}

impl ReadSpec {
    pub fn open(self) -> Result<Arc<dyn Source>, DataError> {
        match self {
            ReadSpec::Parquet(spec) => spec.open(&["parquet", "parq", "pq"], parquet::open),
            ReadSpec::Csv(spec) => spec.open_packed(&["csv", "tsv"], csv::open),
            ReadSpec::Json(spec) => spec.open_packed(&["json", "jsonl", "ndjson"], json::open),
            // Text and bytes are what any file holds.
            ReadSpec::Text(spec) => spec.open(&[], text::open),
            ReadSpec::Binary(spec) => spec.open(&[], binary::open),
            ReadSpec::Images(spec) => {
                spec.open(&["jpg", "jpeg", "png", "bmp", "gif", "webp", "tif", "tiff"], images::open)
            }
            ReadSpec::Numpy(spec) => spec.open(&["npy"], numpy::open),
            ReadSpec::Ipc(spec) => spec.open(&["arrow", "feather", "ipc"], ipc::open),
            ReadSpec::Tfrecord(spec) => spec.open_packed(&["tfrecord", "tfrecords"], tfrecord::open),
            ReadSpec::Webdataset(spec) => spec.open_packed(&["tar"], webdataset::open),
            ReadSpec::Range(options) => Ok(Arc::new(memory::Range::new(options)?)),
        }
    }
}
