//! The columns of a batch as slices of numbers.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field};
use carril_data::tensor::fixed_shape;
use serde::de::DeserializeOwned;

use super::error::invalid;
use super::rows::{rows_of, table_of};
use crate::decode::from_value;
use crate::error::{Error, Result};

mod sealed {
    pub trait Sealed: arrow_array::ArrowNativeTypeOp {
        type Arrow: arrow_array::types::ArrowPrimitiveType<Native = Self>;
    }
}

/// A type of numbers that a column may have: the integers from `i8` to `u64`, `f32` and `f64`.
///
/// ```
/// use carril::data::{Columns, Dataset, Number};
///
/// fn column<T: Number>(dataset: &Dataset, name: &str) -> carril::Result<Vec<T>> {
///     Ok(dataset.take(10)?.values::<T>(name)?.to_vec())
/// }
/// assert_eq!(column::<i64>(&Dataset::range(3), "id")?, [0, 1, 2]);
/// # Ok::<(), carril::Error>(())
/// ```
pub trait Number: sealed::Sealed + Copy {}

macro_rules! numbers {
    ($($number:ident $arrow:ident),*) => { $(
        impl sealed::Sealed for $number {
            type Arrow = $arrow;
        }
        impl Number for $number {}
    )* };
}

numbers!(i8 Int8Type, i16 Int16Type, i32 Int32Type, i64 Int64Type, u8 UInt8Type, u16 UInt16Type, u32 UInt32Type);
numbers!(u64 UInt64Type, f32 Float32Type, f64 Float64Type);

/// What a batch holds, as Rust has it. Every [`RecordBatch`] has these methods.
///
/// ```
/// use carril::data::{Columns, Dataset};
///
/// let batch = Dataset::range(4).take(4)?;
/// assert_eq!(batch.values::<i64>("id")?, [0, 1, 2, 3]);
/// assert_eq!(batch.cast::<f32>("id")?, [0.0, 1.0, 2.0, 3.0]);
/// # Ok::<(), carril::Error>(())
/// ```
pub trait Columns {
    /// The numbers of a column, where they lie. Of lists and tensors all elements, row by row: [`shape`](Columns::shape) says how many each
    /// row has. A column of another type, or with missing values, is an error.
    ///
    /// ```
    /// use carril::data::{Columns, Dataset};
    ///
    /// #[derive(serde::Serialize)]
    /// struct Point {
    ///     at: [f64; 2],
    /// }
    ///
    /// let batch = Dataset::from_rows([Point { at: [1.0, 2.0] }, Point { at: [3.0, 4.0] }])?.take(2)?;
    /// assert_eq!(batch.values::<f64>("at")?, [1.0, 2.0, 3.0, 4.0]);
    /// assert_eq!(batch.shape("at")?, [2]);
    ///
    /// let error = batch.values::<f32>("at").unwrap_err();
    /// assert_eq!(error.to_string(), "`at` is of Float64, and Float32 was asked for");
    /// let error = batch.values::<f64>("where").unwrap_err();
    /// assert_eq!(error.to_string(), "there is no column `where`; there are `at`");
    /// # Ok::<(), carril::Error>(())
    /// ```
    fn values<T: Number>(&self, column: &str) -> Result<&[T]>;

    /// As [`values`](Columns::values), from whatever type of numbers, or of booleans. A number that has no counterpart is an error.
    ///
    /// ```
    /// use carril::data::{Columns, Dataset};
    ///
    /// let batch = Dataset::range(400).take(400)?;
    /// assert_eq!(batch.cast::<u16>("id")?[399], 399);
    /// assert!(batch.cast::<u8>("id").is_err(), "399 is too large");
    /// # Ok::<(), carril::Error>(())
    /// ```
    fn cast<T: Number>(&self, column: &str) -> Result<Vec<T>>;

    /// The shape of a row: nothing for plain numbers, otherwise the lengths of its lists, or of its tensor's axes.
    ///
    /// ```
    /// use carril::data::{Columns, Dataset};
    ///
    /// assert!(Dataset::range(4).take(4)?.shape("id")?.is_empty());
    /// # Ok::<(), carril::Error>(())
    /// ```
    fn shape(&self, column: &str) -> Result<Vec<usize>>;

    /// The texts of a column.
    ///
    /// ```
    /// use carril::data::{Columns, Dataset};
    ///
    /// # use std::collections::BTreeMap;
    /// let batch = Dataset::from_rows([BTreeMap::from([("name", "Ada")])])?.take(1)?;
    /// assert_eq!(batch.texts("name")?, ["Ada"]);
    /// # Ok::<(), carril::Error>(())
    /// ```
    fn texts(&self, column: &str) -> Result<Vec<&str>>;

    /// Rows of a type of your own, whose fields are columns.
    ///
    /// ```
    /// use carril::data::{Columns, Dataset};
    ///
    /// #[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
    /// struct Point {
    ///     at: (f64, f64),
    ///     label: Option<String>,
    /// }
    ///
    /// let point = || Point { at: (f64::INFINITY, 2.0), label: Some("p".into()) };
    /// let rows: Vec<Point> = Dataset::from_rows([point()])?.take(1)?.rows()?;
    /// assert_eq!(rows, [point()]);
    /// # Ok::<(), carril::Error>(())
    /// ```
    fn rows<R: DeserializeOwned>(&self) -> Result<Vec<R>>;

    /// The rows below the names of their columns, for people.
    ///
    /// ```
    /// use carril::data::{Columns, Dataset};
    ///
    /// assert_eq!(Dataset::range(2).take(2)?.to_table(), "id\n0\n1");
    /// # Ok::<(), carril::Error>(())
    /// ```
    fn to_table(&self) -> String;
}

impl Columns for RecordBatch {
    fn values<T: Number>(&self, column: &str) -> Result<&[T]> {
        let (array, _) = find(self, column)?;
        let elements = elements(column, array)?;
        let Some(numbers) = elements.array.as_primitive_opt::<T::Arrow>() else {
            let (there, wanted) = (elements.array.data_type(), <T::Arrow as ArrowPrimitiveType>::DATA_TYPE);
            let error = invalid(format!("`{column}` is of {there}, and {wanted} was asked for"));
            return Err(match there.is_numeric() || *there == DataType::Boolean {
                true => error.hint(format!("`cast` makes {wanted} of it")),
                false => error,
            });
        };
        let numbers: &[T] = numbers.values();
        Ok(&numbers[elements.range])
    }

    fn cast<T: Number>(&self, column: &str) -> Result<Vec<T>> {
        let (array, _) = find(self, column)?;
        let Elements { array, range, .. } = elements(column, array)?;
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let made = cast_with_options(&array.slice(range.start, range.len()), &T::Arrow::DATA_TYPE, &options)
            .map_err(|error| invalid(format!("`{column}` is of {} and cannot be cast: {error}", array.data_type())))?;
        Ok(made.as_primitive::<T::Arrow>().values().to_vec())
    }

    fn shape(&self, column: &str) -> Result<Vec<usize>> {
        let (array, field) = find(self, column)?;
        match fixed_shape(field) {
            Some(shape) => Ok(shape),
            None => Ok(elements(column, array)?.shape),
        }
    }

    fn texts(&self, column: &str) -> Result<Vec<&str>> {
        let (array, _) = find(self, column)?;
        let known = |text: Option<_>| text.ok_or_else(|| missing(column));
        match array.data_type() {
            DataType::Utf8 => array.as_string::<i32>().iter().map(known).collect(),
            DataType::LargeUtf8 => array.as_string::<i64>().iter().map(known).collect(),
            DataType::Utf8View => array.as_string_view().iter().map(known).collect(),
            other => Err(invalid(format!("`{column}` is of {other}, and texts were asked for"))),
        }
    }

    fn rows<R: DeserializeOwned>(&self) -> Result<Vec<R>> {
        let row = |(number, row)| {
            from_value(row).map_err(|unfit| invalid(format!("row {number} is something else: {unfit}")))
        };
        rows_of(self)?.into_iter().enumerate().map(row).collect()
    }

    fn to_table(&self) -> String {
        table_of(self)
    }
}

fn find<'a>(batch: &'a RecordBatch, column: &str) -> Result<(&'a ArrayRef, &'a Field)> {
    let Some((number, field)) = batch.schema_ref().column_with_name(column) else {
        let there: Vec<String> =
            batch.schema_ref().fields().iter().map(|field| format!("`{}`", field.name())).collect();
        return Err(invalid(format!("there is no column `{column}`; there are {}", there.join(", "))));
    };
    Ok((batch.column(number), field))
}

fn missing(column: &str) -> Error {
    invalid(format!("`{column}` has missing values"))
        .hint("`filter(column, Is::NotEqual, Value::Null)` leaves them out, or a function of `map_batches` fills them")
}

/// The numbers inside of a column, all of them one after the other.
struct Elements<'a> {
    array: &'a ArrayRef,
    range: Range<usize>,
    shape: Vec<usize>,
}

fn elements<'a>(column: &str, array: &'a ArrayRef) -> Result<Elements<'a>> {
    let mut found = Elements { array, range: 0..array.len(), shape: Vec::new() };
    loop {
        let Elements { array, range, .. } = &found;
        if array.null_count() > 0 && array.slice(range.start, range.len()).null_count() > 0 {
            return Err(missing(column));
        }
        let (inner, inside, width) = match array.data_type() {
            DataType::FixedSizeList(_, width) => {
                let width = *width as usize;
                (array.as_fixed_size_list().values(), range.start * width..range.end * width, width)
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                let offsets: Vec<usize> =
                    list.offsets()[range.start..=range.end].iter().map(|at| *at as usize).collect();
                let (inside, width) = even(column, &offsets)?;
                (list.values(), inside, width)
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                let offsets: Vec<usize> =
                    list.offsets()[range.start..=range.end].iter().map(|at| *at as usize).collect();
                let (inside, width) = even(column, &offsets)?;
                (list.values(), inside, width)
            }
            _ => return Ok(found),
        };
        found.shape.push(width);
        (found.array, found.range) = (inner, inside);
    }
}

/// Lists that are all of one length.
fn even(column: &str, offsets: &[usize]) -> Result<(Range<usize>, usize)> {
    let width = offsets.get(1).map_or(0, |end| end - offsets[0]);
    match offsets.windows(2).find(|pair| pair[1] - pair[0] != width) {
        Some(pair) => {
            let other = pair[1] - pair[0];
            Err(invalid(format!("the lists in `{column}` are of several lengths: {width}, {other}, …")))
        }
        None => Ok((offsets[0]..offsets[offsets.len() - 1], width)),
    }
}
