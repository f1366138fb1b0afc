//! The world as the head sees it, as traits: a simulation has its own.

use std::path::PathBuf;
use std::time::Duration;

use carril_core::Timer;
use carril_proto::v1;
use carril_store::JournalRecord;
use carril_types::{ErrorCode, Failure, Metrics, NodeId, Rank, RunId, RunSpec, RunStatus, Value};
use tokio::sync::mpsc;

/// Clock, network and timers.
pub trait Outside: Send {
    /// Unix time in seconds.
    fn now(&self) -> f64;
    fn fresh_run_id(&mut self) -> RunId;
    fn to_agent(&mut self, node: &NodeId, order: v1::AgentOrder);
    /// Calls `Head::on_timer` with the same words after that time.
    fn set_timer(&mut self, run: RunId, timer: Timer, after: Duration);
    /// Calls `Head::on_progress_due` after that time.
    fn set_progress_timer(&mut self, run: RunId, after: Duration);
    /// Calls `Head::on_watcher_ready` once the watcher of this run has room again.
    fn when_watcher_ready(&mut self, run: RunId, watcher: u64, sender: mpsc::Sender<v1::RunEvent>);
}

pub struct RunOpened {
    pub disk: Box<dyn RunDisk>,
    pub path: PathBuf,
    /// The newest checkpoint that an earlier run left here, and the number of the next one.
    pub latest_checkpoint: Option<PathBuf>,
    pub next_checkpoint: u32,
}

/// Where runs are kept.
pub trait Disk: Send {
    fn open_run(&mut self, id: &RunId, spec: &RunSpec, config: &Value, now: f64) -> Result<RunOpened, Failure>;
}

/// The files of one run.
pub trait RunDisk: Send {
    fn journal(&mut self, record: &JournalRecord) -> Result<(), Failure>;
    fn append(&mut self, at: f64, iteration: u64, reported: &Metrics, automatic: &Metrics) -> Result<(), Failure>;
    fn append_rank(&mut self, rank: Rank, metrics: &Metrics) -> Result<(), Failure>;
    fn flush(&mut self) -> Result<(), Failure>;
    fn commit_checkpoint(&mut self, iteration: u64, ranks: &[Rank], name: &str) -> Result<PathBuf, Failure>;
    fn set_status(&mut self, status: RunStatus) -> Result<(), Failure>;
    /// Where every rank was, the last time somebody asked.
    fn write_stacks(&mut self, text: &str) -> Result<(), Failure>;
    fn end(&mut self, status: RunStatus, at: f64, error: Option<(String, serde_json::Value)>) -> Result<(), Failure>;
}

/// The files of a run that has ended: everything has been written.
pub(crate) struct Closed;

impl RunDisk for Closed {
    fn journal(&mut self, _: &JournalRecord) -> Result<(), Failure> {
        Ok(())
    }

    fn append(&mut self, _: f64, _: u64, _: &Metrics, _: &Metrics) -> Result<(), Failure> {
        Ok(())
    }

    fn append_rank(&mut self, _: Rank, _: &Metrics) -> Result<(), Failure> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn commit_checkpoint(&mut self, _: u64, _: &[Rank], _: &str) -> Result<PathBuf, Failure> {
        Err(Failure::new(ErrorCode::Internal, "the run has ended"))
    }

    fn set_status(&mut self, _: RunStatus) -> Result<(), Failure> {
        Ok(())
    }

    fn write_stacks(&mut self, _: &str) -> Result<(), Failure> {
        Ok(())
    }

    fn end(&mut self, _: RunStatus, _: f64, _: Option<(String, serde_json::Value)>) -> Result<(), Failure> {
        Ok(())
    }
}
