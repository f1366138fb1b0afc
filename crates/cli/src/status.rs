//! `carril status [RUN]`: how live runs and searches stand, or one run, experiment or trial. One block for each.

use std::path::Path;

use carril_proto::v1::RunSummary;
use carril_store::{Experiment, Journal, RunRecord, Storage as Place, Trial, TrialState, last_report, report_number};
use carril_types::{Failure, Metrics, Value};
use clap::Args;
use serde_json::{Value as Json, json};

use crate::checkpoints::Saves;
use crate::find::{Live, Storage, block_on, blocking, is_end, live_runs, typed};
use crate::resolve::{DAMAGED, Kind, Subject};
use crate::table::{local_time, own_metrics, print_all, size, table};
use crate::tune::{Objective, counted, counts, reason_of, significant, stands, state_word};

/// Trials of a search that are listed by name.
const LISTED: usize = 4;

#[derive(Args)]
pub struct Status {
    /// The name, id or directory of a run, experiment or trial; without it, everything that is live
    run: Option<String>,
    /// Print one JSON object for each
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    storage: Storage,
}

/// How one of them stands: a line, what belongs to it, and the same for programs.
struct Block {
    head: String,
    rows: Vec<(String, String)>,
    json: Json,
}

impl Status {
    pub fn run(self) -> Result<(), Failure> {
        let blocks = block_on(async {
            match &self.run {
                Some(word) => Ok(vec![of_subject(self.storage.resolve(word).await?).await?]),
                None => of_all(live_runs().await).await,
            }
        })?;
        if self.json {
            print_all(&blocks.iter().map(|block| format!("{}\n", block.json)).collect::<String>());
        } else if blocks.is_empty() {
            println!("no live runs");
        } else {
            blocks.iter().for_each(|block| print_all(&block.text()));
        }
        Ok(())
    }
}

impl Block {
    fn text(&self) -> String {
        let rows: Vec<Vec<String>> =
            self.rows.iter().map(|(name, value)| vec![format!("  {name}"), value.clone()]).collect();
        format!("{}\n{}", self.head, table(&rows))
    }
}

/// Everything that is going on. The trials of a search are in its block.
async fn of_all(live: Vec<Live>) -> Result<Vec<Block>, Failure> {
    let open: Vec<RunSummary> =
        live.into_iter().map(|live| live.summary).filter(|summary| !is_end(&summary.status)).collect();
    let mut blocks = Vec::new();
    for summary in &open {
        if open.iter().any(|other| is_below(&summary.path, &other.path)) {
            continue;
        }
        blocks.push(match experiment_at(summary.path.clone()).await? {
            Some(experiment) => of_experiment(&experiment),
            None => of_live(summary),
        });
    }
    Ok(blocks)
}

pub fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above.trim_end_matches('/')).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
}

async fn experiment_at(location: String) -> Result<Option<Experiment>, Failure> {
    blocking(move || {
        let place = Place::open(&location, None)?;
        if !matches!(carril_store::ExperimentSummary::read(&place), Ok(Some(_))) {
            return Ok(None);
        }
        let mut experiment = Experiment::open(place)?;
        experiment.look_at_unfinished()?;
        Ok(Some(experiment))
    })
    .await
}

async fn of_subject(subject: Subject) -> Result<Block, Failure> {
    match &subject.kind {
        Kind::Experiment(experiment) => Ok(of_experiment(experiment)),
        Kind::Trial(of) => Ok(of_trial(&of.experiment, of.trial(), &subject)),
        Kind::Run => match &subject.live {
            Some(live) => Ok(of_live(&live.summary)),
            None => {
                let (files, location) = (subject.files().await?, subject.location.clone());
                blocking(move || of_stored(&files, &location)).await
            }
        },
    }
}

fn kept(checkpoints: u64, saved: u64) -> String {
    if saved > checkpoints {
        return format!("{checkpoints} of {saved} kept");
    }
    checkpoints.to_string()
}

fn plain(metrics: &Metrics) -> Json {
    carril_store::json_of(&Value::Map(metrics.clone()))
}

fn row(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

fn of_live(summary: &RunSummary) -> Block {
    let why = if summary.reason.is_empty() { String::new() } else { format!(": {}", summary.reason) };
    let mut rows = vec![
        row("id", &summary.run_id),
        row("started", local_time(summary.started)),
        row("reports", summary.iterations.to_string()),
        row("checkpoints", kept(summary.checkpoints, summary.saved)),
    ];
    let metrics = summary.metrics.clone().unwrap_or_default().into();
    let last = own_metrics(&metrics);
    if !last.is_empty() {
        rows.push(row("last report", last));
    }
    let standing = summary.standing.clone().unwrap_or_default();
    if let Some(done) = standing.done {
        let percent = format!("{:.0} %", 100.0 * done / standing.total);
        rows.push(row(
            "progress",
            match standing.data.as_str() {
                "" => percent,
                data => format!("{percent} of epoch {} of `{data}`", standing.epoch),
            },
        ));
    }
    if let Some(used) = &standing.usage {
        rows.push(row("uses", format!("{:.1} CPUs, {}", used.cpus, size(used.memory))));
    }
    if !standing.behind.is_empty() {
        let ranks: Vec<String> = standing.behind.iter().map(u32::to_string).collect();
        rows.push(row("behind", format!("rank {}, {} reports", ranks.join(", "), standing.reports_behind)));
    }
    for worker in &summary.workers {
        let place = format!("pid {} on {}, {}", worker.pid, worker.node, worker.how);
        rows.push((format!("rank {}", worker.rank), place));
    }
    rows.push(row("directory", &summary.path));
    let workers: Vec<Json> =
        summary.workers.iter().map(|one| json!({ "rank": one.rank, "pid": one.pid, "node": one.node })).collect();
    let json = json!({
        "kind": "run", "name": summary.name, "id": summary.run_id, "status": summary.status, "reason": summary.reason,
        "live": true, "started": summary.started, "reports": summary.iterations,
        "checkpoints": summary.checkpoints, "saved": summary.saved.max(summary.checkpoints),
        "metrics": plain(&metrics), "workers": workers, "attempt": summary.attempt,
        "done": standing.done, "total": standing.done.map(|_| standing.total), "behind": standing.behind,
        "directory": summary.path,
    });
    Block { head: format!("{} is {}{why}", summary.name, summary.status), rows, json }
}

fn of_stored(directory: &Path, location: &str) -> Result<Block, Failure> {
    let record = RunRecord::read(directory);
    if record.is_none() && directory.join("run.json").symlink_metadata().is_err() {
        let head = format!("{location} has nothing written down yet");
        return Ok(Block { head, rows: Vec::new(), json: json!({ "kind": "run", "directory": location }) });
    }
    let name = record.as_ref().map_or_else(|| location.rsplit('/').next().unwrap_or(location), |record| &record.name);
    let status = record.as_ref().map_or(DAMAGED, RunRecord::status_word);
    let mut rows = Vec::new();
    if let Some(record) = &record {
        rows.extend([row("id", &record.run_id), row("started", local_time(record.started))]);
        rows.extend(record.ended.map(|ended| row("ended", local_time(ended))));
    }
    let error = carril_store::regular::read_text(&directory.join("error.txt")).ok();
    let error = error.and_then(|error| error.lines().next().map(str::to_owned));
    let last = last_report(&Place::local(directory)).ok().flatten().unwrap_or_default();
    let reports = report_number(&last).unwrap_or(0);
    rows.push(row("reports", reports.to_string()));
    let records = Journal::read(&directory.join("journal")).unwrap_or_default();
    let (checkpoints, saved) = Saves::of(&Place::open(location, None)?, &records).kept_of();
    rows.push(row("checkpoints", kept(checkpoints, saved)));
    let shown = own_metrics(&last);
    if !shown.is_empty() {
        rows.push(row("last report", shown));
    }
    rows.extend(error.as_deref().map(|error| row("error", error)));
    rows.push(row("directory", location));
    let json = json!({
        "kind": "run", "name": name, "id": record.as_ref().map(|record| &record.run_id), "status": status, "live": false,
        "started": record.as_ref().map(|record| record.started), "ended": record.as_ref().and_then(|record| record.ended),
        "reports": reports, "checkpoints": checkpoints, "saved": saved, "metrics": plain(&last), "error": error,
        "directory": location,
    });
    Ok(Block { head: format!("{name} is {status}"), rows, json })
}

fn of_experiment(experiment: &Experiment) -> Block {
    let (status, summary) = (experiment.status_word(), &experiment.summary);
    let is_live = status == "running";
    let location = experiment.place().location().to_owned();
    let mut rows = vec![row("started", local_time(summary.created))];
    rows.extend(summary.ended.map(|ended| row("ended", local_time(ended))));
    let best = Objective::default().scores(experiment).ok().and_then(|scores| {
        let at = scores.best()?;
        Some((scores.goal.metric.clone(), scores.finite(at)?, experiment.trials[at].id.clone()))
    });
    if let Some((metric, value, id)) = &best {
        rows.push(row("best", format!("{metric} {} in {id}", significant(*value))));
    }
    let running: Vec<&str> = experiment
        .trials
        .iter()
        .filter(|trial| is_live && trial.state == TrialState::Running)
        .map(|trial| trial.id.as_str())
        .collect();
    if !running.is_empty() {
        let more = running.len().saturating_sub(LISTED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        rows.push(row("running", format!("{}{more}", running[..running.len().min(LISTED)].join(", "))));
    }
    rows.push(row("directory", &location));
    rows.push(row("next", format!("carril tune show {}", typed(&summary.name, &location))));
    let states: serde_json::Map<String, Json> =
        counts(experiment, is_live).into_iter().map(|(word, count)| (word.to_owned(), json!(count))).collect();
    let json = json!({
        "kind": "experiment", "name": summary.name, "status": status, "live": is_live, "started": summary.created,
        "ended": summary.ended, "trials": experiment.trials.len(), "states": states,
        "best": best.map(|(metric, value, id)| json!({ "metric": metric, "value": value, "trial": id })),
        "directory": location,
    });
    let head =
        format!("{} is {status}: {} ({} in all)", summary.name, counted(experiment, is_live), experiment.trials.len());
    Block { head, rows, json }
}

fn of_trial(experiment: &Experiment, trial: &Trial, subject: &Subject) -> Block {
    let is_live = experiment.status_word() == "running";
    let word = state_word(trial, is_live);

    let reason = reason_of(experiment, trial, is_live);
    let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let mut rows = vec![row("experiment", &experiment.summary.name), row("name", &trial.name)];
    if trial.started > 0.0 {
        rows.push(row("started", local_time(trial.started)));
    }
    rows.extend(trial.ended.map(|ended| row("ended", local_time(ended))));
    rows.push(row("reports", trial.iterations.to_string()));
    let last = own_metrics(&trial.metrics);
    if !last.is_empty() {
        rows.push(row("last report", last));
    }
    let config = own_metrics(&trial.config);
    if !config.is_empty() {
        rows.push(row("config", config));
    }
    for worker in subject.live.iter().flat_map(|live| &live.summary.workers) {
        rows.push((format!("rank {}", worker.rank), format!("pid {} on {}, {}", worker.pid, worker.node, worker.how)));
    }
    rows.push(row("directory", &subject.location));
    let json = json!({
        "kind": "trial", "id": trial.id, "name": trial.name, "number": trial.number,
        "experiment": experiment.summary.name, "status": word, "reason": reason, "live": subject.live.is_some(),
        "reports": trial.iterations, "metrics": plain(&trial.metrics),
        "config": plain(&trial.config), "directory": subject.location,
    });
    Block { head: format!("{} {}{why}", trial.id, stands(trial, is_live)), rows, json }
}
