//! What rows come from: files, or memory.
//!
//! SOURCE-1: what a unit holds, and in which order, is the same each time that it is read.
//! SOURCE-2: every block of a source has its schema.

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;

use crate::error::DataError;

/// What is read as one piece, by one reader: a row group, a range of bytes of a file, a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// Where that is known without reading it.
    pub rows: Option<u64>,
    /// What it takes in memory, as well as that can be told.
    pub bytes: u64,
    /// What its reader has in memory besides, while it reads.
    pub held: u64,
}

/// Whether a reader is to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Continue,
    Stop,
}

pub trait Source: Send + Sync {
    fn schema(&self) -> SchemaRef;

    fn units(&self) -> &[Unit];

    /// Hands the rows of a unit over, block by block.
    fn read(&self, unit: usize, take: &mut dyn FnMut(RecordBatch) -> Result<Flow, DataError>) -> Result<(), DataError>;

    /// Where columns can be read one by one, at no more cost than all at once.
    fn columns(&self) -> Option<&dyn ColumnReader> {
        None
    }

    /// The names of what is read, for people.
    fn files(&self) -> Vec<String> {
        Vec::new()
    }

    /// What was damaged and passed over so far.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Reads one column after the other: what is done with one before the next is read finds it in the processor's cache.
pub trait ColumnReader: Send + Sync {
    /// A column of the schema, in parts that have all rows of the unit.
    fn read_column(&self, unit: usize, column: usize) -> Result<Vec<ArrayRef>, DataError>;
}
