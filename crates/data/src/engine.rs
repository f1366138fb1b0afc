//! A stream of blocks: threads read pieces ahead, in memory that is bounded, and hand them over in their order.
//!
//! ENGINE-1: blocks come in the order of the pieces, whatever the number of threads.
//! ENGINE-2: what is read and not yet taken, what the threads have in their hands, and what was freed and not given back fit into the
//!   budget, but for one block of the piece whose turn it is: it must come, or nothing would.
//! ENGINE-3: windows that can be read column by column are read by all threads together until there is a first batch, and only
//!   then one by each.
//! ENGINE-4: an error comes in its turn, after every block before it, and ends the stream.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use arrow_array::{Array, RecordBatch};

use crate::error::DataError;
use crate::order::Piece;
use crate::pieces::{self, Reading};
use crate::source::{Flow, Source};

/// So much of the budget is for what was freed and not given back yet.
const FREED: u64 = 8;
/// So much is for what functions hold, in processes of their own, where there are any.
const FUNCTIONS: u64 = 4;
/// And at most so much for the piece whose turn it is, whatever those after it have read.
const HEADROOM: u64 = 4;
/// To give memory back costs, and what was given back must be had again.
const SMALLEST_TRIM: u64 = 4 << 20;
/// The C library keeps freed memory for the next block until it is given back here: so much of the budget, and at most this.
const KEPT: u64 = 64 << 20;
/// The largest that it takes: a block's columns must not be mapped one by one.
const LARGEST_NOT_MAPPED: i32 = 32 << 20;

/// What becomes of blocks on their way. Used by several threads at once.
pub trait Transform: Send + Sync {
    fn apply(&self, block: RecordBatch) -> Result<Vec<RecordBatch>, DataError>;

    /// Whether it gives a row for each row, in their order.
    fn keeps_rows(&self) -> bool;

    /// Whether what it gives may lie in the memory of what it was given.
    fn shares_memory(&self) -> bool {
        true
    }
}

/// What is read, and what becomes of it.
#[derive(Clone)]
pub struct Pipeline {
    pub source: Arc<dyn Source>,
    pub transforms: Vec<Arc<dyn Transform>>,
}

impl Pipeline {
    /// Whether the number of rows of each unit is known before it is read.
    pub fn is_counted(&self) -> bool {
        self.transforms.iter().all(|one| one.keeps_rows()) && self.source.units().iter().all(|unit| unit.rows.is_some())
    }
}

#[derive(Clone, Copy, Debug)]
pub struct StreamOptions {
    pub threads: usize,
    /// In bytes.
    pub budget: u64,
    /// Blocks that are rebuilt have a multiple of so many rows.
    pub batch: usize,
    /// How many rows are changed together, where they are not kept.
    pub chunk: Option<usize>,
    /// By which the rows of a chunk are mixed.
    pub mixed_by: Option<u64>,
}

/// What a stream has now.
pub enum Next {
    /// A block, the number of its piece, and how many rows of that one were done with before.
    Block(usize, u64, RecordBatch),
    /// Nothing yet.
    Pending,
    Ended,
}

pub struct Stream {
    shared: Arc<Shared>,
}

struct Shared {
    reading: Reading,
    pieces: Vec<Piece>,
    threads: usize,
    budget: u64,
    /// So much of it is left to the piece whose turn it is.
    headroom: u64,
    /// Freed memory is given back whenever so many bytes were handed over.
    trimmed_every: u64,
    ahead: usize,
    state: Mutex<State>,
    /// For the threads: there is room, or it is over.
    room: Condvar,
    /// For the consumer: there is something.
    ready: Condvar,
}

#[derive(Default)]
struct State {
    /// Those that threads have begun, from the one whose turn it is.
    begun: VecDeque<Slot>,
    /// The number of the first of them.
    turn: usize,
    used: u64,
    /// How many more rows make the first batch. Nothing where threads cannot help each other.
    missing: usize,
    /// What was handed over since freed memory was last given back.
    untrimmed: u64,
    cancelled: bool,
}

#[derive(Default)]
struct Slot {
    blocks: VecDeque<(u64, RecordBatch)>,
    is_over: bool,
    error: Option<DataError>,
}

impl Stream {
    pub fn start(pipeline: Pipeline, pieces: Vec<Piece>, options: StreamOptions) -> Stream {
        keep_freed((options.budget / FREED).clamp(SMALLEST_TRIM, KEPT));
        let threads = options.threads.clamp(1, pieces.len().max(1));
        let StreamOptions { batch, chunk, mixed_by, .. } = options;
        let reading = Reading { pipeline, batch: batch.max(1), chunk, mixed_by };
        let is_shared = pieces.first().is_some_and(|first| reading.is_shared(first));
        let state = State { missing: if is_shared { reading.batch } else { 0 }, ..State::default() };
        let has_functions = reading.pipeline.transforms.iter().any(|one| !one.shares_memory());
        let functions = if has_functions { options.budget / FUNCTIONS } else { 0 };
        let budget = options.budget - options.budget / FREED - functions;
        let largest = pieces.iter().map(|piece| pieces::in_hand(piece, &*reading.pipeline.source)).max().unwrap_or(0);
        let shared = Arc::new(Shared {
            reading,
            pieces,
            threads,
            budget,
            headroom: largest.min(budget / HEADROOM),
            trimmed_every: (options.budget / FREED).max(SMALLEST_TRIM),
            ahead: 4 * threads,
            state: Mutex::new(state),
            room: Condvar::new(),
            ready: Condvar::new(),
        });
        for number in 0..threads {
            let shared = shared.clone();
            let named = thread::Builder::new().name(format!("carril-data-{number}"));
            // Without a thread nothing comes; with fewer than asked for it only takes longer.
            if named.spawn(move || shared.read_pieces()).is_err() && number == 0 {
                panic!("no thread can be started");
            }
        }
        Stream { shared }
    }

    /// The next block in its order; waits at most so long.
    pub fn next(&mut self, patience: Duration) -> Result<Next, DataError> {
        let shared = &self.shared;
        let mut state = shared.lock();
        loop {
            if state.turn == shared.pieces.len() {
                return Ok(Next::Ended);
            }
            if let Some((done, block)) = state.begun.front_mut().and_then(|slot| slot.blocks.pop_front()) {
                let (turn, bytes) = (state.turn, bytes_of(&block));
                state.used -= bytes;
                state.untrimmed += bytes;
                let trims = state.untrimmed > shared.trimmed_every;
                if trims {
                    state.untrimmed = 0;
                }
                drop(state);
                shared.room.notify_all();
                if trims && freed() > shared.trimmed_every {
                    give_back();
                }
                return Ok(Next::Block(turn, done, block));
            }
            if let Some(error) = state.begun.front_mut().and_then(|slot| slot.error.take()) {
                state.cancelled = true;
                shared.room.notify_all();
                return Err(error);
            }
            if state.begun.front().is_some_and(|slot| slot.is_over) {
                state.begun.pop_front();
                state.turn += 1;
                shared.room.notify_all();
                continue;
            }
            let (after, waited) =
                shared.ready.wait_timeout(state, patience).unwrap_or_else(|poison| poison.into_inner());
            state = after;
            if waited.timed_out() {
                return Ok(Next::Pending);
            }
        }
    }

    /// Whether nothing more has to be read for it.
    pub fn is_read(&self) -> bool {
        let state = self.shared.lock();
        let all = state.turn + state.begun.len() == self.shared.pieces.len();
        all && state.begun.iter().all(|slot| slot.is_over)
    }

    /// Whether a piece is read to its end, and all of it was taken.
    pub fn is_done_with(&self, piece: usize) -> bool {
        let state = self.shared.lock();
        let is_last_taken =
            || state.begun.front().is_some_and(|slot| slot.is_over && slot.blocks.is_empty() && slot.error.is_none());
        // An error that ended the stream has left rows behind.
        state.turn > piece || (state.turn == piece && !state.cancelled && is_last_taken())
    }

    /// What is in memory now, in bytes.
    pub fn used(&self) -> u64 {
        self.shared.lock().used
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.lock().cancelled = true;
        self.shared.room.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked has left a slot without an end, and nothing half-written.
        self.state.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.room.wait(state).unwrap_or_else(|poison| poison.into_inner())
    }

    fn read_pieces(&self) {
        while let Some((number, hands)) = self.claim() {
            let mut ending = Ending { shared: self, number, error: None, reserved: 0 };
            let piece = &self.pieces[number];
            ending.reserved = pieces::in_hand(piece, &*self.reading.pipeline.source);
            if !self.reserve(number, ending.reserved) {
                return;
            }
            let mut give = |done: u64, block: RecordBatch| Ok(self.put(number, done, block));
            ending.error = pieces::read(&self.reading, piece, hands, &mut give).err();
        }
    }

    /// The next piece, when there is room to read ahead, and how many threads may read it.
    fn claim(&self) -> Option<(usize, usize)> {
        let mut state = self.lock();
        loop {
            let next = state.turn + state.begun.len();
            if state.cancelled || next == self.pieces.len() {
                return None;
            }
            let together = state.missing > 0;
            let may = state.begun.len() < self.ahead && state.used < self.budget;
            let is_free = if together { state.begun.iter().all(|slot| slot.is_over) } else { may };
            if state.begun.is_empty() || is_free {
                state.begun.push_back(Slot::default());
                return Some((next, if together { self.threads } else { 1 }));
            }
            state = self.wait(state);
        }
    }

    /// Waits for room of so many bytes, and takes it. False when it is over.
    fn reserve(&self, number: usize, bytes: u64) -> bool {
        let mut state = self.lock();
        while !state.cancelled && number != state.turn && state.used + bytes > self.budget - self.headroom {
            state = self.wait(state);
        }
        state.used += bytes;
        !state.cancelled
    }

    fn put(&self, number: usize, done: u64, block: RecordBatch) -> Flow {
        let block = shrunk(block);
        let (bytes, rows) = (bytes_of(&block), block.num_rows());
        let mut state = self.lock();
        loop {
            if state.cancelled {
                return Flow::Stop;
            }
            // ENGINE-2: the one whose turn it is waits only for its own blocks to be taken.
            let is_turn = number == state.turn;
            let first = is_turn && state.begun.front().is_some_and(|slot| slot.blocks.is_empty());
            let room = if is_turn { self.budget } else { self.budget - self.headroom };
            if first || state.used + bytes <= room {
                break;
            }
            state = self.wait(state);
        }
        state.used += bytes;
        let slot = number - state.turn;
        state.begun[slot].blocks.push_back((done, block));
        let was_missing = state.missing > 0;
        state.missing = state.missing.saturating_sub(rows);
        drop(state);
        self.ready.notify_one();
        if was_missing {
            self.room.notify_all();
        }
        Flow::Continue
    }
}

/// Ends a piece however its thread leaves it.
struct Ending<'a> {
    shared: &'a Shared,
    number: usize,
    error: Option<DataError>,
    reserved: u64,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.used -= self.reserved;
        let slot = self.number - state.turn;
        let error = self.error.take();
        let broke = thread::panicking().then(|| DataError::Panicked);
        state.begun[slot].is_over = true;
        state.begun[slot].error = error.or(broke);
        drop(state);
        self.shared.ready.notify_one();
        self.shared.room.notify_all();
    }
}

/// Without it each freed block goes back to the kernel at once, and every page of the next one is mapped and cleared again, which took a
/// fifth of the CPU of reading Parquet. What one thread has freed must be there for another, or each would keep its own. It holds for all
/// that the process allocates.
fn keep_freed(bytes: u64) {
    // SAFETY: it only sets numbers of the allocator, and may be called at any time.
    #[cfg(target_env = "gnu")]
    unsafe {
        nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, LARGEST_NOT_MAPPED);
        nix::libc::mallopt(nix::libc::M_TRIM_THRESHOLD, bytes as i32);
        nix::libc::mallopt(nix::libc::M_ARENA_MAX, 1);
    }
}

/// What was freed and the C library has kept.
fn freed() -> u64 {
    // SAFETY: it only counts, and may be called at any time. The count is cut to 32 bits; `mallinfo2`, which does not do that, is missing
    // in older C libraries.
    #[cfg(target_env = "gnu")]
    unsafe {
        nix::libc::mallinfo().fordblks as u32 as u64
    }
    #[cfg(not(target_env = "gnu"))]
    0
}

/// Between what is still in use, too, where glibc gives back nothing by itself.
fn give_back() {
    // SAFETY: it may be called at any time, from any thread.
    #[cfg(target_env = "gnu")]
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

/// Without the room that was made for more rows than came, where that is worth a copy.
fn shrunk(block: RecordBatch) -> RecordBatch {
    let (filled, taken) = (bytes_of(&block), block.get_array_memory_size() as u64);
    if taken.saturating_sub(filled) < filled / 3 {
        return block;
    }
    let (schema, mut columns, rows) = block.into_parts();
    columns.iter_mut().for_each(|column| column.shrink_to_fit());
    // SAFETY: these are the parts of a block, and their values are what they were.
    unsafe { RecordBatch::new_unchecked(schema, columns, rows) }
}

/// What its rows take in memory.
pub fn bytes_of(block: &RecordBatch) -> u64 {
    let columns = block.columns().iter();
    columns.map(|column| column.to_data().get_slice_memory_size().unwrap_or(0) as u64).sum()
}
