//! Processes as the kernel shows them, and the ending of those that a worker left behind.
//!
//! Used from both sides: by the agent when a worker is gone, and by a worker that has lost its agent.
//!
//! A child that put itself into a session of its own becomes a child of the agent when its parent dies, because the agent
//! is a subreaper. It is told apart by the environment it was executed with, where it was executed; one that was only
//! forked has none of its own and is taken for the worker's whose death brought it here.
//!
//! PROCESS-1: a process in the agent's own session is no worker's, and is left alone: workers have sessions of their own.
//! PROCESS-2: a child that is being started is waited for by whoever starts it, and by nobody else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use carril_types::WorkerKey;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// A process that keeps forking while it is hunted is given up after so many rounds.
const ROUNDS: usize = 50;

/// How many children are being started at the moment.
static SPAWNING: AtomicUsize = AtomicUsize::new(0);

#[derive(Clone, Copy, Debug)]
struct Process {
    pid: u32,
    parent: u32,
    session: u32,
    zombie: bool,
}

/// Starts a child. One whose program cannot be executed ends at once, and the standard library insists on being the one
/// that collects it.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    SPAWNING.fetch_add(1, Ordering::SeqCst);
    let child = command.spawn();
    SPAWNING.fetch_sub(1, Ordering::SeqCst);
    child
}

/// This process is killed when the thread ends that has forked it; at once, where that has ended before.
pub fn end_with_parent(parent: u32) {
    // SAFETY: sets an attribute of this process.
    unsafe { nix::libc::prctl(nix::libc::PR_SET_PDEATHSIG, nix::libc::SIGKILL) };
    if nix::unistd::getppid().as_raw() as u32 != parent {
        send_signal(std::process::id(), Signal::SIGKILL);
    }
}

pub fn send_signal(pid: u32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid as i32), signal);
}

/// For the agent: kills what belongs to the worker whose session is `session`. `known` are the agent's own children. While
/// workers are `starting`, a child that only forked may be one of them, and is let be.
pub fn kill_leftovers(key: &WorkerKey, session: u32, known: &BTreeSet<u32>, starting: bool) {
    let agent = std::process::id();
    repeat(|process| {
        let orphan = is_orphan(process, known);
        if orphan && process.zombie && !starting {
            reap(process.pid);
        }
        let of_session = process.session == session && process.pid != agent;
        of_session || (orphan && is_left_by(process, key, known, starting))
    });
}

/// For a worker whose agent is gone: kills everything that it has started, and leaves only itself.
pub fn kill_own_descendants(key: &WorkerKey) {
    let own = std::process::id();
    repeat(|process| {
        if process.pid == own {
            return false;
        }
        process.session == own
            || is_below(process.pid, own)
            || owner_of(process.pid).as_deref() == Some(&key.to_string())
    });
}

/// For an agent that is going: kills every child of this process, and the orphans that this brings, until there is none.
pub fn kill_everything() {
    let own = std::process::id();
    repeat(|process| {
        let child = process.parent == own;
        if child && process.zombie {
            reap(process.pid);
        }
        child
    });
    processes().iter().filter(|process| process.zombie && process.parent == own).for_each(|process| reap(process.pid));
}

/// Collects children that ended by themselves and are nobody's. Not for while workers are starting: one of them may have
/// ended before it is known.
pub fn reap_orphans(known: &BTreeSet<u32>) {
    for process in processes().into_iter().filter(|process| process.zombie && is_orphan(process, known)) {
        reap(process.pid);
    }
}

/// A child of this process that it has not started for itself.
fn is_orphan(process: &Process, known: &BTreeSet<u32>) -> bool {
    let own_session = nix::unistd::getsid(None).map_or(0, |session| session.as_raw() as u32);
    process.parent == std::process::id() && !known.contains(&process.pid) && process.session != own_session
}

/// Kills all that `is_meant` says, and what they may have forked meanwhile, until a round finds nothing alive.
fn repeat(mut is_meant: impl FnMut(&Process) -> bool) {
    for _ in 0..ROUNDS {
        let mut found = false;
        for process in processes() {
            if is_meant(&process) && !process.zombie {
                found = true;
                send_signal(process.pid, Signal::SIGKILL);
            }
        }
        if !found {
            return;
        }
        std::thread::yield_now();
    }
}

fn is_left_by(process: &Process, key: &WorkerKey, known: &BTreeSet<u32>, starting: bool) -> bool {
    // One that stayed in the session of a worker that lives is that worker's affair.
    if known.contains(&process.session) {
        return false;
    }
    owner_of(process.pid).map_or(!starting, |owner| owner == key.to_string())
}

/// The worker in whose environment the process was executed.
fn owner_of(pid: u32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let value =
        environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(b"CARRIL_WORKER=".as_slice()))?;
    String::from_utf8(value.to_vec()).ok()
}

fn is_below(pid: u32, ancestor: u32) -> bool {
    let mut current = pid;
    // Deeper than any tree of processes: a loop that a race may show ends here.
    for _ in 0..64 {
        match look_at(current) {
            Some(process) if process.parent == ancestor => return true,
            Some(process) if process.parent > 1 => current = process.parent,
            _ => return false,
        }
    }
    false
}

fn reap(pid: u32) {
    // Asked after the process was seen: what is being started now was not there then, or is let be.
    if SPAWNING.load(Ordering::SeqCst) > 0 {
        return;
    }
    let _ = waitpid(Pid::from_raw(pid as i32), Some(WaitPidFlag::WNOHANG));
}

/// What the processes of a session have used: CPU time, and memory now, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    pub time: Duration,
    pub memory: u64,
}

/// What each of these sessions has used. Those of it that have ended are counted where their parent has collected them.
pub fn sessions(wanted: &BTreeSet<u32>) -> BTreeMap<u32, Used> {
    // SAFETY: both only answer a question.
    let (ticks, page) =
        unsafe { (nix::libc::sysconf(nix::libc::_SC_CLK_TCK), nix::libc::sysconf(nix::libc::_SC_PAGESIZE)) };
    let mut all: BTreeMap<u32, Used> = BTreeMap::new();
    let Ok(entries) = fs::read_dir("/proc") else { return all };
    for pid in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let Some((_, fields)) = stat.rsplit_once(')') else { continue };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        // As proc(5) counts them, without the first two: session, utime, stime, cutime, cstime, rss.
        let Some(session) = number(3).map(|session| session as u32).filter(|session| wanted.contains(session)) else {
            continue;
        };
        let spent: u64 = (11..15).filter_map(number).sum();
        let used = all.entry(session).or_default();
        used.time += Duration::from_millis(spent * 1000 / ticks.max(1) as u64);
        used.memory += number(21).unwrap_or(0) * page.max(0) as u64;
    }
    all
}

fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| look_at(entry.file_name().to_str()?.parse().ok()?)).collect()
}

fn look_at(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so the fields are counted after it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let zombie = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(Process { pid, parent, session, zombie })
}
