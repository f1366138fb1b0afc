//! The part of a data set that one of several ranks reads: another epoch in each pass, gone on with where a checkpoint left it, and
//! ended together with the other ranks.
//!
//! SHARD-1: progress is what was handed over, and whoever goes on begins behind it, also with another number of ranks.
//! SHARD-2: when an epoch is read to its end, the next one is begun, so that nobody waits between them.
//! SHARD-3: every rank hands over the same number of batches, unless one leaves a pass before its end: it is not waited for.
//! SHARD-4: a pass that was left before its end is gone on with after a restart, and not by the next pass.
//!
//! What is written into checkpoints is what `carril.data` of Python writes.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_array::{BooleanArray, RecordBatch, UInt32Array};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::take::take_record_batch;
use serde::{Deserialize, Serialize};

use crate::batch::NextBatch;
use crate::board::Board;
use crate::engine::Pipeline;
use crate::error::DataError;
use crate::order::{Position, Segment, Shuffle};
use crate::pass::{Pass, PassSpec};

/// Tells copies from rows, where ranks are padded.
pub const MARK: &str = "is_padding";
/// Nobody has to look after anything in between: an error or a block ends the wait.
const PATIENCE: Duration = Duration::from_secs(1);
/// What a rank that is in the next epoch already has read of this one: everything.
const ALL: Position = Position { pieces: 1 << 62, done: 0, rows: 0 };

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

/// How far a rank has come, as it stands in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    seed: u64,
    epoch: u64,
    before: Vec<Vec<Place>>,
    position: Place,
}

/// A position, as three numbers in a row.
type Place = (u64, u64, u64);

fn place(position: Position) -> Place {
    (position.pieces, position.done, position.rows)
}

fn position((pieces, done, rows): Place) -> Position {
    Position { pieces, done, rows }
}

/// What all ranks need to know to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    seed: u64,
    epoch: u64,
    before: Vec<Segment>,
    position: Position,
    /// Something of this epoch was handed over.
    is_begun: bool,
    /// And then nobody wanted the rest.
    is_left: bool,
}

impl State {
    fn end_epoch(&mut self) {
        self.epoch += 1;
        self.before.clear();
        self.position = Position::default();
        (self.is_begun, self.is_left) = (false, false);
    }

    /// Where the ranks were when a checkpoint was made. One that had not asked for the data set has read nothing of it.
    fn of(ranks: &[Option<Progress>]) -> Option<State> {
        let behind = ranks.iter().flatten().min_by_key(|one| one.epoch)?;
        let reached = |one: &Option<Progress>| match one {
            Some(one) if one.epoch > behind.epoch => ALL,
            Some(one) => position(one.position),
            None => Position::default(),
        };
        let segment: Segment = ranks.iter().map(reached).collect();
        let mut before: Vec<Segment> =
            behind.before.iter().map(|old| old.iter().copied().map(position).collect()).collect();
        if segment.iter().any(|position| *position != Position::default()) {
            before.push(segment);
        }
        Some(State {
            seed: behind.seed,
            epoch: behind.epoch,
            before,
            position: Position::default(),
            is_begun: false,
            is_left: false,
        })
    }
}

pub struct ShardOptions {
    pub shuffle: Shuffle,
    pub seed: u64,
    pub world: usize,
    pub rank: usize,
    pub uneven: Uneven,
    /// What the files begin with in which the ranks tell each other how many batches they have. Without it, each goes to its own end.
    pub meeting: Option<PathBuf>,
    pub threads: usize,
    /// In bytes, of this shard.
    pub budget: u64,
    /// For people.
    pub warn: fn(&str),
}

pub struct Shard {
    pipeline: Pipeline,
    options: ShardOptions,
    state: Mutex<State>,
    /// The epoch after this one.
    ahead: Mutex<Option<Ahead>>,
}

struct Ahead {
    epoch: u64,
    cut: Cut,
    pass: Pass,
}

/// How batches are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    pub batch_size: Option<usize>,
    pub drop_last: bool,
}

impl Shard {
    /// `saved` is where each rank was when the checkpoint was made that is gone on from.
    pub fn new(pipeline: Pipeline, options: ShardOptions, saved: &[Option<Progress>]) -> Arc<Shard> {
        let fresh = State {
            seed: options.seed,
            epoch: 0,
            before: Vec::new(),
            position: Position::default(),
            is_begun: false,
            is_left: false,
        };
        let state = Mutex::new(State::of(saved).unwrap_or(fresh));
        Arc::new(Shard { pipeline, options, state, ahead: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn progress(&self) -> Progress {
        let State { seed, epoch, before, position, .. } = &*self.state();
        let before = before.iter().map(|segment| segment.iter().copied().map(place).collect()).collect();
        Progress { seed: *seed, epoch: *epoch, before, position: place(*position) }
    }

    /// The number of the epoch that the next pass is of, or that a pass is in.
    pub fn epoch(&self) -> u64 {
        let state = self.state();
        state.epoch + u64::from(state.is_left)
    }

    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// The rest of the epoch where it was gone on with in its middle, and all of it otherwise.
    pub fn begin(self: &Arc<Self>, cut: Cut) -> Result<Epoch, DataError> {
        let (epoch, before) = {
            let mut state = self.state();
            if state.is_begun {
                // The pass before was left: it is gone on with after a restart, and not by this one.
                state.end_epoch();
            }
            (state.epoch, state.before.clone())
        };
        let ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner).take();
        let pass = match ahead {
            Some(ahead) if before.is_empty() && (ahead.epoch, ahead.cut) == (epoch, cut) => ahead.pass,
            _ => self.pass(cut, epoch, before.clone(), self.options.world, self.options.rank),
        };
        let ShardOptions { world, rank, uneven, meeting, .. } = &self.options;
        let is_equal = *uneven == Uneven::Drop && pass.is_counted;
        let board = match meeting {
            Some(path) if *world > 1 && !is_equal => {
                // Whoever goes on from the middle of an epoch meets those that do so too.
                let mut file = path.as_os_str().to_owned();
                file.push(format!(".{epoch}.{}", before.len()));
                Some(Board::open(&PathBuf::from(file), *world, *rank)?)
            }
            _ => None,
        };
        Ok(Epoch {
            shard: self.clone(),
            epoch,
            cut,
            number: 0,
            pass,
            board,
            ahead: None,
            filler: Filler::None,
            stage: Stage::New,
            is_cut: false,
        })
    }

    fn pass(&self, cut: Cut, epoch: u64, before: Vec<Segment>, world: usize, rank: usize) -> Pass {
        let ShardOptions { shuffle, threads, budget, uneven, .. } = self.options;
        let spec = PassSpec {
            shuffle,
            seed: self.state().seed,
            epoch,
            world,
            rank,
            before,
            batch_size: cut.batch_size,
            drop_last: cut.drop_last,
            threads,
            budget,
            has_successor: true,
            multiple: Some(1),
            local_shuffle: None,
            deals_rest: uneven != Uneven::Drop,
        };
        Pass::begin(self.pipeline.clone(), spec)
    }

    fn read_ahead(&self, cut: Cut, pass: &Pass) {
        let epoch = self.state().epoch + 1;
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        if ahead.is_none() && pass.is_read() {
            let pass = self.pass(cut, epoch, Vec::new(), self.options.world, self.options.rank);
            *ahead = Some(Ahead { epoch, cut, pass });
        }
    }
}

/// One pass over a shard.
pub struct Epoch {
    shard: Arc<Shard>,
    epoch: u64,
    cut: Cut,
    pass: Pass,
    board: Option<Board>,
    /// How many batches were handed over.
    number: u64,
    /// The one after the last that was handed over, where there is a board.
    ahead: Option<Given>,
    filler: Filler,
    stage: Stage,
    /// Batches of this rank were left out, because another had no more.
    is_cut: bool,
}

/// A batch, and the position behind it.
type Given = (RecordBatch, Position);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    Begun,
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

    /// How many batches were handed over, where others of this rank were left out because another rank had no more.
    pub fn cut_after(&self) -> Option<u64> {
        self.is_cut.then(|| self.number - 1)
    }

    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, DataError> {
        if self.stage == Stage::Ended {
            return Ok(None);
        }
        match self.take()? {
            Some((batch, position)) => {
                if self.is_current() {
                    let mut state = self.shard.state();
                    (state.position, state.is_begun) = (position, true);
                    drop(state);
                    self.shard.read_ahead(self.cut, &self.pass);
                }
                Ok(Some(batch))
            }
            None => {
                self.stage = Stage::Ended;
                if self.is_current() {
                    self.shard.state().end_epoch();
                }
                Ok(None)
            }
        }
    }

    /// Whether no other pass was begun since.
    fn is_current(&self) -> bool {
        self.shard.state().epoch == self.epoch
    }

    /// One ahead of what is handed over, where ranks have to agree.
    fn take(&mut self) -> Result<Option<Given>, DataError> {
        if self.board.is_none() {
            return self.read();
        }
        if self.stage == Stage::New {
            self.stage = Stage::Begun;
            self.ahead = self.read()?;
            self.tell();
        }
        let is_dropped = self.shard.options.uneven == Uneven::Drop;
        let warn = self.shard.options.warn;
        match self.ahead.take() {
            Some((batch, position)) => {
                if matches!(self.filler, Filler::None) && self.shard.options.uneven == Uneven::Pad {
                    self.filler = Filler::Padding(batch.clone());
                }
                self.number += 1;
                self.ahead = self.read()?;
                self.tell();
                self.is_cut = is_dropped && !self.board().all_have(self.number, &warn);
                Ok((!self.is_cut).then_some((batch, position)))
            }
            None if is_dropped => Ok(None),
            None if !self.board().another_has(self.number + 1, &warn) => Ok(None),
            None => {
                self.number += 1;
                let behind = self.pass.position();
                Ok(self.fill()?.map(|batch| (batch, behind)))
            }
        }
    }

    fn board(&self) -> &Board {
        self.board.as_ref().expect("ranks agree only where there is a board")
    }

    fn tell(&self) {
        let is_all = self.ahead.is_none();
        self.board().tell(self.number + u64::from(!is_all), is_all);
    }

    fn read(&mut self) -> Result<Option<Given>, DataError> {
        let Some(batch) = next_of(&mut self.pass)? else { return Ok(None) };
        let is_padded = self.shard.options.uneven == Uneven::Pad;
        let batch = if is_padded { marked(&batch, false)? } else { batch };
        Ok(Some((batch, self.pass.position())))
    }

    fn fill(&mut self) -> Result<Option<RecordBatch>, DataError> {
        match self.shard.options.uneven {
            Uneven::Drop => Ok(None),
            Uneven::Pad => self.padding(),
            Uneven::Repeat => self.again(),
        }
    }

    /// A batch like those before, of copies of a row.
    fn padding(&mut self) -> Result<Option<RecordBatch>, DataError> {
        let model = match std::mem::replace(&mut self.filler, Filler::None) {
            Filler::Padding(model) => model,
            _ => match next_of(&mut self.whole())? {
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

    /// Everything, for a rank that has no part.
    fn whole(&self) -> Pass {
        self.shard.pass(self.cut, self.epoch, Vec::new(), 1, 0)
    }

    fn again(&mut self) -> Result<Option<RecordBatch>, DataError> {
        let own = |shard: &Shard| {
            let ShardOptions { world, rank, .. } = shard.options;
            Box::new(shard.pass(self.cut, self.epoch, Vec::new(), world, rank))
        };
        if matches!(self.filler, Filler::None) {
            self.filler = Filler::Again { pass: own(&self.shard), gave: false, own: true };
        }
        loop {
            let Filler::Again { pass, gave, own: is_own } = &mut self.filler else { return Ok(None) };
            if let Some(batch) = next_of(pass)? {
                *gave = true;
                return Ok(Some(batch));
            }
            let (gave, is_own) = (*gave, *is_own);
            self.filler = match (gave, is_own) {
                (true, true) => Filler::Again { pass: own(&self.shard), gave: false, own: true },
                (true, false) | (false, true) => {
                    Filler::Again { pass: Box::new(self.whole()), gave: false, own: false }
                }
                (false, false) => return Ok(None),
            };
        }
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        if self.stage == Stage::Ended {
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
mod tests {
    use super::*;

    fn saved(text: &str) -> Vec<Option<Progress>> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn ranks_go_on_from_the_epoch_of_the_slowest() {
        let ranks = saved(
            r#"[{"seed": 7, "epoch": 3, "before": [], "position": [1, 0, 2]},
                {"seed": 7, "epoch": 2, "before": [[[1, 0, 0]]], "position": [0, 0, 5]},
                null]"#,
        );
        let state = State::of(&ranks).unwrap();
        let at = |pieces, done, rows| Position { pieces, done, rows };
        assert_eq!((state.seed, state.epoch, state.position), (7, 2, at(0, 0, 0)));
        // Whoever is in the next epoch has read all of this one, and whoever did not ask has read nothing.
        assert_eq!(state.before, [vec![at(1, 0, 0)], vec![ALL, at(0, 0, 5), at(0, 0, 0)]]);
    }

    #[test]
    fn at_the_beginning_of_an_epoch_nothing_was_read_before() {
        let ranks = saved(r#"[{"seed": 7, "epoch": 2, "before": [], "position": [0, 0, 0]}]"#);
        assert_eq!(State::of(&ranks).unwrap().before, Vec::<Segment>::new());
        assert_eq!(State::of(&saved("[null, null]")), None);
    }

    #[test]
    fn a_pass_that_is_left_ends_its_epoch_and_is_gone_on_with_after_a_restart() {
        let pipeline = || {
            let column: arrow_array::ArrayRef = Arc::new(arrow_array::Int64Array::from_iter_values(0..40));
            let block = RecordBatch::try_from_iter([("id", column)]).unwrap();
            let source = crate::read::memory::Blocks::new(block.schema(), vec![block]).unwrap();
            Pipeline { source: Arc::new(source), transforms: Vec::new() }
        };
        let options = || ShardOptions {
            shuffle: Shuffle::Rows,
            seed: 1,
            world: 1,
            rank: 0,
            uneven: Uneven::Drop,
            meeting: None,
            threads: 1,
            budget: 1 << 20,
            warn: |_| (),
        };
        let shard = Shard::new(pipeline(), options(), &[]);
        let cut = Cut { batch_size: Some(5), drop_last: false };
        let mut firsts = Vec::new();
        for number in 0..3 {
            assert_eq!(shard.epoch(), number);
            let mut epoch = shard.begin(cut).unwrap();
            firsts.push(epoch.next_batch().unwrap().unwrap());
            assert_eq!(shard.epoch(), number);
        }
        assert!(firsts[0] != firsts[1] && firsts[1] != firsts[2] && firsts[0] != firsts[2]);
        let saved = shard.progress();
        assert_eq!((shard.epoch(), saved.epoch, saved.position), (3, 2, (0, 0, 5)));
        let again = Shard::new(pipeline(), options(), &[Some(saved)]);
        let mut rest = again.begin(cut).unwrap();
        let mut rows = firsts[2].num_rows();
        while let Some(batch) = rest.next_batch().unwrap() {
            rows += batch.num_rows();
        }
        assert_eq!((rows, again.epoch()), (40, 3));
    }

    #[test]
    fn progress_is_written_as_it_is_read() {
        let text = r#"{"seed":7,"epoch":2,"before":[[[1,0,0]]],"position":[0,0,5]}"#;
        let progress: Progress = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&progress).unwrap(), text);
    }
}
