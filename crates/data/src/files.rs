//! Which files a reader reads: paths, directories, globs and URIs, made into a list of files.
//!
//! FILES-1: the paths are taken in the order in which they were given, and the files of each sorted by name.
//! FILES-2: below a directory or a glob, what begins with `.` or `_` is passed over, as the companions of data files do.
//! FILES-3: every file has the same partition columns; one that a path does not name is null.

mod glob;
mod partitions;

use std::collections::HashMap;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;

use bytes::Bytes;
use carril_store::{PythonFilesystem, Storage, StoreError};
use serde::Deserialize;

use crate::error::DataError;
use crate::read::compression::Compression;
pub(crate) use glob::is_like;
use glob::{Match, is_glob, match_path};
pub use partitions::{PartitionValue, Partitions};

/// How many files are looked at, or read in part, at the same time.
pub(crate) const AT_ONCE: usize = 16;

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FileOptions {
    /// Only files whose names end in one of these; without one, what is usual for the format, below directories.
    pub file_extensions: Option<Vec<String>>,
    pub ignore_missing_paths: bool,
    /// Whether `/key=value/` in a path is a column.
    pub partitioning: bool,
    /// How columns stand in paths.
    pub partitions: Partitions,
    /// How all files are compressed: `gzip`, `zstd`, `bz2`, `xz`, `lz4` or `none`. Without it their names say so.
    pub compression: Option<String>,
    /// Whether there is a column `path`.
    pub include_paths: bool,
    /// How many damaged units are passed over.
    pub max_errors: u64,
    pub filesystem: Option<FilesystemSpec>,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            file_extensions: None,
            ignore_missing_paths: false,
            partitioning: true,
            partitions: Partitions::default(),
            compression: None,
            include_paths: false,
            max_errors: 0,
            filesystem: None,
        }
    }
}

/// A file system that only Python reaches.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesystemSpec {
    pub executable: String,
    pub path: Vec<String>,
    pub pickle: String,
}

/// One file that is read.
#[derive(Clone, Debug)]
pub struct FileRef {
    pub storage: Storage,
    pub key: String,
    /// An absolute path, or a URI.
    pub name: String,
    pub size: u64,
    pub partitions: Vec<(String, PartitionValue)>,
    /// Where its name does not say how it is compressed.
    pub(crate) packed: Option<Compression>,
}

impl FileRef {
    pub fn read(&self) -> Result<Bytes, DataError> {
        self.there(self.storage.read(&self.key))
    }

    pub fn read_range(&self, range: Range<u64>) -> Result<Bytes, DataError> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let wanted = range.end - range.start;
        let read = self.there(self.storage.read_range(&self.key, range))?;
        match read.len() as u64 == wanted {
            true => Ok(read),
            false => Err(DataError::damaged(&self.name, None, "it has become shorter")),
        }
    }

    /// The first bytes, at most this many.
    pub fn read_start(&self, most: u64) -> Result<Bytes, DataError> {
        match self.size <= most {
            true => self.read(),
            false => self.read_range(0..most),
        }
    }

    fn there(&self, read: Result<Option<Vec<u8>>, StoreError>) -> Result<Bytes, DataError> {
        match read {
            Ok(Some(bytes)) => Ok(bytes.into()),
            Ok(None) => Err(DataError::damaged(&self.name, None, "it is not there any more")),
            Err(StoreError::Io { source, .. }) => Err(DataError::damaged(&self.name, None, source)),
            Err(error) => Err(error.into()),
        }
    }
}

/// All files that the paths name.
pub fn find_files(paths: &[String], options: &FileOptions) -> Result<Vec<FileRef>, DataError> {
    find_usual(paths, options, &[])
}

/// As `find_files`, where directories and globs are looked through for the endings that a format usually has.
pub(crate) fn find_usual(paths: &[String], options: &FileOptions, usual: &[&str]) -> Result<Vec<FileRef>, DataError> {
    let finder = Finder { options, usual, storages: Mutex::default() };
    let found = in_parallel(paths, |path| finder.find(path))?;
    let mut files: Vec<FileRef> = found.into_iter().flatten().collect();
    if files.is_empty() {
        let why = match paths {
            [] => "no paths were given".to_owned(),
            _ => format!("there are no files to read at `{}`", paths.join("`, `")),
        };
        return Err(DataError::NoFiles { why });
    }
    if options.partitioning {
        partitions::fill(&mut files, &options.partitions)?;
    }
    Ok(files)
}

/// Runs a function over many things in a few threads; in their order.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    run: impl Fn(&T) -> Result<R, DataError> + Sync,
) -> Result<Vec<R>, DataError> {
    if items.len() <= 1 {
        return items.iter().map(run).collect();
    }
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some(item) = items.get(index) else { return Ok(done) };
            match run(item) {
                Ok(result) => done.push((index, result)),
                Err(error) => {
                    next.store(items.len(), std::sync::atomic::Ordering::Relaxed);
                    return Err((index, error));
                }
            }
        }
    };
    let ended: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..items.len().min(AT_ONCE)).map(|_| scope.spawn(work)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    });
    let mut all = Vec::with_capacity(items.len());
    let mut failed: Option<(usize, DataError)> = None;
    for done in ended {
        match done {
            Ok(done) => all.extend(done),
            Err((index, error)) if failed.as_ref().is_none_or(|(first, _)| index < *first) => {
                failed = Some((index, error));
            }
            Err(_) => {}
        }
    }
    if let Some((_, error)) = failed {
        return Err(error);
    }
    all.sort_by_key(|(index, _)| *index);
    Ok(all.into_iter().map(|(_, result)| result).collect())
}

struct Finder<'a> {
    options: &'a FileOptions,
    usual: &'a [&'a str],
    /// By what opens them: a bucket's client is made once for all its files.
    storages: Mutex<HashMap<String, Storage>>,
}

/// A path taken apart: where it is, and how a key there is shown.
struct Start {
    storage: Storage,
    key: String,
    /// What stands before a key in a name.
    shown: String,
}

impl Finder<'_> {
    fn find(&self, path: &str) -> Result<Vec<FileRef>, DataError> {
        let start = self.start(path)?;
        let file = |key: String, size: u64| {
            let name = format!("{}{key}", start.shown);
            let packed = self.options.compression.as_deref().map(Compression::of);
            FileRef { storage: start.storage.clone(), key, name, size, partitions: Vec::new(), packed }
        };
        let parts: Vec<&str> = start.key.split('/').filter(|part| !part.is_empty()).collect();
        let fixed = parts.iter().position(|part| is_glob(part)).unwrap_or(parts.len());
        let (root, pattern) = (parts[..fixed].join("/"), &parts[fixed..]);
        let root = if start.key.starts_with('/') { format!("/{root}") } else { root };
        // Elsewhere each question is a request: what has no ending is looked for as a directory first.
        let is_remote = start.storage.local_path().is_none();
        let is_directory = path.ends_with('/') || parts.last().is_none_or(|last| !last.contains('.'));
        let mut found = None;
        if is_remote && is_directory && pattern.is_empty() {
            found = Some(self.below(&start, &root, pattern)?);
        }
        // A name with a bracket in it may be just that name.
        if !start.key.is_empty()
            && found.as_ref().is_none_or(Vec::is_empty)
            && let Some(size) = start.storage.size(&start.key)?
        {
            let wanted = self.options.file_extensions.as_ref().is_none_or(|ends| ends_in(&start.key, ends));
            return Ok(if wanted { vec![file(start.key.clone(), size)] } else { Vec::new() });
        }
        let found = match found {
            Some(found) => found,
            None => self.below(&start, &root, pattern)?,
        };
        if found.is_empty() {
            if self.options.ignore_missing_paths {
                return Ok(Vec::new());
            }
            let is_empty = || start.storage.local_path().is_some_and(|top| top.join(&root).is_dir());
            return Err(match pattern.is_empty() && is_empty() {
                true => DataError::NoFiles { why: format!("there are no files in the directory `{path}`") },
                false => DataError::Missing { path: path.to_owned() },
            });
        }
        let usual: Vec<String> = self.usual.iter().map(|end| (*end).to_owned()).collect();
        let ends = self.options.file_extensions.as_ref().unwrap_or(&usual);
        let number = found.len();
        let mut files: Vec<FileRef> = found
            .into_iter()
            .filter(|(key, _)| ends.is_empty() || ends_in(key, ends))
            .map(|(key, size)| file(if root.is_empty() { key } else { format!("{root}/{key}") }, size))
            .collect();
        if files.is_empty() && !self.options.ignore_missing_paths {
            let ends = ends.iter().map(|end| format!("`.{}`", end.trim_start_matches('.'))).collect::<Vec<_>>();
            let what = format!("none of the {number} files at `{path}` has a name that ends in {}", ends.join(" or "));
            let hint = Some("name other endings with `file_extensions`".to_owned());
            return Err(DataError::Invalid { what, hint });
        }
        files.sort_by(|left, right| left.key.cmp(&right.key));
        Ok(files)
    }

    /// Files below a place that match a pattern, or lie in a directory that does.
    fn below(&self, start: &Start, root: &str, pattern: &[&str]) -> Result<Vec<(String, u64)>, DataError> {
        if let Some(top) = start.storage.local_path() {
            let mut found = Vec::new();
            walk(&top.join(root), &mut Vec::new(), pattern, &mut found)?;
            return Ok(found);
        }
        let storage = if root.is_empty() { start.storage.clone() } else { start.storage.join(root) };
        let matches = |key: &str| match_path(pattern, &key.split('/').collect::<Vec<_>>()) == Match::Whole;
        Ok(storage.list()?.into_iter().filter(|e| matches(&e.key)).map(|e| (e.key, e.size)).collect())
    }

    fn start(&self, path: &str) -> Result<Start, DataError> {
        if let Some(filesystem) = &self.options.filesystem {
            let filesystem = PythonFilesystem {
                executable: filesystem.executable.clone(),
                path: filesystem.path.clone(),
                pickle: filesystem.pickle.clone().into(),
            };
            let storage = self.storage("", || Storage::open("", Some(filesystem)))?;
            return Ok(Start { storage, key: path.trim_end_matches('/').to_owned(), shown: String::new() });
        }
        let local = |path: &Path| {
            let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            let key = absolute.to_string_lossy().trim_matches('/').to_owned();
            Start { storage: Storage::local(Path::new("/")), key, shown: "/".to_owned() }
        };
        let Some((scheme, rest)) = path.split_once("://") else { return Ok(local(Path::new(path))) };
        if ["file", "local"].contains(&scheme) {
            let storage = Storage::open(path, None)?;
            return Ok(local(storage.local_path().expect("its scheme says so")));
        }
        // A `?` is a wild card, unless settings of the storage follow it.
        let settings = |text: &str| ["region=", "endpoint_override=", "scheme="].iter().any(|s| text.starts_with(s));
        let (rest, query) = match rest.rsplit_once('?') {
            Some((rest, query)) if settings(query) => (rest, format!("?{query}")),
            _ => (rest, String::new()),
        };
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        let root = format!("{scheme}://{bucket}{query}");
        let storage = self.storage(&root, || Storage::open(&root, None))?;
        Ok(Start { storage, key: key.trim_matches('/').to_owned(), shown: format!("{scheme}://{bucket}/") })
    }

    fn storage(&self, root: &str, open: impl FnOnce() -> Result<Storage, StoreError>) -> Result<Storage, DataError> {
        let mut storages = self.storages.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(storage) = storages.get(root) {
            return Ok(storage.clone());
        }
        let storage = open()?;
        storages.insert(root.to_owned(), storage.clone());
        Ok(storage)
    }
}

fn walk(
    top: &Path,
    parts: &mut Vec<String>,
    pattern: &[&str],
    found: &mut Vec<(String, u64)>,
) -> Result<(), DataError> {
    let directory = parts.iter().fold(top.to_owned(), |path, part| path.join(part));
    let failed = |source| StoreError::Io { what: "read", path: directory.clone(), source };
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => return Ok(()),
        Err(error) => return Err(failed(error).into()),
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        // Links to nothing, pipes and devices are no data.
        let Ok(meta) = std::fs::metadata(entry.path()) else { continue };
        parts.push(name);
        let matched = match_path(pattern, &parts.iter().map(String::as_str).collect::<Vec<_>>());
        if meta.is_dir() && matched != Match::No {
            walk(top, parts, pattern, found)?;
        } else if meta.is_file() && matched == Match::Whole {
            found.push((parts.join("/"), meta.len()));
        }
        parts.pop();
    }
    Ok(())
}

/// Whatever the case, and with or without its dot.
fn ends_in(key: &str, ends: &[String]) -> bool {
    let name = key.rsplit('/').next().unwrap_or(key).to_lowercase();
    ends.iter().any(|end| name.ends_with(&format!(".{}", end.trim_start_matches('.').to_lowercase())))
}
