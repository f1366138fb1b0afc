//! Whether what is about to be read of a checkpoint is what was saved.
//!
//! CHECK-1: a file whose content was compared is not read for that again, by this process, while its inode, length and times are
//!   the same.
//! CHECK-2: processes that share a directory read a file once among them: one compares it, the others wait and take its word.
//! CHECK-3: a directory without a manifest is no checkpoint of ours, and is taken as it is.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::error::StoreError;
use crate::manifest::{Damage, MANIFEST, Manifest, ManifestFile};
use crate::regular;
use crate::storage::{Content, Storage};
use crate::verify::{verify_files, wrong_content};

/// More than this is not remembered: it is compared again.
const MOST: usize = 100_000;

static COMPARED: Mutex<Option<HashSet<Stamp>>> = Mutex::new(None);

/// A file as it was when it was compared, and what it was compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stamp {
    file: [u64; 3],
    times: [i64; 4],
    crc32c: u32,
}

impl Stamp {
    /// `None` where there is no file to look at, or nothing to compare it with.
    pub fn of(path: &Path, file: &ManifestFile) -> Option<Self> {
        let meta = fs::metadata(path).ok()?;
        Some(Self {
            file: [meta.dev(), meta.ino(), meta.len()],
            times: [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()],
            crc32c: file.crc32c?,
        })
    }

    fn to_line(self) -> String {
        let Self { file: [device, inode, size], times: [mtime, mtime_ns, ctime, ctime_ns], crc32c } = self;
        format!("{device} {inode} {size} {mtime} {mtime_ns} {ctime} {ctime_ns} {crc32c}\n")
    }

    fn from_line(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let file = [words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?];
        let mut times = [0; 4];
        for time in &mut times {
            *time = words.next()?.parse().ok()?;
        }
        Some(Self { file, times, crc32c: words.next()?.parse().ok()? })
    }
}

/// Which files were compared before, by this process or one that shares a directory with it.
pub(crate) struct Compared {
    /// Locked for as long as this lives.
    shared: Option<File>,
    by_others: HashSet<Stamp>,
}

impl Compared {
    /// `shared` is a directory; without one that can be used, this process is on its own.
    fn open(checkpoint: &Storage, shared: Option<&Path>) -> Self {
        let name = format!("compared_{:08x}", crc32c::crc32c(checkpoint.location().as_bytes()));
        let open = |directory: &Path| {
            let mut file =
                regular::open_with(File::options().create(true).append(true).read(true), &directory.join(&name))?;
            file.lock()?;
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            Ok::<_, std::io::Error>((file, text.lines().filter_map(Stamp::from_line).collect()))
        };
        match shared.and_then(|directory| open(directory).ok()) {
            Some((file, by_others)) => Self { shared: Some(file), by_others },
            None => Self { shared: None, by_others: HashSet::new() },
        }
    }

    pub fn has(&self, stamp: &Stamp) -> bool {
        let own = || COMPARED.lock().unwrap_or_else(PoisonError::into_inner);
        self.by_others.contains(stamp) || own().as_ref().is_some_and(|known| known.contains(stamp))
    }

    pub fn add(&mut self, stamp: Stamp) {
        let mut own = COMPARED.lock().unwrap_or_else(PoisonError::into_inner);
        let known = own.get_or_insert_default();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(stamp);
        if let Some(file) = &mut self.shared {
            // Who cannot read it compares again.
            let _ = file.write_all(stamp.to_line().as_bytes());
        }
    }
}

/// Compares the files of a checkpoint with its manifest before they are read where they are.
pub fn check(checkpoint: &Storage, shared: Option<&Path>) -> Result<(), StoreError> {
    let Some(bytes) = checkpoint.read(MANIFEST)? else { return Ok(()) };
    let manifest = Manifest::from_bytes(&bytes).map_err(|damage| StoreError::damaged(checkpoint.location(), damage))?;
    let mut compared = Compared::open(checkpoint, shared);
    match verify_files(checkpoint, &manifest, Some(&mut compared))? {
        None => Ok(()),
        Some(damage) => Err(StoreError::damaged(checkpoint.location(), damage)),
    }
}

/// What is wrong with one file that was read, or was not there; nothing where the manifest does not name it.
pub fn check_file(manifest: &[u8], key: &str, data: Option<&[u8]>) -> Result<(), Damage> {
    let manifest = Manifest::from_bytes(manifest)?;
    let Some(file) = manifest.files.iter().find(|file| file.path == key) else { return Ok(()) };
    let content =
        data.map_or(Content::Missing, |data| Content::Read { size: data.len() as u64, crc32c: crc32c::crc32c(data) });
    wrong_content(file, content).map_or(Ok(()), Err)
}

/// The manifest for other content of a file that it names, or without the file; `None` where it does not name it.
pub fn amend_manifest(manifest: &[u8], key: &str, data: Option<&[u8]>) -> Result<Option<Vec<u8>>, Damage> {
    let mut manifest = Manifest::from_bytes(manifest)?;
    let Some(at) = manifest.files.iter().position(|file| file.path == key) else { return Ok(None) };
    match data {
        Some(data) => {
            let file = &mut manifest.files[at];
            (file.size, file.crc32c) = (data.len() as u64, Some(crc32c::crc32c(data)));
        }
        None => drop(manifest.files.remove(at)),
    }
    Ok(Some(manifest.to_bytes()))
}
