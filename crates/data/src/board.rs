//! What the ranks of one machine tell each other in one epoch: how many batches each has, one ahead of the one that it hands over. So
//! nobody begins a step that another rank will not make.
//!
//! BOARD-1: that a rank's batches are all is told with a number that was told before: whoever sees the one sees the other.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use carril_store::StoreError;
use nix::libc;

use crate::error::DataError;

/// A rank's place: how many batches it has, and whether these are all.
const WORDS: usize = 2;
/// More than anybody has: this rank is not waited for any more.
const LEFT: u64 = 1 << 62;
const TOLD_AFTER: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// A file that every rank has mapped.
pub(crate) struct Board {
    words: NonNull<AtomicU64>,
    world: usize,
    rank: usize,
}

// SAFETY: the memory is shared by design, and only looked at as atomics.
unsafe impl Send for Board {}

/// How many ranks have a batch of some number, how many have not, and who may yet.
#[derive(Default)]
struct Count {
    has: usize,
    has_not: usize,
    unknown: Vec<usize>,
}

impl Board {
    pub fn open(path: &Path, world: usize, rank: usize) -> Result<Self, DataError> {
        let failed = |source| StoreError::Io { what: "map", path: path.to_owned(), source };
        let mut options = File::options();
        let file =
            options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map_err(failed)?;
        let bytes = Self::bytes(world);
        file.set_len(bytes as u64).map_err(failed)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file that is long enough; it is ours until `drop`.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        match NonNull::new(base.cast()).filter(|_| base != libc::MAP_FAILED) {
            Some(words) => Ok(Self { words, world, rank }),
            None => Err(failed(std::io::Error::last_os_error()).into()),
        }
    }

    fn bytes(world: usize) -> usize {
        world * WORDS * size_of::<u64>()
    }

    fn places(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has so many words, is page-aligned and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.world * WORDS) }
    }

    pub fn tell(&self, batches: u64, is_all: bool) {
        let own = &self.places()[self.rank * WORDS..][..WORDS];
        own[1].store(u64::from(is_all), Ordering::Release);
        own[0].store(batches, Ordering::Release);
    }

    /// This rank goes before the end of the epoch.
    pub fn leave(&self) {
        self.places()[self.rank * WORDS].store(LEFT, Ordering::Release);
    }

    /// Whether every rank has so many; waits until that is known.
    pub fn all_have(&self, batches: u64, warn: &dyn Fn(&str)) -> bool {
        self.wait(batches, warn, |count| match (count.has_not, &count.unknown[..]) {
            (0, []) => Some(true),
            (0, _) => None,
            _ => Some(false),
        })
    }

    /// Whether some rank has so many and comes to them; waits until that is known.
    pub fn another_has(&self, batches: u64, warn: &dyn Fn(&str)) -> bool {
        self.wait(batches, warn, |count| match (count.has, &count.unknown[..]) {
            (0, []) => Some(false),
            (0, _) => None,
            _ => Some(true),
        })
    }

    fn count(&self, batches: u64) -> Count {
        let mut count = Count::default();
        for (rank, place) in self.places().chunks_exact(WORDS).enumerate() {
            // In the other order than they are written.
            let there = place[0].load(Ordering::Acquire);
            let is_all = place[1].load(Ordering::Acquire) != 0;
            match (there >= batches, is_all) {
                (true, _) => count.has += usize::from(there < LEFT),
                (false, true) => count.has_not += 1,
                (false, false) => count.unknown.push(rank),
            }
        }
        count
    }

    /// What `decide` says, as soon as it says something.
    fn wait(&self, batches: u64, warn: &dyn Fn(&str), decide: impl Fn(&Count) -> Option<bool>) -> bool {
        let (began, mut is_told, mut pause) = (Instant::now(), false, Duration::from_micros(100));
        loop {
            let count = self.count(batches);
            if let Some(decided) = decide(&count) {
                return decided;
            }
            if !is_told && began.elapsed() > TOLD_AFTER {
                is_told = true;
                let ranks: Vec<String> = count.unknown.iter().map(usize::to_string).collect();
                warn(&format!("waiting for batch {batches} of rank {}", ranks.join(", ")));
            }
            // Looking costs less than a microsecond, and ranks are seldom far apart. One that dies takes the group along.
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: it was mapped in `open` with this length, and nobody has a reference to it any more.
        unsafe { libc::munmap(self.words.as_ptr().cast(), Self::bytes(self.world)) };
    }
}
