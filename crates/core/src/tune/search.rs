//! Where the next configuration comes from.
//!
//! SEARCH-1: a seed, a space and the same events give the same suggestions.
//! SEARCH-2: a searcher that was saved and restored goes on as if nothing had happened.
//! SEARCH-3: a trial that failed, or whose metric is missing or not finite, is the worst there is, in both modes.
//! SEARCH-4: `points_to_evaluate` come first, in their order; what they leave out is drawn.
//! SEARCH-5: only what was suggested is learnt from: an event of another trial changes nothing.

mod basic;
mod gaussian;
mod history;
mod limiter;
mod repeater;
mod tpe;

use carril_types::Metrics;
use serde::{Deserialize, Serialize};

pub use self::basic::{Basic, BasicOptions};
pub use self::gaussian::{GaussianProcess, GaussianProcessOptions};
pub use self::limiter::ConcurrencyLimiter;
pub use self::repeater::{Repeater, TRIAL_INDEX};
pub use self::tpe::{Tpe, TpeOptions};
use super::{Mode, TrialId};

#[derive(Clone, Debug, PartialEq)]
pub enum Suggestion {
    Config(Metrics),
    /// Not before a trial that runs has ended.
    NotNow,
    /// No more, ever.
    Finished,
}

pub trait Searcher {
    /// A trial of an earlier search in the same place had this config. A searcher that tries every combination passes over it once.
    fn skip(&mut self, _config: &Metrics) {}
    fn suggest(&mut self, trial: TrialId) -> Suggestion;
    fn on_result(&mut self, trial: TrialId, result: &Metrics);
    /// `result` is the last one; without it, the last that `on_result` was told counts.
    fn on_completed(&mut self, trial: TrialId, result: Option<&Metrics>, failed: bool);
}

/// What is to become small or large.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objective {
    /// By its flattened name, `a/b` for `{"a": {"b": …}}`.
    pub metric: String,
    pub mode: Mode,
}

impl Objective {
    /// What the result costs: the smaller the better, in both modes. None: the metric is missing or not finite.
    pub fn loss(&self, result: &Metrics) -> Option<f64> {
        let value = result.find(&self.metric)?.as_f64().filter(|value| value.is_finite())?;
        Some(match self.mode {
            Mode::Min => value,
            Mode::Max => -value,
        })
    }
}

/// Any searcher of ours, so that one can be kept, saved and restored without knowing which it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum AnySearcher {
    Basic(Basic),
    Tpe(Tpe),
    GaussianProcess(GaussianProcess),
    Limited(Box<ConcurrencyLimiter<AnySearcher>>),
    Repeated(Box<Repeater<AnySearcher>>),
}

impl AnySearcher {
    /// How many configs are still to come, where that is known.
    pub fn remaining(&self) -> Option<u64> {
        match self {
            AnySearcher::Basic(searcher) => searcher.remaining(),
            AnySearcher::Limited(searcher) => searcher.inner().remaining(),
            AnySearcher::Tpe(_) | AnySearcher::GaussianProcess(_) | AnySearcher::Repeated(_) => None,
        }
    }

    fn inner(&mut self) -> &mut dyn Searcher {
        match self {
            AnySearcher::Basic(searcher) => searcher,
            AnySearcher::Tpe(searcher) => searcher,
            AnySearcher::GaussianProcess(searcher) => searcher,
            AnySearcher::Limited(searcher) => searcher.as_mut(),
            AnySearcher::Repeated(searcher) => searcher.as_mut(),
        }
    }
}

impl Searcher for AnySearcher {
    fn skip(&mut self, config: &Metrics) {
        self.inner().skip(config);
    }

    fn suggest(&mut self, trial: TrialId) -> Suggestion {
        self.inner().suggest(trial)
    }

    fn on_result(&mut self, trial: TrialId, result: &Metrics) {
        self.inner().on_result(trial, result);
    }

    fn on_completed(&mut self, trial: TrialId, result: Option<&Metrics>, failed: bool) {
        self.inner().on_completed(trial, result, failed);
    }
}
