//! The lines of `trials.jsonl`: what they say, and how they are read again.

use carril_core::tune::TrialId;
use carril_core::tune::experiment::{EndedTrial, Record};
use carril_proto::v1;
use carril_store::{RECOVERED, TrialState};
use carril_types::{ErrorCode, Failure, Metrics, Resources, Value};

use super::names::Names;
use super::talking::amounts_of;

/// What is known of a trial when it has ended.
pub(super) struct Ended<'a> {
    pub metrics: &'a Metrics,
    pub iterations: u64,
    pub seconds: f64,
    pub checkpoint: Option<&'a str>,
}

pub(super) fn line_of(
    record: &Record,
    now: f64,
    names: Option<&Names>,
    resources: Resources,
    known: Option<Ended<'_>>,
) -> Metrics {
    let text = |text: &str| Value::Text(text.to_owned());
    let number = |trial: &TrialId| Value::Int(trial.0 as i64);
    let trial = record.trial();
    let mut line = Metrics::default();
    let mut put = |key: &str, value: Value| line.0.push((key.to_owned(), value));
    let event = match record {
        Record::Made { .. } | Record::Found { .. } => "made",
        Record::Told { .. } => "told",
        Record::Chosen { .. } => "started",
        Record::Paused { .. } => "paused",
        Record::Exploited { .. } => "exploited",
        Record::ExploitRefused { .. } => "exploit_refused",
        Record::Ended(_) => "ended",
    };
    put("event", text(event));
    put("at", Value::Float(now));
    put("trial", number(&trial));
    match record {
        Record::Made { config, names: given, resources: own, .. } => {
            if let Some(names) = names {
                put("id", text(&names.id));
                put("name", text(&names.name));
                put("directory", text(&names.directory));
                put("tag", text(&names.tag));
            }
            put("config", Value::Map(config.clone()));
            let amounts = resources.iter().map(|(name, amount)| (name.to_owned(), Value::Float(amount)));
            put("resources", Value::Map(Metrics(amounts.collect())));
            if given.is_some() {
                put("named", Value::Bool(true));
            }
            if own.is_some() {
                put("own_resources", Value::Bool(true));
            }
            if let Some(exact) = exact(config) {
                put("exact", exact);
            }
        }
        Record::Told { result, others_wait, .. } => {
            put("result", Value::Map(result.clone()));
            if *others_wait {
                put("others_wait", Value::Bool(true));
            }
        }
        Record::Paused { reason, .. } => put("reason", text(reason)),
        Record::Exploited { from, config, reason, .. } => {
            put("from", number(from));
            put("config", Value::Map(config.clone()));
            put("reason", text(reason));
            if let Some(exact) = exact(config) {
                put("exact", exact);
            }
        }
        Record::Chosen { .. } | Record::ExploitRefused { .. } | Record::Found { .. } => {}
        Record::Ended(EndedTrial { reason, error, by_scheduler, early, config, .. }) => {
            let state = if error.is_some() { TrialState::Error } else { TrialState::Terminated };
            put("status", text(state.word()));
            put("reason", text(reason));
            if let Some(known) = known {
                put("metrics", Value::Map(known.metrics.clone()));
                put("iterations", Value::Int(known.iterations as i64));
                put("seconds", Value::Float(known.seconds));
                put("checkpoint", known.checkpoint.map_or(Value::None, text));
            }
            put("error", error.as_deref().map_or(Value::None, text));
            put("by_scheduler", Value::Bool(*by_scheduler));
            put("early", Value::Bool(*early));
            if let Some(config) = config {
                put("config", Value::Map(config.clone()));
                if let Some(exact) = exact(config) {
                    put("exact", exact);
                }
            }
        }
    }
    line
}

/// For whoever looks on: what runs and what waits for room is the placement's, and nothing that a head goes on from.
pub(super) fn waits_line(trial: TrialId, now: f64, reason: &str) -> Metrics {
    let mut line = place_line("waits", trial, now);
    line.0.push(("reason".to_owned(), Value::Text(reason.to_owned())));
    line
}

/// One that waited has room.
pub(super) fn placed_line(trial: TrialId, now: f64) -> Metrics {
    place_line("placed", trial, now)
}

fn place_line(event: &str, trial: TrialId, now: f64) -> Metrics {
    Metrics(vec![
        ("event".to_owned(), Value::Text(event.to_owned())),
        ("at".to_owned(), Value::Float(now)),
        ("trial".to_owned(), Value::Int(trial.0 as i64)),
    ])
}

fn exact(config: &Metrics) -> Option<Value> {
    holds_object(&Value::Map(config.clone()))
        .then(|| Value::Text(serde_json::to_string(config).expect("values of plain kinds are always JSON")))
}

fn holds_object(value: &Value) -> bool {
    match value {
        Value::Object(_) => true,
        Value::List(items) => items.iter().any(holds_object),
        Value::Map(inner) => inner.0.iter().any(|(_, value)| holds_object(value)),
        _ => false,
    }
}

pub(super) struct Read {
    pub record: Record,
    pub names: Option<Names>,
    pub last: Option<Metrics>,
    pub iterations: u64,
    pub seconds: f64,
    pub checkpoint: Option<String>,
}

impl Read {
    pub fn trial(&self) -> TrialId {
        self.record.trial()
    }

    /// What those are told who watch from now on.
    pub fn ending(&self) -> v1::RunEnded {
        let Record::Ended(ended) = &self.record else { return v1::RunEnded::default() };
        let failure = ended.error.as_ref().map(|error| Failure::new(ErrorCode::UserException, error.clone()).into());
        v1::RunEnded {
            status: if ended.error.is_some() { "failed" } else { "finished" }.to_owned(),
            headline: ended.error.clone().unwrap_or_else(|| ended.reason.clone()),
            failure,
            metrics: self.last.clone().map(Into::into),
            iterations: self.iterations,
            seconds: self.seconds,
            ..Default::default()
        }
    }
}

/// `None` for a line that is not understood.
pub(super) fn read(line: &Metrics) -> Option<Read> {
    let text = |name: &str| match line.get(name) {
        Some(Value::Text(text)) => Some(text.clone()),
        _ => None,
    };
    let id = |name: &str| match line.get(name) {
        Some(Value::Int(number)) => u64::try_from(*number).ok().map(TrialId),
        _ => None,
    };
    let map = |name: &str| match line.get(name) {
        Some(Value::Map(map)) => Some(map.clone()),
        _ => None,
    };
    let config = || text("exact").and_then(|exact| serde_json::from_str(&exact).ok()).or_else(|| map("config"));
    let number = |name: &str| line.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    let trial = id("trial")?;
    let mut names = None;
    let record = match text("event")?.as_str() {
        "made" => {
            let own = Names { id: text("id")?, name: text("name")?, directory: text("directory")?, tag: text("tag")? };
            let named = line.get("named").is_some().then(|| (own.name.clone(), own.directory.clone()));
            names = Some(own);
            if line.get(RECOVERED).is_some() {
                let record = Record::Found { trial, config: config() };
                return Some(Read { record, names, last: None, iterations: 0, seconds: 0.0, checkpoint: None });
            }
            let amounts = map("resources").filter(|_| line.get("own_resources").is_some());
            let resources = amounts.and_then(|amounts| amounts_of(&amounts).ok());
            Record::Made { trial, config: config()?, names: named, resources }
        }
        "told" => Record::Told { trial, result: map("result")?, others_wait: line.get("others_wait").is_some() },
        "started" => Record::Chosen { trial },
        "paused" => Record::Paused { trial, reason: text("reason")? },
        "exploited" => Record::Exploited { trial, from: id("from")?, config: config()?, reason: text("reason")? },
        "exploit_refused" => Record::ExploitRefused { trial },
        "ended" => Record::Ended(EndedTrial {
            trial,
            reason: text("reason")?,
            error: text("error"),
            by_scheduler: line.get("by_scheduler") == Some(&Value::Bool(true)),
            early: line.get("early") == Some(&Value::Bool(true)),
            config: config(),
        }),
        _ => return None,
    };
    let is_ended = matches!(record, Record::Ended(_));
    Some(Read {
        record,
        names,
        last: map("metrics").filter(|metrics| is_ended && !metrics.0.is_empty()),
        iterations: number("iterations") as u64,
        seconds: number("seconds"),
        checkpoint: text("checkpoint"),
    })
}
