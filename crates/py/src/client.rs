//! The driver's client.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use carril_client::{PrivateHead, PrivateOptions, RunWatch};
use carril_proto::v1;
use carril_types::{ErrorCode, Failure, PythonRuntime, RunSpec};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::door::{leave, runtime};
use crate::errors::raise;
use crate::events;
use crate::values::{Unpicklable, to_value};

#[pyclass(frozen, module = "carril._native")]
pub struct Client {
    inner: carril_client::Client,
    /// The head that this process started.
    private: Mutex<Option<PrivateHead>>,
    owner: u32,
}

impl Client {
    fn open(py: Python<'_>, socket: PathBuf, private: Option<PrivateHead>) -> PyResult<Self> {
        let runtime = runtime().map_err(|failure| raise(py, failure))?;
        let inner = leave(py, runtime.handle(), async move { carril_client::Client::connect(&socket).await })?;
        Ok(Self { inner, private: Mutex::new(private), owner: std::process::id() })
    }

    fn ask<T: Send>(&self, py: Python<'_>, question: impl Future<Output = Result<T, Failure>> + Send) -> PyResult<T> {
        if std::process::id() != self.owner {
            let failure =
                Failure::new(ErrorCode::HeadLost, "this client belongs to the process that this one was forked from")
                    .hint("call `carril.init()` in this process");
            return Err(raise(py, failure));
        }
        let runtime = runtime().map_err(|failure| raise(py, failure))?;
        leave(py, runtime.handle(), question)
    }
}

#[pymethods]
impl Client {
    #[staticmethod]
    #[pyo3(signature = (binary, num_cpus=None, num_gpus=None, resources=None))]
    fn start_private(
        py: Python<'_>,
        binary: &str,
        num_cpus: Option<f64>,
        num_gpus: Option<f64>,
        resources: Option<HashMap<String, f64>>,
    ) -> PyResult<Self> {
        let resources = resources.unwrap_or_default().into_iter().collect();
        let options = PrivateOptions { cpus: num_cpus, gpus: num_gpus, resources, environment: Vec::new() };
        let started = py.detach(|| carril_client::start_private(Path::new(binary), std::process::id(), &options));
        let head = started.map_err(|failure| raise(py, failure))?;
        Self::open(py, head.socket.clone(), Some(head))
    }

    #[staticmethod]
    fn connect(py: Python<'_>, socket: &str) -> PyResult<Self> {
        Self::open(py, PathBuf::from(socket), None)
    }

    #[getter]
    fn socket(&self) -> String {
        self.inner.socket().display().to_string()
    }

    #[getter]
    fn directory(&self) -> String {
        self.inner.directory.clone()
    }

    #[getter]
    fn head_pid(&self) -> u32 {
        self.inner.pid
    }

    /// How the head panicked; None for one that lives or ended in another way.
    #[getter]
    fn head_panic(&self) -> Option<String> {
        self.inner.panic()
    }

    /// Returns at once: what fails here is only slower later.
    #[pyo3(signature = (executable, path, modules, script=None))]
    fn prepare(&self, executable: String, path: Vec<String>, modules: Vec<String>, script: Option<String>) {
        if std::process::id() != self.owner {
            return;
        }
        let Ok(runtime) = runtime() else { return };
        let client = self.inner.clone();
        runtime.spawn(async move { client.prepare(PythonRuntime { executable, path }, modules, script).await });
    }

    fn put_blob(&self, py: Python<'_>, data: &[u8]) -> PyResult<String> {
        let data = data.to_vec();
        self.ask(py, async {
            let hash = carril_client::hash_of(&data);
            self.inner.put_blob(data, hash).await
        })
    }

    fn get_blob<'py>(&self, py: Python<'py>, hash: String) -> PyResult<Bound<'py, PyBytes>> {
        let data = self.ask(py, self.inner.get_blob(hash))?;
        Ok(PyBytes::new(py, &data))
    }

    fn submit(
        &self,
        py: Python<'_>,
        spec: &str,
        config: &Bound<'_, PyAny>,
        function: String,
        environment: HashMap<String, String>,
    ) -> PyResult<Run> {
        let spec: RunSpec = serde_json::from_str(spec).map_err(|error| {
            raise(py, Failure::new(ErrorCode::InvalidConfig, format!("the run's specification: {error}")))
        })?;
        let config = to_value(config, "train_loop_config", 0, Unpicklable::KeepRepr)?;
        let reply = self.ask(py, self.inner.submit(&spec, config, function, environment))?;
        Ok(Run {
            client: self.inner.clone(),
            run_id: reply.run_id,
            name: reply.name,
            path: reply.path,
            watch: Arc::new(tokio::sync::Mutex::new(None)),
        })
    }

    /// `constants` are the user's values that the specification names by their number.
    fn submit_experiment(
        &self,
        py: Python<'_>,
        spec: String,
        constants: Vec<Bound<'_, PyAny>>,
        function: String,
        environment: HashMap<String, String>,
    ) -> PyResult<Run> {
        let constants = constants.iter().map(|value| to_value(value, "param_space", 0, Unpicklable::Refuse));
        let constants = constants.collect::<PyResult<Vec<_>>>()?;
        let reply = self.ask(py, self.inner.submit_experiment(spec, constants, function, environment))?;
        Ok(Run {
            client: self.inner.clone(),
            run_id: reply.experiment_id,
            name: reply.name,
            path: reply.path,
            watch: Arc::new(tokio::sync::Mutex::new(None)),
        })
    }

    fn nodes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let nodes = self.ask(py, self.inner.nodes())?;
        let as_dict = |node: carril_proto::v1::Node| {
            let dict = PyDict::new(py);
            dict.set_item("id", node.id)?;
            dict.set_item("hostname", node.hostname)?;
            dict.set_item("address", node.address)?;
            dict.set_item("total", node.total)?;
            dict.set_item("free", node.free)?;
            dict.set_item("devices", node.devices)?;
            Ok(dict)
        };
        nodes.into_iter().map(as_dict).collect()
    }

    fn shutdown(&self, py: Python<'_>) -> PyResult<()> {
        if std::process::id() != self.owner {
            return Ok(());
        }
        let Some(mut head) = self.private.lock().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(()) };
        // A head that does not answer is as good as asked: it is waited for all the same.
        let _ = self.ask(py, self.inner.shutdown());
        py.detach(|| head.wait_or_kill());
        Ok(())
    }
}

#[pyclass(frozen, module = "carril._native")]
pub struct Run {
    client: carril_client::Client,
    #[pyo3(get)]
    run_id: String,
    #[pyo3(get)]
    name: String,
    #[pyo3(get)]
    path: String,
    watch: Arc<tokio::sync::Mutex<Option<RunWatch>>>,
}

#[pymethods]
impl Run {
    #[pyo3(signature = (reports, output, quiet=false))]
    fn watch(&self, py: Python<'_>, reports: bool, output: bool, quiet: bool) -> PyResult<()> {
        let runtime = runtime().map_err(|failure| raise(py, failure))?;
        leave(py, runtime.handle(), async {
            let request = v1::WatchRequest { run_id: self.run_id.clone(), reports, output, quiet };
            let watch = self.client.watch(request).await?;
            *self.watch.lock().await = Some(watch);
            Ok(())
        })
    }

    fn next_event<'py>(&self, py: Python<'py>) -> PyResult<Option<(&'static str, Bound<'py, PyDict>)>> {
        let runtime = runtime().map_err(|failure| raise(py, failure))?;
        let event = leave(py, runtime.handle(), async {
            match &mut *self.watch.lock().await {
                Some(watch) => watch.next().await,
                None => Err(Failure::new(ErrorCode::Internal, "the run is not watched")),
            }
        })?;
        event.map(|event| events::to_python(py, event)).transpose()
    }

    /// Of an experiment: answers a question.
    fn answer(&self, py: Python<'_>, question: u64, answer: &Bound<'_, PyDict>) -> PyResult<()> {
        let answer = to_value(answer, "answer", 0, Unpicklable::Refuse)?;
        let runtime = runtime().map_err(|failure| raise(py, failure))?;
        leave(py, runtime.handle(), self.client.answer(self.run_id.clone(), question, answer))
    }

    fn preempt(&self, py: Python<'_>, reason: String) -> PyResult<()> {
        let runtime = runtime().map_err(|failure| raise(py, failure))?;
        leave(py, runtime.handle(), self.client.preempt_run(self.run_id.clone(), reason))
    }

    #[pyo3(signature = (reason, force=false))]
    fn stop(&self, py: Python<'_>, reason: String, force: bool) -> PyResult<()> {
        let runtime = runtime().map_err(|failure| raise(py, failure))?;
        leave(py, runtime.handle(), self.client.stop_run(self.run_id.clone(), reason, force))
    }
}
