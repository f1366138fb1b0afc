//! `carril tune ls [PATH]`

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use carril_store::{Experiment, ExperimentSummary, Storage as Place};
use carril_types::{Failure, Metrics, Value, write_json};
use clap::Args;

use super::objective::Objective;
use super::target::{experiments_in, note, note_read_back};
use super::words::{counted, counts, duration, significant};
use crate::find::{Storage, block_on, is_end, live_runs, there};
use crate::table::{print_all, print_table};

#[derive(Args)]
pub struct Ls {
    /// An experiment, or a directory or URI that holds some; the same as --storage
    path: Option<String>,
    #[command(flatten)]
    storage: Storage,
    /// Print one JSON object per experiment
    #[arg(long)]
    json: bool,
}

struct Row {
    created: f64,
    cells: Vec<String>,
    json: Metrics,
}

impl Ls {
    pub fn run(self) -> Result<(), Failure> {
        let mut rows = BTreeMap::new();
        for place in self.places()? {
            for (place, _) in experiments_in(&place)? {
                rows.insert(place.location().trim_end_matches('/').to_owned(), row(place));
            }
        }
        let mut rows: Vec<Row> = rows.into_values().collect();
        rows.sort_by(|left, right| left.created.total_cmp(&right.created));
        if self.json {
            let mut text = String::new();
            for row in &rows {
                write_json(&mut text, &row.json);
                text.push('\n');
            }
            print_all(&text);
            return Ok(());
        }
        if rows.is_empty() {
            println!("no experiments");
            return Ok(());
        }
        let mut table =
            vec![["experiment", "status", "trials", "best", "age", "directory"].map(str::to_owned).to_vec()];
        table.extend(rows.into_iter().map(|row| row.cells));
        print_table(&table);
        Ok(())
    }
}

impl Ls {
    /// The place that was named; otherwise the usual ones, and wherever a search is live.
    fn places(&self) -> Result<Vec<Place>, Failure> {
        if let Some(path) = &self.path {
            return Ok(vec![Place::open(&there(path)?, None)?]);
        }
        let mut places = self.storage.places()?;
        if !self.storage.is_given() {
            let live = block_on(async { Ok(live_runs().await) })?;
            for summary in live.into_iter().map(|live| live.summary).filter(|summary| !is_end(&summary.status)) {
                let place = Place::open(&summary.path, None)?;
                // Trials are their experiment's, and runs are none.
                if matches!(ExperimentSummary::read(&place), Ok(Some(_))) {
                    places.push(place);
                }
            }
        }
        Ok(places)
    }
}

/// One that cannot be read is listed as damaged: the others are not its affair.
fn row(place: Place) -> Row {
    let location = place.location().to_owned();
    let read = Experiment::open(place).and_then(|mut experiment| {
        experiment.look_at_unfinished()?;
        Ok(experiment)
    });
    let experiment = match read {
        Ok(experiment) => experiment,
        Err(error) => {
            note(&error.to_string());
            let (name, nothing) = (location.rsplit('/').next().unwrap_or(&location), "-".to_owned());
            let cells =
                vec![name.to_owned(), "damaged".into(), nothing.clone(), nothing.clone(), nothing, location.clone()];
            let json = [("status", "damaged"), ("directory", &location)];
            let json = json.map(|(key, text)| (key.to_owned(), Value::Text(text.to_owned()))).to_vec();
            return Row { created: 0.0, cells, json: Metrics(json) };
        }
    };
    note_read_back(&experiment);
    let best = Objective::default().scores(&experiment).ok().and_then(|scores| {
        let at = scores.best()?;
        Some((scores.finite(at)?, at, scores.goal))
    });
    let (status, summary) = (experiment.status_word(), &experiment.summary);
    let is_live = status == "running";
    let states =
        counts(&experiment, is_live).into_iter().map(|(word, count)| (word.to_owned(), Value::Int(count as i64)));
    let shown =
        best.as_ref().map(|(value, _, goal)| format!("{} {} ({})", goal.metric, significant(*value), goal.mode_word()));
    let text = |text: &str| Value::Text(text.to_owned());
    let json = Metrics(vec![
        ("name".into(), text(&summary.name)),
        ("status".into(), text(status)),
        ("created".into(), Value::Float(summary.created)),
        ("ended".into(), summary.ended.map_or(Value::None, Value::Float)),
        ("trials".into(), Value::Int(experiment.trials.len() as i64)),
        ("states".into(), Value::Map(Metrics(states.collect()))),
        ("metric".into(), summary.metric.as_deref().map_or(Value::None, text)),
        ("best".into(), best.as_ref().map_or(Value::None, |(value, ..)| Value::Float(*value))),
        ("best_trial".into(), best.as_ref().map_or(Value::None, |(_, at, _)| text(&experiment.trials[*at].id))),
        ("directory".into(), text(&location)),
    ]);
    let age = duration((now() - summary.created).max(0.0));
    let cells = vec![
        summary.name.clone(),
        status.to_owned(),
        counted(&experiment, is_live),
        shown.unwrap_or_else(|| "-".into()),
        age,
        location,
    ];
    Row { created: summary.created, cells, json }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}
