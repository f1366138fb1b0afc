//! A rank's own log of its reports: the worker appends, the agent reads behind it.
//!
//! A record is its length, the checksum of its bytes, and its bytes, written with one call: what a worker has written is
//! there after its death. The reader stops before a record that is not complete, and comes back.
//!
//! LOG-1: an append that fails leaves nothing behind, so that the next record can be read.
//! LOG-2: what the reader has passed on takes no room: the log of a long run is as small as what is on its way.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{FallocateFlags, fallocate};

use crate::append::take_back;
use crate::error::StoreError;
use crate::faults::room;

const HEADER: usize = 8;
/// A reader takes at most this much at a time.
const PIECE: u64 = 4 << 20;
/// So much is given back to the file system at a time.
const FREE_FROM: i64 = 1 << 20;

pub struct ReportLogWriter {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
}

impl ReportLogWriter {
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let file = File::options().create(true).append(true).open(path).map_err(StoreError::io("open", path))?;
        Ok(Self { path: path.to_owned(), file, buffer: Vec::with_capacity(1024) })
    }

    /// Appends the record that `encode` writes into the buffer; its length.
    pub fn append(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> io::Result<usize> {
        self.buffer.clear();
        self.buffer.extend_from_slice(&[0; HEADER]);
        encode(&mut self.buffer);
        let payload = &self.buffer[HEADER..];
        let length = u32::try_from(payload.len()).map_err(|_| io::Error::other("a report of more than 4 GB"))?;
        let checksum = crc32fast::hash(payload);
        self.buffer[..4].copy_from_slice(&length.to_le_bytes());
        self.buffer[4..HEADER].copy_from_slice(&checksum.to_le_bytes());
        let mut rest = &self.buffer[..];
        while !rest.is_empty() {
            match room(&self.path, rest.len()).and_then(|room| self.file.write(&rest[..room])) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(written) if written > 0 => rest = &rest[written..],
                other => {
                    let written = self.buffer.len() - rest.len();
                    if written > 0 {
                        take_back(&self.file, written)?;
                    }
                    return Err(other.err().unwrap_or_else(|| io::ErrorKind::WriteZero.into()));
                }
            }
        }
        Ok(self.buffer.len())
    }
}

pub struct ReportLogReader {
    file: File,
    path: PathBuf,
    /// Everything before has been passed on.
    offset: u64,
    /// Everything before has been given back to the file system.
    freed: u64,
    buffer: Vec<u8>,
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
        Ok(Self { file, path: path.to_owned(), offset: 0, freed: 0, buffer: Vec::new() })
    }

    /// Begins the file anew if what was read of it is longer than that; nobody may be writing.
    pub fn empty_if_longer(&mut self, bytes: u64) -> Result<(), StoreError> {
        if self.offset > bytes {
            self.file.set_len(0).map_err(StoreError::io("empty", &self.path))?;
            (self.offset, self.freed) = (0, 0);
        }
        Ok(())
    }

    /// Hands each new complete record to `take`; true when there may be more at once.
    pub fn read(&mut self, mut take: impl FnMut(&[u8])) -> Result<bool, StoreError> {
        let more = self.fill(PIECE as usize)?;
        let mut at = 0;
        while let Some(header) = self.buffer.get(at..at + HEADER) {
            let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
            let checksum = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
            if at == 0 && HEADER + length > self.buffer.len() && more {
                // One that is longer than what is read at a time.
                self.fill(HEADER + length)?;
            }
            let Some(payload) = self.buffer.get(at + HEADER..at + HEADER + length) else { break };
            if crc32fast::hash(payload) != checksum {
                return Err(StoreError::Damaged { path: self.path.clone(), offset: self.offset + at as u64 });
            }
            take(payload);
            at += HEADER + length;
        }
        self.offset += at as u64;
        self.free();
        Ok(more && at > 0)
    }

    /// Reads from behind what was passed on, always anew: half a record may be taken back by its writer. True for a full buffer.
    fn fill(&mut self, most: usize) -> Result<bool, StoreError> {
        let there = self.file.metadata().map_err(StoreError::io("look at", &self.path))?.len();
        let length = most.min(usize::try_from(there.saturating_sub(self.offset)).unwrap_or(most));
        self.buffer.resize(length, 0);
        let mut filled = 0;
        while filled < length {
            match self.file.read_at(&mut self.buffer[filled..], self.offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(StoreError::io("read", &self.path)(error)),
            }
        }
        self.buffer.truncate(filled);
        Ok(filled == most)
    }

    /// LOG-2. A file system that cannot do it keeps the log as it is.
    fn free(&mut self) {
        if self.buffer.capacity() > PIECE as usize {
            self.buffer = Vec::new();
        }
        let (from, length) = (self.freed as i64, (self.offset - self.freed) as i64);
        if length < FREE_FROM {
            return;
        }
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let _ = fallocate(&self.file, flags, from, length);
        self.freed = self.offset;
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
    fn log_2_what_was_read_takes_no_room() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("log");
        let mut reader = ReportLogReader::open(&path).unwrap();
        let mut writer = ReportLogWriter::open(&path).unwrap();
        for number in 0..40_u8 {
            let record = vec![number; (1 << 20) + usize::from(number)];
            writer.append(|out| out.extend_from_slice(&record)).unwrap();
            assert_eq!(read_all(&mut reader), [record]);
            let blocks = std::os::unix::fs::MetadataExt::blocks(&path.metadata().unwrap());
            assert!(blocks * 512 < 4 << 20, "{blocks} blocks after {number} records");
        }
        // Longer than what is read at a time.
        for size in [PIECE as usize - HEADER, PIECE as usize, 3 * PIECE as usize + 1] {
            writer.append(|out| out.extend_from_slice(&vec![7; size])).unwrap();
            writer.append(|out| out.extend_from_slice(b"next")).unwrap();
            let read = read_all(&mut reader);
            assert_eq!(read.iter().map(Vec::len).collect::<Vec<_>>(), [size, 4]);
        }
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
            whole.extend(std::fs::read(&other).unwrap());
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
