//! Everything that decides, as plain state machines: an event goes in, commands and a reason come out.
//!
//! No clock, no I/O, no randomness and no async live here: time and chance are arguments, timers are commands.
//! The shells around it (head, agent) carry out what is decided. So every decision can be scripted, replayed and
//! property-tested, and ten thousand workers fit into one thread.

mod budget;
mod collate;
mod devices;
mod placement;
mod reduce;
mod retention;
mod run;
mod stacks;
pub mod tune;
mod waits;

pub use budget::{Budget, FailureRule, Infrastructure, Limit, Verdict, alike};
pub use collate::{Collated, Collator, REPORT_WINDOW, ReportError};
pub use devices::Devices;
pub use placement::{Decision, NodeResources, Placement, PlacementRequest, Share};
pub use reduce::reduce;
pub use retention::{Kept, Retention, RetentionRule};
pub use run::{Command, Ending, Event, OutOfMemory, Outcome, RunMachine, RunOptions, Saving, Timer};
pub use stacks::{RankStack, summarize};
pub use waits::WaitKind;
