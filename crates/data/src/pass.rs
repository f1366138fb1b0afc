//! One pass over a pipeline: which part of which epoch, in which order, in batches of which size.

use std::time::Duration;

use serde::Deserialize;

use crate::batch::{Batches, NextBatch};
use crate::engine::{Pipeline, Stream, StreamOptions};
use crate::error::DataError;
use crate::order::{Order, Piece, Position, Segment, Shuffle};
use crate::source::Unit;

/// Less is of no use to anybody.
const SMALLEST_BUDGET: u64 = 1 << 20;
/// One shuffled window is consumed and two are read, in each of two passes.
const WINDOWS: u64 = 8;
/// Larger ones take longer to the first batch, and mix better.
const LARGEST_WINDOW: u64 = 64 << 20;
const CHUNKS: u64 = 128;
const CHUNK_ROWS: (u64, u64) = (256, 16_384);
/// A function has a chunk in its hands, and twice what it makes of it.
const CHUNK_BYTES: u64 = 4 << 20;

/// What is streamed, in which order, to whom.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassSpec {
    pub shuffle: Shuffle,
    pub seed: u64,
    pub epoch: u64,
    pub world: usize,
    pub rank: usize,
    /// How far each rank had come whenever their number changed in this epoch.
    #[serde(default)]
    pub before: Vec<Segment>,
    /// Nothing: blocks as they come.
    #[serde(default)]
    pub batch_size: Option<usize>,
    #[serde(default)]
    pub drop_last: bool,
    pub threads: usize,
    /// In bytes.
    pub budget: u64,
    /// The next pass may be begun before this one is over: each has half of the budget.
    #[serde(default)]
    pub has_successor: bool,
    /// Where a position may be asked for: functions get a multiple of so many rows together.
    #[serde(default)]
    pub multiple: Option<usize>,
    #[serde(default)]
    pub local_shuffle: Option<usize>,
    /// Whether ranks may have a row more than others.
    #[serde(default)]
    pub deals_rest: bool,
}

pub struct Pass {
    batches: Batches,
    /// Whether every rank knows before it reads how many rows it gets.
    pub is_counted: bool,
    pub pieces: usize,
    /// Rows that nobody gets, because they do not fill a row for each rank.
    pub rest: u64,
}

/// How many rows functions get together: few and short enough that parts can be cut.
fn chunk(units: &[Unit], multiple: usize) -> usize {
    let rows: u64 = units.iter().filter_map(|unit| unit.rows).sum();
    let bytes: u64 = units.iter().map(|unit| unit.bytes).sum();
    let wanted = (rows / CHUNKS).clamp(CHUNK_ROWS.0, CHUNK_ROWS.1);
    let fit = if rows == 0 { wanted } else { CHUNK_BYTES * rows / bytes.max(1) };
    wanted.min(fit).max(1).next_multiple_of(multiple.max(1) as u64) as usize
}

impl Pass {
    pub fn begin(pipeline: Pipeline, spec: PassSpec) -> Pass {
        let is_counted = pipeline.is_counted();
        // Rows that are mixed with their neighbours are not in the order in which they were read.
        let keeps_rows = is_counted && spec.local_shuffle.is_none();
        let chunk = spec.multiple.map(|multiple| chunk(pipeline.source.units(), multiple));
        let chunk = chunk.max(spec.local_shuffle).filter(|_| !keeps_rows);
        let rows_of_a_chunk = chunk.map_or(u64::MAX, |rows| rows as u64);
        let PassSpec { shuffle, seed, deals_rest, .. } = spec;
        let budget = spec.budget.max(SMALLEST_BUDGET);
        let window = (budget / WINDOWS).min(LARGEST_WINDOW);
        let budget = if spec.has_successor { budget / 2 } else { budget };
        let order = Order { shuffle, seed, window, keeps_rows, chunk: rows_of_a_chunk, deals_rest };
        let units = pipeline.source.units();
        let pieces: Vec<Piece> = order.share(units, spec.epoch, &spec.before, spec.world, spec.rank);
        let rest = order.rest(units, spec.epoch, &spec.before, spec.world);
        let options = StreamOptions {
            threads: spec.threads,
            // Of the window that is consumed the last rows hold the memory of all.
            budget: if shuffle == Shuffle::Rows { budget - window } else { budget },
            batch: spec.batch_size.unwrap_or(1),
            chunk,
            mixed_by: spec.local_shuffle.map(|_| seed ^ spec.epoch),
        };
        let count = pieces.len();
        let stream = Stream::start(pipeline, pieces, options);
        Pass { batches: Batches::new(stream, spec.batch_size, spec.drop_last), is_counted, pieces: count, rest }
    }

    /// Waits at most so long for each block that is missing.
    pub fn next(&mut self, patience: Duration) -> Result<NextBatch, DataError> {
        self.batches.next(patience)
    }

    /// What was handed over.
    pub fn position(&self) -> Position {
        self.batches.position()
    }

    /// Whether nothing more has to be read for it.
    pub fn is_read(&self) -> bool {
        self.batches.is_read()
    }

    pub fn bytes_in_memory(&self) -> u64 {
        self.batches.bytes_in_memory()
    }
}
