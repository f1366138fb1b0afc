//! What happened to a search and to its trials, and when, from the lines of `trials.jsonl`.

use carril_store::{CLOSED, Experiment, OPENED, RESUMED, Trial};
use carril_types::{Metrics, Value};

use super::story::Told;

/// The search itself: where it began, was left by its head, resumed, and ended.
pub fn of_search(experiment: &Experiment, history: &[Metrics]) -> Vec<Told> {
    let summary = &experiment.summary;
    let mut told = vec![submitted(summary.created)];
    told.extend(history.iter().filter_map(of_the_search));
    // One of an earlier version says how it ended in its record alone.
    if let Some(ended) = summary.ended.filter(|_| told.last().is_none_or(|last| last.kind != "ended")) {
        let status = experiment.status_word();
        let why = if summary.reason.is_empty() { String::new() } else { format!(": {}", summary.reason) };
        told.push(Told { at: ended, kind: "ended", text: format!("{status}{why}") });
    }
    told
}

/// When the search was started or resumed last.
pub fn last_start(history: &[Metrics]) -> Option<f64> {
    let starts = history.iter().filter(|line| matches!(text(line, "event"), Some(OPENED | RESUMED)));
    starts.filter_map(|line| number(line, "at")).next_back()
}

/// A trial, with what happened to its search meanwhile.
pub fn of_trial(history: &[Metrics], trial: &Trial) -> Vec<Told> {
    let mut told = Vec::new();
    let (mut is_open, mut was_started) = (false, false);
    for line in history {
        match (number(line, "trial"), text(line, "event")) {
            (Some(of), Some(event)) if of as u64 == trial.number => {
                is_open = event != "ended";
                told.extend(of_a_trial(line, was_started));
                was_started |= event == "started";
            }
            (None, Some(_)) if is_open => told.extend(of_the_search(line).map(|told| Told {
                text: format!("the search {}{}", if told.kind == "ended" { "was " } else { "" }, told.text),
                ..told
            })),
            _ => {}
        }
    }
    told
}

/// Every line, with the trial that it is about.
pub fn everything(experiment: &Experiment, history: &[Metrics]) -> Vec<Told> {
    let mut told = vec![submitted(experiment.summary.created)];
    let mut started = std::collections::BTreeSet::new();
    for line in history {
        let Some(of) = number(line, "trial").map(|number| number as u64) else {
            told.extend(of_the_search(line));
            continue;
        };
        let trial = experiment.trials.iter().find(|trial| trial.number == of);
        let id = trial.map_or_else(|| format!("trial {of}"), |trial| trial.id.clone());
        let again = if text(line, "event") == Some("started") { !started.insert(of) } else { started.contains(&of) };
        told.extend(of_a_trial(line, again).map(|told| Told { text: format!("{id} {}", told.text), ..told }));
    }
    told
}

fn submitted(at: f64) -> Told {
    Told { at, kind: "submitted", text: format!("submitted, {}", crate::table::local_time(at)) }
}

fn of_the_search(line: &Metrics) -> Option<Told> {
    let (at, why) = (number(line, "at")?, text(line, "reason").unwrap_or_default());
    let because = |what: &str| if why.is_empty() { what.to_owned() } else { format!("{what}: {why}") };
    match text(line, "event")? {
        // The first one is the submission; a name that is used again is another search.
        OPENED => None,
        RESUMED => Some(Told { at, kind: "resumed", text: because("resumed") }),
        CLOSED => Some(Told { at, kind: "ended", text: because(text(line, "status")?) }),
        _ => None,
    }
}

fn of_a_trial(line: &Metrics, again: bool) -> Option<Told> {
    let (at, why) = (number(line, "at")?, text(line, "reason").unwrap_or_default());
    let because = |what: &str| if why.is_empty() { what.to_owned() } else { format!("{what}: {why}") };
    let (kind, text) = match text(line, "event")? {
        "made" => ("made", "was made".to_owned()),
        "started" if again => ("started", "was started again".to_owned()),
        "started" => ("started", "was started".to_owned()),
        "waits" => ("waits", because("waits")),
        "placed" => ("placed", "has room".to_owned()),
        "paused" => ("paused", because("was paused")),
        "exploited" => ("exploited", because("continues from the checkpoint of another trial")),
        "ended" => {
            let why = text(line, "error").unwrap_or(why);
            let status = text(line, "status").unwrap_or("ended");
            let what = if status == "error" { "failed" } else { "ended" };
            ("ended", if why.is_empty() { what.to_owned() } else { format!("{what}: {why}") })
        }
        _ => return None,
    };
    Some(Told { at, kind, text })
}

fn number(line: &Metrics, name: &str) -> Option<f64> {
    line.get(name).and_then(Value::as_f64)
}

fn text<'a>(line: &'a Metrics, name: &str) -> Option<&'a str> {
    match line.get(name)? {
        Value::Text(text) => Some(text),
        _ => None,
    }
}
