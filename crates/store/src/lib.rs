//! What is kept: the run's directory, its reports, its checkpoints, the journal; an experiment's trials; the blobs of a node; and the
//! storage behind.
//!
//! Everything here blocks, on files or on a server; who calls it, and on which thread, is the caller's affair.

mod append;
mod blobs;
mod check;
mod checkpoint;
mod copy;
mod credentials;
mod csv;
mod differences;
mod epoch;
mod error;
mod experiment;
mod experiment_files;
mod experiment_record;
mod faults;
mod journal;
mod last_report;
mod local;
mod location;
mod manifest;
mod metrics_json;
mod object;
mod owner;
mod patience;
mod python_filesystem;
mod python_json;
pub mod regular;
mod report_log;
mod reports;
mod requests;
mod rescue;
mod run_directory;
mod storage;
mod take;
mod tensorboard;
mod verify;

pub use blobs::{BlobStore, BlobWriter, blob_hash};
pub use check::{amend_manifest, check, check_file};
pub use checkpoint::{
    Committed, Conflict, Header, STAGING, Shard, adopt, annotate, commit, keep_first, owned, prepare, prepare_in_place,
    remove, upload,
};
pub use credentials::storage_variables;
pub use csv::write_csv_cell;
pub use differences::Differences;
pub use epoch::{is_current, take_epoch};
pub use error::StoreError;
pub use experiment::{
    Experiment, ExperimentStatus, ExperimentSummary, RECOVERED, Reached, Recovered, Trial, TrialState, UNFINISHED,
    recover,
};
pub use experiment_files::{CLOSED, Existing, ExperimentFiles, Lines, OPENED, RESUMED, TRIAL, TRIALS};
pub use experiment_record::{EXPERIMENT, EXPERIMENT_FORMAT, ExperimentRecord, restore_record};
pub use faults::{Crashed, crash_at, journal_point};
pub use journal::{COMMITTED, Fact, History, Journal, JournalRecord, saved_checkpoints};
pub use last_report::{last_report, report_number};
pub use local::free_space;
pub use location::joined;
pub use manifest::{Damage, MANIFEST, METADATA, Manifest, ManifestFile};
pub use metrics_json::{json_of, value_of};
pub use owner::Owner;
pub use patience::{RETRY, Tries, deadline};
pub use python_filesystem::PythonFilesystem;
pub use python_json::{find_in_object, parse_object};
pub use report_log::{ReportLogReader, ReportLogWriter};
pub use reports::ReportFiles;
pub use rescue::{rescue, take_rescued};
pub use run_directory::{RUN_FORMAT, RunDirectory, RunRecord};
pub use storage::{Entry, Storage, StoredFile};
pub use take::{Take, take};
pub use verify::{
    Found, Listed, Trust, download, find_latest, list_checkpoints, list_manifests, list_unverified, verify,
};
