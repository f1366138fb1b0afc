//! Steps: how ranks go on together, wait for each other, and learn that one of them will not come.
//!
//! Every operation is a number of steps, the same for every rank. In a step a rank writes into its slot for it and
//! publishes the step; the others read. A wait spins for a moment and then sleeps on the counter of the rank that is behind,
//! in short naps, between which it looks whether that rank is still there.
//!
//! STEP-1: what was written into a slot is read only by those who have seen the step published.
//! STEP-2: a rank that has published a step reads slots of the three steps before it and of no older one, so that a slot is
//!   free again when every rank has published the third step after.
//! STEP-3: the first cause is the one that every rank tells: it is written down once, and what comes after it is not.
//! STEP-4: a rank that has published all that a wait is for may be gone: only who is behind is asked after.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, fence};
use std::time::{Duration, Instant};

use nix::libc;

use crate::error::{CollectiveError, Member};
use crate::memory::{Memory, SLOTS, start_time};

/// As Gloo's.
const TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Longer than a step takes, shorter than what another process would make of the core.
const SPIN: Duration = Duration::from_micros(50);
/// With more ranks than cores the one that is waited for may need this very core.
const YIELDS: usize = 16;
/// So late a death is noticed at most.
const NAP: Duration = Duration::from_millis(10);
/// How long Ctrl-C may go unnoticed.
const POLL: Duration = Duration::from_millis(100);

const JOINED: u32 = 1;
const LEFT: u32 = 2;

/// Why a group has failed, as it is written down for all ranks: a kind and a rank.
#[derive(Clone, Copy)]
enum Cause {
    Died(usize),
    Left(usize),
    GaveUp(usize),
    Disagreed,
}

impl Cause {
    fn to_word(self) -> u32 {
        let (kind, rank) = match self {
            Cause::Died(rank) => (1, rank),
            Cause::Left(rank) => (2, rank),
            Cause::GaveUp(rank) => (3, rank),
            Cause::Disagreed => (4, 0),
        };
        kind << 24 | rank as u32
    }

    fn from_word(word: u32) -> Option<Self> {
        let rank = (word & 0x00ff_ffff) as usize;
        match word >> 24 {
            1 => Some(Cause::Died(rank)),
            2 => Some(Cause::Left(rank)),
            3 => Some(Cause::GaveUp(rank)),
            4 => Some(Cause::Disagreed),
            _ => None,
        }
    }
}

/// This rank among the others.
pub struct Steps {
    pub memory: Memory,
    pub rank: usize,
    /// The next step; the count goes on from operation to operation.
    pub next: u32,
    pub timeout: Duration,
    /// Asked while it waits; true ends the wait.
    pub interrupt: Option<Box<dyn FnMut() -> bool + Send>>,
    has_own_core: bool,
    // Opened when a rank is first waited for long.
    watched: Vec<Option<OwnedFd>>,
}

impl Steps {
    pub fn join(memory: Memory, rank: usize) -> Result<Self, CollectiveError> {
        let world_size = memory.world_size();
        if rank >= world_size {
            return Err(CollectiveError::NoSuchRank { rank, world_size });
        }
        let (block, pid) = (memory.block(rank), std::process::id());
        if let Err(taken) = block.pid.compare_exchange(0, pid, SeqCst, SeqCst) {
            return Err(CollectiveError::Taken { rank, pid: taken });
        }
        block.start_time.store(start_time(pid).unwrap_or_default(), Relaxed);
        block.state.store(JOINED, SeqCst);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let watched = (0..world_size).map(|_| None).collect();
        let has_own_core = world_size <= cores;
        Ok(Self { memory, rank, next: 0, timeout: TIMEOUT, interrupt: None, has_own_core, watched })
    }

    /// Waits until this rank's slot for a step is free (STEP-2).
    pub fn wait_for_room(&mut self, step: u32, during: &'static str) -> Result<(), CollectiveError> {
        self.wait(step.wrapping_sub(SLOTS as u32).wrapping_add(3), during)
    }

    /// Shows the others that this rank has made a step.
    pub fn publish(&self, step: u32) {
        let own = self.memory.block(self.rank);
        own.published.store(step.wrapping_add(1), SeqCst);
        if own.sleepers.load(SeqCst) > 0 {
            wake(&own.published);
        }
    }

    /// Waits until every rank has published a step.
    pub fn wait(&mut self, step: u32, during: &'static str) -> Result<(), CollectiveError> {
        for rank in 0..self.memory.world_size() {
            if !self.has_published(rank, step) {
                self.wait_for(rank, step, during)?;
            }
        }
        Ok(())
    }

    fn has_published(&self, rank: usize, step: u32) -> bool {
        // This rank has made its steps up to the one that it asks about, published or not.
        rank == self.rank || is_past(self.memory.block(rank).published.load(Acquire), step)
    }

    fn wait_for(&mut self, rank: usize, step: u32, during: &'static str) -> Result<(), CollectiveError> {
        let began = Instant::now();
        if self.has_own_core {
            while began.elapsed() < SPIN {
                for _ in 0..32 {
                    if self.has_published(rank, step) {
                        return Ok(());
                    }
                    std::hint::spin_loop();
                }
            }
        } else {
            for _ in 0..YIELDS {
                std::thread::yield_now();
                if self.has_published(rank, step) {
                    return Ok(());
                }
            }
        }
        let mut asked = began;
        loop {
            self.nap(rank, step);
            if self.has_published(rank, step) {
                return Ok(());
            }
            self.look_after(step, during)?;
            if began.elapsed() >= self.timeout {
                let missing = (0..self.memory.world_size()).filter(|rank| !self.has_published(*rank, step));
                let missing = missing.map(|rank| self.member(rank)).collect();
                self.fail(Cause::GaveUp(self.rank));
                return Err(CollectiveError::TimedOut { during, waited: self.timeout, missing });
            }
            if asked.elapsed() >= POLL {
                asked = Instant::now();
                if self.interrupt.as_mut().is_some_and(|interrupt| interrupt()) {
                    self.fail(Cause::GaveUp(self.rank));
                    return Err(CollectiveError::Interrupted { during });
                }
            }
        }
    }

    /// Sleeps until the rank publishes something, for a short time at most.
    fn nap(&self, rank: usize, step: u32) {
        let block = self.memory.block(rank);
        block.sleepers.fetch_add(1, SeqCst);
        let seen = block.published.load(SeqCst);
        if !is_past(seen, step) {
            let nap = libc::timespec { tv_sec: 0, tv_nsec: NAP.as_nanos() as libc::c_long };
            // SAFETY: the word lies in the mapping; every outcome is followed by another look at it.
            unsafe { libc::syscall(libc::SYS_futex, block.published.as_ptr(), libc::FUTEX_WAIT, seen, &raw const nap) };
        }
        block.sleepers.fetch_sub(1, SeqCst);
    }

    /// An error if a rank that is behind will not come.
    fn look_after(&mut self, step: u32, during: &'static str) -> Result<(), CollectiveError> {
        self.check(during)?;
        for rank in 0..self.memory.world_size() {
            if self.has_published(rank, step) {
                continue;
            }
            let state = self.memory.block(rank).state.load(SeqCst);
            let cause = match state {
                JOINED if self.is_dead(rank) => Cause::Died(rank),
                LEFT => Cause::Left(rank),
                _ => continue,
            };
            // What it did last may have been this very step.
            if !self.has_published(rank, step) {
                self.fail(cause);
                return self.check(during);
            }
        }
        Ok(())
    }

    /// An error if the group has failed.
    pub fn check(&self, during: &'static str) -> Result<(), CollectiveError> {
        let Some(cause) = Cause::from_word(self.memory.header().broken.load(SeqCst)) else { return Ok(()) };
        Err(match cause {
            Cause::Died(rank) => CollectiveError::Died { member: self.member(rank), during },
            Cause::Left(rank) => CollectiveError::Left { member: self.member(rank), during },
            Cause::GaveUp(rank) => CollectiveError::GaveUp { member: self.member(rank), during },
            Cause::Disagreed => CollectiveError::Disagreed { during },
        })
    }

    /// The ranks do not want the same: nothing can be made of the steps that follow.
    pub fn disagree(&self, asked: Vec<String>) -> CollectiveError {
        self.fail(Cause::Disagreed);
        CollectiveError::Disagree { asked }
    }

    /// Writes the first cause down and wakes whoever sleeps (STEP-3).
    fn fail(&self, cause: Cause) {
        let _ = self.memory.header().broken.compare_exchange(0, cause.to_word(), SeqCst, SeqCst);
        (0..self.memory.world_size()).for_each(|rank| wake(&self.memory.block(rank).published));
    }

    pub fn member(&self, rank: usize) -> Member {
        Member { rank, pid: self.memory.block(rank).pid.load(Relaxed) }
    }

    fn is_dead(&mut self, rank: usize) -> bool {
        let block = self.memory.block(rank);
        let (pid, started) = (block.pid.load(Relaxed), block.start_time.load(Relaxed));
        let watched = &mut self.watched[rank];
        if watched.is_none() {
            // SAFETY: a plain system call; the result is checked.
            let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
            if descriptor >= 0 {
                // SAFETY: it was just made and nobody else has it.
                *watched = Some(unsafe { OwnedFd::from_raw_fd(descriptor as i32) });
            }
            // Also where it cannot be watched: the number is another's, or nobody's.
            if start_time(pid) != Some(started) {
                return true;
            }
        }
        let Some(watched) = watched else { return false };
        let mut poll = libc::pollfd { fd: watched.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor, and no waiting.
        unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        let own = self.memory.block(self.rank);
        own.state.store(LEFT, SeqCst);
        fence(SeqCst);
        wake(&own.published);
    }
}

/// Whether a counter of published steps is beyond a step. Both go round.
fn is_past(published: u32, step: u32) -> bool {
    published.wrapping_sub(step.wrapping_add(1)) as i32 >= 0
}

fn wake(word: &AtomicU32) {
    // SAFETY: the word lies in the mapping.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
