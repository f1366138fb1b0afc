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
    /// Seconds of the heads before.
    earlier: f64,
    attempt_began: Duration,
    warmup: Duration,
    /// When rank 0 began the function, and when it last reported, by its own clock.
    ready: f64,
    last: f64,
    /// Reports and seconds of the attempts before, and what the count of reports shows more than there were: a trial that goes on
    /// from the checkpoint of another one has that one's count.
    before: (u64, f64),
    ahead: i64,
    timesteps: Counted,
    episodes: Counted,
    /// The date is worked out once a second.
    date: (i64, String),
}

impl Automatic {
    /// The run goes on from that many reports, which took so many seconds; `earlier`: so long ago it began in a head that was lost.
    pub fn new(run: RunId, trial: Option<&TrialSpec>, started: Duration, reached: Reached, earlier: f64) -> Self {
        let (hostname, address, date) = (String::new(), String::new(), (-1, String::new()));
        let made_up = || (format!("{}_00000", run.as_str().get(..5).unwrap_or(run.as_str())), "0".to_owned());
        let trial = trial.map_or_else(made_up, |trial| (trial.id.clone(), trial.tag.clone()));
        let mut automatic = Self {
            run,
            trial,
            ahead: 0,
            timesteps: Counted::default(),
            episodes: Counted::default(),
            hostname,
            address,
            pid: 0,
            started,
            earlier: earlier.max(0.0),
            attempt_began: started,
            warmup: Duration::ZERO,
            ready: 0.0,
            last: 0.0,
            before: (0, 0.0),
            date,
        };
        automatic.begin_anew(started, reached);
        automatic
    }

    /// The next attempt goes on from that many reports, which took so many seconds.
    pub fn begin_anew(&mut self, now: Duration, reached: Reached) {
        self.attempt_began = now;
        self.before = (reached.reports, reached.seconds);
        self.ahead = reached.ahead;
        self.timesteps = Counted { total: reached.timesteps, since_restore: 0 };
        self.episodes = Counted { total: reached.episodes, since_restore: 0 };
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
    /// `at` is the Unix time of rank 0's report and `clock` its own clock, from which every duration comes; what it reported may
    /// say how many timesteps and episodes it was about.
    pub fn fields(&mut self, iteration: u64, at: f64, clock: f64, reported: &Metrics) -> Metrics {
        self.timesteps.count(reported, "timesteps_this_iter", "timesteps_total");
        self.episodes.count(reported, "episodes_this_iter", "episodes_total");
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
            ("_time_this_iter_s", Value::Float(this_iteration)),
            ("time_total_s", Value::Float(self.before.1 + since_restore)),
            ("time_since_restore", Value::Float(since_restore)),
            ("iterations_since_restore", restored),
            ("timesteps_total", self.timesteps.value()),
            ("timesteps_since_restore", Value::Int(self.timesteps.since_restore)),
            ("episodes_total", self.episodes.value()),
            ("warmup_time", Value::Float(self.warmup.as_secs_f64())),
            ("timestamp", Value::Int(at as i64)),
            ("_timestamp", Value::Int(at as i64)),
            ("date", Value::Text(date)),
            ("pid", Value::Int(i64::from(self.pid))),
            ("hostname", Value::Text(self.hostname.clone())),
            ("node_ip", Value::Text(self.address.clone())),
            ("trial_id", Value::Text(self.trial.0.clone())),
            ("experiment_id", Value::Text(self.run.as_str().to_owned())),
            ("experiment_tag", Value::Text(self.trial.1.clone())),
            // Nobody knows yet.
            ("done", Value::Bool(false)),
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
        self.earlier + now.saturating_sub(self.started).as_secs_f64()
    }
}

/// What is counted over the reports, from what each of them says of itself. Without a word of it there is no total.
#[derive(Default)]
struct Counted {
    total: Option<i64>,
    since_restore: i64,
}

impl Counted {
    fn count(&mut self, reported: &Metrics, this: &str, total: &str) {
        let number = |name: &str| reported.get(name).and_then(Value::as_f64).map(|number| number as i64);
        if let Some(number) = number(this) {
            self.total = Some(self.total.unwrap_or(0).saturating_add(number));
            self.since_restore = self.since_restore.saturating_add(number);
        }
        self.total = number(total).or(self.total);
    }

    fn value(&self) -> Value {
        self.total.map_or(Value::None, Value::Int)
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
        let mut automatic = Automatic::new(RunId::new("0123456789abcdef"), None, start, Reached::default(), 0.0);
        automatic.ready(1, 100.0, start + Duration::from_secs(1));
        // Somebody sets the clock a day on, and then two days back.
        for (number, at) in [(1, 1_000.0), (2, 87_400.0), (3, -85_400.0)] {
            let fields = automatic.fields(number, at, 100.0 + number as f64, &Metrics::default());
            let seconds = |name| fields.get(name).and_then(Value::as_f64);
            assert_eq!(seconds("time_this_iter_s"), Some(1.0));
            assert_eq!(seconds("time_total_s"), Some(number as f64));
            assert_eq!(seconds("warmup_time"), Some(1.0));
            assert_eq!(seconds("timestamp"), Some(at));
        }
    }

    #[test]
    fn timesteps_are_counted_from_where_the_checkpoint_was() {
        let reached = Reached { timesteps: Some(10), ..Reached::default() };
        let mut automatic = Automatic::new(RunId::new("0123456789abcdef"), None, Duration::ZERO, reached, 0.0);
        let mut counts = |reported: &[(&str, i64)]| {
            let reported = reported.iter().map(|(name, number)| ((*name).to_owned(), Value::Int(*number)));
            let fields = automatic.fields(1, 1.0, 1.0, &Metrics(reported.collect()));
            ["timesteps_total", "timesteps_since_restore", "episodes_total"].map(|name| fields.get(name).cloned())
        };
        let int = |number| Some(Value::Int(number));
        assert_eq!(counts(&[]), [int(10), int(0), Some(Value::None)]);
        assert_eq!(counts(&[("timesteps_this_iter", 5)]), [int(15), int(5), Some(Value::None)]);
        assert_eq!(counts(&[("timesteps_total", 40), ("episodes_this_iter", 2)]), [int(40), int(5), int(2)]);
        assert_eq!(counts(&[("timesteps_this_iter", 1), ("episodes_this_iter", 2)]), [int(41), int(6), int(4)]);
    }

    #[test]
    fn every_field_that_is_added_is_known_as_one() {
        let added = Automatic::new(RunId::new("0123456789abcdef"), None, Duration::ZERO, Reached::default(), 0.0)
            .fields(1, 1.0, 1.0, &Metrics::default());
        let names: Vec<&str> = added.0.iter().map(|(name, _)| name.as_str()).collect();
        let by_others = ["config", "checkpoint_dir_name", "checkpoint_stall_s", "checkpoint_upload_s"];
        let known: Vec<&str> = AUTOMATIC_FIELDS.iter().copied().filter(|name| !by_others.contains(name)).collect();
        assert_eq!(names, known);
    }
}
