//! What a worker can ask of its agent, on the agent's socket.

use std::path::PathBuf;
use std::pin::Pin;

use carril_net::{check_versions, receive, to_status};
use carril_proto::v1;
use carril_store::BlobStore;
use carril_types::{ErrorCode, Failure, WorkerKey};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::{Stream, StreamExt, wrappers::UnboundedReceiverStream};
use tonic::{Request, Response, Status, Streaming};

use crate::checkpoints::{cut_short, is_trouble};
use crate::serve::AgentHandle;

pub struct WorkerService {
    agent: AgentHandle,
    blobs: BlobStore,
}

impl WorkerService {
    pub fn new(agent: AgentHandle, blobs: BlobStore) -> Self {
        Self { agent, blobs }
    }
}

type Answer<T> = Result<Response<T>, Status>;
type Orders = Pin<Box<dyn Stream<Item = Result<v1::WorkerOrder, Status>> + Send>>;

#[tonic::async_trait]
impl v1::worker_server::Worker for WorkerService {
    type AttendStream = Orders;

    async fn attend(&self, request: Request<Streaming<v1::WorkerMessage>>) -> Answer<Orders> {
        let mut messages = request.into_inner();
        let first = messages.next().await.transpose()?.and_then(|message| message.kind);
        let Some(v1::worker_message::Kind::Hello(hello)) = first else {
            return Err(to_status(Failure::new(ErrorCode::Internal, "a worker must begin with hello")));
        };
        check_versions("the worker", "the agent", hello.protocol, &hello.version).map_err(to_status)?;
        let key: WorkerKey = hello.worker.unwrap_or_default().into();
        let (sender, orders) = mpsc::unbounded_channel();
        let known = key.clone();
        let accepted = self.agent.ask(move |agent| agent.on_hello(&known, sender)).await;
        accepted.and_then(|accepted| accepted).map_err(to_status)?;
        let agent = self.agent.clone();
        tokio::spawn(async move {
            while let Some(Ok(message)) = messages.next().await {
                let key = key.clone();
                agent.tell(move |agent| agent.on_worker_message(&key, message));
            }
        });
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(orders))))
    }

    async fn put_blob(&self, request: Request<Streaming<v1::BlobChunk>>) -> Answer<v1::BlobStored> {
        let mut writer = self.blobs.writer().map_err(|error| to_status(error.into()))?;
        receive(request.into_inner(), &mut writer).await?;
        let hash = writer.finish().map_err(|error| to_status(error.into()))?;
        Ok(Response::new(v1::BlobStored { hash }))
    }

    async fn store_checkpoint(&self, request: Request<v1::StoreRequest>) -> Answer<v1::StoreReply> {
        let request = request.into_inner();
        let key: WorkerKey = request.worker.unwrap_or_default().into();
        let known = key.clone();
        let place = self.agent.ask(move |agent| agent.save_place(&known)).await.and_then(|place| place);
        let place = place.map_err(to_status)?;
        let (iteration, rank) = (request.sequence + 1, key.rank);
        let mut taken = Vec::new();
        let mut in_place = String::new();
        if request.in_place {
            in_place = request.directory;
        } else {
            place.removals_end().await;
            let (from, place) = (PathBuf::from(request.directory), place.clone());
            let take = move || place.take(iteration, rank, &from, request.r#move);
            let result = tokio::task::spawn_blocking(take).await.map_err(|error| to_status(cut_short(error)))?;
            match result {
                Ok(files) => taken = files,
                // A disk that fails costs the checkpoint, not the run: it is told of like any that cannot be stored.
                Err(error) if is_trouble(&error) => {
                    self.agent.tell(move |agent| agent.on_prepared(&key, iteration, in_place, Err(error.into())));
                    return Ok(Response::new(v1::StoreReply {}));
                }
                Err(error) => return Err(to_status(error.into())),
            }
        }
        let agent = self.agent.clone();
        // Beyond the worker's life: what it was told is taken is kept.
        tokio::spawn(async move {
            let name = in_place.clone();
            let prepare = move || match name.as_str() {
                "" => place.prepare(iteration, rank, taken),
                _ => Ok(place.prepare_in_place(rank)),
            };
            let result = tokio::task::spawn_blocking(prepare).await;
            let result = result.map_err(cut_short).and_then(|shard| shard.map_err(Failure::from));
            agent.tell(move |agent| agent.on_prepared(&key, iteration, in_place, result));
        });
        Ok(Response::new(v1::StoreReply {}))
    }

    async fn wait(&self, request: Request<v1::WorkerWaits>) -> Answer<v1::WaitReply> {
        let wait = request.into_inner();
        let key: WorkerKey = wait.worker.clone().unwrap_or_default().into();
        let (sender, answer) = oneshot::channel();
        self.agent.tell(move |agent| agent.on_wait(&key, wait, sender));
        let lost = |_| Failure::new(ErrorCode::AgentLost, "the agent is shutting down");
        let payload = answer.await.map_err(lost).and_then(|answer| answer).map_err(to_status)?;
        Ok(Response::new(v1::WaitReply { payload }))
    }
}
