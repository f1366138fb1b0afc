//! `carril stacks RUN`

use carril_types::Failure;
use clap::Args;

use crate::find::{block_on, live_run};

#[derive(Args)]
pub struct Stacks {
    /// The run's name, id or directory
    run: String,
}

impl Stacks {
    pub fn run(self) -> Result<(), Failure> {
        let reply = block_on(async {
            let live = live_run(&self.run).await?;
            live.client.stacks(live.summary.run_id).await
        })?;
        println!("{}", reply.summary);
        for stack in reply.stacks {
            println!("\nrank {} ({})\n{}", stack.rank, stack.state, stack.text.trim_end());
        }
        Ok(())
    }
}
