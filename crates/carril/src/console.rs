//! What a driver prints of a run: plain lines on its standard error, in the words that are used everywhere.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use carril_proto::v1;
use carril_types::{Metrics, Value, shell_quoted};

use crate::error::one_line;

const BETWEEN_PROGRESS: Duration = Duration::from_secs(5);
const METRICS_IN_A_LINE: usize = 4;
const SHOWN_STATES: [&str; 2] = ["waiting", "running"];

pub(crate) struct Console {
    name: String,
    path: String,
    quiet: bool,
    last_progress: Instant,
    last_state: String,
    checkpoints: u64,
    saved: u64,
    /// What was done when that was first said, and when; and what was said last.
    first: Option<(Instant, f64)>,
    standing: v1::Standing,
}

impl Console {
    pub fn new(name: &str, path: &str, quiet: bool) -> Self {
        let (last_progress, last_state) = (Instant::now(), String::new());
        Self {
            name: name.to_owned(),
            path: path.to_owned(),
            quiet,
            last_progress,
            last_state,
            checkpoints: 0,
            saved: 0,
            first: None,
            standing: v1::Standing::default(),
        }
    }

    /// One call per block of lines: lines of two runs in two threads do not mix. One that cannot be written does not end a run.
    fn write(&self, text: &str) {
        if !self.quiet {
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
    }

    pub fn say(&self, text: &str) {
        self.write(&format!("carril: {text}\n"));
    }

    pub fn warning(&self, text: &str) {
        self.say(&format!("warning: {text}"));
    }

    pub fn interrupted(&self, times: u32) {
        let how = if times > 1 { ", at once" } else { "; Ctrl-C again ends it at once" };
        self.say(&format!("interrupted: stopping{how}"));
    }

    /// `who` is a rank or a trial.
    pub fn output(&self, who: &str, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        let mut lines = String::new();
        for line in text.strip_suffix('\n').unwrap_or(&text).split('\n') {
            let _ = writeln!(lines, "({who}) {}", shown(line));
        }
        self.write(&lines);
    }

    pub fn resuming_search(&self, reason: &str) {
        self.say(&format!("resuming `{}`: {}", self.name, one_line(reason)));
    }

    pub fn state(&mut self, state: &v1::StateChanged) {
        let reason = one_line(&state.reason);
        match state.state.as_str() {
            "resuming" => return self.say(&format!("resuming `{}` {reason}", self.name)),
            "starting over" => return self.say(&format!("starting `{}` over: {reason}", self.name)),
            _ => {}
        }
        let line = if reason.is_empty() { state.state.clone() } else { format!("{}: {reason}", state.state) };
        if SHOWN_STATES.contains(&state.state.as_str()) && line != self.last_state {
            self.say(&line);
            self.last_state = line;
        }
    }

    pub fn started(&self, workers: &[v1::StartedWorker]) {
        let nodes: std::collections::BTreeSet<&str> = workers.iter().map(|worker| worker.node.as_str()).collect();
        let place = match nodes.first() {
            Some(node) if nodes.len() == 1 => (*node).to_owned(),
            _ => format!("{} nodes", nodes.len()),
        };
        self.say(&format!("{} of `{}` on {place}", count(workers.len() as u64, "worker"), self.name));
    }

    pub fn restarted(&self, attempt: u32, reason: &str) {
        self.say(&format!("restart {attempt}: {}", one_line(reason)));
    }

    /// `checkpoints` are how many are kept, and how many were saved.
    pub fn progress(&mut self, iteration: u64, metrics: &Metrics, checkpoints: Option<(u64, u64)>, seconds: f64) {
        (self.checkpoints, self.saved) = checkpoints.unwrap_or((self.checkpoints, self.saved));
        if self.last_progress.elapsed() < BETWEEN_PROGRESS {
            return;
        }
        self.last_progress = Instant::now();
        let mut facts = vec![count(iteration, "report")];
        if self.checkpoints > 0 {
            facts.push(kept(self.checkpoints, self.saved));
        }
        facts.extend(self.outlook());
        facts.extend(users(metrics).into_iter().take(METRICS_IN_A_LINE).map(|(name, value)| format!("{name} {value}")));
        facts.push(format!("{seconds:.1} s"));
        self.say(&facts.join(" · "));
    }

    pub fn standing(&mut self, standing: &v1::Standing) {
        let is_other = (&standing.data, standing.epoch) != (&self.standing.data, self.standing.epoch);
        if let Some(done) = standing.done
            && self.first.is_none_or(|(_, first)| done < first || is_other)
        {
            self.first = Some((Instant::now(), done));
        }
        self.standing = standing.clone();
    }

    /// How far it is, when it will be done, and who lags behind.
    fn outlook(&self) -> Vec<String> {
        let mut facts = Vec::new();
        if let Some(done) = self.standing.done {
            let total = self.standing.total;
            let percent = format!("{:.0} %", 100.0 * done / total);
            let v1::Standing { data, epoch, .. } = &self.standing;
            facts.push(if data.is_empty() { percent } else { format!("epoch {epoch} of `{data}` {percent}") });
            if let Some((at, first)) = self.first.filter(|(_, first)| done > *first) {
                let left = at.elapsed().as_secs_f64() * (total - done) / (done - first);
                facts.push(format!("{} left{}", clock(left), if data.is_empty() { "" } else { " in it" }));
            }
        }
        if !self.standing.behind.is_empty() {
            let ranks: Vec<String> = self.standing.behind.iter().map(u32::to_string).collect();
            let who = if ranks.len() == 1 { "rank" } else { "ranks" };
            facts.push(format!("{who} {} {} behind", ranks.join(", "), count(self.standing.reports_behind, "report")));
        }
        facts
    }

    pub fn checkpoint(&mut self) {
        self.checkpoints += 1;
    }

    /// The closing lines: what was reached, where the files are, what to type next.
    pub fn finished(&self, ended: &v1::RunEnded) {
        let mut reached = count(ended.iterations, "report");
        if !ended.checkpoints.is_empty() {
            let _ = write!(reached, ", {}", kept(ended.checkpoints.len() as u64, ended.saved));
        }
        let mut lines = format!("carril: `{}` finished: {reached} in {:.1} s\n", self.name, ended.seconds);
        let metrics: Metrics = ended.metrics.clone().unwrap_or_default().into();
        let own = users(&metrics);
        let across = own.keys().map(|name| name.chars().count()).max().unwrap_or(0).max(10);
        for (name, value) in own {
            let _ = writeln!(lines, "  {name:across$}  {value}");
        }
        self.close(lines, ended);
    }

    /// The closing lines of a run that failed or was stopped.
    pub fn failed(&self, ended: &v1::RunEnded, headline: &str) {
        let reached = format!("after {} in {:.1} s", count(ended.iterations, "report"), ended.seconds);
        self.close(format!("carril: `{}` {} {reached}: {headline}\n", self.name, ended.status), ended);
    }

    /// The closing lines of a search.
    pub fn search_ended(&self, status: &str, summary: &str, seconds: f64) {
        let lines =
            format!("carril: `{}` {status} in {seconds:.1} s: {summary}\n  files       {}\n", self.name, self.path);
        self.write(&lines);
    }

    fn close(&self, mut lines: String, ended: &v1::RunEnded) {
        let _ = writeln!(lines, "  files       {}", self.path);
        let error = Path::new(&self.path).join("error.txt");
        if ended.status == "failed" && error.exists() {
            let _ = writeln!(lines, "  error       {}", error.display());
        }
        if let Some(newest) = ended.checkpoints.iter().max_by_key(|checkpoint| checkpoint.iteration) {
            let _ = writeln!(lines, "  checkpoint  {}", newest.path);
        }
        if ended.status != "finished" {
            let _ = writeln!(lines, "  next        carril resume {}", shell_quoted(&self.path));
        }
        self.write(&lines);
    }
}

/// `3 checkpoints`, or `2 of 12 checkpoints kept`.
fn kept(kept: u64, saved: u64) -> String {
    if saved > kept { format!("{kept} of {saved} checkpoints kept") } else { count(kept, "checkpoint") }
}

/// `0:07`, `1:02:03`.
fn clock(seconds: f64) -> String {
    let whole = seconds.clamp(0.0, 1e9) as u64;
    match whole / 3600 {
        0 => format!("{}:{:02}", whole / 60, whole % 60),
        hours => format!("{hours}:{:02}:{:02}", whole / 60 % 60, whole % 60),
    }
}

pub(crate) fn count(number: u64, thing: &str) -> String {
    if number == 1 { format!("{number} {thing}") } else { format!("{number} {thing}s") }
}

/// What the user reported, flat, without the automatic fields.
pub(crate) fn users(metrics: &Metrics) -> BTreeMap<String, String> {
    let mut own = BTreeMap::new();
    metrics.for_each_flat(&mut |name, value| {
        let top = name.split('/').next().unwrap_or(name);
        if !carril_types::AUTOMATIC_FIELDS.contains(&top) {
            own.insert(one_line(name), value_text(value));
        }
    });
    own
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Float(number) if *number == 0.0 || (1e-3..1e6).contains(&number.abs()) => format!("{number:.4}"),
        Value::Float(number) => format!("{number:.3e}"),
        Value::Text(text) => one_line(text),
        other => {
            let mut text = String::new();
            carril_types::write_json(&mut text, &Metrics(vec![(String::new(), other.clone())]));
            text[5..text.len() - 1].to_owned()
        }
    }
}

/// What a terminal would show of a line in the end: a bar writes over itself, and commands to a terminal have no place here.
fn shown(line: &str) -> String {
    let last = line.rsplit('\r').find(|state| !state.trim().is_empty()).unwrap_or("");
    let mut text = String::with_capacity(last.len());
    let mut letters = last.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' => {
                // A sequence ends with a letter.
                letters.by_ref().find(|letter| letter.is_ascii_alphabetic());
            }
            '\t' => text.push('\t'),
            letter if letter.is_control() => {}
            letter => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_a_terminal_would_show_in_the_end() {
        assert_eq!(shown("10%\r50%\r100%"), "100%");
        assert_eq!(shown("\u{1b}[31mred\u{1b}[0m\tand\u{7} plain"), "red\tand plain");
    }

    #[test]
    fn values_are_short() {
        let metrics = Metrics(vec![
            ("loss".into(), Value::Float(0.123456)),
            ("tiny".into(), Value::Float(1e-9)),
            ("nan".into(), Value::Float(f64::NAN)),
            ("sizes".into(), Value::List(vec![Value::Int(1), Value::Int(2)])),
            ("training_iteration".into(), Value::Int(3)),
        ]);
        let shown: Vec<String> = users(&metrics).into_iter().map(|(name, value)| format!("{name} {value}")).collect();
        assert_eq!(shown, ["loss 0.1235", "nan NaN", "sizes [1, 2]", "tiny 1.000e-9"]);
    }
}
