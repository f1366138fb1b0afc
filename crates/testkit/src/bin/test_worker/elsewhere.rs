//! Storage that is no local path, for tests without Python: this program in the place of the Python process that holds a file
//! system, with the files below a directory.
//!
//! The protocol is that of `carril_store`'s `python_filesystem.rs`. What would be the pickle is a file with the directory's
//! path. Each process appends its pid to the file `DIRECTORY.helpers`, so that a test can count them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

pub struct Elsewhere(PathBuf);

impl Elsewhere {
    pub fn open(pickle: &Path) -> io::Result<Self> {
        Ok(Self(PathBuf::from(fs::read_to_string(pickle)?)))
    }

    /// Answers until the input ends.
    pub fn serve(&self) -> io::Result<()> {
        let helpers = File::options().create(true).append(true).open(self.0.with_extension("helpers"));
        helpers.and_then(|mut file| writeln!(file, "{}", std::process::id()))?;
        let mut out = io::stdout();
        writeln!(out, "{}", json!({ "ok": true }))?;
        for line in io::stdin().lines() {
            let question: Value = serde_json::from_str(&line?)?;
            let (answer, bytes) = match self.answer(&question) {
                Ok((value, bytes)) => (json!({ "ok": value }), bytes),
                Err(error) => (json!({ "error": error.to_string() }), Vec::new()),
            };
            writeln!(out, "{answer}")?;
            out.write_all(&bytes)?;
            out.flush()?;
        }
        Ok(())
    }

    /// Where the thing with that key or location lies.
    pub fn path(&self, key: &str) -> PathBuf {
        self.0.join(key.trim_start_matches('/'))
    }

    /// What is read follows its length.
    fn answer(&self, question: &Value) -> io::Result<(Value, Vec<u8>)> {
        let word = |name: &str| question[name].as_str().unwrap_or_default();
        let path = self.path(word("key"));
        let mut bytes = Vec::new();
        let value = match word("op") {
            "put" => json!(store(&path, &fs::read(word("from"))?)?),
            "write" => json!(store(&path, &from_hex(word("hex")))?),
            "get" if path.is_file() => json!(fs::copy(&path, word("to")).is_ok()),
            "read" if path.is_file() => {
                bytes = fs::read(&path)?;
                let begin = question["begin"].as_u64().unwrap_or(0) as usize;
                let end = question["end"].as_u64().map_or(bytes.len(), |end| bytes.len().min(end as usize));
                bytes = bytes.get(begin..end).unwrap_or_default().to_vec();
                json!(bytes.len())
            }
            "size" if path.is_file() => json!(fs::metadata(&path)?.len()),
            "get" | "read" | "size" => Value::Null,
            "files" => {
                let mut found = Vec::new();
                list(&path, "", &mut found)?;
                json!(found)
            }
            "level" => {
                let (directories, files): (Vec<_>, Vec<_>) = entries(&path)?.into_iter().partition(|(_, is)| *is);
                let names = |all: Vec<(String, bool)>| all.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
                json!([names(directories), names(files)])
            }
            "delete" => json!(fs::remove_file(&path).is_ok()),
            "delete_all" => json!(fs::remove_dir_all(&path).is_ok()),
            other => return Err(io::Error::other(format!("`{other}` is no question"))),
        };
        Ok((value, bytes))
    }
}

/// Whole or not at all.
fn store(path: &Path, bytes: &[u8]) -> io::Result<usize> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    let part = path.with_extension(format!("{}.part", std::process::id()));
    fs::write(&part, bytes)?;
    fs::rename(part, path)?;
    Ok(bytes.len())
}

/// Names, and whether each is a directory.
fn entries(path: &Path) -> io::Result<Vec<(String, bool)>> {
    let Ok(entries) = fs::read_dir(path) else { return Ok(Vec::new()) };
    let named = |entry: fs::DirEntry| Ok((entry.file_name().to_string_lossy().into_owned(), entry.path().is_dir()));
    entries.map(|entry| entry.and_then(named)).collect()
}

fn list(path: &Path, below: &str, found: &mut Vec<(String, u64)>) -> io::Result<()> {
    for (name, is_directory) in entries(path)? {
        let key = format!("{below}{name}");
        if is_directory {
            list(&path.join(&name), &format!("{key}/"), found)?;
        } else {
            found.push((key, fs::metadata(path.join(&name))?.len()));
        }
    }
    Ok(())
}

fn from_hex(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).filter_map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()).collect()
}
