//! Files as they are: a row is a file, in a column `bytes`.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{BinaryArray, LargeBinaryArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use serde::Deserialize;

use crate::error::DataError;
use crate::files::{FileOptions, FileRef};
use crate::read::file_source::{Damages, FileSource, Take, UnitReader};
use crate::read::layout::{Layout, Run};
use crate::source::Unit;

/// A unit is so many files, or so many bytes of them.
const FILES: usize = 1024;
const BYTES: u64 = 8 << 20;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BinaryOptions {}

struct BinaryReader {
    files: Arc<[FileRef]>,
    groups: Vec<Range<usize>>,
    own: SchemaRef,
    layout: Layout,
}

pub(crate) fn open(
    files: Vec<FileRef>,
    common: &FileOptions,
    _options: BinaryOptions,
) -> Result<FileSource, DataError> {
    let files: Arc<[FileRef]> = files.into();
    let groups = group(&files, FILES, BYTES);
    let unit = |group: &Range<usize>| Unit {
        rows: Some(group.len() as u64),
        bytes: files[group.clone()].iter().map(|file| file.size).sum(),
        ..Unit::default()
    };
    let units = groups.iter().map(unit).collect();
    // A file of 2 GiB and more is a value that only large offsets reach.
    let is_large = files.iter().any(|file| file.size >= 1 << 30);
    let kind = if is_large { DataType::LargeBinary } else { DataType::Binary };
    let own = Arc::new(Schema::new(vec![Field::new("bytes", kind, false)]));
    let layout = Layout::new(&own, &files, common.include_paths);
    let reader = BinaryReader { files: files.clone(), groups, own, layout };
    let damages = Arc::new(Damages::new(common.max_errors));
    Ok(FileSource { schema: reader.layout.schema(), units, files, damages, reader: Box::new(reader) })
}

/// Neighbours together: at most so many, and no more than so many bytes unless it is one file.
pub(crate) fn group(files: &[FileRef], most: usize, most_bytes: u64) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0;
    for (index, file) in files.iter().enumerate() {
        match groups.last_mut() {
            Some(last) if last.len() < most && bytes + file.size <= most_bytes => last.end = index + 1,
            _ => {
                groups.push(index..index + 1);
                bytes = 0;
            }
        }
        bytes += file.size;
    }
    groups
}

impl UnitReader for BinaryReader {
    fn read(&self, unit: usize, take: Take<'_>) -> Result<(), DataError> {
        let files = &self.files[self.groups[unit].clone()];
        let contents = files.iter().map(FileRef::read).collect::<Result<Vec<Bytes>, _>>()?;
        let column: arrow_array::ArrayRef = match self.own.field(0).data_type() {
            DataType::LargeBinary => Arc::new(LargeBinaryArray::from_iter_values(contents)),
            _ => Arc::new(BinaryArray::from_iter_values(contents)),
        };
        let block = RecordBatch::try_new(self.own.clone(), vec![column])?;
        let runs: Vec<Run<'_>> = files.iter().map(|file| Run { file, rows: 1 }).collect();
        take(self.layout.finish(block, &runs)?).map(drop)
    }
}
