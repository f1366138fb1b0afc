//! Which checkpoints a run has, and which of them can be believed.
//!
//! VERIFY-1: `latest` is the checkpoint with the highest iteration that verifies in full: manifest, sizes, contents.
//! VERIFY-2: one that does not is set aside under another name, with the reason, and is never loaded nor deleted.
//! VERIFY-3: a storage that cannot be reached is an error; it is never taken for damage.

use std::path::Path;

use nix::libc;

use crate::checkpoint::STAGING;
use crate::error::StoreError;
use crate::local;
use crate::manifest::{Damage, MANIFEST, METADATA, Manifest, ManifestFile, SET_ASIDE};
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

/// By their manifests alone, in order of iteration; those whose manifest is damaged come first.
pub fn list_checkpoints(run: &Storage) -> Result<Vec<Listed>, StoreError> {
    look(run).map(|(listed, _)| listed)
}

/// The checkpoints, and the names of the directories that are none.
fn look(run: &Storage) -> Result<(Vec<Listed>, Vec<String>), StoreError> {
    let names: Vec<String> =
        run.directories()?.into_iter().filter(|name| !name.starts_with('.') && !name.ends_with(DAMAGED)).collect();
    let keys: Vec<String> = names.iter().map(|name| format!("{name}/{MANIFEST}")).collect();
    let manifests = run.read_all(&keys)?;
    let (mut listed, mut others) = (Vec::new(), Vec::new());
    for (name, bytes) in names.into_iter().zip(manifests) {
        match bytes {
            Some(bytes) => listed.push(Listed { name, state: Manifest::from_bytes(&bytes) }),
            None => others.push(name),
        }
    }
    listed.sort_by_key(|listed| listed.state.as_ref().ok().map(|manifest| (manifest.iteration, manifest.attempt)));
    Ok((listed, others))
}

/// One checkpoint, in full: every byte is read.
pub fn verify(checkpoint: &Storage) -> Result<Result<Manifest, Damage>, StoreError> {
    let Some(bytes) = checkpoint.read(MANIFEST)? else {
        return Ok(Err(Damage::Missing { file: MANIFEST.to_owned() }));
    };
    match Manifest::from_bytes(&bytes) {
        Ok(manifest) => Ok(verify_files(checkpoint, &manifest)?.map_or(Ok(manifest), Err)),
        Err(damage) => Ok(Err(damage)),
    }
}

fn verify_files(checkpoint: &Storage, manifest: &Manifest) -> Result<Option<Damage>, StoreError> {
    // Sizes first: they cost one listing, and tell of most damage.
    let there = checkpoint.list()?;
    for file in &manifest.files {
        let damage = match there.binary_search_by(|entry| entry.key.cmp(&file.path)) {
            Err(_) => Some(Damage::Missing { file: file.path.clone() }),
            Ok(at) => wrong_size(file, there[at].size),
        };
        if damage.is_some() {
            return Ok(damage);
        }
    }
    let known: Vec<&ManifestFile> = manifest.files.iter().filter(|file| file.crc32c.is_some()).collect();
    let contents = match checkpoint.backend() {
        // File by file, so that the first damage ends it and a bad sector is told from a lost disk.
        Backend::Local(root) => {
            for file in known {
                let content = match local::examine(&root.join(&file.path)) {
                    Err(StoreError::Io { source, .. }) if is_bad_sector(&source) => {
                        return Ok(Some(Damage::Unreadable { file: file.path.clone(), why: source.to_string() }));
                    }
                    other => other?,
                };
                if let Some(damage) = wrong_content(file, content) {
                    return Ok(Some(damage));
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
    let (listed, others) = look(run)?;
    // Best effort: what stays is no checkpoint, and the next attempt sweeps again.
    let _ = sweep(run, others);
    for Listed { name, state } in listed.into_iter().rev() {
        let damage = match state {
            Ok(manifest) => {
                let is_latest = found.kept.is_empty();
                match if is_latest { verify_files(&run.join(&name), &manifest)? } else { None } {
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

/// Brings all files of a checkpoint to a local directory, verified where there is a manifest. A directory that never was a
/// checkpoint of ours has none, and is brought as it is.
pub fn download(checkpoint: &Storage, to: &Path) -> Result<Option<Manifest>, StoreError> {
    let damaged = |damage: Damage| match damage {
        Damage::Newer { version } => {
            StoreError::CheckpointNewer { location: checkpoint.location().to_owned(), version }
        }
        damage => StoreError::CheckpointDamaged { location: checkpoint.location().to_owned(), why: damage.to_string() },
    };
    let manifest = match checkpoint.read(MANIFEST)? {
        Some(bytes) => Some(Manifest::from_bytes(&bytes).map_err(damaged)?),
        None => None,
    };
    let there = checkpoint.list()?;
    let wanted: Vec<Entry> = match &manifest {
        Some(manifest) => {
            let metadata = there.iter().filter(|entry| entry.key == METADATA).cloned();
            manifest.files.iter().map(entry_of).chain(metadata).collect()
        }
        None if there.is_empty() => {
            let path = checkpoint.location().into();
            return Err(StoreError::CheckpointDirectory { what: "does not exist or is empty", path });
        }
        None => there.iter().filter(|entry| entry.key != SET_ASIDE).cloned().collect(),
    };
    if let Some(manifest) = &manifest {
        for file in &manifest.files {
            let found = there.binary_search_by(|entry| entry.key.cmp(&file.path));
            let found = found.map_err(|_| damaged(Damage::Missing { file: file.path.clone() }))?;
            if let Some(damage) = wrong_size(file, there[found].size) {
                return Err(damaged(damage));
            }
        }
    }
    let pairs: Vec<_> =
        wanted.into_iter().map(|entry| (to.join(&entry.key), entry)).map(|(to, key)| (key, to)).collect();
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

fn wrong_content(file: &ManifestFile, content: Content) -> Option<Damage> {
    let Content::Read { size, crc32c } = content else {
        return Some(Damage::Missing { file: file.path.clone() });
    };
    let differs = |expected: u32| {
        (expected != crc32c).then(|| Damage::Content { file: file.path.clone(), expected, found: crc32c })
    };
    wrong_size(file, size).or_else(|| file.crc32c.and_then(differs))
}

/// The disk answered that it lost what it held, which is not the same as not answering.
fn is_bad_sector(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EUCLEAN | libc::EBADMSG | libc::ENODATA))
}

#[cfg(test)]
mod tests;
