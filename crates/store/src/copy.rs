//! A copy of a file with its checksum, at the speed of the disk.
//!
//! COPY-1: the copy is a copy: shared blocks where the file system can share them, never a hard link, so that the caller may
//!   overwrite its file as soon as the call returns.
//! COPY-2: the checksum is of the bytes that were written, not of what the source holds by then.
//! Where the copy is to reach the disk, the kernel is told to start early, so that the flush at the end is short.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc;

use crate::error::StoreError;
use crate::faults::point;
use crate::local::checksum;

/// Stays in a core's own cache between the read, the checksum and the write.
const PIECE: usize = 256 << 10;
/// The kernel starts to write after so many bytes.
const WINDOW: u64 = 8 << 20;
/// Smaller files are not worth the try.
const SHARE_FROM: u64 = 256 << 10;

pub(crate) struct Copier {
    buffer: Vec<u8>,
    durable: bool,
    /// Until the file system says that it cannot.
    shares: bool,
}

impl Copier {
    pub fn new(durable: bool) -> Self {
        Self { buffer: vec![0; PIECE], durable, shares: true }
    }

    /// The size and the CRC-32C of the copy. What is at `to` is replaced.
    pub fn copy(&mut self, from: &Path, to: &Path, mode: u32) -> Result<(u64, u32), StoreError> {
        let mut source = point("open", from).and_then(|()| File::open(from)).map_err(StoreError::io("open", from))?;
        let create = || {
            point("create", to)?;
            // The owner must be able to delete and to read what was copied.
            OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(mode & 0o777 | 0o600).open(to)
        };
        let mut target = create().map_err(StoreError::io("make", to))?;
        if self.shares && self.share(&source, &mut target) {
            return checksum(&mut target).map_err(StoreError::io("read", to));
        }
        let (mut size, mut crc32c, mut started) = (0, 0, 0);
        loop {
            let read = read_piece(&mut source, &mut self.buffer).map_err(StoreError::io("read", from))?;
            let piece = &self.buffer[..read];
            crc32c = crc32c::crc32c_append(crc32c, piece);
            point("write", to).and_then(|()| target.write_all(piece)).map_err(StoreError::io("write", to))?;
            size += read as u64;
            if self.durable && size - started >= WINDOW {
                start_writing(&target, started, size - started);
                started = size;
            }
            if read < self.buffer.len() {
                return Ok((size, crc32c));
            }
        }
    }

    fn share(&mut self, source: &File, target: &mut File) -> bool {
        if source.metadata().map_or(0, |meta| meta.len()) < SHARE_FROM {
            return false;
        }
        // SAFETY: both descriptors are open for the time of the call.
        let shared = unsafe { libc::ioctl(target.as_raw_fd(), libc::FICLONE, source.as_raw_fd()) } == 0;
        self.shares = shared;
        shared
    }
}

/// Fills the buffer, or reaches the end of the file: one call for a small file on most file systems.
fn read_piece(source: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Asks the kernel to begin; whether it did is seen by the flush.
pub(crate) fn start_writing(file: &File, offset: u64, length: u64) {
    // SAFETY: the descriptor is open for the time of the call.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset as i64, length as i64, libc::SYNC_FILE_RANGE_WRITE);
    }
}
