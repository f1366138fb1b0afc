//! Ids as types of their own, so that a rank is never mistaken for a pid or an attempt.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id! {
    /// One `fit`, whatever its name: sixteen hexadecimal digits.
    RunId
}
text_id! {
    /// One machine that runs an agent.
    NodeId
}

/// A worker's place in its group, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rank(pub u32);

impl Rank {
    pub const ZERO: Rank = Rank(0);

    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One life of a run's worker group, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attempt(pub u32);

/// Names one worker process: `run/attempt/rank` in text, as in the environment of a worker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkerKey {
    pub run: RunId,
    pub attempt: Attempt,
    pub rank: Rank,
}

impl fmt::Display for WorkerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.run, self.attempt.0, self.rank.0)
    }
}

impl FromStr for WorkerKey {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.splitn(3, '/');
        let run = RunId::new(parts.next().unwrap_or_default());
        let attempt = Attempt(parts.next().unwrap_or_default().parse()?);
        let rank = Rank(parts.next().unwrap_or_default().parse()?);
        Ok(Self { run, attempt, rank })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_key_survives_its_text() {
        let key = WorkerKey { run: RunId::new("ab12"), attempt: Attempt(3), rank: Rank(7) };
        assert_eq!(key.to_string().parse::<WorkerKey>().unwrap(), key);
        assert!("ab12/x/7".parse::<WorkerKey>().is_err());
        assert!("ab12".parse::<WorkerKey>().is_err());
    }
}
