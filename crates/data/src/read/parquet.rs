//! Parquet: a unit is a row group, and only the columns that are asked for are read.
//!
//! The metadata of all files is read once, when they are opened; row groups that cannot hold a row of the filter are no units.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::{Schema, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::Type;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use serde::Deserialize;

use crate::error::DataError;
use crate::files::{FileOptions, FileRef, in_parallel};
use crate::read::block_rows;
use crate::read::file_source::{Damages, FileSource, Take, UnitReader, guarded};
use crate::read::filter::{Bounds, Condition, filter};
use crate::read::layout::{Layout, Run};
use crate::read::parquet_input::Input;
use crate::read::parquet_pages::{CheckedInput, PageLimits};
use crate::read::schema::{Lacking, unify};
use crate::source::{ColumnReader, Flow, Unit};

/// What is read of the end of a file at first: the metadata of most.
const TAIL: u64 = 128 << 10;
/// Writers end a page when it has come to this.
const USUAL_PAGE: u64 = 1 << 20;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ParquetOptions {
    /// Without them, all.
    pub columns: Option<Vec<String>>,
    pub filter: Vec<Condition>,
}

struct ParquetReader {
    files: Arc<[FileRef]>,
    metadata: Vec<Option<ArrowReaderMetadata>>,
    /// Of each unit: its file and its row group.
    places: Vec<(usize, usize)>,
    /// With the columns of the filter, after those that are wanted.
    layout: Layout,
    filter: Vec<Condition>,
    wanted: SchemaRef,
}

/// Files may disagree about columns that nobody wants.
fn only(schema: &Schema, wanted: impl Fn(&str) -> bool) -> Schema {
    Schema::new(schema.fields().iter().filter(|field| wanted(field.name())).cloned().collect::<Vec<_>>())
}

pub(crate) fn open(
    files: Vec<FileRef>,
    common: &FileOptions,
    options: ParquetOptions,
) -> Result<FileSource, DataError> {
    let files: Arc<[FileRef]> = files.into();
    let damages = Arc::new(Damages::new(common.max_errors));
    let metadata = in_parallel(&files, |file| damages.tolerate(read_metadata(file)))?;
    let schemas = files.iter().zip(&metadata);
    let schemas =
        schemas.filter_map(|(file, metadata)| Some((file.name.as_str(), metadata.as_ref()?.schema().as_ref())));
    let wanted = |name: &str| {
        let is_wanted = |columns: &Vec<String>| columns.iter().any(|column| column == name);
        options.columns.as_ref().is_none_or(is_wanted) || options.filter.iter().any(|one| one.column() == name)
    };
    let read: Vec<(&str, Schema)> = schemas.map(|(file, schema)| (file, only(schema, wanted))).collect();
    let own = unify(read.iter().map(|(file, schema)| (*file, schema)), Lacking::IsAnError)?;
    let mut layout = Layout::new(&own, &files, common.include_paths);
    // The error about a missing column lists all that there are.
    let all: Vec<String> = metadata.iter().flatten().next().map_or_else(Vec::new, |first| {
        let schema = Layout::new(first.schema(), &files, common.include_paths).schema();
        schema.fields().iter().map(|field| format!("`{}`", field.name())).collect()
    });
    let all_named = |error: DataError| match error {
        DataError::NoColumn { column, .. } => DataError::NoColumn { column, there: all.join(", ") },
        other => other,
    };
    for condition in &options.filter {
        condition.check(&layout.schema()).map_err(all_named)?;
    }
    let mut wanted = layout.schema();
    if let Some(mut columns) = options.columns {
        if common.include_paths && !columns.iter().any(|column| column == "path") {
            columns.push("path".to_owned());
        }
        let number = columns.len();
        for condition in &options.filter {
            if !columns.iter().any(|column| column == condition.column()) {
                columns.push(condition.column().to_owned());
            }
        }
        layout = layout.select(&columns).map_err(all_named)?;
        wanted = Arc::new(layout.schema().project(&(0..number).collect::<Vec<_>>())?);
    }
    let mut reader = ParquetReader { files, metadata, places: Vec::new(), layout, filter: options.filter, wanted };
    let units = reader.find_units()?;
    Ok(FileSource {
        schema: reader.wanted.clone(),
        units,
        files: reader.files.clone(),
        damages,
        reader: Box::new(reader),
    })
}

fn read_metadata(file: &FileRef) -> Result<ArrowReaderMetadata, DataError> {
    let tail = file.size.saturating_sub(TAIL)..file.size;
    let input = Input::open(file, vec![tail])?;
    let damaged = |why: String| DataError::damaged(&file.name, Some("its metadata".to_owned()), why);
    let metadata = guarded(|| ArrowReaderMetadata::load(&input, ArrowReaderOptions::new()))
        .map_err(|error| damaged(if file.size == 0 { "it is empty".to_owned() } else { error }))?;
    // A row group of which fewer rows are known than it has would be read in part, and nobody would notice.
    let known = metadata.metadata().row_groups().iter().map(RowGroupMetaData::num_rows).fold(0, i64::saturating_add);
    match metadata.metadata().file_metadata().num_rows() {
        rows if rows == known => Ok(metadata),
        rows => Err(damaged(format!("it has {rows} rows, and its row groups have {known}"))),
    }
}

impl ParquetReader {
    /// Of a file, the columns that are read: their places among the roots of its schema.
    fn roots(&self, metadata: &ArrowReaderMetadata) -> Vec<usize> {
        let own = self.layout.own();
        own.fields().iter().filter_map(|field| metadata.schema().index_of(field.name()).ok()).collect()
    }

    fn find_units(&mut self) -> Result<Vec<Unit>, DataError> {
        let mut units = Vec::new();
        let mut places = Vec::new();
        for (index, metadata) in self.metadata.iter().enumerate() {
            let Some(metadata) = metadata else { continue };
            let keep = self.may_hold(&self.files[index], metadata)?;
            let mask = ProjectionMask::roots(metadata.parquet_schema(), self.roots(metadata));
            let is_local = self.files[index].storage.local_path().is_some();
            for (group, row_group) in metadata.metadata().row_groups().iter().enumerate() {
                if !keep[group] || row_group.num_rows() == 0 {
                    continue;
                }
                let bytes = chunks(row_group, &mask).map(decoded).sum();
                let rows = self.filter.is_empty().then_some(row_group.num_rows() as u64);
                let held = chunks(row_group, &mask).map(|chunk| held(chunk, is_local)).sum();
                units.push(Unit { rows, bytes, held });
                places.push((index, group));
            }
        }
        self.places = places;
        Ok(units)
    }

    /// Of each row group, whether a row of it may fulfil the filter.
    fn may_hold(&self, file: &FileRef, metadata: &ArrowReaderMetadata) -> Result<Vec<bool>, DataError> {
        let groups = metadata.metadata().row_groups();
        let mut keep = vec![true; groups.len()];
        for condition in &self.filter {
            if metadata.schema().column_with_name(condition.column()).is_none() {
                // It stands in the path: one value for the whole file.
                let value = self.layout.partition_value(condition.column(), file);
                if let Some(value) = value
                    && value.is_valid(0)
                {
                    let bounds = Bounds { least: value.clone(), greatest: value };
                    let may = condition.may_hold(&bounds)?[0];
                    keep.iter_mut().for_each(|keep| *keep &= may);
                }
                continue;
            }
            let converter =
                StatisticsConverter::try_new(condition.column(), metadata.schema(), metadata.parquet_schema());
            let bounds = converter.and_then(|converter| {
                let least = converter.row_group_mins(groups)?;
                Ok(Bounds { least, greatest: converter.row_group_maxes(groups)? })
            });
            // Without statistics that are understood, everything may be there.
            let Ok(bounds) = bounds else { continue };
            let Ok(may) = condition.may_hold(&bounds) else { continue };
            keep.iter_mut().zip(may).for_each(|(keep, may)| *keep &= may);
        }
        Ok(keep)
    }
}

fn chunks<'a>(group: &'a RowGroupMetaData, mask: &'a ProjectionMask) -> impl Iterator<Item = &'a ColumnChunkMetaData> {
    group.columns().iter().enumerate().filter(|(leaf, _)| mask.leaf_included(*leaf)).map(|(_, chunk)| chunk)
}

/// What a column takes in memory: a dictionary and runs may have made it many times smaller in the file.
fn decoded(chunk: &ColumnChunkMetaData) -> u64 {
    let values = chunk.num_values().max(0) as u64;
    let decoded = match chunk.column_type() {
        Type::BOOLEAN => values / 8,
        Type::INT32 | Type::FLOAT => 4 * values,
        Type::INT64 | Type::INT96 | Type::DOUBLE => 8 * values,
        Type::FIXED_LEN_BYTE_ARRAY => chunk.column_descr().type_length().max(0) as u64 * values,
        // Not every writer tells it.
        Type::BYTE_ARRAY => chunk.unencoded_byte_array_data_bytes().map_or(0, |bytes| bytes.max(0) as u64 + 4 * values),
    };
    decoded.max(chunk.uncompressed_size().max(0) as u64)
}

/// Of a column, a page is in memory while its values are taken out; one that is elsewhere is fetched whole before.
fn held(chunk: &ColumnChunkMetaData, is_local: bool) -> u64 {
    let page = (chunk.uncompressed_size().max(0) as u64).min(USUAL_PAGE);
    let fetched = if is_local { 0 } else { chunk.compressed_size().max(0) as u64 };
    page + fetched
}

impl ParquetReader {
    /// The rows of a unit with these roots of its schema, block by block, as the file has them.
    fn decode(&self, unit: usize, roots: Vec<usize>, take: Take<'_>) -> Result<(), DataError> {
        let (index, group) = self.places[unit];
        let (file, metadata) = self.opened(unit);
        let damaged =
            |error: &dyn std::fmt::Display| DataError::damaged(&file.name, Some(format!("row group {group}")), error);
        let mask = ProjectionMask::roots(metadata.parquet_schema(), roots);
        let row_group = metadata.metadata().row_group(group);
        let rows = row_group.num_rows();
        let bytes: u64 = chunks(row_group, &mask).map(decoded).sum();
        // Where a column is said to begin before the file does, its range is a panic.
        let limits = || chunks(row_group, &mask).map(PageLimits::new).collect::<Vec<_>>();
        let limits = guarded(|| Ok::<_, DataError>(limits())).map_err(|why| damaged(&why))?;
        let ranges = limits.iter().map(|column| column.range.clone()).collect();
        let input = CheckedInput::new(Input::open(&self.files[index], ranges)?, limits);
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(input, metadata.clone())
            .with_row_groups(vec![group])
            .with_projection(mask)
            .with_batch_size(block_rows(rows.max(0) as u64, bytes));
        let mut blocks = guarded(|| builder.build()).map_err(|why| damaged(&why))?;
        let mut read = 0;
        while let Some(block) = guarded(|| blocks.next().transpose()).map_err(|why| damaged(&why))? {
            read += block.num_rows() as i64;
            if take(block)? == Flow::Stop {
                return Ok(());
            }
        }
        match read == rows {
            true => Ok(()),
            false => Err(damaged(&format!("its pages have {read} rows, and its metadata says {rows}"))),
        }
    }

    fn opened(&self, unit: usize) -> (&FileRef, &ArrowReaderMetadata) {
        let index = self.places[unit].0;
        (&self.files[index], self.metadata[index].as_ref().expect("a unit's file was opened"))
    }

    /// What does not fit the schema is damage too.
    fn misfit(&self, unit: usize) -> impl Fn(DataError) -> DataError {
        let (index, group) = self.places[unit];
        let name = self.files[index].name.clone();
        move |error| DataError::damaged(&name, Some(format!("row group {group}")), error)
    }
}

impl UnitReader for ParquetReader {
    fn read(&self, unit: usize, take: Take<'_>) -> Result<(), DataError> {
        let (file, metadata) = self.opened(unit);
        self.decode(unit, self.roots(metadata), &mut |block| {
            let block = self.layout.finish_one(block, file).map_err(self.misfit(unit))?;
            let mut block = filter(block, &self.filter)?;
            if block.num_rows() == 0 {
                return Ok(Flow::Continue);
            }
            if self.wanted.fields().len() < block.num_columns() {
                block = block.project(&(0..self.wanted.fields().len()).collect::<Vec<_>>())?;
            }
            take(block)
        })
    }

    /// From elsewhere, the columns of a row group come in a few large requests.
    fn columns(&self) -> Option<&dyn ColumnReader> {
        let is_local = self.files.iter().all(|file| file.storage.local_path().is_some());
        (is_local && self.filter.is_empty()).then_some(self)
    }
}

impl ColumnReader for ParquetReader {
    fn read_column(&self, unit: usize, column: usize) -> Result<Vec<ArrayRef>, DataError> {
        let (file, metadata) = self.opened(unit);
        let name = self.wanted.field(column).name();
        let root = metadata.schema().index_of(name).ok().filter(|_| self.layout.is_own(column));
        let mut parts = Vec::new();
        self.decode(unit, root.into_iter().collect(), &mut |block| {
            let runs = [Run { file, rows: block.num_rows() }];
            parts.push(self.layout.finish_column(column, &block, &runs).map_err(self.misfit(unit))?);
            Ok(Flow::Continue)
        })?;
        Ok(parts)
    }
}
