//! What is kept: the run's directory, its reports, its checkpoints, the journal, and the blobs of a node.
//!
//! Everything here is plain blocking file work on paths; who calls it, and on which thread, is the caller's affair.

mod blobs;
mod checkpoint;
mod csv;
mod error;
mod journal;
mod owner;
mod report_log;
mod reports;
mod run_directory;
mod tensorboard;

pub use blobs::{BlobStore, BlobWriter};
pub use checkpoint::{commit, latest, stage, staging_directory};
pub use error::StoreError;
pub use journal::{Journal, JournalRecord};
pub use owner::Owner;
pub use report_log::{ReportLogReader, ReportLogWriter};
pub use reports::ReportFiles;
pub use run_directory::{RunDirectory, RunRecord};
