//! Who reads which rows, and in which order: a function of the seed, the epoch, the number of ranks and how far each has come.
//!
//! An epoch is a row of pieces. A piece is one unit, or with shuffled rows a window of units whose rows are permuted
//! together. The row is dealt to the ranks in equal parts; when their number changes in the middle of an epoch, what each of them has
//! left is put together again and dealt anew. So a position is two integers for each rank and each change, and nothing is
//! asked of anybody.
//!
//! Rows may be counted or not, and what becomes of them may keep their number or not. What is counted is dealt by rows, the
//! rest by pieces. Where every row stays one row, a position inside a piece is a place in it. Otherwise what is read is changed
//! chunk by chunk, and a position is whole chunks, and rows of what came out of the next, which is made again.
//!
//! ORDER-1: over all ranks, and over all changes of their number, each row of an epoch is dealt once, but for a rest
//!   smaller than the number of ranks, which only the last deal of an epoch leaves, unless it is dealt too.
//! ORDER-2: where rows are counted and kept, every rank is dealt the same number of them, or, where the rest is dealt too, at most
//!   one more than another.
//! ORDER-3: the same seed and epoch give the same row of pieces; another epoch another, if it is shuffled.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::source::Unit;

/// Of how many places in the order a rank's part is at least, where a function decides which rows stay. More would have more units
/// read several times, for a part each time.
const STRETCHES: usize = 4;

/// How an epoch is mixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shuffle {
    #[default]
    None,
    /// The units change places; their rows stay together.
    Units,
    /// The units change places, and the rows of each window do.
    Rows,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub shuffle: Shuffle,
    pub seed: u64,
    /// What a window may take in memory.
    pub window: u64,
    /// Whether every row that is read comes out as one row, in the same order.
    pub keeps_rows: bool,
    /// How many rows are changed together, where they are not kept.
    pub chunk: u64,
    /// Whether the rows that do not fill one for each rank are dealt too.
    pub deals_rest: bool,
}

/// What is read and permuted together, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub units: Vec<usize>,
    /// What its rows are permuted by.
    pub key: Option<u64>,
    /// The first row that is wanted, after the permutation.
    pub begin: u64,
    /// The row after the last one; nothing where rows are not counted: then all are wanted.
    pub end: Option<u64>,
    /// How many rows of what comes out were taken before.
    pub taken: u64,
}

impl Piece {
    pub fn rows(&self) -> Option<u64> {
        self.end.map(|end| end - self.begin)
    }

    /// The first `rows` of it, and the rest.
    fn split(mut self, rows: u64) -> (Piece, Piece) {
        let first = Piece { end: Some(self.begin + rows), ..self.clone() };
        self.begin += rows;
        (first, self)
    }
}

/// How far a rank has come in what it was dealt: whole pieces, rows of the next that are done with, and rows of what came
/// out behind those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub pieces: u64,
    pub done: u64,
    pub rows: u64,
}

/// How far each rank had come when their number changed.
pub type Segment = Vec<Position>;

impl Order {
    /// The whole epoch.
    pub fn epoch(&self, units: &[Unit], epoch: u64) -> Vec<Piece> {
        let mut random = Random::new(mix(self.seed, epoch));
        let mut sequence: Vec<usize> = (0..units.len()).collect();
        if self.shuffle != Shuffle::None {
            random.shuffle(&mut sequence);
        }
        let counted = units.iter().all(|unit| unit.rows.is_some());
        let mut pieces: Vec<Piece> = Vec::new();
        let (mut room, permuted) = (0, self.shuffle == Shuffle::Rows);
        for unit in sequence {
            let Unit { rows, bytes, .. } = units[unit];
            if rows == Some(0) && counted {
                continue;
            }
            match pieces.last_mut() {
                // A window is only of counted rows: what is not counted is permuted unit by unit.
                Some(window) if permuted && counted && bytes <= room => {
                    room -= bytes;
                    window.units.push(unit);
                    window.end = window.end.zip(rows).map(|(end, rows)| end + rows);
                }
                _ => {
                    room = self.window.saturating_sub(bytes);
                    let key = permuted.then(|| random.next());
                    pieces.push(Piece { units: vec![unit], key, begin: 0, end: rows.filter(|_| counted), taken: 0 });
                }
            }
        }
        pieces
    }

    /// What one rank has left of an epoch, after these changes of the number of ranks.
    pub fn share(&self, units: &[Unit], epoch: u64, before: &[Segment], world: usize, rank: usize) -> Vec<Piece> {
        self.deal(self.left(units, epoch, before), world).0.swap_remove(rank)
    }

    /// How many rows the last deal leaves over.
    pub fn rest(&self, units: &[Unit], epoch: u64, before: &[Segment], world: usize) -> u64 {
        self.deal(self.left(units, epoch, before), world).1.iter().filter_map(Piece::rows).sum()
    }

    fn deal(&self, pieces: Vec<Piece>, world: usize) -> (Vec<Vec<Piece>>, Vec<Piece>) {
        let is_spread = !self.keeps_rows && self.shuffle == Shuffle::None && world > 1;
        let pieces = if is_spread { spread(pieces, world) } else { pieces };
        let (mut shares, mut rest) = deal(pieces, world, self.deals_rest);
        if !self.keeps_rows {
            // The parts are not equal anyhow.
            shares.last_mut().expect("there is a rank").append(&mut rest);
        }
        (shares, rest)
    }

    /// What is left of a share behind a position.
    fn after(&self, share: Vec<Piece>, position: Position) -> Vec<Piece> {
        let mut left = share.into_iter().skip(position.pieces as usize);
        let Some(mut first) = left.next() else { return Vec::new() };
        if self.keeps_rows && first.end.is_some() {
            first.begin += position.done + position.rows;
        } else {
            first.begin += position.done;
            first.taken = if position.done > 0 { position.rows } else { first.taken + position.rows };
        }
        let mut begun = vec![first];
        if begun[0].taken > 0 && begun[0].rows().is_some_and(|rows| rows > self.chunk) {
            // Only the chunk that was begun has to stay whole.
            let taken = std::mem::take(&mut begun[0].taken);
            let (chunk, rest) = begun.remove(0).split(self.chunk);
            begun.extend([Piece { taken, ..chunk }, rest]);
        }
        begun.retain(|piece| piece.rows() != Some(0));
        begun.into_iter().chain(left).collect()
    }

    fn left(&self, units: &[Unit], epoch: u64, before: &[Segment]) -> Vec<Piece> {
        before.iter().fold(self.epoch(units, epoch), |left, segment| {
            let (shares, rest) = self.deal(left, segment.len());
            let unread = shares.into_iter().zip(segment).flat_map(|(share, position)| self.after(share, *position));
            unread.chain(rest).collect()
        })
    }
}

/// In an order in which equal parts, one after the other, are of rows from everywhere: a function may drop all rows of a stretch.
fn spread(pieces: Vec<Piece>, world: usize) -> Vec<Piece> {
    let rows = pieces.iter().map(Piece::rows).sum::<Option<u64>>();
    let most = match rows {
        Some(rows) if pieces.len() < world * STRETCHES => rows.div_ceil((world * STRETCHES) as u64).max(1),
        _ => u64::MAX,
    };
    let mut parts = Vec::new();
    for mut piece in pieces {
        // Equally long, so that no rank gets the long ones and another the short ones.
        let length = piece.rows().map_or(u64::MAX, |rows| rows.div_ceil(rows.div_ceil(most).max(1)));
        while piece.taken == 0 && piece.rows().is_some_and(|rows| rows > length) {
            let (first, after) = piece.split(length);
            parts.push(first);
            piece = after;
        }
        parts.push(piece);
    }
    if rows.is_none() {
        return parts;
    }
    deal_whole(parts, world).into_iter().flatten().collect()
}

/// Equal parts of what is there, one after the other: of rows where they are counted, otherwise of pieces. The rest is
/// smaller than the number of ranks: it is dealt to the first of them, or left over.
fn deal(pieces: Vec<Piece>, world: usize, deals_rest: bool) -> (Vec<Vec<Piece>>, Vec<Piece>) {
    let world = world.max(1);
    let Some(rows) = pieces.iter().map(Piece::rows).sum::<Option<u64>>() else {
        return (deal_whole(pieces, world), Vec::new());
    };
    let longer = if deals_rest { (rows % world as u64) as usize } else { 0 };
    let each = |rank: usize| rows / world as u64 + u64::from(rank < longer);
    let mut shares = vec![Vec::new(); world];
    let (mut rank, mut missing) = (0, each(0));
    let mut rest = Vec::new();
    let mut waiting: VecDeque<Piece> = pieces.into();
    while let Some(piece) = waiting.pop_front() {
        let there = piece.rows().unwrap_or(0);
        if missing == 0 && rank < world - 1 {
            (rank, missing) = (rank + 1, each(rank + 1));
        }
        if piece.taken > 0 {
            // What was begun is made again as a whole: it cannot be cut.
            missing = missing.saturating_sub(there);
            shares[rank].push(piece);
        } else if missing == 0 {
            rest.push(piece);
        } else if there <= missing {
            missing -= there;
            if there > 0 {
                shares[rank].push(piece);
            }
        } else {
            let (first, after) = piece.split(missing);
            shares[rank].push(first);
            missing = 0;
            waiting.push_front(after);
        }
    }
    (shares, rest)
}

/// One each in turn: how many rows a piece gives is not known, and neighbours are alike.
fn deal_whole(pieces: Vec<Piece>, world: usize) -> Vec<Vec<Piece>> {
    let mut shares = vec![Vec::new(); world];
    for (number, piece) in pieces.into_iter().enumerate() {
        shares[number % world].push(piece);
    }
    shares
}

/// SplitMix64 (Steele, Lea, Flood 2014): a seed must mean the same in every version of Carril.
pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`, by the high half of a product (Lemire 2019), without the correction: the bias is below 2^-32 here.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Fisher and Yates.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

/// One seed of two.
pub(crate) fn mix(seed: u64, other: u64) -> u64 {
    Random::new(seed ^ Random::new(other).next()).next()
}

/// The places that the rows of a piece come from, after its permutation.
pub fn permutation(key: u64, rows: usize) -> Vec<u32> {
    let mut places: Vec<u32> = (0..rows as u32).collect();
    Random::new(key).shuffle(&mut places);
    places
}
