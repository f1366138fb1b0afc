//! Who is asked when a rank waits long for another in an epoch: whoever sees what all ranks wait for, which the board does not.

use std::fmt::Debug;

use carril_types::Failure;

/// What is known of a wait that does not end.
#[derive(Clone, Debug)]
pub enum Found {
    /// These ranks have returned, and read nothing any more.
    Returned(Vec<usize>),
    /// No rank can go on: each waits for another.
    Hopeless(Box<Failure>),
}

/// One for each worker.
pub trait Watch: Debug + Send + Sync {
    /// This rank waits for `what` of these ranks. Nothing where the thread that waits is not the one that the others wait for.
    fn ask(&self, what: &str, ranks: &[usize]) -> Option<Box<dyn Asked>>;
}

/// A wait that somebody knows of, until it is dropped.
pub trait Asked: Send {
    /// What was found, once.
    fn found(&mut self) -> Option<Found>;
}
