//! A run's journal as a story: what happened to the run, when and why, without what the machine did about it.
//!
//! STORY-1: every restart, warning and ending is told with its cause; what happens all the time is counted.
//! STORY-2: it has at most `LONGEST` lines: of a longer one the middle is left out, and the gap says so.

use carril_store::{Fact, JournalRecord};
use carril_types::Attempt;

use crate::table::local_time;

/// So many lines are read at a glance.
const LONGEST: usize = 24;
/// Only who waited longer than this has waited.
const PATIENCE: f64 = 1.0;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Unix time in seconds.
    pub at: f64,
    /// What it was, in a word for programs.
    pub kind: &'static str,
    pub text: String,
}

/// What the journal tells, oldest first.
#[derive(Default)]
struct Teller {
    told: Vec<Told>,
    /// When the run was opened and has not been placed since.
    opened: Option<f64>,
    attempt: Attempt,
    /// Where this attempt runs: a host, or how many nodes.
    place: String,
    /// Workers of this attempt that are up.
    ready: usize,
    /// Reports whose checkpoints were saved and are not told yet, and when the last of them was.
    saved: (Vec<u64>, f64),
}

impl Told {
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({ "at": self.at, "event": self.kind, "text": self.text })
    }
}

pub fn story(records: &[JournalRecord]) -> Vec<Told> {
    let mut teller = Teller::default();
    if let Some(first) = records.first() {
        teller.tell(first.at, "submitted", format!("submitted, {}", local_time(first.at)));
    }
    for record in records {
        teller.take(record);
    }
    teller.tell_saved();
    teller.told
}

/// At most as many as are read at a glance, and how many were left out behind the first half.
pub fn shortened(mut told: Vec<Told>) -> (Vec<Told>, Vec<Told>, usize) {
    if told.len() <= LONGEST {
        return (told, Vec::new(), 0);
    }
    let last = told.split_off(told.len() - LONGEST / 2);
    let left_out = told.len() - LONGEST / 2;
    told.truncate(LONGEST / 2);
    (told, last, left_out)
}

impl Teller {
    fn tell(&mut self, at: f64, kind: &'static str, text: impl Into<String>) {
        self.tell_saved();
        self.told.push(Told { at, kind, text: text.into() });
    }

    fn tell_saved(&mut self) {
        let (reports, at) = std::mem::take(&mut self.saved);
        let text = match reports.as_slice() {
            [] => return,
            [one] => format!("saved the checkpoint of report {one}"),
            [first, .., last] => format!("saved {} checkpoints, of reports {first} to {last}", reports.len()),
        };
        self.told.push(Told { at, kind: "saved", text });
    }

    fn take(&mut self, record: &JournalRecord) {
        let JournalRecord { at, event, reason, commands, fact } = record;
        match fact {
            Some(Fact::Opened { continues }) => {
                if self.told.len() > 1 && !continues {
                    self.tell(*at, "started", "started again");
                }
                self.opened = Some(*at);
            }
            Some(Fact::AttemptBegun { attempt, nodes, host }) => {
                (self.attempt, self.ready) = (*attempt, 0);
                self.place = match nodes.as_slice() {
                    [_] if !host.is_empty() => host.clone(),
                    [one] => one.split('#').next().unwrap_or(one).to_owned(),
                    several => format!("{} nodes", several.len()),
                };
                if let Some(opened) = self.opened.take().filter(|opened| at - opened >= PATIENCE) {
                    self.tell(*at, "placed", format!("waited {:.1} s for a place to run", at - opened));
                }
            }
            Some(Fact::Restarted(restart)) => {
                self.tell(*at, "restarted", format!("restart {}: {}", restart.attempt.0, restart.reason));
            }
            None => match record.committed() {
                Some(report) => {
                    self.saved.0.push(report);
                    self.saved.1 = *at;
                }
                None => self.take_event(*at, event, reason),
            },
        }
        for command in commands {
            self.take_command(*at, command);
        }
    }

    fn take_event(&mut self, at: f64, event: &str, reason: &str) {
        let (name, about) = event.split_once(": ").unwrap_or((event, ""));
        match name {
            "WorkerReady" => self.ready += 1,
            "Resumed" => {
                self.tell(at, "resumed", format!("resumed {}", reason.strip_prefix("goes on ").unwrap_or(reason)));
            }
            "StartedOver" => self.tell(at, "started over", format!("started over: {reason}")),
            "OtherConfig" | "CheckpointSetAside" => self.tell(at, "warning", format!("warning: {reason}")),
            "CheckpointRejected" => {
                let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                self.tell(at, "warning", format!("the checkpoint of {about} was not saved{why}"));
            }
            "Preempted" => self.tell(at, "preempted", format!("preempted: {about}")),
            "StopRequested" => {
                let why = about.rsplit_once(", force ").map_or(about, |(why, _)| why);
                let text = format!("asked to stop: {why}");
                // Who stops a run may ask more than once until it has ended.
                let asked_before = self.told.iter().rev().find(|told| ["stopped", "running"].contains(&told.kind));
                if asked_before.is_none_or(|before| before.text != text) {
                    self.tell(at, "stopped", text);
                }
            }
            "WorkerHalted" => self.tell(at, "halted", about.to_owned()),
            "Refused" => self.tell(at, "refused", format!("refused: {about}")),
            _ => {}
        }
    }

    fn take_command(&mut self, at: f64, command: &str) {
        let (name, about) = command.split_once(": ").unwrap_or((command, ""));
        match name {
            "ChangeStatus" if about == "running" => {
                let workers = if self.ready == 1 { "1 worker".to_owned() } else { format!("{} workers", self.ready) };
                let place = &self.place;
                // People count from one, as the headline of a failure does.
                let attempt =
                    if self.attempt.0 > 0 { format!(", attempt {}", self.attempt.0 + 1) } else { String::new() };
                self.tell(at, "running", format!("running with {workers} on {place}{attempt}"));
            }
            "Warn" => self.tell(at, "warning", format!("warning: {about}")),
            "EndRun" => {
                let (status, headline) = about.split_once(", ").unwrap_or((about, ""));
                let why = if status == "finished" || headline.is_empty() { "" } else { headline };
                let text = if why.is_empty() { status.to_owned() } else { format!("{status}: {why}") };
                self.tell(at, "ended", text);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use carril_types::{ErrorCode, Restart};

    use super::*;

    fn event(at: f64, event: &str, reason: &str, commands: &[&str]) -> JournalRecord {
        let commands = commands.iter().map(|command| (*command).to_owned()).collect();
        JournalRecord { at, event: event.into(), reason: reason.into(), commands, fact: None }
    }

    fn fact(at: f64, fact: Fact) -> JournalRecord {
        JournalRecord { at, fact: Some(fact), ..JournalRecord::default() }
    }

    fn attempt(at: f64, number: u32) -> Vec<JournalRecord> {
        vec![
            fact(
                at,
                Fact::AttemptBegun { attempt: Attempt(number), nodes: vec!["local#2".into()], host: "box".into() },
            ),
            event(at, "WorkerStarted: rank 0", "", &[]),
            event(at, "WorkerReady: rank 1", "", &[]),
            event(at, "WorkerReady: rank 0", "", &["ChangeStatus: running"]),
        ]
    }

    fn restart(at: f64, number: u32) -> JournalRecord {
        let reason = "rank 1 failed: KeyError: 'lr' at train.py:9 (1 of 3 failures)".to_owned();
        let attempt = Attempt(number);
        fact(
            at,
            Fact::Restarted(Restart {
                attempt,
                reason,
                code: ErrorCode::UserException,
                headline: String::new(),
                reports: 2,
            }),
        )
    }

    fn texts(told: &[Told]) -> Vec<&str> {
        told.iter().map(|told| told.text.as_str()).collect()
    }

    #[test]
    fn story_1_restarts_and_the_end_are_told_with_their_cause_and_checkpoints_are_counted() {
        let mut records = vec![fact(0.0, Fact::Opened { continues: false })];
        records.extend(attempt(5.0, 0));
        let saved = |at, report: u64| event(at, &format!("CheckpointCommitted: report {report}, /a/b"), "", &[]);
        records.extend([saved(6.0, 1), saved(7.0, 2)]);
        records.push(event(8.0, "WorkerFailed: rank 1 failed: KeyError: 'lr'", "", &[]));
        records.push(restart(8.5, 1));
        records.push(event(8.6, "Resumed", "after report 2 from checkpoint_000001", &[]));
        records.extend(attempt(9.0, 1));
        records.push(saved(9.5, 3));
        records.push(event(10.0, "WorkerReturned: rank 0", "", &["EndRun: finished, every rank has returned"]));
        let told = story(&records);
        assert_eq!(told[0].kind, "submitted");
        let expected = [
            "waited 5.0 s for a place to run",
            "running with 2 workers on box",
            "saved 2 checkpoints, of reports 1 to 2",
            "restart 1: rank 1 failed: KeyError: 'lr' at train.py:9 (1 of 3 failures)",
            "resumed after report 2 from checkpoint_000001",
            "running with 2 workers on box, attempt 2",
            "saved the checkpoint of report 3",
            "finished",
        ];
        assert_eq!(texts(&told[1..]), expected);
        assert_eq!(told[3].at, 7.0);
    }

    #[test]
    fn story_2_of_a_long_one_the_middle_is_left_out() {
        let records: Vec<JournalRecord> = (0..1000).map(|number| restart(f64::from(number), number + 1)).collect();
        let (first, last, left_out) = shortened(story(&records));
        assert_eq!((first.len() + last.len(), left_out), (LONGEST, 1001 - LONGEST));
        assert!(first[1].text.starts_with("restart 1:") && last[11].text.starts_with("restart 1000:"));
    }
}
