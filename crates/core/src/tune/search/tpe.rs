//! The tree-structured Parzen estimator: configs are drawn from where the good ones lie, and of several the one is taken
//! that is likeliest among the good and unlikeliest among the rest.
//!
//! Bergstra et al., "Algorithms for Hyper-Parameter Optimization" (2011) and "Making a Science of Model Search" (2013). As later
//! work found better, parameters are modelled together (Falkner et al., BOHB, 2018; Watanabe 2023), and trials that still run
//! count among the rest (a constant liar: Ginsbourger et al. 2010), so that parallel suggestions keep apart.

mod mixture;

use carril_types::Metrics;
use serde::{Deserialize, Serialize};

use self::mixture::Mixture;
use super::history::{History, Outcome};
use super::{Objective, Searcher, Suggestion};
use crate::tune::TrialId;
use crate::tune::random::Rng;
use crate::tune::space::{Node, Point, SpaceError};

/// The good ones are the best tenth, and at most so many.
const MOST_GOOD: usize = 25;

#[derive(Clone, Debug)]
pub struct TpeOptions {
    /// So many random configs come first.
    pub n_startup: usize,
    /// Of so many draws for each parameter the best is suggested.
    pub n_candidates: usize,
    pub points_to_evaluate: Vec<Metrics>,
    pub seed: u64,
}

impl Default for TpeOptions {
    fn default() -> Self {
        Self { n_startup: 10, n_candidates: 24, points_to_evaluate: Vec::new(), seed: 0 }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tpe {
    history: History,
    n_startup: usize,
    n_candidates: usize,
}

impl Tpe {
    pub fn new(space: Node, objective: Objective, options: TpeOptions) -> Result<Self, SpaceError> {
        if options.n_candidates == 0 {
            return Err(SpaceError::TooSmall { name: "n_candidates", value: 0, least: 1 });
        }
        let history = History::new(space, objective, &options.points_to_evaluate, options.seed)?;
        Ok(Self { history, n_startup: options.n_startup, n_candidates: options.n_candidates })
    }

    fn next_config(&mut self) -> (Point, Metrics) {
        if let Some(point) = self.history.next_point() {
            return point;
        }
        let mut rng = self.history.rng.clone();
        let proposal = self.propose(&mut rng);
        self.history.rng = rng;
        proposal.unwrap_or_else(|| self.history.draw())
    }

    /// None: too little is known to propose anything.
    fn propose(&self, rng: &mut Rng) -> Option<(Point, Metrics)> {
        let (good, rest) = self.split();
        if self.history.ended() < self.n_startup || good.is_empty() {
            return None;
        }
        let kinds = self.history.parameters.kinds();
        let (good, rest) = (Mixture::new(kinds, good), Mixture::new(kinds, rest));
        let mut best: Option<((bool, f64), (Point, Metrics))> = None;
        for _ in 0..self.n_candidates * kinds.len() {
            let near = good.pick(rng);
            let made = self.history.parameters.make(|index, kind| good.draw(near, index, kind, rng));
            // What was tried before says little that is new, however good it was.
            let score = (self.is_new(&made.0), good.log_density(&made.0) - rest.log_density(&made.0));
            if best.as_ref().is_none_or(|(best, _)| score > *best) {
                best = Some((score, made));
            }
        }
        best.map(|(_, made)| made)
    }

    /// The good trials and the rest, in which are those that failed and those that run (SEARCH-3).
    fn split(&self) -> (Vec<&Point>, Vec<&Point>) {
        let mut ended = Vec::new();
        let mut rest = Vec::new();
        for trial in self.history.trials() {
            match trial.outcome {
                Outcome::Ended(loss) => ended.push((loss, &trial.point)),
                Outcome::Failed | Outcome::Running => rest.push(&trial.point),
            }
        }
        ended.sort_by(|left, right| left.0.total_cmp(&right.0));
        let good = ended.len().div_ceil(10).min(MOST_GOOD);
        let worse = ended.split_off(good);
        rest.extend(worse.into_iter().map(|(_, point)| point));
        (ended.into_iter().map(|(_, point)| point).collect(), rest)
    }

    fn is_new(&self, point: &Point) -> bool {
        self.history.trials().iter().all(|trial| trial.point != *point)
    }
}

impl Searcher for Tpe {
    fn suggest(&mut self, trial: TrialId) -> Suggestion {
        let next = self.next_config();
        Suggestion::Config(self.history.begin(trial, next))
    }

    fn on_result(&mut self, trial: TrialId, result: &Metrics) {
        self.history.on_result(trial, result);
    }

    fn on_completed(&mut self, trial: TrialId, result: Option<&Metrics>, failed: bool) {
        self.history.on_completed(trial, result, failed);
    }
}
