//! Asks the head after ranks that do not read their part of a data set.

use std::fmt;
use std::sync::Arc;

use carril_data::{Asked, Found, Watch};
use carril_worker::{DataWait, DataWaitEnd, Session};

pub struct Watcher(pub Arc<Session>);

impl fmt::Debug for Watcher {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Watcher")
    }
}

impl Watch for Watcher {
    fn ask(&self, what: &str, ranks: &[usize]) -> Option<Box<dyn Asked>> {
        self.0.wait_for_data(what, ranks).map(|wait| Box::new(Wait(wait)) as Box<dyn Asked>)
    }
}

struct Wait(DataWait);

impl Asked for Wait {
    fn found(&mut self) -> Option<Found> {
        Some(match self.0.end()? {
            DataWaitEnd::Returned(ranks) => Found::Returned(ranks),
            DataWaitEnd::Hopeless(failure) => Found::Hopeless(failure),
        })
    }
}
