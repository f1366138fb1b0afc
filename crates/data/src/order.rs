//! Who reads which rows, and in which order: a function of the seed, the epoch, the number of ranks and how far each has come.
//!
//! An epoch is a row of pieces. A piece is one unit, or with shuffled rows a window of units whose rows are permuted
//! together. The row is dealt to the ranks in equal parts; when their number changes in the middle of an epoch, what each of them has
//! left is put together and dealt again. So a position is two integers for each rank and each change, and nothing is
//! asked of anybody.
//!
//! Rows may be counted or not, and what becomes of them may keep their number or not. What is counted is dealt by rows, the
//! rest by pieces. Where every row stays one row, a position inside a piece is a place in it. Otherwise what is read is changed
//! chunk by chunk, and a position is whole chunks, and rows of what came out of the next, which is made again.
//!
//! Where nobody knows how many rows the ranks' parts have, ranks that must end together deal what they have left again when the first of
//! them has no more, and what is too little to be dealt in parts they deal in stripes: each reads all of it, and takes every n-th row.
//!
//! ORDER-1: over all ranks, and over all changes of their number, each row of an epoch is dealt once, but for a rest
//!   smaller than the number of ranks, which only the last deal of an epoch leaves, unless it is dealt too.
//! ORDER-2: where rows are counted and kept, every rank is dealt the same number of them, or, where the rest is dealt too, at most
//!   one more than another.
//! ORDER-3: the same seed and epoch give the same row of pieces; another epoch another, if it is shuffled.
//! ORDER-4: what decides the order is in `Order`, the units and the segments. Memory, cores, other data sets and the number of ranks that read
//!   later are not.

use std::collections::VecDeque;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::source::Unit;

/// Of how many places in the order a rank's part is at least, where a function decides which rows stay. More would have more units
/// read several times, for a part each time.
const STRETCHES: usize = 4;
/// So often ranks deal again in parts what they have left; then in stripes.
const ROUNDS: usize = 4;
/// What a window takes in memory: the same everywhere, or a seed would mean another order on another machine. Small enough that several fit
/// into a small budget; one that does not fit is read all the same.
pub const WINDOW: u64 = 8 << 20;
/// What a data set takes in memory whose rows are one window.
pub const SMALL: u64 = 32 << 20;

/// What units whose rows nobody has counted take in memory that are one piece for a function.
const JOINED: u64 = 64 << 10;

/// What a rank that is in the next epoch already has read of this one: everything.
pub const ALL: u64 = 1 << 62;

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
    /// How many rows a function wants together: units that have fewer are one piece.
    pub together: Option<u64>,
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
    /// Where what is wanted of it ends, if it does so before the end.
    pub stop: Option<Stop>,
}

/// A place in what comes out of a piece: behind so many of its rows, and so many rows of what comes out of the chunk after them. Those that
/// were taken before do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    pub done: u64,
    pub rows: u64,
}

impl Piece {
    pub fn rows(&self) -> Option<u64> {
        self.end.map(|end| end - self.begin)
    }

    /// Whether it can be dealt in parts: what was begun, or is read by another from some row on, is made again as a whole.
    fn is_whole(&self) -> bool {
        self.taken == 0 && self.stop.is_none()
    }

    /// The first `rows` of it, and the rest.
    fn split(mut self, rows: u64) -> (Piece, Piece) {
        let first = Piece { end: Some(self.begin + rows), ..self.clone() };
        self.begin += rows;
        (first, self)
    }
}

/// How far a rank has come in what it was dealt: whole pieces, rows of the next that are done with, and rows of what came
/// out behind those. `own` are the rows that it was handed, which in stripes are not all that came out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Numbers", into = "Numbers")]
pub struct Position {
    pub pieces: u64,
    pub done: u64,
    pub rows: u64,
    pub own: u64,
}

/// As it is written.
type Numbers = (u64, u64, u64, u64);

impl From<Numbers> for Position {
    fn from((pieces, done, rows, own): Numbers) -> Self {
        Self { pieces, done, rows, own }
    }
}

impl From<Position> for Numbers {
    fn from(Position { pieces, done, rows, own }: Position) -> Self {
        (pieces, done, rows, own)
    }
}

/// How what is left of an epoch is dealt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deal {
    /// Whether the rows that do not fill one for each rank are dealt too.
    pub deals_rest: bool,
    /// Whether every rank reads everything, and takes every n-th row.
    pub stripes: bool,
}

/// How far each rank had come when it was dealt again: the number of ranks changed, or one of them had no more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    pub deal: Deal,
    /// Whether the ranks dealt again among themselves.
    pub is_round: bool,
    pub ranks: Vec<Position>,
    /// Of a round: how far each rank had come in it when the checkpoint was made that was resumed from, where some had not come to its end and
    /// others were in a later round already. What lies between is dealt by the next segment that is no round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<Position>,
}

/// What is left of an epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    pub pieces: Vec<Piece>,
    /// Of the rows that come out of them those that were handed over, by their numbers.
    holes: Vec<Range<u64>>,
    /// What ranks have left of earlier rounds, which nobody was dealt in this one.
    aside: Vec<Piece>,
    rounds: usize,
    /// In the last round nobody was handed anything.
    is_stuck: bool,
}

/// What one rank is dealt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    pub pieces: Vec<Piece>,
    pub stripe: Option<Stripe>,
    /// How many counted rows nobody is dealt.
    pub rest: u64,
}

/// Which of the rows that come out a rank takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stripe {
    holes: VecDeque<Range<u64>>,
    world: u64,
    rank: u64,
    /// The number of the next row, and its number without the holes.
    next: (u64, u64),
}

impl Stripe {
    /// Of the next rows that come out, the places of those that this rank takes.
    pub fn take(&mut self, rows: u64) -> Vec<u32> {
        let mut places = Vec::new();
        let (begin, mut numbered) = self.next;
        for row in begin..begin + rows {
            while self.holes.front().is_some_and(|hole| hole.end <= row) {
                self.holes.pop_front();
            }
            if self.holes.front().is_some_and(|hole| hole.contains(&row)) {
                continue;
            }
            if numbered % self.world == self.rank {
                places.push((row - begin) as u32);
            }
            numbered += 1;
        }
        self.next = (begin + rows, numbered);
        places
    }
}

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
        let wanted = self.together.filter(|_| !permuted).map_or(0, |rows| if counted { rows } else { JOINED });
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
                Some(piece) if !permuted && room > 0 => {
                    room = room.saturating_sub(rows.filter(|_| counted).unwrap_or(bytes));
                    piece.units.push(unit);
                    piece.end = piece.end.zip(rows).map(|(end, rows)| end + rows);
                }
                _ => {
                    room = match permuted {
                        true => self.window.saturating_sub(bytes),
                        false => wanted.saturating_sub(rows.filter(|_| counted).unwrap_or(bytes)),
                    };
                    let key = permuted.then(|| random.next());
                    pieces.push(Piece {
                        units: vec![unit],
                        key,
                        begin: 0,
                        end: rows.filter(|_| counted),
                        taken: 0,
                        stop: None,
                    });
                }
            }
        }
        pieces
    }

    /// What is left of an epoch after these segments.
    pub fn left(&self, units: &[Unit], epoch: u64, before: &[Segment]) -> Left {
        let whole = Left { pieces: self.epoch(units, epoch), ..Left::default() };
        before.iter().fold(whole, |left, segment| self.behind(left, segment))
    }

    /// How what is left is dealt to so many ranks, which deal again what they have left when the first of them has no more, or do not.
    pub fn deal_of(&self, left: &Left, world: usize, deals_rest: bool, is_in_rounds: bool) -> Deal {
        let counted = left.pieces.iter().map(Piece::rows).sum::<Option<u64>>();
        let is_little = match counted {
            Some(rows) => rows <= self.chunk.saturating_mul(world as u64),
            None => left.pieces.iter().filter(|piece| piece.is_whole()).count() < world,
        };
        let is_equal = self.keeps_rows && counted.is_some();
        let is_striped = world > 1 && (is_in_rounds || !deals_rest) && !is_equal;
        let is_striped = is_striped && (is_little || left.is_stuck || left.rounds >= ROUNDS);
        Deal { deals_rest, stripes: is_striped || !left.holes.is_empty() }
    }

    /// What one of so many ranks is dealt.
    pub fn share(&self, left: Left, deal: Deal, world: usize, rank: usize) -> Share {
        if deal.stripes {
            let stripe =
                Stripe { holes: left.holes.into(), world: world.max(1) as u64, rank: rank as u64, next: (0, 0) };
            return Share { pieces: left.pieces, stripe: Some(stripe), rest: 0 };
        }
        let (mut shares, rest) = self.deal(left.pieces, world, deal.deals_rest);
        let rest = rest.iter().filter_map(Piece::rows).sum();
        Share { pieces: shares.swap_remove(rank), stripe: None, rest }
    }

    fn deal(&self, pieces: Vec<Piece>, world: usize, deals_rest: bool) -> (Vec<Vec<Piece>>, Vec<Piece>) {
        let is_spread = !self.keeps_rows && self.shuffle == Shuffle::None && world > 1;
        let pieces = if is_spread { spread(pieces, world) } else { pieces };
        let (mut shares, mut rest) = deal(pieces, world, deals_rest);
        if !self.keeps_rows {
            // The parts are not equal anyhow.
            shares.last_mut().expect("there is a rank").append(&mut rest);
        }
        (shares, rest)
    }

    fn behind(&self, left: Left, segment: &Segment) -> Left {
        let ranks = &segment.ranks;
        let rounds = left.rounds + usize::from(segment.is_round);
        let is_stuck = segment.is_round && ranks.iter().all(|position| position.own == 0);
        let mut aside = left.aside;
        let (mut pieces, holes) = match segment.deal.stripes {
            true => self.behind_stripes(left.pieces, left.holes, ranks),
            false => {
                let (shares, rest) = self.deal(left.pieces, ranks.len(), segment.deal.deals_rest);
                for ((share, from), to) in shares.iter().zip(&segment.behind).zip(ranks) {
                    aside.extend(self.between(share.clone(), *from, *to));
                }
                let unread = shares.into_iter().zip(ranks).flat_map(|(share, position)| self.after(share, *position));
                (unread.chain(rest).collect(), Vec::new())
            }
        };
        if !segment.is_round {
            pieces.append(&mut aside);
        }
        Left { pieces, holes, aside, rounds, is_stuck }
    }

    /// What lies in a share between two positions.
    fn between(&self, mut share: Vec<Piece>, from: Position, to: Position) -> Vec<Piece> {
        if from == to {
            return Vec::new();
        }
        share.truncate((to.pieces as usize).saturating_add(1));
        if share.len() as u64 > to.pieces {
            let Some(mut last) = share.pop() else { return Vec::new() };
            match (self.keeps_rows, last.end) {
                (true, Some(end)) => last.end = Some(end.min(last.begin + to.done + to.rows)),
                _ => last.stop = Some(Stop { done: to.done, rows: to.rows }),
            }
            share.push(last);
        }
        let mut pieces = self.after(share, from);
        if let Some(last) = pieces.pop() {
            match last.stop {
                // Only the chunk in which it ends has to stay whole.
                Some(Stop { done, rows }) if done > 0 && last.end.is_some() => {
                    let (first, chunk) = Piece { stop: None, ..last }.split(done);
                    let end = chunk.end.map(|end| end.min(chunk.begin.saturating_add(self.chunk)));
                    let stop = Some(Stop { done: 0, rows });
                    pieces.extend([first, Piece { end, taken: 0, stop, ..chunk }]);
                }
                _ => pieces.push(last),
            }
        }
        pieces.retain(|piece| piece.rows() != Some(0));
        pieces
    }

    /// From the rank on that has come least far, without what the others were handed behind that.
    fn behind_stripes(
        &self,
        pieces: Vec<Piece>,
        holes: Vec<Range<u64>>,
        ranks: &[Position],
    ) -> (Vec<Piece>, Vec<Range<u64>>) {
        let world = ranks.len() as u64;
        // How many rows lie, without the old holes, before the place that a rank has come to.
        let reached = |rank: usize| match ranks[rank].own {
            0 => 0,
            ALL => u64::MAX,
            own => (own - 1) * world + rank as u64 + 1,
        };
        let Some(least) = (0..ranks.len()).min_by_key(|rank| reached(*rank)) else { return (pieces, holes) };
        let (begin, end) =
            (reached(least), (0..ranks.len()).map(reached).filter(|at| *at < u64::MAX).max().unwrap_or(0));
        if begin == u64::MAX {
            return (Vec::new(), Vec::new());
        }
        // With the old holes.
        let mut old = holes.into_iter().peekable();
        let mut row = 0;
        let mut numbered = 0;
        let mut first = None;
        let mut holes: Vec<Range<u64>> = Vec::new();
        let mut add = |from: u64, to: u64| match holes.last_mut() {
            Some(last) if last.end == from => last.end = to,
            _ => holes.push(from..to),
        };
        loop {
            if numbered == begin && first.is_none() {
                first = Some(row);
            }
            if let Some(hole) = old.next_if(|hole| hole.start <= row) {
                if let Some(first) = first {
                    add(row - first, hole.end - first);
                }
                row = hole.end;
                continue;
            }
            if numbered >= end && first.is_some() && old.peek().is_none() {
                break;
            }
            if let Some(first) = first
                && numbered < end
                && numbered / world < ranks[(numbered % world) as usize].own
            {
                add(row - first, row - first + 1);
            }
            (row, numbered) = (row + 1, numbered + 1);
        }
        (self.after(pieces, if begin == 0 { Position::default() } else { ranks[least] }), holes)
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
            if let Some(stop) = &mut first.stop {
                let passed = if stop.done == position.done { position.rows } else { 0 };
                *stop = Stop { done: stop.done.saturating_sub(position.done), rows: stop.rows.saturating_sub(passed) };
            }
        }
        let mut begun = vec![first];
        if begun[0].taken > 0 && begun[0].rows().is_some_and(|rows| rows > self.chunk) {
            // Only the chunk that was begun has to stay whole.
            let taken = std::mem::take(&mut begun[0].taken);
            let (chunk, rest) = begun.remove(0).split(self.chunk);
            match rest.stop {
                Some(stop) if stop.done < self.chunk => begun.push(Piece { taken, ..chunk }),
                stop => {
                    let stop = stop.map(|stop| Stop { done: stop.done - self.chunk, ..stop });
                    begun.extend([Piece { taken, stop: None, ..chunk }, Piece { stop, ..rest }]);
                }
            }
        }
        begun.retain(|piece| piece.rows() != Some(0) && piece.stop != Some(Stop { done: 0, rows: 0 }));
        begun.into_iter().chain(left).collect()
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
        while piece.is_whole() && piece.rows().is_some_and(|rows| rows > length) {
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
        if !piece.is_whole() {
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
