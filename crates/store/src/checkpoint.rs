//! How a checkpoint comes to be and goes: taken from a rank, prepared, uploaded or merged, committed, removed.
//!
//! CHECKPOINT-1: a checkpoint exists when its manifest does, and the manifest is written last. On a local path the whole
//!   directory appears by one rename, with the manifest inside.
//! CHECKPOINT-2: before the manifest is written every byte that it names is on the disk or in the storage.
//! CHECKPOINT-3: to remove one, the manifest goes first, so that a half-removed checkpoint is none.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use carril_types::{Rank, Validation};

use crate::copy::start_writing;
use crate::error::StoreError;
use crate::faults::point;
use crate::local;
use crate::manifest::{MANIFEST, METADATA, Manifest, ManifestFile, SET_ASIDE};
use crate::patience::patiently;
use crate::regular;
use crate::storage::{Storage, StoredFile};

/// What a rank wrote, as prepared.
#[derive(Clone, Debug)]
pub struct Shard {
    pub rank: Rank,
    pub spool: PathBuf,
    pub files: Vec<StoredFile>,
}

/// What the manifest says beside the files.
#[derive(Clone, Debug)]
pub struct Header {
    pub iteration: u64,
    pub attempt: u32,
    /// Seconds since 1970.
    pub created: f64,
    pub metrics: serde_json::Value,
    /// Automatic fields that the function has reported itself, so that they are its own.
    pub own: Vec<String>,
    pub validation: Option<Validation>,
    /// Where the data sets stood.
    pub data_position: serde_json::Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// What a user would type to get there.
    pub location: String,
    pub bytes: u64,
}

/// Fills in the checksums that are missing and, with `durable`, brings everything in the spool to the disk.
pub fn prepare(spool: &Path, files: Vec<StoredFile>, durable: bool) -> Result<Vec<StoredFile>, StoreError> {
    patiently(|| prepare_once(spool, files.clone(), durable))
}

fn prepare_once(spool: &Path, mut files: Vec<StoredFile>, durable: bool) -> Result<Vec<StoredFile>, StoreError> {
    for file in files.iter_mut().filter(|file| file.crc32c.is_none()) {
        let path = spool.join(&file.path);
        let mut open =
            point("read", &path).and_then(|()| regular::open(&path)).map_err(StoreError::io("open", &path))?;
        if durable {
            start_writing(&open, 0, 0);
        }
        let (size, crc32c) = local::checksum(&mut open).map_err(StoreError::io("read", &path))?;
        (file.size, file.crc32c) = (size, Some(crc32c));
    }
    if durable {
        local::flush(spool, &files)?;
    }
    Ok(files)
}

/// Looks at files that are where they shall stay. On a local path they are read and flushed; elsewhere their sizes must do.
/// With `may_be_empty` they may be brought there later.
pub fn prepare_in_place(checkpoint: &Storage, may_be_empty: bool) -> Result<Vec<StoredFile>, StoreError> {
    let wrong = |what| StoreError::CheckpointDirectory { what, path: PathBuf::from(checkpoint.location()) };
    if let Some(path) = checkpoint.local_path().filter(|path| !path.is_dir()) {
        if !may_be_empty {
            return Err(wrong("does not exist"));
        }
        local::make_directory(path)?;
    }
    let files: Vec<StoredFile> = checkpoint
        .list()?
        .into_iter()
        .filter(|entry| !is_own(&entry.key))
        .map(|entry| StoredFile { path: entry.key, size: entry.size, crc32c: None })
        .collect();
    if files.is_empty() && !may_be_empty {
        return Err(wrong("is empty"));
    }
    match checkpoint.local_path() {
        Some(path) => prepare(path, files, true),
        None => Ok(files),
    }
}

/// For each shard the files that are its to upload: one that several ranks have in common belongs to the first of them.
/// Two ranks with different files under one path are an error.
pub fn owned(shards: &[Shard]) -> Result<Vec<Vec<StoredFile>>, StoreError> {
    let merged = merge(shards)?;
    let mut owned = vec![Vec::new(); shards.len()];
    for (file, at) in merged {
        owned[at].push(file.clone());
    }
    Ok(owned)
}

/// Sends files of a spool to `<run>/<name>`. They are no checkpoint until it is committed.
pub fn upload(run: &Storage, name: &str, spool: &Path, files: &[StoredFile]) -> Result<(), StoreError> {
    refuse_existing(run, name)?;
    let asked: Vec<(PathBuf, String)> = files.iter().map(|file| (spool.join(&file.path), file.path.clone())).collect();
    let sent = run.join(name).upload_all(&asked)?;
    for (file, sent) in files.iter().zip(sent) {
        if file.size != sent.size || (file.crc32c.is_some() && file.crc32c != sent.crc32c) {
            return Err(StoreError::CheckpointChanged { file: file.path.clone() });
        }
    }
    Ok(())
}

/// Makes a checkpoint of what the shards hold: in their spools on a local path, uploaded elsewhere, or with `in_place` where
/// the checkpoint is to be. The spools are used up.
pub fn commit(
    run: &Storage,
    name: &str,
    header: &Header,
    shards: &[Shard],
    in_place: bool,
) -> Result<Committed, StoreError> {
    refuse_existing(run, name)?;
    if !in_place && run.local_path().is_some_and(|run| run.join(name).exists()) {
        return Err(StoreError::CheckpointExists { name: name.to_owned() });
    }
    let merged = merge(shards)?;
    let mut manifest = Manifest::new(header.iteration, header.attempt, header.created);
    manifest.metrics = header.metrics.clone();
    manifest.own = header.own.clone();
    manifest.validation = header.validation.clone();
    manifest.data_position = header.data_position.clone();
    manifest.ranks = shards.iter().map(|shard| shard.rank.0).collect();
    manifest.files = merged
        .iter()
        .filter(|(file, _)| !is_own(&file.path))
        .map(|(file, at)| ManifestFile {
            path: file.path.clone(),
            size: file.size,
            crc32c: file.crc32c,
            rank: shards[*at].rank.0,
        })
        .collect();
    let checkpoint = run.join(name);
    match run.local_path() {
        Some(path) if !in_place => commit_locally(path, name, &manifest, shards, &merged)?,
        _ => patiently(|| checkpoint.write(MANIFEST, &manifest.to_bytes()))?,
    }
    Ok(Committed { location: checkpoint.location().to_owned(), bytes: manifest.bytes() })
}

/// Merges by renames into the first shard's spool, writes the manifest there, and gives the whole its name.
fn commit_locally(
    run: &Path,
    name: &str,
    manifest: &Manifest,
    shards: &[Shard],
    merged: &[(&StoredFile, usize)],
) -> Result<(), StoreError> {
    let whole = &shards[0].spool;
    for (file, at) in merged.iter().filter(|(_, at)| *at > 0) {
        let to = whole.join(&file.path);
        patiently(|| local::make_parent(&to))?;
        patiently(|| local::rename(&shards[*at].spool.join(&file.path), &to))?;
    }
    if shards.len() > 1 {
        for directory in local::directories(merged.iter().map(|(file, _)| file.path.as_str())).iter().rev() {
            patiently(|| local::flush_directory(&whole.join(directory)))?;
        }
    }
    patiently(|| local::write(&whole.join(MANIFEST), &manifest.to_bytes()))?;
    patiently(|| local::rename(whole, &run.join(name)))?;
    patiently(|| local::flush_directory(run))?;
    for shard in &shards[1..] {
        let _ = local::delete_all(&shard.spool);
    }
    // The directory of this report, if nothing is left in it.
    let _ = fs::remove_dir(local::parent_of(whole));
    Ok(())
}

/// How often another run's newest checkpoint is looked for: it may be deleted for a newer one while it is copied.
const LOOKS: usize = 5;

/// Makes the newest checkpoint of another run, which may be going on, the newest of this one: what was reported with it comes along.
/// Returns its name; `None` where the other has none.
pub fn adopt(run: &Storage, from: &Storage, created: f64) -> Result<Option<String>, StoreError> {
    let mut last = Ok(None);
    for _ in 0..LOOKS {
        let listed = crate::verify::list_checkpoints(from)?.into_iter();
        let whole = listed.filter_map(|listed| Some((listed.name, listed.state.ok()?)));
        let Some((name, manifest)) = whole.max_by_key(|(_, manifest)| manifest.iteration) else { return Ok(None) };
        last = adopt_one(run, &from.join(&name), &manifest, created).map(Some);
        if last.is_ok() {
            break;
        }
    }
    last
}

fn adopt_one(run: &Storage, source: &Storage, manifest: &Manifest, created: f64) -> Result<String, StoreError> {
    let own = crate::verify::list_checkpoints(run)?;
    let newest = own.iter().filter_map(|listed| listed.state.as_ref().ok()).map(|own| own.iteration).max();
    let number = |name: &String| name.strip_prefix("checkpoint_")?.get(..6)?.parse::<u32>().ok();
    let next = run.names()?.iter().filter_map(number).max().map_or(0, |number| number + 1);
    let name = format!("checkpoint_{next:06}");
    let staging = tempfile_beside(run, &name);
    let _ = local::delete_all(&staging);
    let adopted = crate::verify::download(source, &staging, crate::verify::Trust::Compare).and_then(|_| {
        let files = manifest.files.iter();
        let files = files.map(|file| StoredFile { path: file.path.clone(), size: file.size, crc32c: file.crc32c });
        let shard = Shard { rank: Rank::ZERO, spool: staging.clone(), files: files.collect() };
        let header = Header {
            iteration: newest.map_or(1, |newest| newest + 1).max(manifest.iteration),
            attempt: manifest.attempt,
            created,
            metrics: manifest.metrics.clone(),
            own: manifest.own.clone(),
            validation: None,
            data_position: manifest.data_position.clone(),
        };
        if run.local_path().is_none() {
            upload(run, &name, &staging, &shard.files)?;
        }
        commit(run, &name, &header, &[shard], false)
    });
    let _ = local::delete_all(&staging);
    adopted.map(|_| name)
}

/// Where files lie on their way into the run.
fn tempfile_beside(run: &Storage, name: &str) -> PathBuf {
    match run.local_path() {
        Some(path) => path.join(STAGING).join("adopted").join(name),
        None => std::env::temp_dir().join(format!("carril-adopted-{}-{name}", std::process::id())),
    }
}

/// What came of the user's check of a checkpoint is written down with it.
pub fn annotate(
    run: &Storage,
    name: &str,
    metrics: serde_json::Value,
    validation: Validation,
) -> Result<(), StoreError> {
    let checkpoint = run.join(name);
    let location = || checkpoint.location().to_owned();
    let damaged = |why: String| StoreError::CheckpointDamaged { location: location(), why };
    let bytes = checkpoint.read(MANIFEST)?.ok_or_else(|| damaged(format!("`{MANIFEST}` is missing")))?;
    let mut manifest = Manifest::from_bytes(&bytes).map_err(|damage| damaged(damage.to_string()))?;
    manifest.metrics = metrics;
    manifest.validation = Some(validation);
    checkpoint.write(MANIFEST, &manifest.to_bytes())
}

/// Deletes a checkpoint, or what an unfinished one left.
pub fn remove(run: &Storage, name: &str) -> Result<(), StoreError> {
    let checkpoint = run.join(name);
    let Some(path) = run.local_path() else {
        checkpoint.delete(MANIFEST)?;
        return checkpoint.delete_all();
    };
    // One rename takes it away whole; what is left of it by a crash is swept with the staging directory.
    let from = path.join(name);
    if !from.exists() {
        return Ok(());
    }
    let staging = path.join(STAGING);
    if !staging.is_dir() {
        local::make_directory(&staging)?;
    }
    let gone = staging.join(format!("removed_{}", name.replace('/', "_")));
    local::delete_all(&gone)?;
    match local::rename(&from, &gone) {
        // Somebody else was faster.
        Err(_) if !from.exists() => Ok(()),
        renamed => renamed.and_then(|()| local::delete_all(&gone)),
    }
}

/// Where spools of a run on a local path lie, and what is on its way out.
pub const STAGING: &str = ".staging";

/// Whether a path is one of ours at the top of a checkpoint: not content that the manifest names.
pub(crate) fn is_own(path: &str) -> bool {
    matches!(path, MANIFEST | METADATA | SET_ASIDE)
}

fn refuse_existing(run: &Storage, name: &str) -> Result<(), StoreError> {
    match run.join(name).read(MANIFEST)? {
        Some(_) => Err(StoreError::CheckpointExists { name: name.to_owned() }),
        None => Ok(()),
    }
}

/// Two ranks with different files under one path: the first rank's stays, the other's is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub first: Rank,
    pub second: Rank,
    pub file: String,
}

/// Leaves out of later shards what an earlier one has under the same path with other content.
pub fn keep_first(shards: &mut [Shard]) -> Vec<Conflict> {
    let mut first: HashMap<String, (Rank, StoredFile)> = HashMap::new();
    let mut conflicts = Vec::new();
    for shard in shards {
        let rank = shard.rank;
        shard.files.retain(|file| {
            let (owner, kept) = first.entry(file.path.clone()).or_insert_with(|| (rank, file.clone()));
            let fits = kept == file || is_own(&file.path);
            if !fits {
                conflicts.push(Conflict { first: *owner, second: rank, file: file.path.clone() });
            }
            fits
        });
    }
    conflicts
}

/// All files, sorted, each with the shard that it is taken from: the first that has it.
fn merge(shards: &[Shard]) -> Result<Vec<(&StoredFile, usize)>, StoreError> {
    let mut all: Vec<(&StoredFile, usize)> =
        shards.iter().enumerate().flat_map(|(at, shard)| shard.files.iter().map(move |file| (file, at))).collect();
    all.sort_by(|(left, a), (right, b)| left.path.cmp(&right.path).then(a.cmp(b)));
    for pair in all.windows(2) {
        let [(one, first), (two, second)] = pair else { unreachable!("windows of two") };
        let same = one.size == two.size && one.crc32c == two.crc32c;
        if one.path == two.path && !same && !is_own(&one.path) {
            let (first, second) = (shards[*first].rank.0, shards[*second].rank.0);
            return Err(StoreError::CheckpointConflict { first, second, file: one.path.clone() });
        }
    }
    all.dedup_by(|(later, _), (kept, _)| later.path == kept.path);
    // A file of one rank under the name of another's directory fits nowhere either.
    let owner_of: HashMap<&str, usize> = all.iter().map(|(file, at)| (file.path.as_str(), *at)).collect();
    for (file, at) in &all {
        let above = file.path.match_indices('/').find_map(|(slash, _)| owner_of.get(&file.path[..slash]));
        if let Some(first) = above {
            let (first, second) = (shards[*first].rank.0, shards[*at].rank.0);
            return Err(StoreError::CheckpointConflict { first, second, file: file.path.clone() });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
