//! How long an agent that hears nothing may let its workers go on, and when a head may take it for lost.
//!
//! The agent asks with its own time; the answer gives the time back. So the agent counts from before it asked, the head from
//! when it answered, and whatever the network does the agent is always the first to be over (Gray and Cheriton, Leases, 1989).
//!
//! LEASE-1: an agent stops its workers before a head takes it for lost.
//! LEASE-2: a node that is not heard of for `UNREACHABLE` is shown, and nothing else.

use std::time::Duration;

pub const LEASE: Duration = Duration::from_secs(60);
/// An agent gives up so much earlier: time for its workers to go, and for clocks that do not run alike.
pub const MARGIN: Duration = Duration::from_secs(10);
pub const UNREACHABLE: Duration = Duration::from_secs(5);

/// The agent's side. All times are of its own clock.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    asked: Duration,
}

impl Held {
    /// Begins with the first answer, to what was asked then.
    pub fn new(asked: Duration) -> Self {
        Self { asked }
    }

    pub fn on_answer(&mut self, asked: Duration) {
        self.asked = self.asked.max(asked);
    }

    /// The workers have to go now.
    pub fn is_over(&self, now: Duration) -> bool {
        now.saturating_sub(self.asked) >= LEASE - MARGIN
    }
}

/// The head's side, for one node. All times are of its own clock.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    answered: Duration,
    heard: Duration,
    shown: bool,
}

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Unreachable,
    Back,
    Lost,
}

impl Given {
    pub fn new(now: Duration) -> Self {
        Self { answered: now, heard: now, shown: false }
    }

    /// The node was heard of, and is answered.
    pub fn on_heard(&mut self, now: Duration) -> Option<Change> {
        (self.answered, self.heard) = (now, now);
        std::mem::take(&mut self.shown).then_some(Change::Back)
    }

    pub fn look(&mut self, now: Duration) -> Option<Change> {
        if now.saturating_sub(self.answered) >= LEASE {
            return Some(Change::Lost);
        }
        let away = now.saturating_sub(self.heard) >= UNREACHABLE;
        let fresh = away && !self.shown;
        self.shown |= away;
        fresh.then_some(Change::Unreachable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn lease_1_the_agent_is_always_the_first_to_be_over() {
        // The answer to a question of second 3 may come at any time: what counts is when it was asked.
        for delay in 0..50 {
            let (mut held, mut given) = (Held::new(at(0)), Given::new(at(0)));
            given.on_heard(at(3 + delay));
            held.on_answer(at(3));
            for now in 0..200 {
                assert!(given.look(at(now)) != Some(Change::Lost) || held.is_over(at(now)), "second {now}");
            }
        }
    }

    #[test]
    fn lease_2_what_cannot_be_seen_is_shown_once_and_changes_nothing() {
        let mut given = Given::new(at(0));
        assert_eq!(given.look(at(4)), None);
        assert_eq!(given.look(at(5)), Some(Change::Unreachable));
        assert_eq!(given.look(at(30)), None);
        assert_eq!(given.on_heard(at(31)), Some(Change::Back));
        assert_eq!(given.on_heard(at(32)), None);
        assert_eq!(given.look(at(92)), Some(Change::Lost));
    }
}
