//! Conversions. A message from outside that does not make sense becomes a typed failure, never a panic.

use carril_types::{
    Attempt, ErrorCode, ExitStatus, Failure, Metrics, Object, PythonRuntime, Rank, Resources, RunId, Value,
    WorkerCommand, WorkerFailure, WorkerKey,
};

use crate::v1;

impl From<carril_types::ValidationTask> for v1::ValidationTask {
    fn from(task: carril_types::ValidationTask) -> Self {
        Self { arguments: task.arguments, timeout_s: task.timeout_s }
    }
}

impl From<v1::ValidationTask> for carril_types::ValidationTask {
    fn from(task: v1::ValidationTask) -> Self {
        Self { arguments: task.arguments, timeout_s: task.timeout_s }
    }
}

impl From<Value> for v1::Value {
    fn from(value: Value) -> Self {
        use v1::value::Kind;
        let kind = match value {
            Value::None => Kind::None(true),
            Value::Bool(value) => Kind::Boolean(value),
            Value::Int(value) => Kind::Integer(value),
            Value::BigInt(digits) => Kind::BigInteger(digits),
            Value::Float(value) => Kind::Number(value),
            Value::Text(text) => Kind::Text(text),
            Value::List(items) => Kind::List(v1::ValueList { items: items.into_iter().map(Into::into).collect() }),
            Value::Map(metrics) => Kind::Map(metrics.into()),
            Value::Object(object) => Kind::Object(v1::ObjectValue { repr: object.repr, pickle: object.pickle }),
        };
        v1::Value { kind: Some(kind) }
    }
}

impl From<v1::Value> for Value {
    fn from(value: v1::Value) -> Self {
        use v1::value::Kind;
        match value.kind {
            None | Some(Kind::None(_)) => Value::None,
            Some(Kind::Boolean(value)) => Value::Bool(value),
            Some(Kind::Integer(value)) => Value::Int(value),
            Some(Kind::BigInteger(digits)) => Value::BigInt(digits),
            Some(Kind::Number(value)) => Value::Float(value),
            Some(Kind::Text(text)) => Value::Text(text),
            Some(Kind::List(list)) => Value::List(list.items.into_iter().map(Into::into).collect()),
            Some(Kind::Map(map)) => Value::Map(map.into()),
            Some(Kind::Object(object)) => Value::Object(Object { repr: object.repr, pickle: object.pickle }),
        }
    }
}

impl From<Metrics> for v1::ValueMap {
    fn from(metrics: Metrics) -> Self {
        let entry = |(key, value): (String, Value)| v1::ValueEntry { key, value: Some(value.into()) };
        v1::ValueMap { entries: metrics.0.into_iter().map(entry).collect() }
    }
}

impl From<v1::ValueMap> for Metrics {
    fn from(map: v1::ValueMap) -> Self {
        Metrics(map.entries.into_iter().map(|e| (e.key, e.value.unwrap_or_default().into())).collect())
    }
}

impl From<Failure> for v1::Failure {
    fn from(failure: Failure) -> Self {
        v1::Failure {
            code: failure.code.name().to_owned(),
            origin: failure.code.origin().name().to_owned(),
            retryable: failure.code.retryable(),
            message: failure.message,
            hints: failure.hints,
        }
    }
}

impl From<v1::Failure> for Failure {
    fn from(failure: v1::Failure) -> Self {
        // A code of a newer peer keeps its words and counts as ours.
        let code = ErrorCode::from_name(&failure.code).unwrap_or(ErrorCode::Internal);
        Failure { code, message: failure.message, hints: failure.hints }
    }
}

impl From<WorkerFailure> for v1::WorkerFailure {
    fn from(failure: WorkerFailure) -> Self {
        v1::WorkerFailure {
            rank: failure.rank.0,
            failure: Some(failure.failure.into()),
            exception_type: failure.exception_type,
            traceback: failure.traceback,
            exception: failure.exception,
            location: failure.location,
            exit_code: failure.exit.and_then(|exit| if let ExitStatus::Code(code) = exit { Some(code) } else { None }),
            exit_signal: failure
                .exit
                .and_then(|exit| if let ExitStatus::Signal(signal) = exit { Some(signal) } else { None }),
        }
    }
}

impl From<v1::WorkerFailure> for WorkerFailure {
    fn from(failure: v1::WorkerFailure) -> Self {
        WorkerFailure {
            rank: Rank(failure.rank),
            failure: failure.failure.unwrap_or_default().into(),
            exception_type: failure.exception_type,
            traceback: failure.traceback,
            location: failure.location,
            exception: failure.exception,
            exit: failure.exit_code.map(ExitStatus::Code).or(failure.exit_signal.map(ExitStatus::Signal)),
            peak_memory: 0,
        }
    }
}

impl From<WorkerKey> for v1::WorkerKey {
    fn from(key: WorkerKey) -> Self {
        v1::WorkerKey { run_id: key.run.as_str().to_owned(), attempt: key.attempt.0, rank: key.rank.0 }
    }
}

impl From<v1::WorkerKey> for WorkerKey {
    fn from(key: v1::WorkerKey) -> Self {
        WorkerKey { run: RunId::new(key.run_id), attempt: Attempt(key.attempt), rank: Rank(key.rank) }
    }
}

impl From<PythonRuntime> for v1::PythonRuntime {
    fn from(runtime: PythonRuntime) -> Self {
        v1::PythonRuntime { executable: runtime.executable, path: runtime.path }
    }
}

impl From<v1::PythonRuntime> for PythonRuntime {
    fn from(runtime: v1::PythonRuntime) -> Self {
        PythonRuntime { executable: runtime.executable, path: runtime.path }
    }
}

impl From<WorkerCommand> for v1::WorkerCommand {
    fn from(command: WorkerCommand) -> Self {
        use v1::worker_command::Kind;
        let kind = match command {
            WorkerCommand::Python(runtime) => Kind::Python(runtime.into()),
            WorkerCommand::Command { arguments } => Kind::Command(v1::CommandLine { arguments }),
        };
        v1::WorkerCommand { kind: Some(kind) }
    }
}

impl TryFrom<v1::WorkerCommand> for WorkerCommand {
    type Error = Failure;

    fn try_from(command: v1::WorkerCommand) -> Result<Self, Failure> {
        use v1::worker_command::Kind;
        match command.kind {
            Some(Kind::Python(runtime)) => Ok(WorkerCommand::Python(runtime.into())),
            Some(Kind::Command(line)) if line.arguments.is_empty() => {
                Err(Failure::new(ErrorCode::Internal, "a group came with an empty command line"))
            }
            Some(Kind::Command(line)) => Ok(WorkerCommand::Command { arguments: line.arguments }),
            None => Err(Failure::new(ErrorCode::Internal, "a group came without a worker command")),
        }
    }
}

impl v1::Node {
    pub fn total_resources(&self) -> Result<Resources, Failure> {
        Resources::from_amounts(self.total.iter().map(|(name, amount)| (name.as_str(), *amount)))
            .map_err(|error| Failure::new(ErrorCode::InvalidConfig, error.to_string()))
    }
}

/// Wraps one kind of a `oneof`, so that a message reads as what it is at the place where it is sent.
macro_rules! kinds {
    ($message:ident, $module:ident, $($kind:ident($inner:ident)),* $(,)?) => {
        $(#[allow(clippy::needless_update)] // most have no other field
        impl From<v1::$inner> for v1::$message {
            fn from(inner: v1::$inner) -> Self {
                v1::$message { kind: Some(v1::$module::Kind::$kind(inner)), ..Default::default() }
            }
        })*
    };
}

kinds!(
    RunEvent,
    run_event,
    State(StateChanged),
    Reported(Reported),
    Progress(Progress),
    Output(Output),
    Warning(Warning),
    Failed(WorkersFailed),
    Ended(RunEnded),
    Started(WorkersStarted),
    Restarted(Restarted),
    Question(Question),
    Trial(TrialChanged),
    Standing(Standing)
);
kinds!(
    AgentOrder,
    agent_order,
    Prepare(PrepareRequest),
    Start(Group),
    Stop(StopGroup),
    WaitOver(WaitOver),
    Stacks(GatherStacks),
    Upload(UploadCheckpoint),
    Drop(DropCheckpoint),
    Ask(AskForCheckpoint),
    DropPool(DropPool)
);
kinds!(
    AgentMessage,
    agent_message,
    Joined(Node),
    Started(WorkerStarted),
    Ready(WorkerReady),
    Reports(Reports),
    Returned(WorkerReturned),
    Failed(WorkerFailed),
    Exited(WorkerExited),
    Waits(WorkerWaits),
    Output(WorkerOutput),
    Stacks(StacksGathered),
    Prepared(CheckpointPrepared),
    Uploaded(CheckpointUploaded),
    Halted(WorkerHalted),
    Preempted(NodePreempted),
    Progressed(WorkerProgressed),
    Usage(GroupUsage)
);
kinds!(
    WorkerMessage,
    worker_message,
    Hello(WorkerHello),
    Ready(WorkerReady),
    Returned(WorkerReturned),
    Failed(WorkerFailed),
    Progressed(WorkerProgressed)
);
kinds!(WorkerOrder, worker_order, Assignment(Assignment), Exit(Exit), Preempt(Preempt));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_went() {
        let metrics = Metrics(vec![
            ("n".into(), Value::None),
            ("b".into(), Value::Bool(false)),
            ("i".into(), Value::Int(i64::MIN)),
            ("g".into(), Value::BigInt("99999999999999999999".into())),
            ("f".into(), Value::Float(f64::NEG_INFINITY)),
            ("t".into(), Value::Text("é".into())),
            ("l".into(), Value::List(vec![Value::Map(Metrics(vec![("x".into(), Value::Int(1))]))])),
            ("o".into(), Value::Object(Object { repr: "<r>".into(), pickle: vec![1, 2] })),
        ]);
        assert_eq!(Metrics::from(v1::ValueMap::from(metrics.clone())), metrics);
    }

    #[test]
    fn every_failure_keeps_its_type_on_the_wire() {
        for code in ErrorCode::ALL {
            let failure = Failure::new(*code, "what").hint("way out");
            let wire = v1::Failure::from(failure.clone());
            assert_eq!((wire.origin.as_str(), wire.retryable), (code.origin().name(), code.retryable()));
            assert_eq!(Failure::from(wire), failure);
        }
    }
}
