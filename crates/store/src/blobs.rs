//! Blobs by the hash of their content, one file each: what is there already is never written again.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::StoreError;

#[derive(Clone, Debug)]
pub struct BlobStore {
    directory: PathBuf,
}

impl BlobStore {
    pub fn create(directory: PathBuf) -> Result<Self, StoreError> {
        fs::create_dir_all(&directory).map_err(StoreError::io("make", &directory))?;
        Ok(Self { directory })
    }

    /// Hashes come from peers: one that is not a hash names no file.
    pub fn path(&self, hash: &str) -> Option<PathBuf> {
        let plain = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        plain.then(|| self.directory.join(hash)).filter(|path| path.exists())
    }

    pub fn writer(&self) -> Result<BlobWriter, StoreError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let part = self.directory.join(format!("part-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
        let file = File::create(&part).map_err(StoreError::io("make", &part))?;
        Ok(BlobWriter { out: BufWriter::with_capacity(1 << 16, file), hasher: blake3::Hasher::new(), part })
    }
}

/// What a blob with this content is called.
pub fn blob_hash(data: &[u8]) -> String {
    blake3::hash(data).to_hex().to_string()
}

pub struct BlobWriter {
    out: BufWriter<File>,
    hasher: blake3::Hasher,
    part: PathBuf,
}

impl BlobWriter {
    pub fn finish(mut self) -> Result<String, StoreError> {
        self.out.flush().map_err(StoreError::io("write", &self.part))?;
        let hash = self.hasher.finalize().to_hex().to_string();
        let path = self.part.parent().unwrap_or(Path::new(".")).join(&hash);
        fs::rename(&self.part, &path).map_err(StoreError::io("make", &path))?;
        Ok(hash)
    }
}

impl Write for BlobWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.hasher.update(data);
        self.out.write_all(data)?;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
