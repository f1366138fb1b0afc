//! One interface to every place that holds files: a local directory, a bucket, or what a Python file system reaches.
//!
//! Blocking, for any thread that is not driving async code. A key is a relative path with `/` between its parts.
//! STORAGE-1: what is under a key is always whole: a write that did not finish leaves what was there before.
//! STORAGE-2: to delete what is not there is no error; to read it is `None`.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::credentials::Surroundings;
use crate::error::StoreError;
use crate::local;
use crate::location::{Location, Place};
use crate::object::Bucket;
use crate::python_filesystem::{Helper, PythonFilesystem};

/// A place that holds files under keys. Cheap to clone.
#[derive(Clone)]
pub struct Storage {
    backend: Backend,
    location: String,
}

#[derive(Clone)]
pub(crate) enum Backend {
    Local(PathBuf),
    Object { bucket: Arc<Bucket>, at: Location },
    Python { helper: Arc<Helper>, prefix: String },
}

/// One file of a storage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub key: String,
    pub size: u64,
}

/// A file that was stored or taken: its key or relative path, and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFile {
    pub path: String,
    pub size: u64,
    pub crc32c: Option<u32>,
}

/// What came of reading one file in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Read { size: u64, crc32c: u32 },
    Missing,
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Storage({})", self.location)
    }
}

impl Storage {
    /// `/abs/path`, `file://…`, `s3://bucket/prefix`, `gs://…`, `az://…`. With a Python file system the location is a path in it.
    pub fn open(location: &str, filesystem: Option<PythonFilesystem>) -> Result<Storage, StoreError> {
        Self::open_with(location, filesystem, &BTreeMap::new())
    }

    /// With variables that hold in place of this process's own: those of the driver whose run it is.
    pub fn open_with(
        location: &str,
        filesystem: Option<PythonFilesystem>,
        variables: &BTreeMap<String, String>,
    ) -> Result<Storage, StoreError> {
        if let Some(filesystem) = filesystem {
            let helper = Arc::new(Helper::start(filesystem, location)?);
            let prefix = if location.len() > 1 { location.trim_end_matches('/') } else { location }.to_owned();
            return Ok(Self { location: prefix.clone(), backend: Backend::Python { helper, prefix } });
        }
        match Place::parse(location)? {
            Place::Local(path) => Ok(Self::local(&path)),
            Place::Object(at) => {
                let mut surroundings = Surroundings::of_this_process();
                surroundings.variables.extend(variables.clone());
                let bucket = Arc::new(Bucket::open(&at, &surroundings)?);
                Ok(Self { location: at.to_string(), backend: Backend::Object { bucket, at } })
            }
        }
    }

    /// A local directory, which need not exist.
    pub fn local(path: &Path) -> Storage {
        Self { location: path.display().to_string(), backend: Backend::Local(path.to_owned()) }
    }

    pub fn join(&self, key: &str) -> Storage {
        let backend = match &self.backend {
            Backend::Local(path) => return Self::local(&path.join(key)),
            Backend::Object { bucket, at } => Backend::Object { bucket: bucket.clone(), at: at.join(key) },
            Backend::Python { helper, prefix } => {
                let prefix = if prefix.is_empty() { key.to_owned() } else { under(prefix, key) };
                Backend::Python { helper: helper.clone(), prefix }
            }
        };
        let location = match &backend {
            Backend::Object { at, .. } => at.to_string(),
            Backend::Python { prefix, .. } => prefix.clone(),
            Backend::Local(_) => unreachable!("answered above"),
        };
        Self { backend, location }
    }

    /// What a user would type to get here.
    pub fn location(&self) -> &str {
        &self.location
    }

    pub fn local_path(&self) -> Option<&Path> {
        match &self.backend {
            Backend::Local(path) => Some(path),
            _ => None,
        }
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.backend
    }

    pub fn read(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        match &self.backend {
            Backend::Local(path) => local::read(&path.join(key)),
            Backend::Object { bucket, at } => bucket.read(&at.join(key)),
            Backend::Python { helper, prefix } => helper.read(&under(prefix, key)),
        }
    }

    /// The length of a file; `None` where there is none.
    pub fn size(&self, key: &str) -> Result<Option<u64>, StoreError> {
        match &self.backend {
            Backend::Local(path) => local::size(&path.join(key)),
            Backend::Object { bucket, at } => bucket.size(&at.join(key)),
            Backend::Python { helper, prefix } => helper.size(&under(prefix, key)),
        }
    }

    /// A part of a file, which must be that long.
    pub fn read_range(&self, key: &str, range: Range<u64>) -> Result<Option<Vec<u8>>, StoreError> {
        match &self.backend {
            Backend::Local(path) => local::read_range(&path.join(key), range),
            Backend::Object { bucket, at } => bucket.read_range(&at.join(key), range),
            Backend::Python { helper, prefix } => helper.read_range(&under(prefix, key), range),
        }
    }

    /// Many small files at once; in the order of the keys.
    pub(crate) fn read_all(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        match &self.backend {
            Backend::Object { bucket, at } => bucket.read_all(at, keys),
            _ => keys.iter().map(|key| self.read(key)).collect(),
        }
    }

    /// Whole or not at all, and on a disk when this returns.
    pub fn write(&self, key: &str, bytes: &[u8]) -> Result<(), StoreError> {
        match &self.backend {
            Backend::Local(path) => local::write(&path.join(key), bytes),
            Backend::Object { bucket, at } => bucket.write(&at.join(key), bytes),
            Backend::Python { helper, prefix } => helper.write(&under(prefix, key), bytes),
        }
    }

    /// As `write`, where there is nothing under the key; false where there is.
    pub fn create(&self, key: &str, bytes: &[u8]) -> Result<bool, StoreError> {
        match &self.backend {
            Backend::Local(path) => local::create(&path.join(key), bytes),
            Backend::Object { bucket, at } => bucket.create(&at.join(key), bytes),
            Backend::Python { helper, prefix } => {
                let key = under(prefix, key);
                let free = helper.read(&key)?.is_none();
                if free {
                    helper.write(&key, bytes)?;
                }
                Ok(free)
            }
        }
    }

    /// All files below, sorted; none where there is nothing.
    pub fn list(&self) -> Result<Vec<Entry>, StoreError> {
        let mut entries = match &self.backend {
            Backend::Local(path) => local::list(path)?,
            Backend::Object { bucket, at } => bucket.list(at)?,
            Backend::Python { helper, prefix } => helper.list(prefix)?,
        };
        entries.sort();
        Ok(entries)
    }

    /// The first level only, files and directories, sorted.
    pub fn names(&self) -> Result<Vec<String>, StoreError> {
        let (mut names, files) = self.level()?;
        names.extend(files);
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// The directories of the first level.
    pub fn directories(&self) -> Result<Vec<String>, StoreError> {
        let (mut directories, _) = self.level()?;
        directories.sort();
        Ok(directories)
    }

    /// Directories and files of the first level.
    fn level(&self) -> Result<(Vec<String>, Vec<String>), StoreError> {
        match &self.backend {
            Backend::Local(path) => local::level(path),
            Backend::Object { bucket, at } => bucket.level(at),
            Backend::Python { helper, prefix } => helper.level(prefix),
        }
    }

    pub fn upload(&self, from: &Path, key: &str) -> Result<StoredFile, StoreError> {
        let stored = self.upload_all(&[(from.to_owned(), key.to_owned())])?;
        Ok(stored.into_iter().next().expect("one file for one file"))
    }

    /// Many files, several at once. In the order of what was asked.
    pub fn upload_all(&self, files: &[(PathBuf, String)]) -> Result<Vec<StoredFile>, StoreError> {
        match &self.backend {
            Backend::Local(root) => local::put_all(root, files),
            Backend::Object { bucket, at } => bucket.upload_all(at, files),
            Backend::Python { helper, prefix } => {
                files.iter().map(|(from, key)| helper.put(from, &under(prefix, key), key)).collect()
            }
        }
    }

    pub fn download(&self, key: &str, to: &Path) -> Result<StoredFile, StoreError> {
        let size = match &self.backend {
            Backend::Object { bucket, at } => bucket.size(&at.join(key))?,
            _ => Some(0),
        };
        let content = match size {
            Some(size) => self.fetch(&[(Entry { key: key.to_owned(), size }, to.to_owned())])?[0],
            None => Content::Missing,
        };
        match content {
            Content::Read { size, crc32c } => Ok(StoredFile { path: key.to_owned(), size, crc32c: Some(crc32c) }),
            Content::Missing => Err(StoreError::Remote {
                what: "read",
                location: self.join(key).location,
                why: "it is not there".to_owned(),
                missing: true,
            }),
        }
    }

    /// Brings files of known sizes to local paths. In the order of what was asked.
    pub(crate) fn fetch(&self, wanted: &[(Entry, PathBuf)]) -> Result<Vec<Content>, StoreError> {
        match &self.backend {
            Backend::Local(root) => local::fetch(root, wanted),
            Backend::Object { bucket, at } => bucket.fetch(at, wanted),
            Backend::Python { helper, prefix } => {
                wanted.iter().map(|(entry, to)| helper.get(&under(prefix, &entry.key), to)).collect()
            }
        }
    }

    /// Reads one file in full for its checksum, and keeps nothing.
    pub(crate) fn examine(&self, entries: &[Entry]) -> Result<Vec<Content>, StoreError> {
        match &self.backend {
            Backend::Local(root) => entries.iter().map(|entry| local::examine(&root.join(&entry.key))).collect(),
            Backend::Object { bucket, at } => bucket.examine(at, entries),
            Backend::Python { helper, prefix } => {
                entries.iter().map(|entry| helper.examine(&under(prefix, &entry.key))).collect()
            }
        }
    }

    pub fn delete(&self, key: &str) -> Result<(), StoreError> {
        match &self.backend {
            Backend::Local(path) => local::delete(&path.join(key)),
            Backend::Object { bucket, at } => bucket.delete(&at.join(key)),
            Backend::Python { helper, prefix } => helper.delete(&under(prefix, key)),
        }
    }

    /// Everything below.
    pub fn delete_all(&self) -> Result<(), StoreError> {
        match &self.backend {
            Backend::Local(path) => local::delete_all(path),
            Backend::Object { bucket, at } => bucket.delete_all(at),
            Backend::Python { helper, prefix } => helper.delete_all(prefix),
        }
    }
}

fn under(prefix: &str, key: &str) -> String {
    match prefix {
        "" => key.to_owned(),
        prefix => format!("{}/{key}", prefix.trim_end_matches('/')),
    }
}
