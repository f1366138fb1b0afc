//! Functions of the user's on batches, in the engine's own threads.

use std::any::{TypeId, type_name};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::RecordBatch;
use carril_data::{DataError, Transform};
use carril_types::{ErrorCode, Failure};

use crate::error::{BoxError, Located, chain, joined};
use crate::functions::{Function, Known, Named};
use crate::worker;

type Call = Box<dyn Fn(RecordBatch) -> Result<RecordBatch, BoxError> + Send + Sync>;

/// A function that makes one batch of another, as [`Dataset::map_batches`](super::Dataset::map_batches) takes it. Its error is any.
///
/// A function that takes part in training is named in [`init!`](crate::init!), beside the training functions.
///
/// ```
/// use carril::data::Change;
/// use carril::data::arrow::RecordBatch;
///
/// fn first_ten(batch: RecordBatch) -> carril::Result<RecordBatch> {
///     Ok(batch.slice(0, batch.num_rows().min(10)))
/// }
///
/// fn is_one<E: Into<carril::BoxError>>(_: impl Change<E>) {}
/// is_one(first_ten);
/// ```
pub trait Change<E>: Fn(RecordBatch) -> Result<RecordBatch, E> + Send + Sync + 'static {}

impl<F: Fn(RecordBatch) -> Result<RecordBatch, E> + Send + Sync + 'static, E> Change<E> for F {}

pub(crate) struct BatchFunction {
    pub known: Known,
    call: Call,
}

impl fmt::Debug for BatchFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.short())
    }
}

impl BatchFunction {
    pub fn new<F: Change<E>, E: Into<BoxError>>(function: F) -> Arc<Self> {
        let known = Known { id: TypeId::of::<F>(), name: type_name::<F>() };
        Arc::new(Self { known, call: Box::new(move |batch| function(batch).map_err(Into::into)) })
    }

    pub fn short(&self) -> &'static str {
        self.known.name.rsplit("::").next().unwrap_or(self.known.name)
    }

    fn failed(&self, text: &str, location: &str) -> DataError {
        let place = if location.is_empty() { String::new() } else { format!(" at {location}") };
        let message = format!("`{}` failed on data: {text}{place}", self.short());
        DataError::User(Box::new(Failure::new(ErrorCode::UserException, message)))
    }

    fn run(&self, batch: RecordBatch) -> Result<RecordBatch, DataError> {
        match catch_unwind(AssertUnwindSafe(|| (self.call)(batch))) {
            Ok(Ok(made)) => Ok(made),
            Ok(Err(error)) => {
                let located = error.downcast_ref::<Located>().and_then(|located| located.location);
                let location = located.map(ToString::to_string).unwrap_or_default();
                Err(self.failed(&joined(&chain(error.as_ref())), &location))
            }
            Err(panic) => {
                let (message, location) = worker::panic_here().unwrap_or_else(|| {
                    let text = panic.downcast_ref::<&str>().copied();
                    let text = text.or_else(|| Some(panic.downcast_ref::<String>()?.as_str()));
                    (text.unwrap_or("(no text)").to_owned(), String::new())
                });
                Err(self.failed(&format!("panic: {message}"), &location))
            }
        }
    }
}

/// The function as the engine calls it.
pub(crate) struct Changes {
    pub function: Arc<BatchFunction>,
    pub keeps_rows: bool,
}

impl Transform for Changes {
    fn apply(&self, block: RecordBatch) -> Result<Vec<RecordBatch>, DataError> {
        let rows = block.num_rows();
        let made = self.function.run(block)?;
        if self.keeps_rows && made.num_rows() != rows {
            let what = format!("`{}` made {} rows of {rows}", self.function.short(), made.num_rows());
            let hint = Some("`map_columns` is for functions that keep every row: use `map_batches`".to_owned());
            return Err(DataError::Invalid { what, hint });
        }
        Ok(vec![made])
    }

    fn keeps_rows(&self) -> bool {
        self.keeps_rows
    }
}

/// Tells functions of batches from training functions.
#[doc(hidden)]
pub struct OfBatches<E>(E);

impl<F: Change<E> + Copy, E: Into<BoxError>> Named<OfBatches<E>> for F {
    fn named(self) -> Function {
        const { assert!(size_of::<F>() == 0, "a function that is sent to workers must not capture anything") };
        Function::of_batches(BatchFunction::new(self))
    }
}
