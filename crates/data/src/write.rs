//! The writers: blocks into Parquet, CSV or JSON files below a directory, one block after the other.
//!
//! WRITE-1: a file is whole or not there: it is written under another name, or beside the storage, and put in its place.
//! WRITE-2: of a write that fails, or is given up, nothing is left; what was there before stays until all is written.
//! WRITE-3: two writes into one directory never choose the same name.
//! WRITE-4: what is held in memory does not grow with the data: encoded row groups are handed to the file by their size.

mod csv;
mod encoder;
mod output;
mod tables;

use std::collections::HashSet;

use arrow_array::RecordBatch;
use arrow_schema::{Field, SchemaRef};
use carril_store::{PythonFilesystem, Storage};
use serde::Deserialize;

use crate::engine::bytes_of;
use crate::error::DataError;
use crate::files::FilesystemSpec;
pub use encoder::{CsvOptions, Format, JsonOptions, ParquetOptions, Quoting};
use output::{Output, Target};
use tables::Partition;

/// A file is about so large in memory, unless rows are asked for.
const FILE_BYTES: u64 = 128 << 20;
/// What is encoded and not yet in a file, of all open files together.
const HELD_BYTES: usize = 64 << 20;
/// What is encoded at once: a page of a file, and a column of a block, count their bytes with 32 bits.
const ENCODED_BYTES: u64 = 1 << 30;
/// Files that are open at once: partitions may be many.
const OPEN_FILES: usize = 64;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteSpec {
    /// An absolute path, a URI, or a path in the file system.
    pub path: String,
    pub format: Format,
    /// What the names of all files begin with.
    pub id: String,
    #[serde(default)]
    pub mode: Existing,
    #[serde(default)]
    pub partition_columns: Vec<String>,
    #[serde(default)]
    pub min_rows_per_file: Option<u64>,
    #[serde(default)]
    pub max_rows_per_file: Option<u64>,
    #[serde(default = "yes")]
    pub makes_directory: bool,
    #[serde(default)]
    pub filesystem: Option<FilesystemSpec>,
}

fn yes() -> bool {
    true
}

/// What becomes of files that are there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Existing {
    #[default]
    Append,
    /// They go when the new ones are there.
    Overwrite,
    /// Nothing is written.
    Ignore,
    Error,
}

/// What has been written.
#[derive(Clone, Debug, Default)]
pub struct Written {
    pub files: Vec<String>,
    pub rows: u64,
}

pub struct Writer {
    spec: WriteSpec,
    target: Target,
    /// Of the first block; all others have its columns.
    schema: Option<SchemaRef>,
    /// The last one was written to last.
    open: Vec<Output>,
    number: u64,
    names: HashSet<String>,
    old: Vec<String>,
    rows: u64,
    is_over: bool,
}

impl Writer {
    /// Nothing, if something is there that is not to be touched.
    pub fn open(spec: WriteSpec) -> Result<Option<Self>, DataError> {
        if let (Some(least), Some(most)) = (spec.min_rows_per_file, spec.max_rows_per_file)
            && least > most
        {
            return Err(DataError::invalid(format!(
                "`min_rows_per_file` is {least} and `max_rows_per_file` only {most}"
            )));
        }
        if spec.min_rows_per_file == Some(0) || spec.max_rows_per_file == Some(0) {
            return Err(DataError::invalid("a file cannot be asked to have 0 rows"));
        }
        let filesystem = spec.filesystem.as_ref().map(|given| PythonFilesystem {
            executable: given.executable.clone(),
            path: given.path.clone(),
            pickle: given.pickle.clone().into(),
        });
        let storage = Storage::open(&spec.path, filesystem)?;
        let target = Target::new(storage, spec.makes_directory)?;
        let there = match spec.mode {
            Existing::Append => Vec::new(),
            _ => target.list()?,
        };
        match spec.mode {
            Existing::Ignore if !there.is_empty() => return Ok(None),
            Existing::Error if !there.is_empty() => {
                let what = format!("there are files at `{}` already", spec.path);
                let hint = "choose another directory, or `mode=\"append\"`, `\"overwrite\"` or `\"ignore\"`".to_owned();
                return Err(DataError::Invalid { what, hint: Some(hint) });
            }
            _ => {}
        }
        let old = if spec.mode == Existing::Overwrite { there } else { Vec::new() };
        let (open, names) = (Vec::new(), HashSet::new());
        Ok(Some(Self { spec, target, schema: None, open, number: 0, names, old, rows: 0, is_over: false }))
    }

    /// `name` is that of the file which this block begins, if it begins one.
    pub fn write(&mut self, block: &RecordBatch, name: Option<&str>) -> Result<(), DataError> {
        let rows = block.num_rows();
        if bytes_of(block) > ENCODED_BYTES && rows > 1 {
            self.write(&block.slice(0, rows / 2), name)?;
            return self.write(&block.slice(rows / 2, rows - rows / 2), name);
        }
        let block = self.same_columns(block)?;
        self.rows += block.num_rows() as u64;
        let block = tables::prepared(&block, &self.spec.format)?;
        for Partition { directory, rows } in tables::partitions(&block, &self.spec.partition_columns)? {
            self.write_rows(&directory, &rows, name)?;
        }
        self.hold_less()
    }

    fn same_columns(&mut self, block: &RecordBatch) -> Result<RecordBatch, DataError> {
        match &self.schema {
            Some(schema) => tables::with_schema(block, schema),
            None => {
                tables::check(block.schema_ref(), &self.spec.format, &self.spec.partition_columns)?;
                // A column without a null in its first rows may have one later.
                let nullable = |field: &Field| match crate::tensor::fixed_shape(field) {
                    Some(_) => field.clone(),
                    None => field.clone().with_nullable(true),
                };
                let fields: Vec<Field> = block.schema().fields().iter().map(|field| nullable(field)).collect();
                let schema = arrow_schema::Schema::new_with_metadata(fields, block.schema().metadata().clone());
                let schema = self.schema.insert(schema.into());
                tables::with_schema(block, schema)
            }
        }
    }

    fn write_rows(&mut self, directory: &str, rows: &RecordBatch, name: Option<&str>) -> Result<(), DataError> {
        let mut done = 0;
        while done < rows.num_rows() {
            let place = match self.open.iter().position(|output| output.directory == directory) {
                Some(place) => place,
                None => self.begin(directory, rows, name)?,
            };
            let mut output = self.open.remove(place);
            let most = self.spec.max_rows_per_file.map_or(usize::MAX, |most| (most - output.rows) as usize);
            let part = rows.slice(done, most.min(rows.num_rows() - done));
            done += part.num_rows();
            output.write(&part, bytes_of(&part))?;
            match self.is_full(&output) {
                true => self.target.put(output)?,
                false => self.open.push(output),
            }
        }
        Ok(())
    }

    fn is_full(&self, output: &Output) -> bool {
        match (self.spec.min_rows_per_file, self.spec.max_rows_per_file) {
            (Some(least), _) if output.rows >= least => true,
            (_, Some(most)) if output.rows >= most => true,
            (Some(_), _) => false,
            _ => output.bytes >= FILE_BYTES,
        }
    }

    /// Its place among the open files.
    fn begin(&mut self, directory: &str, rows: &RecordBatch, name: Option<&str>) -> Result<usize, DataError> {
        if self.open.len() >= OPEN_FILES {
            let oldest = self.open.remove(0);
            self.target.put(oldest)?;
        }
        let name = match name {
            Some(name) => name.to_owned(),
            None => format!("{}_{:06}.{}", self.spec.id, self.number, self.spec.format.ending()),
        };
        self.number += 1;
        let key = self.unused(if directory.is_empty() { name } else { format!("{directory}/{name}") });
        self.open.push(self.target.begin(directory, key, rows.schema(), &self.spec.format)?);
        Ok(self.open.len() - 1)
    }

    /// A name that was given twice gets a number.
    fn unused(&mut self, key: String) -> String {
        let mut name = key.clone();
        let mut number = 1;
        while !self.names.insert(name.clone()) {
            let cut = key.rfind('/').map_or(0, |slash| slash + 1);
            let dot = key[cut..].find('.').map_or(key.len(), |dot| cut + dot);
            name = format!("{}-{number}{}", &key[..dot], &key[dot..]);
            number += 1;
        }
        name
    }

    /// Hands what is encoded to the files, the largest part first.
    fn hold_less(&mut self) -> Result<(), DataError> {
        while self.open.iter().map(Output::held).sum::<usize>() > HELD_BYTES {
            let Some(largest) = self.open.iter_mut().max_by_key(|output| output.held()) else { break };
            largest.flush()?;
        }
        Ok(())
    }

    /// Puts every file in its place. `empty` has the columns, for a data set without rows.
    pub fn finish(&mut self, empty: Option<&RecordBatch>) -> Result<Written, DataError> {
        if let (true, Some(empty), true) = (self.names.is_empty(), empty, self.spec.partition_columns.is_empty()) {
            let empty = tables::prepared(&self.same_columns(&empty.slice(0, 0))?, &self.spec.format)?;
            if empty.num_columns() > 0 {
                let place = self.begin("", &empty, None)?;
                self.open[place].write(&empty, 0)?;
            }
        }
        for output in std::mem::take(&mut self.open) {
            self.target.put(output)?;
        }
        let new: HashSet<&String> = self.target.done().iter().collect();
        let old: Vec<String> = self.old.drain(..).filter(|key| !new.contains(key)).collect();
        self.target.remove(&old)?;
        self.is_over = true;
        Ok(Written { files: self.target.names(), rows: self.rows })
    }

    /// Removes everything that this write has made.
    pub fn give_up(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.open.clear();
            self.target.undo();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.give_up();
    }
}
