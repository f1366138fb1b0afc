//! Faults on purpose, at every call that a save makes to a disk or to a storage. For tests alone.
//!
//! `CARRIL_FAULT=<n>:<kind>[:<log file>]`, read once when the first point is passed: the n-th point of this process fails.
//! Kinds: `kill` (SIGKILL to the process itself), `stop` (SIGSTOP, so that a test can do something meanwhile), `enospc`, `eio` (that error, once). With n = 0 nothing fails and the log
//! names each point, so that a test can enumerate the calls of a save and then fail each one.
//! In the log a point is a line `<n> <name> <path>`, written before the call that it stands for; the one that failed ends in ` fired`.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::libc;
use nix::sys::signal::{Signal, raise};

/// Cleared when the first point finds that there is no plan; from then on a point is this load and nothing else.
static PERHAPS: AtomicBool = AtomicBool::new(true);
static PLAN: OnceLock<Option<Plan>> = OnceLock::new();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Signal(Signal),
    Error(i32),
}

struct Plan {
    at: u64,
    kind: Kind,
    log: Option<File>,
    passed: AtomicU64,
}

impl Plan {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ':');
        let at = parts.next()?.parse().ok()?;
        let kind = match parts.next()? {
            "kill" => Kind::Signal(Signal::SIGKILL),
            "stop" => Kind::Signal(Signal::SIGSTOP),
            "enospc" => Kind::Error(libc::ENOSPC),
            "eio" => Kind::Error(libc::EIO),
            _ => return None,
        };
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
        match self.kind {
            Kind::Error(code) if fires => Err(io::Error::from_raw_os_error(code)),
            Kind::Signal(signal) if fires => {
                let _ = raise(signal);
                Ok(())
            }
            _ => Ok(()),
        }
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

/// Stands before a call of a save. A plan that cannot be read is a mistake in a test: it ends the process.
pub(crate) fn point(name: &str, path: &Path) -> io::Result<()> {
    crash_if_due();
    if !PERHAPS.load(Ordering::Relaxed) {
        return Ok(());
    }
    let plan = PLAN.get_or_init(|| {
        let text = std::env::var("CARRIL_FAULT").ok().filter(|text| !text.is_empty())?;
        Some(Plan::parse(&text).unwrap_or_else(|| panic!("CARRIL_FAULT is `{text}`, not `<n>:<kind>[:<log file>]`")))
    });
    match plan {
        Some(plan) => plan.point(name, path),
        None => {
            PERHAPS.store(false, Ordering::Relaxed);
            Ok(())
        }
    }
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
        assert_eq!(Plan::parse("0:kill").unwrap().kind, Kind::Signal(Signal::SIGKILL));
    }
}
