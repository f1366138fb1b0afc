//! The agent: one per node. It starts, watches and reaps processes, reads what the workers report and print, stores their
//! checkpoints, and hands what it learns to the head. It decides nothing about a run.
//!
//! `Agent` is a plain structure that takes messages one by one; processes, files and timers are behind the trait `World`,
//! so that the same code runs under a real and a simulated node. `serve` is the real one.

mod agent;
mod checkpoints;
mod devices;
mod environment;
mod follow;
mod process;
mod resources;
mod serve;
mod service;
mod stacks;
mod starter;
mod usage;
mod world;
mod zygote;

pub use agent::{Agent, Orders};
pub use checkpoints::{Forget, SavePlace};
pub use devices::visible_devices;
pub use process::process_end;
pub use resources::{Limits, node_resources};
pub use serve::{AgentConfig, AgentHandle, become_reaper, start};
pub use service::WorkerService;
pub use world::{StartRequest, World};
