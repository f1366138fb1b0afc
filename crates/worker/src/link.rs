//! The thread that keeps the connection to the agent, and the life line of the process: without an agent there is no
//! worker.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use carril_net::{connect, from_status};
use carril_proto::v1::worker_client::WorkerClient;
use carril_proto::{CHUNK, PROTOCOL, VERSION, v1};
use carril_types::{ErrorCode, Failure, WorkerKey};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;

/// What the process leaves with when its agent is gone: nobody is there to read more.
pub(crate) const AGENT_LOST_EXIT: i32 = 3;

pub(crate) struct Link {
    runtime: Runtime,
    client: WorkerClient<Channel>,
    messages: mpsc::UnboundedSender<v1::WorkerMessage>,
    exit: watch::Receiver<bool>,
    preempt: watch::Receiver<Option<v1::Preempt>>,
    leaving: Arc<AtomicBool>,
    /// What a process that has served one trial is to do next.
    next: tokio::sync::Mutex<mpsc::UnboundedReceiver<v1::Assignment>>,
}

impl Link {
    pub fn open(socket: PathBuf, key: &WorkerKey) -> Result<(Self, v1::Assignment), Failure> {
        // One thread whatever the machine: it drives the connection while the callers wait on it.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(1)
            .thread_name("carril-worker")
            .enable_all()
            .build()
            .map_err(|error| Failure::new(ErrorCode::Internal, format!("the worker's thread cannot start: {error}")))?;
        let (messages, outgoing) = mpsc::unbounded_channel();
        let hello = v1::WorkerHello {
            protocol: PROTOCOL,
            version: VERSION.to_owned(),
            worker: Some(key.clone().into()),
            pid: std::process::id(),
        };
        let _ = messages.send(hello.into());
        let lost = |status| from_status(status, ErrorCode::AgentLost);
        let (client, assignment, mut orders) = runtime.block_on(async {
            let channel = connect(&socket, ErrorCode::AgentLost).await?;
            let mut client = WorkerClient::new(channel).max_decoding_message_size(usize::MAX);
            let attending = client.attend(UnboundedReceiverStream::new(outgoing)).await;
            let mut orders = attending.map_err(lost)?.into_inner();
            let first = orders.message().await.map_err(lost)?.and_then(|order| order.kind);
            let Some(v1::worker_order::Kind::Assignment(assignment)) = first else {
                return Err(Failure::new(ErrorCode::Internal, "the agent did not begin with an assignment"));
            };
            Ok((client, assignment, orders))
        })?;
        let (next_sender, next) = mpsc::unbounded_channel();
        let (exit_sender, exit) = watch::channel(false);
        let (preempt_sender, preempt) = watch::channel(None);
        let leaving = Arc::new(AtomicBool::new(false));
        let (left, lost_key) = (leaving.clone(), key.clone());
        runtime.spawn(async move {
            while let Ok(Some(order)) = orders.message().await {
                match order.kind {
                    Some(v1::worker_order::Kind::Exit(_)) => drop(exit_sender.send_replace(true)),
                    Some(v1::worker_order::Kind::Preempt(told)) => drop(preempt_sender.send_replace(Some(told))),
                    Some(v1::worker_order::Kind::Assignment(next)) => drop(next_sender.send(next)),
                    None => {}
                }
            }
            if !left.load(Ordering::Acquire) {
                // Nobody else is left to end what this process has started.
                carril_process::kill_own_descendants(&lost_key);
                // SAFETY: ends the process at once, without running anything of the user's.
                unsafe { nix::libc::_exit(AGENT_LOST_EXIT) };
            }
        });
        let next = tokio::sync::Mutex::new(next);
        Ok((Self { runtime, client, messages, exit, preempt, leaving, next }, assignment))
    }

    /// The next trial; `None` when the process is to leave.
    pub async fn next_assignment(&self) -> Option<v1::Assignment> {
        let (mut next, mut exit) = (self.next.lock().await, self.exit.clone());
        tokio::select! {
            biased;
            assignment = next.recv() => assignment,
            _ = exit.wait_for(|exit| *exit) => None,
        }
    }

    pub fn send(&self, message: impl Into<v1::WorkerMessage>) {
        let _ = self.messages.send(message.into());
    }

    /// A wait that can be driven from any thread of the caller's.
    pub fn handle(&self) -> &tokio::runtime::Handle {
        self.runtime.handle()
    }

    pub fn client(&self) -> WorkerClient<Channel> {
        self.client.clone()
    }

    pub fn exit_order(&self) -> watch::Receiver<bool> {
        self.exit.clone()
    }

    /// What the agent has said of a preemption.
    pub fn preemption(&self) -> Option<v1::Preempt> {
        self.preempt.borrow().clone()
    }

    /// From here on the loss of the agent is no reason to end in a hurry.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::Release);
    }
}

pub(crate) async fn put_blob(mut client: WorkerClient<Channel>, data: Vec<u8>) -> Result<String, Failure> {
    let pieces: Vec<v1::BlobChunk> =
        data.chunks(CHUNK).map(|piece| v1::BlobChunk { data: piece.to_vec().into() }).collect();
    let stored = client.put_blob(tokio_stream::iter(pieces)).await;
    stored.map(|stored| stored.into_inner().hash).map_err(|status| from_status(status, ErrorCode::AgentLost))
}
