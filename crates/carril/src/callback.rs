//! What a user's program hears of a run while it runs.

use crate::checkpoint::Checkpoint;
use crate::error::{BoxError, Error};
use crate::metrics::Metrics;
use crate::result::{Restart, RunResult};

/// What a method of a [`Callback`] returns. An error stops the run.
///
/// ```
/// fn check(loss: f64) -> carril::CallbackResult {
///     if loss.is_nan() { Err("the loss is not a number".into()) } else { Ok(()) }
/// }
/// assert!(check(f64::NAN).is_err());
/// ```
pub type CallbackResult = Result<(), BoxError>;

/// The run that a callback hears of.
///
/// ```
/// # fn show(run: &carril::RunInfo) {
/// println!("{} writes to {}", run.name, run.path);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunInfo {
    /// Its name.
    pub name: String,
    /// Its directory or URI.
    pub path: String,
    /// Sixteen hexadecimal digits that no other run has.
    pub id: String,
    /// How many workers it has.
    pub num_workers: u32,
}

/// The k-th reports of all ranks, together.
///
/// ```
/// # fn show(report: &carril::Report) {
/// println!("{}: {:?}", report.iteration, report.metrics.number("loss"));
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Its number, from 1.
    pub iteration: u64,
    /// The run's values.
    pub metrics: Metrics,
    /// What each rank reported. A rank that has returned before has none.
    pub ranks: Vec<(u32, Metrics)>,
}

/// Something that is called for what happens in a run, in the driver, in the thread that called `fit`. Every method does nothing unless it
/// is written.
///
/// ```
/// use carril::{Callback, CallbackResult, Report, RunInfo};
///
/// struct StopWhenGood;
///
/// impl Callback for StopWhenGood {
///     fn on_report(&mut self, run: &RunInfo, report: &Report) -> CallbackResult {
///         match report.metrics.number("loss") {
///             Some(loss) if loss < 0.01 => Err(format!("{} is good enough", run.name).into()),
///             _ => Ok(()),
///         }
///     }
/// }
/// # fn train(session: &carril::Session, rate: f64) -> carril::TrainResult { Ok(()) }
/// let trainer = carril::Trainer::new(train, 0.1).callback(StopWhenGood);
/// ```
#[allow(unused_variables)]
pub trait Callback: Send {
    /// The workers have started, for the first time.
    ///
    /// ```
    /// # use carril::{Callback, CallbackResult, RunInfo};
    /// # struct Mine;
    /// impl Callback for Mine {
    ///     fn on_start(&mut self, run: &RunInfo) -> CallbackResult {
    ///         println!("{} has {} workers", run.name, run.num_workers);
    ///         Ok(())
    ///     }
    /// }
    /// ```
    fn on_start(&mut self, run: &RunInfo) -> CallbackResult {
        Ok(())
    }

    /// All ranks have reported once more.
    ///
    /// ```
    /// # use carril::{Callback, CallbackResult, Report, RunInfo};
    /// # struct Mine;
    /// impl Callback for Mine {
    ///     fn on_report(&mut self, run: &RunInfo, report: &Report) -> CallbackResult {
    ///         println!("{} {}", report.iteration, report.metrics);
    ///         Ok(())
    ///     }
    /// }
    /// ```
    fn on_report(&mut self, run: &RunInfo, report: &Report) -> CallbackResult {
        Ok(())
    }

    /// A checkpoint has been stored.
    ///
    /// ```
    /// # use carril::{Callback, CallbackResult, Checkpoint, RunInfo};
    /// # struct Mine;
    /// impl Callback for Mine {
    ///     fn on_checkpoint(&mut self, run: &RunInfo, checkpoint: &Checkpoint) -> CallbackResult {
    ///         println!("{} with {}", checkpoint.location(), checkpoint.metrics());
    ///         Ok(())
    ///     }
    /// }
    /// ```
    fn on_checkpoint(&mut self, run: &RunInfo, checkpoint: &Checkpoint) -> CallbackResult {
        Ok(())
    }

    /// An attempt has failed, and the next one follows.
    ///
    /// ```
    /// # use carril::{Callback, CallbackResult, Restart, RunInfo};
    /// # struct Mine;
    /// impl Callback for Mine {
    ///     fn on_restart(&mut self, run: &RunInfo, restart: &Restart) -> CallbackResult {
    ///         println!("attempt {}: {}", restart.attempt, restart.reason);
    ///         Ok(())
    ///     }
    /// }
    /// ```
    fn on_restart(&mut self, run: &RunInfo, restart: &Restart) -> CallbackResult {
        Ok(())
    }

    /// The run has ended, well or not. An error here is the run's where it has none of its own.
    ///
    /// ```
    /// # use carril::{Callback, CallbackResult, Error, RunInfo, RunResult};
    /// # struct Mine;
    /// impl Callback for Mine {
    ///     fn on_end(&mut self, run: &RunInfo, result: Result<&RunResult, &Error>) -> CallbackResult {
    ///         println!("{} {}", run.name, if result.is_ok() { "is done" } else { "has failed" });
    ///         Ok(())
    ///     }
    /// }
    /// ```
    fn on_end(&mut self, run: &RunInfo, result: Result<&RunResult, &Error>) -> CallbackResult {
        Ok(())
    }
}
