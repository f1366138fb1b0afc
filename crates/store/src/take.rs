//! A rank's files, taken from the directory that it reported into the spool: copied, or moved when they are given away.
//!
//! TAKE-1: the caller may overwrite or delete its directory as soon as the call returns.
//! TAKE-2: a call that fails leaves the caller's files as they were, and nothing in the spool.
//! What is wrong with the directory is the caller's mistake and is told apart from what is wrong with the disk.

use std::fs;
use std::path::Path;

use crate::copy::Copier;
use crate::error::StoreError;
use crate::local::{self, Tree};
use crate::manifest::{MANIFEST, METADATA, SET_ASIDE};
use crate::patience::patiently_while;
use crate::storage::StoredFile;

/// So many files are copied by several threads: the kernel takes longer to make a small file than to fill it.
const MANY: usize = 1_000;
const HANDS: usize = 4;

pub struct Take<'a> {
    pub from: &'a Path,
    /// The spool; what an earlier try left there is deleted.
    pub to: &'a Path,
    /// The run's directory, where it is a local one.
    pub run: Option<&'a Path>,
    /// The files may be moved instead of copied, and are gone from `from` afterwards.
    pub give_away: bool,
    /// They are to be flushed soon, so that writing may begin.
    pub durable: bool,
    pub may_be_empty: bool,
}

/// What was taken; the checksum is known where bytes were copied. A full disk is given some time.
pub fn take(take: &Take) -> Result<Vec<StoredFile>, StoreError> {
    // What was given away and moved is not there a second time.
    patiently_while(|| take.from.exists(), || take_once(take))
}

fn take_once(take: &Take) -> Result<Vec<StoredFile>, StoreError> {
    let wrong = |what| StoreError::CheckpointDirectory { what, path: take.from.to_owned() };
    let from = fs::canonicalize(take.from).map_err(|_| wrong("does not exist"))?;
    if !from.is_dir() {
        return Err(wrong("is not a directory"));
    }
    let run = take.run.map(|run| fs::canonicalize(run).unwrap_or_else(|_| run.to_owned()));
    if run.as_ref().is_some_and(|run| run.starts_with(&from)) {
        return Err(wrong("holds the run's own directory"));
    }
    let mut tree = local::walk(&from).map_err(|error| vanished(error, &from, take.from))?;
    // Of an earlier checkpoint that is reported again; it says nothing of this one.
    let had_manifest = tree.files.iter().any(|file| file.path == MANIFEST);
    tree.files.retain(|file| file.path != MANIFEST && file.path != SET_ASIDE);
    if !take.may_be_empty && tree.files.iter().all(|file| file.path == METADATA) {
        return Err(wrong("is empty"));
    }
    local::delete_all(take.to)?;
    // A checkpoint of the run stays where it is, whatever the caller promises.
    let is_checkpoint = had_manifest && run.is_some_and(|run| from.starts_with(run));
    let give_away = take.give_away && !is_checkpoint;
    if give_away && !tree.has_links {
        local::make_parent(take.to)?;
        if move_tree(&from, take.to)? {
            return Ok(tree.files.into_iter().map(|file| stored(file.path, file.size, None)).collect());
        }
    }
    let taken = copy_tree(&from, take.to, &tree, take.durable).map_err(|error| vanished(error, &from, take.from));
    if taken.is_err() {
        let _ = fs::remove_dir_all(take.to);
    } else if give_away {
        fs::remove_dir_all(&from).map_err(StoreError::io("delete", &from))?;
    }
    taken
}

/// Whether one rename did it; it does not from one file system to another.
fn move_tree(from: &Path, to: &Path) -> Result<bool, StoreError> {
    match local::rename(from, to) {
        Ok(()) => {}
        Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::CrossesDevices => return Ok(false),
        Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::PermissionDenied => {
            return Ok(false);
        }
        Err(error) => return Err(error),
    }
    // A temporary directory is closed to others; a checkpoint is as open as the directory that it is in.
    if let Ok(meta) = fs::metadata(local::parent_of(to)) {
        let _ = fs::set_permissions(to, meta.permissions());
    }
    local::delete(&to.join(MANIFEST))?;
    local::delete(&to.join(SET_ASIDE))?;
    Ok(true)
}

fn copy_tree(from: &Path, to: &Path, tree: &Tree, durable: bool) -> Result<Vec<StoredFile>, StoreError> {
    local::make_directory(to)?;
    for directory in local::directories(tree.files.iter().map(|file| file.path.as_str())) {
        local::make_directory(&to.join(directory))?;
    }
    let copy_all = |files: &[local::Found]| -> Result<Vec<StoredFile>, StoreError> {
        let mut copier = Copier::new(durable);
        let copy = |file: &local::Found| {
            let (size, crc32c) = copier.copy(&from.join(&file.path), &to.join(&file.path), file.mode)?;
            Ok(stored(file.path.clone(), size, Some(crc32c)))
        };
        files.iter().map(copy).collect()
    };
    if tree.files.len() < MANY {
        return copy_all(&tree.files);
    }
    let hands = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(HANDS));
    std::thread::scope(|scope| {
        let parts = tree.files.chunks(tree.files.len().div_ceil(hands));
        let copying: Vec<_> = parts.map(|part| scope.spawn(move || copy_all(part))).collect();
        let mut taken = Vec::with_capacity(tree.files.len());
        for part in copying {
            taken.extend(part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(taken)
    })
}

fn stored(path: String, size: u64, crc32c: Option<u32>) -> StoredFile {
    StoredFile { path, size, crc32c }
}

/// A file that was there a moment ago and is not any more is the caller's doing.
fn vanished(error: StoreError, from: &Path, named: &Path) -> StoreError {
    match &error {
        StoreError::Io { path, .. } if error.is_missing() && path.starts_with(from) => {
            StoreError::CheckpointDirectory { what: "vanished while it was copied", path: named.to_owned() }
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_files_arrive_whole_and_in_order() {
        let root = tempfile::tempdir().unwrap();
        let (from, to) = (root.path().join("from"), root.path().join("to"));
        for number in 0..MANY + 7 {
            let directory = from.join(format!("part-{}", number % 13));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(number.to_string()), number.to_string()).unwrap();
        }
        let taken =
            take(&Take { from: &from, to: &to, run: None, give_away: false, durable: true, may_be_empty: false })
                .unwrap();
        let tree = local::walk(&from).unwrap();
        let names = |files: &[StoredFile]| files.iter().map(|file| file.path.clone()).collect::<Vec<_>>();
        assert_eq!(names(&taken), tree.files.iter().map(|file| file.path.clone()).collect::<Vec<_>>());
        for file in &taken {
            let content = fs::read(to.join(&file.path)).unwrap();
            assert_eq!((file.size, file.crc32c), (content.len() as u64, Some(crc32c::crc32c(&content))));
            assert!(file.path.ends_with(&format!("/{}", String::from_utf8(content).unwrap())), "{}", file.path);
        }
        // One that cannot be copied fails the whole.
        fs::remove_file(from.join(&taken[MANY / 2].path)).unwrap();
        assert!(copy_tree(&from, &to, &tree, false).is_err_and(|error| error.is_missing()));
    }

    #[test]
    fn a_directory_that_vanishes_while_it_is_copied_is_told_from_a_failing_disk() {
        let root = tempfile::tempdir().unwrap();
        let (from, to) = (root.path().join("from"), root.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::write(from.join("a"), "a").unwrap();
        let tree = local::walk(&from).unwrap();
        fs::remove_dir_all(&from).unwrap();
        let error = vanished(copy_tree(&from, &to, &tree, false).unwrap_err(), &from, &from).to_string();
        assert!(error.ends_with("from` vanished while it was copied"), "{error}");
        fs::write(root.path().join("file"), "").unwrap();
        let below_a_file = copy_tree(&from, &root.path().join("file/to"), &tree, false).unwrap_err();
        assert!(matches!(vanished(below_a_file, &from, &from), StoreError::Io { .. }));
    }
}
