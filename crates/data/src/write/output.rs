//! Where files go: a local directory, in which a file appears by a rename, or a storage that it is brought to when it is whole.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use carril_store::{Storage, StoreError};

use super::encoder::{Encoder, Format, Stopped};
use crate::error::DataError;

/// Names of directories for what is not yet in a storage differ by this and by the process.
static NUMBER: AtomicU64 = AtomicU64::new(0);

pub(super) struct Target {
    storage: Storage,
    /// Where files are written first, if the storage is not a local directory.
    beside: Option<PathBuf>,
    /// Directories that were made, each after the one that it is in.
    made: Vec<PathBuf>,
    done: Vec<String>,
}

/// One file that is written.
pub(super) struct Output {
    /// Of its partition, below the target.
    pub directory: String,
    pub rows: u64,
    /// In memory, before they were encoded.
    pub bytes: u64,
    key: String,
    /// What the user knows it by.
    name: String,
    encoder: Option<Encoder>,
    part: PathBuf,
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DataError {
    move |source| StoreError::Io { what, path: path.to_owned(), source }.into()
}

impl Target {
    pub fn new(storage: Storage, makes_directory: bool) -> Result<Self, DataError> {
        let mut target = Self { storage, beside: None, made: Vec::new(), done: Vec::new() };
        match target.storage.local_path().map(Path::to_owned) {
            Some(path) if path.is_file() => {
                let what = format!("`{}` is a file, and a directory is written to", path.display());
                return Err(DataError::invalid(what));
            }
            Some(path) if !path.exists() && !makes_directory => {
                let what = format!("there is no directory `{}`", path.display());
                let hint = Some("make it before, or leave `try_create_dir` as it is".to_owned());
                return Err(DataError::Invalid { what, hint });
            }
            Some(path) => target.make_directory(&path)?,
            None => {
                let number = NUMBER.fetch_add(1, Ordering::Relaxed);
                let path = std::env::temp_dir().join(format!("carril-write-{}-{number}", std::process::id()));
                fs::create_dir_all(&path).map_err(failed("make", &path))?;
                target.beside = Some(path);
            }
        }
        Ok(target)
    }

    fn make_directory(&mut self, path: &Path) -> Result<(), DataError> {
        let missing: Vec<&Path> = path.ancestors().take_while(|path| !path.exists()).collect();
        for path in missing.into_iter().rev() {
            match fs::create_dir(path) {
                Ok(()) => self.made.push(path.to_owned()),
                // Somebody else was quicker.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed("make", path)(error)),
            }
        }
        Ok(())
    }

    /// The keys of all files that are there.
    pub fn list(&self) -> Result<Vec<String>, DataError> {
        Ok(self.storage.list()?.into_iter().map(|entry| entry.key).collect())
    }

    pub fn begin(
        &mut self,
        directory: &str,
        key: String,
        schema: SchemaRef,
        format: &Format,
    ) -> Result<Output, DataError> {
        let part = match (&self.beside, self.storage.local_path()) {
            (None, Some(root)) => {
                let place = root.join(&key);
                let name = place.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                let parent = place.parent().unwrap_or(root).to_owned();
                self.make_directory(&parent)?;
                // What begins with a dot is not read by anybody meanwhile.
                parent.join(format!(".{name}.part"))
            }
            (beside, _) => {
                let number = NUMBER.fetch_add(1, Ordering::Relaxed);
                beside.as_deref().unwrap_or(Path::new("/tmp")).join(number.to_string())
            }
        };
        let file = File::create(&part).map_err(failed("write", &part))?;
        let name = self.storage.join(&key).location().to_owned();
        let directory = directory.to_owned();
        let mut output = Output { directory, rows: 0, bytes: 0, key, name, encoder: None, part };
        output.encoder = Some(Encoder::new(file, schema, format)?);
        Ok(output)
    }

    /// The file is whole, and put in its place.
    pub fn put(&mut self, mut output: Output) -> Result<(), DataError> {
        if let Some(encoder) = output.encoder.take() {
            let file = encoder.finish().map_err(|stopped| output.stopped(stopped))?;
            if self.beside.is_none() {
                file.sync_all().map_err(failed("write", &output.part))?;
            }
        }
        match (&self.beside, self.storage.local_path()) {
            (None, Some(root)) => {
                let place = root.join(&output.key);
                fs::rename(&output.part, &place).map_err(failed("write", &place))?;
            }
            _ => {
                self.storage.upload(&output.part, &output.key)?;
            }
        }
        self.done.push(output.key.clone());
        Ok(())
    }

    pub fn done(&self) -> &[String] {
        &self.done
    }

    pub fn names(&self) -> Vec<String> {
        self.done.iter().map(|key| self.storage.join(key).location().to_owned()).collect()
    }

    pub fn remove(&self, keys: &[String]) -> Result<(), DataError> {
        keys.iter().try_for_each(|key| Ok(self.storage.delete(key)?))
    }

    /// As it was before; what cannot be removed stays.
    pub fn undo(&mut self) {
        for key in self.done.drain(..) {
            let _ = self.storage.delete(&key);
        }
        for directory in self.made.drain(..).rev() {
            // One that others have written into is not empty, and stays.
            let _ = fs::remove_dir(&directory);
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            let _ = fs::remove_dir_all(beside);
        }
    }
}

impl Output {
    pub fn write(&mut self, rows: &RecordBatch, bytes: u64) -> Result<(), DataError> {
        let outcome = self.encoder.as_mut().map_or(Ok(()), |encoder| encoder.write(rows));
        outcome.map_err(|stopped| self.stopped(stopped))?;
        self.rows += rows.num_rows() as u64;
        self.bytes += bytes;
        Ok(())
    }

    pub fn held(&self) -> usize {
        self.encoder.as_ref().map_or(0, Encoder::held)
    }

    pub fn flush(&mut self) -> Result<(), DataError> {
        let outcome = self.encoder.as_mut().map_or(Ok(()), Encoder::flush);
        outcome.map_err(|stopped| self.stopped(stopped))
    }

    fn stopped(&self, stopped: Stopped) -> DataError {
        match stopped {
            Stopped::Disk(source) => failed("write", Path::new(&self.name))(source),
            Stopped::Rows(why) => DataError::invalid(format!("cannot write `{}`: {why}", self.name)),
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // Where it was put in its place, nothing is under this name any more.
        let _ = fs::remove_file(&self.part);
    }
}
