//! Blocks put together that were made apart: columns are found by name, types become those that hold the values of all, and
//! where a block lacks a column its rows have nulls.
//!
//! What a function gives for one block says nothing of what it gives for the next: a column that is all null here has texts
//! there, and a picture has another shape.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Int32Array, ListArray, RecordBatch, RecordBatchOptions, StructArray,
    new_null_array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow_select::concat::concat_batches;

use crate::error::DataError;
use crate::object::is_object;
use crate::read::layout::to_type;
use crate::read::schema::{Lacking, unify_types};
use crate::tensor;

/// The values of all rows together that a column of texts, bytes or lists can have.
const LONGEST: usize = i32::MAX as usize;

/// The rows of one behind those of the other, as one block.
pub fn joined(blocks: Vec<RecordBatch>) -> Result<RecordBatch, DataError> {
    joined_within(blocks, LONGEST)
}

fn joined_within(blocks: Vec<RecordBatch>, longest: usize) -> Result<RecordBatch, DataError> {
    let alike = alike(blocks)?;
    match &alike[..] {
        [one] => Ok(one.clone()),
        several => {
            let schema = several.first().map_or_else(|| Arc::new(Schema::empty()), RecordBatch::schema);
            let roomy = with_room(&schema, several, longest)?;
            if roomy == schema {
                return Ok(concat_batches(&schema, several)?);
            }
            let wide = several.iter().map(|block| fitted(block, &roomy)).collect::<Result<Vec<_>, _>>()?;
            Ok(concat_batches(&roomy, &wide)?)
        }
    }
}

/// The columns, of which those of texts and bytes that are too long together count them with 64 bits.
fn with_room(schema: &SchemaRef, blocks: &[RecordBatch], longest: usize) -> Result<SchemaRef, DataError> {
    let mut fields: Vec<FieldRef> = Vec::with_capacity(schema.fields().len());
    for (number, field) in schema.fields().iter().enumerate() {
        let columns: Vec<ArrayRef> = blocks.iter().map(|block| block.column(number).clone()).collect();
        let wider = match field.data_type() {
            DataType::Utf8 => Some(DataType::LargeUtf8),
            DataType::Binary if !is_object(field) => Some(DataType::LargeBinary),
            _ => None,
        };
        fields.push(match (fits(&columns, longest), wider) {
            (true, _) => field.clone(),
            (false, Some(wider)) => Arc::new(field.as_ref().clone().with_data_type(wider)),
            (false, None) => {
                return Err(DataError::Invalid {
                    what: format!("rows of the column `{}` are too long to be together in one batch", field.name()),
                    hint: Some("2^31 values fit into one: take fewer rows, with a smaller `batch_size`".to_owned()),
                });
            }
        });
    }
    Ok(Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())))
}

/// Whether 32 bits count the values of all these together, also those of lists in lists.
fn fits(arrays: &[ArrayRef], longest: usize) -> bool {
    let Some(first) = arrays.first() else { return true };
    let inside =
        |offsets: &OffsetBuffer<i32>| (offsets[0] as usize, (offsets[offsets.len() - 1] - offsets[0]) as usize);
    let within = |lengths: Vec<usize>| lengths.iter().sum::<usize>() <= longest;
    match first.data_type() {
        DataType::Utf8 => within(arrays.iter().map(|one| inside(one.as_string::<i32>().offsets()).1).collect()),
        DataType::Binary => within(arrays.iter().map(|one| inside(one.as_binary::<i32>().offsets()).1).collect()),
        DataType::List(_) => {
            let lists = arrays.iter().map(|one| one.as_list::<i32>());
            let items: Vec<ArrayRef> = lists
                .map(|list| {
                    let (begin, length) = inside(list.offsets());
                    list.values().slice(begin, length)
                })
                .collect();
            within(items.iter().map(|one| one.len()).collect()) && fits(&items, longest)
        }
        DataType::FixedSizeList(..) => {
            let items = arrays.iter().map(|one| one.as_fixed_size_list().values().clone());
            fits(&items.collect::<Vec<_>>(), longest)
        }
        DataType::Struct(fields) => (0..fields.len()).all(|number| {
            let inner = arrays.iter().map(|one| one.as_struct().column(number).clone());
            fits(&inner.collect::<Vec<_>>(), longest)
        }),
        _ => true,
    }
}

/// The same blocks, with the same columns.
pub fn alike(blocks: Vec<RecordBatch>) -> Result<Vec<RecordBatch>, DataError> {
    if blocks.iter().all(|block| is_same(block.schema_ref(), blocks[0].schema_ref())) {
        return Ok(blocks);
    }
    let schema = common(blocks.iter().map(RecordBatch::schema_ref))?;
    blocks.iter().map(|block| fitted(block, &schema)).collect()
}

fn is_same(one: &SchemaRef, other: &SchemaRef) -> bool {
    Arc::ptr_eq(one, other) || one.fields() == other.fields()
}

/// The columns of all, in the order of the first.
pub fn common<'a>(schemas: impl Iterator<Item = &'a SchemaRef>) -> Result<SchemaRef, DataError> {
    let mut all: Vec<FieldRef> = Vec::new();
    for (number, schema) in schemas.enumerate() {
        for field in schema.fields() {
            match all.iter_mut().find(|known| known.name() == field.name()) {
                Some(known) => *known = Arc::new(both(known, field)?),
                None if number == 0 => all.push(field.clone()),
                None => all.push(Arc::new(field.as_ref().clone().with_nullable(true))),
            }
        }
        for known in &mut all {
            if !known.is_nullable() && schema.column_with_name(known.name()).is_none() {
                *known = Arc::new(known.as_ref().clone().with_nullable(true));
            }
        }
    }
    Ok(Arc::new(Schema::new(all)))
}

/// The field that holds the values of both.
fn both(one: &Field, other: &Field) -> Result<Field, DataError> {
    let nullable = one.is_nullable() || other.is_nullable();
    if one.data_type() == other.data_type() && one.metadata() == other.metadata() {
        return Ok(one.clone().with_nullable(nullable));
    }
    let made = match (one.data_type(), other.data_type()) {
        (DataType::Null, _) => Some(other.clone()),
        (_, DataType::Null) => Some(one.clone()),
        _ => match (Tensors::of(one), Tensors::of(other)) {
            (Some(these), Some(those)) => these.with(&those).map(|tensors| tensors.field(one.name())),
            _ if is_object(one) || is_object(other) => None,
            _ => unify_types(one.data_type(), other.data_type(), Lacking::IsNull)
                .map(|kind| Field::new(one.name(), kind, nullable)),
        },
    };
    let is_null = [one, other].iter().any(|field| field.data_type() == &DataType::Null);
    made.map(|field| field.with_nullable(nullable || is_null)).ok_or_else(|| differ(one, other))
}

fn differ(one: &Field, other: &Field) -> DataError {
    let (name, one, other) = (one.name(), name_of(one), name_of(other));
    DataError::Invalid {
        what: format!("the column `{name}` is of different types in rows that come together: {one} and {other}"),
        hint: Some("give it one type in all rows, with `map` or `map_batches`".to_owned()),
    }
}

fn name_of(field: &Field) -> String {
    match (is_object(field), Tensors::of(field)) {
        (true, _) => "objects of Python".to_owned(),
        (_, Some(tensors)) if tensors.shape.is_some() || tensor::is_variable(field) => "tensors".to_owned(),
        _ => field.data_type().to_string().to_lowercase(),
    }
}

/// Arrays of numbers, one in each row. Those of one dimension and several lengths are lists.
struct Tensors {
    element: DataType,
    dimensions: usize,
    /// That of all of them, if they have one.
    shape: Option<Vec<usize>>,
}

impl Tensors {
    fn of(field: &Field) -> Option<Tensors> {
        let shape = tensor::fixed_shape(field);
        match field.data_type() {
            DataType::FixedSizeList(item, _) => {
                let shape = shape?;
                Some(Tensors { element: item.data_type().clone(), dimensions: shape.len(), shape: Some(shape) })
            }
            DataType::Struct(fields) if tensor::is_variable(field) => {
                match (fields[0].data_type(), fields[1].data_type()) {
                    (DataType::List(item), DataType::FixedSizeList(_, dimensions)) => Some(Tensors {
                        element: item.data_type().clone(),
                        dimensions: *dimensions as usize,
                        shape: None,
                    }),
                    _ => None,
                }
            }
            DataType::List(item) => Some(Tensors { element: item.data_type().clone(), dimensions: 1, shape: None }),
            _ => None,
        }
    }

    fn with(&self, other: &Tensors) -> Option<Tensors> {
        if self.dimensions != other.dimensions {
            return None;
        }
        let element = unify_types(&self.element, &other.element, Lacking::IsNull)?;
        let shape = self.shape.clone().filter(|_| self.shape == other.shape);
        Some(Tensors { element, dimensions: self.dimensions, shape })
    }

    fn field(&self, name: &str) -> Field {
        match &self.shape {
            Some(shape) => tensor::fixed_field(name, self.element.clone(), shape),
            None if self.dimensions == 1 => {
                Field::new(name, DataType::List(Arc::new(Field::new("item", self.element.clone(), true))), true)
            }
            None => tensor::variable_field(name, self.element.clone(), self.dimensions),
        }
    }
}

/// The rows with these columns, which hold all that is in them.
pub fn fitted(block: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, DataError> {
    if is_same(block.schema_ref(), schema) {
        return Ok(block.clone());
    }
    let rows = block.num_rows();
    let column = |field: &FieldRef| match block.schema_ref().column_with_name(field.name()) {
        Some((number, there)) => to_field(block.column(number), there, field),
        None => Ok(new_null_array(field.data_type(), rows)),
    };
    let columns = schema.fields().iter().map(column).collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}

fn to_field(array: &ArrayRef, there: &Field, wanted: &Field) -> Result<ArrayRef, DataError> {
    if array.data_type() == wanted.data_type() {
        return Ok(array.clone());
    }
    let wider = both(wanted, there)?;
    if wider.data_type() != wanted.data_type() {
        return Err(differ(there, wanted));
    }
    match (tensor::fixed_shape(there), wanted.data_type()) {
        (Some(_), DataType::List(item)) => Ok(Arc::new(to_list(array.as_fixed_size_list(), item)?)),
        (Some(shape), DataType::Struct(_)) if tensor::is_variable(wanted) => to_variable(array, &shape, wanted),
        _ => widened(array, wanted.data_type()),
    }
}

/// The same values in a type that holds them; of structures, columns are found by name.
fn widened(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, DataError> {
    match (array.data_type(), wanted) {
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let structs = array.as_struct();
            let column = |field: &FieldRef| match structs.column_by_name(field.name()) {
                Some(column) => widened(column, field.data_type()),
                None => Ok(new_null_array(field.data_type(), array.len())),
            };
            let columns = fields.iter().map(column).collect::<Result<Vec<_>, _>>()?;
            let nulls = array.nulls().cloned();
            Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, array.len())?))
        }
        (DataType::List(_), DataType::List(item)) => {
            let lists = array.as_list::<i32>();
            let values = widened(lists.values(), item.data_type())?;
            Ok(Arc::new(ListArray::try_new(item.clone(), lists.offsets().clone(), values, array.nulls().cloned())?))
        }
        (DataType::Null, _) => Ok(new_null_array(wanted, array.len())),
        _ => to_type(array, wanted),
    }
}

fn to_list(tensors: &FixedSizeListArray, item: &FieldRef) -> Result<ListArray, DataError> {
    let length = tensors.value_length() as usize;
    let values = tensors.values().slice(tensors.value_offset_at(0), tensors.len() * length);
    let values = to_type(&values, item.data_type())?;
    let offsets = OffsetBuffer::from_repeated_length(length, tensors.len());
    Ok(ListArray::try_new(item.clone(), offsets, values, tensors.nulls().cloned())?)
}

fn to_variable(array: &ArrayRef, shape: &[usize], wanted: &Field) -> Result<ArrayRef, DataError> {
    let DataType::Struct(fields) = wanted.data_type() else { unreachable!("tensors of several shapes are structures") };
    let (DataType::List(item), DataType::FixedSizeList(length, size)) = (fields[0].data_type(), fields[1].data_type())
    else {
        unreachable!("a tensor is its elements and its shape")
    };
    let tensors = array.as_fixed_size_list();
    let list = to_list(tensors, item)?;
    let (_, offsets, values, _) = list.into_parts();
    let data = ListArray::try_new(item.clone(), offsets, values, None)?;
    let lengths =
        Int32Array::from_iter_values((0..array.len()).flat_map(|_| shape.iter().map(|length| *length as i32)));
    let shapes = FixedSizeListArray::try_new_with_length(length.clone(), *size, Arc::new(lengths), None, array.len())?;
    let columns: Vec<ArrayRef> = vec![Arc::new(data), Arc::new(shapes)];
    Ok(Arc::new(StructArray::try_new(fields.clone(), columns, tensors.nulls().cloned())?))
}

#[cfg(test)]
mod tests {
    use arrow_array::builder::{ListBuilder, StringBuilder};
    use arrow_array::{Int64Array, StringArray};

    use super::*;

    fn block(texts: &[&str]) -> RecordBatch {
        let texts: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..texts.len() as i64));
        RecordBatch::try_from_iter([("text", texts), ("number", numbers)]).unwrap()
    }

    /// The limit is smaller here: 2 GB of text would take a test its time and a machine its memory.
    #[test]
    fn texts_that_are_too_long_together_are_counted_with_64_bits() {
        let blocks = vec![block(&["abc", "de"]), block(&["fghi"]).slice(0, 1)];
        let kind = |longest| joined_within(blocks.clone(), longest).unwrap().schema().field(0).data_type().clone();
        assert_eq!(kind(9), DataType::Utf8);
        assert_eq!(kind(8), DataType::LargeUtf8);
        let whole = joined_within(blocks.clone(), 8).unwrap();
        let texts: Vec<_> = whole.column(0).as_string::<i64>().iter().flatten().collect();
        assert_eq!(texts, ["abc", "de", "fghi"]);
        assert_eq!(whole.schema().field(1).data_type(), &DataType::Int64);
    }

    #[test]
    fn only_what_is_in_a_slice_is_counted() {
        let part = block(&["a long text that is not in the slice", "ab"]).slice(1, 1);
        let whole = joined_within(vec![part.clone(), part], 4).unwrap();
        assert_eq!(whole.schema().field(0).data_type(), &DataType::Utf8);
    }

    #[test]
    fn lists_that_are_too_long_together_are_an_error_that_names_the_column() {
        let mut lists = ListBuilder::new(StringBuilder::new());
        lists.values().append_value("abc");
        lists.append(true);
        let lists: ArrayRef = Arc::new(lists.finish());
        let one = RecordBatch::try_from_iter([("words", lists)]).unwrap();
        let error = joined_within(vec![one.clone(), one.clone()], 5).unwrap_err().to_string();
        assert!(error.contains("`words`"), "{error}");
        assert_eq!(joined_within(vec![one.clone(), one], 6).unwrap().num_rows(), 2);
    }
}
