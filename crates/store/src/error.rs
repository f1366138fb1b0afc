//! What can go wrong with files and storage, and what it means to the user.
//!
//! An error of the system keeps its `io::Error`. No message holds a credential: a location is shown without its query.

use std::io;
use std::path::{Path, PathBuf};

use carril_types::{ErrorCode, Failure};
use nix::libc;
use thiserror::Error;

use crate::local::free_space;
use crate::manifest::Damage;
use crate::regular::NotAFile;

#[derive(Debug, Error)]
pub enum StoreError {
    #[error("cannot {what} `{}`: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot {what} `{}`: no space left, {free} bytes are free", path.display())]
    NoSpace { what: &'static str, path: PathBuf, free: u64, source: io::Error },
    #[error("`{}` is damaged: it is {kind}, not a file", path.display())]
    NotAFile { path: PathBuf, kind: &'static str },
    #[error("a run named `{name}` has ended in `{}`", path.display())]
    RunExists { name: String, path: PathBuf },
    #[error("`{}` exists, and what it holds is no run", path.display())]
    NotARun { path: PathBuf },
    #[error("`{}` is damaged, so that nobody knows how the run stands", path.display())]
    RunRecordDamaged { path: PathBuf },
    #[error("there is no experiment in `{location}`")]
    NotAnExperiment { location: String },
    #[error("`experiment.json` in `{location}` {why}")]
    ExperimentDamaged { location: String, why: &'static str },
    #[error("a run named `{name}` is live in `{}`: process {pid} on {host}", path.display())]
    RunLive { name: String, path: PathBuf, pid: u32, host: String },
    #[error("the checkpoint directory `{}` {what}", path.display())]
    CheckpointDirectory { what: &'static str, path: PathBuf },
    #[error("ranks {first} and {second} both reported `{file}` in one checkpoint, with different content")]
    CheckpointConflict { first: u32, second: u32, file: String },
    #[error("a checkpoint named `{name}` exists already")]
    CheckpointExists { name: String },
    #[error("the checkpoint `{location}` is damaged: {why}")]
    CheckpointDamaged { location: String, why: String },
    #[error("the checkpoint `{location}` was written by a newer Carril: its manifest has version {version}")]
    CheckpointNewer { location: String, version: u64 },
    #[error("`{location}` was written by a newer Carril: it has format {format}, and this version reads up to {known}")]
    Newer { location: String, format: u64, known: u32 },
    #[error("`{file}` was read as other content than was prepared for the checkpoint")]
    CheckpointChanged { file: String },
    #[error("{count} lines of `{}` are lost: it could not be written for too long", path.display())]
    LinesLost { path: PathBuf, count: usize },
    #[error("`{}` is damaged at byte {offset}", path.display())]
    Damaged { path: PathBuf, offset: u64 },
    #[error("`{location}` is not a place to store files: {why}")]
    BadLocation { location: String, why: &'static str },
    #[error("no credentials for `{location}`")]
    NoCredentials { location: String, variables: &'static str },
    /// A server answered, or did not, after all retries.
    #[error("cannot {what} `{location}`: {why}")]
    Remote { what: &'static str, location: String, why: String, missing: bool },
    /// What the Python process that holds a file system said.
    #[error("cannot {what} `{location}` through the Python file system: {why}")]
    PythonFilesystem { what: &'static str, location: String, why: String },
}

impl StoreError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
        let path = path.to_owned();
        move |source| match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => {
                let free = free_space(&path).unwrap_or(0);
                StoreError::NoSpace { what, path, free, source }
            }
            _ => match source.get_ref().and_then(|inner| inner.downcast_ref::<NotAFile>()) {
                Some(NotAFile(kind)) => StoreError::NotAFile { path, kind },
                None => StoreError::Io { what, path, source },
            },
        }
    }

    /// What is wrong with the checkpoint at a location.
    pub fn damaged(location: &str, damage: Damage) -> StoreError {
        let location = location.to_owned();
        match damage {
            Damage::Newer { version } => StoreError::CheckpointNewer { location, version },
            damage => StoreError::CheckpointDamaged { location, why: damage.to_string() },
        }
    }

    /// Whether another try at once would be refused like this one: no room, no permission, a file system that cannot be written.
    pub fn is_refusal(&self) -> bool {
        match self {
            StoreError::NoSpace { .. } => true,
            StoreError::Io { source, .. } => {
                matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
            }
            StoreError::Remote { why, .. } => why.contains("403") || why.contains("denied"),
            _ => false,
        }
    }

    /// Whether what is wrong with a disk may be over in a moment, and nothing was lost by it: no room, a network file system that is away, one
    /// that is being mounted again.
    pub fn may_pass(&self) -> bool {
        use io::ErrorKind::{HostUnreachable, NotConnected, ReadOnlyFilesystem, StaleNetworkFileHandle, TimedOut};
        let passes = [HostUnreachable, NotConnected, ReadOnlyFilesystem, StaleNetworkFileHandle, TimedOut];
        match self {
            StoreError::NoSpace { .. } => true,
            StoreError::Io { source, .. } => passes.contains(&source.kind()),
            _ => false,
        }
    }

    /// Whether the thing asked for is simply not there.
    pub fn is_missing(&self) -> bool {
        match self {
            StoreError::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
            StoreError::Remote { missing, .. } => *missing,
            _ => false,
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let message = error.to_string();
        let another = "give the run another `name`";
        let code = if error.is_refusal() { ErrorCode::StorageRefused } else { ErrorCode::Storage };
        let storage = Failure::new(code, message.clone());
        match error {
            StoreError::Remote { missing: true, .. } => storage.hint("the bucket must exist: it is not made"),
            StoreError::Remote { why, .. } if why.contains("403") || why.contains("denied") => storage
                .hint("the credentials in the environment must allow listing, reading, writing and deleting there"),
            StoreError::Io { .. }
            | StoreError::Damaged { .. }
            | StoreError::LinesLost { .. }
            | StoreError::Remote { .. } => storage,
            StoreError::NotAFile { .. } => storage.hint("move it away, or put the file back from a copy"),
            StoreError::NoSpace { .. } => storage.hint("free some space, or keep fewer checkpoints with `num_to_keep`"),
            StoreError::PythonFilesystem { .. } => {
                storage.hint("the file system object that was given is used in a process of its own")
            }
            StoreError::RunExists { .. } => Failure::new(ErrorCode::RunExists, message)
                .hint(another)
                .hint("to go on from its last checkpoint, set RunConfig(resume=True)"),
            StoreError::RunRecordDamaged { .. } => storage
                .hint("if nothing else runs it, `RunConfig(resume=True)` resumes from its newest checkpoint and writes the file again")
                .hint("or put the file back from a copy, or give the run another `name`"),
            StoreError::NotARun { .. } => Failure::new(ErrorCode::RunExists, message).hint(another),
            StoreError::RunLive { .. } => Failure::new(ErrorCode::RunLive, message).hint(another),
            StoreError::NotAnExperiment { .. } => Failure::new(ErrorCode::NotFound, message).hint(
                "an experiment has an `experiment.json`; `carril tune ls PATH` lists those that a directory holds",
            ),
            StoreError::ExperimentDamaged { .. } => storage.hint(
                "it is written whole: a newer Carril may have made it, or something else has written to it since; put it back from a \
                 copy, or give the experiment another `name`",
            ),
            StoreError::CheckpointDirectory { what, .. } => {
                let way_out = match what {
                    "holds the run's own directory" => "write the checkpoint's files to a directory of their own",
                    "vanished while it was copied" => "keep the directory until `report` has returned",
                    _ => "report a directory that holds at least one file",
                };
                Failure::new(ErrorCode::Checkpoint, message).hint(way_out)
            }
            StoreError::CheckpointConflict { .. } => Failure::new(ErrorCode::CheckpointConflict, message)
                .hint("let one rank write the file, or give each rank's file a name of its own"),
            StoreError::CheckpointExists { .. } => {
                Failure::new(ErrorCode::CheckpointConflict, message).hint("give each `checkpoint_dir_name` once")
            }
            StoreError::CheckpointDamaged { location, .. } => {
                let run = location.trim_end_matches('/').rsplit_once('/').map_or("RUN", |(run, _)| run);
                Failure::new(ErrorCode::Checkpoint, message)
                    .hint(format!("load an older checkpoint: `carril checkpoints {run}` lists those that are whole"))
                    .hint("if its files were changed on purpose, `verify=False` reads them as they are")
            }
            StoreError::CheckpointChanged { .. } => Failure::new(ErrorCode::Checkpoint, message),
            StoreError::CheckpointNewer { .. } | StoreError::Newer { .. } => {
                Failure::new(ErrorCode::VersionMismatch, message).hint("upgrade Carril to the version that wrote it")
            }
            StoreError::BadLocation { .. } => Failure::new(ErrorCode::InvalidConfig, message)
                .hint("give a directory, or a URI that starts with `s3://`, `gs://`, `az://` or `file://`"),
            StoreError::NoCredentials { variables, .. } => {
                Failure::new(ErrorCode::InvalidConfig, message).hint(format!("set {variables}"))
            }
        }
    }
}
