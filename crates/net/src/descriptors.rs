//! How many files a process may have open at once, and what to do where that is too few.
//!
//! A head has a few files per worker, and a soft limit of 1024 is that of programs that call `select`, which it does not: it
//! raises its own to the hard limit. What it starts gets the user's back, because a user's program may call `select`.

use std::sync::OnceLock;

use carril_types::{ErrorCode, Failure};
use nix::libc::{RLIMIT_NOFILE, rlimit, setrlimit};
use nix::sys::resource::{Resource, getrlimit};

/// What a driver and its head cannot do without, whatever they run.
const LEAST: u64 = 64;
/// What `select` can handle: a driver's own limit is raised up to here.
const SELECT: u64 = 1_024;
/// The user's limits, before they were raised.
static BEFORE: OnceLock<(u64, u64)> = OnceLock::new();

/// The soft limit of this process.
pub fn descriptor_limit() -> Option<u64> {
    getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| soft)
}

/// For a head: as many as the system allows.
pub fn raise_descriptor_limit() -> Result<(), Failure> {
    raise_to(u64::MAX)
}

/// For a driver, which is the user's process: as many as harm nobody.
pub fn raise_driver_limit() -> Result<(), Failure> {
    raise_to(SELECT)
}

fn raise_to(wanted: u64) -> Result<(), Failure> {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    if hard < LEAST {
        return Err(too_few(&format!("carril needs {LEAST} at least"), hard));
    }
    let _ = BEFORE.set((soft, hard));
    let raised = wanted.min(hard);
    if soft < raised {
        // Where it is refused, the user's own limit has to do.
        let _ = set(raised, hard);
    }
    Ok(())
}

/// For a new process between fork and exec: the user's own limit. Makes one system call and nothing else.
pub fn give_descriptor_limit_back() {
    if let Some((soft, hard)) = BEFORE.get() {
        let _ = set(*soft, *hard);
    }
}

fn set(soft: u64, hard: u64) -> bool {
    let limit = rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: the structure is there as long as the call lasts.
    unsafe { setrlimit(RLIMIT_NOFILE, &limit) == 0 }
}

/// `what` is too much for that limit.
pub fn too_few(what: &str, limit: u64) -> Failure {
    let message = format!("too many open files: {what}, and `ulimit -n` allows {limit}");
    Failure::new(ErrorCode::PlacementImpossible, message)
        .hint("raise the limit before the script is started: `ulimit -n 65536`")
        .hint("where that is refused it is the hard limit: `LimitNOFILE=` of a service, `/etc/security/limits.conf`")
}
