//! `carril explain RUN`: what happened to a run, as a story of a few lines; with `--all` the whole journal.

mod search;
mod story;

use std::path::Path;

use carril_store::{Journal, JournalRecord, RunRecord, Storage as Place, last_report, report_number};
use carril_types::Failure;
use clap::Args;
use serde_json::json;

use self::story::{Told, saved, shortened, story};
use crate::find::{Storage, block_on};
use crate::resolve::Kind;
use crate::table::{local_time, print_all};

#[derive(Args)]
pub struct Explain {
    /// The name, id or directory of a run, experiment or trial
    run: String,
    /// Everything that the head decided, event by event
    #[arg(long)]
    all: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    storage: Storage,
}

impl Explain {
    pub fn run(self) -> Result<(), Failure> {
        let (subject, directory) = block_on(async {
            let subject = self.storage.resolve(&self.run).await?;
            // What happened in a search is in its own files, and not in those of a run.
            let directory = match &subject.kind {
                Kind::Experiment(_) => None,
                _ => Some(subject.files().await?),
            };
            Ok((subject, directory))
        })?;
        let directory = match (&subject.kind, directory) {
            (Kind::Experiment(experiment), _) => {
                print_all(&match self.json {
                    true => format!("{}\n", search::json_of(experiment)),
                    false => search::told(experiment),
                });
                return Ok(());
            }
            (_, Some(directory)) => directory,
            (_, None) => unreachable!("every other one has files"),
        };
        let records = Journal::read(&directory.join("journal")).unwrap_or_default();
        let record = RunRecord::read(&directory);
        if let Kind::Trial(of) = &subject.kind
            && !self.all
            && !self.json
        {
            let story = if records.is_empty() { String::new() } else { told(&directory, None, &records) };
            print_all(&format!("{}{story}", search::trial_told(&of.experiment, of.trial())));
            return Ok(());
        }
        let text = match (self.all, self.json) {
            (true, true) => lines_of(records.iter().map(|record| json!(record))),
            (true, false) => format!("{}{}", record.as_ref().map(opening).unwrap_or_default(), everything(&records)),
            (false, true) => lines_of(
                story(&records).iter().map(|Told { at, kind, text }| json!({ "at": at, "event": kind, "text": text })),
            ),
            (false, false) => told(&directory, record.as_ref(), &records),
        };
        print_all(&text);
        Ok(())
    }
}

fn lines_of(objects: impl Iterator<Item = serde_json::Value>) -> String {
    objects.map(|object| format!("{object}\n")).collect()
}

fn opening(record: &RunRecord) -> String {
    format!("{} is {}, started {}\n", record.name, record.status_word(), local_time(record.started))
}

/// The story, with the time since the run began.
fn told(directory: &Path, record: Option<&RunRecord>, records: &[JournalRecord]) -> String {
    let mut text = record.map(|record| headline(directory, record, records)).unwrap_or_default();
    if records.is_empty() {
        text.push_str("  nothing was written down of how it went\n");
        return text;
    }
    let begin = records[0].at;
    text.push_str(&line(0.0, &format!("submitted, {}", local_time(begin))));
    let (first, last, left_out) = shortened(story(records));
    let lines = |told: &[Told]| told.iter().map(|told| line(told.at - begin, &told.text)).collect::<String>();
    text.push_str(&lines(&first));
    if left_out > 0 {
        text.push_str(&format!("             … {left_out} more, which `--all` shows\n"));
        text.push_str(&lines(&last));
    }
    text
}

/// How it stands and what it reached, in a line.
fn headline(directory: &Path, record: &RunRecord, records: &[JournalRecord]) -> String {
    let mut facts = Vec::new();
    let last = last_report(&Place::local(directory)).ok().flatten();
    if let Some(reports) = last.as_ref().and_then(report_number) {
        facts.push(if reports == 1 { "1 report".to_owned() } else { format!("{reports} reports") });
    }
    let saved = saved(records);
    if saved > 0 {
        // Where only the small files are at hand, it is not known.
        let kept = carril_store::list_checkpoints(&Place::local(directory)).map_or(0, |listed| listed.len());
        facts.push(match kept {
            0 => format!("{saved} checkpoints saved"),
            kept => format!("{kept} of {saved} checkpoints kept"),
        });
    }
    let begin = records.first().map_or(record.started, |record| record.at);
    let took = record.ended.map(|ended| format!(" after {}", duration(ended - begin))).unwrap_or_default();
    let reached = if facts.is_empty() { String::new() } else { format!(": {}", facts.join(", ")) };
    format!("{} is {}{took}{reached}\n", record.name, record.status_word())
}

fn line(seconds: f64, text: &str) -> String {
    let mut lines = text.lines();
    let mut shown = format!("{:>10}  {}\n", format!("+{}", duration(seconds)), lines.next().unwrap_or_default());
    lines.for_each(|more| shown.push_str(&format!("            {more}\n")));
    shown
}

/// `0.123 s`, `12.3 s`, `1:02:03`.
fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    if seconds < 10.0 {
        return format!("{seconds:.2} s");
    }
    if seconds < 100.0 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds as u64;
    format!("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
}

fn everything(records: &[JournalRecord]) -> String {
    let begin = records.first().map_or(0.0, |record| record.at);
    let mut text = String::new();
    for record in records {
        text.push_str(&format!("{:>9.3} s  {}\n", record.at - begin, record.event));
        if !record.reason.is_empty() && !record.event.ends_with(&record.reason) {
            text.push_str(&format!("             because {}\n", record.reason));
        }
        for command in &record.commands {
            text.push_str(&format!("             so {command}\n"));
        }
    }
    text
}
