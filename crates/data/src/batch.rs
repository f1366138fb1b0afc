//! Batches of one size out of blocks of any, and how far they have come.
//!
//! BATCH-1: a position counts what was handed over, and nothing that was only read.

use std::collections::VecDeque;
use std::time::Duration;

use arrow_array::RecordBatch;

use crate::engine::{Next, Stream};
use crate::error::DataError;
use crate::join::joined;
use crate::order::Position;

pub struct Batches {
    stream: Stream,
    /// Nothing: blocks as they come.
    size: Option<usize>,
    drop_last: bool,
    held: VecDeque<(usize, u64, RecordBatch)>,
    rows: usize,
    position: Position,
    is_over: bool,
}

/// What there is now.
pub enum NextBatch {
    Batch(RecordBatch),
    Pending,
    Ended,
}

impl Batches {
    pub fn new(stream: Stream, size: Option<usize>, drop_last: bool) -> Self {
        let size = size.map(|size| size.max(1));
        Self { stream, size, drop_last, held: VecDeque::new(), rows: 0, position: Position::default(), is_over: false }
    }

    /// Waits at most so long for each block that is missing.
    pub fn next(&mut self, patience: Duration) -> Result<NextBatch, DataError> {
        while !self.is_over && self.rows < self.size.unwrap_or(1) {
            match self.stream.next(patience)? {
                Next::Block(piece, done, block) => {
                    self.rows += block.num_rows();
                    self.held.push_back((piece, done, block));
                }
                Next::Pending => return Ok(NextBatch::Pending),
                Next::Ended => self.is_over = true,
            }
        }
        let size = self.size.unwrap_or_else(|| self.held.front().map_or(0, |(_, _, block)| block.num_rows()));
        if self.rows == 0 || (self.rows < size && self.drop_last) {
            return Ok(NextBatch::Ended);
        }
        self.take(size.min(self.rows)).map(NextBatch::Batch)
    }

    /// After the last batch that was handed over.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Whether nothing more has to be read for it.
    pub fn is_read(&self) -> bool {
        self.stream.is_read()
    }

    pub fn bytes_in_memory(&self) -> u64 {
        self.stream.used() + self.held.iter().map(|(_, _, block)| crate::engine::bytes_of(block)).sum::<u64>()
    }

    fn take(&mut self, rows: usize) -> Result<RecordBatch, DataError> {
        let mut parts = Vec::new();
        let mut missing = rows;
        while missing > 0 {
            let Some((piece, done, block)) = self.held.pop_front() else { break };
            let count = missing.min(block.num_rows());
            if count < block.num_rows() {
                self.held.push_front((piece, done, block.slice(count, block.num_rows() - count)));
            }
            let pieces = piece as u64;
            if (self.position.pieces, self.position.done) != (pieces, done) {
                self.position = Position { pieces, done, rows: 0 };
            }
            self.position.rows += count as u64;
            parts.push(block.slice(0, count));
            missing -= count;
        }
        self.rows -= rows;
        joined(parts)
    }
}
