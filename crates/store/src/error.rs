//! What can go wrong with files, and what it means to the user.

use std::io;
use std::path::{Path, PathBuf};

use carril_types::{ErrorCode, Failure};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum StoreError {
    #[error("cannot {what} `{}`: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("a run named `{name}` has ended in `{}`", path.display())]
    RunExists { name: String, path: PathBuf },
    #[error("`{}` exists, and what it holds is no run", path.display())]
    NotARun { path: PathBuf },
    #[error("a run named `{name}` is live in `{}`: process {pid} on {host}", path.display())]
    RunLive { name: String, path: PathBuf, pid: u32, host: String },
    #[error("a run named `{name}` did not finish in `{}`", path.display())]
    RunUnfinished { name: String, path: PathBuf },
    #[error("the checkpoint directory `{}` {what}", path.display())]
    CheckpointDirectory { what: &'static str, path: PathBuf },
    #[error("ranks {first} and {second} both reported `{file}` in one checkpoint, with different content")]
    CheckpointConflict { first: u32, second: u32, file: String },
    #[error("a checkpoint named `{name}` exists already")]
    CheckpointExists { name: String },
    #[error("`{}` is damaged at byte {offset}", path.display())]
    Damaged { path: PathBuf, offset: u64 },
}

impl StoreError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
        let path = path.to_owned();
        move |source| StoreError::Io { what, path, source }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let message = error.to_string();
        let another = "give the run another `name`";
        match error {
            StoreError::Io { .. } | StoreError::Damaged { .. } => Failure::new(ErrorCode::Storage, message),
            StoreError::RunExists { .. } => Failure::new(ErrorCode::RunExists, message)
                .hint(another)
                .hint("to go on from its last checkpoint, wait for `resume=`, which is not available yet"),
            StoreError::NotARun { .. } => Failure::new(ErrorCode::RunExists, message).hint(another),
            StoreError::RunLive { .. } => Failure::new(ErrorCode::RunLive, message).hint(another),
            StoreError::RunUnfinished { .. } => Failure::new(ErrorCode::RunUnfinished, message)
                .hint(format!("{another}: resuming a run is not available yet")),
            StoreError::CheckpointDirectory { .. } => {
                Failure::new(ErrorCode::Checkpoint, message).hint("report a directory that holds at least one file")
            }
            StoreError::CheckpointConflict { .. } => Failure::new(ErrorCode::CheckpointConflict, message)
                .hint("let one rank write the file, or give each rank's file a name of its own"),
            StoreError::CheckpointExists { .. } => {
                Failure::new(ErrorCode::CheckpointConflict, message).hint("give each `checkpoint_dir_name` once")
            }
        }
    }
}
