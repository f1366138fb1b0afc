//! What the ranks of one machine tell each other in one epoch: how many batches each has, one ahead of the one that it hands over. So
//! nobody begins a step that another rank will not make.
//!
//! BOARD-1: that a rank's batches are all is told with a number that was told before: whoever sees the one sees the other.
//! BOARD-2: nobody waits here for longer than asked: whoever is called from Python looks after signals in between.

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
use crate::order::Position;

/// A rank's place: how many batches it has, whether these are all, whether its position is final, and that position.
const WORDS: usize = 7;
const FINAL: usize = 2;
const POSITION: usize = 3;
/// More than anybody has: this rank is not waited for any more.
const LEFT: u64 = 1 << 62;
const TOLD_AFTER: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// A file that every rank has mapped.
pub(crate) struct Board {
    words: NonNull<AtomicU64>,
    world: usize,
    rank: usize,
    /// Since when something is waited for, and whether that was told.
    waiting: Option<(Instant, bool)>,
}

/// How far the ranks were when they ended.
pub(crate) enum Ended {
    All(Vec<Position>),
    /// One of them went before the end.
    Left,
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
            Some(words) => Ok(Self { words, world, rank, waiting: None }),
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

    /// Where this rank was when its batches ended.
    pub fn end_at(&self, position: Position) {
        let own = &self.places()[self.rank * WORDS..][..WORDS];
        let Position { pieces, done, rows, own: handed } = position;
        for (word, number) in own[POSITION..].iter().zip([pieces, done, rows, handed]) {
            word.store(number, Ordering::Release);
        }
        own[FINAL].store(1, Ordering::Release);
    }

    /// Whether every rank has so many; nothing when that is not known in time.
    pub fn all_have(&mut self, batches: u64, patience: Duration, warn: &dyn Fn(&str)) -> Option<bool> {
        self.wait(patience, warn, |board| {
            let count = board.count(batches);
            match (count.has_not, &count.unknown[..]) {
                (0, []) => Ok(true),
                (0, _) => Err((format!("batch {batches}"), count.unknown)),
                _ => Ok(false),
            }
        })
    }

    /// Whether some rank has so many and comes to them; nothing when that is not known in time.
    pub fn another_has(&mut self, batches: u64, patience: Duration, warn: &dyn Fn(&str)) -> Option<bool> {
        self.wait(patience, warn, |board| {
            let count = board.count(batches);
            match (count.has, &count.unknown[..]) {
                (0, []) => Ok(false),
                (0, _) => Err((format!("batch {batches}"), count.unknown)),
                _ => Ok(true),
            }
        })
    }

    /// Where every rank was when its batches ended; nothing when that is not known in time.
    pub fn all_ended(&mut self, patience: Duration, warn: &dyn Fn(&str)) -> Option<Ended> {
        self.wait(patience, warn, |board| {
            let mut positions = Vec::new();
            let mut unknown = Vec::new();
            for (rank, place) in board.places().chunks_exact(WORDS).enumerate() {
                if place[FINAL].load(Ordering::Acquire) == 0 {
                    if place[0].load(Ordering::Acquire) == LEFT {
                        return Ok(Ended::Left);
                    }
                    unknown.push(rank);
                    continue;
                }
                let number = |at: usize| place[POSITION + at].load(Ordering::Acquire);
                positions.push(Position { pieces: number(0), done: number(1), rows: number(2), own: number(3) });
            }
            if unknown.is_empty() { Ok(Ended::All(positions)) } else { Err(("the end".to_owned(), unknown)) }
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

    /// What `decide` says, if it does so in time; otherwise it says what is waited for, and from whom.
    fn wait<T>(
        &mut self,
        patience: Duration,
        warn: &dyn Fn(&str),
        decide: impl Fn(&Self) -> Result<T, (String, Vec<usize>)>,
    ) -> Option<T> {
        let (began, mut pause) = (Instant::now(), Duration::from_micros(100));
        loop {
            let (what, unknown) = match decide(self) {
                Ok(decided) => {
                    self.waiting = None;
                    return Some(decided);
                }
                Err(missing) => missing,
            };
            let (since, is_told) = self.waiting.get_or_insert((began, false));
            if !*is_told && since.elapsed() > TOLD_AFTER {
                *is_told = true;
                let ranks: Vec<String> = unknown.iter().map(usize::to_string).collect();
                warn(&format!("waiting for {what} of rank {}", ranks.join(", ")));
            }
            if began.elapsed() > patience {
                return None;
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
