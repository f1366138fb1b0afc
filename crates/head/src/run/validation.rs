//! The user's check of a checkpoint: a run of its own, of one worker that is not counted in the CPUs, whose only report is
//! what the function returned. It lies in `validations/` of the run that it checks for.
//!
//! A check that comes to no end, because its run ends before, is still due: the manifest says so, and a later head does it.

use std::time::Duration;

use carril_core::Event;
use carril_proto::v1;
use carril_store::json_of;
use carril_types::{
    ErrorCode, Failure, FailureSpec, Metrics, OnExisting, Resources, RunId, RunSpec, RunStatus, ValidationStatus, Value,
};

use super::Run;
use super::reports::score_of;
use crate::outside::{Annotation, Outside};
use crate::saving::status_of;

/// Where the checks of a run are kept, in its own directory.
const DIRECTORY: &str = "validations";
/// What a worker is told: the checkpoint's path, and the arguments of the function as the text that they came in.
const VARIABLE: &str = "CARRIL_VALIDATION";

/// How many failures of machines a check survives; one of the function ends it.
const MACHINES: i64 = 3;

pub(super) struct Validating {
    iteration: u64,
    /// The checkpoint's.
    name: String,
    check: Option<RunId>,
    stopped: bool,
    late: bool,
    /// What came of it, once it is over.
    status: Option<ValidationStatus>,
}

/// What a run wants of the head that has all runs.
pub(crate) enum Check {
    Begin,
    Stop(RunId),
}

impl Run {
    pub(super) fn validate(&mut self, iteration: u64, outside: &mut dyn Outside) {
        let stored = self.saving.get(iteration);
        let timeout = stored.and_then(|stored| stored.validation.as_ref()?.task.timeout_s);
        let name = stored.map(|stored| stored.name.clone()).unwrap_or_default();
        self.validating = Some(Validating { iteration, name, check: None, stopped: false, late: false, status: None });
        self.check = Some(Check::Begin);
        if let Some(after) = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
            outside.set_timer(self.id.clone(), carril_core::Timer::Validation(iteration), after);
        }
    }

    pub(super) fn stop_validation(&mut self, iteration: u64, late: bool) {
        let Some(validating) = self.validating.as_mut().filter(|validating| validating.iteration == iteration) else {
            return;
        };
        (validating.stopped, validating.late) = (true, late);
        // One that has not begun yet is ended when it has: see `wants`.
        if let Some(check) = validating.check.clone() {
            self.check = Some(Check::Stop(check));
        }
    }

    /// The run that checks the checkpoint.
    pub fn check_request(&self) -> Result<v1::RunRequest, Failure> {
        let internal = |text: &str| Failure::new(ErrorCode::Internal, text);
        let validating = self.validating.as_ref().ok_or_else(|| internal("nothing is to be validated"))?;
        let gone = || Failure::new(ErrorCode::NotFound, format!("checkpoint `{}` is gone", validating.name));
        let stored = self.saving.get(validating.iteration).ok_or_else(gone)?;
        let task = stored.validation.as_ref().ok_or_else(gone)?.task.clone();
        let spec = RunSpec {
            name: stored.name.clone(),
            storage_path: carril_store::joined(&self.location, DIRECTORY),
            num_workers: 1,
            resources_per_worker: Resources::default(),
            on_existing: OnExisting::Reuse,
            record: String::new(),
            metrics_reduce: Default::default(),
            num_to_keep: None,
            checkpoint_score_attribute: None,
            hang_timeout_s: None,
            failures: FailureSpec { max_infrastructure_failures: Some(MACHINES), ..FailureSpec::default() },
            continues: None,
            head_panic: None,
            validation: None,
            data: Default::default(),
            ..self.spec.clone()
        };
        let told = serde_json::json!({ "checkpoint": stored.checkpoint.path, "arguments": task.arguments });
        let mut environment: std::collections::HashMap<String, String> = self.environment.iter().cloned().collect();
        environment.insert(VARIABLE.to_owned(), told.to_string());
        Ok(v1::RunRequest {
            spec: serde_json::to_string(&spec).map_err(|error| internal(&error.to_string()))?,
            config: Some(Value::Map(Metrics::default()).into()),
            function: self.spec.validation.clone().unwrap_or_default(),
            environment,
        })
    }

    pub fn check_begins(&mut self, check: &RunId) {
        if let Some(validating) = &mut self.validating {
            validating.check = Some(check.clone());
        }
    }

    /// Whether the check still has something to do, now that its files are there.
    pub fn wants(&self, check: &RunId) -> bool {
        let wanted = |validating: &&Validating| validating.check.as_ref() == Some(check) && !validating.stopped;
        !self.ended && self.validating.as_ref().filter(wanted).is_some()
    }

    /// The run that does the check, if there is one.
    pub fn check_of(&self) -> Option<RunId> {
        self.validating.as_ref()?.check.clone()
    }

    pub fn on_check_ended(&mut self, result: Result<v1::RunEnded, Failure>, outside: &mut dyn Outside) {
        let Some(validating) = &mut self.validating else { return };
        let (iteration, name) = (validating.iteration, validating.name.clone());
        let (status, why, found) = match result {
            _ if validating.late => (Some(ValidationStatus::Timeout), "it took too long".to_owned(), None),
            Err(failure) => (Some(ValidationStatus::Failed), failure.message, None),
            Ok(ended) if ended.status == RunStatus::Finished.name() => {
                let report = ended.ranks.into_iter().next();
                let found: Metrics = report.and_then(|report| report.metrics).unwrap_or_default().into();
                (Some(ValidationStatus::Validated), String::new(), Some(found))
            }
            // Stopped, with the run or with its machine: it is still due.
            Ok(ended) if ended.status != RunStatus::Failed.name() => (None, ended.headline, None),
            Ok(ended) => {
                let why = ended.headline.trim_start_matches("rank 0 failed: ");
                (Some(ValidationStatus::Failed), why.to_owned(), None)
            }
        };
        validating.status = status;
        let how = match status {
            Some(ValidationStatus::Validated) => format!("checkpoint `{name}` is validated"),
            Some(_) => format!("the validation of `{name}` failed: {why}; see `{}/{DIRECTORY}/{name}`", self.location),
            None => format!("the validation of `{name}` came to no end: {why}"),
        };
        if status.is_some() && found.is_none() {
            self.publish(v1::Warning { text: how.clone() }, outside);
        }
        self.set_validated(iteration, &name, status, found.unwrap_or_default());
        let stored = self.saving.get(iteration);
        let score = stored.and_then(|stored| score_of(&self.spec, &stored.metrics(), iteration));
        self.decide(Event::Validated { iteration, score, how }, outside);
    }

    /// What was found joins what was reported.
    fn set_validated(&mut self, iteration: u64, name: &str, status: Option<ValidationStatus>, found: Metrics) {
        // Another one of that number may have taken its place.
        let Some(stored) = self.saving.get_mut(iteration).filter(|stored| stored.name == name) else { return };
        let mut metrics = stored.metrics();
        for (key, value) in &found.0 {
            metrics.set(key, value.clone());
        }
        stored.checkpoint.metrics = Some(metrics.into());
        if let (Some(status), Some(validation)) = (status, &mut stored.validation) {
            validation.status = status;
        }
        stored.checkpoint.validation = status_of(&stored.validation);
        if let Some(last) = self.last.as_mut().filter(|_| self.iterations == iteration) {
            found.0.into_iter().for_each(|(key, value)| last.set(&key, value));
        }
    }

    pub(super) fn keep_validation(&mut self, iteration: u64, displaced: Vec<u64>, outside: &mut dyn Outside) {
        let (Some(validating), Some(storage)) = (&self.validating, &self.storage) else { return };
        let stored = self.saving.get(iteration).filter(|stored| stored.name == validating.name);
        let annotation = Annotation {
            storage: storage.clone(),
            name: validating.name.clone(),
            metrics: json_of(&Value::Map(stored.map(|stored| stored.metrics()).unwrap_or_default())),
            validation: stored.and_then(|stored| stored.validation.clone()).filter(|_| validating.status.is_some()),
            epoch: self.epoch,
            displaced: displaced.iter().filter_map(|gone| Some(self.saving.remove(*gone)?.name)).collect(),
        };
        outside.keep_validation(self.id.clone(), annotation);
    }

    pub fn on_validation_kept(&mut self, result: Result<(), Failure>, outside: &mut dyn Outside) {
        let Some(validating) = self.validating.take() else { return };
        if let Err(failure) = result {
            let text = format!("what came of the validation of `{}` is not kept: {}", validating.name, failure.message);
            self.publish(v1::Warning { text }, outside);
        }
        self.decide(Event::ValidationKept { iteration: validating.iteration }, outside);
    }
}
