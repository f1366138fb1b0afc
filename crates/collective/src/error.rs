//! Why a collective did not come to its end.

use std::fmt;
use std::io;
use std::time::Duration;

use thiserror::Error;

/// One rank, as an error names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub rank: usize,
    /// 0 while the rank has not joined.
    pub pid: u32,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            0 => write!(f, "rank {} (not joined)", self.rank),
            pid => write!(f, "rank {} (pid {pid})", self.rank),
        }
    }
}

#[derive(Debug, Error)]
pub enum CollectiveError {
    #[error("{member} died during {during}")]
    Died { member: Member, during: &'static str },
    #[error("{member} left the group, and {during} waits for it")]
    Left { member: Member, during: &'static str },
    #[error("{member} gave up, and {during} waits for it")]
    GaveUp { member: Member, during: &'static str },
    #[error("the ranks disagree: {}", asked.join("; "))]
    Disagree { asked: Vec<String> },
    #[error("the group has failed before: {during} cannot run, because the ranks disagreed earlier")]
    Disagreed { during: &'static str },
    #[error("{during} waited {} s for {}", waited.as_secs_f64(), listed(missing))]
    TimedOut { during: &'static str, waited: Duration, missing: Vec<Member> },
    #[error("{during} was interrupted")]
    Interrupted { during: &'static str },
    #[error("{during} was given {given} values where {wanted} belong")]
    Length { during: &'static str, given: usize, wanted: usize },
    #[error("rank {rank} is not in a group of {world_size}")]
    NoSuchRank { rank: usize, world_size: usize },
    #[error("integers have no mean: use the sum, or give floats to {during}")]
    MeanOfIntegers { during: &'static str },
    #[error("`{address}` is no address of a group: {reason}")]
    Address { address: String, reason: String },
    #[error("rank {rank} of the group has been taken by pid {pid}")]
    Taken { rank: usize, pid: u32 },
    #[error("the shared memory of the group cannot be had: {0}")]
    Memory(#[from] io::Error),
}

fn listed(members: &[Member]) -> String {
    members.iter().map(Member::to_string).collect::<Vec<_>>().join(", ")
}
