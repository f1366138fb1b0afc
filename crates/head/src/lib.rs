//! The head: carries out what the core decides. It never touches user code or Python.
//!
//! `Head` is a plain structure that takes messages and requests one by one; the clock, the way to agents and watchers, the
//! timers and the disk are behind traits (`Outside`, `Disk`), so that the same code runs under a real and a simulated world.
//! `serve` is the real one: a task that owns the `Head`, and the service on its Unix socket.

mod automatic;
mod disk;
mod experiment;
mod head;
mod mirror;
mod outside;
mod refusals;
mod run;
mod saving;
mod serve;
mod service;
mod watchers;
mod words;

pub use disk::RealDisk;
pub use head::Head;
pub use mirror::Mirror;
pub use outside::{
    Annotation, Checkpoints, Commit, Committed, Disk, ExperimentDisk, ExperimentOpened, OpenExperiment, OpenRequest,
    Outside, RunDisk, RunOpened,
};
pub use serve::{HeadHandle, start};
pub use service::HeadService;
pub use watchers::Watcher;
