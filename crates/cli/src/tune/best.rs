//! `carril tune best EXPERIMENT`

use carril_store::{Experiment, Trial};
use carril_types::{AUTOMATIC_FIELDS, ErrorCode, Failure, Metrics, Value, write_json};
use clap::Args;

use super::objective::{Objective, Scores};
use super::target::{Target, note};
use super::words::{duration, reason_of, short, significant, state_word};
use crate::table::{print_all, table};

#[derive(Args)]
pub struct Best {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    objective: Objective,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Best {
    pub fn run(self) -> Result<(), Failure> {
        let experiment = self.target.open()?;
        let scores = self.objective.scores(&experiment)?;
        if let Some(left_out) = scores.left_out() {
            note(&left_out);
        }
        let Some(at) = scores.best() else {
            let message = format!(
                "no trial of `{}` has a `{}` that is a finite number",
                experiment.summary.name, scores.goal.metric
            );
            return Err(
                Failure::new(ErrorCode::NotFound, message).hint("--scope all looks at every result, not only the last")
            );
        };
        let trial = &experiment.trials[at];
        let value = scores.finite(at).unwrap_or(f64::NAN);
        let checkpoint = experiment.checkpoint(trial)?.map(|place| place.location().to_owned());
        let text = if self.json {
            json(&experiment, trial, &scores, value, checkpoint)
        } else {
            shown(&experiment, trial, &scores, value, checkpoint)
        };
        print_all(&text);
        Ok(())
    }
}

fn shown(experiment: &Experiment, trial: &Trial, scores: &Scores, value: f64, checkpoint: Option<String>) -> String {
    let goal = &scores.goal;
    let is_live = experiment.status_word() == "running";
    let (state, reason) = (state_word(trial, is_live), reason_of(experiment, trial, is_live));
    let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let mut rows = vec![
        vec!["  state".to_owned(), format!("{state}{why}")],
        vec!["  iterations".to_owned(), format!("{} in {}", trial.iterations, duration(trial.seconds))],
    ];
    trial.config.for_each_flat(&mut |name, value| rows.push(vec![format!("  config/{name}"), exact(value)]));
    trial.metrics.for_each_flat(&mut |name, value| {
        if !AUTOMATIC_FIELDS.contains(&name.split('/').next().unwrap_or(name)) {
            rows.push(vec![format!("  last {name}"), exact(value)]);
        }
    });
    rows.push(vec!["  checkpoint".to_owned(), checkpoint.unwrap_or_else(|| "none".into())]);
    rows.push(vec!["  directory".to_owned(), experiment.place_of(trial).location().to_owned()]);
    format!(
        "{} of {}: {} {} ({}, {})\n{}",
        trial.id,
        experiment.summary.name,
        goal.metric,
        significant(value),
        goal.mode_word(),
        goal.scope_word(),
        table(&rows)
    )
}

/// A configuration is typed in again from here: its numbers are not rounded.
fn exact(value: &Value) -> String {
    match value {
        Value::Float(number) if number.is_finite() => format!("{number:?}"),
        Value::List(_) | Value::Map(_) => {
            let mut text = String::new();
            write_json(&mut text, &Metrics(vec![(String::new(), value.clone())]));
            // Without the braces and the empty key that it was wrapped in.
            text[5..text.len() - 1].to_owned()
        }
        Value::Text(text) => text.clone(),
        other => short(other),
    }
}

fn json(experiment: &Experiment, trial: &Trial, scores: &Scores, value: f64, checkpoint: Option<String>) -> String {
    let text = |text: &str| Value::Text(text.to_owned());
    let mut metrics = trial.metrics.clone();
    metrics.0.retain(|(name, _)| name != "config");
    let fields = Metrics(vec![
        ("experiment".into(), text(&experiment.summary.name)),
        ("trial_id".into(), text(&trial.id)),
        ("state".into(), text(state_word(trial, experiment.status_word() == "running"))),
        ("metric".into(), text(&scores.goal.metric)),
        ("mode".into(), text(scores.goal.mode_word())),
        ("value".into(), Value::Float(value)),
        ("config".into(), Value::Map(trial.config.clone())),
        ("metrics".into(), Value::Map(metrics)),
        ("iterations".into(), Value::Int(trial.iterations as i64)),
        ("checkpoint".into(), checkpoint.map_or(Value::None, Value::Text)),
        ("directory".into(), text(experiment.place_of(trial).location())),
    ]);
    let mut json = String::new();
    write_json(&mut json, &fields);
    json.push('\n');
    json
}
