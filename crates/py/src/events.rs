//! A run's events as Python sees them: a kind and a dict (`_native.pyi` says which keys).

use carril_proto::v1;
use carril_proto::v1::run_event::Kind;
use carril_types::{ErrorCode, ExitStatus, Failure, WorkerFailure};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::values::{metrics_to_python, value_to_python};

pub fn to_python(py: Python<'_>, event: Kind) -> PyResult<(&'static str, Bound<'_, PyDict>)> {
    let dict = PyDict::new(py);
    let kind = match event {
        Kind::State(state) => {
            dict.set_item("state", state.state)?;
            dict.set_item("reason", state.reason)?;
            dict.set_item("trials_total", state.trials_total)?;
            "state"
        }
        Kind::Started(started) => {
            let workers =
                started.workers.into_iter().map(|worker| started_worker(py, worker)).collect::<PyResult<Vec<_>>>()?;
            dict.set_item("workers", workers)?;
            "started"
        }
        Kind::Reported(reported) => {
            dict.set_item("iteration", reported.iteration)?;
            dict.set_item("metrics", metrics(py, reported.metrics)?)?;
            dict.set_item("ranks", ranks(py, reported.ranks)?)?;
            dict.set_item("checkpoint", reported.checkpoint.map(|c| checkpoint(py, c)).transpose()?)?;
            "reported"
        }
        Kind::Progress(progress) => {
            dict.set_item("iteration", progress.iteration)?;
            dict.set_item("metrics", metrics(py, progress.metrics)?)?;
            dict.set_item("checkpoints", progress.checkpoints)?;
            dict.set_item("time_total_s", progress.time_total_s)?;
            dict.set_item("saved", progress.saved)?;
            "progress"
        }
        Kind::Standing(standing) => {
            standing_into(py, &dict, standing)?;
            "standing"
        }
        Kind::Output(output) => {
            dict.set_item("rank", output.rank)?;
            dict.set_item("text", PyBytes::new(py, &output.text))?;
            "output"
        }
        Kind::Warning(warning) => {
            dict.set_item("text", warning.text)?;
            "warning"
        }
        Kind::Failed(failed) => {
            dict.set_item("failures", failures(py, failed.failures)?)?;
            "failed"
        }
        Kind::Restarted(told) => {
            restarted_into(&dict, told)?;
            "restarted"
        }
        Kind::Ended(ended) => {
            ended_into(py, &dict, ended)?;
            "ended"
        }
        Kind::Question(question) => {
            dict.set_item("number", question.number)?;
            dict.set_item("kind", question.kind)?;
            dict.set_item("trial", question.trial)?;
            dict.set_item("about", value_to_python(py, question.about.unwrap_or_default().into())?)?;
            "question"
        }
        Kind::Trial(changed) => {
            dict.set_item("trial", changed.trial)?;
            dict.set_item("state", changed.state)?;
            dict.set_item("reason", changed.reason)?;
            dict.set_item("made", changed.made.map(|made| made_dict(py, made)).transpose()?)?;
            "trial"
        }
        Kind::OfTrial(of_trial) => {
            dict.set_item("trial", of_trial.trial)?;
            let inner = of_trial.event.and_then(|event| event.kind).map(|kind| to_python(py, kind)).transpose()?;
            let (name, event) = inner.unwrap_or(("", PyDict::new(py)));
            dict.set_item("kind", name)?;
            dict.set_item("event", event)?;
            "of_trial"
        }
    };
    Ok((kind, dict))
}

fn made_dict(py: Python<'_>, made: v1::TrialMade) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("id", made.id)?;
    dict.set_item("name", made.name)?;
    dict.set_item("directory", made.directory)?;
    dict.set_item("tag", made.tag)?;
    dict.set_item("config", metrics(py, made.config)?)?;
    dict.set_item("resources", made.resources)?;
    Ok(dict)
}

fn ended_into(py: Python<'_>, dict: &Bound<'_, PyDict>, ended: v1::RunEnded) -> PyResult<()> {
    dict.set_item("status", ended.status)?;
    dict.set_item("headline", ended.headline)?;
    dict.set_item("failure", ended.failure.map(|f| failure_dict(py, &f.into())).transpose()?)?;
    dict.set_item("failures", failures(py, ended.failures)?)?;
    dict.set_item("metrics", metrics(py, ended.metrics)?)?;
    dict.set_item("ranks", ranks(py, ended.ranks)?)?;
    let checkpoints = ended.checkpoints.into_iter().map(|c| checkpoint(py, c)).collect::<PyResult<Vec<_>>>()?;
    dict.set_item("checkpoints", checkpoints)?;
    dict.set_item("return_values", ended.return_values)?;
    dict.set_item("iterations", ended.iterations)?;
    dict.set_item("seconds", ended.seconds)?;
    dict.set_item("timed_out", ended.timed_out)?;
    dict.set_item("saved", ended.saved)?;
    let restarts = PyList::empty(py);
    for told in ended.restarts {
        let restart = PyDict::new(py);
        restarted_into(&restart, told)?;
        restarts.append(restart)?;
    }
    dict.set_item("restarts", restarts)
}

fn standing_into(py: Python<'_>, dict: &Bound<'_, PyDict>, standing: v1::Standing) -> PyResult<()> {
    dict.set_item("done", standing.done)?;
    dict.set_item("total", standing.total)?;
    dict.set_item("data", standing.data)?;
    dict.set_item("epoch", standing.epoch)?;
    dict.set_item("behind", standing.behind)?;
    dict.set_item("reports_behind", standing.reports_behind)?;
    let usage = standing.usage.map(|usage| {
        let dict = PyDict::new(py);
        dict.set_item("cpus", usage.cpus)?;
        dict.set_item("memory", usage.memory)?;
        dict.set_item("gpus", usage.gpus)?;
        dict.set_item("gpu_percent", usage.gpu_percent)?;
        dict.set_item("gpu_memory", usage.gpu_memory)?;
        Ok::<_, PyErr>(dict)
    });
    dict.set_item("usage", usage.transpose()?)
}

fn restarted_into(dict: &Bound<'_, PyDict>, told: v1::Restarted) -> PyResult<()> {
    dict.set_item("attempt", told.attempt)?;
    dict.set_item("reason", told.reason)?;
    dict.set_item("code", told.code)?;
    dict.set_item("at", told.at)
}

fn metrics(py: Python<'_>, map: Option<v1::ValueMap>) -> PyResult<Bound<'_, PyDict>> {
    metrics_to_python(py, map.unwrap_or_default().into())
}

fn ranks(py: Python<'_>, reports: Vec<v1::RankReport>) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for report in reports {
        dict.set_item(report.rank, metrics(py, report.metrics)?)?;
    }
    Ok(dict)
}

pub fn checkpoint(py: Python<'_>, checkpoint: v1::Checkpoint) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("index", checkpoint.index)?;
    dict.set_item("path", checkpoint.path)?;
    dict.set_item("metrics", metrics(py, checkpoint.metrics)?)?;
    dict.set_item("own", checkpoint.own)?;
    dict.set_item("iteration", checkpoint.iteration)?;
    dict.set_item("validation", checkpoint.validation)?;
    Ok(dict)
}

fn started_worker(py: Python<'_>, worker: v1::StartedWorker) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("rank", worker.rank)?;
    dict.set_item("pid", worker.pid)?;
    dict.set_item("node", worker.node)?;
    dict.set_item("address", worker.address)?;
    dict.set_item("how", worker.how)?;
    Ok(dict)
}

fn failures(py: Python<'_>, failures: Vec<v1::WorkerFailure>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for failure in failures {
        let failure: WorkerFailure = failure.into();
        let dict = failure_dict(py, &failure.failure)?;
        dict.set_item("rank", failure.rank.0)?;
        dict.set_item("exception_type", failure.exception_type)?;
        dict.set_item("traceback", failure.traceback)?;
        dict.set_item("exception", PyBytes::new(py, &failure.exception))?;
        dict.set_item("location", failure.location)?;
        let (code, signal) = match failure.exit {
            Some(ExitStatus::Code(code)) => (Some(code), None),
            Some(ExitStatus::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        dict.set_item("exit_code", code)?;
        dict.set_item("signal", signal)?;
        list.append(dict)?;
    }
    Ok(list)
}

fn failure_dict<'py>(py: Python<'py>, failure: &Failure) -> PyResult<Bound<'py, PyDict>> {
    let code: ErrorCode = failure.code;
    let dict = PyDict::new(py);
    dict.set_item("code", code.name())?;
    dict.set_item("origin", code.origin().name())?;
    dict.set_item("retryable", code.retryable())?;
    dict.set_item("message", &failure.message)?;
    dict.set_item("hints", &failure.hints)?;
    Ok(dict)
}

/// A checkpoint as a run's storage has it.
pub fn listed(py: Python<'_>, listed: carril_store::Listed) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", listed.name)?;
    match listed.state {
        Ok(manifest) => {
            dict.set_item("iteration", manifest.iteration)?;
            dict.set_item("bytes", manifest.files.iter().map(|file| file.size).sum::<u64>())?;
            dict.set_item("created", manifest.created)?;
            dict.set_item("metrics", metrics(py, Some(manifest.reported().into()))?)?;
            dict.set_item("own", manifest.own)?;
            dict.set_item("validation", manifest.validation.map(|validation| validation.status.name()))?;
            dict.set_item("damage", py.None())?;
        }
        Err(damage) => {
            dict.set_item("damage", damage.to_string())?;
        }
    }
    Ok(dict)
}
