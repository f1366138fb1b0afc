//! What a searcher that learns has seen: the trials it suggested, and what became of them.

use std::collections::VecDeque;

use carril_types::Metrics;
use serde::{Deserialize, Serialize};

use super::Objective;
use crate::tune::TrialId;
use crate::tune::random::Rng;
use crate::tune::space::{Node, Parameters, Point, SpaceError, config_of, merge};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct History {
    pub(super) parameters: Parameters,
    pub(super) rng: Rng,
    objective: Objective,
    /// The space with each point to evaluate in its place.
    points: VecDeque<Node>,
    trials: Vec<Trial>,
    ended: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Trial {
    id: TrialId,
    pub(super) point: Point,
    pub(super) outcome: Outcome,
    /// What it reported last.
    last: Loss,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Outcome {
    Running,
    Ended(#[serde(with = "carril_types::exact")] f64),
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Loss {
    Unknown,
    Known(#[serde(with = "carril_types::exact")] f64),
}

impl History {
    pub(super) fn new(space: Node, objective: Objective, points: &[Metrics], seed: u64) -> Result<Self, SpaceError> {
        let parameters = Parameters::new(space)?;
        let points = points.iter().enumerate().map(|(index, point)| {
            merge(parameters.space(), point).map_err(|key| SpaceError::UnknownKey { point: index, key })
        });
        let points = points.collect::<Result<_, _>>()?;
        Ok(Self { parameters, rng: Rng::new(seed), objective, points, trials: Vec::new(), ended: 0 })
    }

    /// The next of the points that the user wants evaluated first.
    pub(super) fn next_point(&mut self) -> Option<(Point, Metrics)> {
        let config = config_of(self.points.pop_front()?.sample(&mut self.rng));
        Some((self.parameters.read(&config), config))
    }

    pub(super) fn draw(&mut self) -> (Point, Metrics) {
        self.parameters.draw(&mut self.rng)
    }

    /// A trial begins with this config, which is returned.
    pub(super) fn begin(&mut self, id: TrialId, (point, config): (Point, Metrics)) -> Metrics {
        self.trials.push(Trial { id, point, outcome: Outcome::Running, last: Loss::Unknown });
        config
    }

    pub(super) fn on_result(&mut self, id: TrialId, result: &Metrics) {
        let loss = self.objective.loss(result);
        if let Some(trial) = self.running(id) {
            trial.last = loss.map_or(Loss::Unknown, Loss::Known);
        }
    }

    pub(super) fn on_completed(&mut self, id: TrialId, result: Option<&Metrics>, failed: bool) {
        let told = result.map(|result| self.objective.loss(result).map_or(Loss::Unknown, Loss::Known));
        let Some(trial) = self.running(id) else { return };
        trial.outcome = match told.unwrap_or(trial.last) {
            Loss::Known(loss) if !failed => Outcome::Ended(loss),
            _ => Outcome::Failed,
        };
        self.ended += 1;
    }

    pub(super) fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// How many trials have ended, well or not.
    pub(super) fn ended(&self) -> usize {
        self.ended
    }

    fn running(&mut self, id: TrialId) -> Option<&mut Trial> {
        // The newest are asked for most.
        self.trials.iter_mut().rev().find(|trial| trial.id == id && trial.outcome == Outcome::Running)
    }
}
