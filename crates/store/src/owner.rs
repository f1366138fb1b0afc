//! Who runs a run: a process on a host since a moment, so that a dead owner is never mistaken for a live one.

use std::fs;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};

/// An owner whose driver has gone ends within a second; a machine that is short of time takes longer. In milliseconds.
const PATIENCE: u16 = 20_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub host: String,
    /// Differs after every reboot.
    pub boot: String,
    pub pid: u32,
    /// In clock ticks since the boot: a pid that is used again has another.
    pub start: u64,
    /// The process with which the owner ends, with its start: the driver of a private head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<(u32, u64)>,
}

impl Owner {
    pub fn this_process() -> Self {
        let pid = std::process::id();
        Self { host: hostname(), boot: boot_id(), pid, start: start_time(pid).unwrap_or(0), driver: None }
    }

    /// It ends with the process of this pid.
    pub fn ends_with(self, driver: u32) -> Self {
        Self { driver: Some((driver, start_time(driver).unwrap_or(0))), ..self }
    }

    /// Whether the owner is alive; `None` when that cannot be seen from this host.
    pub fn is_alive(&self) -> Option<bool> {
        if self.host != hostname() {
            return None;
        }
        Some(self.boot == boot_id() && start_time(self.pid) == Some(self.start))
    }

    /// Whether it is still there, and about to end: its driver has gone.
    pub fn is_ending(&self) -> bool {
        let gone = |(pid, start): (u32, u64)| start_time(pid) != Some(start);
        self.driver.is_some_and(gone) && self.is_alive() == Some(true)
    }

    /// Waits for the end of one that is ending: what it had is free then.
    pub fn wait_for_end(&self) {
        // SAFETY: the call takes a pid and flags and returns a new descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, self.pid as libc::pid_t, 0) };
        if fd < 0 {
            return;
        }
        // SAFETY: the descriptor is new and ours alone.
        let process = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        // The pid may have been another's by then.
        if self.is_ending() {
            // An interrupted wait is a short one: who goes on looks at the owner again.
            let _ = poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], PollTimeout::from(PATIENCE));
        }
    }
}

pub(crate) fn hostname() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// The start time of a process that is not a zombie.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so the fields are counted after it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if fields.first() == Some(&"Z") {
        return None;
    }
    fields.get(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_that_was_used_again_is_not_the_owner() {
        let me = Owner::this_process();
        assert_eq!(me.is_alive(), Some(true));
        assert_eq!(Owner { start: me.start + 1, ..me.clone() }.is_alive(), Some(false));
        assert_eq!(Owner { boot: "other".into(), ..me.clone() }.is_alive(), Some(false));
        assert_eq!(Owner { host: "elsewhere".into(), ..me }.is_alive(), None);
    }

    #[test]
    fn it_is_ending_when_its_driver_has_gone_and_it_has_not() {
        let me = Owner::this_process();
        let (pid, start) = (me.pid, me.start);
        let gone = Owner { driver: Some((pid, start + 1)), ..me.clone() };
        assert!(gone.is_ending());
        assert!(!Owner { start: start + 1, ..gone }.is_ending(), "it has ended");
        assert!(!me.clone().ends_with(pid).is_ending(), "its driver is there");
        assert!(!me.is_ending(), "it has none");
    }
}
