//! `carril status [RUN]`

use std::path::Path;

use carril_proto::v1::RunSummary;
use carril_store::RunRecord;
use carril_types::Failure;
use clap::Args;

use crate::find::{Storage, block_on, live_runs};
use crate::table::{local_time, own_metrics, print_table};

#[derive(Args)]
pub struct Status {
    /// The run's name, id or directory; without it, every live run
    run: Option<String>,
    #[command(flatten)]
    storage: Storage,
}

impl Status {
    pub fn run(self) -> Result<(), Failure> {
        block_on(async {
            let live = live_runs().await;
            let Some(run) = &self.run else {
                let open = live.iter().filter(|live| !is_end(&live.summary.status));
                let open: Vec<&RunSummary> = open.map(|live| &live.summary).collect();
                if open.is_empty() {
                    println!("no live runs");
                }
                open.iter().for_each(|summary| print_live(summary));
                return Ok(());
            };
            let directory = self.storage.directory_of(run).await?;
            match live.iter().find(|live| Path::new(&live.summary.directory) == &*directory) {
                Some(live) => print_live(&live.summary),
                None => print_stored(&directory),
            }
            Ok(())
        })
    }
}

fn is_end(status: &str) -> bool {
    matches!(status, "finished" | "failed" | "aborted" | "preempted")
}

fn print_live(summary: &RunSummary) {
    let why = if summary.reason.is_empty() { String::new() } else { format!(": {}", summary.reason) };
    println!("{} is {}{why}", summary.name, summary.status);
    let mut rows = vec![
        vec!["  id".to_owned(), summary.run_id.clone()],
        vec!["  started".to_owned(), local_time(summary.started)],
        vec!["  reports".to_owned(), summary.iterations.to_string()],
        vec!["  checkpoints".to_owned(), summary.checkpoints.to_string()],
    ];
    let last = own_metrics(&summary.metrics.clone().unwrap_or_default().into());
    if !last.is_empty() {
        rows.push(vec!["  last report".to_owned(), last]);
    }
    for worker in &summary.workers {
        rows.push(vec![
            format!("  rank {}", worker.rank),
            format!("pid {} on {}, {}", worker.pid, worker.node, worker.how),
        ]);
    }
    rows.push(vec!["  directory".to_owned(), summary.path.clone()]);
    print_table(&rows);
}

fn print_stored(directory: &Path) {
    let Some(record) = RunRecord::read(directory) else { return };
    println!("{} is {}", record.name, record.status_word());
    let mut rows =
        vec![vec!["  id".to_owned(), record.run_id.clone()], vec!["  started".to_owned(), local_time(record.started)]];
    if let Some(ended) = record.ended {
        rows.push(vec!["  ended".to_owned(), local_time(ended)]);
    }
    if let Ok(error) = std::fs::read_to_string(directory.join("error.txt")) {
        rows.push(vec!["  error".to_owned(), error.lines().next().unwrap_or_default().to_owned()]);
    }
    rows.push(vec!["  directory".to_owned(), directory.display().to_string()]);
    print_table(&rows);
}
