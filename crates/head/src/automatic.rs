//! The fields that are added to every report of a run, under the names that scripts know from Ray.

use carril_types::{Metrics, RunId, TrialSpec, Value};

use crate::saving::Reached;

pub(crate) struct Automatic {
    run: RunId,
    /// The trial's id and tag.
    trial: (String, String),
    hostname: String,
    address: String,
    pid: u32,
    /// When the run began, when the attempt did, and when rank 0 began the function.
    started: f64,
    attempt_began: f64,
    ready: f64,
    last: f64,
    /// Reports and seconds of the attempts before, and what the count of reports shows more than there were: a trial that goes on
    /// from the checkpoint of another one has that one's count.
    before: (u64, f64),
    ahead: i64,
    /// The date is worked out once a second.
    date: (i64, String),
}

impl Automatic {
    /// The run goes on from that many reports, which took so many seconds.
    pub fn new(run: RunId, trial: Option<&TrialSpec>, started: f64, reached: Reached) -> Self {
        let (hostname, address, date) = (String::new(), String::new(), (-1, String::new()));
        let made_up = || (format!("{}_00000", run.as_str().get(..5).unwrap_or(run.as_str())), "0".to_owned());
        let trial = trial.map_or_else(made_up, |trial| (trial.id.clone(), trial.tag.clone()));
        let Reached { reports, seconds, ahead } = reached;
        let before = (reports, seconds);
        Self {
            run,
            trial,
            ahead,
            hostname,
            address,
            pid: 0,
            started,
            attempt_began: started,
            ready: started,
            last: started,
            before,
            date,
        }
    }

    /// The next attempt goes on from that many reports, which took so many seconds.
    pub fn begin_anew(&mut self, now: f64, reached: Reached) {
        self.attempt_began = now;
        (self.ready, self.last) = (now, now);
        self.before = (reached.reports, reached.seconds);
        self.ahead = reached.ahead;
    }

    pub fn placed(&mut self, hostname: &str, address: &str, now: f64) {
        self.hostname = hostname.to_owned();
        self.address = address.to_owned();
        (self.started, self.attempt_began) = (now, now);
    }

    pub fn ready(&mut self, pid: u32, at: f64) {
        self.pid = pid;
        self.ready = at;
        self.last = at;
    }

    /// `config` is not among them: the files have it written out once, and the driver has it.
    pub fn fields(&mut self, iteration: u64, at: f64, done: bool) -> Metrics {
        let this_iteration = (at - self.last).max(0.0);
        self.last = at;
        let since_restore = (at - self.ready).max(0.0);
        let restored = Value::Int(iteration.saturating_sub(self.before.0) as i64);
        let iteration = Value::Int(iteration as i64 + self.ahead);
        let date = self.date_of(at);
        let fields = [
            ("training_iteration", iteration.clone()),
            ("_training_iteration", iteration),
            ("time_this_iter_s", Value::Float(this_iteration)),
            ("time_total_s", Value::Float(self.before.1 + since_restore)),
            ("time_since_restore", Value::Float(since_restore)),
            ("iterations_since_restore", restored),
            ("timesteps_total", Value::None),
            ("warmup_time", Value::Float((self.ready - self.attempt_began).max(0.0))),
            ("timestamp", Value::Int(at as i64)),
            ("date", Value::Text(date)),
            ("pid", Value::Int(i64::from(self.pid))),
            ("hostname", Value::Text(self.hostname.clone())),
            ("node_ip", Value::Text(self.address.clone())),
            ("trial_id", Value::Text(self.trial.0.clone())),
            ("experiment_id", Value::Text(self.run.as_str().to_owned())),
            ("experiment_tag", Value::Text(self.trial.1.clone())),
            ("done", Value::Bool(done)),
        ];
        Metrics(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    fn date_of(&mut self, at: f64) -> String {
        let second = at as i64;
        if self.date.0 != second {
            self.date = (second, local_date(second));
        }
        self.date.1.clone()
    }

    pub fn seconds(&self, now: f64) -> f64 {
        (now - self.started).max(0.0)
    }
}

pub(crate) fn local_date(second: i64) -> String {
    jiff::Timestamp::from_second(second)
        .map(|time| time.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d_%H-%M-%S").to_string())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use carril_types::AUTOMATIC_FIELDS;

    use super::*;

    #[test]
    fn every_field_that_is_added_is_known_as_one() {
        let added = Automatic::new(RunId::new("0123456789abcdef"), None, 0.0, Reached::default()).fields(1, 1.0, false);
        let names: Vec<&str> = added.0.iter().map(|(name, _)| name.as_str()).collect();
        let by_others = ["config", "checkpoint_dir_name", "checkpoint_stall_s", "checkpoint_upload_s"];
        let known: Vec<&str> = AUTOMATIC_FIELDS.iter().copied().filter(|name| !by_others.contains(name)).collect();
        assert_eq!(names, known);
    }
}
