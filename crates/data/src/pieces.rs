//! One piece, read: its units, what becomes of their rows, their permutation, and the part that is wanted.
//!
//! PIECE-1: what a piece gives is a function of the piece: to go on in its middle is to pass over what was taken.

use std::sync::Arc;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;

use crate::engine::{Pipeline, Transform};
use crate::error::DataError;
use crate::order::{Piece, mix, permutation};
use crate::source::{Flow, Source};

/// Blocks that are gathered have about so many rows.
const GATHERED: usize = 16 << 10;

pub(crate) struct Reading {
    pub pipeline: Pipeline,
    pub batch: usize,
    pub local_shuffle: Option<(usize, u64)>,
}

type Take<'a> = dyn FnMut(RecordBatch) -> Result<Flow, DataError> + 'a;

/// What has to be in memory at once before anything of a piece can be handed over.
pub(crate) fn window_bytes(piece: &Piece, source: &dyn Source) -> u64 {
    match piece.key {
        Some(_) => piece.units.iter().map(|unit| source.units()[*unit].bytes).sum(),
        None => 0,
    }
}

pub(crate) fn read(reading: &Reading, piece: &Piece, take: &mut Take<'_>) -> Result<(), DataError> {
    let Pipeline { source, transforms } = &reading.pipeline;
    let mut untaken = Wanted { skip: piece.taken, left: None };
    let mut mixer = reading.local_shuffle.map(|(rows, seed)| Mixer::new(rows, mix(seed, piece.units[0] as u64)));
    let mut out = |block: RecordBatch| match untaken.part(block) {
        (_, Some(block)) => take(block),
        (_, None) => Ok(Flow::Continue),
    };
    let mut made = |block: RecordBatch| match &mut mixer {
        Some(mixer) => mixer.push(block, reading.batch, &mut out),
        None => out(block),
    };
    match (piece.key, piece.end) {
        // Counted rows are permuted first: only the part that is wanted is transformed.
        (Some(key), Some(end)) => {
            let window = collect(source, &piece.units, &[])?;
            let places = permutation(key, rows_of(&window));
            let places = &places[piece.begin as usize..end as usize];
            gather(&window, places, reading.batch, &mut |block| transformed(transforms, block, &mut made))?;
        }
        (Some(key), None) => {
            let window = collect(source, &piece.units, transforms)?;
            gather(&window, &permutation(key, rows_of(&window)), reading.batch, &mut made)?;
        }
        (None, _) => {
            let mut wanted = Wanted { skip: piece.begin, left: piece.rows() };
            for_each(source, &piece.units, &mut |block| {
                let (flow, block) = wanted.part(block);
                match block {
                    Some(block) => Ok(flow.and(transformed(transforms, block, &mut made)?)),
                    None => Ok(flow),
                }
            })?;
        }
    }
    match mixer {
        Some(mut mixer) => mixer.flush(reading.batch, &mut out).map(drop),
        None => Ok(()),
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
fn transformed(transforms: &[Arc<dyn Transform>], block: RecordBatch, take: &mut Take<'_>) -> Result<Flow, DataError> {
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

/// The rows at these places of all blocks together, in pieces of a multiple of `batch` rows.
fn gather(blocks: &[RecordBatch], places: &[u32], batch: usize, take: &mut Take<'_>) -> Result<Flow, DataError> {
    let Some(first) = blocks.first() else { return Ok(Flow::Continue) };
    let together = if blocks.len() == 1 { first.clone() } else { concat_batches(&first.schema(), blocks)? };
    for part in places.chunks(GATHERED.next_multiple_of(batch)) {
        let rows = UInt32Array::from(part.to_vec());
        if take(take_record_batch(&together, &rows)?)? == Flow::Stop {
            return Ok(Flow::Stop);
        }
    }
    Ok(Flow::Continue)
}

/// Mixes rows among their neighbours.
struct Mixer {
    rows: usize,
    seed: u64,
    windows: u64,
    held: Vec<RecordBatch>,
}

impl Mixer {
    fn new(rows: usize, seed: u64) -> Self {
        Self { rows: rows.max(1), seed, windows: 0, held: Vec::new() }
    }

    fn push(&mut self, block: RecordBatch, batch: usize, take: &mut Take<'_>) -> Result<Flow, DataError> {
        self.held.push(block);
        if rows_of(&self.held) < self.rows { Ok(Flow::Continue) } else { self.flush(batch, take) }
    }

    fn flush(&mut self, batch: usize, take: &mut Take<'_>) -> Result<Flow, DataError> {
        let held = std::mem::take(&mut self.held);
        self.windows += 1;
        gather(&held, &permutation(mix(self.seed, self.windows), rows_of(&held)), batch, take)
    }
}
