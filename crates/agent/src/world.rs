//! The node as the agent sees it, as a trait: a simulation has its own.

use std::path::PathBuf;
use std::time::Duration;

use carril_proto::v1;
use carril_types::{Failure, WorkerCommand, WorkerKey};

use crate::checkpoints::{Forget, SavePlace};

/// All that is needed to start one worker.
#[derive(Clone, Debug)]
pub struct StartRequest {
    pub key: WorkerKey,
    pub command: WorkerCommand,
    /// Complete: nothing is inherited.
    pub environment: Vec<(String, String)>,
    pub directory: PathBuf,
    pub output: PathBuf,
    pub threads: u32,
}

pub trait World: Send {
    fn to_head(&mut self, message: v1::AgentMessage);
    /// Has these modules imported in the zygote of that interpreter, beside everything else.
    fn prepare(&mut self, request: v1::PrepareRequest);
    /// The environment that a worker starts from.
    fn inherited_environment(&self) -> Vec<(String, String)>;
    /// Binds the socket on which the ranks of a group will meet, to be given to rank 0; returns its port.
    fn bind_meeting_point(&mut self, rank_zero: &WorkerKey) -> Result<u16, Failure>;
    /// Calls `Agent::on_started` when it is done.
    fn start(&mut self, request: StartRequest);
    /// The outcome of a start has been taken note of.
    fn start_done(&mut self);
    /// Calls `Agent::on_exited` when the process has ended.
    fn watch(&mut self, key: &WorkerKey, pid: u32);
    fn terminate(&mut self, pid: u32);
    /// Kills the process, its session, and what it left behind.
    fn kill(&mut self, key: &WorkerKey, pid: u32);
    /// The exit of this process has been collected: its pid means nothing any more.
    fn ended(&mut self, pid: u32);
    /// Collects orphans that ended by themselves.
    fn reap_orphans(&mut self);
    /// Calls `Agent::on_stop_timer` after that time.
    fn set_stop_timer(&mut self, key: WorkerKey, after: Duration);
    /// Calls `Agent::on_hello_timer` after that time.
    fn set_hello_timer(&mut self, key: WorkerKey, after: Duration);
    /// Follows a worker's two files: calls `Agent::on_changes` when one has grown.
    fn follow(&mut self, key: &WorkerKey, reports: PathBuf, output: PathBuf) -> Result<(), Failure>;
    /// The workers whose files have grown since the last call.
    fn changed(&mut self) -> Vec<WorkerKey>;
    /// What has been added to the report log since the last call.
    fn read_reports(&mut self, key: &WorkerKey) -> Result<Vec<v1::Report>, Failure>;
    /// Whole lines that have been added to the output since the last call; with `all`, also a last one without its end.
    fn read_output(&mut self, key: &WorkerKey, all: bool) -> Vec<u8>;
    /// The last lines of the output, for an exit that nobody explained.
    fn last_output(&mut self, key: &WorkerKey) -> String;
    fn unfollow(&mut self, key: &WorkerKey);
    /// The process that was one worker goes on as another, with the same log of reports.
    fn follow_on(&mut self, before: &WorkerKey, key: &WorkerKey, output: PathBuf) -> Result<(), Failure>;
    /// Calls `Agent::on_stacks` when every rank has answered or had its time. The flag says who can answer.
    fn gather_stacks(&mut self, key: WorkerKey, ranks: Vec<(WorkerKey, u32, bool)>);
    fn stack_file(&self, key: &WorkerKey) -> PathBuf;
    /// How many processes the kernel has ended here for their memory.
    fn memory_kills(&self) -> u64;
    /// By which limit that was, in words.
    fn memory_limit(&self) -> String;
    fn report_log(&self, key: &WorkerKey) -> PathBuf;
    fn blob_path(&self, hash: &str) -> Option<PathBuf>;
    /// Where this node keeps the files of runs whose storage is elsewhere.
    fn spool(&self) -> PathBuf;
    /// Calls `Agent::on_uploaded` when it is done.
    fn upload(&mut self, order: v1::UploadCheckpoint);
    /// Removes what was taken for checkpoints.
    fn forget(&mut self, place: SavePlace, what: Forget);
    /// How many files the agent may have open; `None` where that is not known.
    fn descriptor_limit(&self) -> Option<u64>;
    /// Whether the process has begun to end, or is gone.
    fn is_ending(&self, pid: u32) -> bool;
    /// The process was stopped by a signal (true) or goes on (false) since the last call; `None` when nothing changed.
    fn halted(&mut self, pid: u32) -> Option<bool>;
}
