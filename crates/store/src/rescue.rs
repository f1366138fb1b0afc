//! What was reported and could not be written to its storage: kept where there is room, and taken in by the next start of the run.
//!
//! RESCUE-1: only what names this run, or one below this experiment, is taken in, and only from a directory that is ours alone.
//! RESCUE-2: a file of the run gets what the rescued one has beyond it. Where reports have come since, both stay as they are.
//! RESCUE-3: what was taken in is deleted. What was not stays, and is named.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use carril_types::{count, verb};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::last_report::RESULTS;
use crate::local;
use crate::regular;
use crate::storage::Storage;

const PREFIX: &str = "carril-rescued-";
const NOTE: &str = "rescued.json";
/// Of the run's name: the name of a directory may have 255 bytes.
const LONGEST: usize = 60;

/// `rescued.json`.
#[derive(Serialize, Deserialize)]
struct Note {
    format: u32,
    /// Where the files belong.
    location: String,
}

fn places() -> [PathBuf; 2] {
    [std::env::temp_dir(), PathBuf::from("/dev/shm")]
}

/// Makes a directory for the files of the run at `location`, and has it filled, in the first place that takes them.
pub fn rescue(
    location: &str,
    run_id: &str,
    fill: impl Fn(&Path) -> Result<(), StoreError>,
) -> Result<PathBuf, StoreError> {
    let name = location.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let short: String = name.chars().take(LONGEST).collect();
    let note = Note { format: 1, location: location.to_owned() };
    let note = serde_json::to_string(&note).expect("a record of plain fields is always JSON");
    let mut first = None;
    for place in places() {
        let path = place.join(format!("{PREFIX}{short}-{run_id}"));
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        let filled = made.map_err(StoreError::io("make", &path)).and_then(|()| fill(&path)).and_then(|()| {
            let note_path = path.join(NOTE);
            regular::replace(&note_path, &note).map_err(StoreError::io("write", &note_path))
        });
        match filled {
            Ok(()) => return Ok(path),
            Err(error) => {
                let _ = fs::remove_dir_all(&path);
                first.get_or_insert(error);
            }
        }
    }
    Err(first.expect("there is a place"))
}

/// Takes in what was rescued of the run at `location`, or of those below it, whose files are in `into`. What became of it, in a
/// sentence for each.
pub fn take_rescued(location: &str, into: &Storage) -> Vec<String> {
    let mut told = Vec::new();
    for place in places() {
        let Ok(entries) = fs::read_dir(&place) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            if let Some(below) = below(&path, location) {
                let run = if below.is_empty() { into.clone() } else { into.join(&below) };
                told.extend(sentence(&path, take_in(&run, &path)));
            }
        }
    }
    told
}

/// RESCUE-1: which run below `location` the directory is of.
fn below(path: &Path, location: &str) -> Option<String> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)?;
    let meta = fs::symlink_metadata(path).ok()?;
    let is_ours =
        meta.is_dir() && meta.uid() == nix::unistd::geteuid().as_raw() && meta.permissions().mode() & 0o077 == 0;
    let note: Note = serde_json::from_slice(&regular::read(&path.join(NOTE)).ok().filter(|_| is_ours)?).ok()?;
    let rest = note.location.strip_prefix(location.trim_end_matches('/'))?;
    let is_below = rest.is_empty() || rest.starts_with('/');
    is_below.then(|| rest.trim_matches('/').to_owned())
}

/// Nothing where nothing was missing.
fn sentence(path: &Path, taken: Result<Option<usize>, StoreError>) -> Option<String> {
    let place = path.display();
    if matches!(taken, Ok(Some(_))) {
        let _ = fs::remove_dir_all(path);
    }
    Some(match taken {
        Ok(Some(0)) => return None,
        Ok(Some(reports)) => {
            let (reports, were) = (count(reports as u64, "report"), verb(reports as u64, "was", "were"));
            format!("{reports} that could not be stored before {were} taken in from `{place}`")
        }
        Ok(None) => {
            format!("`{place}` has reports that could not be stored before; others came since, and it is left as it is")
        }
        Err(error) => format!("`{place}` has reports that could not be stored before, and cannot be now: {error}"),
    })
}

/// How many reports the run has got by it; RESCUE-2: `None` where it has others now.
fn take_in(run: &Storage, rescued: &Path) -> Result<Option<usize>, StoreError> {
    let read = |key: &str| regular::read(&rescued.join(key)).map_err(StoreError::io("read", &rescued.join(key)));
    let results = read(RESULTS)?;
    let there = run.read(RESULTS)?.unwrap_or_default();
    let Some(missing) = results.strip_prefix(there.as_slice()) else { return Ok(None) };
    let reports = missing.iter().filter(|byte| **byte == b'\n').count();
    // The reports last: a start that is cut short here takes in all of it again.
    let files = local::walk(rescued)?.files.into_iter().map(|file| file.path);
    for key in files.filter(|key| key != NOTE && key != RESULTS) {
        run.write(&key, &read(&key)?)?;
    }
    run.write(RESULTS, &results)?;
    Ok(Some(reports))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(directory: &Path, text: &str) -> Result<(), StoreError> {
        fs::create_dir_all(directory.join("ranks")).unwrap();
        for key in [RESULTS, "ranks/rank_1.json"] {
            fs::write(directory.join(key), text).unwrap();
        }
        Ok(())
    }

    #[test]
    fn rescue_1_to_3_what_was_rescued_is_taken_in_once_and_nothing_else_is_touched() {
        let root = tempfile::tempdir().unwrap();
        let experiment = root.path().join("search");
        let (run, other) = (experiment.join("trial"), root.path().join("search-2/trial"));
        for run in [&run, &other] {
            filled(run, "one\n").unwrap();
        }
        let location = |path: &Path| path.display().to_string();
        let rescued = rescue(&location(&run), "0123-rescue-test", |path| filled(path, "one\ntwo\nthree\n")).unwrap();
        assert!(
            take_rescued(&location(&root.path().join("sea")), &Storage::local(&root.path().join("sea"))).is_empty()
        );
        assert!(take_rescued(&location(&other), &Storage::local(&other)).is_empty());
        fs::set_permissions(&rescued, fs::Permissions::from_mode(0o755)).unwrap();
        let take = || take_rescued(&location(&experiment), &Storage::local(&experiment));
        assert!(take().is_empty(), "RESCUE-1: others might have written to it");
        fs::set_permissions(&rescued, fs::Permissions::from_mode(0o700)).unwrap();
        let told = take();
        assert_eq!(
            told,
            [format!("2 reports that could not be stored before were taken in from `{}`", rescued.display())]
        );
        for key in [RESULTS, "ranks/rank_1.json"] {
            assert_eq!(fs::read_to_string(run.join(key)).unwrap(), "one\ntwo\nthree\n");
            assert_eq!(fs::read_to_string(other.join(key)).unwrap(), "one\n");
        }
        assert!(!rescued.exists() && take().is_empty(), "RESCUE-3");
        let rescued = rescue(&location(&run), "4567-rescue-test", |path| filled(path, "one\nnot two\n")).unwrap();
        assert!(take()[0].contains("others came since"), "RESCUE-2");
        assert_eq!(fs::read_to_string(run.join(RESULTS)).unwrap(), "one\ntwo\nthree\n");
        fs::remove_dir_all(rescued).unwrap();
    }
}
