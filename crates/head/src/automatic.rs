//! The fields that are added to every report of a run, under the names that scripts know from Ray.

use std::time::Duration;

use carril_types::{Metrics, RunId, TrialSpec, Value};

use crate::saving::Reached;

pub(crate) struct Automatic {
    run: RunId,
    /// The trial's id and tag.
    trial: (String, String),
    hostname: String,
    address: String,
    pid: u32,
    /// When the run began and when the attempt did, by the head's clock, and how long it took until rank 0 began the function.
    started: Duration,
    attempt_began: Duration,
    warmup: Duration,
    /// When rank 0 began the function, and when it last reported, by its own clock.
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
    pub fn new(run: RunId, trial: Option<&TrialSpec>, started: Duration, reached: Reached) -> Self {
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
            warmup: Duration::ZERO,
            ready: 0.0,
            last: 0.0,
            before,
            date,
        }
    }

    /// The next attempt goes on from that many reports, which took so many seconds.
    pub fn begin_anew(&mut self, now: Duration, reached: Reached) {
        self.attempt_began = now;
        self.before = (reached.reports, reached.seconds);
        self.ahead = reached.ahead;
    }

    pub fn placed(&mut self, hostname: &str, address: &str, now: Duration) {
        self.hostname = hostname.to_owned();
        self.address = address.to_owned();
        (self.started, self.attempt_began) = (now, now);
    }

    /// Where rank 0 runs.
    pub fn hostname(&self) -> &str {
        &self.hostname
    }

    /// `clock` is rank 0's, and `now` the head's.
    pub fn ready(&mut self, pid: u32, clock: f64, now: Duration) {
        self.pid = pid;
        (self.ready, self.last) = (clock, clock);
        self.warmup = now.saturating_sub(self.attempt_began);
    }

    /// `config` is not among them: the files have it written out once, and the driver has it.
    /// `at` is the Unix time of rank 0's report and `clock` its own clock, from which every duration comes.
    pub fn fields(&mut self, iteration: u64, at: f64, clock: f64, done: bool) -> Metrics {
        let this_iteration = (clock - self.last).max(0.0);
        self.last = clock;
        let since_restore = (clock - self.ready).max(0.0);
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
            ("warmup_time", Value::Float(self.warmup.as_secs_f64())),
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

    pub fn seconds(&self, now: Duration) -> f64 {
        now.saturating_sub(self.started).as_secs_f64()
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
    fn durations_do_not_follow_the_system_s_clock() {
        let start = Duration::from_secs(5);
        let mut automatic = Automatic::new(RunId::new("0123456789abcdef"), None, start, Reached::default());
        automatic.ready(1, 100.0, start + Duration::from_secs(1));
        // Somebody sets the clock a day on, and then two days back.
        for (number, at) in [(1, 1_000.0), (2, 87_400.0), (3, -85_400.0)] {
            let fields = automatic.fields(number, at, 100.0 + number as f64, false);
            let seconds = |name| fields.get(name).and_then(Value::as_f64);
            assert_eq!(seconds("time_this_iter_s"), Some(1.0));
            assert_eq!(seconds("time_total_s"), Some(number as f64));
            assert_eq!(seconds("warmup_time"), Some(1.0));
            assert_eq!(seconds("timestamp"), Some(at));
        }
    }

    #[test]
    fn every_field_that_is_added_is_known_as_one() {
        let added = Automatic::new(RunId::new("0123456789abcdef"), None, Duration::ZERO, Reached::default())
            .fields(1, 1.0, 1.0, false);
        let names: Vec<&str> = added.0.iter().map(|(name, _)| name.as_str()).collect();
        let by_others = ["config", "checkpoint_dir_name", "checkpoint_stall_s", "checkpoint_upload_s"];
        let known: Vec<&str> = AUTOMATIC_FIELDS.iter().copied().filter(|name| !by_others.contains(name)).collect();
        assert_eq!(names, known);
    }
}
