//! A copy of a file with its checksum, at the speed of the disk.
//!
//! COPY-1: the copy is a copy: shared blocks where the file system can share them, never a hard link, so that the caller may
//!   overwrite its file as soon as the call returns.
//! COPY-2: the checksum is of the bytes that were written, not of what the source holds by then.
//! Where the copy is to reach the disk, the kernel is told to start early, so that the flush at the end is short.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

use nix::libc;

use crate::error::StoreError;
use crate::faults::point;
use crate::local::checksum;
use crate::regular;

/// Stays in a core's own cache between the read, the checksum and the write.
const PIECE: usize = 256 << 10;
/// The kernel starts to write after so many bytes.
const WINDOW: u64 = 8 << 20;
/// Smaller files are not worth the try.
const SHARE_FROM: u64 = 256 << 10;
/// Smaller files are not worth a thread.
const BY_THE_KERNEL_FROM: u64 = 16 << 20;

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
        let mut source =
            point("open", from).and_then(|()| regular::open(from)).map_err(StoreError::io("open", from))?;
        let create = || {
            point("create", to)?;
            // The owner must be able to delete and to read what was copied.
            OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(mode & 0o777 | 0o600).open(to)
        };
        let mut target = create().map_err(StoreError::io("make", to))?;
        let length = source.metadata().map_or(0, |meta| meta.len());
        if self.shares && length >= SHARE_FROM && self.share(&source, &mut target) {
            return checksum(&mut target).map_err(StoreError::io("read", to));
        }
        let mut writing = Writing { target: &target, to, durable: self.durable, size: 0, started: 0 };
        if length >= BY_THE_KERNEL_FROM
            && let Some(copied) = copy_by_the_kernel(&source, &mut writing)?
        {
            return Ok(copied);
        }
        let mut crc32c = 0;
        loop {
            let read = read_piece(&mut source, &mut self.buffer).map_err(StoreError::io("read", from))?;
            let piece = &self.buffer[..read];
            crc32c = crc32c::crc32c_append(crc32c, piece);
            writing.write(piece)?;
            if read < self.buffer.len() {
                return Ok((writing.size, crc32c));
            }
        }
    }

    fn share(&mut self, source: &File, target: &mut File) -> bool {
        // SAFETY: both descriptors are open for the time of the call.
        let shared = unsafe { libc::ioctl(target.as_raw_fd(), libc::FICLONE, source.as_raw_fd()) } == 0;
        self.shares = shared;
        shared
    }
}

struct Writing<'a> {
    target: &'a File,
    to: &'a Path,
    durable: bool,
    size: u64,
    /// What the kernel was told to bring to the disk.
    started: u64,
}

impl Writing<'_> {
    fn write(&mut self, piece: &[u8]) -> Result<(), StoreError> {
        let written = point("write", self.to).and_then(|()| self.target.write_all(piece));
        written.map_err(StoreError::io("write", self.to))?;
        self.advance(piece.len() as u64);
        Ok(())
    }

    fn advance(&mut self, written: u64) {
        self.size += written;
        if self.durable && self.size - self.started >= WINDOW {
            start_writing(self.target, self.started, self.size - self.started);
            self.started = self.size;
        }
    }
}

/// By the kernel, without a way through this process; a second thread counts what has arrived. `None` where the kernel does not.
fn copy_by_the_kernel(source: &File, writing: &mut Writing) -> Result<Option<(u64, u32)>, StoreError> {
    let (told, arrived) = channel::<u64>();
    std::thread::scope(move |scope| {
        let (target, to) = (writing.target, writing.to);
        let counter = scope.spawn(move || checksum_of_what_arrives(target, &arrived));
        loop {
            let copied = point("write", to).and_then(|()| copy_range(source, target, WINDOW as usize));
            match copied {
                Ok(0) => break,
                Ok(copied) => writing.advance(copied as u64),
                Err(error) if writing.size == 0 && is_refusal(&error) => return Ok(None),
                Err(error) => return Err(StoreError::io("write", to)(error)),
            }
            let _ = told.send(writing.size);
        }
        drop(told);
        let counted = counter.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(Some((writing.size, counted.map_err(StoreError::io("read", to))?)))
    })
}

fn copy_range(source: &File, target: &File, most: usize) -> io::Result<usize> {
    let (no_offset, flags) = (std::ptr::null_mut(), 0);
    // SAFETY: both descriptors are open for the time of the call, and it is given no pointer.
    let copied =
        unsafe { libc::copy_file_range(source.as_raw_fd(), no_offset, target.as_raw_fd(), no_offset, most, flags) };
    usize::try_from(copied).map_err(|_| io::Error::last_os_error())
}

/// From one file system to another, and where one of them has its own ideas.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EXDEV | libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP | libc::EPERM))
}

fn checksum_of_what_arrives(target: &File, arrived: &Receiver<u64>) -> io::Result<u32> {
    let (mut buffer, mut at, mut crc32c) = (vec![0; PIECE], 0, 0);
    for size in arrived {
        while at < size {
            let piece = buffer.len().min((size - at) as usize);
            target.read_exact_at(&mut buffer[..piece], at)?;
            crc32c = crc32c::crc32c_append(crc32c, &buffer[..piece]);
            at += piece as u64;
        }
    }
    Ok(crc32c)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(size: usize) -> Vec<u8> {
        (0..size).map(|at| (at * 31 + at / 251) as u8).collect()
    }

    #[test]
    fn copies_of_every_size_have_the_content_and_its_checksum() {
        let here = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
        let large = BY_THE_KERNEL_FROM as usize;
        for size in [0, 1, PIECE - 1, PIECE, PIECE + 1, large - 1, large, large + 12_345, 3 * WINDOW as usize + 7] {
            let (from, content) = (here.path().join("from"), bytes(size));
            std::fs::write(&from, &content).unwrap();
            // The kernel copies within a file system, and refuses from one kind to another.
            for to in [here.path().join("to"), elsewhere.path().join("to")] {
                for durable in [false, true] {
                    let copied = Copier::new(durable).copy(&from, &to, 0o644).unwrap();
                    assert_eq!(copied, (size as u64, crc32c::crc32c(&content)), "{size} bytes to {}", to.display());
                    assert!(std::fs::read(&to).unwrap() == content, "{size} bytes to {}", to.display());
                }
            }
        }
    }

    #[test]
    fn what_is_refused_is_not_what_fails() {
        assert!(is_refusal(&io::Error::from_raw_os_error(libc::EXDEV)));
        assert!(!is_refusal(&io::Error::from_raw_os_error(libc::ENOSPC)));
        assert!(!is_refusal(&io::Error::from_raw_os_error(libc::EIO)));
    }

    #[test]
    fn a_large_copy_that_fails_on_its_way_ends() {
        let here = tempfile::tempdir().unwrap();
        let (from, to) = (here.path().join("from"), here.path().join("to"));
        std::fs::write(&from, bytes(BY_THE_KERNEL_FROM as usize)).unwrap();
        let source = File::open(&from).unwrap();
        std::fs::write(&to, "").unwrap();
        // A target that cannot be written.
        let target = File::open(&to).unwrap();
        let mut writing = Writing { target: &target, to: &to, durable: true, size: 0, started: 0 };
        assert!(matches!(copy_by_the_kernel(&source, &mut writing), Err(StoreError::Io { .. })));
    }
}
