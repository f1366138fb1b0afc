//! `carril runs`

use std::collections::BTreeMap;
use std::path::PathBuf;

use carril_types::Failure;
use clap::Args;

use crate::find::{Storage, block_on, live_runs};
use crate::table::{local_time, print_table};

#[derive(Args)]
pub struct Runs {
    #[command(flatten)]
    storage: Storage,
}

impl Runs {
    pub fn run(self) -> Result<(), Failure> {
        let live = block_on(async { Ok(live_runs().await) })?;
        // By path: a run that a live head knows and the storage holds is one run.
        let mut rows: BTreeMap<PathBuf, (f64, Vec<String>)> = BTreeMap::new();
        for (path, record) in self.storage.stored() {
            let row = vec![record.name.clone(), record.status_word().to_owned(), local_time(record.started)];
            rows.insert(path, (record.started, row));
        }
        for summary in live.into_iter().map(|live| live.summary) {
            let row = vec![summary.name, summary.status, local_time(summary.started)];
            rows.insert(PathBuf::from(summary.path), (summary.started, row));
        }
        if rows.is_empty() {
            println!("no runs");
            return Ok(());
        }
        let mut rows: Vec<(PathBuf, (f64, Vec<String>))> = rows.into_iter().collect();
        rows.sort_by(|(_, (left, _)), (_, (right, _))| left.total_cmp(right));
        let mut table = vec![["run", "status", "started", "directory"].map(str::to_owned).to_vec()];
        table.extend(rows.into_iter().map(|(path, (_, mut row))| {
            row.push(path.display().to_string());
            row
        }));
        print_table(&table);
        Ok(())
    }
}
