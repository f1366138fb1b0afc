//! Rows that are in no file: numbers in a row, and blocks in memory.

use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeListArray, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use serde::Deserialize;

use crate::engine::bytes_of;
use crate::error::DataError;
use crate::join::alike;
use crate::read::BLOCK_ROWS;
use crate::read::file_source::Take;
use crate::source::{Flow, Source, Unit};
use crate::tensor::fixed_field;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RangeOptions {
    pub n: u64,
    /// With it, rows are tensors of this shape in a column `data`, each full of its number; without it a column `id`.
    #[serde(default)]
    pub shape: Option<Vec<usize>>,
    #[serde(default = "per_unit")]
    pub per_unit: u64,
}

fn per_unit() -> u64 {
    BLOCK_ROWS as u64
}

/// The numbers from 0 on.
pub struct Range {
    options: RangeOptions,
    schema: SchemaRef,
    units: Vec<Unit>,
}

impl Range {
    pub fn new(options: RangeOptions) -> Result<Self, DataError> {
        let RangeOptions { n, shape, per_unit } = &options;
        if *per_unit == 0 || *n > i64::MAX as u64 {
            return Err(DataError::invalid("a range needs at least one row for each unit, and fewer than 2^63 rows"));
        }
        let elements: usize = shape.as_deref().unwrap_or_default().iter().product();
        if i32::try_from(elements).is_err() {
            return Err(DataError::invalid(format!("a tensor of {elements} elements is too large for a row")));
        }
        let field = match shape {
            Some(shape) => fixed_field("data", DataType::Int64, shape),
            None => Field::new("id", DataType::Int64, false),
        };
        let rows = (0..n.div_ceil(*per_unit)).map(|unit| (*n - unit * per_unit).min(*per_unit));
        let units = rows
            .map(|rows| Unit { rows: Some(rows), bytes: rows * 8 * elements.max(1) as u64, ..Unit::default() })
            .collect();
        Ok(Self { schema: Arc::new(Schema::new(vec![field])), units, options })
    }
}

impl Source for Range {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn read(&self, unit: usize, take: Take<'_>) -> Result<(), DataError> {
        let begin = unit as i64 * self.options.per_unit as i64;
        let end = begin + self.units[unit].rows.expect("a range knows its rows") as i64;
        let elements: usize = self.options.shape.as_deref().unwrap_or_default().iter().product();
        // A block of large tensors has fewer rows.
        let rows = (BLOCK_ROWS * 8 / elements.max(8)).max(1);
        for from in (begin..end).step_by(rows) {
            let to = end.min(from + rows as i64);
            let column: ArrayRef = match (&self.options.shape, self.schema.field(0).data_type()) {
                (Some(_), DataType::FixedSizeList(item, size)) => {
                    let values = (from..to).flat_map(|number| std::iter::repeat_n(number, elements));
                    let values = Arc::new(Int64Array::from_iter_values(values));
                    let length = (to - from) as usize;
                    Arc::new(FixedSizeListArray::try_new_with_length(item.clone(), *size, values, None, length)?)
                }
                _ => Arc::new(Int64Array::from_iter_values(from..to)),
            };
            if take(RecordBatch::try_new(self.schema.clone(), vec![column])?)? == Flow::Stop {
                break;
            }
        }
        Ok(())
    }
}

/// Blocks that are in memory already, a unit each.
pub struct Blocks {
    schema: SchemaRef,
    blocks: Vec<RecordBatch>,
    units: Vec<Unit>,
}

impl Blocks {
    /// `schema` is that of no blocks; otherwise they get the columns that hold what is in all of them.
    pub fn new(schema: SchemaRef, blocks: Vec<RecordBatch>) -> Result<Self, DataError> {
        let blocks = alike(blocks)?;
        let schema = blocks.first().map_or(schema, RecordBatch::schema);
        let unit = |block: &RecordBatch| Unit {
            rows: Some(block.num_rows() as u64),
            // What is in it, and not what was reserved for it: windows must be the same in every process.
            bytes: bytes_of(block),
            ..Unit::default()
        };
        Ok(Self { units: blocks.iter().map(unit).collect(), schema, blocks })
    }
}

impl Source for Blocks {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn read(&self, unit: usize, take: Take<'_>) -> Result<(), DataError> {
        let block = &self.blocks[unit];
        for from in (0..block.num_rows()).step_by(BLOCK_ROWS) {
            let piece = block.slice(from, BLOCK_ROWS.min(block.num_rows() - from));
            if take(piece.with_schema(self.schema.clone())?)? == Flow::Stop {
                break;
            }
        }
        Ok(())
    }
}
