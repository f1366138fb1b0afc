//! A rank's own log of its reports: the worker appends, the agent reads behind it.
//!
//! A record is its length, the checksum of its bytes, and its bytes, written with one call: what a worker has written is
//! there after its death. The reader stops before a record that is not complete, and comes back.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::error::StoreError;

const HEADER: usize = 8;
/// A reader takes at most this much at a time.
const PIECE: u64 = 4 << 20;

pub struct ReportLogWriter {
    file: File,
    buffer: Vec<u8>,
}

impl ReportLogWriter {
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let file = File::options().create(true).append(true).open(path).map_err(StoreError::io("open", path))?;
        Ok(Self { file, buffer: Vec::with_capacity(1024) })
    }

    /// Appends the record that `encode` writes into the buffer.
    pub fn append(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.extend_from_slice(&[0; HEADER]);
        encode(&mut self.buffer);
        let payload = &self.buffer[HEADER..];
        let length = u32::try_from(payload.len()).map_err(|_| io::Error::other("a report of more than 4 GB"))?;
        let checksum = crc32fast::hash(payload);
        self.buffer[..4].copy_from_slice(&length.to_le_bytes());
        self.buffer[4..HEADER].copy_from_slice(&checksum.to_le_bytes());
        self.file.write_all(&self.buffer)
    }
}

pub struct ReportLogReader {
    file: File,
    path: PathBuf,
    pending: Vec<u8>,
    offset: u64,
}

impl ReportLogReader {
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)
            .map_err(StoreError::io("open", path))?;
        Ok(Self { file, path: path.to_owned(), pending: Vec::new(), offset: 0 })
    }

    /// Begins the file anew if what was read of it is longer than that; nobody may be writing.
    pub fn empty_if_longer(&mut self, bytes: u64) -> Result<(), StoreError> {
        if self.offset > bytes {
            let empty = self.file.set_len(0).and_then(|()| self.file.rewind());
            empty.map_err(StoreError::io("empty", &self.path))?;
            self.offset = 0;
            self.pending.clear();
        }
        Ok(())
    }

    /// Hands each new complete record to `take`; true when there may be more at once.
    pub fn read(&mut self, mut take: impl FnMut(&[u8])) -> Result<bool, StoreError> {
        let before = self.pending.len();
        (&mut self.file).take(PIECE).read_to_end(&mut self.pending).map_err(StoreError::io("read", &self.path))?;
        let read = (self.pending.len() - before) as u64;
        let mut at = 0;
        while let Some(header) = self.pending.get(at..at + HEADER) {
            let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
            let checksum = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
            let Some(payload) = self.pending.get(at + HEADER..at + HEADER + length) else { break };
            if crc32fast::hash(payload) != checksum {
                return Err(StoreError::Damaged { path: self.path.clone(), offset: self.offset + at as u64 });
            }
            take(payload);
            at += HEADER + length;
        }
        self.pending.drain(..at);
        self.offset += at as u64;
        Ok(read == PIECE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(reader: &mut ReportLogReader) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        while reader.read(|record| records.push(record.to_vec())).unwrap() {}
        records
    }

    #[test]
    fn a_log_that_has_grown_long_begins_anew_and_loses_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut reader = ReportLogReader::open(&path).unwrap();
        for (limit, left) in [(1 << 20, 2 * (HEADER as u64 + 3)), (10, 0)] {
            let mut writer = ReportLogWriter::open(&path).unwrap();
            for word in [b"one", b"two"] {
                writer.append(|out| out.extend_from_slice(word)).unwrap();
            }
            assert_eq!(read_all(&mut reader), [b"one", b"two"]);
            reader.empty_if_longer(limit).unwrap();
            assert_eq!(path.metadata().unwrap().len(), left);
        }
        ReportLogWriter::open(&path).unwrap().append(|out| out.extend_from_slice(b"three")).unwrap();
        assert_eq!(read_all(&mut reader), [b"three"]);
    }

    #[test]
    fn a_torn_record_is_waited_for_and_a_damaged_one_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut reader = ReportLogReader::open(&path).unwrap();
        let mut writer = ReportLogWriter::open(&path).unwrap();
        writer.append(|out| out.extend_from_slice(b"one")).unwrap();
        assert_eq!(read_all(&mut reader), [b"one"]);

        let mut whole = Vec::new();
        {
            let other = directory.path().join("other");
            ReportLogWriter::open(&other).unwrap().append(|out| out.extend_from_slice(b"second")).unwrap();
            File::open(&other).unwrap().read_to_end(&mut whole).unwrap();
        }
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(&whole[..10]).unwrap();
        assert!(read_all(&mut reader).is_empty(), "half a record is none");
        file.write_all(&whole[10..]).unwrap();
        assert_eq!(read_all(&mut reader), [b"second"]);

        file.write_all(&[1, 0, 0, 0, 9, 9, 9, 9, 7]).unwrap();
        let error = reader.read(|_| {}).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { offset: 25, .. }), "{error}");
    }
}
