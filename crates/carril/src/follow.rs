//! What the head tells of a run or a search, followed to its end in the calling thread.
//!
//! FOLLOW-1: the first Ctrl-C stops what is followed, the second ends it at once.
//! FOLLOW-2: an error of a callback stops it too; it is drained like any other, and the first error is the one that is told.

use std::time::Duration;

use carril_client::RunWatch;
use carril_proto::v1;
use carril_proto::v1::run_event::Kind;
use carril_types::{ErrorCode, Failure};

use crate::console::Console;
use crate::driver::Connection;
use crate::error::BoxError;
use crate::signals::Signals;

/// How long Ctrl-C may go unnoticed.
const POLL: Duration = Duration::from_millis(50);

pub(crate) struct Follower<'a> {
    pub signals: &'a Signals,
    /// How often the user wanted the end.
    pub interrupts: u32,
    /// What a callback failed with.
    pub failed: Option<BoxError>,
}

impl<'a> Follower<'a> {
    pub fn new(signals: &'a Signals) -> Self {
        Self { signals, interrupts: 0, failed: None }
    }

    pub fn is_unwanted(&self) -> bool {
        self.interrupts > 0 || self.failed.is_some()
    }

    /// The last word of what is followed.
    pub fn until_ended(
        &mut self,
        connection: &Connection,
        request: v1::WatchRequest,
        console: &mut Console,
        mut on_event: impl FnMut(&mut Console, Kind) -> Result<(), BoxError>,
    ) -> Result<v1::RunEnded, Failure> {
        let (client, runtime, run_id) = (&connection.client, &connection.runtime, request.run_id.clone());
        let mut watch = runtime.block_on(client.watch(request))?;
        let mut ended = None;
        loop {
            let interrupts = self.signals.interrupts();
            if interrupts > self.interrupts {
                self.interrupts = interrupts;
                console.interrupted(interrupts);
                runtime.block_on(client.stop_run(run_id.clone(), "interrupted".into(), interrupts > 1))?;
            }
            if let Some(signal) = self.signals.preemption() {
                let reason = format!("{} to the driver", signal.as_str());
                runtime.block_on(client.preempt_run(run_id.clone(), reason))?;
            }
            let told = match next(runtime, &mut watch) {
                None => continue,
                Some(told) => told?,
            };
            let Some(kind) = told else {
                return ended.ok_or_else(|| {
                    Failure::new(ErrorCode::Internal, "the head closed the event stream before the run ended")
                });
            };
            if let Kind::Ended(last) = kind {
                ended = Some(last);
                continue;
            }
            if let Err(error) = on_event(console, kind)
                && self.failed.is_none()
            {
                self.failed = Some(error);
                runtime.block_on(client.stop_run(run_id.clone(), "a callback failed".into(), false))?;
            }
        }
    }
}

/// `None` where nothing has happened for a while.
fn next(runtime: &tokio::runtime::Handle, watch: &mut RunWatch) -> Option<Result<Option<Kind>, Failure>> {
    runtime.block_on(async { tokio::time::timeout(POLL, watch.next()).await }).ok()
}
