//! `carril stop-run RUN`

use carril_proto::v1::WatchRequest;
use carril_types::Failure;
use clap::Args;

use crate::find::{block_on, live_run};

#[derive(Args)]
pub struct StopRun {
    /// The run's name, id or directory
    run: String,
    /// End the workers at once, without time to clean up
    #[arg(long)]
    force: bool,
}

impl StopRun {
    pub fn run(self) -> Result<(), Failure> {
        block_on(async {
            let live = live_run(&self.run).await?;
            let (name, id) = (live.summary.name, live.summary.run_id);
            let mut watch = live.client.watch(WatchRequest { run_id: id.clone(), ..Default::default() }).await?;
            live.client.stop_run(id, "stopped by `carril stop-run`".into(), self.force).await?;
            while let Some(event) = watch.next().await? {
                if let carril_proto::v1::run_event::Kind::Ended(ended) = event {
                    println!("{name} is {}", ended.status);
                }
            }
            Ok(())
        })
    }
}
