//! Search with a Gaussian process: a smooth function through what was seen, which also says how little it knows, and as the
//! next config the one that is expected to improve most on the best.
//!
//! Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), for the process; Jones et al., "Efficient Global
//! Optimization" (1998), for the expected improvement; Snoek et al., "Practical Bayesian Optimization" (2012), for Matérn 5/2 with a
//! length for each parameter. A trial that runs counts as having ended where the process expects it to (Ginsbourger et al.
//! 2010), so that parallel suggestions keep apart.

mod acquire;
mod model;
mod scales;

use carril_types::Metrics;
use serde::{Deserialize, Serialize};

use self::acquire::best_candidate;
use self::model::{Data, Model, row};
use self::scales::Scales;
use super::history::{History, Outcome};
use super::{Objective, Searcher, Suggestion};
use crate::tune::TrialId;
use crate::tune::random::Rng;
use crate::tune::space::{Node, Point, SpaceError};

/// Of more trials than this only the best third and the newest are used: the work grows with the third power.
const MOST_POINTS: usize = 300;

#[derive(Clone, Debug)]
pub struct GaussianProcessOptions {
    /// So many random configs come first.
    pub n_startup: usize,
    pub points_to_evaluate: Vec<Metrics>,
    pub seed: u64,
}

impl Default for GaussianProcessOptions {
    fn default() -> Self {
        Self { n_startup: 10, points_to_evaluate: Vec::new(), seed: 0 }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GaussianProcess {
    history: History,
    n_startup: usize,
    scales: Scales,
    /// How many trials had ended when the scales were last fitted.
    fitted: usize,
}

impl GaussianProcess {
    pub fn new(space: Node, objective: Objective, options: GaussianProcessOptions) -> Result<Self, SpaceError> {
        let history = History::new(space, objective, &options.points_to_evaluate, options.seed)?;
        let scales = Scales::new(history.parameters.kinds().len());
        // Two points at least: one has no spread.
        Ok(Self { history, n_startup: options.n_startup.max(2), scales, fitted: 0 })
    }

    fn next_config(&mut self) -> (Point, Metrics) {
        if let Some(point) = self.history.next_point() {
            return point;
        }
        let data = self.data();
        if self.history.ended() < self.n_startup || data.is_empty() || data.dimensions() == 0 {
            return self.history.draw();
        }
        // The scales change little from one trial to the next, and fitting them is most of the work.
        if self.history.ended() > self.fitted + self.fitted / 8 {
            self.scales = self.scales.fitted(&data, self.fitted == 0);
            self.fitted = self.history.ended();
        }
        let mut rng = self.history.rng.clone();
        let proposal = self.propose(data, &mut rng);
        self.history.rng = rng;
        proposal.unwrap_or_else(|| self.history.draw())
    }

    fn propose(&self, data: Data, rng: &mut Rng) -> Option<(Point, Metrics)> {
        let kinds = self.history.parameters.kinds();
        let best = data.best_points();
        let model = Model::new(&data, &self.scales)?;
        let running = self.history.trials().iter().rev().filter(|trial| trial.outcome == Outcome::Running);
        let running: Vec<Vec<f64>> = running.map(|trial| row(kinds, &trial.point)).take(MOST_POINTS / 3).collect();
        let model = if running.is_empty() { model } else { model.believing(data, &running, &self.scales)? };
        best_candidate(&self.history.parameters, &model, &best, rng)
    }

    /// What has ended, a failure as the worst (SEARCH-3).
    fn data(&self) -> Data {
        let ended = self.history.trials().iter().filter_map(|trial| match trial.outcome {
            Outcome::Ended(loss) => Some((&trial.point, Some(loss))),
            Outcome::Failed => Some((&trial.point, None)),
            Outcome::Running => None,
        });
        Data::new(self.history.parameters.kinds(), subset(ended.collect()))
    }
}

/// The best third and the newest, where there are too many.
fn subset(mut seen: Vec<(&Point, Option<f64>)>) -> Vec<(&Point, Option<f64>)> {
    if seen.len() <= MOST_POINTS {
        return seen;
    }
    let mut by_loss: Vec<usize> = (0..seen.len()).collect();
    let loss = |index: &usize| seen[*index].1.unwrap_or(f64::INFINITY);
    by_loss.sort_by(|left, right| loss(left).total_cmp(&loss(right)));
    let mut kept: Vec<usize> = by_loss[..MOST_POINTS / 3].to_vec();
    let newest = (0..seen.len()).rev().filter(|index| !kept.contains(index)).take(MOST_POINTS - kept.len());
    let newest: Vec<usize> = newest.collect();
    kept.extend(newest);
    kept.sort_unstable();
    let mut index = 0;
    seen.retain(|_| {
        index += 1;
        kept.binary_search(&(index - 1)).is_ok()
    });
    seen
}

impl Searcher for GaussianProcess {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_trials_the_best_and_the_newest_stay() {
        let point = Point::new();
        let seen: Vec<_> = (0..1_000).map(|index| (&point, Some(f64::from(index)))).collect();
        let kept: Vec<f64> = subset(seen).into_iter().filter_map(|(_, loss)| loss).collect();
        let expected: Vec<f64> = (0..100).chain(800..1_000).map(f64::from).collect();
        assert_eq!(kept, expected);
    }
}
