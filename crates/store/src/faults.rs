//! Faults on purpose, at every call that a save makes to a disk or to a storage. For tests alone.
//!
//! `CARRIL_FAULT=<n>:<kind>[:<log file>]`, read once when the first point is passed: the n-th point of this process fails.
//! Kinds: `kill` (SIGKILL to the process itself), `stop` (SIGSTOP, so that a test can do something meanwhile), `panic`, `enospc`, `eio` (that error, once). With n = 0 nothing fails and the log
//! names each point, so that a test can enumerate the calls of a save and then fail each one.
//! `CARRIL_JOURNAL_FAULT=<kind>:<times>:<event>` fails that many appends to journals, from the first one on whose event begins so.
//! `CARRIL_FAULT=full:<flag>[:<log file>]`: while the file `flag` exists, the disk below its directory is full. What is written fails, and
//! an append stops half-way; journals have a fault of their own. Each call that failed is a line in the log.
//! `CARRIL_FAULT_DEADLINE=<seconds>`: for so long storage that refuses is tried again, instead of 30 s.
//! In the log a point is a line `<n> <name> <path>`, written before the call that it stands for; the one that failed ends in ` fired`.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use nix::libc;
use nix::sys::signal::{Signal, raise};

use crate::error::StoreError;

/// Cleared when the first point finds that there is no plan; from then on a point is this load and nothing else.
static PERHAPS: AtomicBool = AtomicBool::new(true);
static PLAN: OnceLock<Option<Plan>> = OnceLock::new();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Signal(Signal),
    Error(i32),
    Panic,
}

impl Kind {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "kill" => Kind::Signal(Signal::SIGKILL),
            "stop" => Kind::Signal(Signal::SIGSTOP),
            "enospc" => Kind::Error(libc::ENOSPC),
            "eio" => Kind::Error(libc::EIO),
            "panic" => Kind::Panic,
            _ => return None,
        })
    }

    fn strike(self, name: &str) -> io::Result<()> {
        match self {
            Kind::Error(code) => return Err(io::Error::from_raw_os_error(code)),
            Kind::Signal(signal) => drop(raise(signal)),
            Kind::Panic => panic!("a fault on purpose, at `{name}`"),
        }
        Ok(())
    }
}

enum Plan {
    Nth(Nth),
    Full { flag: PathBuf, log: Option<File> },
}

struct Nth {
    at: u64,
    kind: Kind,
    log: Option<File>,
    passed: AtomicU64,
}

impl Plan {
    fn parse(text: &str) -> Option<Self> {
        let Some(full) = text.strip_prefix("full:") else { return Nth::parse(text).map(Plan::Nth) };
        let (flag, log) = full.split_once(':').map_or((full, None), |(flag, log)| (flag, Some(log)));
        let open = |path| OpenOptions::new().create(true).append(true).open(path);
        Some(Plan::Full { flag: flag.into(), log: log.map(open).transpose().ok()? })
    }

    fn point(&self, name: &str, path: &Path) -> io::Result<()> {
        match self {
            Plan::Nth(nth) => nth.point(name, path),
            Plan::Full { .. } if matches!(name, "create" | "write" | "mkdir") => self.room(name, path, 0).map(drop),
            Plan::Full { .. } => Ok(()),
        }
    }

    /// Of so many bytes, those that there is room for.
    fn room(&self, name: &str, path: &Path, length: usize) -> io::Result<usize> {
        match self {
            Plan::Full { flag, log } if is_below(path, flag.parent().unwrap_or(flag)) && flag.exists() => {
                if let Some(mut log) = log.as_ref() {
                    log.write_all(format!("{name} {}\n", path.display()).as_bytes())?;
                }
                if length > 1 { Ok(length / 2) } else { Err(io::Error::from_raw_os_error(libc::ENOSPC)) }
            }
            _ => Ok(length),
        }
    }
}

fn is_below(path: &Path, directory: &Path) -> bool {
    path.strip_prefix(directory).is_ok_and(|below| below.components().all(|part| part.as_os_str() != "journal"))
}

impl Nth {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ':');
        let at = parts.next()?.parse().ok()?;
        let kind = Kind::parse(parts.next()?)?;
        let open = |path| OpenOptions::new().create(true).append(true).open(path);
        let log = parts.next().map(open).transpose().ok()?;
        Some(Self { at, kind, log, passed: AtomicU64::new(0) })
    }

    fn point(&self, name: &str, path: &Path) -> io::Result<()> {
        let number = self.passed.fetch_add(1, Ordering::Relaxed) + 1;
        let fires = number == self.at;
        if let Some(mut log) = self.log.as_ref() {
            let line = format!("{number} {name} {}{}\n", path.display(), if fires { " fired" } else { "" });
            // One write, so that lines of several threads and processes never mix.
            log.write_all(line.as_bytes())?;
        }
        if fires { self.kind.strike(name) } else { Ok(()) }
    }
}

thread_local! {
    static CRASH: Cell<Option<u64>> = const { Cell::new(None) };
}

/// What a panic carries that stands for the death of the process at a point.
pub struct Crashed;

/// The work of this thread ends with a panic, as if its process had been killed, before the n-th call from here.
/// `None` takes that back.
pub fn crash_at(calls: Option<u64>) {
    CRASH.set(calls);
}

fn crash_if_due() {
    let Some(calls) = CRASH.get() else { return };
    if calls <= 1 {
        CRASH.set(None);
        std::panic::resume_unwind(Box::new(Crashed));
    }
    CRASH.set(Some(calls - 1));
}

/// Stands before a call of a save.
pub(crate) fn point(name: &str, path: &Path) -> io::Result<()> {
    crash_if_due();
    plan().map_or(Ok(()), |plan| plan.point(name, path))
}

/// Stands before an append of so many bytes: how many of them fit.
pub(crate) fn room(path: &Path, length: usize) -> io::Result<usize> {
    plan().map_or(Ok(length), |plan| plan.room("append", path, length))
}

/// Stands before a file that is written whole, which is no call of a save.
pub(crate) fn has_room(path: &Path) -> io::Result<()> {
    plan().map_or(Ok(()), |plan| plan.room("write", path, 0).map(drop))
}

/// How long storage that refuses is tried again, where a test cannot wait.
pub(crate) fn shortened() -> Option<Duration> {
    static SHORTENED: OnceLock<Option<Duration>> = OnceLock::new();
    *SHORTENED.get_or_init(|| {
        let seconds = std::env::var("CARRIL_FAULT_DEADLINE").ok()?.parse().ok()?;
        Duration::try_from_secs_f64(seconds).ok()
    })
}

/// A plan that cannot be read is a mistake in a test: it ends the process.
fn plan() -> Option<&'static Plan> {
    if !PERHAPS.load(Ordering::Relaxed) {
        return None;
    }
    let plan = PLAN.get_or_init(|| {
        let text = std::env::var("CARRIL_FAULT").ok().filter(|text| !text.is_empty())?;
        Some(Plan::parse(&text).unwrap_or_else(|| panic!("CARRIL_FAULT is `{text}`, not `<n>:<kind>[:<log file>]`")))
    });
    if plan.is_none() {
        PERHAPS.store(false, Ordering::Relaxed);
    }
    plan.as_ref()
}

struct JournalPlan {
    kind: Kind,
    left: AtomicI64,
    event: String,
    begun: AtomicBool,
}

/// Stands before each append to a journal.
pub fn journal_point(event: &str) -> Result<(), StoreError> {
    static PLAN: OnceLock<Option<JournalPlan>> = OnceLock::new();
    let plan = PLAN.get_or_init(|| {
        let text = std::env::var("CARRIL_JOURNAL_FAULT").ok()?;
        let mut parts = text.splitn(3, ':');
        let (kind, times, event) = (parts.next()?, parts.next()?, parts.next()?);
        let left = AtomicI64::new(times.parse().ok()?);
        Some(JournalPlan { kind: Kind::parse(kind)?, left, event: event.to_owned(), begun: AtomicBool::new(false) })
    });
    let Some(plan) = plan else { return Ok(()) };
    let begun = event.starts_with(&plan.event) || plan.begun.load(Ordering::Relaxed);
    plan.begun.store(begun, Ordering::Relaxed);
    if begun && plan.left.fetch_sub(1, Ordering::Relaxed) > 0 {
        plan.kind.strike(event).map_err(StoreError::io("write", Path::new("journal")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_fails_once_and_the_log_says_which() {
        let root = tempfile::tempdir().unwrap();
        let log = root.path().join("log");
        let plan = Plan::parse(&format!("2:enospc:{}", log.display())).unwrap();
        let passed: Vec<Option<i32>> = ["open", "write", "close"]
            .map(|name| plan.point(name, Path::new("/x")).err().and_then(|error| error.raw_os_error()))
            .into();
        assert_eq!(passed, [None, Some(libc::ENOSPC), None]);
        assert_eq!(std::fs::read_to_string(log).unwrap(), "1 open /x\n2 write /x fired\n3 close /x\n");
    }

    #[test]
    fn a_plan_that_is_no_plan_is_refused() {
        for text in ["", "3", "x:eio", "3:fire"] {
            assert!(Plan::parse(text).is_none(), "{text}");
        }
        assert_eq!(Nth::parse("0:kill").unwrap().kind, Kind::Signal(Signal::SIGKILL));
    }
}
