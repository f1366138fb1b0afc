//! One pass over a pipeline: which part of which epoch, in which order, in batches of which size.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::batch::{Batches, NextBatch, Trail};
use crate::engine::{Pipeline, Stream, StreamOptions};
use crate::error::DataError;
use crate::order::{Deal, Order, Piece, Position, SMALL, Segment, Share, Shuffle, WINDOW};
use crate::source::Unit;

/// Less is of no use to anybody.
const SMALLEST_BUDGET: u64 = 1 << 20;
const CHUNKS: u64 = 128;
const CHUNK_ROWS: (u64, u64) = (256, 16_384);
/// A function has a chunk in its hands, and twice what it makes of it.
const CHUNK_BYTES: u64 = 4 << 20;
/// Of how many rows batches are in stripes where none were asked for.
const STRIPED_BATCH: usize = 1024;

/// What decides the order of an epoch beside the plan, its seed and the deals. It is saved with a position, and holds until the epoch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// What a window takes in memory, in bytes.
    pub window: u64,
    /// How many rows functions get together, where a position may be inside of a unit and rows are not kept.
    pub chunk: Option<u64>,
    /// Of how many rows those that are mixed with their neighbours are.
    pub local_shuffle: Option<usize>,
    /// How many rows a function wants together, where units may have fewer.
    #[serde(default)]
    pub together: Option<u64>,
}

impl Rules {
    /// `multiple`: where a position may be asked for, functions get a multiple of so many rows together.
    pub fn of(pipeline: &Pipeline, multiple: Option<usize>, local_shuffle: Option<usize>) -> Rules {
        let chunk = multiple.map(|multiple| chunk(pipeline.source.units(), multiple)).max(local_shuffle);
        let keeps_rows = pipeline.is_counted() && local_shuffle.is_none();
        let bytes = pipeline.source.units().iter().map(|unit| unit.bytes).fold(0, u64::saturating_add);
        // Files of one kind often stand together: what is small is mixed whole.
        let window = if bytes <= SMALL { bytes.max(WINDOW) } else { WINDOW };
        let chunk = chunk.filter(|_| !keeps_rows).map(|rows| rows as u64);
        let together = multiple.filter(|rows| *rows > 1 && !keeps_rows).map(|rows| rows as u64);
        Rules { window, chunk, local_shuffle, together }
    }
}

/// What is streamed, in which order, to whom.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassSpec {
    pub shuffle: Shuffle,
    pub seed: u64,
    #[serde(default)]
    pub epoch: u64,
    /// Nothing: blocks as they come.
    #[serde(default)]
    pub batch_size: Option<usize>,
    #[serde(default)]
    pub drop_last: bool,
    pub threads: usize,
    /// In bytes.
    pub budget: u64,
    #[serde(default)]
    pub local_shuffle: Option<usize>,
    /// How many rows functions want together, where they do.
    #[serde(default)]
    pub multiple: Option<usize>,
}

/// Which part of an epoch.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub rules: Rules,
    /// Dealt among how many, and to which of them.
    pub world: usize,
    pub rank: usize,
    pub before: Vec<Segment>,
    pub deals_rest: bool,
    /// The next pass may be begun before this one is over: each has half of the budget.
    pub has_successor: bool,
    /// What is not dealt in stripes is handed over in whole batches alone: the rest is dealt again.
    pub is_in_rounds: bool,
}

pub struct Pass {
    batches: Batches,
    /// Whether every rank knows before it reads how many rows it gets.
    pub is_counted: bool,
    pub pieces: usize,
    /// How many rows this rank is dealt, where they are counted.
    pub(crate) dealt: Option<u64>,
    /// Rows that nobody gets, because they do not fill a row for each rank.
    pub rest: u64,
    pub(crate) deal: Deal,
    /// Whether nobody has anything left.
    pub(crate) is_empty: bool,
}

/// How many rows functions get together: few and short enough that parts can be cut.
fn chunk(units: &[Unit], multiple: usize) -> usize {
    let rows: u64 = units.iter().filter_map(|unit| unit.rows).sum();
    let bytes: u64 = units.iter().map(|unit| unit.bytes).sum();
    let wanted = (rows / CHUNKS).clamp(CHUNK_ROWS.0, CHUNK_ROWS.1);
    let fit = if rows == 0 { wanted } else { CHUNK_BYTES.saturating_mul(rows) / bytes.max(1) };
    wanted.min(fit).max(1).next_multiple_of(multiple.max(1) as u64) as usize
}

impl Pass {
    /// All of it, for one consumer.
    pub fn begin(pipeline: Pipeline, spec: PassSpec) -> Pass {
        let rules = Rules::of(&pipeline, spec.multiple, spec.local_shuffle);
        let part = Part {
            rules,
            world: 1,
            rank: 0,
            before: Vec::new(),
            deals_rest: false,
            has_successor: false,
            is_in_rounds: false,
        };
        Pass::of_part(pipeline, &spec, part)
    }

    pub(crate) fn of_part(pipeline: Pipeline, spec: &PassSpec, part: Part) -> Pass {
        let is_counted = pipeline.is_counted();
        let Rules { window, chunk, local_shuffle, together } = part.rules;
        // Rows that are mixed with their neighbours are not in the order in which they were read.
        let keeps_rows = is_counted && local_shuffle.is_none();
        let chunk_rows = chunk.unwrap_or(u64::MAX);
        let order = Order { shuffle: spec.shuffle, seed: spec.seed, window, keeps_rows, chunk: chunk_rows, together };
        let left = order.left(pipeline.source.units(), spec.epoch, &part.before);
        let deal = order.deal_of(&left, part.world, part.deals_rest, part.is_in_rounds);
        let is_empty = left.pieces.is_empty();
        let Share { pieces, stripe, rest } = order.share(left, deal, part.world, part.rank);
        let budget = spec.budget.max(SMALLEST_BUDGET);
        let budget = if part.has_successor { budget / 2 } else { budget };
        let options = StreamOptions {
            threads: spec.threads,
            // Of the window that is consumed the last rows hold the memory of all.
            budget: if spec.shuffle == Shuffle::Rows { budget.saturating_sub(window).max(budget / 4) } else { budget },
            batch: spec.batch_size.unwrap_or(1),
            chunk: chunk.map(|rows| rows as usize),
            mixed_by: local_shuffle.map(|_| spec.seed ^ spec.epoch),
        };
        let count = pieces.len();
        let dealt = pieces.iter().map(Piece::rows).sum::<Option<u64>>().filter(|_| keeps_rows);
        let stream = Stream::start(pipeline, pieces, options);
        let drop_last = spec.drop_last || (part.is_in_rounds && !deal.stripes && !(is_counted && keeps_rows));
        // Blocks as they come would be unequal, and a small one would have no row for some ranks.
        let batch_size = spec.batch_size.or(deal.stripes.then_some(STRIPED_BATCH));
        let batches = Batches::new(stream, batch_size, drop_last, stripe);
        Pass { batches, is_counted: is_counted && keeps_rows, pieces: count, dealt, rest, deal, is_empty }
    }

    /// Waits at most so long for each block that is missing.
    pub fn next(&mut self, patience: Duration) -> Result<NextBatch, DataError> {
        self.batches.next(patience)
    }

    /// What was handed over.
    pub fn position(&self) -> Position {
        self.batches.position()
    }

    /// Of the last batch.
    pub(crate) fn trail(&mut self) -> Trail {
        self.batches.trail()
    }

    /// How many rows were read and not handed over.
    pub(crate) fn unused(&self) -> u64 {
        self.batches.unused()
    }

    /// What does not fill a batch is not dealt again.
    pub(crate) fn hand_over_rest(&mut self, drop_last: bool) {
        self.batches.drop_last = drop_last;
    }

    /// Whether nothing more has to be read for it.
    pub fn is_read(&self) -> bool {
        self.batches.is_read()
    }

    pub fn bytes_in_memory(&self) -> u64 {
        self.batches.bytes_in_memory()
    }
}
