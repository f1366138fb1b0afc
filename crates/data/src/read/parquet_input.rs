//! Where the Parquet decoder gets its bytes: page by page from a local file, in a few large ranges from elsewhere.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

use crate::error::DataError;
use crate::files::{FileRef, in_parallel};

/// Ranges of a remote file that are no further apart than this are fetched as one.
const GAP: u64 = 1 << 20;
/// Headers of pages are some tens of bytes long.
const HEADER: usize = 512;

pub(crate) enum Input {
    Local { file: Arc<File>, size: u64 },
    Remote { file: Box<FileRef>, parts: Vec<(u64, Bytes)> },
}

impl Input {
    /// For a local file nothing is read ahead.
    pub fn open(file: &FileRef, ranges: Vec<Range<u64>>) -> std::result::Result<Self, DataError> {
        if let Some(root) = file.storage.local_path() {
            let opened =
                File::open(root.join(&file.key)).map_err(|error| DataError::damaged(&file.name, None, error))?;
            return Ok(Input::Local { file: Arc::new(opened), size: file.size });
        }
        let wanted = join_ranges(ranges);
        let read = in_parallel(&wanted, |range| file.read_range(range.clone()))?;
        let parts = wanted.iter().map(|range| range.start).zip(read).collect();
        Ok(Input::Remote { file: Box::new(file.clone()), parts })
    }
}

fn join_ranges(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end + GAP => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

impl Length for Input {
    fn len(&self) -> u64 {
        match self {
            Input::Local { size, .. } => *size,
            Input::Remote { file, .. } => file.size,
        }
    }
}

pub(crate) enum InputRead {
    Local(BufReader<At>),
    Remote(bytes::buf::Reader<Bytes>),
}

/// Reads on from an offset, without a position that others share.
pub(crate) struct At {
    file: Arc<File>,
    offset: u64,
}

impl Read for At {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

impl Read for InputRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            InputRead::Local(read) => read.read(buffer),
            InputRead::Remote(read) => read.read(buffer),
        }
    }
}

impl BufRead for InputRead {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self {
            InputRead::Local(read) => read.fill_buf(),
            InputRead::Remote(read) => read.fill_buf(),
        }
    }

    fn consume(&mut self, amount: usize) {
        match self {
            InputRead::Local(read) => read.consume(amount),
            InputRead::Remote(read) => read.consume(amount),
        }
    }
}

impl ChunkReader for Input {
    type T = InputRead;

    fn get_read(&self, start: u64) -> Result<InputRead> {
        match self {
            Input::Local { file, .. } => {
                let at = At { file: file.clone(), offset: start };
                Ok(InputRead::Local(BufReader::with_capacity(HEADER, at)))
            }
            Input::Remote { parts, .. } => match find(parts, start, 1) {
                Some(bytes) => Ok(InputRead::Remote(bytes.reader())),
                None => {
                    let length = self.len().saturating_sub(start).min(GAP);
                    Ok(InputRead::Remote(self.get_bytes(start, length as usize)?.reader()))
                }
            },
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.len()) {
            let why = format!("{length} bytes are missing at byte {start} of {}", self.len());
            return Err(ParquetError::EOF(why));
        }
        match self {
            Input::Local { file, .. } => {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, start)?;
                Ok(bytes.into())
            }
            Input::Remote { file, parts } => match find(parts, start, length) {
                Some(bytes) => Ok(bytes.slice(..length)),
                None => file
                    .read_range(start..start + length as u64)
                    .map_err(|error| ParquetError::External(Box::new(error))),
            },
        }
    }
}

/// What was fetched from an offset on, if it is this long.
fn find(parts: &[(u64, Bytes)], start: u64, length: usize) -> Option<Bytes> {
    let (offset, bytes) = parts.iter().rev().find(|(offset, _)| *offset <= start)?;
    let from = (start - offset) as usize;
    (from + length <= bytes.len()).then(|| bytes.slice(from..))
}
