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

/// The rows of one behind those of the other, as one block.
pub fn joined(blocks: Vec<RecordBatch>) -> Result<RecordBatch, DataError> {
    let alike = alike(blocks)?;
    match &alike[..] {
        [one] => Ok(one.clone()),
        several => {
            let schema = several.first().map_or_else(|| Arc::new(Schema::empty()), RecordBatch::schema);
            Ok(concat_batches(&schema, several)?)
        }
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
