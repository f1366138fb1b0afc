//! The files of checkpoints on this node: taken from the workers, prepared, uploaded, dropped.
//!
//! Everything here is blocking file work on a thread of its own; the agent only hears how it went. What was taken is the
//! agent's: the death of the worker after that loses nothing.

use std::fs;
use std::path::{Path, PathBuf};

use carril_proto::v1;
use carril_store::{PythonFilesystem, Storage, StoreError, StoredFile, Take};
use carril_types::{Attempt, ErrorCode, Failure, Rank};
use tokio::sync::watch;

/// What is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forget {
    Checkpoint(u64),
    /// All that the attempt has not brought to its end.
    Attempt,
    Run,
}

/// Where the checkpoints of one run lie until they are stored.
#[derive(Clone, Debug)]
pub struct SavePlace {
    /// Of the run, with a directory for each attempt.
    spool: PathBuf,
    pub attempt: Attempt,
    /// Another run resumes in the directory in a moment: a trial that was paused.
    pub goes_on: bool,
    /// The run's own directory, where that is its storage: files become a checkpoint by being renamed.
    pub run: Option<PathBuf>,
    pub storage: String,
    pub filesystem: Option<PythonFilesystem>,
    pub may_be_empty: bool,
    /// Who removes something of the run listens to this as long.
    removals: watch::Sender<()>,
}

impl SavePlace {
    /// `spool` is this agent's place for runs that are kept elsewhere, `last` the place of the run's attempt before.
    pub fn of(group: &v1::Group, spool: &Path, last: Option<&Self>, blob: impl Fn(&str) -> Option<PathBuf>) -> Self {
        let filesystem = group.filesystem.clone().and_then(|filesystem| python_filesystem(filesystem, blob));
        let local = filesystem.is_none() && group.storage == group.run_directory;
        let run = local.then(|| PathBuf::from(&group.run_directory));
        let spool = match &run {
            Some(run) => run.join(".staging"),
            None => spool.join(&group.run_id),
        };
        let goes_on = local && group.trial.is_some();
        let removals = last.map_or_else(watch::Sender::default, |last| last.removals.clone());
        let (attempt, storage) = (Attempt(group.attempt), group.storage.clone());
        Self { spool, attempt, goes_on, run, storage, filesystem, may_be_empty: group.may_be_empty, removals }
    }

    pub fn of_rank(&self, iteration: u64, rank: Rank) -> PathBuf {
        self.of_attempt().join(iteration.to_string()).join(format!("rank_{rank}"))
    }

    fn of_attempt(&self) -> PathBuf {
        self.spool.join(self.attempt.0.to_string())
    }

    /// Brings a rank's files into the spool; they are the caller's again when this returns.
    pub fn take(
        &self,
        iteration: u64,
        rank: Rank,
        from: &Path,
        give_away: bool,
    ) -> Result<Vec<StoredFile>, StoreError> {
        let to = self.of_rank(iteration, rank);
        let durable = self.run.is_some();
        let (run, may_be_empty) = (self.run.as_deref(), self.may_be_empty);
        carril_store::take(&Take { from, to: &to, run, give_away, durable, may_be_empty })
    }

    /// Makes what was taken safe, and counts it.
    pub fn prepare(&self, iteration: u64, rank: Rank, files: Vec<StoredFile>) -> Result<v1::Shard, StoreError> {
        let spool = self.of_rank(iteration, rank);
        let files = carril_store::prepare(&spool, files, self.run.is_some())?;
        Ok(shard(rank, spool, files))
    }

    /// Files that are in the run's storage already are looked at when every rank has written its own.
    pub fn prepare_in_place(&self, rank: Rank) -> v1::Shard {
        shard(rank, PathBuf::new(), Vec::new())
    }

    /// A removal has begun, and is under way until the answer is dropped.
    pub fn begin_removal(&self) -> watch::Receiver<()> {
        self.removals.subscribe()
    }

    /// What is on its way out still takes room, which the next checkpoint may need.
    pub async fn removals_end(&self) {
        self.removals.closed().await;
    }

    pub fn forget(&self, what: Forget) {
        let gone = match what {
            Forget::Checkpoint(iteration) => self.of_attempt().join(iteration.to_string()),
            Forget::Attempt => self.of_attempt(),
            // The head has swept it, and what is there now may be the next one's.
            Forget::Run if self.goes_on => return,
            Forget::Run => self.spool.clone(),
        };
        // Best effort: the run's end sweeps what is left.
        let _ = fs::remove_dir_all(gone);
    }
}

/// Brings what was prepared to the storage.
pub fn upload(order: &v1::UploadCheckpoint, storage: &Storage) -> Result<(), Failure> {
    for shard in &order.shards {
        let files: Vec<StoredFile> = shard.files.iter().map(from_wire).collect();
        carril_store::upload(storage, &order.name, Path::new(&shard.spool), &files)?;
    }
    Ok(())
}

pub fn python_filesystem(
    filesystem: v1::PythonFilesystem,
    blob: impl Fn(&str) -> Option<PathBuf>,
) -> Option<PythonFilesystem> {
    let runtime = filesystem.runtime.unwrap_or_default();
    let pickle = blob(&filesystem.pickle)?;
    Some(PythonFilesystem { executable: runtime.executable, path: runtime.path, pickle })
}

fn shard(rank: Rank, spool: PathBuf, files: Vec<StoredFile>) -> v1::Shard {
    v1::Shard { rank: rank.0, spool: spool.display().to_string(), files: files.into_iter().map(to_wire).collect() }
}

fn to_wire(file: StoredFile) -> v1::StoredFile {
    v1::StoredFile { path: file.path, size: file.size, crc32c: file.crc32c }
}

fn from_wire(file: &v1::StoredFile) -> StoredFile {
    StoredFile { path: file.path.clone(), size: file.size, crc32c: file.crc32c }
}

pub fn cut_short(error: tokio::task::JoinError) -> Failure {
    Failure::new(ErrorCode::Internal, format!("the work on a checkpoint did not end: {error}"))
}

/// Whether it is the machine's fault and not the caller's: what a directory holds, and whether it is there, is the caller's.
pub fn is_trouble(error: &StoreError) -> bool {
    use std::io::ErrorKind as Kind;
    match error {
        StoreError::NoSpace { .. } => true,
        StoreError::Io { source, .. } => match source.kind() {
            Kind::NotFound | Kind::PermissionDenied | Kind::NotADirectory | Kind::IsADirectory => false,
            // A link in a circle is told by its number alone.
            Kind::InvalidInput | Kind::InvalidData => false,
            _ => source.raw_os_error() != Some(nix::libc::ELOOP),
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_removals_is_that_of_all_attempts() {
        let group = v1::Group { run_id: "run".into(), ..Default::default() };
        let first = SavePlace::of(&group, Path::new("spool"), None, |_| None);
        first.removals_end().await;
        let removals = [first.begin_removal(), first.begin_removal()];
        let second = SavePlace::of(&group, Path::new("spool"), Some(&first), |_| None);
        drop(first);
        let waiting = tokio::spawn(async move { second.removals_end().await });
        for removal in removals {
            tokio::task::yield_now().await;
            assert!(!waiting.is_finished());
            drop(removal);
        }
        waiting.await.unwrap();
    }
}
