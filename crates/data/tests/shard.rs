//! SHARD-1, SHARD-3 and SHARD-5 on the whole way from units to batches: random data, budgets, numbers of ranks, sizes of batches, policies and
//! kills, with real threads, windows and boards. With `CARRIL_LONG` two thousand of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};
use std::thread;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::filter::filter_record_batch;
use carril_data::order::Shuffle;
use carril_data::{
    Cut, DataError, Flow, MARK, Pipeline, Progress, Shard, ShardOptions, Source, Transform, Uneven, Unit, carried,
};
use proptest::prelude::*;

/// Numbers in a row, in units that say how many they have or not.
struct Numbers {
    units: Vec<Unit>,
    begins: Vec<(i64, i64)>,
}

impl Numbers {
    /// `units` are rows and what they are said to take, in megabytes: so windows are of several.
    fn new(units: &[(u64, u64)], counted: bool) -> Self {
        let mut next = 0;
        let begins = units.iter().map(|(rows, _)| {
            next += *rows as i64;
            (next - *rows as i64, next)
        });
        let begins = begins.collect();
        let unit = |(rows, size): &(u64, u64)| Unit { rows: counted.then_some(*rows), bytes: size << 20, held: 0 };
        Self { units: units.iter().map(unit).collect(), begins }
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]))
}

impl Source for Numbers {
    fn schema(&self) -> SchemaRef {
        schema()
    }

    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn read(&self, unit: usize, take: &mut dyn FnMut(RecordBatch) -> Result<Flow, DataError>) -> Result<(), DataError> {
        let (begin, end) = self.begins[unit];
        for from in (begin..end).step_by(13) {
            let column: ArrayRef = Arc::new(Int64Array::from_iter_values(from..end.min(from + 13)));
            if take(RecordBatch::try_new(schema(), vec![column])?)? == Flow::Stop {
                break;
            }
        }
        Ok(())
    }
}

/// Keeps the rows below a number, and every third of the others.
struct Below(i64);

impl Below {
    fn keeps(&self, row: i64) -> bool {
        row < self.0 || row % 3 == 0
    }
}

impl Transform for Below {
    fn apply(&self, block: RecordBatch) -> Result<Vec<RecordBatch>, DataError> {
        let rows = block.column(0).as_primitive::<Int64Type>().values();
        let mask: Vec<bool> = rows.iter().map(|row| self.keeps(*row)).collect();
        Ok(vec![filter_record_batch(&block, &BooleanArray::from(mask))?])
    }

    fn keeps_rows(&self) -> bool {
        false
    }
}

#[derive(Clone, Debug)]
struct Data {
    units: Vec<(u64, u64)>,
    counted: bool,
    below: Option<i64>,
    shuffle: Shuffle,
    seed: u64,
    local_shuffle: Option<usize>,
    uneven: Uneven,
}

impl Data {
    fn pipeline(&self) -> Pipeline {
        let transform = |below: i64| Arc::new(Below(below)) as Arc<dyn Transform>;
        Pipeline {
            source: Arc::new(Numbers::new(&self.units, self.counted)),
            transforms: self.below.map(transform).into_iter().collect(),
        }
    }

    fn rows(&self) -> Vec<i64> {
        let all: u64 = self.units.iter().map(|(rows, _)| rows).sum();
        (0..all as i64).filter(|row| self.below.is_none_or(|below| Below(below).keeps(*row))).collect()
    }
}

/// So many epochs are read.
const EPOCHS: u64 = 3;

/// One life of a group of ranks: its budget, and after how many batches each of them saves how far it has come. It is killed when all have.
#[derive(Clone, Debug)]
struct Life {
    budget: u64,
    batch: usize,
    saves: Vec<u64>,
    /// Decides how many rows of their last batch the ranks were handed.
    part: Option<u64>,
}

impl Life {
    fn world(&self) -> usize {
        self.saves.len()
    }
}

/// By epoch.
type Row = (u64, i64);

/// What a rank was handed before it saved, and what it saved.
struct Rank {
    rows: Vec<Row>,
    /// How many batches, also those after that.
    handed: u64,
    is_saved: bool,
    saved: Option<Progress>,
}

fn options(data: &Data, world: usize, rank: usize, place: &std::path::Path, budget: u64) -> ShardOptions {
    ShardOptions {
        name: "train".to_owned(),
        shuffle: data.shuffle,
        seed: data.seed,
        world,
        rank,
        uneven: data.uneven,
        deals_rest: false,
        meeting: Some(place.to_owned()),
        multiple: 1,
        threads: 1 + rank % 2,
        budget,
        warn: |_| (),
        watch: None,
    }
}

fn live(data: &Data, life: &Life, place: &std::path::Path, saved: &[Option<Progress>]) -> Vec<Rank> {
    // A kill takes the whole group: nobody leaves before the others.
    let group = Arc::new(Barrier::new(life.world()));
    let most = life.saves.iter().copied().max().unwrap_or(0);
    let ranks: Vec<_> = (0..life.world())
        .map(|rank| {
            let group = group.clone();
            let options = options(data, life.world(), rank, place, life.budget);
            let shard = Shard::new(data.pipeline(), options, saved).unwrap();
            let cut = Cut { batch_size: Some(life.batch), drop_last: false, local_shuffle: data.local_shuffle };
            let unasked = carried(saved);
            let (saves, part) = (life.saves[rank], life.part.map(|part| part + 7 * rank as u64));
            thread::spawn(move || {
                let mut rank = Rank { rows: Vec::new(), handed: 0, saved: None, is_saved: saves == 0 };
                if saves == 0 {
                    // It may not have asked for the data set yet.
                    rank.saved = if part.is_some() { unasked } else { Some(shard.progress()) };
                }
                while rank.handed < most && shard.epoch() < EPOCHS {
                    let mut epoch = shard.begin(cut).unwrap();
                    while rank.handed < most {
                        let Some(batch) = epoch.next_batch().unwrap() else { break };
                        rank.handed += 1;
                        if rank.is_saved {
                            continue;
                        }
                        let mut ids = batch.column(0).as_primitive::<Int64Type>().values().to_vec();
                        if let Some(part) = part.filter(|_| rank.handed == saves) {
                            ids.truncate(1 + part as usize % ids.len());
                            epoch.hand_over(ids.len());
                        }
                        if rank.handed == saves {
                            (rank.saved, rank.is_saved) = (Some(shard.progress()), true);
                        }
                        let padded = batch.column_by_name(MARK).map(|mark| mark.as_boolean().clone());
                        let is_own = |row: usize| padded.as_ref().is_none_or(|padded| !padded.value(row));
                        let own = (0..ids.len()).filter(|row| is_own(*row)).map(|row| (epoch.epoch(), ids[row]));
                        rank.rows.extend(own);
                    }
                    group.wait();
                }
                if !rank.is_saved {
                    rank.saved = Some(shard.progress());
                }
                rank
            })
        })
        .collect();
    ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
}

fn lives() -> impl Strategy<Value = Vec<Life>> {
    // Ranks report after as many batches, or each when it wants to.
    let together = (1usize..6, 0u64..12).prop_map(|(world, saves)| vec![saves; world]);
    let apart = prop::collection::vec(0u64..30, 1..6);
    let life = (20u32..30, 1usize..20, prop_oneof![together, apart], prop::option::of(any::<u32>()))
        .prop_map(|(budget, batch, saves, part)| Life { budget: 1 << budget, batch, saves, part: part.map(u64::from) });
    prop::collection::vec(life, 1..5)
}

#[test]
fn what_nobody_counted_is_spread_over_ranks_that_are_padded_too() {
    let one_large = [vec![(1_000, 0)], vec![(1_000, 0), (3, 0), (5, 0), (2, 0), (7, 0)]];
    let behind_a_filter = (vec![(300, 0); 4], true, Some(301));
    let uncounted = one_large.map(|units| (units, false, None));
    for (units, counted, below) in uncounted.into_iter().chain([behind_a_filter]) {
        for uneven in [Uneven::Drop, Uneven::Pad] {
            let (shuffle, seed, local_shuffle) = (Shuffle::None, 1, None);
            let data = Data { units: units.clone(), counted, below, shuffle, seed, local_shuffle, uneven };
            let directory = tempfile::tempdir().unwrap();
            let life = Life { budget: 1 << 24, batch: 10, saves: vec![u64::MAX; 4], part: None };
            let ranks = live(&data, &life, &directory.path().join("0"), &[]);
            let own = |rank: &Rank| rank.rows.iter().filter(|(epoch, _)| *epoch == 0).count();
            let counts: Vec<usize> = ranks.iter().map(own).collect();
            let (all, most) = (data.rows().len(), *counts.iter().max().unwrap());
            assert!(most <= all / 4 + 10, "{uneven:?}: a rank reads {most} of {all} rows, of {counts:?}");
        }
    }
}

#[test]
fn where_a_rank_leaves_the_padded_others_are_handed_all_of_their_parts() {
    let units = vec![(10, 0); 9];
    let (shuffle, local_shuffle, uneven) = (Shuffle::None, None, Uneven::Pad);
    let data = Data { units, counted: false, below: None, shuffle, seed: 1, local_shuffle, uneven };
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("0");
    let cut = Cut { batch_size: Some(4), ..Cut::default() };
    let shards: Vec<_> = (0..3)
        .map(|rank| Shard::new(data.pipeline(), options(&data, 3, rank, &place, 1 << 24), &[]).unwrap())
        .collect();
    let ranks: Vec<_> = (0..3)
        .map(|rank| {
            let shard = shards[rank].clone();
            thread::spawn(move || {
                let mut epoch = shard.begin(cut).unwrap();
                let mut rows = 0;
                while let Some(batch) = epoch.next_batch().unwrap() {
                    let mark = batch.column_by_name(MARK).unwrap().as_boolean();
                    rows += batch.num_rows() - mark.true_count();
                    if rank == 2 {
                        break;
                    }
                }
                rows
            })
        })
        .collect();
    let rows: Vec<usize> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
    assert_eq!(rows, [30, 30, 4]);
}

fn data() -> impl Strategy<Value = Data> {
    (
        prop::collection::vec((0u64..60, 0u64..6), 0..14),
        any::<bool>(),
        prop::option::of(0i64..300),
        prop_oneof![Just(Shuffle::None), Just(Shuffle::Units), Just(Shuffle::Rows)],
        any::<u64>(),
        prop_oneof![3 => Just(None), 1 => (1usize..40).prop_map(Some)],
        prop_oneof![3 => Just(Uneven::Drop), 1 => Just(Uneven::Pad)],
    )
        .prop_map(|(units, counted, below, shuffle, seed, local_shuffle, uneven)| Data {
            units,
            counted,
            below,
            shuffle,
            seed,
            local_shuffle,
            uneven,
        })
}

fn cases() -> u32 {
    if std::env::var_os("CARRIL_LONG").is_some() { 2_000 } else { 192 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn each_row_is_handed_over_once_per_epoch_through_kills_and_resizes(data in data(), lives in lives()) {
        let directory = tempfile::tempdir().unwrap();
        let mut seen: BTreeMap<Row, u32> = BTreeMap::new();
        let mut saved: Vec<Option<Progress>> = Vec::new();
        let last = lives.len() - 1;
        for (number, life) in lives.iter().enumerate() {
            let mut life = life.clone();
            if number == last {
                life.saves.fill(u64::MAX);
            }
            let place = directory.path().join(format!("{number}"));
            let ranks = live(&data, &life, &place, &saved);
            prop_assert!(ranks.iter().all(|rank| rank.handed == ranks[0].handed), "SHARD-3");
            for row in ranks.iter().flat_map(|rank| &rank.rows) {
                *seen.entry(*row).or_default() += 1;
            }
            saved = ranks.into_iter().map(|rank| rank.saved).collect();
            // As it goes to a manifest and back.
            saved = serde_json::from_str(&serde_json::to_string(&saved).unwrap()).unwrap();
        }
        let twice: Vec<_> = seen.iter().filter(|(_, times)| **times > 1).collect();
        prop_assert!(twice.is_empty(), "twice: {twice:?}");
        let rows = data.rows();
        let largest = lives.iter().map(Life::world).max().unwrap_or(1);
        let most = if data.uneven == Uneven::Drop { largest } else { 1 };
        for epoch in 0..EPOCHS {
            let missing: Vec<&i64> = rows.iter().filter(|row| !seen.contains_key(&(epoch, **row))).collect();
            prop_assert!(missing.len() < most, "{} of {} are missing in {epoch}: {missing:?}", missing.len(), rows.len());
        }
        prop_assert!(seen.keys().all(|(epoch, row)| *epoch < EPOCHS && rows.binary_search(row).is_ok()));
    }
}
