//! The memory that a group shares: a memfd that every rank maps, and what lies where in it.
//!
//! Behind one page of what the group knows come a block for every rank (who it is, how far it has come, what it asks) and
//! the slots of every rank, which data goes through. The file has no name, so that it goes with the last process.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use nix::libc;

use crate::error::CollectiveError;

/// So many steps can be under way; see STEP-2.
pub const SLOTS: usize = 8;
/// What one rank writes in one step. With [`SLOTS`] of them for each of a few ranks, all of it stays in the cache.
pub const SLOT_BYTES: usize = 64 << 10;

const MAGIC: u64 = u64::from_le_bytes(*b"carrilc1");
const PAGE: usize = 4096;

/// What the group knows.
#[repr(C)]
pub struct Header {
    pub magic: AtomicU64,
    pub world_size: AtomicU32,
    /// Why the group has failed: 0, or the first cause; see `steps::Cause`.
    pub broken: AtomicU32,
}

/// A rank's own block. Only `sleepers` is written by others.
#[repr(C, align(128))]
pub struct Block {
    /// How many steps the rank has published; the others sleep on it.
    pub published: AtomicU32,
    /// How many sleep on `published`.
    pub sleepers: AtomicU32,
    pub state: AtomicU32,
    pub pid: AtomicU32,
    pub start_time: AtomicU64,
    /// What it asks with a step: only the first of an operation says it.
    pub requests: [Request; SLOTS],
}

/// An operation in two words: what, and on how many values.
#[repr(C)]
pub struct Request {
    pub what: AtomicU64,
    pub length: AtomicU64,
}

/// The mapping.
pub struct Memory {
    base: NonNull<u8>,
    bytes: usize,
    world_size: usize,
    // Rank 0 keeps it open, so that the others find it.
    _file: File,
}

// SAFETY: the mapping stays where it is for as long as the value lives, and is shared between processes anyway.
unsafe impl Send for Memory {}

impl Memory {
    /// New memory for so many ranks.
    pub fn create(world_size: usize) -> io::Result<Self> {
        // SAFETY: the name is a C string; the result is checked.
        let descriptor = unsafe { libc::memfd_create(c"carril-collective".as_ptr(), libc::MFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was just made and nobody else has it.
        let file = unsafe { File::from_raw_fd(descriptor) };
        file.set_len(bytes_for(world_size) as u64)?;
        file.write_all_at(&MAGIC.to_ne_bytes(), 0)?;
        file.write_all_at(&(world_size as u32).to_ne_bytes(), 8)?;
        Self::map(file, world_size)
    }

    /// The memory that another process made.
    pub fn open(address: &str) -> Result<Self, CollectiveError> {
        let refuse = |reason: &str| CollectiveError::Address { address: address.to_owned(), reason: reason.to_owned() };
        let fields: Vec<u64> = address.split(':').filter_map(|field| field.parse().ok()).collect();
        let [pid, descriptor, started] = fields[..] else { return Err(refuse("it is not `pid:fd:start time`")) };
        let path = format!("/proc/{pid}/fd/{descriptor}");
        // SAFETY: it only asks.
        let own = unsafe { libc::geteuid() };
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(path)
            .map_err(|error| refuse(&format!("the process that made it is not to be reached ({error})")))?;
        // After the opening: a process that took the number over is noticed.
        if start_time(pid as u32) != Some(started) {
            return Err(refuse("the process that made it is gone"));
        }
        let metadata = file.metadata()?;
        let mut head = [0; 12];
        if metadata.uid() != own || !metadata.is_file() || file.read_exact_at(&mut head, 0).is_err() {
            return Err(refuse("what lies there is not ours"));
        }
        let (magic, world_size) = head.split_at(8);
        let world_size = u32::from_ne_bytes([world_size[0], world_size[1], world_size[2], world_size[3]]) as usize;
        if magic != MAGIC.to_ne_bytes() || metadata.len() != bytes_for(world_size) as u64 {
            return Err(refuse("what lies there is no group of this version"));
        }
        Ok(Self::map(file, world_size)?)
    }

    /// Where another process finds it for as long as this one lives.
    pub fn address(&self) -> String {
        let pid = std::process::id();
        format!("{pid}:{}:{}", self._file.as_raw_fd(), start_time(pid).unwrap_or_default())
    }

    fn map(file: File, world_size: usize) -> io::Result<Self> {
        let bytes = bytes_for(world_size);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // Populated: no page is faulted in while ranks wait for each other.
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping of a file of that size; the result is checked.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("the kernel mapped nothing"))?;
        Ok(Self { base, bytes, world_size, _file: file })
    }

    pub fn world_size(&self) -> usize {
        self.world_size
    }

    pub fn header(&self) -> &Header {
        // SAFETY: the mapping begins with it, on a page; all its fields are atomic.
        unsafe { self.base.cast().as_ref() }
    }

    pub fn block(&self, rank: usize) -> &Block {
        assert!(rank < self.world_size);
        // SAFETY: inside the mapping by the assertion; all its fields are atomic.
        unsafe { self.base.add(PAGE).cast::<Block>().add(rank).as_ref() }
    }

    /// A rank's slot for a step: [`SLOT_BYTES`] bytes, on a page.
    pub fn slot(&self, rank: usize, step: u32) -> *mut u8 {
        assert!(rank < self.world_size);
        let index = rank * SLOTS + step as usize % SLOTS;
        // SAFETY: inside the mapping by the assertion.
        unsafe { self.base.add(blocks_end(self.world_size) + index * SLOT_BYTES).as_ptr() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: nothing that was borrowed from it outlives it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

fn blocks_end(world_size: usize) -> usize {
    (PAGE + world_size * size_of::<Block>()).next_multiple_of(PAGE)
}

fn bytes_for(world_size: usize) -> usize {
    blocks_end(world_size) + world_size * SLOTS * SLOT_BYTES
}

/// When a process began, in the kernel's ticks: with it a pid names one process for ever.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so the fields are counted after it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}
