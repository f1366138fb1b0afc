//! The columns of what is read: those of the files, those that stand in their paths, and the paths themselves.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray, new_null_array,
};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::error::DataError;
use crate::files::{FileRef, PartitionValue};

const PATH: &str = "path";

pub(crate) struct Layout {
    schema: SchemaRef,
    columns: Vec<Column>,
}

enum Column {
    Own,
    Partition,
    Path,
}

/// So many rows of a block are of one file.
pub(crate) struct Run<'a> {
    pub file: &'a FileRef,
    pub rows: usize,
}

impl Layout {
    /// `own` are the columns that the files hold. A column of theirs comes before one of their paths that has its name.
    pub fn new(own: &Schema, files: &[FileRef], include_paths: bool) -> Self {
        let mut fields: Vec<Arc<Field>> = own.fields().iter().map(crate::object::without_mark).collect();
        let mut columns: Vec<Column> = fields.iter().map(|_| Column::Own).collect();
        let partitions = files.first().map_or(&[][..], |file| &file.partitions);
        for (key, _) in partitions {
            if own.column_with_name(key).is_some() {
                continue;
            }
            let value = |file: &FileRef| find(file, key);
            let first = files.iter().map(value).find(|value| *value != PartitionValue::Null);
            let kind = match first {
                Some(PartitionValue::Integer(_)) => DataType::Int64,
                Some(PartitionValue::Real(_)) => DataType::Float64,
                Some(PartitionValue::Truth(_)) => DataType::Boolean,
                Some(PartitionValue::Text(_) | PartitionValue::Null) | None => DataType::Utf8,
            };
            let nullable = files.iter().any(|file| value(file) == PartitionValue::Null);
            fields.push(Arc::new(Field::new(key, kind, nullable)));
            columns.push(Column::Partition);
        }
        if include_paths {
            let at = fields.iter().position(|field| field.name() == PATH).unwrap_or(fields.len());
            fields.splice(at..fields.len().min(at + 1), [Arc::new(Field::new(PATH, DataType::Utf8, false))]);
            columns.splice(at..columns.len().min(at + 1), [Column::Path]);
        }
        Self { schema: Arc::new(Schema::new(fields)), columns }
    }

    /// These columns, in this order.
    pub fn select(self, names: &[String]) -> Result<Self, DataError> {
        let index = |name: &String| {
            self.schema.index_of(name).map_err(|_| DataError::NoColumn {
                column: name.clone(),
                there: self.schema.fields().iter().map(|f| format!("`{}`", f.name())).collect::<Vec<_>>().join(", "),
            })
        };
        let indices = names.iter().map(index).collect::<Result<Vec<_>, _>>()?;
        let schema = Arc::new(self.schema.project(&indices)?);
        let columns = indices
            .iter()
            .map(|index| match self.columns[*index] {
                Column::Own => Column::Own,
                Column::Partition => Column::Partition,
                Column::Path => Column::Path,
            })
            .collect();
        Ok(Self { schema, columns })
    }

    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// The columns that are read from the files.
    pub fn own(&self) -> Schema {
        let own = self.schema.fields().iter().zip(&self.columns).filter(|(_, column)| matches!(column, Column::Own));
        Schema::new(own.map(|(field, _)| field.clone()).collect::<Vec<_>>())
    }

    /// The value of a column that stands in a file's path, as an array of one.
    pub fn partition_value(&self, name: &str, file: &FileRef) -> Option<ArrayRef> {
        let (index, field) = self.schema.column_with_name(name)?;
        matches!(self.columns[index], Column::Partition).then(|| partition(field, &[Run { file, rows: 1 }]))
    }

    pub fn finish_one(&self, batch: RecordBatch, file: &FileRef) -> Result<RecordBatch, DataError> {
        let rows = batch.num_rows();
        self.finish(batch, &[Run { file, rows }])
    }

    /// Makes of a file's rows a block with the schema: columns are found by name, cast, and added.
    pub fn finish(&self, batch: RecordBatch, runs: &[Run<'_>]) -> Result<RecordBatch, DataError> {
        let rows = batch.num_rows();
        let arrays = (0..self.columns.len()).map(|column| self.finish_column(column, &batch, runs));
        let arrays = arrays.collect::<Result<Vec<_>, DataError>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?)
    }

    /// The same for one column: of the file's rows no other is needed.
    pub fn finish_column(&self, column: usize, batch: &RecordBatch, runs: &[Run<'_>]) -> Result<ArrayRef, DataError> {
        let field = self.schema.field(column);
        match self.columns[column] {
            Column::Own => match batch.column_by_name(field.name()) {
                Some(array) => to_type(array, field.data_type()),
                None => Ok(new_null_array(field.data_type(), batch.num_rows())),
            },
            Column::Partition => Ok(partition(field, runs)),
            Column::Path => {
                let paths = runs.iter().flat_map(|run| std::iter::repeat_n(run.file.name.as_str(), run.rows));
                Ok(Arc::new(StringArray::from_iter_values(paths)) as ArrayRef)
            }
        }
    }

    /// Whether the column is read from the files.
    pub fn is_own(&self, column: usize) -> bool {
        matches!(self.columns[column], Column::Own)
    }
}

pub(crate) fn to_type(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, DataError> {
    if array.data_type() == wanted {
        return Ok(array.clone());
    }
    Ok(cast_with_options(array, wanted, &CastOptions { safe: false, ..CastOptions::default() })?)
}

fn find(file: &FileRef, key: &str) -> PartitionValue {
    let found = file.partitions.iter().find(|(name, _)| name == key);
    found.map_or(PartitionValue::Null, |(_, value)| value.clone())
}

fn partition(field: &Field, runs: &[Run<'_>]) -> ArrayRef {
    let values = runs.iter().flat_map(|run| std::iter::repeat_n(find(run.file, field.name()), run.rows));
    match field.data_type() {
        DataType::Int64 => Arc::new(Int64Array::from_iter(values.map(|value| match value {
            PartitionValue::Integer(number) => Some(number),
            _ => None,
        }))),
        DataType::Float64 => Arc::new(Float64Array::from_iter(values.map(|value| match value {
            PartitionValue::Real(text) => text.parse().ok(),
            _ => None,
        }))),
        DataType::Boolean => Arc::new(BooleanArray::from_iter(values.map(|value| match value {
            PartitionValue::Truth(truth) => Some(truth),
            _ => None,
        }))),
        _ => Arc::new(StringArray::from_iter(values.map(|value| match value {
            PartitionValue::Text(text) => Some(text),
            _ => None,
        }))),
    }
}
