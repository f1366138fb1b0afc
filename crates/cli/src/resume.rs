//! `carril resume RUN`: runs again the command that began a run, where it was run, so that it goes on with the run.
//!
//! What it needs is in `run.json`. The command takes the place of this process, and so do its signals and its exit code. Its
//! environment is that of the caller, with one variable more, by which a run with a made-up name is found again.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use carril_store::RunRecord;
use carril_types::{ErrorCode, Failure, RunStatus};
use clap::Args;
use serde_json::Value;

use crate::find::{Storage, block_on};

/// Read by the driver, and taken out of its environment there.
const VARIABLE: &str = "CARRIL_RESUME";

#[derive(Args)]
pub struct Resume {
    /// The run's name, id, directory or URI
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

impl Resume {
    pub fn run(self) -> Result<(), Failure> {
        let (location, record) = block_on(self.storage.record_of(&self.run))?;
        refuse_ended_or_live(&location, &record)?;
        let nothing = || {
            Failure::new(ErrorCode::NotFound, format!("`{}` has no record of a command that could be run", record.name))
                .hint("start it as before: with the same name and storage, it goes on")
        };
        let asked = Asked::read(&record.asked).ok_or_else(nothing)?;
        asked.refuse_what_cannot_run(&location, &record)?;
        let mut command = asked.command()?;
        command.current_dir(&asked.directory).env(VARIABLE, &location);
        if self.dry_run {
            println!("{}", shown(&command, &asked.directory, &location));
            return Ok(());
        }
        let error = command.exec();
        Err(Failure::new(ErrorCode::NotFound, format!("cannot run `{}`: {error}", asked.program)))
    }
}

fn refuse_ended_or_live(location: &str, record: &RunRecord) -> Result<(), Failure> {
    let name = &record.name;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let owner = &record.owner;
    // One that is ending is waited for where the run is started.
    if record.is_live(now) && !owner.is_ending() {
        let message = format!("`{name}` is live: process {} on {}", owner.pid, owner.host);
        let hint = format!("`carril status {name}` shows how it stands, `carril stop-run {name}` stops it");
        return Err(Failure::new(ErrorCode::RunLive, message).hint(hint));
    }
    if record.status == RunStatus::Finished {
        let message = format!("`{name}` has finished, in `{location}`");
        let failure = Failure::new(ErrorCode::RunExists, message);
        if is_rust(&record.asked) {
            let hint = "to go on from its last checkpoint, set `RunConfig { resume: true, .. }` in its program";
            return Err(failure.hint(hint));
        }
        return Err(failure
            .hint("to go on from its last checkpoint, set RunConfig(resume=True) in its script")
            .hint(format!("or in Python: {}", restore(record, location))));
    }
    Ok(())
}

fn is_rust(asked: &Value) -> bool {
    asked.get("started_as").and_then(Value::as_str) == Some("program")
}

/// The way that needs no command.
fn restore(record: &RunRecord, location: &str) -> String {
    let trainer = record.asked.get("trainer").and_then(Value::as_str).unwrap_or("Trainer");
    format!("`{trainer}.restore({location:?}).fit()`")
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

    fn refuse_what_cannot_run(&self, location: &str, record: &RunRecord) -> Result<(), Failure> {
        let name = &record.name;
        let otherwise = match self.started_as.as_str() {
            "program" => "start the program as before: with the same name and storage, it goes on".to_owned(),
            _ => format!("in Python: {}", restore(record, location)),
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
            let host = &record.owner.host;
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
    let words: Vec<String> = words.map(|word| quoted(&word.to_string_lossy())).collect();
    format!("cd {} && {VARIABLE}={} {}", quoted(&directory.display().to_string()), quoted(location), words.join(" "))
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_where_a_shell_would_see_more_in_it() {
        assert_eq!(quoted("/a/b-c.py"), "/a/b-c.py");
        assert_eq!(quoted("--lr=0.1"), "--lr=0.1");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("it's two"), r"'it'\''s two'");
        assert_eq!(quoted("$HOME"), "'$HOME'");
    }
}
