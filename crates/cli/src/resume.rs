//! `carril resume RUN`: runs again the command that began a run or a search, where it was run, so that it resumes.
//!
//! What it needs is in `run.json` or `experiment.json`. The command takes the place of this process, and so do its signals and its exit code. Its
//! environment is that of the caller, with one variable more, by which a run with a made-up name is found again.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use carril_store::{ExperimentStatus, Owner, Storage as Place, TrialState};
use carril_types::{ErrorCode, Failure, RunStatus, shell_quoted};
use clap::Args;
use serde_json::Value;

use crate::find::{self, Storage, block_on};
use crate::resolve::{Kind, Subject, record_at};

/// Read by the driver, and taken out of its environment there.
const VARIABLE: &str = "CARRIL_RESUME";

#[derive(Args)]
pub struct Resume {
    /// The name, id, directory or URI of a run or experiment
    run: String,
    /// Print the command and run nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    storage: Storage,
}

/// What a driver records of how it was started.
struct Asked {
    /// The Python interpreter, or a program in Rust.
    program: String,
    command_line: Vec<String>,
    started_as: String,
    script: Option<String>,
    directory: PathBuf,
    /// The options of `carril as-ray`, under which it ran.
    as_ray: Option<Vec<String>>,
}

/// A run or an experiment that is to be resumed.
struct Resumable {
    name: String,
    location: String,
    /// How it is named on the command line.
    typed: String,
    owner: Option<Owner>,
    is_live: bool,
    has_finished: bool,
    is_search: bool,
    /// Trials of a search.
    failed: usize,
    unfinished: usize,
    asked: Value,
}

impl Resume {
    pub fn run(self) -> Result<(), Failure> {
        let subject = block_on(self.storage.resolve(&self.run))?;
        let resumable = Resumable::read(&self.run, &subject)?;
        resumable.refuse_ended_or_live()?;
        let nothing = || {
            let message = format!("`{}` has no record of a command that could be run", resumable.name);
            let failure = Failure::new(ErrorCode::NotFound, message)
                .hint("start it as before: with the same name and storage, it resumes");
            // What no Python driver has started cannot be restored by one.
            match resumable.is_search || resumable.asked.get("trainer").is_some() {
                true => failure.hint(format!("or in Python: {}", resumable.restore())),
                false => failure,
            }
        };
        let asked = Asked::read(&resumable.asked).ok_or_else(nothing)?;
        asked.refuse_what_cannot_run(&resumable)?;
        let mut command = asked.command()?;
        command.current_dir(&asked.directory).env(VARIABLE, &resumable.location);
        if self.dry_run {
            println!("{}", shown(&command, &asked.directory, &resumable.location));
            return Ok(());
        }
        let error = command.exec();
        Err(Failure::new(ErrorCode::NotFound, format!("cannot run `{}`: {error}", asked.program)))
    }
}

impl Resumable {
    fn read(word: &str, subject: &Subject) -> Result<Self, Failure> {
        let location = subject.location.clone();
        let typed = find::typed(word, &location);
        match &subject.kind {
            Kind::Run => {
                let record = record_at(&Place::open(&location, None)?).ok_or_else(|| {
                    let message =
                        format!("the run in `{location}` cannot be resumed by a command: no `run.json` says how");
                    Failure::new(ErrorCode::NotFound, message)
                        .hint("run its script again, with `RunConfig(resume=True)`")
                })?;
                let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
                // One that is ending is waited for where the run is started.
                let is_live = record.is_live(now) && !record.owner.is_ending();
                let has_finished = record.status == RunStatus::Finished;
                let (name, owner, asked) = (record.name, Some(record.owner), record.asked);
                let is_search = false;
                let (failed, unfinished) = (0, 0);
                Ok(Self { name, location, typed, owner, is_live, has_finished, is_search, failed, unfinished, asked })
            }
            Kind::Experiment(experiment) => {
                let summary = &experiment.summary;
                let is_ending = summary.owner.as_ref().is_some_and(Owner::is_ending);
                Ok(Self {
                    name: summary.name.clone(),
                    location,
                    typed,
                    owner: summary.owner.clone(),
                    is_live: experiment.is_live() == Some(true) && !is_ending,
                    has_finished: summary.status == ExperimentStatus::Finished,
                    is_search: true,
                    failed: experiment.trials.iter().filter(|trial| trial.state == TrialState::Error).count(),
                    unfinished: experiment.trials.iter().filter(|trial| !trial.state.is_over()).count(),
                    asked: carril_store::json_of(&carril_types::Value::Map(summary.asked.clone())),
                })
            }
            Kind::Trial(of) => {
                let (trial, place) = (of.trial(), of.experiment.place().location());
                let message = format!("`{word}` is the trial {} of a search: it resumes with that", trial.id);
                let hint = format!("`carril resume {}`", find::typed(&of.experiment.summary.name, place));
                Err(Failure::new(ErrorCode::InvalidConfig, message).hint(hint))
            }
        }
    }

    fn refuse_ended_or_live(&self) -> Result<(), Failure> {
        let Self { name, location, typed, .. } = self;
        if self.is_live {
            let at = self.owner.as_ref().map(|owner| format!(": process {} on {}", owner.pid, owner.host));
            let message = format!("`{name}` is live{}", at.unwrap_or_default());
            let hint = format!("`carril status {typed}` shows how it stands, `carril stop-run {typed}` stops it");
            return Err(Failure::new(ErrorCode::RunLive, message).hint(hint));
        }
        if !self.has_finished {
            return Ok(());
        }
        let failure = Failure::new(ErrorCode::RunExists, format!("`{name}` has finished, in `{location}`"));
        if self.is_search {
            let hint = match (self.failed, self.unfinished) {
                (0, 0) => {
                    "to add trials, set RunConfig(resume=True) and a greater `num_samples` in its script".to_owned()
                }
                (0, _) => format!("to resume the trials that it left unfinished, in Python: {}", self.restore()),
                _ => format!("to run the trials again that failed, in Python: {}", self.restore_errored()),
            };
            return Err(failure.hint(hint));
        }
        if self.is_rust() {
            let hint = "to go on from its last checkpoint, set `RunConfig { resume: true, .. }` in its program";
            return Err(failure.hint(hint));
        }
        Err(failure
            .hint("to go on from its last checkpoint, set RunConfig(resume=True) in its script")
            .hint(format!("or in Python: {}", self.restore())))
    }

    fn is_rust(&self) -> bool {
        self.asked.get("started_as").and_then(Value::as_str) == Some("program")
    }

    /// The way that needs no command.
    fn restore(&self) -> String {
        let location = &self.location;
        if self.is_search {
            return format!("`Tuner.restore({location:?}, trainable).fit()`");
        }
        let trainer = self.asked.get("trainer").and_then(Value::as_str).unwrap_or("Trainer");
        format!("`{trainer}.restore({location:?}).fit()`")
    }

    fn restore_errored(&self) -> String {
        format!("`Tuner.restore({:?}, trainable, resume_errored=True).fit()`", self.location)
    }
}

impl Asked {
    fn read(asked: &Value) -> Option<Self> {
        let text = |name: &str| Some(asked.get(name)?.as_str()?.to_owned());
        let words =
            |name: &str| asked.get(name)?.as_array()?.iter().map(|word| Some(word.as_str()?.to_owned())).collect();
        Some(Self {
            program: text("python").or_else(|| text("program"))?,
            command_line: words("command_line")?,
            started_as: text("started_as")?,
            script: text("script"),
            directory: PathBuf::from(text("directory")?),
            as_ray: words("as_ray"),
        })
    }

    fn refuse_what_cannot_run(&self, resumable: &Resumable) -> Result<(), Failure> {
        let name = &resumable.name;
        let otherwise = match self.started_as.as_str() {
            "program" => "start the program as before: with the same name and storage, it resumes".to_owned(),
            _ => format!("in Python: {}", resumable.restore()),
        };
        let again = format!("run it again with RunConfig(name={name:?})");
        let cannot = |how: &str| {
            Err(Failure::new(ErrorCode::NotAvailable, format!("`{name}` was started {how}, which cannot be run again"))
                .hint(&again)
                .hint(format!("or {otherwise}")))
        };
        match self.started_as.as_str() {
            "script" | "module" | "code" | "program" => {}
            "notebook" => return cannot("from a notebook"),
            "prompt" => return cannot("at a prompt of Python"),
            "input" => return cannot("from a script on standard input"),
            "child" => return cannot("by a process of multiprocessing"),
            _ => return cannot("by a program with Python inside"),
        }
        let gone = |what: &str, path: &Path| {
            let host = resumable.owner.as_ref().map_or("another", |owner| owner.host.as_str());
            Err(Failure::new(ErrorCode::NotFound, format!("{what} of `{name}` is not here: `{}`", path.display()))
                .hint(format!("it was started on the host {host}"))
                .hint(format!("without it, {otherwise}")))
        };
        if !self.directory.is_dir() {
            return gone("the directory", &self.directory);
        }
        if !Path::new(&self.program).exists() {
            let what = if self.started_as == "program" { "the program" } else { "the Python interpreter" };
            return gone(what, Path::new(&self.program));
        }
        match self.script.as_ref().map(|script| self.directory.join(script)) {
            Some(script) if !script.exists() => gone("the script", &script),
            _ => Ok(()),
        }
    }

    /// With the interpreter that it was, whatever `python` means here.
    fn command(&self) -> Result<Command, Failure> {
        let arguments = self.command_line.iter().skip(1);
        let Some(options) = &self.as_ray else {
            let mut command = Command::new(&self.program);
            command.args(arguments);
            return Ok(command);
        };
        let own = std::env::current_exe()
            .map_err(|error| Failure::new(ErrorCode::Internal, format!("cannot find the command itself: {error}")))?;
        let mut command = Command::new(own);
        command.arg("as-ray").args(options).arg("--").arg(&self.program).args(arguments);
        Ok(command)
    }
}

/// As one would type it.
fn shown(command: &Command, directory: &Path, location: &str) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words.map(|word| shell_quoted(&word.to_string_lossy())).collect();
    format!(
        "cd {} && {VARIABLE}={} {}",
        shell_quoted(&directory.display().to_string()),
        shell_quoted(location),
        words.join(" ")
    )
}
