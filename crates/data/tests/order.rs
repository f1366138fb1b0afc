//! ORDER-1 to ORDER-3, on random sources, seeds, numbers of ranks and positions.

use std::collections::BTreeMap;

use carril_data::Unit;
use carril_data::order::{Order, Piece, Position, Segment, Share, Shuffle, permutation};
use proptest::prelude::*;

const CHUNK: u64 = 7;

/// A row by unit and place in it.
type Row = (usize, u64);

/// What is read, and how it is shown.
struct Data {
    rows: Vec<u64>,
    counted: bool,
    /// Whether a row stays one row; otherwise it becomes none, one or two.
    keeps: bool,
}

impl Data {
    fn units(&self) -> Vec<Unit> {
        self.rows
            .iter()
            .map(|rows| Unit { rows: self.counted.then_some(*rows), bytes: rows * 8, ..Unit::default() })
            .collect()
    }

    fn times(&self, row: Row) -> usize {
        if self.keeps { 1 } else { (row.0 + row.1 as usize) % 3 }
    }

    /// What a piece gives, in its order.
    fn given_by(&self, piece: &Piece) -> Vec<(Row, usize)> {
        let rows = |unit: &usize| {
            (0..self.rows[*unit]).map({
                let unit = *unit;
                move |row| (unit, row)
            })
        };
        let all: Vec<Row> = piece.units.iter().flat_map(rows).collect();
        let order: Vec<u32> = match piece.key {
            Some(key) => permutation(key, all.len()),
            None => (0..all.len() as u32).collect(),
        };
        let end = piece.end.unwrap_or(all.len() as u64);
        let wanted = order[piece.begin as usize..end as usize].iter().map(|place| all[*place as usize]);
        wanted.flat_map(|row| (0..self.times(row)).map(move |time| (row, time))).skip(piece.taken as usize).collect()
    }

    /// What a rank is handed, each with its position behind it.
    fn handed_by(&self, share: Share) -> Vec<((Row, usize), Position)> {
        let Share { pieces, mut stripe, .. } = share;
        let mut handed = Vec::new();
        for (number, piece) in pieces.iter().enumerate() {
            for (row, item) in self.given_by(piece).into_iter().enumerate() {
                if stripe.as_mut().is_some_and(|stripe| stripe.take(1).is_empty()) {
                    continue;
                }
                let position = Position { pieces: number as u64, done: 0, rows: row as u64 + 1, own: 0 };
                let position = if self.keeps && self.counted { position } else { self.by_chunks(piece, position) };
                handed.push((item, Position { own: handed.len() as u64 + 1, ..position }));
            }
        }
        handed
    }

    /// The same, with the chunks of the piece that are done with.
    fn by_chunks(&self, piece: &Piece, position: Position) -> Position {
        let whole = Piece { taken: 0, ..piece.clone() };
        let mut before = piece.taken + position.rows;
        let mut done = 0;
        loop {
            let end = piece.begin + done + CHUNK;
            if whole.end.is_none_or(|all| end >= all) {
                break;
            }
            let chunk = Piece { begin: piece.begin + done, end: Some(end), ..whole.clone() };
            let rows = self.given_by(&chunk).len() as u64;
            if before < rows {
                break;
            }
            before -= rows;
            done += CHUNK;
        }
        let rows = if done > 0 { before } else { position.rows };
        Position { done, rows, ..position }
    }
}

fn shuffles() -> impl Strategy<Value = Shuffle> {
    prop_oneof![Just(Shuffle::None), Just(Shuffle::Units), Just(Shuffle::Rows)]
}

proptest! {
    #[test]
    fn each_row_is_dealt_once_through_any_changes_of_the_number_of_ranks(
        rows in prop::collection::vec(0u64..40, 0..20),
        shuffle in shuffles(),
        seed in any::<u64>(),
        epoch in 0u64..5,
        counted in any::<bool>(),
        keeps in any::<bool>(),
        deals_rest in any::<bool>(),
        changes in prop::collection::vec((1usize..6, prop::collection::vec(0u64..60, 6)), 0..4),
        last in 1usize..6,
        together in prop::option::of(1u64..60),
    ) {
        let data = Data { rows, counted, keeps };
        let units = data.units();
        let order = Order { shuffle, seed, window: 300, keeps_rows: keeps && counted, chunk: CHUNK, together };
        let mut seen: BTreeMap<(Row, usize), u32> = BTreeMap::new();
        let mut before: Vec<Segment> = Vec::new();
        let dealt = |before: &[Segment], world: usize| {
            let left = order.left(&units, epoch, before);
            let deal = order.deal_of(&left, world, deals_rest, !deals_rest);
            let shares: Vec<Share> = (0..world).map(|rank| order.share(left.clone(), deal, world, rank)).collect();
            (deal, shares)
        };
        for (world, taken) in &changes {
            let (deal, shares) = dealt(&before, *world);
            let mut ranks = Vec::new();
            for (share, taken) in shares.into_iter().zip(taken) {
                let mut mine = data.handed_by(share);
                mine.truncate(*taken as usize);
                ranks.push(mine.last().map_or_else(Position::default, |(_, position)| *position));
                for (row, _) in mine {
                    *seen.entry(row).or_default() += 1;
                }
            }
            before.push(Segment { deal, is_round: taken[0] % 2 == 0, ranks, behind: Vec::new() });
        }
        let mut sizes = Vec::new();
        let (_, shares) = dealt(&before, last);
        let rest = shares[0].rest;
        for share in shares {
            let mine = data.handed_by(share);
            sizes.push(mine.len());
            for (row, _) in mine {
                *seen.entry(row).or_default() += 1;
            }
        }
        prop_assert!(seen.values().all(|times| *times == 1), "ORDER-1: {seen:?}");
        let all = (0..data.rows.len()).flat_map(|unit| (0..data.rows[unit]).map(move |row| (unit, row)));
        let all: u64 = all.map(|row| data.times(row) as u64).sum();
        let missing = all - seen.len() as u64;
        if counted && keeps && deals_rest {
            prop_assert!(sizes.windows(2).all(|pair| pair[0] == pair[1] || pair[0] == pair[1] + 1), "ORDER-2: {sizes:?}");
            prop_assert_eq!(missing, 0);
        } else if counted && keeps {
            prop_assert!(sizes.windows(2).all(|pair| pair[0] == pair[1]), "ORDER-2: {sizes:?}");
            prop_assert!(missing < last as u64, "ORDER-1: {missing} rows are dealt to nobody");
            prop_assert_eq!(missing, rest);
        } else {
            prop_assert_eq!(missing, 0);
        }
    }

    #[test]
    fn an_epoch_repeats_by_its_seed_and_differs_from_the_next(seed in any::<u64>()) {
        let units = Data { rows: vec![50; 40], counted: true, keeps: true }.units();
        for shuffle in [Shuffle::Units, Shuffle::Rows] {
            let order = Order { shuffle, seed, window: 4000, keeps_rows: true, chunk: CHUNK, together: None };
            prop_assert_eq!(order.epoch(&units, 3), order.epoch(&units, 3));
            prop_assert_ne!(order.epoch(&units, 3), order.epoch(&units, 4));
        }
        let plain = Order { shuffle: Shuffle::None, seed, window: 4000, keeps_rows: true, chunk: CHUNK, together: None };
        prop_assert_eq!(plain.epoch(&units, 3), plain.epoch(&units, 4));
    }
}

#[test]
fn a_window_takes_as_many_units_as_fit() {
    let units = Data { rows: vec![10; 8], counted: true, keeps: true }.units();
    let order = Order { shuffle: Shuffle::Rows, seed: 1, window: 240, keeps_rows: true, chunk: CHUNK, together: None };
    let windows: Vec<usize> = order.epoch(&units, 0).iter().map(|piece| piece.units.len()).collect();
    assert_eq!(windows, [3, 3, 2]);
}

#[test]
fn units_that_are_smaller_than_what_a_function_wants_are_one_piece() {
    let epoch = |rows: Vec<u64>, counted: bool, shuffle: Shuffle| {
        let units = Data { rows, counted, keeps: false }.units();
        let order = Order { shuffle, seed: 1, window: 240, keeps_rows: false, chunk: CHUNK, together: Some(7) };
        order.epoch(&units, 0).iter().map(|piece| (piece.units.len(), piece.rows())).collect::<Vec<_>>()
    };
    assert_eq!(epoch(vec![3, 3, 3, 10, 2, 4], true, Shuffle::None), [(3, Some(9)), (1, Some(10)), (2, Some(6))]);
    assert_eq!(
        epoch(vec![3; 5], false, Shuffle::Units),
        [(5, None)],
        "nobody knows how many rows they have: they are small"
    );
    assert_eq!(epoch(vec![10; 4], true, Shuffle::Rows), [(3, Some(30)), (1, Some(10))], "a window is as large as ever");
}
