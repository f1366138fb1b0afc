//! `carril runs`: runs and experiments, those that are live and those in the storage. Trials are their experiment's.

use std::collections::BTreeMap;

use carril_store::{ExperimentSummary, RunRecord, Storage as Place};
use carril_types::Failure;
use clap::Args;
use serde_json::json;

use crate::find::{Storage, block_on, blocking, live_runs};
use crate::resolve::DAMAGED;
use crate::status::is_below;
use crate::table::{local_time, print_all, print_table};

#[derive(Args)]
pub struct Runs {
    /// Print one JSON object per run
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    storage: Storage,
}

struct Row {
    kind: &'static str,
    name: String,
    status: String,
    started: f64,
}

impl Runs {
    pub fn run(self) -> Result<(), Failure> {
        let rows = block_on(async {
            let live = live_runs().await;
            let places = self.storage.places()?;
            // By path: a run that a live head knows and the storage holds is one run.
            let mut rows: BTreeMap<String, Row> = blocking(move || stored(&places)).await?;
            let paths: Vec<String> = live.iter().map(|live| live.summary.path.clone()).collect();
            for summary in live.into_iter().map(|live| live.summary) {
                let is_trial = |above: &String| is_below(&summary.path, above);
                if paths.iter().any(is_trial)
                    || rows.iter().any(|(path, row)| row.kind == "experiment" && is_trial(path))
                {
                    continue;
                }
                let path = summary.path.trim_end_matches('/').to_owned();
                let kind = match rows.get(&path) {
                    Some(row) => row.kind,
                    None => kind_at(path.clone()).await?,
                };
                rows.insert(path, Row { kind, name: summary.name, status: summary.status, started: summary.started });
            }
            Ok(rows)
        })?;
        let mut rows: Vec<(String, Row)> = rows.into_iter().collect();
        rows.sort_by(|(_, left), (_, right)| left.started.total_cmp(&right.started));
        if self.json {
            let line = |(path, row): &(String, Row)| {
                json!({
                    "kind": row.kind, "name": row.name, "status": row.status, "started": row.started,
                    "directory": path,
                })
            };
            print_all(&rows.iter().map(|row| format!("{}\n", line(row))).collect::<String>());
            return Ok(());
        }
        if rows.is_empty() {
            println!("no runs");
            return Ok(());
        }
        let mut table = vec![["run", "kind", "status", "started", "directory"].map(str::to_owned).to_vec()];
        table.extend(
            rows.into_iter()
                .map(|(path, row)| vec![row.name, row.kind.into(), row.status, local_time(row.started), path]),
        );
        print_table(&table);
        Ok(())
    }
}

/// What a live head has there, which may be in any storage.
async fn kind_at(location: String) -> Result<&'static str, Failure> {
    let read = move || Ok(row_of(&Place::open(&location, None)?).map_or("run", |row| row.kind));
    blocking(read).await
}

fn stored(places: &[Place]) -> Result<BTreeMap<String, Row>, Failure> {
    let mut rows = BTreeMap::new();
    for place in places {
        for name in place.names()? {
            let place = place.join(name.trim_end_matches('/'));
            if let Some(row) = row_of(&place) {
                rows.insert(place.location().trim_end_matches('/').to_owned(), row);
            }
        }
    }
    Ok(rows)
}

fn row_of(place: &Place) -> Option<Row> {
    if place.local_path().is_some_and(std::path::Path::is_file) {
        return None;
    }
    if let Ok(Some(summary)) = ExperimentSummary::read(place) {
        let status =
            carril_store::Experiment::open(place.clone()).map_or("damaged", |experiment| experiment.status_word());
        return Some(Row { kind: "experiment", name: summary.name, status: status.into(), started: summary.created });
    }
    let Ok(record) = serde_json::from_slice::<RunRecord>(&place.read("run.json").ok()??) else {
        let location = place.location().trim_end_matches('/');
        let name = location.rsplit('/').next().unwrap_or(location).to_owned();
        return Some(Row { kind: "run", name, status: DAMAGED.into(), started: 0.0 });
    };
    let status = record.status_word().to_owned();
    Some(Row { kind: "run", name: record.name, status, started: record.started })
}
