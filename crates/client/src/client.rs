//! A connection to a head. Every method is one question.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use carril_net::{PANIC, check_versions, connect, from_status};
use carril_proto::v1::head_client::HeadClient;
use carril_proto::{CHUNK, PROTOCOL, VERSION, v1};
use carril_types::{ErrorCode, Failure, PythonRuntime, RunSpec, Value};
use tokio_stream::StreamExt;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

fn lost(status: Status) -> Failure {
    from_status(status, ErrorCode::HeadLost)
}

/// How long a head may take to answer at first.
const HELLO: Duration = Duration::from_secs(60);

/// The name under which a blob is kept.
pub fn hash_of(data: &[u8]) -> String {
    blake3::hash(data).to_hex().to_string()
}

#[derive(Clone)]
pub struct Client {
    head: HeadClient<Channel>,
    socket: PathBuf,
    pub pid: u32,
    pub directory: String,
    panicked: Arc<OnceLock<String>>,
}

impl Client {
    pub async fn connect(socket: &Path) -> Result<Self, Failure> {
        let channel = connect(socket, ErrorCode::HeadLost).await?;
        let mut head = HeadClient::new(channel).max_decoding_message_size(usize::MAX);
        let hello = v1::HelloRequest { protocol: PROTOCOL, version: VERSION.to_owned(), pid: std::process::id() };
        let silent =
            |_| Failure::new(ErrorCode::HeadLost, format!("the head does not answer within {} s", HELLO.as_secs()));
        let reply = tokio::time::timeout(HELLO, head.hello(hello)).await.map_err(silent)?.map_err(lost)?.into_inner();
        check_versions("the head", "the driver", reply.protocol, &reply.version)?;
        let panicked = Arc::default();
        Ok(Self { head, socket: socket.to_owned(), pid: reply.pid, directory: reply.directory, panicked })
    }

    /// How the head panicked, where it has ended in that way. Known to all copies once one of them has asked: the next head
    /// sweeps the directory.
    pub fn panic(&self) -> Option<String> {
        if let Ok(told) = std::fs::read_to_string(Path::new(&self.directory).join(PANIC)) {
            let _ = self.panicked.set(told);
        }
        self.panicked.get().cloned()
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub async fn prepare(
        &self,
        runtime: PythonRuntime,
        modules: Vec<String>,
        script: Option<String>,
    ) -> Result<(), Failure> {
        let script = script.unwrap_or_default();
        let request = v1::PrepareRequest { runtime: Some(runtime.into()), modules, script };
        self.head.clone().prepare(request).await.map(drop).map_err(lost)
    }

    /// Stores bytes under their hash; what the head has already is not sent.
    pub async fn put_blob(&self, data: Vec<u8>, hash: String) -> Result<String, Failure> {
        let mut head = self.head.clone();
        let present = head.has_blob(v1::BlobRequest { hash: hash.clone() }).await.map_err(lost)?.into_inner().present;
        if present {
            return Ok(hash);
        }
        let pieces: Vec<v1::BlobChunk> =
            data.chunks(CHUNK).map(|piece| v1::BlobChunk { data: piece.to_vec().into() }).collect();
        drop(data);
        Ok(head.put_blob(tokio_stream::iter(pieces)).await.map_err(lost)?.into_inner().hash)
    }

    pub async fn get_blob(&self, hash: String) -> Result<Vec<u8>, Failure> {
        let mut stream = self.head.clone().get_blob(v1::BlobRequest { hash }).await.map_err(lost)?.into_inner();
        let mut data = Vec::new();
        while let Some(chunk) = stream.next().await {
            data.extend_from_slice(&chunk.map_err(lost)?.data);
        }
        Ok(data)
    }

    pub async fn submit(
        &self,
        spec: &RunSpec,
        config: Value,
        function: String,
        environment: HashMap<String, String>,
    ) -> Result<v1::RunReply, Failure> {
        let spec = serde_json::to_string(spec)
            .map_err(|error| Failure::new(ErrorCode::InvalidConfig, format!("the run's specification: {error}")))?;
        let request = v1::RunRequest { spec, config: Some(config.into()), function, environment };
        Ok(self.head.clone().submit_run(request).await.map_err(lost)?.into_inner())
    }

    /// `constants` are the values that the specification, in JSON, names by their number.
    pub async fn submit_experiment(
        &self,
        spec: String,
        constants: Vec<Value>,
        function: String,
        environment: HashMap<String, String>,
    ) -> Result<v1::ExperimentReply, Failure> {
        let constants = v1::ValueList { items: constants.into_iter().map(Into::into).collect() };
        let request = v1::ExperimentRequest { spec, constants: Some(constants), function, environment };
        Ok(self.head.clone().submit_experiment(request).await.map_err(lost)?.into_inner())
    }

    pub async fn answer(&self, experiment_id: String, question: u64, answer: Value) -> Result<(), Failure> {
        let request = v1::AnswerRequest { experiment_id, question, answer: Some(answer.into()) };
        self.head.clone().answer(request).await.map(drop).map_err(lost)
    }

    pub async fn watch(&self, request: v1::WatchRequest) -> Result<RunWatch, Failure> {
        Ok(RunWatch { events: self.head.clone().watch_run(request).await.map_err(lost)?.into_inner() })
    }

    pub async fn stop_run(&self, run_id: String, reason: String, force: bool) -> Result<(), Failure> {
        self.head.clone().stop_run(v1::StopRequest { run_id, reason, force }).await.map(drop).map_err(lost)
    }

    pub async fn preempt_run(&self, run_id: String, reason: String) -> Result<(), Failure> {
        self.head.clone().preempt_run(v1::PreemptRequest { run_id, reason }).await.map(drop).map_err(lost)
    }

    pub async fn nodes(&self) -> Result<Vec<v1::Node>, Failure> {
        Ok(self.head.clone().nodes(v1::NodesRequest {}).await.map_err(lost)?.into_inner().nodes)
    }

    pub async fn runs(&self) -> Result<Vec<v1::RunSummary>, Failure> {
        Ok(self.head.clone().runs(v1::RunsRequest {}).await.map_err(lost)?.into_inner().runs)
    }

    pub async fn stacks(&self, run_id: String) -> Result<v1::StacksReply, Failure> {
        Ok(self.head.clone().stacks(v1::StacksRequest { run_id }).await.map_err(lost)?.into_inner())
    }

    /// Asks the head to end.
    pub async fn shutdown(&self) -> Result<(), Failure> {
        self.head.clone().shutdown(v1::ShutdownRequest {}).await.map(drop).map_err(lost)
    }
}

pub struct RunWatch {
    events: Streaming<v1::RunEvent>,
}

impl RunWatch {
    /// The next event; `None` after the last one.
    pub async fn next(&mut self) -> Result<Option<v1::run_event::Kind>, Failure> {
        loop {
            match self.events.next().await {
                None => return Ok(None),
                Some(Err(status)) => return Err(lost(status)),
                Some(Ok(v1::RunEvent { kind: Some(kind) })) => return Ok(Some(kind)),
                Some(Ok(v1::RunEvent { kind: None })) => {}
            }
        }
    }
}
