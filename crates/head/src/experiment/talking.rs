//! What an experiment tells its watchers, what it asks its driver, and what the driver's answers mean.

use carril_core::tune::TrialId;
use carril_core::tune::experiment::{Answer, Judged, Question};
use carril_proto::v1;
use carril_store::TrialState;
use carril_types::{ErrorCode, Failure, Metrics, Resources, Value};

use super::ExperimentRun;

impl ExperimentRun {
    pub(super) fn tell(&mut self, event: impl Into<v1::RunEvent>) {
        self.watchers.publish(&event.into());
    }

    pub(super) fn warn(&mut self, text: String) {
        self.tell(v1::Warning { text });
    }

    pub(super) fn tell_of_trial(&mut self, trial: TrialId, event: impl Into<v1::RunEvent>) {
        let of_trial = v1::TrialEvent { trial: trial.0, event: Some(Box::new(event.into())) };
        self.tell(v1::RunEvent { kind: Some(v1::run_event::Kind::OfTrial(Box::new(of_trial))) });
    }

    pub(super) fn tell_state(&mut self, trial: TrialId, state: &str, reason: &str) {
        self.tell(v1::TrialChanged { trial: trial.0, state: state.to_owned(), reason: reason.to_owned(), made: None });
    }

    pub(super) fn tell_made(&mut self, trial: TrialId) {
        let made = Some(self.made(trial));
        self.tell(v1::TrialChanged {
            trial: trial.0,
            state: TrialState::Pending.word().into(),
            reason: String::new(),
            made,
        });
    }

    pub(super) fn made(&self, trial: TrialId) -> v1::TrialMade {
        let known = &self.trials[trial.0 as usize];
        let all = || self.spec.run.resources_per_worker.times(self.spec.run.num_workers);
        let resources = known.resources.clone().unwrap_or_else(all);
        v1::TrialMade {
            id: known.names.id.clone(),
            name: known.names.name.clone(),
            directory: known.names.directory.clone(),
            tag: known.names.tag.clone(),
            config: Some(known.config.clone().into()),
            resources: resources.iter().map(|(name, amount)| (name.to_owned(), amount)).collect(),
        }
    }
}

pub(super) fn question(number: u64, about: Question) -> v1::Question {
    let ids = |trials: &[TrialId]| Value::List(trials.iter().map(|trial| Value::Int(trial.0 as i64)).collect());
    let text = |key: &String| Value::Text(key.clone());
    let (kind, trial, about) = match about {
        Question::Suggest { trial } => ("suggest", trial, Value::None),
        Question::Resolve { trial, config, paths, explored } => {
            let paths = paths.iter().map(|path| Value::List(path.iter().map(text).collect())).collect();
            let about = vec![
                ("config".to_owned(), Value::Map(config)),
                ("paths".to_owned(), Value::List(paths)),
                ("explored".to_owned(), Value::Bool(explored)),
            ];
            ("resolve", trial, Value::Map(Metrics(about)))
        }
        Question::Judge { trial, result } => ("judge", trial, Value::Map(result)),
        Question::Choose { pending, paused } => {
            let about = vec![("pending".to_owned(), ids(&pending)), ("paused".to_owned(), ids(&paused))];
            ("choose", TrialId(0), Value::Map(Metrics(about)))
        }
    };
    v1::Question { number, kind: kind.to_owned(), trial: trial.0, about: Some(about.into()) }
}

pub(super) fn amounts_of(amounts: &Metrics) -> Result<Resources, Failure> {
    let amounts = amounts.0.iter().map(|(name, amount)| (name.as_str(), amount.as_f64().unwrap_or(f64::NAN)));
    Resources::from_amounts(amounts).map_err(|error| Failure::new(ErrorCode::InvalidConfig, error.to_string()))
}

/// An answer is a map whose `kind` says what it is.
pub(crate) fn answer_of(value: Value) -> Result<Answer, Failure> {
    let wrong = |what: &str| Failure::new(ErrorCode::InvalidConfig, format!("an answer without {what}"));
    let Value::Map(fields) = value else { return Err(wrong("fields")) };
    let text = |name: &str| match fields.get(name) {
        Some(Value::Text(text)) => Some(text.clone()),
        _ => None,
    };
    let config = || match fields.get("config") {
        Some(Value::Map(config)) => Ok(config.clone()),
        _ => Err(wrong("a config")),
    };
    match text("kind").ok_or_else(|| wrong("its kind"))?.as_str() {
        "config" => Ok(Answer::Config(config()?)),
        "not_now" => Ok(Answer::NotNow),
        "finished" => Ok(Answer::Finished),
        "resolved" => {
            let resources = match fields.get("resources") {
                Some(Value::Map(amounts)) => Some(amounts_of(amounts)?),
                _ => None,
            };
            Ok(Answer::Resolved { config: config()?, names: text("name").zip(text("directory")), resources })
        }
        "judged" => {
            let judged = match text("verdict").as_deref() {
                Some("stop") => Judged::Stop,
                Some("stop_early") => Judged::StopEarly,
                Some("pause") => Judged::Pause,
                _ => Judged::Continue,
            };
            let stop_all = fields.get("stop_all") == Some(&Value::Bool(true));
            Ok(Answer::Judged { judged, reason: text("reason").unwrap_or_default(), stop_all })
        }
        "chosen" => match fields.get("trial") {
            Some(Value::Int(trial)) => Ok(Answer::Chosen(u64::try_from(*trial).ok().map(TrialId))),
            _ => Ok(Answer::Chosen(None)),
        },
        other => Err(wrong(&format!("a known kind: `{other}`"))),
    }
}
