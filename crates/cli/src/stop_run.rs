//! `carril stop-run RUN`: a run, a search, or one trial of a search.

use carril_proto::v1::WatchRequest;
use carril_types::Failure;
use clap::Args;
use serde_json::json;

use crate::find::{Storage, block_on};
use crate::stacks::not_live;

#[derive(Args)]
pub struct StopRun {
    /// The name, id or directory of a run, experiment or trial
    run: String,
    /// End the workers at once, without time to clean up
    #[arg(long)]
    force: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    storage: Storage,
}

impl StopRun {
    pub fn run(self) -> Result<(), Failure> {
        block_on(async {
            let subject = self.storage.resolve(&self.run).await?;
            let Some(live) = subject.live else { return Err(not_live(&self.run, &subject)) };
            let (name, id) = (live.summary.name, live.summary.run_id);
            let mut watch = live.client.watch(WatchRequest { run_id: id.clone(), ..Default::default() }).await?;
            live.client.stop_run(id, "requested by `carril stop-run`".into(), self.force).await?;
            // One that never ran, as a trial that waits for room, has no end of its own to tell of.
            let mut status = "aborted".to_owned();
            while let Some(event) = watch.next().await? {
                if let carril_proto::v1::run_event::Kind::Ended(ended) = event {
                    status = ended.status;
                }
            }
            if self.json {
                println!("{}", json!({ "name": name, "status": status, "directory": subject.location }));
            } else {
                println!("{name} is {status}");
            }
            Ok(())
        })
    }
}
