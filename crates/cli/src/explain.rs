//! `carril explain RUN`: what happened to a run, as a story of a few lines; with `--all` the whole journal.

mod search;
mod story;
mod timeline;

use std::path::Path;

use carril_store::{Journal, JournalRecord, RunRecord, Storage as Place, last_report, report_number};
use carril_types::{Failure, count};
use clap::Args;
use serde_json::json;

use self::story::{Told, shortened, story};
use crate::checkpoints::Saves;
use crate::find::{Storage, block_on};
use crate::resolve::{DAMAGED, Kind};
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
                Kind::Trial(_) => subject.files().await.ok(),
                Kind::Run => Some(subject.files().await?),
            };
            Ok((subject, directory))
        })?;
        let records = directory.as_ref().map(|directory| Journal::read(&directory.join("journal")).unwrap_or_default());
        let records = records.unwrap_or_default();
        let text = match &subject.kind {
            Kind::Experiment(experiment) => {
                let history = experiment.history()?;
                match self.json {
                    true => format!("{}\n", search::json_of(experiment, &history)),
                    false => search::told(experiment, &history, self.all),
                }
            }
            // A trial that went well has no journal: what its experiment has written down of it is its story.
            Kind::Trial(of) if records.is_empty() => {
                let story = timeline::of_trial(&of.experiment.history()?, of.trial());
                match self.json {
                    true => lines_of(story.iter().map(Told::to_json)),
                    false => {
                        let begin = story.first().map_or(of.trial().made, |first| first.at);
                        search::trial_told(&of.experiment, of.trial()) + &shortened_lines(story, begin)
                    }
                }
            }
            Kind::Trial(of) if !self.all && !self.json => {
                search::trial_told(&of.experiment, of.trial()) + &story_lines(&records)
            }
            _ => self.told(directory.as_deref(), &subject.location, &records),
        };
        print_all(&text);
        Ok(())
    }

    /// Of what has a journal.
    fn told(&self, directory: Option<&Path>, location: &str, records: &[JournalRecord]) -> String {
        let record = directory.and_then(RunRecord::read);
        match (self.all, self.json) {
            (true, true) => lines_of(records.iter().map(|record| json!(record))),
            (true, false) => format!("{}{}", record.as_ref().map(opening).unwrap_or_default(), everything(records)),
            (false, true) => lines_of(story(records).iter().map(Told::to_json)),
            (false, false) => {
                let place = Place::open(location, None).ok();
                let headline = directory
                    .zip(place)
                    .map(|(directory, place)| headline(directory, &place, record.as_ref(), records));
                headline.unwrap_or_default() + &story_lines(records)
            }
        }
    }
}

fn lines_of(objects: impl Iterator<Item = serde_json::Value>) -> String {
    objects.map(|object| format!("{object}\n")).collect()
}

fn opening(record: &RunRecord) -> String {
    format!("{} is {}, started {}\n", record.name, record.status_word(), local_time(record.started))
}

/// The story of a run, with the time since it began.
fn story_lines(records: &[JournalRecord]) -> String {
    match records.first() {
        Some(first) => shortened_lines(story(records), first.at),
        None => "  nothing was written down of how it went\n".to_owned(),
    }
}

fn shortened_lines(story: Vec<Told>, begin: f64) -> String {
    let (first, last, left_out) = shortened(story);
    let mut text = lines(&first, begin);
    if left_out > 0 {
        text.push_str(&format!("             … {left_out} more, which `--all` shows\n"));
        text.push_str(&lines(&last, begin));
    }
    text
}

fn lines(told: &[Told], begin: f64) -> String {
    told.iter().map(|told| line(told.at - begin, &told.text)).collect()
}

/// How it stands and what it reached, in a line. Without a record that can be read: what its other files say.
fn headline(directory: &Path, place: &Place, record: Option<&RunRecord>, records: &[JournalRecord]) -> String {
    let mut facts = Vec::new();
    let last = last_report(&Place::local(directory)).ok().flatten();
    if let Some(reports) = last.as_ref().and_then(report_number) {
        facts.push(count(reports, "report"));
    }
    let (kept, saved) = Saves::of(place, records).kept_of();
    if saved > 0 {
        facts.push(match kept == saved {
            true => count(saved, "checkpoint"),
            false => format!("{kept} of {saved} checkpoints kept"),
        });
    }
    let reached = if facts.is_empty() { String::new() } else { format!(": {}", facts.join(", ")) };
    let Some(record) = record else {
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        return format!("{name} is {DAMAGED}{reached}\n");
    };
    let took = record.ended.map(|ended| format!(" after {}", duration(ended - record.started))).unwrap_or_default();
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
