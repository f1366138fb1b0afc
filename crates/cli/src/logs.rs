//! `carril logs RUN [--rank N] [--follow]`: of a run, of a trial, or of every trial of a search.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use carril_store::{Experiment, RunRecord};
use carril_types::{ErrorCode, Failure};
use clap::Args;
use serde_json::json;

use crate::find::{RunFiles, Storage, block_on, fetch};
use crate::resolve::{Kind, Subject};

/// How often a file that is followed is looked at.
const LOOK: Duration = Duration::from_millis(100);
const PIECE: u64 = 1 << 20;

#[derive(Args)]
pub struct Logs {
    /// The name, id or directory of a run, experiment or trial
    run: String,
    /// Only this rank, without marks
    #[arg(long, value_name = "N")]
    rank: Option<u32>,
    /// Go on until the run ends
    #[arg(long, short)]
    follow: bool,
    /// Print one JSON object per line of output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    storage: Storage,
}

/// A run or trial whose output is printed.
struct Place {
    /// The trial's id; empty where only one is meant.
    trial: String,
    files: RunFiles,
}

/// One rank's output, and how much of it has been printed.
struct Source {
    path: PathBuf,
    trial: String,
    rank: u32,
    attempt: u32,
    at: u64,
    rest: Vec<u8>,
}

/// How lines are printed.
#[derive(Clone, Copy)]
struct Style {
    marks: bool,
    json: bool,
}

type Sources = BTreeMap<(usize, u32, u32), Source>;

impl Logs {
    pub fn run(self) -> Result<(), Failure> {
        let (subject, mut places) = block_on(async {
            let subject = self.storage.resolve(&self.run).await?;
            let places = places_of(&subject).await?;
            Ok((subject, places))
        })?;
        let style = Style { marks: self.rank.is_none(), json: self.json };
        let mut sources = Sources::new();
        loop {
            // Looked at before the files are read: what was written before the end is then read after it.
            let ended = !self.follow || !is_going_on(&subject, &mut places)?;
            for (at, place) in places.iter().enumerate() {
                self.find_sources(at, place, &mut sources);
            }
            if sources.is_empty() && ended {
                return Err(self.nothing(&subject));
            }
            for source in sources.values_mut() {
                if print_new(source, style, ended).is_err() {
                    // The reader has gone, as `head` does.
                    return Ok(());
                }
            }
            if ended {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Files are named `rank_0.attempt_0.log`; new ones may come while they are followed.
    fn find_sources(&self, at: usize, place: &Place, sources: &mut Sources) {
        let Ok(entries) = std::fs::read_dir(place.files.join("ranks")) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            let Some((rank, attempt)) = path.file_name().and_then(|name| parse(name.to_str()?)) else { continue };
            if self.rank.is_some_and(|wanted| wanted != rank) {
                continue;
            }
            let trial = place.trial.clone();
            let source = Source { path, trial, rank, attempt, at: 0, rest: Vec::new() };
            sources.entry((at, attempt, rank)).or_insert(source);
        }
    }

    fn nothing(&self, subject: &Subject) -> Failure {
        let of = self.rank.map_or_else(String::new, |rank| format!(" of rank {rank}"));
        let location = &subject.location;
        match &subject.kind {
            Kind::Experiment(experiment) => {
                let message = format!("no trial of `{}` has printed anything{of}", experiment.summary.name);
                Failure::new(ErrorCode::NotFound, message).hint(format!("it has {} trials", experiment.trials.len()))
            }
            _ => Failure::new(ErrorCode::NotFound, format!("there is no output{of} in `{location}/ranks`")),
        }
    }
}

async fn places_of(subject: &Subject) -> Result<Vec<Place>, Failure> {
    let Kind::Experiment(experiment) = &subject.kind else {
        return Ok(vec![Place { trial: String::new(), files: subject.files().await? }]);
    };
    let mut places = Vec::new();
    for trial in &experiment.trials {
        let place = experiment.place_of(trial);
        let files = match place.local_path() {
            Some(path) => RunFiles::local(path.to_owned()),
            // One that has not begun has nothing there.
            None => match fetch(place.location().to_owned()).await {
                Ok(files) => files,
                Err(_) => continue,
            },
        };
        places.push(Place { trial: trial.id.clone(), files });
    }
    Ok(places)
}

fn parse(name: &str) -> Option<(u32, u32)> {
    let (rank, attempt) = name.strip_prefix("rank_")?.strip_suffix(".log")?.split_once(".attempt_")?;
    Some((rank.parse().ok()?, attempt.parse().ok()?))
}

/// Whether more output may come. The trials that a search has made meanwhile are added.
fn is_going_on(subject: &Subject, places: &mut Vec<Place>) -> Result<bool, Failure> {
    let experiment = match &subject.kind {
        Kind::Run => return Ok(is_run_going_on(&places[0].files)),
        Kind::Experiment(experiment) => experiment,
        Kind::Trial(of) => {
            // It has its record when it has ended.
            let has_ended = places[0].files.join("run.json").exists() && !is_run_going_on(&places[0].files);
            return Ok(!has_ended && subject.live.is_some() && of.experiment.status_word() == "running");
        }
    };
    let now = Experiment::open(experiment.place().clone())?;
    for trial in now.trials.iter().skip(places.len()) {
        if let Some(path) = now.place_of(trial).local_path() {
            places.push(Place { trial: trial.id.clone(), files: RunFiles::local(path.to_owned()) });
        }
    }
    Ok(now.status_word() == "running")
}

fn is_run_going_on(directory: &Path) -> bool {
    RunRecord::read(directory).is_some_and(|record| {
        !matches!(record.status_word(), "finished" | "failed" | "aborted" | "preempted" | "unfinished")
    })
}

fn print_new(source: &mut Source, style: Style, to_the_end: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let Ok(mut file) = carril_store::regular::open(&source.path) else { return Ok(()) };
    file.seek(SeekFrom::Start(source.at))?;
    loop {
        let read = (&mut file).take(PIECE).read_to_end(&mut source.rest)? as u64;
        source.at += read;
        while let Some(end) = source.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = source.rest.drain(..=end).collect();
            print_line(&mut out, source, style, &line[..end])?;
        }
        if read < PIECE {
            break;
        }
    }
    if to_the_end && !source.rest.is_empty() {
        let line = std::mem::take(&mut source.rest);
        print_line(&mut out, source, style, &line)?;
    }
    out.flush()
}

fn print_line(out: &mut impl Write, source: &Source, style: Style, line: &[u8]) -> io::Result<()> {
    let Source { trial, rank, attempt, .. } = source;
    if style.json {
        let trial = (!trial.is_empty()).then_some(trial);
        let text = String::from_utf8_lossy(line);
        return writeln!(out, "{}", json!({ "trial": trial, "rank": rank, "attempt": attempt, "line": text }));
    }
    match (trial.is_empty(), style.marks) {
        (true, true) => write!(out, "(rank {rank}) ")?,
        (false, true) => write!(out, "({trial} rank {rank}) ")?,
        (false, false) => write!(out, "({trial}) ")?,
        (true, false) => {}
    }
    out.write_all(line)?;
    out.write_all(b"\n")
}
