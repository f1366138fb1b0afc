//! `carril explain RUN`: the journal, for people.

use carril_store::{Journal, RunRecord};
use carril_types::Failure;
use clap::Args;

use crate::find::{Storage, block_on};
use crate::table::local_time;

#[derive(Args)]
pub struct Explain {
    /// The run's name, id or directory
    run: String,
    #[command(flatten)]
    storage: Storage,
}

impl Explain {
    pub fn run(self) -> Result<(), Failure> {
        let directory = block_on(self.storage.directory_of(&self.run))?;
        let records = Journal::read(&directory.join("journal"))?;
        if let Some(record) = RunRecord::read(&directory) {
            println!("{} is {}, started {}", record.name, record.status_word(), local_time(record.started));
        }
        let begin = records.first().map_or(0.0, |record| record.at);
        for record in records {
            println!("{:>9.3} s  {}", record.at - begin, record.event);
            if !record.reason.is_empty() && !record.event.ends_with(&record.reason) {
                println!("             because {}", record.reason);
            }
            for command in record.commands {
                println!("             so {command}");
            }
        }
        Ok(())
    }
}
