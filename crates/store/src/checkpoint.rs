//! Checkpoints on a local path: staged by rank, merged into one directory, visible only when whole.
//!
//! CHECKPOINT-1: a directory `checkpoint_…` is complete: it appears by one rename, with its manifest inside.
//! CHECKPOINT-2: the caller's files are copied (by the kernel, shared where the file system can), never linked: the caller
//!   may overwrite them as soon as the call returns.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use carril_types::Rank;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;

const MANIFEST: &str = ".manifest.json";

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    version: u32,
    iteration: u64,
    ranks: Vec<u32>,
    files: Vec<ManifestFile>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ManifestFile {
    path: String,
    size: u64,
}

pub fn staging_directory(run: &Path, iteration: u64, rank: Rank) -> PathBuf {
    run.join(".staging").join(iteration.to_string()).join(format!("rank_{rank}"))
}

/// Brings one rank's files into the run's directory. With `give_away` they are moved, which costs nothing.
pub fn stage(run: &Path, iteration: u64, rank: Rank, from: &Path, give_away: bool) -> Result<(), StoreError> {
    let wrong = |what| Err(StoreError::CheckpointDirectory { what, path: from.to_owned() });
    match fs::metadata(from) {
        Err(_) => return wrong("does not exist"),
        Ok(meta) if !meta.is_dir() => return wrong("is not a directory"),
        Ok(_) => {}
    }
    if run.starts_with(from) {
        return wrong("holds the run's own directory");
    }
    if files_below(from)?.is_empty() {
        return wrong("is empty");
    }
    let to = staging_directory(run, iteration, rank);
    let parent = to.parent().expect("a staging directory has a parent");
    fs::create_dir_all(parent).map_err(StoreError::io("make", parent))?;
    // What a worker that died half-way left under this name is of no use.
    let _ = fs::remove_dir_all(&to);
    if give_away && fs::rename(from, &to).is_ok() {
        return Ok(());
    }
    copy_tree(from, &to)?;
    if give_away {
        fs::remove_dir_all(from).map_err(StoreError::io("remove", from))?;
    }
    Ok(())
}

/// Merges what the ranks have staged into `<run>/<name>`.
pub fn commit(run: &Path, iteration: u64, ranks: &[Rank], name: &str) -> Result<PathBuf, StoreError> {
    let target = run.join(name);
    if target.exists() {
        return Err(StoreError::CheckpointExists { name: name.to_owned() });
    }
    let first = ranks[0];
    let merged = staging_directory(run, iteration, first);
    let mut owner_of: Vec<(PathBuf, Rank)> = files_below(&merged)?.into_iter().map(|file| (file, first)).collect();
    owner_of.sort();
    for rank in &ranks[1..] {
        let staged = staging_directory(run, iteration, *rank);
        for file in files_below(&staged)? {
            let (from, to) = (staged.join(&file), merged.join(&file));
            match owner_of.binary_search_by(|(known, _)| known.cmp(&file)) {
                Ok(_) if same_content(&from, &to)? => {}
                Ok(at) => {
                    let (first, second) = (owner_of[at].1.0, rank.0);
                    return Err(StoreError::CheckpointConflict { first, second, file: file.display().to_string() });
                }
                Err(at) => {
                    if let Some(parent) = to.parent() {
                        fs::create_dir_all(parent).map_err(StoreError::io("make", parent))?;
                    }
                    fs::rename(&from, &to).map_err(StoreError::io("move", &from))?;
                    owner_of.insert(at, (file, *rank));
                }
            }
        }
    }
    write_manifest(&merged, iteration, ranks, owner_of.iter().map(|(file, _)| file.as_path()))?;
    fs::rename(&merged, &target).map_err(StoreError::io("make", &target))?;
    let staging = run.join(".staging").join(iteration.to_string());
    let _ = fs::remove_dir_all(staging);
    Ok(target)
}

/// The newest checkpoint that has a manifest, and how many there are: names count upwards.
pub fn latest(run: &Path) -> (Option<PathBuf>, u32) {
    let Ok(entries) = fs::read_dir(run) else { return (None, 0) };
    let numbered = |path: PathBuf| {
        let number: u32 = path.file_name()?.to_str()?.strip_prefix("checkpoint_")?.parse().ok()?;
        path.join(MANIFEST).exists().then_some((number, path))
    };
    let newest = entries.flatten().filter_map(|entry| numbered(entry.path())).max();
    match newest {
        Some((number, path)) => (Some(path), number + 1),
        None => (None, 0),
    }
}

fn write_manifest<'a>(
    directory: &Path,
    iteration: u64,
    ranks: &[Rank],
    files: impl Iterator<Item = &'a Path>,
) -> Result<(), StoreError> {
    let files = files
        .map(|file| {
            let path = directory.join(file);
            let size = fs::metadata(&path).map_err(StoreError::io("look at", &path))?.len();
            Ok(ManifestFile { path: file.to_string_lossy().into_owned(), size })
        })
        .collect::<Result<Vec<_>, StoreError>>()?;
    let manifest = Manifest { version: 1, iteration, ranks: ranks.iter().map(|rank| rank.0).collect(), files };
    let text = serde_json::to_string_pretty(&manifest).expect("a manifest of plain fields is always JSON");
    let path = directory.join(MANIFEST);
    fs::write(&path, text).map_err(StoreError::io("write", &path))
}

/// Relative paths of all files below, without a manifest of an earlier commit.
fn files_below(root: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut files = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(relative) = open.pop() {
        let directory = root.join(&relative);
        let entries = fs::read_dir(&directory).map_err(StoreError::io("read", &directory))?;
        for entry in entries {
            let entry = entry.map_err(StoreError::io("read", &directory))?;
            let path = relative.join(entry.file_name());
            let meta = fs::metadata(entry.path()).map_err(StoreError::io("look at", &entry.path()))?;
            if meta.is_dir() {
                open.push(path);
            } else if path != Path::new(MANIFEST) {
                files.push(path);
            }
        }
    }
    Ok(files)
}

fn copy_tree(from: &Path, to: &Path) -> Result<(), StoreError> {
    fs::create_dir_all(to).map_err(StoreError::io("make", to))?;
    for file in files_below(from)? {
        let (source, target) = (from.join(&file), to.join(&file));
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(StoreError::io("make", parent))?;
        }
        fs::copy(&source, &target).map_err(StoreError::io("copy", &source))?;
    }
    Ok(())
}

fn same_content(left: &Path, right: &Path) -> Result<bool, StoreError> {
    let size = |path: &Path| fs::metadata(path).map(|meta| meta.len()).map_err(StoreError::io("look at", path));
    if size(left)? != size(right)? {
        return Ok(false);
    }
    let open = |path: &Path| File::open(path).map_err(StoreError::io("open", path));
    let (mut one, mut two) = (open(left)?, open(right)?);
    let (mut a, mut b) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let read = one.read(&mut a).map_err(StoreError::io("read", left))?;
        if read == 0 {
            return Ok(true);
        }
        two.read_exact(&mut b[..read]).map_err(StoreError::io("read", right))?;
        if a[..read] != b[..read] {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn ranks_merge_into_one_directory_and_copies_are_copies() {
        let root = tempfile::tempdir().unwrap();
        let (run, mine) = (root.path().join("run"), root.path().join("mine"));
        for (rank, file) in [(0, "model.bin"), (1, "optimizer/shard_1.bin")] {
            write(&mine.join(file), &format!("of rank {rank}"));
            write(&mine.join("shared.txt"), "the same");
            stage(&run, 1, Rank(rank), &mine, false).unwrap();
            fs::remove_dir_all(&mine).unwrap();
        }
        let path = commit(&run, 1, &[Rank(0), Rank(1)], "checkpoint_000000").unwrap();
        assert_eq!(fs::read_to_string(path.join("model.bin")).unwrap(), "of rank 0");
        assert_eq!(fs::read_to_string(path.join("optimizer/shard_1.bin")).unwrap(), "of rank 1");
        assert_eq!(latest(&run), (Some(path), 1));
        assert!(!run.join(".staging/1").exists());
    }

    #[test]
    fn two_ranks_that_disagree_on_a_file_are_named() {
        let root = tempfile::tempdir().unwrap();
        let (run, mine) = (root.path().join("run"), root.path().join("mine"));
        for rank in [2, 5] {
            write(&mine.join("model.bin"), &format!("of rank {rank}"));
            stage(&run, 3, Rank(rank), &mine, false).unwrap();
        }
        let error = commit(&run, 3, &[Rank(2), Rank(5)], "checkpoint_000000").unwrap_err().to_string();
        assert!(error.contains("ranks 2 and 5") && error.contains("model.bin"), "{error}");
        assert_eq!(latest(&run), (None, 0), "CHECKPOINT-1: nothing half-made is seen");
    }

    #[test]
    fn directories_that_are_no_checkpoint_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let run = root.path().join("run");
        fs::create_dir_all(&run).unwrap();
        let refused = |from: &Path| stage(&run, 1, Rank(0), from, false).unwrap_err().to_string();
        assert!(refused(&root.path().join("none")).ends_with("does not exist"));
        let empty = root.path().join("empty");
        fs::create_dir(&empty).unwrap();
        assert!(refused(&empty).ends_with("is empty"));
        assert!(refused(root.path()).ends_with("holds the run's own directory"));
    }
}
