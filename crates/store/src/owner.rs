//! Who runs a run: a process on a host since a moment, so that a dead owner is never mistaken for a live one.

use std::fs;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub host: String,
    /// Differs after every reboot.
    pub boot: String,
    pub pid: u32,
    /// In clock ticks since the boot: a pid that is used again has another.
    pub start: u64,
}

impl Owner {
    pub fn this_process() -> Self {
        let pid = std::process::id();
        Self { host: hostname(), boot: boot_id(), pid, start: start_time(pid).unwrap_or(0) }
    }

    /// Whether the owner is alive; `None` when that cannot be seen from this host.
    pub fn is_alive(&self) -> Option<bool> {
        if self.host != hostname() {
            return None;
        }
        Some(self.boot == boot_id() && start_time(self.pid) == Some(self.start))
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
}
