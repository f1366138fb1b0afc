//! The Rust half of a training process.
//!
//! One thread of ours keeps the connection to the agent: orders, waits and uploads go on while the user's code is busy or
//! stuck, in whatever language it is. A report is appended to the rank's own log by the caller, with one write.

mod data_wait;
mod error;
mod link;
mod session;
mod shield;
mod title;

pub use data_wait::{DataWait, DataWaitEnd};
pub use error::SessionError;
pub use session::{ReportOptions, Saving, Session, stack_signal};
pub use shield::shield_from_preemption;
pub use title::show_title;
