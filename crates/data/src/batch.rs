//! Batches of one size out of blocks of any, and how far they have come.
//!
//! BATCH-1: a position counts what was handed over, and nothing that was only read.
//! BATCH-2: there is a position behind each row of a batch, because a batch may be handed over row by row.

use std::collections::VecDeque;
use std::time::Duration;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;

use crate::engine::{Next, Stream};
use crate::error::DataError;
use crate::join::joined;
use crate::order::{Position, Stripe};

pub struct Batches {
    stream: Stream,
    /// Nothing: blocks as they come.
    size: Option<usize>,
    pub(crate) drop_last: bool,
    /// Where every rank reads everything.
    stripe: Option<Stripe>,
    held: VecDeque<Held>,
    /// How many of them are this rank's.
    rows: usize,
    /// Of which piece and chunk the last block was, and how many rows of that have come.
    arrived: (usize, u64, u64),
    position: Position,
    trail: Trail,
    is_over: bool,
}

/// Where the rows of a batch came from: the position behind each of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trail {
    /// Before its first row.
    begin: Position,
    parts: Vec<Part>,
    /// Behind its last row.
    end: Position,
}

/// Rows of one block.
#[derive(Clone, Debug)]
struct Part {
    /// Behind the first of them.
    first: Position,
    rows: usize,
    /// In stripes the places of these rows in their block.
    places: Option<Vec<u32>>,
}

impl Trail {
    /// That of copies: however many are handed over, a rank has come no further.
    pub fn at(position: Position) -> Self {
        Self { begin: position, parts: Vec::new(), end: position }
    }

    pub fn end(&self) -> Position {
        self.end
    }

    /// Behind so many rows of the batch.
    pub fn behind(&self, rows: usize) -> Position {
        if rows == 0 {
            return self.begin;
        }
        let mut missing = rows;
        let mut parts = self.parts.iter().peekable();
        while let Some(part) = parts.next() {
            if missing > part.rows {
                missing -= part.rows;
                continue;
            }
            let position = part.behind(missing);
            return match parts.peek() {
                _ if missing < part.rows => position,
                None => self.end,
                // In stripes the rows behind it are of other ranks.
                Some(next) if next.first.pieces == position.pieces || part.places.is_some() => position,
                Some(_) => Position { pieces: position.pieces + 1, done: 0, rows: 0, own: position.own },
            };
        }
        self.end
    }
}

impl Part {
    fn behind(&self, rows: usize) -> Position {
        let further = match &self.places {
            Some(places) => u64::from(places[rows - 1] - places[0]),
            None => rows as u64 - 1,
        };
        Position { rows: self.first.rows + further, own: self.first.own + rows as u64 - 1, ..self.first }
    }
}

/// A block, or what is left of it.
struct Held {
    piece: usize,
    done: u64,
    /// The rows of its chunk before it.
    before: u64,
    /// In stripes only this rank's rows.
    block: RecordBatch,
    /// In stripes their places in what came.
    places: Option<Vec<u32>>,
    /// So many of its rows were handed over.
    taken: usize,
}

impl Held {
    fn rest(&self) -> RecordBatch {
        self.block.slice(self.taken, self.rows())
    }

    fn rows(&self) -> usize {
        self.block.num_rows() - self.taken
    }

    /// How many rows of its chunk came before its row of this number.
    fn place(&self, row: usize) -> u64 {
        self.before + self.places.as_ref().map_or(row as u64, |places| u64::from(places[row]))
    }
}

/// What there is now.
pub enum NextBatch {
    Batch(RecordBatch),
    Pending,
    Ended,
}

impl Batches {
    pub fn new(stream: Stream, size: Option<usize>, drop_last: bool, stripe: Option<Stripe>) -> Self {
        let size = size.map(|size| size.max(1));
        Self {
            stream,
            size,
            drop_last,
            stripe,
            held: VecDeque::new(),
            rows: 0,
            arrived: (0, 0, 0),
            position: Position::default(),
            trail: Trail::default(),
            is_over: false,
        }
    }

    /// Waits at most so long for each block that is missing.
    pub fn next(&mut self, patience: Duration) -> Result<NextBatch, DataError> {
        while !self.is_over && self.rows < self.size.unwrap_or(1) {
            match self.stream.next(patience)? {
                Next::Block(piece, done, block) => self.hold(piece, done, block)?,
                Next::Pending => return Ok(NextBatch::Pending),
                Next::Ended => self.is_over = true,
            }
        }
        let size = self.size.unwrap_or_else(|| self.held.front().map_or(0, Held::rows));
        if self.rows == 0 || (self.rows < size && self.drop_last) {
            return Ok(NextBatch::Ended);
        }
        self.take(size.min(self.rows)).map(NextBatch::Batch)
    }

    /// After the last batch that was handed over. A piece of which nothing is left is done with.
    pub fn position(&self) -> Position {
        let Position { pieces, own, .. } = self.position;
        let has_more = match self.held.front() {
            Some(held) => held.piece as u64 == pieces,
            None => !self.stream.is_done_with(pieces as usize),
        };
        // In stripes the rows behind it are of other ranks.
        match own == 0 || has_more || self.stripe.is_some() {
            true => self.position,
            false => Position { pieces: pieces + 1, done: 0, rows: 0, own },
        }
    }

    /// Of the last batch.
    pub(crate) fn trail(&mut self) -> Trail {
        std::mem::take(&mut self.trail)
    }

    /// How many rows were read and not handed over, when there is nothing more.
    pub fn unused(&self) -> u64 {
        self.rows as u64
    }

    /// Whether nothing more has to be read for it.
    pub fn is_read(&self) -> bool {
        self.stream.is_read()
    }

    pub fn bytes_in_memory(&self) -> u64 {
        let held = self.held.iter();
        self.stream.used() + held.map(|held| crate::engine::bytes_of(&held.rest())).sum::<u64>()
    }

    fn hold(&mut self, piece: usize, done: u64, block: RecordBatch) -> Result<(), DataError> {
        let before = if (self.arrived.0, self.arrived.1) == (piece, done) { self.arrived.2 } else { 0 };
        self.arrived = (piece, done, before + block.num_rows() as u64);
        let places = self.stripe.as_mut().map(|stripe| stripe.take(block.num_rows() as u64));
        let block = match &places {
            Some(places) => take_record_batch(&block, &UInt32Array::from(places.clone()))?,
            None => block,
        };
        if block.num_rows() > 0 {
            self.rows += block.num_rows();
            self.held.push_back(Held { piece, done, before, block, places, taken: 0 });
        }
        Ok(())
    }

    fn take(&mut self, rows: usize) -> Result<RecordBatch, DataError> {
        let begin = self.position();
        let (mut parts, mut trail) = (Vec::new(), Vec::new());
        let mut missing = rows;
        while missing > 0 {
            let Some(held) = self.held.front_mut() else { break };
            let count = missing.min(held.rows());
            parts.push(held.block.slice(held.taken, count));
            trail.push(Part {
                first: Position {
                    pieces: held.piece as u64,
                    done: held.done,
                    rows: held.place(held.taken) + 1,
                    own: self.position.own + 1,
                },
                rows: count,
                places: held.places.as_ref().map(|places| places[held.taken..][..count].to_vec()),
            });
            held.taken += count;
            self.position = Position {
                pieces: held.piece as u64,
                done: held.done,
                rows: held.place(held.taken - 1) + 1,
                own: self.position.own + count as u64,
            };
            if held.rows() == 0 {
                self.held.pop_front();
            }
            missing -= count;
        }
        self.rows -= rows;
        self.trail = Trail { begin, parts: trail, end: self.position() };
        joined(parts)
    }
}
