//! The rows of several blocks in another order.
//!
//! Column by column: one column of a window stays in the processor's cache where all of them would not, and what it was made
//! of is free before the next. Rows of a fixed width are written straight to their places; the others go through Arrow's
//! kernels.

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, make_array};
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType};
use arrow_select::concat::concat;
use arrow_select::take::take;

/// A row that is not wanted.
const NOWHERE: u32 = u32::MAX;

/// The rows at these places of all blocks together, as one block. A place is named once at most.
pub(crate) fn gathered(blocks: Vec<RecordBatch>, places: &[u32]) -> Result<Option<RecordBatch>, ArrowError> {
    let Some(first) = blocks.first() else { return Ok(None) };
    let schema = first.schema();
    let rows: usize = blocks.iter().map(RecordBatch::num_rows).sum();
    let mut columns: Vec<Vec<ArrayRef>> = vec![Vec::with_capacity(blocks.len()); schema.fields().len()];
    for block in blocks {
        let (_, parts, _) = block.into_parts();
        columns.iter_mut().zip(parts).for_each(|(column, part)| column.push(part));
    }
    let mut targets = vec![NOWHERE; rows];
    places.iter().enumerate().for_each(|(target, place)| targets[*place as usize] = target as u32);
    let indices = UInt32Array::from(places.to_vec());
    let column = |parts: Vec<ArrayRef>| match written(&parts, &targets, places.len()) {
        Some(column) => Ok(column),
        None => taken(parts, &indices),
    };
    let gathered = columns.into_iter().map(column).collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
    RecordBatch::try_new_with_options(schema, gathered, &options).map(Some)
}

fn taken(parts: Vec<ArrayRef>, places: &UInt32Array) -> Result<ArrayRef, ArrowError> {
    let whole = match &parts[..] {
        [one] => one.clone(),
        several => concat(&several.iter().map(AsRef::as_ref).collect::<Vec<_>>())?,
    };
    drop(parts);
    take(&whole, places, None)
}

/// Each row at its target, where rows are of one width and none is missing.
fn written(parts: &[ArrayRef], targets: &[u32], count: usize) -> Option<ArrayRef> {
    let data_type = parts[0].data_type();
    let width = width_of(data_type)?;
    let parts: Vec<ArrayData> = parts.iter().map(|part| part.to_data()).collect();
    let bytes: Vec<&[u8]> = parts.iter().map(|part| bytes_of_rows(part, width)).collect::<Option<_>>()?;
    let mut made = MutableBuffer::from_len_zeroed(count * width);
    let into = made.as_slice_mut();
    let mut begin = 0;
    for (part, bytes) in parts.iter().zip(bytes) {
        let targets = &targets[begin..begin + part.len()];
        begin += part.len();
        match width {
            1 => write::<1>(bytes, targets, into),
            2 => write::<2>(bytes, targets, into),
            4 => write::<4>(bytes, targets, into),
            8 => write::<8>(bytes, targets, into),
            width => write_wide(bytes, targets, into, width),
        }
    }
    Some(make_array(array_of(data_type, count, made.into())))
}

fn write<const WIDTH: usize>(rows: &[u8], targets: &[u32], into: &mut [u8]) {
    let (rows, _) = rows.as_chunks::<WIDTH>();
    let (into, _) = into.as_chunks_mut::<WIDTH>();
    for (row, target) in rows.iter().zip(targets) {
        if let Some(place) = into.get_mut(*target as usize) {
            *place = *row;
        }
    }
}

fn write_wide(rows: &[u8], targets: &[u32], into: &mut [u8], width: usize) {
    for (row, target) in rows.chunks_exact(width).zip(targets) {
        if *target != NOWHERE {
            into[*target as usize * width..][..width].copy_from_slice(row);
        }
    }
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
