//! The rows of several blocks in another order.
//!
//! Column by column: one column of a window stays in the processor's cache where all of them would not, and what it was made
//! of is free before the next. Rows of a fixed width are put side by side in memory that is used for every column, and so is in
//! the cache when they are picked out of it; the others go through Arrow's kernels.

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, make_array};
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType};
use arrow_select::concat::concat;
use arrow_select::take::take;

use crate::error::DataError;
use crate::join::alike;

/// Of rows that are no longer than this, more is gained than lost when they are put side by side first.
const WIDEST: usize = 16;

/// The rows at these places of all blocks together, as one block.
pub(crate) fn gathered(blocks: Vec<RecordBatch>, places: &[u32]) -> Result<Option<RecordBatch>, DataError> {
    let blocks = alike(blocks)?;
    let Some(first) = blocks.first() else { return Ok(None) };
    let schema = first.schema();
    let mut columns: Vec<Vec<ArrayRef>> = vec![Vec::with_capacity(blocks.len()); schema.fields().len()];
    for block in blocks {
        let (_, parts, _) = block.into_parts();
        columns.iter_mut().zip(parts).for_each(|(column, part)| column.push(part));
    }
    let mut gather = Gather::new(places);
    let gathered = columns.into_iter().map(|parts| gather.column(parts)).collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
    Ok(Some(RecordBatch::try_new_with_options(schema, gathered, &options)?))
}

/// One column after the other.
pub(crate) struct Gather<'a> {
    places: &'a [u32],
    indices: UInt32Array,
    /// The rows of a column, in memory that is used for every one.
    side_by_side: Vec<u8>,
}

impl<'a> Gather<'a> {
    pub fn new(places: &'a [u32]) -> Self {
        Self { places, indices: UInt32Array::from(places.to_vec()), side_by_side: Vec::new() }
    }

    pub fn column(&mut self, parts: Vec<ArrayRef>) -> Result<ArrayRef, ArrowError> {
        match picked(&parts, self.places, &mut self.side_by_side) {
            Some(column) => Ok(column),
            None => taken(parts, &self.indices),
        }
    }
}

fn taken(parts: Vec<ArrayRef>, places: &UInt32Array) -> Result<ArrayRef, ArrowError> {
    let whole = match &parts[..] {
        [one] => one.clone(),
        several => concat(&several.iter().map(AsRef::as_ref).collect::<Vec<_>>())?,
    };
    drop(parts);
    take(&whole, places, None)
}

/// Where rows are of one width and none is missing.
fn picked(parts: &[ArrayRef], places: &[u32], side_by_side: &mut Vec<u8>) -> Option<ArrayRef> {
    let data_type = parts.first()?.data_type();
    let width = width_of(data_type)?;
    let parts: Vec<ArrayData> = parts.iter().map(|part| part.to_data()).collect();
    let parts: Vec<&[u8]> = parts.iter().map(|part| bytes_of_rows(part, width)).collect::<Option<_>>()?;
    let made = if width > WIDEST {
        wide(&parts, places, width)
    } else {
        let rows = match &parts[..] {
            [one] => *one,
            several => {
                side_by_side.clear();
                several.iter().for_each(|part| side_by_side.extend_from_slice(part));
                side_by_side
            }
        };
        match width {
            1 => Buffer::from_vec(numbers(rows, places, u8::from_ne_bytes)),
            2 => Buffer::from_vec(numbers(rows, places, u16::from_ne_bytes)),
            4 => Buffer::from_vec(numbers(rows, places, u32::from_ne_bytes)),
            8 => Buffer::from_vec(numbers(rows, places, u64::from_ne_bytes)),
            width => wide(&[rows], places, width),
        }
    };
    Some(make_array(array_of(data_type, places.len(), made)))
}

/// Rows that are long enough to be picked where they are.
fn wide(parts: &[&[u8]], places: &[u32], width: usize) -> Buffer {
    let mut begins = vec![0];
    parts.iter().for_each(|part| begins.push(begins[begins.len() - 1] + part.len() / width));
    let mut made = MutableBuffer::with_capacity(places.len() * width);
    for place in places.iter().map(|place| *place as usize) {
        let part = begins.partition_point(|begin| *begin <= place) - 1;
        made.extend_from_slice(&parts[part][(place - begins[part]) * width..][..width]);
    }
    made.into()
}

fn numbers<T, const WIDTH: usize>(rows: &[u8], places: &[u32], read: impl Fn([u8; WIDTH]) -> T) -> Vec<T> {
    let (rows, _) = rows.as_chunks::<WIDTH>();
    places.iter().map(|place| read(rows[*place as usize])).collect()
}

/// How many bytes a row takes, where every row takes as many.
fn width_of(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::FixedSizeBinary(width) if *width > 0 => Some(*width as usize),
        DataType::FixedSizeList(item, rows) if *rows > 0 => Some(width_of(item.data_type())? * *rows as usize),
        plain => plain.primitive_width(),
    }
}

/// The memory of the rows, if none is missing and nothing in them is.
fn bytes_of_rows(part: &ArrayData, width: usize) -> Option<&[u8]> {
    if part.null_count() > 0 {
        return None;
    }
    match part.data_type() {
        DataType::FixedSizeList(_, rows) => {
            let child = &part.child_data()[0];
            let whole = bytes_of_rows(child, width / *rows as usize)?;
            Some(&whole[part.offset() * width..][..part.len() * width])
        }
        _ => Some(&part.buffers()[0].as_slice()[part.offset() * width..][..part.len() * width]),
    }
}

fn array_of(data_type: &DataType, rows: usize, bytes: Buffer) -> ArrayData {
    let made = ArrayData::builder(data_type.clone()).len(rows);
    let made = match data_type {
        DataType::FixedSizeList(item, each) => {
            made.add_child_data(array_of(item.data_type(), rows * *each as usize, bytes))
        }
        _ => made.add_buffer(bytes),
    };
    // SAFETY: the buffer has `rows` values of the width of this type, none of them is missing, and it is aligned for all.
    unsafe { made.build_unchecked() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::Int64Array;
    use arrow_array::builder::{FixedSizeListBuilder, Float32Builder, StringBuilder, UInt8Builder};
    use arrow_schema::{Field, Schema};

    use super::*;
    use crate::order::permutation;

    fn block(begin: usize, rows: usize, with_gaps: bool) -> RecordBatch {
        let numbers: Int64Array =
            (begin..begin + rows).map(|row| (!with_gaps || row % 3 > 0).then_some(row as i64)).collect();
        let mut bytes = UInt8Builder::new();
        let mut texts = StringBuilder::new();
        let mut tensors = FixedSizeListBuilder::new(FixedSizeListBuilder::new(Float32Builder::new(), 3), 2);
        for row in begin..begin + rows {
            bytes.append_value(row as u8);
            texts.append_value("x".repeat(row % 7));
            for part in 0..2 {
                (0..3).for_each(|at| tensors.values().values().append_value((row * 10 + part * 3 + at) as f32));
                tensors.values().append(true);
            }
            tensors.append(true);
        }
        let columns: Vec<ArrayRef> =
            vec![Arc::new(numbers), Arc::new(bytes.finish()), Arc::new(texts.finish()), Arc::new(tensors.finish())];
        let fields = columns
            .iter()
            .enumerate()
            .map(|(number, column)| Field::new(format!("c{number}"), column.data_type().clone(), true));
        RecordBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), columns).unwrap()
    }

    #[test]
    fn rows_are_where_arrows_own_kernels_would_put_them() {
        for with_gaps in [false, true] {
            let blocks =
                vec![block(0, 50, with_gaps).slice(7, 30), block(100, 1, with_gaps), block(200, 64, with_gaps)];
            let all = permutation(3, 95);
            for places in [&all[..], &all[20..60], &all[..0]] {
                let whole = arrow_select::concat::concat_batches(&blocks[0].schema(), &blocks).unwrap();
                let expected =
                    arrow_select::take::take_record_batch(&whole, &UInt32Array::from(places.to_vec())).unwrap();
                assert_eq!(gathered(blocks.clone(), places).unwrap().unwrap(), expected);
            }
        }
    }
}
