//! One piece, read: its units, what becomes of their rows, their permutation, and the part that is wanted.
//!
//! PIECE-1: what a piece gives is a function of the piece: to go on in its middle is to pass over what was taken.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};

use crate::engine::{Pipeline, Transform, bytes_of};
use crate::error::DataError;
use crate::files::in_parallel;
use crate::gather::{Gather, gathered};
use crate::join::joined;
use crate::order::{Piece, mix, permutation};
use crate::read::BLOCK_BYTES;
use crate::source::{Flow, Source};

/// Blocks that are gathered have about so many rows, or fewer where these are long: a function has a block in its hands at once,
/// and what it makes of it.
const GATHERED: usize = 16 << 10;

pub(crate) struct Reading {
    pub pipeline: Pipeline,
    pub batch: usize,
    /// How many rows are changed together, where they are not kept.
    pub chunk: Option<usize>,
    /// By which the rows of a chunk are mixed.
    pub mixed_by: Option<u64>,
}

impl Reading {
    /// Whether several threads can read this piece together.
    pub fn is_shared(&self, piece: &Piece) -> bool {
        let Pipeline { source, transforms } = &self.pipeline;
        piece.key.is_some() && piece.end.is_some() && transforms.is_empty() && source.columns().is_some()
    }

    /// Into how many rows each what was put together is cut again.
    fn rows_of_a_block(&self, whole: &RecordBatch) -> usize {
        let fit = (BLOCK_BYTES * whole.num_rows() as u64) / bytes_of(whole).max(1);
        (fit as usize).clamp(1, GATHERED).next_multiple_of(self.batch)
    }
}

type Take<'a> = dyn FnMut(RecordBatch) -> Result<Flow, DataError> + 'a;
/// With how many rows of the piece were done with before.
type Give<'a> = dyn FnMut(u64, RecordBatch) -> Result<Flow, DataError> + 'a;

/// What a thread has in its hands of a piece before it hands it over: a whole window, or a block, and what its reader holds.
pub(crate) fn in_hand(piece: &Piece, source: &dyn Source) -> u64 {
    let units = piece.units.iter().map(|unit| source.units()[*unit]);
    let held = units.clone().map(|unit| unit.held).max().unwrap_or(0);
    let bytes = units.map(|unit| unit.bytes);
    held + match piece.key {
        Some(_) => bytes.sum(),
        None => bytes.max().unwrap_or(0).min(BLOCK_BYTES),
    }
}

/// `hands` are the threads that have nothing else to do.
pub(crate) fn read(reading: &Reading, piece: &Piece, hands: usize, give: &mut Give<'_>) -> Result<(), DataError> {
    let Pipeline { source, transforms } = &reading.pipeline;
    let mut change = Change { reading, piece, untaken: Wanted { skip: piece.taken, left: None }, done: 0, give };
    change.begin_chunk();
    match (piece.key, piece.end) {
        // Counted rows are permuted first: only the part that is wanted is transformed.
        (Some(key), Some(end)) => {
            let Some(part) = part_of_window(source, piece, key, piece.begin..end, hands)? else { return Ok(()) };
            let rows = reading.chunk.unwrap_or_else(|| reading.rows_of_a_block(&part));
            cut(&part, rows, &mut |block| change.carry_out(block)).map(drop)
        }
        (Some(key), None) => {
            let window = collect(source, &piece.units, transforms)?;
            let places = permutation(key, rows_of(&window));
            gather(reading, window, &places, &mut |block| change.hand_over(block)).map(drop)
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
    /// In the chunk in which what is wanted ends, only so many rows are.
    fn begin_chunk(&mut self) -> Flow {
        match self.piece.stop {
            Some(stop) if self.done > stop.done => return Flow::Stop,
            Some(stop) if self.done == stop.done && self.untaken.left.is_none() => self.untaken.left = Some(stop.rows),
            _ => {}
        }
        Flow::Continue
    }

    fn carry_out(&mut self, chunk: RecordBatch) -> Result<Flow, DataError> {
        if self.begin_chunk() == Flow::Stop {
            return Ok(Flow::Stop);
        }
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
                let places = permutation(key, rows_of(&blocks));
                gather(self.reading, blocks, &places, &mut |block| self.hand_over(block))?
            }
        };
        self.done += rows;
        Ok(flow)
    }

    fn hand_over(&mut self, block: RecordBatch) -> Result<Flow, DataError> {
        match self.untaken.part(block) {
            (flow, Some(block)) => Ok(flow.and((self.give)(self.done, block)?)),
            (flow, None) => Ok(flow),
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
            if take(joined(std::mem::take(&mut self.held))?)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
    }

    fn flush(&mut self, take: &mut Take<'_>) -> Result<(), DataError> {
        if self.held.is_empty() {
            return Ok(());
        }
        take(joined(std::mem::take(&mut self.held))?).map(drop)
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

/// Rows of a window, in its own order.
fn part_of_window(
    source: &Arc<dyn Source>,
    piece: &Piece,
    key: u64,
    wanted: Range<u64>,
    hands: usize,
) -> Result<Option<RecordBatch>, DataError> {
    let wanted = wanted.start as usize..wanted.end as usize;
    let Some(columns) = source.columns() else {
        let window = collect(source, &piece.units, &[])?;
        let places = permutation(key, rows_of(&window));
        return gathered(window, places.get(wanted).ok_or_else(DataError::changed)?);
    };
    let units = || piece.units.iter();
    let rows = units().map(|unit| source.units()[*unit].rows.unwrap_or(0)).sum::<u64>() as usize;
    let places = permutation(key, rows);
    let places = places.get(wanted).ok_or_else(DataError::changed)?;
    let schema = source.schema();
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    let read = |some: &[usize]| {
        let mut gather = Gather::new(places);
        let column = |column: &usize| {
            let parts =
                units().map(|unit| columns.read_column(*unit, *column)).collect::<Result<Vec<_>, _>>()?.concat();
            match parts.iter().map(|part| part.len()).sum::<usize>() == rows {
                true => Ok(gather.column(parts)?),
                false => Err(DataError::changed()),
            }
        };
        some.iter().map(column).collect::<Result<Vec<_>, DataError>>()
    };
    let shares = all.chunks(all.len().div_ceil(hands).max(1));
    let made = in_parallel(&shares.collect::<Vec<_>>(), |share| read(share))?.concat();
    let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
    Ok(Some(RecordBatch::try_new_with_options(schema, made, &options)?))
}

/// The rows at these places of all blocks together, in blocks of another size.
fn gather(reading: &Reading, blocks: Vec<RecordBatch>, places: &[u32], take: &mut Take<'_>) -> Result<Flow, DataError> {
    match gathered(blocks, places)? {
        Some(whole) => cut(&whole, reading.rows_of_a_block(&whole), take),
        None => Ok(Flow::Continue),
    }
}

fn cut(whole: &RecordBatch, rows: usize, take: &mut Take<'_>) -> Result<Flow, DataError> {
    for begin in (0..whole.num_rows()).step_by(rows) {
        if take(whole.slice(begin, rows.min(whole.num_rows() - begin)))? == Flow::Stop {
            return Ok(Flow::Stop);
        }
    }
    Ok(Flow::Continue)
}
