//! Grids and chance: every combination of the grids, `num_samples` times, and random values for the rest.
//!
//! BASIC-1: a sample is one pass over all combinations of the grids; a point to evaluate is one sample too, over the grids
//!   that it leaves open.
//! BASIC-2: with `constant_grid_search` the combinations of one sample share their random values.
//! BASIC-3: of a combination that was tried in an earlier search of the same place, as many are passed over as were tried.

use std::collections::VecDeque;

use carril_types::{Metrics, Value};
use serde::{Deserialize, Serialize};

use super::{Searcher, Suggestion};
use crate::tune::TrialId;
use crate::tune::random::Rng;
use crate::tune::space::{Node, SpaceError, config_of, merge};

#[derive(Clone, Debug)]
pub struct BasicOptions {
    /// None is without end.
    pub num_samples: Option<u64>,
    pub points_to_evaluate: Vec<Metrics>,
    pub constant_grid_search: bool,
    pub seed: u64,
}

impl Default for BasicOptions {
    fn default() -> Self {
        Self { num_samples: Some(1), points_to_evaluate: Vec::new(), constant_grid_search: false, seed: 0 }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Basic {
    space: Node,
    /// The space with each point in its place.
    points: VecDeque<Node>,
    samples_left: Option<u64>,
    constant_grid_search: bool,
    rng: Rng,
    current: Option<Sample>,
    /// Configs of an earlier search that this one could make too.
    #[serde(default)]
    tried: Vec<Value>,
}

/// One pass over the grids.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Sample {
    space: Node,
    next: u64,
    combinations: u64,
}

impl Basic {
    pub fn new(space: Node, options: BasicOptions) -> Result<Self, SpaceError> {
        if !matches!(space, Node::Map(_)) {
            return Err(SpaceError::NotAMap);
        }
        let points = options
            .points_to_evaluate
            .iter()
            .enumerate()
            .map(|(index, point)| merge(&space, point).map_err(|key| SpaceError::UnknownKey { point: index, key }));
        Ok(Self {
            points: points.collect::<Result<_, _>>()?,
            space,
            samples_left: options.num_samples,
            constant_grid_search: options.constant_grid_search,
            rng: Rng::new(options.seed),
            current: None,
            tried: Vec::new(),
        })
    }

    /// How many configs are still to come; None: without end.
    pub fn remaining(&self) -> Option<u64> {
        let current = self.current.as_ref().map_or(0, |sample| sample.combinations - sample.next);
        let points = self.points.iter().fold(0, |sum: u64, point| sum.saturating_add(point.combinations()));
        let later = self.samples_left?.saturating_sub(self.points.len() as u64);
        let later = later.saturating_mul(self.space.combinations());
        let all = current.saturating_add(points).saturating_add(later);
        Some(all.saturating_sub(self.tried.len() as u64))
    }

    /// BASIC-3: true where this combination was tried, which then counts no more.
    fn was_tried(&mut self, combination: &Node) -> bool {
        let tried = self.tried.iter().position(|tried| combination.matches(tried));
        tried.map(|at| self.tried.swap_remove(at)).is_some()
    }

    fn next_sample(&mut self) -> Option<Sample> {
        let space = match self.points.pop_front() {
            // Points are tried even beyond `num_samples`.
            Some(point) => point,
            None if self.samples_left == Some(0) => return None,
            None => self.space.clone(),
        };
        self.samples_left = self.samples_left.map(|left| left.saturating_sub(1));
        let space = if self.constant_grid_search { space.drawn(&mut self.rng) } else { space };
        let combinations = space.combinations();
        Some(Sample { space, next: 0, combinations })
    }
}

impl Searcher for Basic {
    fn skip(&mut self, config: &Metrics) {
        let config = Value::Map(config.clone());
        if self.space.matches(&config) || self.points.iter().any(|point| point.matches(&config)) {
            self.tried.push(config);
        }
    }

    fn suggest(&mut self, _trial: TrialId) -> Suggestion {
        loop {
            let unfinished = self.current.take().filter(|sample| sample.next < sample.combinations);
            let Some(mut sample) = unfinished.or_else(|| self.next_sample()) else { return Suggestion::Finished };
            let combination = sample.space.combination(sample.next);
            sample.next += 1;
            self.current = Some(sample);
            if !self.was_tried(&combination) {
                return Suggestion::Config(config_of(combination.sample(&mut self.rng)));
            }
        }
    }

    fn on_result(&mut self, _trial: TrialId, _result: &Metrics) {}

    fn on_completed(&mut self, _trial: TrialId, _result: Option<&Metrics>, _failed: bool) {}
}
