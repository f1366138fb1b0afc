//! What can go wrong with data, and what it means to the user.

use arrow_schema::ArrowError;
use carril_store::StoreError;
use carril_types::{ErrorCode, Failure, near};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum DataError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// `part` says where in the file: a row group, a line, a member.
    #[error("cannot read `{file}`{}: {why}", in_part(part))]
    Damaged { file: String, part: Option<String>, why: String },
    #[error("nothing is at `{path}`")]
    Missing { path: String },
    #[error("{why}")]
    NoFiles { why: String },
    #[error("`{first}` and `{second}` have different columns: {difference}")]
    SchemasDiffer { first: String, second: String, difference: String },
    #[error("there is no column `{column}`; there are {there}")]
    NoColumn { column: String, there: String },
    #[error("{what}")]
    Invalid { what: String, hint: Option<String> },
    #[error(transparent)]
    Arrow(#[from] ArrowError),
    /// A bug of ours.
    #[error("a bug of ours: a reader has panicked; the lines above this one say where")]
    Panicked,
    /// The ranks wait for each other, and no batch will come.
    #[error("{}", .0.message)]
    Hopeless(Box<Failure>),
    /// What a function of the user's raised.
    #[error("{}", .0.message)]
    User(Box<Failure>),
    /// The same, with the exception itself, pickled and in hexadecimal digits.
    #[error("{}", .failure.message)]
    Raised { failure: Box<Failure>, pickle: String },
}

fn in_part(part: &Option<String>) -> String {
    part.as_ref().map_or_else(String::new, |part| format!(" at {part}"))
}

impl DataError {
    pub fn damaged(file: &str, part: impl Into<Option<String>>, why: impl std::fmt::Display) -> Self {
        DataError::Damaged { file: file.to_owned(), part: part.into(), why: why.to_string() }
    }

    pub fn invalid(what: impl Into<String>) -> Self {
        DataError::Invalid { what: what.into(), hint: None }
    }

    pub fn changed() -> Self {
        Self::invalid("there are other rows than when they were counted: a file was changed in between")
    }

    /// How to go on.
    fn hint(&self) -> Option<String> {
        Some(match self {
            DataError::Invalid { hint, .. } => return hint.clone(),
            DataError::Damaged { .. } => "`max_errors=1` passes over one damaged part and reads the others".to_owned(),
            DataError::Missing { .. } | DataError::NoFiles { .. } => {
                "a path is that of a file, a directory or a glob; `ignore_missing_paths=True` passes over those that lead \
                 nowhere"
                    .to_owned()
            }
            DataError::SchemasDiffer { .. } => {
                "read them apart, give both the same columns with `map_batches`, and put them together with `union`".to_owned()
            }
            DataError::NoColumn { column, there } => {
                let known = there.split(", ").map(|name| name.trim_matches('`'));
                format!("did you mean `{}`?", near(column, known)?)
            }
            _ => return None,
        })
    }
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Failure {
        let code = match &error {
            DataError::Store(_) | DataError::Damaged { .. } => ErrorCode::Storage,
            DataError::Missing { .. } | DataError::NoFiles { .. } => ErrorCode::NotFound,
            DataError::SchemasDiffer { .. } | DataError::Invalid { .. } | DataError::Arrow(_) => {
                ErrorCode::InvalidConfig
            }
            DataError::NoColumn { .. } => ErrorCode::NoColumn,
            DataError::Panicked => ErrorCode::Internal,
            DataError::User(failure) | DataError::Hopeless(failure) | DataError::Raised { failure, .. } => {
                return (**failure).clone();
            }
        };
        let message = error.to_string();
        let hint = error.hint();
        match (error, hint) {
            (DataError::Store(error), _) => error.into(),
            (_, Some(hint)) => Failure::new(code, message).hint(hint),
            (_, None) => Failure::new(code, message),
        }
    }
}
