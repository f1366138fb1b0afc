//! How far a rank has come, as it stands in a checkpoint, and what the ranks make of it that resume from one.
//!
//! PROGRESS-1: everything that decides which row comes when is in it, but for the data set itself: nothing of it is computed again.
//! PROGRESS-2: it has a format number. One without a number is of a Carril that did not save its windows, which depended on memory and on the
//!   number of ranks.
//! PROGRESS-3: the ranks of a checkpoint may be in different rounds and epochs, because each reports when it wants to. What each had read of which
//!   of them is put together, round by round and epoch by epoch: nothing is read twice and nothing is lost.
//! PROGRESS-4: a rank that resumes and has not asked for a data set saves what was saved of it. So a rank without progress is in an attempt that
//!   began with the first epoch, and has read nothing.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Cut, ShardOptions};
use crate::engine::Pipeline;
use crate::error::DataError;
use crate::order::{ALL, Deal, Position, Segment, Shuffle};
use crate::pass::Rules;

const FORMAT: u64 = 3;
/// It has no epochs but the one that the rank is in.
const ONE_EPOCH: u64 = 2;
/// Of so many epochs that a rank has ended it is known how they were dealt: another rank of the checkpoint may be in one of them.
const ENDED: usize = 8;
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
    /// The last epochs before this one, unless they were dealt once and by the same rules.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    ended: Dealt,
    /// What ranks had read of epochs after this one when the checkpoint was made that this attempt resumed from.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    later: Dealt,
}

/// How epochs were dealt, by their numbers.
type Dealt = BTreeMap<u64, Dealing>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Dealing {
    rules: Rules,
    /// Behind the segments.
    deal: Deal,
    before: Vec<Segment>,
    /// How far this rank came in that.
    position: Position,
}

/// Of a part that nobody else reads.
const TO_THE_END: Position = Position { pieces: ALL, done: 0, rows: 0, own: ALL };

/// As it is written now.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    format: u64,
    seed: u64,
    epoch: u64,
    rules: Rules,
    deal: Deal,
    before: Vec<Segment>,
    position: Position,
    #[serde(default)]
    ended: Dealt,
    #[serde(default)]
    later: Dealt,
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
            Some(Some(FORMAT | ONE_EPOCH)) => {
                let Written { format, seed, epoch, rules, deal, before, position, ended, later } =
                    serde_json::from_value(value).map_err(told)?;
                Ok(Self { format, seed, epoch, rules: Some(rules), deal, before, position, ended, later })
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
                    ended: Dealt::new(),
                    later: Dealt::new(),
                })
            }
            Some(Some(newer)) => Err(format!("it has format {newer}, which only a newer Carril reads")),
            Some(None) => Err("its format is not a number".to_owned()),
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
    ended: Dealt,
    later: Dealt,
}

impl State {
    pub fn end_epoch(&mut self) {
        let before = std::mem::take(&mut self.before);
        // What a rank has left in stripes lies between the rows of the others.
        let position = if self.deal.stripes { self.position } else { TO_THE_END };
        self.ended.insert(self.epoch, Dealing { rules: self.rules, deal: self.deal, before, position });
        // Of the epoch that this attempt began in it is known what was read before.
        if let Some(second) = self.ended.keys().nth(1).copied().filter(|_| self.ended.len() > ENDED) {
            self.ended.remove(&second);
        }
        self.epoch += 1;
        if let Some(begun) = self.later.remove(&self.epoch) {
            (self.rules, self.deal, self.before) = (begun.rules, begun.deal, begun.before);
        }
        self.position = Position::default();
        (self.is_begun, self.is_left) = (false, false);
    }

    /// Whether ranks had read something of an epoch to come.
    pub fn is_begun_later(&self, epoch: u64) -> bool {
        self.later.contains_key(&epoch)
    }

    pub fn progress(&self) -> Progress {
        let State { seed, epoch, rules, deal, before, position, .. } = self;
        let plain = Dealing { rules: *rules, deal: *deal, before: Vec::new(), position: TO_THE_END };
        let ended = self.ended.iter().filter(|(_, one)| **one != plain);
        Progress {
            format: FORMAT,
            seed: *seed,
            epoch: *epoch,
            rules: Some(*rules),
            deal: *deal,
            before: before.clone(),
            position: *position,
            ended: ended.map(|(epoch, one)| (*epoch, one.clone())).collect(),
            later: self.later.clone(),
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
            ended: Dealt::new(),
            later: Dealt::new(),
        };
        let Some(Resumed { seed, epoch, rules, before, later }) = Resumed::of(saved) else { return Ok(state) };
        (state.seed, state.epoch, state.before, state.later) = (seed, epoch, before, later);
        let apart = saved.iter().flatten().map(|one| one.epoch - epoch).max().unwrap_or(0);
        if apart > ENDED as u64 && !pipeline.is_counted() {
            (options.warn)(&format!(
                "`{}`: the ranks were {apart} epochs apart when the checkpoint was made: rows of epoch {epoch} may be lost or read twice",
                options.name
            ));
        }
        if let Some(saved) = rules {
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

/// What a rank saves of a data set that it has not asked for since it resumed. Nothing where nothing was saved, and of the first format.
pub fn carried(saved: &[Option<Progress>]) -> Option<Progress> {
    let Resumed { seed, epoch, rules, before, later } = Resumed::of(saved)?;
    let rules = rules.or_else(|| saved.iter().flatten().find_map(|one| one.rules))?;
    let (deal, position) = (Deal::default(), Position::default());
    let ended = Dealt::new();
    Some(Progress { format: FORMAT, seed, epoch, rules: Some(rules), deal, before, position, ended, later })
}

/// What the ranks of a checkpoint had read, together.
struct Resumed {
    seed: u64,
    /// The first of which something is left.
    epoch: u64,
    rules: Option<Rules>,
    before: Vec<Segment>,
    later: Dealt,
}

impl Resumed {
    fn of(saved: &[Option<Progress>]) -> Option<Self> {
        let last = saved.iter().flatten().min_by_key(|one| one.epoch)?;
        // Older formats lack the progress of ranks that had not asked for the data set since they resumed.
        let is_whole = last.format == FORMAT;
        let epoch = if is_whole && saved.iter().any(Option::is_none) { 0 } else { last.epoch };
        let reached = |one: &Progress| one.later.keys().last().copied().max(Some(one.epoch));
        let furthest = saved.iter().flatten().filter_map(reached).max().unwrap_or(epoch);
        let mut later = Dealt::new();
        for epoch in epoch + 1..=furthest {
            // The first format knew one epoch, and has no rules.
            if let (before, Some(rules)) = put_together(saved, epoch)
                && !before.is_empty()
            {
                let (deal, position) = (Deal::default(), Position::default());
                later.insert(epoch, Dealing { rules, deal, before, position });
            }
        }
        let (before, rules) = put_together(saved, epoch);
        Some(Self { seed: last.seed, epoch, rules, before, later })
    }
}

/// How far a rank had come in one epoch.
struct Place<'a> {
    /// As far as it knew.
    before: &'a [Segment],
    deal: Deal,
    rules: Option<Rules>,
    position: Position,
}

impl<'a> Place<'a> {
    /// Nothing where it knew nothing of the epoch, because it had not come to it or had not asked for the data set.
    fn of(one: Option<&'a Progress>, epoch: u64) -> Option<Self> {
        let one = one?;
        let dealt = |Dealing { rules, deal, before, position }: &'a Dealing| Place {
            before,
            deal: *deal,
            rules: Some(*rules),
            position: *position,
        };
        let Progress { rules, deal, before, position, .. } = one;
        let here = Place { before, deal: *deal, rules: *rules, position: *position };
        match epoch.cmp(&one.epoch) {
            Ordering::Greater => one.later.get(&epoch).map(dealt),
            Ordering::Equal => Some(here),
            Ordering::Less => {
                let plain = Place { before: &[], position: TO_THE_END, ..here };
                Some(one.ended.get(&epoch).map_or(plain, dealt))
            }
        }
    }
}

/// What all ranks had read of an epoch, as segments behind which it is dealt again, and by which rules; none where nobody had read anything.
fn put_together(saved: &[Option<Progress>], epoch: u64) -> (Vec<Segment>, Option<Rules>) {
    let places: Vec<Option<Place<'_>>> = saved.iter().map(|one| Place::of(one.as_ref(), epoch)).collect();
    // Whoever has read nothing yet may not have been dealt anything.
    let furthest = |place: &&Place<'_>| (place.before.len(), place.position != Position::default());
    let Some(furthest) = places.iter().flatten().max_by_key(furthest) else { return (Vec::new(), None) };
    let mut before = furthest.before.to_vec();
    let begun = before.iter().rposition(|segment| !segment.is_round).map_or(0, |last| last + 1);
    let rounds = before.len();
    // In a round of this attempt; nothing where it came to its end.
    let reached = |rank: usize, round: usize| match &places[rank] {
        Some(place) if place.before.len() > round => None,
        Some(place) if place.position == TO_THE_END => (round == rounds).then_some(TO_THE_END),
        Some(place) if place.before.len().max(begun) == round => Some(place.position),
        _ => Some(Position::default()),
    };
    for (round, segment) in before.iter_mut().enumerate().skip(begun) {
        let end = |rank: usize| segment.ranks.get(rank).copied().unwrap_or_default();
        let behind: Vec<Position> =
            (0..saved.len()).map(|rank| reached(rank, round).unwrap_or_else(|| end(rank))).collect();
        if behind != segment.ranks {
            segment.behind = behind;
        }
    }
    let ranks: Vec<Position> = (0..saved.len()).map(|rank| reached(rank, rounds).unwrap_or_default()).collect();
    if begun < rounds || ranks.iter().any(|position| *position != Position::default()) {
        before.push(Segment { deal: furthest.deal, ranks, ..Segment::default() });
    }
    (before, furthest.rules)
}
