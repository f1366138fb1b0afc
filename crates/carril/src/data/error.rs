//! What goes wrong with data, with hints in the words of this crate.

use carril_data::DataError;
use carril_types::{ErrorCode, Failure};

use crate::error::Error;

impl From<DataError> for Error {
    fn from(error: DataError) -> Self {
        let hint = match &error {
            DataError::Damaged { .. } => {
                Some("`Files::max_errors(1)` passes over one damaged part and reads the others")
            }
            DataError::Missing { .. } | DataError::NoFiles { .. } => Some(
                "a path is that of a file, a directory or a glob; `Files::ignore_missing` passes over those that lead nowhere",
            ),
            _ => None,
        };
        let mut failure = Failure::from(error);
        if let Some(hint) = hint {
            failure.hints = vec![hint.to_owned()];
        }
        failure.into()
    }
}

impl From<arrow_schema::ArrowError> for Error {
    fn from(error: arrow_schema::ArrowError) -> Self {
        DataError::from(error).into()
    }
}

pub(crate) fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidConfig, what)
}
