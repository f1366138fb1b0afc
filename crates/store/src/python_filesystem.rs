//! A storage that only Python can reach: a `pyarrow.fs` or fsspec object, held by a Python process of its own.
//!
//! The process is asked in lines of JSON on its input and answers in lines on its output, one question at a time:
//!   {"op": "put", "from": local path, "key": …} → {"ok": …} or {"error": text}; so do get, read, size, write, files, level,
//!   delete and delete_all. What is read follows its answer, as many bytes as that says; what is written rides as hexadecimal
//!   digits; files do not ride at all, the process opens them itself.
//! HELPER-1: every question may be asked twice, so a process that died is started anew, once per question.
//! HELPER-2: it ends when its input ends, so it never outlives the one who asks.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::faults::point;
use crate::local::{self, make_parent};
use crate::storage::{Content, Entry, StoredFile};

/// A pickled file system in a file, and the Python that can load it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonFilesystem {
    pub executable: String,
    /// What `sys.path` has beyond the standard library.
    pub path: Vec<String>,
    pub pickle: PathBuf,
}

pub(crate) struct Helper {
    filesystem: PythonFilesystem,
    process: Mutex<Option<Process>>,
}

struct Process {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

#[derive(Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Question<'a> {
    Put { from: &'a Path, key: &'a str },
    Get { key: &'a str, to: &'a Path },
    Read { key: &'a str, begin: u64, end: Option<u64> },
    Size { key: &'a str },
    Write { key: &'a str, hex: String },
    Files { key: &'a str },
    Level { key: &'a str },
    Delete { key: &'a str },
    DeleteAll { key: &'a str },
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ok(serde_json::Value),
    Error(String),
}

impl Helper {
    /// Starts the process at once, so that a file system that cannot be loaded is told before anything is stored.
    pub fn start(filesystem: PythonFilesystem, location: &str) -> Result<Self, StoreError> {
        let process = Process::start(&filesystem).map_err(|why| failed("open", location, why))?;
        Ok(Self { filesystem, process: Mutex::new(Some(process)) })
    }

    pub fn read(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.read_bytes(key, 0, None)
    }

    /// A part of a file; less where it ends before.
    pub fn read_range(&self, key: &str, range: Range<u64>) -> Result<Option<Vec<u8>>, StoreError> {
        self.read_bytes(key, range.start, Some(range.end))
    }

    fn read_bytes(&self, key: &str, begin: u64, end: Option<u64>) -> Result<Option<Vec<u8>>, StoreError> {
        let (length, bytes) = self.ask_with_bytes("read", key, &Question::Read { key, begin, end })?;
        Ok((!length.is_null()).then_some(bytes))
    }

    pub fn size(&self, key: &str) -> Result<Option<u64>, StoreError> {
        self.ask_for("read", key, &Question::Size { key })
    }

    pub fn write(&self, key: &str, bytes: &[u8]) -> Result<(), StoreError> {
        pass("put", key)?;
        let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.ask("write", key, &Question::Write { key, hex }).map(drop)
    }

    pub fn put(&self, from: &Path, key: &str, name: &str) -> Result<StoredFile, StoreError> {
        let mut file = File::open(from).map_err(StoreError::io("open", from))?;
        let (size, crc32c) = local::checksum(&mut file).map_err(StoreError::io("read", from))?;
        pass("put", key)?;
        let stored = self.ask("write", key, &Question::Put { from, key })?;
        match stored.as_u64() == Some(size) {
            true => Ok(StoredFile { path: name.to_owned(), size, crc32c: Some(crc32c) }),
            false => Err(failed("write", key, format!("{stored} of {size} bytes arrived"))),
        }
    }

    pub fn get(&self, key: &str, to: &Path) -> Result<Content, StoreError> {
        make_parent(to)?;
        let found = self.ask("read", key, &Question::Get { key, to })?;
        if found.is_null() {
            return Ok(Content::Missing);
        }
        local::examine(to)
    }

    pub fn examine(&self, key: &str) -> Result<Content, StoreError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let to = std::env::temp_dir().join(format!("carril-examine-{}-{number}", std::process::id()));
        let content = self.get(key, &to);
        let _ = fs::remove_file(&to);
        content
    }

    pub fn list(&self, key: &str) -> Result<Vec<Entry>, StoreError> {
        let files: Vec<(String, u64)> = self.ask_for("list", key, &Question::Files { key })?;
        Ok(files.into_iter().map(|(key, size)| Entry { key, size }).collect())
    }

    pub fn level(&self, key: &str) -> Result<(Vec<String>, Vec<String>), StoreError> {
        self.ask_for("list", key, &Question::Level { key })
    }

    pub fn delete(&self, key: &str) -> Result<(), StoreError> {
        pass("delete", key)?;
        self.ask("delete", key, &Question::Delete { key }).map(drop)
    }

    pub fn delete_all(&self, key: &str) -> Result<(), StoreError> {
        pass("delete", key)?;
        self.ask("delete", key, &Question::DeleteAll { key }).map(drop)
    }

    fn ask_for<T: serde::de::DeserializeOwned>(
        &self,
        what: &'static str,
        key: &str,
        question: &Question,
    ) -> Result<T, StoreError> {
        let answer = self.ask(what, key, question)?;
        serde_json::from_value(answer).map_err(|_| failed(what, key, "its answer is not understood".to_owned()))
    }

    fn ask(&self, what: &'static str, key: &str, question: &Question) -> Result<serde_json::Value, StoreError> {
        self.ask_with_bytes(what, key, question).map(|(value, _)| value)
    }

    fn ask_with_bytes(
        &self,
        what: &'static str,
        key: &str,
        question: &Question,
    ) -> Result<(serde_json::Value, Vec<u8>), StoreError> {
        let mut process = self.process.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for _ in 0..2 {
            let running = match process.as_mut() {
                Some(running) => running,
                None => process.insert(Process::start(&self.filesystem).map_err(|why| failed(what, key, why))?),
            };
            match running.ask(question) {
                Ok((Answer::Ok(value), bytes)) => return Ok((value, bytes)),
                Ok((Answer::Error(why), _)) => return Err(failed(what, key, why)),
                Err(_) => *process = None,
            }
        }
        Err(failed(what, key, "the Python process ended twice without an answer".to_owned()))
    }
}

impl Process {
    fn start(filesystem: &PythonFilesystem) -> Result<Self, String> {
        let path: Vec<&str> = filesystem.path.iter().map(String::as_str).filter(|path| !path.is_empty()).collect();
        let mut child = Command::new(&filesystem.executable)
            .args(["-P", "-m", "carril._internal.filesystem"])
            .arg(&filesystem.pickle)
            .env("PYTHONPATH", path.join(":"))
            .env_remove("CARRIL_WORKER")
            .env_remove("CARRIL_HEAD")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("`{}` cannot be started: {error}", filesystem.executable))?;
        let questions = child.stdin.take().expect("its input is a pipe");
        let answers = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let mut process = Self { child, questions, answers };
        match process.answer() {
            Ok(Answer::Ok(_)) => Ok(process),
            Ok(Answer::Error(why)) => Err(why),
            Err(_) => Err(match process.child.wait() {
                Ok(status) => format!("`{}` ended before it was ready: {status}", filesystem.executable),
                Err(error) => format!("`{}` cannot be waited for: {error}", filesystem.executable),
            }),
        }
    }

    /// The answer, and the bytes behind it.
    fn ask(&mut self, question: &Question) -> io::Result<(Answer, Vec<u8>)> {
        let mut line = serde_json::to_vec(question)?;
        line.push(b'\n');
        self.questions.write_all(&line)?;
        let answer = self.answer()?;
        let mut bytes = Vec::new();
        if let (Question::Read { .. }, Answer::Ok(length)) = (question, &answer) {
            bytes.resize(length.as_u64().unwrap_or(0) as usize, 0);
            self.answers.read_exact(&mut bytes)?;
        }
        Ok((answer, bytes))
    }

    fn answer(&mut self) -> io::Result<Answer> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pass(name: &str, key: &str) -> Result<(), StoreError> {
    point(name, Path::new(key)).map_err(StoreError::io("write", Path::new(key)))
}

fn failed(what: &'static str, location: &str, why: String) -> StoreError {
    StoreError::PythonFilesystem { what, location: location.to_owned(), why }
}

#[cfg(test)]
mod tests;
