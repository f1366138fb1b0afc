//! Head and agents, the crates themselves, on a simulated network, clock and machine, with one seed for everything.
//!
//! The network loses, delays, repeats and parts; heads, agents and workers die, also between any two writes. Whatever the
//! seed, these hold (`Sim::check_*` and `checks`):
//! SIM-1: workers of two attempts of a run never live at the same time.
//! SIM-2: the newest checkpoint verifies at every moment, and never is an older one than before.
//! SIM-3: an attempt goes on from the newest checkpoint, with its number.
//! SIM-4: every attempt after the first has a recorded cause, and the run has one ending.
//! SIM-5: every run ends, in bounded time, with every report in its files.
//! SIM-6: a run that has finished has the check of every checkpoint behind it.
//!
//! The idea is that of FoundationDB's simulation: one thread, one clock, dice that can be thrown again.

mod checks;
mod kernel;
mod node;
mod outside;
mod sim;
mod worker;

pub use sim::{Outcome, simulate};
