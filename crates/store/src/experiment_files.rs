//! The files of an experiment: `experiment.json` says what was asked and how it stands, `trials.jsonl` what happened to its trials.
//!
//! A line is written by one call, so that a crash leaves at most the last one torn, which readers pass over.
//!
//! FILES-1: `trials.jsonl` that somebody empties or cuts while the experiment goes on is written again, at the latest by its end.

use std::fs;
use std::path::{Path, PathBuf};

use carril_types::{Metrics, Value, write_json};

use crate::append::{self, AppendFile};
use crate::error::StoreError;
use crate::experiment_record::{EXPERIMENT, EXPERIMENT_FORMAT, ExperimentRecord, RECORD};
use crate::local::Place;
use crate::python_json::parse_object;
use crate::regular;
use crate::run_directory::refuse_newer;

pub const TRIALS: &str = "trials.jsonl";
/// In the directory of a trial that has ended: the line that says so, with the id of its last run. A trial that runs again has another.
pub const TRIAL: &str = "trial.json";
pub(crate) const RUN: &str = "run";

/// Lines of `trials.jsonl` that are about the experiment, and not about one of its trials.
pub const OPENED: &str = "opened";
pub const RESUMED: &str = "resumed";
pub const CLOSED: &str = "closed";

/// What becomes of an experiment that the directory holds already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// One that did not finish resumes, one that finished is refused.
    Resume,
    /// It resumes, also where it has finished: there may be more to do now.
    Extend,
    /// One that did not finish resumes; beside one that finished, a new one begins.
    ResumeOrBegin,
    /// A new one begins beside it, as a Ray script expects that does not say `resume`.
    Begin,
}

impl Existing {
    /// Whether it is this experiment that goes on.
    pub fn resumes(self, before: &ExperimentRecord) -> bool {
        match self {
            Existing::Extend => true,
            Existing::Resume | Existing::ResumeOrBegin => before.status != "finished",
            Existing::Begin => false,
        }
    }
}

pub struct ExperimentFiles {
    directory: PathBuf,
    record: ExperimentRecord,
    trials: append::Lines,
    kept: Kept,
    warnings: Vec<String>,
    place: Place,
    /// The line of this start.
    begins: Metrics,
}

/// The lines of `trials.jsonl`, for the case that somebody cuts it: FILES-1. Of a long search without its scheduler's record, which
/// is most of it, and needed only by a head that resumes it.
struct Kept {
    text: String,
    /// What was told is left out from this length on.
    most: usize,
    left_out: usize,
}

const TOLD: &str = "{\"event\": \"told\"";

impl Kept {
    fn new(text: String, most: usize) -> Self {
        let mut kept = Self { text: String::new(), most, left_out: 0 };
        text.split_inclusive('\n').filter(|line| line.ends_with('\n')).for_each(|line| kept.push(line));
        kept
    }

    fn push(&mut self, line: &str) {
        if self.left_out > 0 && line.starts_with(TOLD) {
            self.left_out += 1;
            return;
        }
        self.text.push_str(line);
        if self.left_out == 0 && self.text.len() > self.most {
            let lines = self.text.split_inclusive('\n');
            let (told, others): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with(TOLD));
            self.left_out = told.len();
            self.text = others.concat();
        }
    }
}

const MOST_KEPT: usize = 64 << 20;

impl ExperimentFiles {
    /// Makes the directory, resumes the experiment in it, starts a new one beside it, or refuses; with the lines that are there.
    pub fn open(
        directory: &Path,
        location: &str,
        mut record: ExperimentRecord,
        existing: Existing,
    ) -> Result<(Self, Lines), StoreError> {
        fs::create_dir_all(directory).map_err(StoreError::io("make", directory))?;
        let (name, place) = (record.name.clone(), PathBuf::from(location));
        let path = directory.join(TRIALS);
        let mut lines = Lines::default();
        let mut begins = own_line(OPENED, record.created, &[]);
        let mut warnings = Vec::new();
        refuse_newer(&directory.join(EXPERIMENT), EXPERIMENT_FORMAT)?;
        match ExperimentRecord::read(directory) {
            Some(before) if before.is_live(record.created) => {
                return Err(StoreError::RunLive { name, path: place, pid: before.owner.pid, host: before.owner.host });
            }
            Some(before) if existing.resumes(&before) => {
                lines = read_lines(&path)?;
                // How it ended otherwise, the head before has said itself.
                let lost = [("reason", "its head was lost")];
                begins = own_line(RESUMED, record.created, if before.status == "running" { &lost } else { &[] });
                (record.created, record.id, record.seed) = (before.created, before.id, before.seed);
                record.made_before = before.made_before;
            }
            Some(_) if existing == Existing::Resume => return Err(StoreError::RunExists { name, path: place }),
            // Its own files are kept under its id, and its trials stay where they are.
            Some(before) => {
                warnings.extend(before.left_aside(directory, location)?);
                for (file, kept) in [(TRIALS, before.trials_kept_as()), (EXPERIMENT, before.kept_as())] {
                    let from = directory.join(file);
                    match fs::rename(&from, directory.join(kept)) {
                        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                            return Err(StoreError::io("move", &from)(error));
                        }
                        _ => {}
                    }
                }
            }
            None if directory.join(EXPERIMENT).exists() => {
                let why = "is damaged: what the experiment was cannot be read";
                return Err(StoreError::ExperimentDamaged { location: location.to_owned(), why });
            }
            None => {
                let mut entries = fs::read_dir(directory).map_err(StoreError::io("read", directory))?;
                // What a start has left that was refused its first file is not.
                let is_empty = |entry: &fs::DirEntry| entry.metadata().is_ok_and(|meta| meta.len() == 0);
                let foreign = |entry: &fs::DirEntry| match entry.file_name().to_string_lossy().as_ref() {
                    "journal" => false,
                    TRIALS => !is_empty(entry),
                    name => !name.ends_with(".part"),
                };
                if entries.any(|entry| entry.as_ref().is_ok_and(foreign)) {
                    return Err(StoreError::NotARun { path: place });
                }
            }
        }
        let kept = Kept::new(std::mem::take(&mut lines.text), MOST_KEPT);
        let trials = append::Lines::open(path)?;
        let place = Place::of(directory);
        let files = Self { directory: directory.to_owned(), record, trials, kept, warnings, place, begins };
        files.write_record()?;
        Ok((files, lines))
    }

    /// Writes down that an experiment has failed whose owner could not.
    pub fn close(directory: &Path, record: ExperimentRecord) -> Result<(), StoreError> {
        ExperimentRecord { status: "failed".to_owned(), ..record }.write(directory)
    }

    /// Where `made_before` is known: the line of this start has the record, for the case that `experiment.json` is lost.
    pub fn begin(&mut self, made_before: Option<u64>) -> Result<(), StoreError> {
        if let Some(trials) = made_before {
            self.record.made_before = trials;
            self.write_record()?;
        }
        let mut begins = self.begins.clone();
        begins.set(RECORD, Value::Map(self.record.fields()));
        self.append(&begins);
        Ok(())
    }

    /// Replaces the lines by these, as a whole.
    pub fn rewrite(&mut self, lines: &[Metrics]) -> Result<(), StoreError> {
        let mut text = String::new();
        for line in lines {
            write_json(&mut text, line);
            text.push('\n');
        }
        text.push_str(&self.trials.buffer);
        self.kept = Kept::new(text, self.kept.most);
        self.write_kept()
    }

    /// With the lines that wait to be written.
    fn write_kept(&mut self) -> Result<(), StoreError> {
        let path = self.directory.join(TRIALS);
        regular::replace(&path, &self.kept.text).map_err(StoreError::io("write", &path))?;
        self.trials = append::Lines::open(path)?;
        Ok(())
    }

    /// FILES-1.
    fn write_cut(&mut self) -> Result<(), StoreError> {
        if !self.trials.is_cut() {
            return Ok(());
        }
        self.write_kept()?;
        let path = self.directory.join(TRIALS);
        let mut text = format!("`{}` was cut short while the search was going on: it is written again", path.display());
        if self.kept.left_out > 0 {
            let lost = carril_types::count(self.kept.left_out as u64, "line");
            text.push_str(&format!(", without {lost} of its scheduler's record"));
        }
        self.warnings.push(text);
        Ok(())
    }

    pub fn warn(&mut self, text: String) {
        self.warnings.push(text);
    }

    /// What somebody should know of the files, since the last time.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    pub fn record(&self) -> &ExperimentRecord {
        &self.record
    }

    pub fn append(&mut self, line: &Metrics) {
        let from = self.trials.buffer.len();
        write_json(&mut self.trials.buffer, line);
        self.trials.buffer.push('\n');
        self.kept.push(&self.trials.buffer[from..]);
    }

    pub fn flush(&mut self) -> Result<(), StoreError> {
        self.write_cut()?;
        self.trials.flush()
    }

    /// May be called again where it fails.
    pub fn end(&mut self, status: &str, reason: &str, at: f64) -> Result<(), StoreError> {
        if self.record.ended.replace(at).is_none() {
            self.append(&own_line(CLOSED, at, &[("status", status), ("reason", reason)]));
            (self.record.status, self.record.reason) = (status.to_owned(), reason.to_owned());
        }
        self.flush()?;
        self.write_record()
    }

    /// Writes the line of a trial's end into the trial's own directory: `trials.jsonl` may be lost.
    pub fn end_trial(&self, directory: &str, line: &Metrics, run: &str) -> Result<(), StoreError> {
        let own = self.directory.join(directory);
        let mut line = line.clone();
        line.set(RUN, Value::Text(run.to_owned()));
        let mut text = String::new();
        write_json(&mut text, &line);
        text.push('\n');
        fs::create_dir_all(&own).map_err(StoreError::io("make", &own))?;
        let path = own.join(TRIAL);
        regular::replace(&path, &text).map_err(StoreError::io("write", &path))
    }

    /// Whether it is the directory that it was when the experiment was opened.
    pub fn is_in_place(&self) -> bool {
        self.place.is_in_place()
    }

    /// Makes the files again where they were moved or removed; true where they had to be.
    pub fn restore(&mut self) -> Result<bool, StoreError> {
        let restored = self.trials.restore()?;
        let is_gone = !self.directory.join(EXPERIMENT).exists();
        if restored || is_gone {
            self.write_record()?;
        }
        Ok(restored || is_gone)
    }

    pub fn renew(&mut self, now: f64) -> Result<(), StoreError> {
        self.record.renewed = now;
        self.write_record()
    }

    /// Appends a line to a log of its own.
    pub fn log(&self, name: &str, line: &str) -> Result<(), StoreError> {
        AppendFile::open(&self.directory.join(name))?.append(format!("{line}\n").as_bytes())
    }

    fn write_record(&self) -> Result<(), StoreError> {
        self.record.write(&self.directory)
    }
}

fn own_line(event: &str, at: f64, texts: &[(&str, &str)]) -> Metrics {
    let mut fields = vec![("event".to_owned(), Value::Text(event.to_owned())), ("at".to_owned(), Value::Float(at))];
    fields.extend(texts.iter().map(|(name, text)| ((*name).to_owned(), Value::Text((*text).to_owned()))));
    Metrics(fields)
}

/// The lines of `trials.jsonl`.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    pub readable: Vec<Metrics>,
    /// How many could not be read, besides one at the end that a crash has cut short.
    pub unreadable: usize,
    /// An earlier head has written here.
    pub resumes: bool,
    /// All of them, as they stand.
    text: String,
}

pub(crate) fn read_lines(path: &Path) -> Result<Lines, StoreError> {
    let text = match regular::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(source) => return Err(StoreError::io("read", path)(source)),
    };
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n') && !line.trim().is_empty()).count();
    let readable: Vec<Metrics> = text.lines().filter_map(parse_object).collect();
    Ok(Lines { unreadable: whole.saturating_sub(readable.len()), readable, resumes: true, text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::Owner;

    fn record() -> ExperimentRecord {
        let record = serde_json::json!({
            "name": "search", "id": "abcde0123", "status": "running", "created": 1.0, "carril_version": "0", "trainable": "train",
            "metric": null, "mode": null, "num_samples": 1, "searcher": "", "scheduler": "", "seed": 1, "renewed": 1.0,
            "owner": Owner::this_process(), "asked": null,
        });
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn files_1_a_file_that_is_cut_while_the_search_goes_on_is_written_again() {
        for (most, left_out) in [(1 << 20, 0), (100, 6)] {
            let root = tempfile::tempdir().unwrap();
            let (directory, path) = (root.path().join("search"), root.path().join("search").join(TRIALS));
            let (mut files, _) = ExperimentFiles::open(&directory, "search", record(), Existing::Resume).unwrap();
            files.begin(None).unwrap();
            files.kept.most = most;
            let line = |event: &str, at: usize| own_line(event, at as f64, &[("why", "a reason of some length")]);
            for at in 0..6 {
                files.append(&line("made", at));
                files.append(&line("told", at));
                files.flush().unwrap();
            }
            assert!(files.take_warnings().is_empty());
            let whole = fs::read_to_string(&path).unwrap();
            for cut in [0, 10, whole.len() - 1] {
                fs::File::options().write(true).open(&path).unwrap().set_len(cut as u64).unwrap();
                // The last time the end of the search finds out.
                if cut == 10 {
                    files.end("finished", "done", 9.0).unwrap()
                } else {
                    files.flush().unwrap()
                }
                let text = fs::read_to_string(&path).unwrap();
                let expected: Vec<&str> =
                    whole.lines().filter(|line| left_out == 0 || !line.starts_with(TOLD)).collect();
                assert_eq!(text.lines().take(expected.len()).collect::<Vec<_>>(), expected, "cut at {cut}");
                assert_eq!(files.take_warnings().len(), usize::from(cut < text.len()));
            }
            assert_eq!(files.kept.left_out, left_out);
            assert_eq!(fs::read_to_string(&path).unwrap().matches("closed").count(), 1);
        }
    }

    #[test]
    fn a_line_comes_back_as_it_was_written() {
        let line = Metrics(vec![
            ("nan".into(), Value::Float(f64::INFINITY)),
            ("text".into(), Value::Text("a \"NaN\" \\ in words".into())),
            ("word".into(), Value::Text("NaN".into())),
            ("list".into(), Value::List(vec![Value::Float(-f64::INFINITY), Value::Float(0.1)])),
        ]);
        let mut text = String::new();
        write_json(&mut text, &line);
        assert_eq!(parse_object(&text), Some(line));
        assert_eq!(parse_object(&text[..text.len() - 3]), None, "a torn line is none");
    }
}
