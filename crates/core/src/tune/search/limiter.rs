//! Lets only so many trials of a searcher run at a time.
//!
//! LIMIT-1: at most `max_concurrent` trials that were suggested have not ended.
//! LIMIT-2: in batches, the searcher hears how its trials ended when all of the batch have, in the order in which they did, and
//!   suggests nothing in between beyond the batch.

use carril_types::Metrics;
use serde::{Deserialize, Serialize};

use super::{Searcher, Suggestion};
use crate::tune::TrialId;
use crate::tune::space::SpaceError;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConcurrencyLimiter<S> {
    searcher: S,
    max_concurrent: usize,
    batch: bool,
    running: Vec<TrialId>,
    /// Trials of the batch that have ended, for when all have.
    ended: Vec<(TrialId, Option<Metrics>, bool)>,
}

impl<S: Searcher> ConcurrencyLimiter<S> {
    pub fn new(searcher: S, max_concurrent: usize, batch: bool) -> Result<Self, SpaceError> {
        if max_concurrent == 0 {
            return Err(SpaceError::TooSmall { name: "max_concurrent", value: 0, least: 1 });
        }
        Ok(Self { searcher, max_concurrent, batch, running: Vec::new(), ended: Vec::new() })
    }

    pub fn inner(&self) -> &S {
        &self.searcher
    }
}

impl<S: Searcher> Searcher for ConcurrencyLimiter<S> {
    fn skip(&mut self, config: &Metrics) {
        self.searcher.skip(config);
    }

    fn suggest(&mut self, trial: TrialId) -> Suggestion {
        if self.running.len() + self.ended.len() >= self.max_concurrent {
            return Suggestion::NotNow;
        }
        let suggestion = self.searcher.suggest(trial);
        if matches!(suggestion, Suggestion::Config(_)) {
            self.running.push(trial);
        }
        suggestion
    }

    fn on_result(&mut self, trial: TrialId, result: &Metrics) {
        if self.running.contains(&trial) {
            self.searcher.on_result(trial, result);
        }
    }

    fn on_completed(&mut self, trial: TrialId, result: Option<&Metrics>, failed: bool) {
        let Some(index) = self.running.iter().position(|running| *running == trial) else { return };
        self.running.remove(index);
        if !self.batch {
            return self.searcher.on_completed(trial, result, failed);
        }
        self.ended.push((trial, result.cloned(), failed));
        if self.running.is_empty() {
            for (trial, result, failed) in std::mem::take(&mut self.ended) {
                self.searcher.on_completed(trial, result.as_ref(), failed);
            }
        }
    }
}
