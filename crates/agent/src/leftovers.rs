//! What a worker leaves behind: children in its session, and orphans that the kernel hands to the agent.
//!
//! A child that put itself into a session of its own becomes a child of the agent when its parent dies, because the agent
//! is a subreaper. It is told apart by the environment it was executed with, where it was executed; one that was only
//! forked has none of its own and is taken for the worker's whose death brought it here.

use std::collections::BTreeSet;
use std::fs;

use carril_types::WorkerKey;
use nix::sys::signal::Signal;

use crate::process::{reap, send_signal};

/// A process that keeps forking while it is hunted is given up after so many rounds.
const ROUNDS: usize = 50;

struct Process {
    pid: u32,
    parent: u32,
    session: u32,
    zombie: bool,
}

/// Kills what belongs to the worker whose session is `session`. `known` are the agent's own children. While workers are
/// `starting`, a child that only forked may be one of them, and is let be.
pub(crate) fn kill_leftovers(key: &WorkerKey, session: u32, known: &BTreeSet<u32>, starting: bool) {
    let agent = std::process::id();
    for _ in 0..ROUNDS {
        let mut found = false;
        for process in processes() {
            let orphan = process.parent == agent && !known.contains(&process.pid);
            if orphan && process.zombie {
                reap(process.pid);
                continue;
            }
            let of_session = process.session == session && process.pid != agent;
            if process.zombie || !(of_session || (orphan && belongs(&process, key, known, starting))) {
                continue;
            }
            found = true;
            send_signal(process.pid, Signal::SIGKILL);
        }
        if !found {
            return;
        }
        std::thread::yield_now();
    }
}

fn belongs(process: &Process, key: &WorkerKey, known: &BTreeSet<u32>, starting: bool) -> bool {
    // One that stayed in the session of a worker that lives is that worker's affair.
    if known.contains(&process.session) {
        return false;
    }
    let environment = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
    let owner = environment
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(b"CARRIL_WORKER=".as_slice()))
        .and_then(|value| std::str::from_utf8(value).ok());
    owner.map_or(!starting, |owner| owner == key.to_string())
}

/// Kills every child of this process, and the orphans that this brings, until there is none: the agent is going.
pub fn kill_everything() {
    let agent = std::process::id();
    for _ in 0..ROUNDS {
        let mut alive = false;
        for process in processes().into_iter().filter(|process| process.parent == agent) {
            alive |= !process.zombie;
            send_signal(process.pid, Signal::SIGKILL);
            reap(process.pid);
        }
        if !alive {
            return;
        }
        std::thread::yield_now();
    }
}

/// Collects orphans that ended by themselves.
pub(crate) fn reap_orphans(known: &BTreeSet<u32>) {
    let agent = std::process::id();
    for process in processes().into_iter().filter(|p| p.zombie && p.parent == agent && !known.contains(&p.pid)) {
        reap(process.pid);
    }
}

fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let parse = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let zombie = matches!(fields.next()?, "Z" | "X");
        let parent = fields.next()?.parse().ok()?;
        let session = fields.nth(1)?.parse().ok()?;
        Some(Process { pid, parent, session, zombie })
    };
    entries.flatten().filter_map(|entry| parse(entry.file_name().to_str()?.parse().ok()?)).collect()
}
