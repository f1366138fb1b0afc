//! Schedulers by script, by hand-worked cases of their papers, and in small worlds that run to their end.

mod asha;
mod hyperband;
mod median;
mod pbt;
mod resources;
mod world;

use carril_core::tune::scheduler::{Decision, Scheduler, SchedulerError, Target};
use carril_core::tune::{Mode, TrialId};
use carril_types::{Metrics, Value};

pub fn target(mode: Mode) -> Target {
    Target::new("t", "score", mode)
}

pub fn report(time: f64, score: f64) -> Metrics {
    let step = ("training_iteration".to_owned(), Value::Int(time as i64));
    Metrics(vec![("t".to_owned(), Value::Float(time)), ("score".to_owned(), Value::Float(score)), step])
}

/// Adds trials with these numbers and empty configs.
pub fn add(scheduler: &mut impl Scheduler, trials: impl IntoIterator<Item = u64>) {
    for trial in trials {
        scheduler.on_trial_added(TrialId(trial), &Metrics::default());
    }
}

pub fn tell(scheduler: &mut impl Scheduler, trial: u64, time: f64, score: f64) -> Decision {
    let (decision, why) = scheduler.on_result(TrialId(trial), &report(time, score));
    assert!(!why.is_empty(), "every decision has a reason");
    decision
}

pub fn ids(numbers: &[u64]) -> Vec<TrialId> {
    numbers.iter().map(|number| TrialId(*number)).collect()
}

pub fn says<T>(made: Result<T, SchedulerError>, sentence: &str) {
    let Err(error) = made else { panic!("this must not be made: {sentence}") };
    assert_eq!(error.to_string(), sentence);
}
