//! Operations, as steps over slots: what a rank writes in a step, and what it makes of the others' writing.
//!
//! Data goes through the slots in chunks, so that each byte is read from memory once and written once, and all between
//! lies in the cache. Three chunks are under way: one is written, one is worked on, one is collected.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use crate::element::{Element, NAMES, Op, reduce};
use crate::error::CollectiveError;
use crate::memory::{Memory, SLOT_BYTES, SLOTS};
use crate::steps::Steps;

/// What is reduced at once: the parts of a few ranks lie in the first-level cache together.
const PIECE_BYTES: usize = 4 << 10;
const LINE_BYTES: usize = 64;
/// What is copied at once; see `move_values`.
const MOVE_BYTES: usize = 1 << 10;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Barrier,
    Broadcast,
    AllReduce,
    AllGather,
    ReduceScatter,
}

const KINDS: [Kind; 5] = [Kind::Barrier, Kind::Broadcast, Kind::AllReduce, Kind::AllGather, Kind::ReduceScatter];

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Barrier => "barrier",
            Kind::Broadcast => "broadcast",
            Kind::AllReduce => "all_reduce",
            Kind::AllGather => "all_gather",
            Kind::ReduceScatter => "reduce_scatter",
        }
    }
}

/// What a rank asks for, as the others check it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    pub kind: Kind,
    pub op: Op,
    pub element: u8,
    pub root: u32,
    pub length: u64,
}

impl Asked {
    fn to_word(self) -> u64 {
        u64::from(self.root) << 32 | (self.element as u64) << 16 | (self.op as u64) << 8 | self.kind as u64
    }

    fn from_words(what: u64, length: u64) -> Option<Self> {
        let byte = |index: u32| (what >> (8 * index)) as usize & 0xff;
        let (kind, op) = (*KINDS.get(byte(0))?, *Op::ALL.get(byte(1))?);
        Some(Self { kind, op, element: byte(2) as u8, root: (what >> 32) as u32, length })
    }

    fn describe(self) -> String {
        let (name, op, length) = (self.kind.name(), self.op.name(), self.length);
        let element = NAMES.get(usize::from(self.element)).unwrap_or(&"unknown values");
        match self.kind {
            Kind::Barrier => name.to_owned(),
            Kind::Broadcast => format!("{name} of {length} {element} from rank {}", self.root),
            Kind::AllReduce | Kind::ReduceScatter => format!("{name} ({op}) of {length} {element}"),
            Kind::AllGather => format!("{name} of {length} {element}"),
        }
    }
}

/// What a rank does with each chunk.
pub trait Movement {
    /// Whether what `work` made is collected from every rank.
    const COLLECTS: bool = false;
    fn chunks(&self) -> usize;
    /// Writes a chunk into this rank's slot.
    fn fill(&mut self, at: Place<'_>);
    /// Every rank has filled the chunk.
    fn work(&mut self, at: Place<'_>);
    /// Every rank has worked on the chunk.
    fn collect(&mut self, _at: Place<'_>) {}
}

/// A chunk and the slots that it goes through.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    memory: &'a Memory,
    rank: usize,
    step: u32,
    chunk: usize,
}

impl Place<'_> {
    fn ranks(&self) -> usize {
        self.memory.world_size()
    }

    /// The slot of a rank, from the value of that number on.
    fn slot<T: Element>(&self, rank: usize, offset: usize) -> *mut T {
        assert!(offset <= slot_length::<T>());
        // SAFETY: inside the slot by the assertion.
        unsafe { self.memory.slot(rank, self.step).cast::<T>().add(offset) }
    }
}

/// Makes the steps of an operation.
pub fn run(steps: &mut Steps, asked: Asked, movement: &mut impl Movement) -> Result<(), CollectiveError> {
    let during = asked.kind.name();
    steps.check(during)?;
    let (base, chunks) = (steps.next, movement.chunks());
    // The last chunk is worked on one step after it was filled, and collected one step after that.
    let behind = if collects(movement) { 2 } else { 1 };
    for index in 0..chunks + behind {
        let step = base.wrapping_add(index as u32);
        if index < chunks {
            steps.wait_for_room(step, during)?;
            if index == 0 {
                let request = &steps.memory.block(steps.rank).requests[step as usize % SLOTS];
                request.what.store(asked.to_word(), Relaxed);
                request.length.store(asked.length, Relaxed);
            }
            movement.fill(place(steps, step, index));
        }
        // Where nothing is collected, what was filled can be shown before the wait.
        let publishes = index < chunks + behind - 1;
        if publishes && !collects(movement) {
            steps.publish(step);
        }
        if index >= 1 {
            let before = step.wrapping_sub(1);
            steps.wait(before, during)?;
            if index == 1 {
                compare(steps, before, asked)?;
            }
            if index <= chunks {
                movement.work(place(steps, before, index - 1));
            }
        }
        if publishes && collects(movement) {
            steps.publish(step);
        }
        if index >= 2 && collects(movement) {
            movement.collect(place(steps, step.wrapping_sub(2), index - 2));
        }
    }
    steps.next = base.wrapping_add((chunks + behind - 1) as u32);
    Ok(())
}

fn collects<M: Movement>(_: &M) -> bool {
    M::COLLECTS
}

fn place(steps: &Steps, step: u32, chunk: usize) -> Place<'_> {
    Place { memory: &steps.memory, rank: steps.rank, step, chunk }
}

/// An error if not every rank asks for the same.
fn compare(steps: &Steps, step: u32, own: Asked) -> Result<(), CollectiveError> {
    let asked = |rank: usize| {
        let request = &steps.memory.block(rank).requests[step as usize % SLOTS];
        Asked::from_words(request.what.load(Relaxed), request.length.load(Relaxed))
    };
    let ranks = steps.memory.world_size();
    if (0..ranks).all(|rank| rank == steps.rank || asked(rank) == Some(own)) {
        return Ok(());
    }
    let mut by_wish: Vec<(Option<Asked>, Vec<String>)> = Vec::new();
    for rank in 0..ranks {
        let wish = asked(rank);
        match by_wish.iter_mut().find(|(known, _)| *known == wish) {
            Some((_, who)) => who.push(rank.to_string()),
            None => by_wish.push((wish, vec![rank.to_string()])),
        }
    }
    let described = by_wish.into_iter().map(|(wish, who)| {
        let wish = wish.map_or("something unknown".to_owned(), Asked::describe);
        let plural = if who.len() > 1 { "s" } else { "" };
        format!("rank{plural} {} asked for {wish}", who.join(", "))
    });
    Err(steps.disagree(described.collect()))
}

fn slot_length<T: Element>() -> usize {
    SLOT_BYTES / size_of::<T>()
}

/// How many chunks so many values are: at least one, so that ranks meet also where there is nothing to send.
fn chunks_of(length: usize, chunk: usize) -> usize {
    length.div_ceil(chunk).max(1)
}

fn chunk_range(length: usize, chunk: usize, index: usize) -> Range<usize> {
    (index * chunk).min(length)..((index + 1) * chunk).min(length)
}

/// The part of a chunk that a rank reduces, in whole cache lines.
fn part<T: Element>(length: usize, ranks: usize, rank: usize) -> Range<usize> {
    let each = length.div_ceil(ranks).next_multiple_of(LINE_BYTES / size_of::<T>());
    (rank * each).min(length)..((rank + 1) * each).min(length)
}

/// Copies in pieces. Copied as a whole, what one rank wrote was read by the other four times slower: most likely because the
/// C library takes `rep movsb` for large pieces (measured in `docs/design/0010-collectives.md`).
///
/// # Safety
/// As `copy_nonoverlapping`.
unsafe fn move_values<T: Element>(from: *const T, into: *mut T, length: usize) {
    let piece = MOVE_BYTES / size_of::<T>();
    let mut begin = 0;
    while begin < length {
        let count = piece.min(length - begin);
        // SAFETY: as the caller says.
        unsafe { std::ptr::copy_nonoverlapping(from.add(begin), into.add(begin), count) };
        begin += count;
    }
}

/// # Safety
/// `from` holds as many values as `into`, and is not written meanwhile.
unsafe fn copy<T: Element>(from: *const T, into: &mut [T]) {
    // SAFETY: as the caller says; `into` is borrowed alone.
    unsafe { move_values(from, into.as_mut_ptr(), into.len()) };
}

/// # Safety
/// `into` has room for `from` and is read by nobody meanwhile.
unsafe fn put<T: Element>(from: &[T], into: *mut T) {
    // SAFETY: as the caller says.
    unsafe { move_values(from.as_ptr(), into, from.len()) };
}

/// Reduces `own` of this rank and the like of every other rank, which lies in its slot at `offset`.
///
/// # Safety
/// Every rank has filled its slot there.
unsafe fn reduce_slots<T: Element>(at: Place<'_>, op: Op, own: &[T], offset: usize, into: &mut [T]) {
    let piece = PIECE_BYTES / size_of::<T>();
    for (index, into) in into.chunks_mut(piece).enumerate() {
        let begin = index * piece;
        let length = into.len();
        let given = |rank: usize| {
            if rank == at.rank {
                return &own[begin..begin + length];
            }
            // SAFETY: filled, as the caller says, and written by nobody until the next steps (STEP-2).
            unsafe { std::slice::from_raw_parts(at.slot::<T>(rank, offset + begin).cast_const(), length) }
        };
        reduce(into, at.ranks(), given, op);
    }
}

pub struct Barrier;

impl Movement for Barrier {
    fn chunks(&self) -> usize {
        1
    }
    fn fill(&mut self, _at: Place<'_>) {}
    fn work(&mut self, _at: Place<'_>) {}
}

pub struct Broadcast<'a, T> {
    pub values: &'a mut [T],
    pub root: usize,
}

impl<T: Element> Movement for Broadcast<'_, T> {
    fn chunks(&self) -> usize {
        chunks_of(self.values.len(), slot_length::<T>())
    }

    fn fill(&mut self, at: Place<'_>) {
        if at.rank == self.root {
            let range = chunk_range(self.values.len(), slot_length::<T>(), at.chunk);
            // SAFETY: a chunk fits a slot, which is free (STEP-2).
            unsafe { put(&self.values[range], at.slot(self.root, 0)) };
        }
    }

    fn work(&mut self, at: Place<'_>) {
        if at.rank != self.root {
            let range = chunk_range(self.values.len(), slot_length::<T>(), at.chunk);
            // SAFETY: the root has filled it (STEP-1).
            unsafe { copy(at.slot(self.root, 0), &mut self.values[range]) };
        }
    }
}

/// Every rank reduces its part of each chunk, and collects the others' parts.
pub struct AllReduce<'a, T> {
    pub values: &'a mut [T],
    pub op: Op,
}

impl<T: Element> AllReduce<'_, T> {
    fn chunk(&mut self, at: Place<'_>) -> &mut [T] {
        let range = chunk_range(self.values.len(), slot_length::<T>(), at.chunk);
        &mut self.values[range]
    }
}

impl<T: Element> Movement for AllReduce<'_, T> {
    const COLLECTS: bool = true;

    fn chunks(&self) -> usize {
        chunks_of(self.values.len(), slot_length::<T>())
    }

    fn fill(&mut self, at: Place<'_>) {
        let chunk = self.chunk(at);
        let own = part::<T>(chunk.len(), at.ranks(), at.rank);
        // SAFETY: a chunk fits a slot, which is free (STEP-2).
        unsafe {
            put(&chunk[..own.start], at.slot(at.rank, 0));
            put(&chunk[own.end..], at.slot(at.rank, own.end));
        }
    }

    fn work(&mut self, at: Place<'_>) {
        let op = self.op;
        let chunk = self.chunk(at);
        let own = part::<T>(chunk.len(), at.ranks(), at.rank);
        let piece = PIECE_BYTES / size_of::<T>();
        let end = own.end;
        for begin in own.step_by(piece) {
            let values = &mut chunk[begin..end.min(begin + piece)];
            // SAFETY: this part of the own slot is read by others after the next step only (STEP-1); the others' is filled.
            unsafe {
                let result = std::slice::from_raw_parts_mut(at.slot::<T>(at.rank, begin), values.len());
                reduce_slots(at, op, values, begin, result);
                copy(result.as_ptr(), values);
            }
        }
    }

    fn collect(&mut self, at: Place<'_>) {
        let chunk = self.chunk(at);
        for rank in (0..at.ranks()).filter(|rank| *rank != at.rank) {
            let part = part::<T>(chunk.len(), at.ranks(), rank);
            // SAFETY: the rank has put its results there (STEP-1).
            unsafe { copy(at.slot(rank, part.start), &mut chunk[part]) };
        }
    }
}

pub struct AllGather<'a, T> {
    pub own: &'a [T],
    pub all: &'a mut [T],
}

impl<T: Element> Movement for AllGather<'_, T> {
    fn chunks(&self) -> usize {
        chunks_of(self.own.len(), slot_length::<T>())
    }

    fn fill(&mut self, at: Place<'_>) {
        let range = chunk_range(self.own.len(), slot_length::<T>(), at.chunk);
        let chunk = &self.own[range.clone()];
        // SAFETY: a chunk fits a slot, which is free (STEP-2).
        unsafe { put(chunk, at.slot(at.rank, 0)) };
        let begin = at.rank * self.own.len();
        self.all[begin + range.start..begin + range.end].copy_from_slice(chunk);
    }

    fn work(&mut self, at: Place<'_>) {
        let range = chunk_range(self.own.len(), slot_length::<T>(), at.chunk);
        for rank in (0..at.ranks()).filter(|rank| *rank != at.rank) {
            let begin = rank * self.own.len();
            // SAFETY: the rank has filled it (STEP-1).
            unsafe { copy(at.slot(rank, 0), &mut self.all[begin + range.start..begin + range.end]) };
        }
    }
}

/// A slot has a place for every rank.
pub struct ReduceScatter<'a, T> {
    pub all: &'a [T],
    pub own: &'a mut [T],
    pub op: Op,
    pub ranks: usize,
}

impl<T: Element> ReduceScatter<'_, T> {
    fn place_length(&self) -> usize {
        slot_length::<T>() / self.ranks
    }
}

impl<T: Element> Movement for ReduceScatter<'_, T> {
    fn chunks(&self) -> usize {
        chunks_of(self.own.len(), self.place_length())
    }

    fn fill(&mut self, at: Place<'_>) {
        let range = chunk_range(self.own.len(), self.place_length(), at.chunk);
        for rank in (0..at.ranks()).filter(|rank| *rank != at.rank) {
            let begin = rank * self.own.len();
            let values = &self.all[begin + range.start..begin + range.end];
            // SAFETY: the chunks of all ranks fit a slot, which is free (STEP-2).
            unsafe { put(values, at.slot(at.rank, rank * self.place_length())) };
        }
    }

    fn work(&mut self, at: Place<'_>) {
        let range = chunk_range(self.own.len(), self.place_length(), at.chunk);
        let begin = at.rank * self.own.len();
        let given = &self.all[begin + range.start..begin + range.end];
        let offset = at.rank * self.place_length();
        // SAFETY: every rank has filled its slot (STEP-1).
        unsafe { reduce_slots(at, self.op, given, offset, &mut self.own[range]) };
    }
}
