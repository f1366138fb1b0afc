//! A wait for other ranks to read a data set. The rank looks itself whether they have; the head, which knows what all ranks wait for, says
//! when they never will.

use std::sync::Arc;

use carril_types::{ErrorCode, Failure};
use tokio::sync::oneshot::{self, Receiver};

use crate::session::Session;

/// The wait is known to the head until this is dropped.
pub struct DataWait {
    session: Arc<Session>,
    sequence: u64,
    answer: Receiver<Result<Vec<u8>, Failure>>,
    is_answered: bool,
}

/// What the head has found.
#[derive(Clone, Debug)]
pub enum DataWaitEnd {
    /// These ranks have returned.
    Returned(Vec<usize>),
    /// No rank can go on.
    Hopeless(Box<Failure>),
}

impl DataWait {
    pub(crate) fn begin(session: Arc<Session>, sequence: u64, what: &str, ranks: &[usize]) -> Self {
        let ranks: Vec<String> = ranks.iter().map(usize::to_string).collect();
        let asked = session.wait("data", sequence, format!("{} {what}", ranks.join(",")).into_bytes());
        let (sender, answer) = oneshot::channel();
        session.runtime().spawn(async move {
            let _ = sender.send(asked.await);
        });
        Self { session, sequence, answer, is_answered: false }
    }

    /// Once. An agent that is lost ends this process anyhow.
    pub fn end(&mut self) -> Option<DataWaitEnd> {
        let answer = self.answer.try_recv().ok()?;
        self.is_answered = true;
        match answer {
            Ok(ranks) => {
                let ranks = String::from_utf8_lossy(&ranks);
                Some(DataWaitEnd::Returned(ranks.split(',').filter_map(|rank| rank.parse().ok()).collect()))
            }
            Err(failure) if failure.code == ErrorCode::CollectiveMismatch => {
                Some(DataWaitEnd::Hopeless(Box::new(failure)))
            }
            Err(_) => None,
        }
    }
}

impl Drop for DataWait {
    fn drop(&mut self) {
        if !self.is_answered {
            // It may arrive late: what is proven meanwhile goes to nobody.
            self.session.runtime().spawn(self.session.wait("data", self.sequence, Vec::new()));
        }
    }
}
