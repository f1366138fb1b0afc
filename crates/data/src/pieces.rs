//! One piece, read: its units, what becomes of their rows, their permutation, and the part that is wanted.
//!
//! PIECE-1: what a piece gives is a function of the piece: to go on in its middle is to pass over what was taken.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;

use crate::engine::{Pipeline, Transform};
use crate::error::DataError;
use crate::gather::gathered;
use crate::order::{Piece, mix, permutation};
use crate::read::BLOCK_BYTES;
use crate::source::{Flow, Source};

/// Blocks that are gathered have about so many rows.
const GATHERED: usize = 16 << 10;

pub(crate) struct Reading {
    pub pipeline: Pipeline,
    pub batch: usize,
    /// How many rows are changed together, where they are not kept.
    pub chunk: Option<usize>,
    /// By which the rows of a chunk are mixed.
    pub mixed_by: Option<u64>,
}

type Take<'a> = dyn FnMut(RecordBatch) -> Result<Flow, DataError> + 'a;
/// With how many rows of the piece were done with before.
type Give<'a> = dyn FnMut(u64, RecordBatch) -> Result<Flow, DataError> + 'a;

/// What a thread has in its hands of a piece before it hands it over: a whole window, or a block.
pub(crate) fn in_hand(piece: &Piece, source: &dyn Source) -> u64 {
    let bytes = piece.units.iter().map(|unit| source.units()[*unit].bytes);
    match piece.key {
        Some(_) => bytes.sum(),
        None => bytes.max().unwrap_or(0).min(BLOCK_BYTES),
    }
}

pub(crate) fn read(reading: &Reading, piece: &Piece, give: &mut Give<'_>) -> Result<(), DataError> {
    let Pipeline { source, transforms } = &reading.pipeline;
    let mut change = Change { reading, piece, untaken: Wanted { skip: piece.taken, left: None }, done: 0, give };
    match (piece.key, piece.end) {
        // Counted rows are permuted first: only the part that is wanted is transformed.
        (Some(key), Some(end)) => {
            let window = collect(source, &piece.units, &[])?;
            let places = permutation(key, rows_of(&window));
            let places = &places[piece.begin as usize..end as usize];
            let rows = reading.chunk.unwrap_or_else(|| GATHERED.next_multiple_of(reading.batch));
            gather(window, places, rows, &mut |block| change.carry_out(block)).map(drop)
        }
        (Some(key), None) => {
            let window = collect(source, &piece.units, transforms)?;
            let rows = GATHERED.next_multiple_of(reading.batch);
            let places = permutation(key, rows_of(&window));
            gather(window, &places, rows, &mut |block| change.hand_over(block)).map(drop)
        }
        (None, _) => {
            let mut wanted = Wanted { skip: piece.begin, left: piece.rows() };
            let mut chunks = Chunks { rows: reading.chunk, held: Vec::new() };
            for_each(source, &piece.units, &mut |block| {
                let (flow, block) = wanted.part(block);
                match block {
                    Some(block) => Ok(flow.and(chunks.push(block, &mut |chunk| change.carry_out(chunk))?)),
                    None => Ok(flow),
                }
            })?;
            chunks.flush(&mut |chunk| change.carry_out(chunk))
        }
    }
}

/// What becomes of the chunks of a piece.
struct Change<'a, 'b> {
    reading: &'a Reading,
    piece: &'a Piece,
    untaken: Wanted,
    done: u64,
    give: &'a mut Give<'b>,
}

impl Change<'_, '_> {
    fn carry_out(&mut self, chunk: RecordBatch) -> Result<Flow, DataError> {
        let rows = chunk.num_rows() as u64;
        let transforms = &self.reading.pipeline.transforms;
        let flow = match self.reading.mixed_by {
            None => transformed(transforms, chunk, &mut |block| self.hand_over(block))?,
            Some(seed) => {
                let mut blocks = Vec::new();
                transformed(transforms, chunk, &mut |block| {
                    blocks.push(block);
                    Ok(Flow::Continue)
                })?;
                let key = mix(mix(seed, self.piece.units[0] as u64), self.piece.begin + self.done);
                let size = GATHERED.next_multiple_of(self.reading.batch);
                let places = permutation(key, rows_of(&blocks));
                gather(blocks, &places, size, &mut |block| self.hand_over(block))?
            }
        };
        self.done += rows;
        Ok(flow)
    }

    fn hand_over(&mut self, block: RecordBatch) -> Result<Flow, DataError> {
        match self.untaken.part(block) {
            (_, Some(block)) => (self.give)(self.done, block),
            (_, None) => Ok(Flow::Continue),
        }
    }
}

/// Blocks of a certain number of rows out of blocks of any.
struct Chunks {
    rows: Option<usize>,
    held: Vec<RecordBatch>,
}

impl Chunks {
    fn push(&mut self, block: RecordBatch, take: &mut Take<'_>) -> Result<Flow, DataError> {
        let Some(rows) = self.rows else { return take(block) };
        let mut block = block;
        loop {
            let missing = rows - rows_of(&self.held);
            if block.num_rows() < missing {
                if block.num_rows() > 0 {
                    self.held.push(block);
                }
                return Ok(Flow::Continue);
            }
            self.held.push(block.slice(0, missing));
            block = block.slice(missing, block.num_rows() - missing);
            if take(together(&std::mem::take(&mut self.held))?)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
    }

    fn flush(&mut self, take: &mut Take<'_>) -> Result<(), DataError> {
        if self.held.is_empty() {
            return Ok(());
        }
        take(together(&std::mem::take(&mut self.held))?).map(drop)
    }
}

fn together(blocks: &[RecordBatch]) -> Result<RecordBatch, DataError> {
    match blocks {
        [one] => Ok(one.clone()),
        several => Ok(concat_batches(&several[0].schema(), several)?),
    }
}

/// The part of what comes that is wanted.
struct Wanted {
    skip: u64,
    left: Option<u64>,
}

impl Wanted {
    fn part(&mut self, block: RecordBatch) -> (Flow, Option<RecordBatch>) {
        let rows = block.num_rows() as u64;
        let skipped = self.skip.min(rows);
        self.skip -= skipped;
        let count = self.left.map_or(rows - skipped, |left| left.min(rows - skipped));
        if let Some(left) = &mut self.left {
            *left -= count;
        }
        let flow = if self.left == Some(0) { Flow::Stop } else { Flow::Continue };
        match count {
            0 => (flow, None),
            count if count == rows => (flow, Some(block)),
            count => (flow, Some(block.slice(skipped as usize, count as usize))),
        }
    }
}

impl Flow {
    fn and(self, other: Flow) -> Flow {
        if self == Flow::Stop { self } else { other }
    }
}

fn for_each(source: &Arc<dyn Source>, units: &[usize], take: &mut Take<'_>) -> Result<(), DataError> {
    let mut flow = Flow::Continue;
    for unit in units {
        if flow == Flow::Stop {
            break;
        }
        source.read(*unit, &mut |block| {
            flow = take(block)?;
            Ok(flow)
        })?;
    }
    Ok(())
}

/// Through every transform, one after the other.
pub(crate) fn transformed(
    transforms: &[Arc<dyn Transform>],
    block: RecordBatch,
    take: &mut Take<'_>,
) -> Result<Flow, DataError> {
    let Some((first, rest)) = transforms.split_first() else {
        return if block.num_rows() == 0 { Ok(Flow::Continue) } else { take(block) };
    };
    for block in first.apply(block)? {
        if transformed(rest, block, take)? == Flow::Stop {
            return Ok(Flow::Stop);
        }
    }
    Ok(Flow::Continue)
}

fn collect(
    source: &Arc<dyn Source>,
    units: &[usize],
    transforms: &[Arc<dyn Transform>],
) -> Result<Vec<RecordBatch>, DataError> {
    let mut blocks = Vec::new();
    for_each(source, units, &mut |block| {
        transformed(transforms, block, &mut |block| {
            blocks.push(block);
            Ok(Flow::Continue)
        })
    })?;
    Ok(blocks)
}

fn rows_of(blocks: &[RecordBatch]) -> usize {
    blocks.iter().map(RecordBatch::num_rows).sum()
}

/// The rows at these places of all blocks together, in blocks of so many rows.
fn gather(blocks: Vec<RecordBatch>, places: &[u32], rows: usize, take: &mut Take<'_>) -> Result<Flow, DataError> {
    let Some(whole) = gathered(blocks, places)? else { return Ok(Flow::Continue) };
    for begin in (0..places.len()).step_by(rows) {
        if take(whole.slice(begin, rows.min(places.len() - begin)))? == Flow::Stop {
            return Ok(Flow::Stop);
        }
    }
    Ok(Flow::Continue)
}
