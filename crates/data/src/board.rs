//! What the ranks of one machine tell each other in one epoch: how many batches each has, one ahead of the one that it hands over. So
//! nobody begins a step that another rank will not make.
//!
//! BOARD-1: that a rank's batches are complete is published after their number: whoever sees the one sees the other.
//! BOARD-2: nobody waits here for longer than asked: whoever is called from Python looks after signals in between.
//! BOARD-3: a rank that is waited for long is asked after. One that has returned is not waited for any more, and where no rank can go on the
//!   wait is an error.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use carril_store::StoreError;
use nix::libc;

use crate::error::DataError;
use crate::order::Position;
use crate::shard::ShardOptions;
use crate::watch::{Asked, Found, Watch};

/// A rank's place: how many batches it has, whether these are all, whether its position is final, and that position.
const WORDS: usize = 7;
const FINAL: usize = 2;
const POSITION: usize = 3;
/// More than anybody has: this rank is not waited for any more.
const LEFT: u64 = 1 << 62;
/// After so long somebody is asked. Most waits are far shorter, and cost no message.
const ASKED_AFTER: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// A file that every rank has mapped.
pub(crate) struct Board {
    words: NonNull<AtomicU64>,
    world: usize,
    rank: usize,
    /// Of which data set, for people, and who is asked.
    name: String,
    watch: Option<Arc<dyn Watch>>,
    waiting: Option<Waiting>,
    /// Ranks that have returned, as far as that was found here.
    pub returned: BTreeSet<usize>,
}

/// Since when something is waited for.
struct Waiting {
    since: Instant,
    asked: Option<Box<dyn Asked>>,
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
    /// Ranks in `returned` are not waited for.
    pub fn open(path: &Path, options: &ShardOptions, returned: BTreeSet<usize>) -> Result<Self, DataError> {
        let ShardOptions { world, rank, name, watch, .. } = options;
        let (world, rank) = (*world, *rank);
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
            Some(words) => {
                let (name, watch) = (name.clone(), watch.clone());
                let mut board = Self { words, world, rank, name, watch, waiting: None, returned: BTreeSet::new() };
                board.note_returned(returned);
                Ok(board)
            }
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

    /// Whoever has told its end is waited for no longer anyhow.
    fn note_returned(&mut self, ranks: impl IntoIterator<Item = usize>) {
        for rank in ranks.into_iter().filter(|rank| *rank < self.world) {
            let place = &self.places()[rank * WORDS..][..WORDS];
            if place[1].load(Ordering::Acquire) == 0 && place[FINAL].load(Ordering::Acquire) == 0 {
                place[0].store(LEFT, Ordering::Release);
            }
            self.returned.insert(rank);
        }
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
    pub fn all_have(&mut self, batches: u64, patience: Duration) -> Result<Option<bool>, DataError> {
        self.wait(patience, |board| {
            let count = board.count(batches);
            match (count.has_not, &count.unknown[..]) {
                (0, []) => Ok(true),
                (0, _) => Err((format!("batch {batches}"), count.unknown)),
                _ => Ok(false),
            }
        })
    }

    /// Whether some rank has so many and comes to them; nothing when that is not known in time.
    pub fn another_has(&mut self, batches: u64, patience: Duration) -> Result<Option<bool>, DataError> {
        self.wait(patience, |board| {
            let count = board.count(batches);
            match (count.has, &count.unknown[..]) {
                (0, []) => Ok(false),
                (0, _) => Err((format!("batch {batches}"), count.unknown)),
                _ => Ok(true),
            }
        })
    }

    /// Where every rank was when its batches ended; nothing when that is not known in time.
    pub fn all_ended(&mut self, patience: Duration) -> Result<Option<Ended>, DataError> {
        self.wait(patience, |board| {
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
        decide: impl Fn(&Self) -> Result<T, (String, Vec<usize>)>,
    ) -> Result<Option<T>, DataError> {
        let (began, mut pause) = (Instant::now(), Duration::from_micros(100));
        loop {
            // Before the look at the board: whoever was found to wait may have told something just before.
            let found = self.waiting.as_mut().and_then(|waiting| waiting.asked.as_mut()?.found());
            if let Some(Found::Returned(ranks)) = &found {
                self.note_returned(ranks.iter().copied());
            }
            let (what, unknown) = match decide(self) {
                Ok(decided) => {
                    self.waiting = None;
                    return Ok(Some(decided));
                }
                Err(missing) => missing,
            };
            match found {
                Some(Found::Hopeless(failure)) => return Err(DataError::Hopeless(failure)),
                Some(Found::Returned(_)) => self.waiting = None,
                None => {}
            }
            let waiting = self.waiting.get_or_insert(Waiting { since: began, asked: None });
            if waiting.asked.is_none() && waiting.since.elapsed() > ASKED_AFTER {
                let what = format!("{what} of `{}`", self.name);
                waiting.asked = self.watch.as_ref().and_then(|watch| watch.ask(&what, &unknown));
            }
            if began.elapsed() > patience {
                return Ok(None);
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
