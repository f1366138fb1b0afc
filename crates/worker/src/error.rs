//! What can go wrong in a worker, on the way to its agent.

use std::io;

use carril_types::{ErrorCode, Failure};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum SessionError {
    #[error("this process is not a worker: `{variable}` is not set")]
    NotAWorker { variable: &'static str },
    #[error("`{variable}` is `{value}`: it does not name a worker")]
    BadKey { variable: &'static str, value: String },
    #[error("the report log cannot be written: {source}")]
    ReportLog { source: io::Error },
    #[error("the worker's thread cannot be started: {source}")]
    Thread { source: io::Error },
    #[error(transparent)]
    Failure(#[from] Failure),
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let message = error.to_string();
        match error {
            SessionError::Failure(failure) => failure,
            SessionError::NotAWorker { .. } | SessionError::BadKey { .. } => {
                Failure::new(ErrorCode::NotFound, message).hint("this call is for functions that a Trainer runs")
            }
            SessionError::ReportLog { .. } => Failure::new(ErrorCode::Storage, message),
            SessionError::Thread { .. } => Failure::new(ErrorCode::Internal, message),
        }
    }
}
