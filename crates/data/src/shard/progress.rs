//! How far a rank has come, as it stands in a checkpoint, and what the ranks make of it that resume from one.
//!
//! PROGRESS-1: everything that decides which row comes when is in it, but for the data set itself: nothing of it is computed again.
//! PROGRESS-2: it has a format number. One without a number is of a Carril that did not save its windows, which depended on memory and on the
//!   number of ranks.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Cut, ShardOptions};
use crate::engine::Pipeline;
use crate::error::DataError;
use crate::order::{ALL, Deal, Position, Segment, Shuffle};
use crate::pass::Rules;

const FORMAT: u64 = 2;
/// What windows took of the budget in the first format, and the most that they took.
const FIRST_WINDOWS: u64 = 8;
const FIRST_LARGEST: u64 = 64 << 20;
const FIRST_SMALLEST_BUDGET: u64 = 1 << 20;

/// How far a rank has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value")]
pub struct Progress {
    format: u64,
    pub(super) seed: u64,
    pub(super) epoch: u64,
    /// Nothing in the first format.
    rules: Option<Rules>,
    /// How what this rank reads was dealt.
    deal: Deal,
    before: Vec<Segment>,
    position: Position,
}

/// As it is written now.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Second {
    #[serde(rename = "format")]
    _format: u64,
    seed: u64,
    epoch: u64,
    rules: Rules,
    deal: Deal,
    before: Vec<Segment>,
    position: Position,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct First {
    seed: u64,
    epoch: u64,
    before: Vec<Vec<(u64, u64, u64)>>,
    position: (u64, u64, u64),
}

impl TryFrom<Value> for Progress {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let told = |error: serde_json::Error| error.to_string();
        match value.get("format").map(Value::as_u64) {
            Some(Some(FORMAT)) => {
                let Second { seed, epoch, rules, deal, before, position, .. } =
                    serde_json::from_value(value).map_err(told)?;
                Ok(Self { format: FORMAT, seed, epoch, rules: Some(rules), deal, before, position })
            }
            None => {
                let First { seed, epoch, before, position } = serde_json::from_value(value).map_err(told)?;
                let place = |(pieces, done, rows): (u64, u64, u64)| {
                    let own = u64::from((pieces, done, rows) != (0, 0, 0));
                    Position { pieces, done, rows, own }
                };
                let segment =
                    |ranks: Vec<_>| Segment { ranks: ranks.into_iter().map(place).collect(), ..Segment::default() };
                let before = before.into_iter().map(segment).collect();
                Ok(Self {
                    format: 1,
                    seed,
                    epoch,
                    rules: None,
                    deal: Deal::default(),
                    before,
                    position: place(position),
                })
            }
            Some(Some(newer)) => Err(format!("it has format {newer}, which only a newer Carril reads")),
            Some(None) => Err("its format is no number".to_owned()),
        }
    }
}

/// Of a data set, what each rank wrote, out of what a manifest holds of all data sets. Nothing of a rank that had not asked for it.
pub fn positions(data_position: &Value, name: &str) -> Result<Vec<Option<Progress>>, DataError> {
    let Some(ranks) = data_position["ranks"].as_array() else { return Ok(Vec::new()) };
    let unread =
        |why: String| DataError::invalid(format!("the checkpoint does not say how far `{name}` was read: {why}"));
    let of_rank = |rank: &Value| {
        let Some(text) = rank.as_str().filter(|text| !text.is_empty()) else { return Ok(None) };
        let mut all: Value = serde_json::from_str(text).map_err(|error| unread(error.to_string()))?;
        match all.get_mut(name).map(Value::take) {
            None | Some(Value::Null) => Ok(None),
            Some(one) => serde_json::from_value(one).map(Some).map_err(|error| unread(error.to_string())),
        }
    };
    let ranks: Vec<Option<Progress>> = ranks.iter().map(of_rank).collect::<Result<_, DataError>>()?;
    Ok(if ranks.iter().all(Option::is_none) { Vec::new() } else { ranks })
}

/// What all ranks need to know to resume, and how far this one has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub seed: u64,
    pub epoch: u64,
    pub rules: Rules,
    pub deal: Deal,
    pub before: Vec<Segment>,
    pub position: Position,
    /// Something of this epoch was handed over.
    pub is_begun: bool,
    /// And then nobody wanted the rest.
    pub is_left: bool,
}

impl State {
    pub fn end_epoch(&mut self) {
        self.epoch += 1;
        self.before.clear();
        self.position = Position::default();
        (self.is_begun, self.is_left) = (false, false);
    }

    pub fn progress(&self) -> Progress {
        let State { seed, epoch, rules, deal, before, position, .. } = self;
        Progress {
            format: FORMAT,
            seed: *seed,
            epoch: *epoch,
            rules: Some(*rules),
            deal: *deal,
            before: before.clone(),
            position: *position,
        }
    }

    /// Where the ranks were when a checkpoint was made, or the beginning.
    pub fn resumed(
        saved: &[Option<Progress>],
        pipeline: &Pipeline,
        options: &ShardOptions,
    ) -> Result<State, DataError> {
        let rules = Rules::of(pipeline, Some(options.multiple), Cut::default().local_shuffle);
        let mut state = State {
            seed: options.seed,
            epoch: 0,
            rules,
            deal: Deal::default(),
            before: Vec::new(),
            position: Position::default(),
            is_begun: false,
            is_left: false,
        };
        let Some(behind) = saved.iter().flatten().min_by_key(|one| (one.epoch, one.before.len())) else {
            return Ok(state);
        };
        (state.seed, state.epoch, state.before) = (behind.seed, behind.epoch, behind.before.clone());
        let ranks: Vec<Position> = (0..).zip(saved).map(|(rank, one)| reached(rank, one.as_ref(), behind)).collect();
        if ranks.iter().any(|position| *position != Position::default()) {
            state.before.push(Segment { deal: behind.deal, is_round: false, ranks });
        }
        if let Some(saved) = behind.rules {
            state.rules = saved;
        } else if !state.before.is_empty() {
            state.resume_first_format(pipeline, options)?;
        }
        Ok(state)
    }

    /// A position that was saved without its windows: they are what they were only where nothing of what they came from has changed.
    fn resume_first_format(&mut self, pipeline: &Pipeline, options: &ShardOptions) -> Result<(), DataError> {
        let is_windowed =
            options.shuffle == Shuffle::Rows && pipeline.source.units().iter().all(|unit| unit.rows.is_some());
        let other = self.before.iter().map(|segment| segment.ranks.len()).find(|ranks| *ranks != options.world);
        if let (true, Some(other)) = (is_windowed, other) {
            let ShardOptions { name, world, .. } = options;
            return Err(DataError::Invalid {
                what: format!(
                    "`{name}` cannot be resumed with {world} workers: an older Carril saved how far {other} had come in a shuffled \
                     epoch, without the windows that its order is made of"
                ),
                hint: Some(format!(
                    "resume with {other} workers until the epoch ends, or begin a run with another name"
                )),
            });
        }
        self.rules.window = (options.budget.max(FIRST_SMALLEST_BUDGET) / FIRST_WINDOWS).min(FIRST_LARGEST);
        let deals_rest = options.deals_rest || options.uneven != super::Uneven::Drop;
        self.before.iter_mut().for_each(|segment| segment.deal.deals_rest = deals_rest);
        Ok(())
    }
}

/// How far a rank had come in the deal that the last of them was in. One that had not asked for the data set has read nothing of it.
fn reached(rank: usize, one: Option<&Progress>, behind: &Progress) -> Position {
    match one {
        None => Position::default(),
        Some(one) if one.epoch > behind.epoch => Position { pieces: ALL, done: 0, rows: 0, own: ALL },
        // It is in a later round: in this one it came to where the round ended.
        Some(one) => match one.before.get(behind.before.len()) {
            Some(round) => round.ranks.get(rank).copied().unwrap_or_default(),
            None => one.position,
        },
    }
}
