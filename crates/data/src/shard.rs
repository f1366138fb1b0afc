//! The part of a data set that one of several ranks reads: another epoch in each pass, resumed where a checkpoint left it, and
//! ended together with the other ranks.
//!
//! SHARD-1: progress is the rows that were handed over, and whoever resumes begins behind them, also with another number of ranks. A batch is
//!   handed over whole, unless its rows are handed over one by one.
//! SHARD-2: when an epoch is read to its end, the next one is begun, so that nobody waits between them.
//! SHARD-3: every rank hands over the same number of batches, unless one leaves a pass before its end: it is not waited for.
//! SHARD-4: a pass that was left before its end is resumed after a restart, and not by the next pass.
//! SHARD-5: where ranks end together and their rows are not counted, what is left when the first of them has no more is dealt again, in
//!   rounds, and at last in stripes: fewer rows than ranks are left out of an epoch. Where nothing is left out, ranks are filled up in stripes
//!   alone.
//!
//! What is written into checkpoints is written here alone, for Rust and for Python.

mod progress;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_array::{BooleanArray, RecordBatch, UInt32Array};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::take::take_record_batch;
use serde::{Deserialize, Serialize};

use crate::batch::{NextBatch, Trail};
use crate::board::{Board, Ended};
use crate::engine::Pipeline;
use crate::error::DataError;
use crate::order::{Position, Segment, Shuffle};
use crate::pass::{Part, Pass, PassSpec, Rules};
use crate::watch::Watch;
use progress::State;
pub use progress::{Progress, carried, positions};

/// Tells copies from rows, where ranks are padded.
pub const MARK: &str = "is_padding";
/// Nobody has to look after anything in between: an error or a block ends the wait.
const PATIENCE: Duration = Duration::from_secs(1);

/// What becomes of rows that not every rank has a counterpart for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Uneven {
    /// They are left out.
    #[default]
    Drop,
    /// The others get copies of a row, which a column `is_padding` marks.
    Pad,
    /// The others begin again.
    Repeat,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardOptions {
    /// For people.
    pub name: String,
    pub shuffle: Shuffle,
    pub seed: u64,
    pub world: usize,
    pub rank: usize,
    pub uneven: Uneven,
    /// Whether some ranks may have a row more than others also where nobody is padded.
    #[serde(default)]
    pub deals_rest: bool,
    /// What the files begin with in which the ranks tell each other how many batches they have. Without it, each goes to its own end.
    pub meeting: Option<PathBuf>,
    /// Functions get a multiple of so many rows together.
    pub multiple: usize,
    pub threads: usize,
    /// In bytes, of this shard.
    pub budget: u64,
    /// For people.
    #[serde(skip, default = "silent")]
    pub warn: fn(&str),
    /// Who is asked after ranks that do not come.
    #[serde(skip)]
    pub watch: Option<Arc<dyn Watch>>,
}

fn silent() -> fn(&str) {
    |_| ()
}

pub struct Shard {
    pipeline: Pipeline,
    options: ShardOptions,
    state: Mutex<State>,
    /// The epoch after this one.
    ahead: Mutex<Option<Ahead>>,
    /// Ranks that have returned, and read nothing any more.
    returned: Mutex<BTreeSet<usize>>,
}

struct Ahead {
    epoch: u64,
    cut: Cut,
    pass: Pass,
}

/// How batches are cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    pub batch_size: Option<usize>,
    #[serde(default)]
    pub drop_last: bool,
    /// Of how many rows those that are mixed with their neighbours are.
    #[serde(default)]
    pub local_shuffle: Option<usize>,
}

/// Which part of an epoch is streamed.
struct Which {
    epoch: u64,
    rules: Rules,
    before: Vec<Segment>,
    world: usize,
    rank: usize,
    is_in_rounds: bool,
}

impl Shard {
    /// `saved` is where each rank was when the checkpoint was made that is resumed from.
    pub fn new(pipeline: Pipeline, options: ShardOptions, saved: &[Option<Progress>]) -> Result<Arc<Shard>, DataError> {
        let state = Mutex::new(State::resumed(saved, &pipeline, &options)?);
        Ok(Arc::new(Shard { pipeline, options, state, ahead: Mutex::default(), returned: Mutex::default() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn progress(&self) -> Progress {
        self.state().progress()
    }

    /// The number of the epoch that the next pass is of, or that a pass is in.
    pub fn epoch(&self) -> u64 {
        let state = self.state();
        state.epoch + u64::from(state.is_left)
    }

    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    pub fn options(&self) -> &ShardOptions {
        &self.options
    }

    fn rules(&self, cut: Cut) -> Rules {
        Rules::of(&self.pipeline, Some(self.options.multiple), cut.local_shuffle)
    }

    fn rows_of_a_rank(&self) -> Option<u64> {
        let rows = self.pipeline.source.units().iter().map(|unit| unit.rows).sum::<Option<u64>>();
        rows.map(|rows| rows / self.options.world as u64)
    }

    /// Whether ranks that must end together may have unequal parts.
    fn is_in_rounds(&self) -> bool {
        let ShardOptions { world, meeting, deals_rest, .. } = &self.options;
        *world > 1 && meeting.is_some() && !deals_rest
    }

    /// The rest of the epoch where it is resumed in its middle, and all of it otherwise.
    pub fn begin(self: &Arc<Self>, cut: Cut) -> Result<Epoch, DataError> {
        let (epoch, rules, before) = {
            let mut state = self.state();
            if state.is_begun {
                // The pass before was left: it is resumed after a restart, and not by this one.
                state.end_epoch();
            }
            if state.before.is_empty() {
                state.rules = self.rules(cut);
            }
            (state.epoch, state.rules, state.before.clone())
        };
        let ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner).take();
        let pass = match ahead {
            Some(ahead) if before.is_empty() && (ahead.epoch, ahead.cut) == (epoch, cut) => ahead.pass,
            _ => self.own_pass(cut, epoch, rules, before.clone()),
        };
        self.state().deal = pass.deal;
        let is_equal = self.options.uneven == Uneven::Drop && pass.is_counted && !pass.deal.stripes;
        let board = if is_equal { None } else { self.open_board(epoch, &before)? };
        Ok(Epoch {
            shard: self.clone(),
            epoch,
            cut,
            rules,
            before,
            pass,
            board,
            whole: self.rows_of_a_rank(),
            number: 0,
            last: Trail::default(),
            current: None,
            slot: Slot::Unread,
            is_ending: false,
            is_abandoned: false,
            filler: Filler::None,
            is_over: false,
            handed: 0,
            dropped: 0,
            left_out: 0,
        })
    }

    /// Whoever resumes in the middle of an epoch, or is in another round, meets those that do so too.
    fn open_board(&self, epoch: u64, before: &[Segment]) -> Result<Option<Board>, DataError> {
        let ShardOptions { world, meeting, .. } = &self.options;
        let Some(path) = meeting.as_ref().filter(|_| *world > 1) else { return Ok(None) };
        let mut file = path.as_os_str().to_owned();
        file.push(format!(".{epoch}.{}", before.len()));
        let returned = self.returned.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Board::open(&PathBuf::from(file), &self.options, returned).map(Some)
    }

    /// Once for each of them.
    fn warn_of_returned(&self, found: &BTreeSet<usize>) {
        let mut known = self.returned.lock().unwrap_or_else(PoisonError::into_inner);
        for rank in found {
            if known.insert(*rank) {
                let ShardOptions { name, warn, .. } = &self.options;
                warn(&format!(
                    "rank {rank} has returned and reads no more of `{name}`: the others go on without it, and its rows are left out"
                ));
            }
        }
    }

    fn own_pass(&self, cut: Cut, epoch: u64, rules: Rules, before: Vec<Segment>) -> Pass {
        let ShardOptions { world, rank, .. } = self.options;
        self.pass(cut, Which { epoch, rules, before, world, rank, is_in_rounds: self.is_in_rounds() })
    }

    fn pass(&self, cut: Cut, which: Which) -> Pass {
        let ShardOptions { shuffle, threads, budget, uneven, deals_rest, .. } = self.options;
        let spec = PassSpec {
            shuffle,
            seed: self.state().seed,
            epoch: which.epoch,
            batch_size: cut.batch_size,
            drop_last: cut.drop_last,
            threads,
            budget,
            local_shuffle: which.rules.local_shuffle,
            multiple: None,
        };
        let part = Part {
            rules: which.rules,
            world: which.world,
            rank: which.rank,
            before: which.before,
            deals_rest: deals_rest || uneven != Uneven::Drop,
            has_successor: true,
            is_in_rounds: which.is_in_rounds,
        };
        Pass::of_part(self.pipeline.clone(), &spec, part)
    }

    fn read_ahead(&self, cut: Cut, pass: &Pass) {
        let is_last = pass.is_counted || pass.deal.stripes || !self.is_in_rounds();
        let epoch = self.state().epoch + 1;
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let is_whole = !self.state().is_begun_later(epoch);
        if ahead.is_none() && is_last && is_whole && pass.is_read() {
            let pass = self.own_pass(cut, epoch, self.rules(cut), Vec::new());
            *ahead = Some(Ahead { epoch, cut, pass });
        }
    }
}

/// One pass over a shard.
pub struct Epoch {
    shard: Arc<Shard>,
    epoch: u64,
    cut: Cut,
    rules: Rules,
    before: Vec<Segment>,
    pass: Pass,
    board: Option<Board>,
    /// How many rows a rank's part of the whole epoch has, where they are counted.
    whole: Option<u64>,
    /// How many batches were handed over in this round, with the one that is about to be.
    number: u64,
    /// Of the last batch that was handed over in this round.
    last: Trail,
    /// The batch that is handed over when every rank has one, and the one behind it. Where there is a board.
    current: Option<Given>,
    slot: Slot,
    /// This rank has told that its round is over.
    is_ending: bool,
    /// Another rank left before the end of the round: nothing can be dealt again.
    is_abandoned: bool,
    filler: Filler,
    is_over: bool,
    handed: u64,
    dropped: u64,
    left_out: u64,
}

/// A batch, and the positions behind its rows.
type Given = (RecordBatch, Trail);

enum Slot {
    Unread,
    Batch(Given),
    NoMore,
}

enum Step {
    Given(Given),
    Pending,
    Ended,
}

/// What a rank without batches gets while others have some.
enum Filler {
    None,
    Padding(RecordBatch),
    /// Its own part again; everything, where it has none. Whether this pass has given something.
    Again {
        pass: Box<Pass>,
        gave: bool,
        own: bool,
    },
}

impl Epoch {
    /// How many rows no rank gets in this epoch, because they do not fill one for each.
    pub fn rest(&self) -> u64 {
        if self.shard.options.world > 1 { self.pass.rest } else { 0 }
    }

    /// How many rows of its part of the whole epoch this rank has been handed, and how many that part has; nothing where rows are not
    /// counted. What was read before a restart counts too, by the number of ranks that there are now.
    pub fn rows_read(&self) -> Option<(u64, u64)> {
        let whole = self.whole?;
        let left = self.pass.dealt?.saturating_sub(self.last.end().own);
        Some((whole.saturating_sub(left), whole))
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Of the epoch that has ended: how many rows this rank was handed or dropped itself, with `drop_last`, and how many of its rows were left
    /// out because another rank had no more.
    pub fn left_out(&self) -> (u64, u64) {
        (self.handed + self.dropped, self.left_out)
    }

    /// The next batch; waits for as long as it takes.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, DataError> {
        loop {
            match self.next(PATIENCE)? {
                NextBatch::Batch(batch) => return Ok(Some(batch)),
                NextBatch::Ended => return Ok(None),
                NextBatch::Pending => {}
            }
        }
    }

    /// The next batch, if there is one in time.
    pub fn next(&mut self, patience: Duration) -> Result<NextBatch, DataError> {
        if self.is_over {
            return Ok(NextBatch::Ended);
        }
        let step = if self.board.is_some() { self.agree(patience)? } else { self.read(patience)? };
        if let Some(board) = self.board.as_ref().filter(|board| !board.returned.is_empty()) {
            self.shard.warn_of_returned(&board.returned);
        }
        match step {
            Step::Pending => Ok(NextBatch::Pending),
            Step::Given((batch, trail)) => {
                self.last = trail;
                self.handed += batch.num_rows() as u64;
                self.hand_over(batch.num_rows());
                if self.is_current() {
                    self.shard.read_ahead(self.cut, &self.pass);
                }
                Ok(NextBatch::Batch(batch))
            }
            Step::Ended => {
                self.is_over = true;
                self.dropped = if self.cut.drop_last { self.pass.unused() } else { 0 };
                if self.is_current() {
                    let mut state = self.shard.state();
                    state.position = self.last.end();
                    state.end_epoch();
                }
                Ok(NextBatch::Ended)
            }
        }
    }

    /// Of the last batch only so many rows are handed over yet: a checkpoint that is made now resumes behind them. All of them are when the
    /// next batch is asked for.
    pub fn hand_over(&mut self, rows: usize) {
        let mut state = self.shard.state();
        if state.epoch == self.epoch && !self.is_over {
            (state.position, state.is_begun) = (self.last.behind(rows), true);
        }
    }

    /// Whether no other pass was begun since.
    fn is_current(&self) -> bool {
        self.shard.state().epoch == self.epoch
    }

    /// One ahead of what is handed over, so that nobody begins a step that another rank will not make.
    fn agree(&mut self, patience: Duration) -> Result<Step, DataError> {
        loop {
            // Whoever is filled up is so when nothing is dealt again any more.
            let is_dropped = self.shard.options.uneven == Uneven::Drop || self.is_dealt_again();
            if self.is_ending {
                match self.end_round(patience)? {
                    Some(step) => return Ok(step),
                    None => continue,
                }
            }
            if matches!(self.slot, Slot::Unread) {
                self.slot = match self.read(patience)? {
                    Step::Pending => return Ok(Step::Pending),
                    Step::Given(given) => Slot::Batch(given),
                    Step::Ended => Slot::NoMore,
                };
                let is_all = matches!(self.slot, Slot::NoMore);
                let number = self.number + u64::from(!is_all);
                self.board().tell(number, is_all);
            }
            if self.current.is_some() {
                let number = self.number;
                let all = if is_dropped { self.board().all_have(number, patience)? } else { Some(true) };
                match all {
                    None => return Ok(Step::Pending),
                    Some(false) => self.is_ending = true,
                    Some(true) => {
                        let given = self.current.take().expect("it was there just now");
                        if self.shard.options.uneven == Uneven::Pad {
                            self.filler = Filler::Padding(given.0.clone());
                        }
                        return Ok(Step::Given(given));
                    }
                }
                continue;
            }
            match std::mem::replace(&mut self.slot, Slot::Unread) {
                Slot::Batch(given) => {
                    self.current = Some(given);
                    self.number += 1;
                }
                _ => {
                    self.slot = Slot::NoMore;
                    if is_dropped {
                        self.is_ending = true;
                        continue;
                    }
                    let next = self.number + 1;
                    match self.board().another_has(next, patience)? {
                        None => return Ok(Step::Pending),
                        Some(false) => return Ok(Step::Ended),
                        Some(true) => {}
                    }
                    let step = self.fill(patience)?;
                    self.number += u64::from(matches!(step, Step::Given(_)));
                    return Ok(step);
                }
            }
        }
    }

    fn board(&mut self) -> &mut Board {
        self.board.as_mut().expect("ranks agree only where there is a board")
    }

    /// Whether what ranks have left when the first of them has no more is dealt again.
    fn is_dealt_again(&self) -> bool {
        self.shard.is_in_rounds() && !self.is_abandoned && !self.pass.is_counted && !self.pass.deal.stripes
    }

    /// When all ranks have come here, they deal again what they have left. Nothing when there is another round.
    fn end_round(&mut self, patience: Duration) -> Result<Option<Step>, DataError> {
        let last = self.last.end();
        self.board().end_at(last);
        let ranks = match self.board().all_ended(patience)? {
            None => return Ok(Some(Step::Pending)),
            Some(Ended::Left) if self.shard.options.uneven == Uneven::Drop || !self.is_dealt_again() => {
                return Ok(Some(Step::Ended));
            }
            Some(Ended::Left) => {
                // Nothing is left out of what this rank has.
                (self.is_abandoned, self.is_ending) = (true, false);
                self.pass.hand_over_rest(self.cut.drop_last);
                if matches!(self.slot, Slot::NoMore) {
                    self.slot = Slot::Unread;
                }
                return Ok(None);
            }
            Some(Ended::All(ranks)) => ranks,
        };
        let mut cut_off = self.current.take().map_or(0, |(batch, _)| batch.num_rows() as u64);
        if let Slot::Batch((batch, _)) = &self.slot {
            cut_off += batch.num_rows() as u64;
        }
        if !self.is_dealt_again() {
            self.left_out = cut_off + if self.cut.drop_last { 0 } else { self.pass.unused() };
            return Ok(Some(Step::Ended));
        }
        self.before.push(Segment { deal: self.pass.deal, is_round: true, ranks, behind: Vec::new() });
        self.pass = self.shard.own_pass(self.cut, self.epoch, self.rules, self.before.clone());
        if self.is_current() {
            let mut state = self.shard.state();
            (state.before, state.deal, state.position) = (self.before.clone(), self.pass.deal, Position::default());
        }
        (self.number, self.last) = (0, Trail::default());
        if self.pass.is_empty {
            return Ok(Some(Step::Ended));
        }
        self.board = self.shard.open_board(self.epoch, &self.before)?;
        (self.slot, self.is_ending) = (Slot::Unread, false);
        Ok(None)
    }

    fn read(&mut self, patience: Duration) -> Result<Step, DataError> {
        let batch = match self.pass.next(patience)? {
            NextBatch::Batch(batch) => batch,
            NextBatch::Pending => return Ok(Step::Pending),
            NextBatch::Ended => return Ok(Step::Ended),
        };
        let is_padded = self.shard.options.uneven == Uneven::Pad;
        let batch = if is_padded { marked(&batch, false)? } else { batch };
        Ok(Step::Given((batch, self.pass.trail())))
    }

    fn fill(&mut self, patience: Duration) -> Result<Step, DataError> {
        let behind = self.pass.position();
        let step = match self.shard.options.uneven {
            Uneven::Drop => NextBatch::Ended,
            Uneven::Pad => self.padding()?.map_or(NextBatch::Ended, NextBatch::Batch),
            Uneven::Repeat => self.again(patience)?,
        };
        Ok(match step {
            NextBatch::Batch(batch) => Step::Given((batch, Trail::at(behind))),
            NextBatch::Pending => Step::Pending,
            NextBatch::Ended => Step::Ended,
        })
    }

    /// A batch like the last one, of copies of its last row.
    fn padding(&mut self) -> Result<Option<RecordBatch>, DataError> {
        let model = match std::mem::replace(&mut self.filler, Filler::None) {
            Filler::Padding(model) => model,
            _ => match next_of(&mut self.part_again(1, 0))? {
                Some(batch) => marked(&batch, false)?,
                None => return Ok(None),
            },
        };
        let last = UInt32Array::from(vec![model.num_rows() as u32 - 1; model.num_rows()]);
        let plain = model.project(&(0..model.num_columns() - 1).collect::<Vec<_>>())?;
        let padding = marked(&take_record_batch(&plain, &last)?, true)?;
        self.filler = Filler::Padding(model);
        Ok(Some(padding))
    }

    /// A rank's part of the whole epoch, from its beginning.
    fn part_again(&self, world: usize, rank: usize) -> Pass {
        let rules = self.shard.rules(self.cut);
        let which = Which { epoch: self.epoch, rules, before: Vec::new(), world, rank, is_in_rounds: false };
        self.shard.pass(self.cut, which)
    }

    fn again(&mut self, patience: Duration) -> Result<NextBatch, DataError> {
        let ShardOptions { world, rank, .. } = self.shard.options;
        if matches!(self.filler, Filler::None) {
            let pass = Box::new(self.part_again(world, rank));
            self.filler = Filler::Again { pass, gave: false, own: true };
        }
        loop {
            let Filler::Again { pass, gave, own } = &mut self.filler else { return Ok(NextBatch::Ended) };
            match pass.next(patience)? {
                NextBatch::Ended => {}
                NextBatch::Pending => return Ok(NextBatch::Pending),
                NextBatch::Batch(batch) => {
                    *gave = true;
                    return Ok(NextBatch::Batch(batch));
                }
            }
            let (gave, own) = (*gave, *own);
            if !gave && !own {
                return Ok(NextBatch::Ended);
            }
            let is_own = gave && own;
            let (world, rank) = if is_own { (world, rank) } else { (1, 0) };
            self.filler = Filler::Again { pass: Box::new(self.part_again(world, rank)), gave: false, own: is_own };
        }
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if let Some(board) = &self.board {
            board.leave();
        }
        if self.is_current() {
            let mut state = self.shard.state();
            state.is_left = state.is_begun;
        }
    }
}

fn next_of(pass: &mut Pass) -> Result<Option<RecordBatch>, DataError> {
    loop {
        match pass.next(PATIENCE)? {
            NextBatch::Batch(batch) => return Ok(Some(batch)),
            NextBatch::Ended => return Ok(None),
            NextBatch::Pending => {}
        }
    }
}

fn marked(batch: &RecordBatch, is_padding: bool) -> Result<RecordBatch, DataError> {
    let mut fields: Vec<_> = batch.schema().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(MARK, DataType::Boolean, false)));
    let mut columns = batch.columns().to_vec();
    columns.push(Arc::new(BooleanArray::from(vec![is_padding; batch.num_rows()])));
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

#[cfg(test)]
mod tests;
