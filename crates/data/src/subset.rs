//! Some of the rows of a source, as a source: a range of them, or some of each unit by chance. Nothing is held in memory for it.
//!
//! SUBSET-1: a selection and its counterpart together are all rows, and no row is in both.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;
use serde::{Deserialize, Serialize};

use crate::error::DataError;
use crate::order::{mix, permutation};
use crate::source::{Flow, Source, Unit};

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Selection {
    /// The rows from one to before another, of all.
    Range { begin: u64, end: u64 },
    /// So many of all, spread evenly over the units and drawn in each; or all the others.
    Chance { rows: u64, seed: u64, others: bool },
}

pub struct Subset {
    source: Arc<dyn Source>,
    selection: Selection,
    units: Vec<Unit>,
    /// The rows that the units of the source have, and the number of the first of each.
    counts: Vec<(u64, u64)>,
    /// Where a unit is in the source: those of which nothing is selected are left out.
    places: Vec<usize>,
}

impl Subset {
    /// `rows` is what `count` gave.
    pub fn new(source: Arc<dyn Source>, selection: Selection, rows: &[u64]) -> Result<Subset, DataError> {
        if rows.len() != source.units().len() {
            return Err(DataError::changed());
        }
        let mut first = 0;
        let counts = rows.iter().map(|rows| {
            first += rows;
            (*rows, first - rows)
        });
        let counts = counts.collect();
        let mut subset = Subset { source, selection, units: Vec::new(), counts, places: Vec::new() };
        for unit in 0..subset.counts.len() {
            let (all, _) = subset.counts[unit];
            let rows = subset.selected(unit);
            if rows > 0 {
                let Unit { bytes, held, .. } = subset.source.units()[unit];
                let bytes = (u128::from(bytes) * u128::from(rows) / u128::from(all.max(1))) as u64;
                subset.units.push(Unit { rows: Some(rows), bytes, held });
                subset.places.push(unit);
            }
        }
        Ok(subset)
    }

    fn total(&self) -> u64 {
        self.counts.last().map_or(0, |(rows, first)| rows + first)
    }

    /// The part of a unit that lies in a range of all rows.
    fn part(&self, unit: usize, begin: u64, end: u64) -> Range<u64> {
        let (rows, first) = self.counts[unit];
        let inside = |row: u64| row.clamp(first, first + rows) - first;
        inside(begin)..inside(end)
    }

    fn drawn(&self, unit: usize, rows: u64) -> u64 {
        let (count, first) = self.counts[unit];
        let share = |row: u64| (u128::from(row) * u128::from(rows) / u128::from(self.total().max(1))) as u64;
        share(first + count) - share(first)
    }

    fn selected(&self, unit: usize) -> u64 {
        match self.selection {
            Selection::Range { begin, end } => {
                let part = self.part(unit, begin, end);
                part.end.saturating_sub(part.start)
            }
            Selection::Chance { rows, others, .. } => {
                let drawn = self.drawn(unit, rows);
                if others { self.counts[unit].0 - drawn } else { drawn }
            }
        }
    }

    /// For each row of a unit whether it is selected.
    fn mask(&self, unit: usize) -> Vec<bool> {
        let count = self.counts[unit].0 as usize;
        match self.selection {
            Selection::Range { begin, end } => {
                let part = self.part(unit, begin, end);
                (0..count as u64).map(|row| part.contains(&row)).collect()
            }
            Selection::Chance { rows, seed, others } => {
                let mut mask = vec![others; count];
                let places = permutation(mix(seed, unit as u64), count);
                places.iter().take(self.drawn(unit, rows) as usize).for_each(|place| mask[*place as usize] = !others);
                mask
            }
        }
    }
}

impl Source for Subset {
    fn schema(&self) -> SchemaRef {
        self.source.schema()
    }

    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn read(&self, unit: usize, take: &mut dyn FnMut(RecordBatch) -> Result<Flow, DataError>) -> Result<(), DataError> {
        let place = self.places[unit];
        let mask = self.mask(place);
        let end = mask.iter().rposition(|selected| *selected).map_or(0, |last| last + 1);
        let mut at = 0;
        self.source.read(place, &mut |block| {
            let part = mask.get(at..at + block.num_rows()).ok_or_else(DataError::changed)?;
            at += block.num_rows();
            let flow = match part {
                part if part.iter().all(|selected| *selected) => take(block)?,
                part if !part.contains(&true) => Flow::Continue,
                part => take(filter_record_batch(&block, &BooleanArray::from(part.to_vec()))?)?,
            };
            // Nothing is read behind the last row that is selected; a unit that is wanted to its end is seen to have changed.
            Ok(if at >= end && end < mask.len() { Flow::Stop } else { flow })
        })
    }

    fn files(&self) -> Vec<String> {
        self.source.files()
    }

    fn warnings(&self) -> Vec<String> {
        self.source.warnings()
    }
}

/// The rows of each unit. Those that the source does not tell are counted by reading it once, with so many threads.
pub fn count(source: &dyn Source, threads: usize) -> Result<Vec<u64>, DataError> {
    let units = source.units();
    if let Some(known) = units.iter().map(|unit| unit.rows).collect() {
        return Ok(known);
    }
    let counted = Mutex::new((0, vec![0; units.len()]));
    let work = || -> Result<(), DataError> {
        loop {
            let unit = {
                let mut next = counted.lock().unwrap_or_else(PoisonError::into_inner);
                next.0 += 1;
                next.0 - 1
            };
            if unit >= units.len() {
                return Ok(());
            }
            let mut rows = 0;
            source.read(unit, &mut |block| {
                rows += block.num_rows() as u64;
                Ok(Flow::Continue)
            })?;
            counted.lock().unwrap_or_else(PoisonError::into_inner).1[unit] = rows;
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let panicked = || DataError::Panicked;
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| panicked())?)
    })?;
    Ok(counted.into_inner().unwrap_or_else(PoisonError::into_inner).1)
}
