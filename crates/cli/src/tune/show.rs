//! `carril tune show EXPERIMENT`

use carril_store::{Experiment, ExperimentStatus};
use carril_types::Failure;
use clap::Args;

use super::export::{json_lines, trial_rows};
use super::objective::{Objective, Scores};
use super::parameters::{cell, shared_prefix, varying};
use super::target::{Target, note};
use super::words::{counted, cut, duration, reason_of, significant, state_word, trials};
use crate::table::{print_all, table};

/// A reason longer than this is cut; `error.txt` of the trial has it in full.
const LONGEST_REASON: usize = 100;

#[derive(Args)]
pub struct Show {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    objective: Objective,
    /// Print one JSON object per trial, with every metric and parameter
    #[arg(long)]
    json: bool,
}

impl Show {
    pub fn run(self) -> Result<(), Failure> {
        let experiment = self.target.open()?;
        if self.json {
            print_all(&json_lines(&trial_rows(&experiment)));
            return Ok(());
        }
        let scores = match self.objective.scores(&experiment) {
            Ok(scores) => Some(scores),
            // A metric that somebody named and nobody reported is worth a word, and the table is still wanted.
            Err(failure) => {
                if self.objective.is_known(&experiment) && !experiment.trials.is_empty() {
                    note(&failure.to_string());
                }
                None
            }
        };
        print_all(&shown(&experiment, scores.as_ref()));
        Ok(())
    }
}

fn shown(experiment: &Experiment, scores: Option<&Scores>) -> String {
    let status = experiment.status_word();
    let is_live = status == "running";
    let summary = &experiment.summary;
    let ended_badly = matches!(summary.status, ExperimentStatus::Stopped | ExperimentStatus::Failed);
    let why = if ended_badly && !summary.reason.is_empty() { format!(" ({})", summary.reason) } else { String::new() };
    let mut text = format!("{} is {status}{why}: {}", summary.name, counted(experiment, is_live));
    if let Some(scores) = scores
        && let Some(at) = scores.best()
    {
        let (goal, value) = (&scores.goal, scores.finite(at).unwrap_or(f64::NAN));
        let best = &experiment.trials[at].id;
        text.push_str(&format!("; best {} {} ({}) in {best}", goal.metric, significant(value), goal.mode_word()));
    }
    text.push('\n');
    if experiment.trials.is_empty() {
        return text;
    }
    let parameters = varying(experiment);
    let mut header: Vec<String> = ["trial", "state", "iterations", "time"].map(str::to_owned).to_vec();
    header.extend(scores.map(|scores| scores.goal.metric.clone()));
    let prefix = shared_prefix(&parameters);
    header.extend(parameters.iter().map(|parameter| parameter.name[prefix.len()..].to_owned()));
    header.push("why".into());
    let mut rows = vec![header];
    for (at, trial) in experiment.trials.iter().enumerate() {
        let mut row = vec![trial.id.clone(), state_word(trial, is_live).to_owned()];
        row.push(trial.iterations.to_string());
        row.push(duration(trial.seconds));
        row.extend(scores.map(|scores| scores.values[at].map_or_else(|| "-".into(), significant)));
        row.extend(parameters.iter().map(|parameter| cell(parameter.values[at].as_ref())));
        row.push(cut(reason_of(experiment, trial, is_live), LONGEST_REASON));
        rows.push(row);
    }
    text.push_str(&table(&rows));
    if let Some(left_out) = scores.and_then(Scores::left_out) {
        note(&format!("{left_out}, of {}", trials(experiment.trials.len())));
    }
    text
}
