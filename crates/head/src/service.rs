//! What a driver can ask of a head, on its socket.

use std::fs::File;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use carril_net::{check_versions, chunks, receive, to_status};
use carril_proto::{PROTOCOL, VERSION, v1};
use carril_store::BlobStore;
use carril_types::{ErrorCode, Failure, RunId};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Request, Response, Status, Streaming};

use crate::serve::HeadHandle;
use crate::watchers::Watcher;

/// Events that wait for a driver before the run is slowed.
const WATCHER_QUEUE: usize = 1_024;

pub struct HeadService {
    head: HeadHandle,
    blobs: BlobStore,
    directory: String,
    watchers: Arc<AtomicU64>,
    shutdown: watch::Sender<bool>,
}

impl HeadService {
    /// `shutdown` becomes true when a driver asks the process to end.
    pub fn new(head: HeadHandle, blobs: BlobStore, directory: String, shutdown: watch::Sender<bool>) -> Self {
        Self { head, blobs, directory, watchers: Arc::default(), shutdown }
    }
}

type Answer<T> = Result<Response<T>, Status>;
type Chunks = Pin<Box<dyn Stream<Item = Result<v1::BlobChunk, Status>> + Send>>;
type Events = Pin<Box<dyn Stream<Item = Result<v1::RunEvent, Status>> + Send>>;

#[tonic::async_trait]
impl v1::head_server::Head for HeadService {
    type GetBlobStream = Chunks;
    type WatchRunStream = Events;

    async fn hello(&self, request: Request<v1::HelloRequest>) -> Answer<v1::HelloReply> {
        let hello = request.into_inner();
        check_versions("the driver", "the head", hello.protocol, &hello.version).map_err(to_status)?;
        let directory = self.directory.clone();
        let pid = std::process::id();
        Ok(Response::new(v1::HelloReply { protocol: PROTOCOL, version: VERSION.to_owned(), pid, directory }))
    }

    async fn has_blob(&self, request: Request<v1::BlobRequest>) -> Answer<v1::BlobPresence> {
        let present = self.blobs.path(&request.into_inner().hash).is_some();
        Ok(Response::new(v1::BlobPresence { present }))
    }

    async fn put_blob(&self, request: Request<Streaming<v1::BlobChunk>>) -> Answer<v1::BlobStored> {
        let mut writer = self.blobs.writer().map_err(|error| to_status(error.into()))?;
        receive(request.into_inner(), &mut writer).await?;
        let hash = writer.finish().map_err(|error| to_status(error.into()))?;
        Ok(Response::new(v1::BlobStored { hash }))
    }

    async fn get_blob(&self, request: Request<v1::BlobRequest>) -> Answer<Chunks> {
        let hash = request.into_inner().hash;
        let missing = || to_status(Failure::new(ErrorCode::NotFound, format!("there is no blob `{hash}`")));
        let path = self.blobs.path(&hash).ok_or_else(missing)?;
        let file = File::open(path).map_err(|_| missing())?;
        Ok(Response::new(Box::pin(chunks(file))))
    }

    async fn prepare(&self, request: Request<v1::PrepareRequest>) -> Answer<v1::PrepareReply> {
        let request = request.into_inner();
        self.head.tell(move |head| head.prepare(&request));
        Ok(Response::new(v1::PrepareReply {}))
    }

    async fn nodes(&self, _: Request<v1::NodesRequest>) -> Answer<v1::NodesReply> {
        let nodes = self.head.ask(|head| head.nodes()).await.map_err(to_status)?;
        Ok(Response::new(v1::NodesReply { nodes }))
    }

    async fn submit_run(&self, request: Request<v1::RunRequest>) -> Answer<v1::RunReply> {
        let request = request.into_inner();
        let function = &request.function;
        if !function.is_empty() && self.blobs.path(function).is_none() {
            return Err(to_status(Failure::new(ErrorCode::NotFound, format!("there is no blob `{function}`"))));
        }
        let (sender, reply) = oneshot::channel();
        self.head.tell(move |head| head.submit(request, sender));
        let ended = |_| Failure::new(ErrorCode::HeadLost, "the head is shutting down");
        reply.await.map_err(ended).and_then(|reply| reply).map(Response::new).map_err(to_status)
    }

    async fn submit_experiment(&self, request: Request<v1::ExperimentRequest>) -> Answer<v1::ExperimentReply> {
        let request = request.into_inner();
        let (sender, reply) = oneshot::channel();
        self.head.tell(move |head| head.submit_experiment(request, sender));
        let ended = |_| Failure::new(ErrorCode::HeadLost, "the head is shutting down");
        reply.await.map_err(ended).and_then(|reply| reply).map(Response::new).map_err(to_status)
    }

    async fn answer(&self, request: Request<v1::AnswerRequest>) -> Answer<v1::AnswerReply> {
        let v1::AnswerRequest { experiment_id, question, answer } = request.into_inner();
        let (id, answer) = (RunId::new(experiment_id), answer.unwrap_or_default().into());
        let told = self.head.ask(move |head| head.answer(&id, question, answer)).await;
        told.and_then(|told| told).map_err(to_status)?;
        Ok(Response::new(v1::AnswerReply {}))
    }

    async fn watch_run(&self, request: Request<v1::WatchRequest>) -> Answer<Events> {
        let request = request.into_inner();
        let (sender, receiver) = mpsc::channel(WATCHER_QUEUE);
        let id = self.watchers.fetch_add(1, Ordering::Relaxed);
        let v1::WatchRequest { run_id, reports, output, quiet } = request;
        let watcher = Watcher { id, reports, output, quiet, sender };
        let run = RunId::new(run_id);
        let watched = self.head.ask(move |head| head.watch(&run, watcher)).await;
        watched.and_then(|watched| watched).map_err(to_status)?;
        let events = tokio_stream::StreamExt::map(ReceiverStream::new(receiver), Ok);
        Ok(Response::new(Box::pin(events)))
    }

    async fn stop_run(&self, request: Request<v1::StopRequest>) -> Answer<v1::StopReply> {
        let request = request.into_inner();
        let run = RunId::new(request.run_id);
        let stopped = self.head.ask(move |head| head.stop_run(&run, request.reason, request.force)).await;
        stopped.and_then(|stopped| stopped).map_err(to_status)?;
        Ok(Response::new(v1::StopReply {}))
    }

    async fn preempt_run(&self, request: Request<v1::PreemptRequest>) -> Answer<v1::PreemptReply> {
        let request = request.into_inner();
        let run = RunId::new(request.run_id);
        let told = self.head.ask(move |head| head.preempt_run(&run, request.reason)).await;
        told.and_then(|told| told).map_err(to_status)?;
        Ok(Response::new(v1::PreemptReply {}))
    }

    async fn runs(&self, _: Request<v1::RunsRequest>) -> Answer<v1::RunsReply> {
        let runs = self.head.ask(|head| head.runs()).await.map_err(to_status)?;
        Ok(Response::new(v1::RunsReply { runs }))
    }

    async fn stacks(&self, request: Request<v1::StacksRequest>) -> Answer<v1::StacksReply> {
        let run = RunId::new(request.into_inner().run_id);
        let (sender, answer) = oneshot::channel();
        let asked = self.head.ask(move |head| head.ask_for_stacks(&run, sender)).await;
        asked.and_then(|asked| asked).map_err(to_status)?;
        let ended = |_| to_status(Failure::new(ErrorCode::NotFound, "the run ended while its ranks were asked"));
        Ok(Response::new(answer.await.map_err(ended)?))
    }

    async fn shutdown(&self, _: Request<v1::ShutdownRequest>) -> Answer<v1::ShutdownReply> {
        self.shutdown.send_replace(true);
        Ok(Response::new(v1::ShutdownReply {}))
    }
}
