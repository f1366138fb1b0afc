//! Data sets of a run: given to the trainer, sent to the workers, dealt to them, and resumed where a checkpoint left them.
//!
//! TRAIN-DATA-1: with each report goes how far this rank has read; a checkpoint keeps that of every rank.
//! TRAIN-DATA-2: a run that goes on begins behind what was read before its checkpoint, also with another number of workers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;
use carril_data::{Progress, Shard, ShardOptions, Uneven as Rule, positions};
use carril_store::{MANIFEST, Manifest, Storage};
use carril_types::ErrorCode;
use nix::libc;
use serde::{Deserialize, Serialize};

use super::change::BatchFunction;
use super::dataset::Dataset;
use super::error::invalid;
use super::plan::{Here, Memory, Plan};
use super::shard::{DataShard, Uneven};
use super::watch::Watcher;
use crate::error::{Error, Result};
use crate::functions::Function;
use crate::session::Session;
use crate::trainer::Trainer;
use crate::tune::Tuner;

/// Nobody has to look after anything in between: a block, an error or the end comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// In bytes, for what is read and not yet consumed: a tenth of the machine's memory, at most 2 GiB.
pub(crate) fn budget() -> u64 {
    // SAFETY: both only answer a question.
    let (page, pages) = unsafe { (libc::sysconf(libc::_SC_PAGESIZE), libc::sysconf(libc::_SC_PHYS_PAGES)) };
    (page.max(0) as u64 * pages.max(0) as u64 / 10).clamp(1 << 20, 2 << 30)
}

pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// To the worker's output, or the driver's: nobody else hears of data.
pub(crate) fn warn(text: &str) {
    eprintln!("carril: {text}");
}

/// What it is, once in a process, and what is so now.
pub(crate) fn told_once(what: &str, now: &str) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(what.to_owned()) {
        warn(&format!("{what}: {now}"));
    }
}

/// The data sets of a run, by name.
#[derive(Clone, Default)]
pub(crate) struct Given {
    sets: BTreeMap<String, One<Here>>,
    uneven: Rule,
}

/// The same on its way.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Sent {
    sets: BTreeMap<String, One<Plan<Bytes, Number>>>,
    uneven: Rule,
}

#[derive(Clone, Serialize, Deserialize)]
struct One<P> {
    plan: P,
    /// Otherwise every rank reads everything.
    is_dealt: bool,
}

/// From one to before another, of what is sent behind the plans.
type Bytes = (usize, usize);
/// A function's place in `init!`, and its name.
type Number = (usize, String);

impl Given {
    fn add(&mut self, name: String, dataset: Dataset, is_dealt: bool) {
        self.sets.insert(name, One { plan: dataset.plan, is_dealt });
    }

    /// Each in words, by which another one is known.
    pub fn describe(&self) -> BTreeMap<String, String> {
        let mut memory = |memory: Arc<Memory>| {
            Ok::<_, std::convert::Infallible>(memory.batches.iter().map(RecordBatch::num_rows).sum::<usize>())
        };
        let mut function = |function: Arc<BatchFunction>| Ok(function.known.name);
        let describe = |(name, one): (&String, &One<Here>)| {
            let plan = one.plan.clone().try_map(&mut memory, &mut function).ok()?;
            Some((name.clone(), serde_json::to_string(&plan).ok()?))
        };
        self.sets.iter().filter_map(describe).collect()
    }

    /// What the workers read. Rows in memory are added to `bytes`, each once.
    pub fn send(&self, bytes: &mut Vec<u8>) -> Result<Sent> {
        let mut there: Vec<(*const Memory, Bytes)> = Vec::new();
        let mut memory = |memory: Arc<Memory>| -> Result<Bytes> {
            if let Some((_, place)) = there.iter().find(|(known, _)| *known == Arc::as_ptr(&memory)) {
                return Ok(*place);
            }
            let begin = bytes.len();
            memory.encode(bytes)?;
            there.push((Arc::as_ptr(&memory), (begin, bytes.len())));
            Ok((begin, bytes.len()))
        };
        let mut function = |function: Arc<BatchFunction>| -> Result<Number> {
            Ok((function.known.number()?, function.known.name.to_owned()))
        };
        let mut sets = BTreeMap::new();
        for (name, one) in &self.sets {
            let plan = one.plan.clone().try_map(&mut memory, &mut function)?;
            sets.insert(name.clone(), One { plan, is_dealt: one.is_dealt });
        }
        Ok(Sent { sets, uneven: self.uneven })
    }
}

impl Sent {
    pub fn receive(self, bytes: &[u8], functions: &[Function]) -> Result<Given> {
        let mut memory = |(begin, end): Bytes| -> Result<Arc<Memory>> {
            let cut = || Error::new(ErrorCode::Internal, "rows that were sent are missing");
            Ok(Arc::new(Memory::decode(bytes.get(begin..end).ok_or_else(cut)?)?))
        };
        let mut function = |(number, name): Number| -> Result<Arc<BatchFunction>> {
            let found = functions.get(number).filter(|function| function.name() == name);
            found.and_then(|function| function.batches.clone()).ok_or_else(|| {
                invalid(format!("this program does not know `{name}` where the driver does"))
                    .hint("`carril::init!` must be the first line of `main`, with the same functions each time")
            })
        };
        let mut sets = BTreeMap::new();
        for (name, one) in self.sets {
            let plan = one.plan.try_map(&mut memory, &mut function)?;
            sets.insert(name, One { plan, is_dealt: one.is_dealt });
        }
        Ok(Given { sets, uneven: self.uneven })
    }
}

/// What a worker has of the data sets of its run.
#[derive(Default)]
pub(crate) struct Shards {
    given: OnceLock<Given>,
    /// Those that were asked for.
    shards: Mutex<BTreeMap<String, DataShard>>,
    /// Of the others, how far they had been read when this attempt began.
    carried: Mutex<BTreeMap<String, Option<Progress>>>,
}

impl Shards {
    pub fn give(&self, given: Given) {
        let _ = self.given.set(given);
    }
}

impl Session {
    /// This worker's part of a data set that the [`Trainer`] was given. Asked for again, it is the same, at the same place.
    ///
    /// ```
    /// # fn train(session: &carril::Session) -> carril::TrainResult {
    /// for batch in session.data_shard("train")?.iter_batches(64)? {
    ///     println!("{} rows", batch?.num_rows());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn data_shard(&self, name: &str) -> Result<DataShard> {
        let data = self.data();
        let mut shards = data.shards.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shard) = shards.get(name) {
            return Ok(shard.clone());
        }
        let given = data.given.get().cloned().unwrap_or_default();
        let Some(number) = given.sets.keys().position(|known| known == name) else {
            let there: Vec<String> = given.sets.keys().map(|name| format!("`{name}`")).collect();
            let there =
                if there.is_empty() { "none: the trainer was given no data set".into() } else { there.join(", ") };
            let meant = carril_types::near(name, given.sets.keys().map(String::as_str));
            let meant = meant.map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
            return Err(invalid(format!("no data set is named `{name}`; {meant}there are {there}")));
        };
        let made = self.make_shard(name, number, &given)?;
        shards.insert(name.to_owned(), made.clone());
        Ok(made)
    }

    fn make_shard(&self, name: &str, number: usize, given: &Given) -> Result<DataShard> {
        let One { plan, is_dealt } = &given.sets[name];
        let (world, rank) = (self.world_size() as usize, self.rank() as usize);
        let saved = self.saved(name, *is_dealt)?;
        let key = self.worker().key();
        let node = Path::new(&self.worker().assignment().report_log).parent().unwrap_or(Path::new("/tmp"));
        let meeting = node.join(format!("{}.{}.{number}.epoch", key.run.as_str(), key.attempt.0));
        let options = ShardOptions {
            name: name.to_owned(),
            shuffle: plan.shuffle,
            seed: plan.seed,
            world: if *is_dealt { world } else { 1 },
            rank: if *is_dealt { rank } else { 0 },
            uneven: given.uneven,
            deals_rest: false,
            meeting: Some(meeting),
            multiple: 1,
            watch: Some(Arc::new(Watcher(self.worker_weakly()))),
            threads: threads(),
            budget: budget() / (world * given.sets.len().max(1)) as u64,
            warn,
        };
        let shard = Shard::new(plan.open()?, options, &saved)?;
        Ok(DataShard { name: name.into(), plan: Arc::new(plan.clone()), shard, worker: self.worker_weakly() })
    }

    /// How far each data set has been read, for a report.
    pub(crate) fn data_position(&self) -> Result<Option<String>> {
        let data = self.data();
        let shards = data.shards.lock().unwrap_or_else(PoisonError::into_inner);
        let mut carried = data.carried.lock().unwrap_or_else(PoisonError::into_inner);
        let mut position: BTreeMap<&String, Progress> = BTreeMap::new();
        for (name, one) in data.given.get().map(|given| &given.sets).into_iter().flatten() {
            if let Some(shard) = shards.get(name) {
                position.insert(name, shard.shard.progress());
                continue;
            }
            if !carried.contains_key(name) {
                carried.insert(name.clone(), carril_data::carried(&self.saved(name, one.is_dealt)?));
            }
            position.extend(carried.get(name).cloned().flatten().map(|progress| (name, progress)));
        }
        Ok(if position.is_empty() { None } else { serde_json::to_string(&position).ok() })
    }

    /// Where each rank was when the checkpoint was made that this attempt resumed from. Where each reads everything, a rank resumes from its own
    /// place, and one that is new from another's.
    fn saved(&self, name: &str, is_dealt: bool) -> Result<Vec<Option<Progress>>> {
        let checkpoint = &self.worker().assignment().latest_checkpoint;
        if checkpoint.is_empty() {
            return Ok(Vec::new());
        }
        let unread = |why: String| {
            Error::new(ErrorCode::Checkpoint, format!("`{checkpoint}` does not say how far `{name}` was read: {why}"))
        };
        let bytes = Storage::open(checkpoint, None)?.read(MANIFEST)?.ok_or_else(|| unread("it is gone".to_owned()))?;
        let manifest = Manifest::from_bytes(&bytes).map_err(|damage| unread(damage.to_string()))?;
        let saved = positions(&manifest.data_position, name)?;
        let own = |saved: &[Option<Progress>]| saved[self.rank() as usize % saved.len()].clone();
        Ok(if is_dealt || saved.is_empty() { saved } else { vec![own(&saved)] })
    }
}

impl<C> Trainer<C> {
    /// A data set for the workers, by the name under which they ask for it. It is dealt to them: each has its own part.
    ///
    /// ```
    /// # fn train(session: &carril::Session, rate: f64) -> carril::TrainResult { Ok(()) }
    /// use carril::data::Dataset;
    ///
    /// let rows = Dataset::read_parquet("data/*.parquet").random_shuffle(7);
    /// let trainer = carril::Trainer::new(train, 0.1).workers(2).dataset("train", rows);
    /// ```
    pub fn dataset(mut self, name: impl Into<String>, dataset: Dataset) -> Self {
        self.data.add(name.into(), dataset, true);
        self
    }

    /// A data set that every worker reads whole.
    ///
    /// ```
    /// # fn train(session: &carril::Session, rate: f64) -> carril::TrainResult { Ok(()) }
    /// use carril::data::Dataset;
    ///
    /// let trainer = carril::Trainer::new(train, 0.1).workers(2).whole_dataset("words", Dataset::read_text("words.txt"));
    /// ```
    pub fn whole_dataset(mut self, name: impl Into<String>, dataset: Dataset) -> Self {
        self.data.add(name.into(), dataset, false);
        self
    }

    /// What becomes of rows that not every rank has a counterpart for.
    ///
    /// ```
    /// # fn train(session: &carril::Session, rate: f64) -> carril::TrainResult { Ok(()) }
    /// use carril::data::{Dataset, Uneven};
    ///
    /// let trainer = carril::Trainer::new(train, 0.1).dataset("train", Dataset::range(101)).uneven(Uneven::Repeat);
    /// ```
    pub fn uneven(mut self, uneven: Uneven) -> Self {
        self.data.uneven = match uneven {
            Uneven::Drop => Rule::Drop,
            Uneven::Pad => Rule::Pad,
            Uneven::Repeat => Rule::Repeat,
        };
        self
    }
}

impl Tuner {
    /// A data set for the trials, by the name under which they ask for it.
    ///
    /// ```no_run
    /// # fn with(tuner: carril::Tuner) -> carril::Tuner {
    /// tuner.dataset("train", carril::data::Dataset::read_csv("data.csv"))
    /// # }
    /// ```
    pub fn dataset(mut self, name: impl Into<String>, dataset: Dataset) -> Self {
        self.data.add(name.into(), dataset, true);
        self
    }
}
