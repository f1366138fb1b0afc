//! What the tests of readers share: a directory to write files to, and all rows of a source.

#![allow(dead_code)]

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use carril_data::read::ReadSpec;
use carril_data::{DataError, Flow, Source};

pub struct Directory(tempfile::TempDir);

impl Directory {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The path of a file with this content.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub fn all(&self) -> String {
        self.0.path().to_str().unwrap().to_owned()
    }
}

pub fn open(spec: serde_json::Value) -> Result<Arc<dyn Source>, DataError> {
    serde_json::from_value::<ReadSpec>(spec).map_err(|error| DataError::invalid(error.to_string()))?.open()
}

pub fn blocks(source: &dyn Source) -> Result<Vec<RecordBatch>, DataError> {
    let mut all = Vec::new();
    for unit in 0..source.units().len() {
        let mut rows = 0;
        source.read(unit, &mut |block| {
            assert_eq!(block.schema(), source.schema(), "SOURCE-2");
            rows += block.num_rows() as u64;
            all.push(block);
            Ok(Flow::Continue)
        })?;
        if let Some(known) = source.units()[unit].rows {
            assert_eq!(known, rows, "unit {unit}");
        }
    }
    Ok(all)
}

/// All rows as one block.
pub fn table(spec: serde_json::Value) -> Result<RecordBatch, DataError> {
    let source = open(spec)?;
    Ok(arrow_select::concat::concat_batches(&source.schema(), &blocks(source.as_ref())?)?)
}

/// The rows as text, `null` for null, with names and types in the first line.
pub fn shown(spec: serde_json::Value) -> Vec<String> {
    show(&table(spec).unwrap())
}

pub fn show(batch: &RecordBatch) -> Vec<String> {
    let head = batch.schema().fields().iter().map(|f| format!("{}: {}", f.name(), f.data_type())).collect::<Vec<_>>();
    let options = FormatOptions::default().with_null("null");
    let columns: Vec<_> = batch.columns().iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap()).collect();
    let row = |row: usize| columns.iter().map(|c| c.value(row).to_string()).collect::<Vec<_>>().join("|");
    std::iter::once(head.join("|")).chain((0..batch.num_rows()).map(row)).collect()
}

pub fn error(spec: serde_json::Value) -> String {
    match table(spec) {
        Ok(batch) => panic!("no error, but {:?}", show(&batch)),
        Err(error) => error.to_string(),
    }
}
