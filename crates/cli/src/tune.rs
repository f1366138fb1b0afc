//! `carril tune`: looks at experiments, while they go on or afterwards, from their files alone.

mod best;
mod export;
mod forest;
mod ls;
mod objective;
mod parameters;
mod plot;
mod show;
mod target;
pub(crate) mod words;

pub use self::objective::Objective;
pub use self::target::note;
pub use self::words::{counted, counts, reason_of, significant, stands, state_word};

use carril_types::Failure;
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Tune {
    /// List experiments: their trials by state, the best value, how old they are
    Ls(ls::Ls),
    /// Show the trials of an experiment
    Show(show::Show),
    /// Show the best trial of an experiment: configuration, metrics, checkpoint
    Best(best::Best),
    /// Write the trials of an experiment, or all their results, as a table for other programs
    Export(export::Export),
    /// Plot an experiment: the best so far, parallel coordinates, or the importance of parameters
    Plot(plot::Plot),
}

impl Tune {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Tune::Ls(command) => command.run(),
            Tune::Show(command) => command.run(),
            Tune::Best(command) => command.run(),
            Tune::Export(command) => command.run(),
            Tune::Plot(command) => command.run(),
        }
    }
}
