//! Which checkpoints a run has, and which of them can be believed.
//!
//! VERIFY-1: `latest` is the checkpoint with the highest iteration that verifies in full: manifest, sizes, contents.
//! VERIFY-2: one that does not is set aside under another name, with the reason, and is never loaded nor deleted.
//! VERIFY-3: a storage that cannot be reached is an error; it is never taken for damage.
//! VERIFY-4: a checkpoint that is listed as whole has every file of its manifest, at its size; contents are compared when they are read.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use nix::libc;

use crate::check::{Compared, Stamp};
use crate::checkpoint::{STAGING, is_own};
use crate::error::StoreError;
use crate::local;
use crate::manifest::{Damage, MANIFEST, Manifest, ManifestFile, SET_ASIDE};
use crate::storage::{Backend, Content, Entry, Storage};

const DAMAGED: &str = ".damaged";

#[derive(Clone, Debug)]
pub struct Listed {
    pub name: String,
    pub state: Result<Manifest, Damage>,
}

/// What a run that goes on has to go on from.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The latest last. The others are known by their manifests alone.
    pub kept: Vec<(String, Manifest)>,
    /// Names, and what was wrong with each.
    pub set_aside: Vec<(String, String)>,
}

/// By manifests and sizes, in order of iteration; those whose manifest is damaged come first.
pub fn list_checkpoints(run: &Storage) -> Result<Vec<Listed>, StoreError> {
    look(run, Trust::Compare).map(|(listed, _)| listed)
}

/// By their manifests alone.
pub fn list_unverified(run: &Storage) -> Result<Vec<Listed>, StoreError> {
    look(run, Trust::Blindly).map(|(listed, _)| listed)
}

/// The same for manifests that were read elsewhere, each with its checkpoint's name and the files that are there.
pub fn list_manifests(manifests: Vec<(String, Vec<u8>, Vec<Entry>)>, trust: Trust) -> Result<Vec<Listed>, StoreError> {
    let judged = manifests.into_iter().map(|(name, bytes, mut files)| {
        files.sort();
        let (order, state) = judge(&bytes, trust, |file| Ok(size_among(&files, file)))?;
        Ok((order, Listed { name, state }))
    });
    judged.collect::<Result<_, StoreError>>().map(in_order)
}

/// The place in the order of the run, and what manifest and sizes tell.
type Judged = (Option<(u64, u32)>, Result<Manifest, Damage>);

fn judge(
    bytes: &[u8],
    trust: Trust,
    size: impl Fn(&str) -> Result<Option<u64>, StoreError>,
) -> Result<Judged, StoreError> {
    let manifest = match Manifest::from_bytes(bytes) {
        Ok(manifest) => manifest,
        Err(damage) => return Ok((None, Err(damage))),
    };
    let order = Some((manifest.iteration, manifest.attempt));
    let damage = if trust == Trust::Compare { damage_by_size(&manifest, size)? } else { None };
    Ok((order, damage.map_or(Ok(manifest), Err)))
}

fn in_order(mut judged: Vec<(Option<(u64, u32)>, Listed)>) -> Vec<Listed> {
    judged.sort_by_key(|(order, _)| *order);
    judged.into_iter().map(|(_, listed)| listed).collect()
}

/// Every file of the manifest is there, and as long as it was.
fn damage_by_size(
    manifest: &Manifest,
    size: impl Fn(&str) -> Result<Option<u64>, StoreError>,
) -> Result<Option<Damage>, StoreError> {
    for file in &manifest.files {
        let damage = match size(&file.path)? {
            None => Some(Damage::Missing { file: file.path.clone() }),
            Some(found) => wrong_size(file, found),
        };
        if damage.is_some() {
            return Ok(damage);
        }
    }
    Ok(None)
}

fn size_among(there: &[Entry], key: &str) -> Option<u64> {
    let found = there.binary_search_by(|entry| entry.key.as_str().cmp(key));
    found.ok().map(|at| there[at].size)
}

/// The checkpoints, and the names of the directories that are none.
fn look(run: &Storage, trust: Trust) -> Result<(Vec<Listed>, Vec<String>), StoreError> {
    let names: Vec<String> =
        run.directories()?.into_iter().filter(|name| !name.starts_with('.') && !name.ends_with(DAMAGED)).collect();
    let keys: Vec<String> = names.iter().map(|name| format!("{name}/{MANIFEST}")).collect();
    let manifests = read_manifests(run, &keys)?;
    // Elsewhere one listing of the run costs less than a question for each file.
    let listing = match run.local_path() {
        None if trust == Trust::Compare && manifests.iter().any(|read| matches!(read, Ok(Some(_)))) => run.list()?,
        _ => Vec::new(),
    };
    let (mut listed, mut others) = (Vec::new(), Vec::new());
    for (name, read) in names.into_iter().zip(manifests) {
        let bytes = match read {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                others.push(name);
                continue;
            }
            Err(damage) => {
                listed.push((None, Listed { name, state: Err(damage) }));
                continue;
            }
        };
        let (order, state) = judge(&bytes, trust, |file| match run.local_path() {
            Some(root) => local::size(&root.join(&name).join(file)),
            None => Ok(size_among(&listing, &format!("{name}/{file}"))),
        })?;
        // The run may go on and delete one while it is looked at: its manifest goes first.
        let vanished = matches!(state, Err(Damage::Missing { .. })) && run.join(&name).read(MANIFEST)?.is_none();
        if !vanished {
            listed.push((order, Listed { name, state }));
        }
    }
    Ok((in_order(listed), others))
}

/// `None` where there is none.
type ReadManifest = Result<Option<Vec<u8>>, Damage>;

/// One by one on a disk, where a bad sector under one of them must not hide the others.
fn read_manifests(run: &Storage, keys: &[String]) -> Result<Vec<ReadManifest>, StoreError> {
    if run.local_path().is_none() {
        return Ok(run.read_all(keys)?.into_iter().map(Ok).collect());
    }
    let read = |key: &String| match run.read(key) {
        Err(error) => unreadable(MANIFEST, error).map(Err),
        read => read.map(Ok),
    };
    keys.iter().map(read).collect()
}

/// One checkpoint, in full: every byte is read.
pub fn verify(checkpoint: &Storage) -> Result<Result<Manifest, Damage>, StoreError> {
    let bytes = match checkpoint.read(MANIFEST) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(Err(Damage::Missing { file: MANIFEST.to_owned() })),
        Err(error) => return unreadable(MANIFEST, error).map(Err),
    };
    match Manifest::from_bytes(&bytes) {
        Ok(manifest) => Ok(verify_files(checkpoint, &manifest, None)?.map_or(Ok(manifest), Err)),
        Err(damage) => Ok(Err(damage)),
    }
}

/// `compared` knows which files need not be read again.
pub(crate) fn verify_files(
    checkpoint: &Storage,
    manifest: &Manifest,
    mut compared: Option<&mut Compared>,
) -> Result<Option<Damage>, StoreError> {
    // Sizes first: they cost little, and tell of most damage.
    let by_size = match checkpoint.local_path() {
        Some(root) => damage_by_size(manifest, |file| local::size(&root.join(file)))?,
        None => {
            let there = checkpoint.list()?;
            damage_by_size(manifest, |file| Ok(size_among(&there, file)))?
        }
    };
    if by_size.is_some() {
        return Ok(by_size);
    }
    let known: Vec<&ManifestFile> = manifest.files.iter().filter(|file| file.crc32c.is_some()).collect();
    let contents = match checkpoint.backend() {
        // File by file, so that the first damage ends it and a bad sector is told from a lost disk.
        Backend::Local(root) => {
            for file in known {
                let path = root.join(&file.path);
                let stamp = compared.as_ref().and_then(|_| Stamp::of(&path, file));
                if stamp.is_some_and(|stamp| compared.as_ref().is_some_and(|compared| compared.has(&stamp))) {
                    continue;
                }
                let content = match local::examine(&path) {
                    Err(error) => return unreadable(&file.path, error).map(Some),
                    Ok(content) => content,
                };
                if let Some(damage) = wrong_content(file, content) {
                    return Ok(Some(damage));
                }
                if let (Some(compared), Some(stamp)) = (compared.as_deref_mut(), stamp) {
                    compared.add(stamp);
                }
            }
            return Ok(None);
        }
        _ => checkpoint.examine(&known.iter().map(|file| entry_of(file)).collect::<Vec<_>>())?,
    };
    Ok(known.into_iter().zip(contents).find_map(|(file, content)| wrong_content(file, content)))
}

/// Finds what to go on from, newest first; sets damaged ones aside; sweeps what interrupted saves left behind.
/// Only for the one that owns the run.
pub fn find_latest(run: &Storage) -> Result<Found, StoreError> {
    let mut found = Found::default();
    let (listed, others) = look(run, Trust::Compare)?;
    // Best effort: what stays is no checkpoint, and the next attempt sweeps again.
    let _ = sweep(run, others);
    for Listed { name, state } in listed.into_iter().rev() {
        let damage = match state {
            Ok(manifest) => {
                let is_latest = found.kept.is_empty();
                match if is_latest { verify_files(&run.join(&name), &manifest, None)? } else { None } {
                    None => {
                        found.kept.push((name, manifest));
                        continue;
                    }
                    Some(damage) => damage,
                }
            }
            Err(Damage::Newer { version }) => {
                let location = run.join(&name).location().to_owned();
                return Err(StoreError::CheckpointNewer { location, version });
            }
            Err(damage) => damage,
        };
        set_aside(run, &name)?;
        found.set_aside.push((name, damage.to_string()));
    }
    found.kept.reverse();
    Ok(found)
}

fn set_aside(run: &Storage, name: &str) -> Result<(), StoreError> {
    if let Some(path) = run.local_path() {
        let mut target = path.join(format!("{name}{DAMAGED}"));
        for number in 2.. {
            if !target.exists() {
                break;
            }
            target = path.join(format!("{name}.{number}{DAMAGED}"));
        }
        local::rename(&path.join(name), &target)?;
        return local::flush_directory(path);
    }
    let checkpoint = run.join(name);
    let manifest = checkpoint.read(MANIFEST)?.unwrap_or_default();
    checkpoint.write(SET_ASIDE, &manifest)?;
    checkpoint.delete(MANIFEST)
}

/// Deletes spools and, among directories without a manifest, those that were to become checkpoints.
fn sweep(run: &Storage, without: Vec<String>) -> Result<(), StoreError> {
    run.join(STAGING).delete_all()?;
    let is_local = run.local_path().is_some();
    // On a local path nothing of ours has the name of a checkpoint before it is one; but a name that the user gave may be
    // a directory of the user's.
    let ours = |name: &String| match name.strip_prefix("checkpoint_") {
        Some(number) if is_local => number.len() >= 6 && number.bytes().all(|byte| byte.is_ascii_digit()),
        Some(_) => true,
        None => false,
    };
    let names: Vec<String> = without.into_iter().filter(ours).collect();
    let keys: Vec<String> = names.iter().map(|name| format!("{name}/{SET_ASIDE}")).collect();
    let set_aside = run.read_all(&keys)?;
    for (name, _) in names.iter().zip(set_aside).filter(|(_, set_aside)| set_aside.is_none()) {
        run.join(name).delete_all()?;
    }
    Ok(())
}

/// Whether what is read of a checkpoint is compared with its manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    Compare,
    /// Whatever is there is taken for what it should be.
    Blindly,
}

/// Brings all files of a checkpoint to a local directory, compared with the manifest while they are copied. A directory that never
/// was a checkpoint of ours has none, and is brought as it is.
pub fn download(checkpoint: &Storage, to: &Path, trust: Trust) -> Result<Option<Manifest>, StoreError> {
    let damaged = |damage: Damage| StoreError::damaged(checkpoint.location(), damage);
    let manifest = match trust {
        Trust::Compare => checkpoint.read(MANIFEST)?,
        Trust::Blindly => None,
    };
    let manifest = manifest.map(|bytes| Manifest::from_bytes(&bytes).map_err(damaged)).transpose()?;
    let there = checkpoint.list()?;
    if there.is_empty() && manifest.is_none() {
        let path = checkpoint.location().into();
        return Err(StoreError::CheckpointDirectory { what: "does not exist or is empty", path });
    }
    let mut wanted: Vec<Entry> = Vec::new();
    let mut extra: Vec<Entry> =
        there.iter().filter(|entry| !matches!(entry.key.as_str(), MANIFEST | SET_ASIDE)).cloned().collect();
    if let Some(manifest) = &manifest {
        if let Some(damage) = damage_by_size(manifest, |file| Ok(size_among(&there, file)))? {
            return Err(damaged(damage));
        }
        wanted.extend(manifest.files.iter().map(entry_of));
        // What was put beside the files later comes along. Elsewhere it may also be what an upload that was given up has left.
        let is_local = checkpoint.local_path().is_some();
        let named: HashSet<&str> = manifest.files.iter().map(|file| file.path.as_str()).collect();
        extra.retain(|entry| !named.contains(entry.key.as_str()) && (is_local || is_own(&entry.key)));
    }
    wanted.extend(extra);
    if let Some(root) = checkpoint.local_path() {
        // Also those that hold nothing.
        local::walk(root)?.directories.iter().try_for_each(|directory| local::make_directory(&to.join(directory)))?;
    }
    let pairs: Vec<(Entry, PathBuf)> = wanted.into_iter().map(|entry| (entry.clone(), to.join(&entry.key))).collect();
    let contents = checkpoint.fetch(&pairs)?;
    for (file, content) in manifest.iter().flat_map(|manifest| &manifest.files).zip(&contents) {
        if let Some(damage) = wrong_content(file, *content) {
            return Err(damaged(damage));
        }
    }
    Ok(manifest)
}

fn entry_of(file: &ManifestFile) -> Entry {
    Entry { key: file.path.clone(), size: file.size }
}

fn wrong_size(file: &ManifestFile, found: u64) -> Option<Damage> {
    (file.size != found).then(|| Damage::Size { file: file.path.clone(), expected: file.size, found })
}

pub(crate) fn wrong_content(file: &ManifestFile, content: Content) -> Option<Damage> {
    let Content::Read { size, crc32c } = content else {
        return Some(Damage::Missing { file: file.path.clone() });
    };
    let differs = |expected: u32| {
        (expected != crc32c).then(|| Damage::Content { file: file.path.clone(), expected, found: crc32c })
    };
    wrong_size(file, size).or_else(|| file.crc32c.and_then(differs))
}

/// The disk answered that it lost what it held, which is not the same as not answering; or there is no file under the name.
fn unreadable(file: &str, error: StoreError) -> Result<Damage, StoreError> {
    let lost = [libc::EIO, libc::EUCLEAN, libc::EBADMSG, libc::ENODATA, libc::ELOOP];
    let why = match &error {
        StoreError::Io { source, .. } if source.raw_os_error().is_some_and(|code| lost.contains(&code)) => {
            source.to_string()
        }
        StoreError::NotAFile { kind, .. } => format!("it is {kind}, not a file"),
        _ => return Err(error),
    };
    Ok(Damage::Unreadable { file: file.to_owned(), why })
}

#[cfg(test)]
mod tests;
