//! Processes as the agent's own: waited for by descriptor, never by a pid that may have been used again.

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use carril_types::ExitStatus;
use nix::libc;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub(crate) fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes a pid and flags and returns a new descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Where there are too many files open, one may be free in a moment: that a process is watched must not depend on it.
async fn patient_pidfd(pid: u32) -> io::Result<OwnedFd> {
    loop {
        match pidfd(pid) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            opened => return opened,
        }
    }
}

/// Waits until the process of this descriptor has ended, child or not.
pub(crate) async fn ended(fd: OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is owned, and is closed only after it has left the reactor.
    let waiting = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE)? };
    let _ = waiting.readable().await?;
    Ok(waiting.into_inner())
}

/// Becomes ready when the process with this pid has ended. An error means that there is none now.
pub fn process_end(pid: u32) -> io::Result<impl Future<Output = ()> + Send> {
    let fd = pidfd(pid)?;
    Ok(async move { drop(ended(fd).await) })
}

/// How much sooner than the agent a worker is ended by the kernel for its memory, in thousandths of all memory.
const SOONER: i32 = 100;

/// Where memory runs out the kernel may end several processes: a worker costs its run a restart, the agent costs every run.
pub(crate) fn end_sooner_for_memory(pid: u32) {
    let path = format!("/proc/{pid}/oom_score_adj");
    let inherited: i32 = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let _ = fs::write(path, (inherited + SOONER).min(1000).to_string());
}

/// Whether the child was stopped by a signal or goes on since this was last asked.
pub(crate) fn halted(pid: u32) -> Option<bool> {
    let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WCONTINUED | WaitPidFlag::WNOHANG;
    match waitid(Id::Pid(Pid::from_raw(pid as i32)), flags) {
        Ok(WaitStatus::Stopped(..)) => Some(true),
        Ok(WaitStatus::Continued(_)) => Some(false),
        Ok(_) | Err(_) => None,
    }
}

/// Whether a process has begun to end, or is gone. The kernel closes its connections only after that.
pub(crate) fn is_ending(pid: u32) -> bool {
    /// `PF_EXITING` of the kernel.
    const EXITING: u64 = 0x4;
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    // The name in parentheses may hold anything, so the fields are counted after it.
    let mut fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let dead = matches!(fields.next(), Some("Z" | "X"));
    dead || fields.nth(5).and_then(|flags| flags.parse::<u64>().ok()).is_none_or(|flags| flags & EXITING != 0)
}

/// Waits for a child and collects how it ended, and the most bytes of memory that it had.
pub(crate) async fn exit_of_child(pid: u32) -> (ExitStatus, u64) {
    let collected = async {
        // Until it is collected its pid is nobody else's.
        drop(ended(patient_pidfd(pid).await?).await?);
        collect(Pid::from_raw(pid as i32))
    };
    match collected.await {
        Ok((status, peak)) if libc::WIFEXITED(status) => (ExitStatus::Code(libc::WEXITSTATUS(status)), peak),
        // By its number: a real-time signal has no name.
        Ok((status, peak)) if libc::WIFSIGNALED(status) => (ExitStatus::Signal(libc::WTERMSIG(status)), peak),
        // Somebody else has collected it: that it is gone is all that can be known.
        Ok(_) | Err(_) => (ExitStatus::Code(-1), 0),
    }
}

/// How the child ended, as the kernel writes it, and the most memory that it had.
fn collect(child: Pid) -> io::Result<(libc::c_int, u64)> {
    let mut status = 0;
    // SAFETY: a structure of numbers, for which zeros are a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both places are there as long as the call lasts.
    if unsafe { libc::wait4(child.as_raw(), &mut status, 0, &mut usage) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((status, usage.ru_maxrss as u64 * 1024))
}
