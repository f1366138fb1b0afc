//! What happened in a search, or to one of its trials, from what the experiment has written down.

use std::collections::BTreeMap;

use carril_store::{Experiment, Trial, TrialState};
use carril_types::Metrics;
use serde_json::{Value as Json, json};

use super::story::Told;
use super::{duration, lines, shortened_lines, timeline};
use crate::table::{local_time, own_metrics};
use crate::tune::{Objective, counted, counts, reason_of, significant, stands};

/// Causes of failures that are listed, and trials that are named for each.
const CAUSES: usize = 6;
const NAMED: usize = 3;

/// What a search reached, and then its story; with `all` that of each of its trials too.
pub fn told(experiment: &Experiment, history: &[Metrics], all: bool) -> String {
    let (status, summary) = (experiment.status_word(), &experiment.summary);
    let is_live = status == "running";
    // As the closing lines of `fit()`: since this start.
    let began = timeline::last_start(history).unwrap_or(summary.created);
    let took = summary.ended.map(|ended| format!(" after {}", duration(ended - began))).unwrap_or_default();
    let mut text = format!("{} is {status}{took}: {}\n", summary.name, counted(experiment, is_live));
    let mut line = |name: &str, value: String| text.push_str(&format!("  {name:<10}  {value}\n"));
    let by = [&summary.searcher, &summary.scheduler].into_iter().filter(|word| !word.is_empty());
    let by: Vec<&str> = by.map(String::as_str).collect();
    if !by.is_empty() {
        line("search", by.join(", "));
    }
    if let Some((metric, value, id)) = best(experiment) {
        line("best", format!("{metric} {} in {id}", significant(value)));
    }
    for (cause, trials) in causes(experiment) {
        let named: Vec<&str> = trials.iter().take(NAMED).map(|trial| trial.id.as_str()).collect();
        let more = if trials.len() > NAMED { format!(" and {} more", trials.len() - NAMED) } else { String::new() };
        line("failed", format!("{cause} ({}{more})", named.join(", ")));
    }
    let story = if all { timeline::everything(experiment, history) } else { timeline::of_search(experiment, history) };
    text.push_str(&if all { lines(&story, summary.created) } else { shortened_lines(story, summary.created) });
    text
}

pub fn json_of(experiment: &Experiment, history: &[Metrics]) -> Json {
    let (status, summary) = (experiment.status_word(), &experiment.summary);
    let states: BTreeMap<&str, usize> = counts(experiment, status == "running").into_iter().collect();
    let failures: Vec<Json> = causes(experiment)
        .into_iter()
        .map(|(cause, trials)| {
            json!({ "cause": cause, "trials": trials.iter().map(|trial| &trial.id).collect::<Vec<_>>() })
        })
        .collect();
    let story: Vec<Json> = timeline::of_search(experiment, history).iter().map(Told::to_json).collect();
    json!({
        "name": summary.name, "status": status, "reason": summary.reason, "started": summary.created,
        "ended": summary.ended, "states": states, "failures": failures,
        "story": story,
        "best": best(experiment).map(|(metric, value, id)| json!({ "metric": metric, "value": value, "trial": id })),
    })
}

/// How a trial stands, and what it reached.
pub fn trial_told(experiment: &Experiment, trial: &Trial) -> String {
    let is_live = experiment.status_word() == "running";
    let (stands, reason) = (stands(trial, is_live), reason_of(experiment, trial, is_live));
    let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let mut text = format!("{} {stands}{why}\n", trial.id);
    let mut line = |name: &str, value: String| text.push_str(&format!("  {name:<11}  {value}\n"));
    if trial.made > 0.0 {
        line("made", local_time(trial.made));
    }
    if trial.started > 0.0 {
        line("started", local_time(trial.started));
    }
    if let Some(ended) = trial.ended {
        line("ended", local_time(ended));
    }
    line("reports", format!("{} in {}", trial.iterations, duration(trial.seconds)));
    let last = own_metrics(&trial.metrics);
    if !last.is_empty() {
        line("last report", last);
    }
    text
}

fn best(experiment: &Experiment) -> Option<(String, f64, String)> {
    let scores = Objective::default().scores(experiment).ok()?;
    let at = scores.best()?;
    Some((scores.goal.metric.clone(), scores.finite(at)?, experiment.trials[at].id.clone()))
}

/// Why trials failed, the most frequent cause first; those that differ only in numbers are one.
fn causes(experiment: &Experiment) -> Vec<(String, Vec<&Trial>)> {
    let mut causes: Vec<(String, String, Vec<&Trial>)> = Vec::new();
    for trial in experiment.trials.iter().filter(|trial| trial.state == TrialState::Error) {
        let cause = without_attempt(&trial.reason);
        let alike: String = cause.chars().map(|one| if one.is_ascii_digit() { '#' } else { one }).collect();
        match causes.iter_mut().find(|(known, ..)| *known == alike) {
            Some((.., trials)) => trials.push(trial),
            None => causes.push((alike, cause.to_owned(), vec![trial])),
        }
    }
    causes.sort_by_key(|(.., trials)| std::cmp::Reverse(trials.len()));
    causes.truncate(CAUSES);
    causes.into_iter().map(|(_, reason, trials)| (reason, trials)).collect()
}

/// Without what the headline says of attempts: why a trial was not restarted once more is no part of why it failed.
fn without_attempt(reason: &str) -> &str {
    reason.rfind(" (attempt ").filter(|_| reason.ends_with(')')).map_or(reason, |at| &reason[..at])
}
