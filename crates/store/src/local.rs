//! Files on a local path or on a mounted file system: read, written whole, listed, deleted, brought to the disk.
//!
//! LOCAL-1: a file that is written appears by a rename, after its bytes are on the disk.
//! LOCAL-2: symbolic links are followed when files are read and never when they are deleted.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::libc;

use crate::copy::Copier;
use crate::error::StoreError;
use crate::faults::point;
use crate::regular;
use crate::storage::{Content, Entry, StoredFile};

/// One flush of the file system costs less than this many of single files.
const FLUSH_EACH: usize = 64;

/// One file that was found below a directory.
pub(crate) struct Found {
    pub path: String,
    pub size: u64,
    pub mode: u32,
}

/// What lies below a directory, sorted by path.
#[derive(Default)]
pub(crate) struct Tree {
    pub files: Vec<Found>,
    /// Without the root.
    pub directories: Vec<String>,
    pub has_links: bool,
}

/// The bytes that an ordinary user may still write where the path is, or will be; `None` where that is not known.
pub fn free_space(path: &Path) -> Option<u64> {
    let there = path.ancestors().find(|path| path.exists())?;
    let status = nix::sys::statvfs::statvfs(there).ok()?;
    Some(status.blocks_available() as u64 * status.fragment_size() as u64)
}

/// A directory, and whether another one has its name now: it was moved away, or something was mounted there.
pub(crate) struct Place {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl Place {
    pub fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), identity: identity(path) }
    }

    pub fn is_in_place(&self) -> bool {
        identity(&self.path) == self.identity
    }
}

/// Device and inode.
fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

pub(crate) fn walk(root: &Path) -> Result<Tree, StoreError> {
    let mut tree = Tree::default();
    let mut open = vec![String::new()];
    while let Some(relative) = open.pop() {
        let directory = root.join(&relative);
        let entries = fs::read_dir(&directory).map_err(StoreError::io("read", &directory))?;
        for entry in entries {
            let entry = entry.map_err(StoreError::io("read", &directory))?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                let error = io::Error::new(ErrorKind::InvalidData, "its name is not UTF-8");
                return Err(StoreError::io("store", &entry.path())(error));
            };
            let path = if relative.is_empty() { name.to_owned() } else { format!("{relative}/{name}") };
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            tree.has_links |= is_link;
            let looked = fs::metadata(entry.path()).map_err(|error| match error.kind() {
                ErrorKind::NotFound if is_link => io::Error::new(ErrorKind::InvalidInput, "it is a link to nothing"),
                _ => error,
            });
            let meta = looked.map_err(StoreError::io("store", &entry.path()))?;
            if meta.is_dir() {
                tree.directories.push(path.clone());
                open.push(path);
            } else if meta.is_file() {
                tree.files.push(Found { path, size: meta.len(), mode: meta.mode() });
            } else {
                // To open a pipe or a device might never return.
                let error = io::Error::new(ErrorKind::InvalidInput, "it is neither a file nor a directory");
                return Err(StoreError::io("store", &entry.path())(error));
            }
        }
    }
    tree.files.sort_by(|left, right| left.path.cmp(&right.path));
    tree.directories.sort();
    Ok(tree)
}

pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    match regular::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(StoreError::io("read", path)(error)),
    }
}

pub(crate) fn size(path: &Path) -> Result<Option<u64>, StoreError> {
    match fs::metadata(path) {
        Ok(meta) => Ok(meta.is_file().then_some(meta.len())),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(StoreError::io("look at", path)(error)),
    }
}

pub(crate) fn read_range(path: &Path, range: Range<u64>) -> Result<Option<Vec<u8>>, StoreError> {
    let file = match regular::open(path) {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(StoreError::io("open", path)(error)),
    };
    let mut bytes = vec![0; (range.end - range.start) as usize];
    file.read_exact_at(&mut bytes, range.start).map_err(StoreError::io("read", path))?;
    Ok(Some(bytes))
}

pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    make_parent(path)?;
    let part = part_of(path);
    let written = || -> io::Result<()> {
        point("create", &part)?;
        let mut file = regular::create(&part)?;
        point("write", &part)?;
        file.write_all(bytes)?;
        point("flush", &part)?;
        file.sync_data()?;
        point("rename", path)?;
        fs::rename(&part, path)
    };
    if let Err(error) = written() {
        let _ = fs::remove_file(&part);
        return Err(StoreError::io("write", path)(error));
    }
    flush_directory(parent_of(path))
}

/// False where the file is there already. One that a crash has left empty counts as there.
pub(crate) fn create(path: &Path, bytes: &[u8]) -> Result<bool, StoreError> {
    make_parent(path)?;
    match File::options().write(true).create_new(true).open(path) {
        Ok(mut file) => file.write_all(bytes).map(|()| true).map_err(StoreError::io("write", path)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(StoreError::io("make", path)(error)),
    }
}

pub(crate) fn list(root: &Path) -> Result<Vec<Entry>, StoreError> {
    if !root.is_dir() {
        return Ok(Vec::new());
    }
    Ok(walk(root)?.files.into_iter().map(|file| Entry { key: file.path, size: file.size }).collect())
}

/// Directories and files of the first level.
pub(crate) fn level(root: &Path) -> Result<(Vec<String>, Vec<String>), StoreError> {
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(Default::default()),
        Err(error) => return Err(StoreError::io("read", root)(error)),
    };
    let (mut directories, mut files) = (Vec::new(), Vec::new());
    for entry in entries {
        let entry = entry.map_err(StoreError::io("read", root))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() { directories.push(name) } else { files.push(name) }
    }
    Ok((directories, files))
}

pub(crate) fn put_all(root: &Path, files: &[(PathBuf, String)]) -> Result<Vec<StoredFile>, StoreError> {
    let mut copier = Copier::new(true);
    files
        .iter()
        .map(|(from, key)| {
            let to = root.join(key);
            make_parent(&to)?;
            let part = part_of(&to);
            let mode = fs::metadata(from).map_err(StoreError::io("look at", from))?.mode();
            let (size, crc32c) = copier.copy(from, &part, mode)?;
            flush_file(&part)?;
            point("rename", &to).and_then(|()| fs::rename(&part, &to)).map_err(StoreError::io("write", &to))?;
            flush_directory(parent_of(&to))?;
            Ok(StoredFile { path: key.clone(), size, crc32c: Some(crc32c) })
        })
        .collect()
}

pub(crate) fn fetch(root: &Path, wanted: &[(Entry, PathBuf)]) -> Result<Vec<Content>, StoreError> {
    let mut copier = Copier::new(false);
    wanted
        .iter()
        .map(|(entry, to)| {
            let from = root.join(&entry.key);
            let mode = match fs::metadata(&from) {
                Ok(meta) => meta.mode(),
                Err(error) if is_absent(&error) => return Ok(Content::Missing),
                Err(error) => return Err(StoreError::io("look at", &from)(error)),
            };
            make_parent(to)?;
            copier.copy(&from, to, mode).map(|(size, crc32c)| Content::Read { size, crc32c })
        })
        .collect()
}

pub(crate) fn examine(path: &Path) -> Result<Content, StoreError> {
    match regular::open(path) {
        Ok(mut file) => {
            let (size, crc32c) = checksum(&mut file).map_err(StoreError::io("read", path))?;
            Ok(Content::Read { size, crc32c })
        }
        Err(error) if is_absent(&error) => Ok(Content::Missing),
        Err(error) => Err(StoreError::io("open", path)(error)),
    }
}

/// The length and the CRC-32C of what is left to read.
pub(crate) fn checksum(file: &mut File) -> io::Result<(u64, u32)> {
    // One read for a small file, and pieces that stay in a core's own cache for a large one.
    let length = file.metadata()?.len().clamp(4 << 10, 256 << 10) as usize;
    let mut buffer = vec![0; length];
    let (mut size, mut crc32c) = (0, 0);
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((size, crc32c));
        }
        size += read as u64;
        crc32c = crc32c::crc32c_append(crc32c, &buffer[..read]);
    }
}

pub(crate) fn delete(path: &Path) -> Result<(), StoreError> {
    match point("delete", path).and_then(|()| fs::remove_file(path)) {
        Err(error) if !is_absent(&error) => Err(StoreError::io("delete", path)(error)),
        _ => Ok(()),
    }
}

pub(crate) fn delete_all(path: &Path) -> Result<(), StoreError> {
    match point("delete", path).and_then(|()| fs::remove_dir_all(path)) {
        Err(error) if !is_absent(&error) => Err(StoreError::io("delete", path)(error)),
        _ => Ok(()),
    }
}

pub(crate) fn make_directory(path: &Path) -> Result<(), StoreError> {
    point("mkdir", path).and_then(|()| fs::create_dir_all(path)).map_err(StoreError::io("make", path))
}

pub(crate) fn make_parent(path: &Path) -> Result<(), StoreError> {
    match path.parent() {
        Some(parent) => make_directory(parent),
        _ => Ok(()),
    }
}

pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), StoreError> {
    point("rename", from).and_then(|()| fs::rename(from, to)).map_err(StoreError::io("move", from))
}

/// The directories that lead to the files, each after those above it; without the root.
pub(crate) fn directories<'a>(files: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all: Vec<&str> =
        files.flat_map(|file| file.match_indices('/').map(move |(slash, _)| &file[..slash])).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Brings the files below `root` to the disk, and the directories that lead to them.
pub(crate) fn flush(root: &Path, files: &[StoredFile]) -> Result<(), StoreError> {
    if files.len() > FLUSH_EACH {
        let sync = || -> io::Result<()> {
            point("flush all", root)?;
            let directory = File::open(root)?;
            // SAFETY: the descriptor is open for the time of the call.
            match unsafe { libc::syncfs(directory.as_raw_fd()) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        return sync().map_err(StoreError::io("flush", root));
    }
    for file in files {
        flush_file(&root.join(&file.path))?;
    }
    for directory in directories(files.iter().map(|file| file.path.as_str())).iter().rev() {
        flush_directory(&root.join(directory))?;
    }
    flush_directory(root)
}

pub(crate) fn flush_file(path: &Path) -> Result<(), StoreError> {
    let flushed = || {
        point("flush", path)?;
        File::open(path)?.sync_data()
    };
    flushed().map_err(StoreError::io("flush", path))
}

pub(crate) fn flush_directory(path: &Path) -> Result<(), StoreError> {
    let flushed = || {
        point("flush", path)?;
        File::open(path)?.sync_all()
    };
    match flushed() {
        // Some network file systems know no flush of a directory, and need none.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        other => other.map_err(StoreError::io("flush", path)),
    }
}

pub(crate) fn parent_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// The name under which a file is written until it is whole.
fn part_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.part"))
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
