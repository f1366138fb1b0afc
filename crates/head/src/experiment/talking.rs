//! What an experiment tells its watchers, what it asks its driver, and what the driver's answers mean.

use carril_core::tune::TrialId;
use carril_core::tune::experiment::{Answer, Question};
use carril_core::tune::scheduler::{Decision, NewConfig, Order};
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
        let resources = known.resources.clone().unwrap_or_else(|| self.resources_of(&known.config));
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
        Question::Choose { pending, paused, exhausted } => {
            let about = vec![
                ("pending".to_owned(), ids(&pending)),
                ("paused".to_owned(), ids(&paused)),
                ("exhausted".to_owned(), Value::Bool(exhausted)),
            ];
            ("choose", TrialId(0), Value::Map(Metrics(about)))
        }
    };
    v1::Question { number, kind: kind.to_owned(), trial: trial.0, about: Some(about.into()) }
}

pub(super) fn amounts_of(amounts: &Metrics) -> Result<Resources, Failure> {
    let amounts = amounts.0.iter().map(|(name, amount)| (name.as_str(), amount.as_f64().unwrap_or(f64::NAN)));
    Resources::from_amounts(amounts).map_err(|error| Failure::new(ErrorCode::InvalidConfig, error.to_string()))
}

fn without(what: &str) -> Failure {
    Failure::new(ErrorCode::InvalidConfig, format!("an answer without {what}"))
}

fn text_in(fields: &Metrics, name: &str) -> Option<String> {
    match fields.get(name) {
        Some(Value::Text(text)) => Some(text.clone()),
        _ => None,
    }
}

fn config_in(fields: &Metrics) -> Result<Metrics, Failure> {
    match fields.get("config") {
        Some(Value::Map(config)) => Ok(config.clone()),
        _ => Err(without("a config")),
    }
}

fn trial_in(fields: &Metrics, name: &str) -> Option<TrialId> {
    match fields.get(name) {
        Some(Value::Int(trial)) => u64::try_from(*trial).ok().map(TrialId),
        _ => None,
    }
}

/// What the driver has decided about a trial, by its `verdict`.
fn decision_in(fields: &Metrics) -> Result<Decision, Failure> {
    Ok(match text_in(fields, "verdict").as_deref() {
        Some("stop") => Decision::Complete,
        Some("stop_early") => Decision::Stop,
        Some("pause") => Decision::Pause,
        Some("exploit") => {
            let from = trial_in(fields, "from").ok_or_else(|| without("the trial to go on from"))?;
            Decision::Exploit { from, with: NewConfig { config: config_in(fields)?, ask: Vec::new() } }
        }
        Some("resize") => match fields.get("resources") {
            Some(Value::Map(amounts)) => Decision::Resize(amounts_of(amounts)?),
            _ => return Err(without("resources")),
        },
        _ => Decision::Continue,
    })
}

/// What comes with an answer about other trials.
fn orders_in(fields: &Metrics) -> Result<Vec<Order>, Failure> {
    let Some(Value::List(orders)) = fields.get("orders") else { return Ok(Vec::new()) };
    let order = |order: &Value| {
        let Value::Map(order) = order else { return Err(without("fields of an order")) };
        let trial = trial_in(order, "trial").ok_or_else(|| without("the trial of an order"))?;
        Ok((trial, decision_in(order)?, text_in(order, "reason").unwrap_or_default()))
    };
    orders.iter().map(order).collect()
}

/// An answer is a map whose `kind` says what it is.
pub(crate) fn answer_of(value: Value) -> Result<(Answer, Vec<Order>), Failure> {
    let Value::Map(fields) = value else { return Err(without("fields")) };
    let text = |name: &str| text_in(&fields, name);
    let answer = match text("kind").ok_or_else(|| without("its kind"))?.as_str() {
        "config" => Answer::Config(config_in(&fields)?),
        "not_now" => Answer::NotNow,
        "finished" => Answer::Finished,
        "resolved" => {
            let resources = match fields.get("resources") {
                Some(Value::Map(amounts)) => Some(amounts_of(amounts)?),
                _ => None,
            };
            Answer::Resolved { config: config_in(&fields)?, names: text("name").zip(text("directory")), resources }
        }
        "judged" => {
            let is_set = |name: &str| fields.get(name) == Some(&Value::Bool(true));
            let (saves, stop_all) = (is_set("saves"), is_set("stop_all"));
            let reason = text("reason").unwrap_or_default();
            Answer::Judged { decision: decision_in(&fields)?, reason, saves, stop_all }
        }
        "chosen" => Answer::Chosen(trial_in(&fields, "trial")),
        other => return Err(without(&format!("a known kind: `{other}`"))),
    };
    Ok((answer, orders_in(&fields)?))
}
