//! Collectives between the ranks of a run, over memory that they share. The group is made by the first of them.

use std::sync::{Mutex, PoisonError};

/// A number that collectives carry: `f32`, `f64` or `i64`.
///
/// ```
/// fn sum<T: carril::Element>(session: &carril::Session, values: &mut [T]) -> carril::Result<()> {
///     session.all_reduce(values, carril::Op::Sum)
/// }
/// ```
pub use carril_collective::Element;
use carril_collective::{CollectiveError, Group};
use carril_types::{ErrorCode, Failure};

use crate::error::{Error, Result};
use crate::session::Session;

/// How the values of all ranks become one.
///
/// ```
/// # fn train(session: &carril::Session, gradient: &mut [f32]) -> carril::Result<()> {
/// session.all_reduce(gradient, carril::Op::Mean)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// All of them added, in the order of the ranks.
    Sum,
    /// The sum, divided by the number of ranks. Not for integers.
    Mean,
    /// The greatest. Where one is not a number, the result is none either.
    Max,
}

impl From<Op> for carril_collective::Op {
    fn from(op: Op) -> Self {
        match op {
            Op::Sum => Self::Sum,
            Op::Mean => Self::Mean,
            Op::Max => Self::Max,
        }
    }
}

/// The group of this process, once it is there.
#[derive(Default)]
pub(crate) struct Collectives(Mutex<Option<Group>>);

impl Session {
    /// Every rank has in `values` what `op` makes of the values of all of them, with the same bits on every rank. The first call makes
    /// the group.
    ///
    /// ```
    /// # fn train(session: &carril::Session) -> carril::Result<()> {
    /// let mut gradient = vec![0.5_f32; 1000];
    /// session.all_reduce(&mut gradient, carril::Op::Mean)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn all_reduce<T: Element>(&self, values: &mut [T], op: Op) -> Result<()> {
        self.in_group(|group| group.all_reduce(values, op.into()))
    }

    /// The values of all ranks, in the order of the ranks. Each gives as many.
    ///
    /// ```
    /// # fn train(session: &carril::Session, loss: f64) -> carril::Result<()> {
    /// let losses = session.all_gather(&[loss])?;
    /// assert_eq!(losses.len(), session.world_size() as usize);
    /// # Ok(())
    /// # }
    /// ```
    pub fn all_gather<T: Element>(&self, own: &[T]) -> Result<Vec<T>> {
        let mut all = own.repeat(self.world_size() as usize);
        self.in_group(|group| group.all_gather(own, &mut all))?;
        Ok(all)
    }

    /// This rank's part of what `op` makes of the values of all of them: `all` has one part for each rank, in their order.
    ///
    /// ```
    /// # fn train(session: &carril::Session) -> carril::Result<()> {
    /// let all = vec![1.0_f32; 10 * session.world_size() as usize];
    /// let own = session.reduce_scatter(&all, carril::Op::Sum)?;
    /// assert_eq!(own.len(), 10);
    /// # Ok(())
    /// # }
    /// ```
    pub fn reduce_scatter<T: Element>(&self, all: &[T], op: Op) -> Result<Vec<T>> {
        let world = self.world_size() as usize;
        if !all.len().is_multiple_of(world) {
            let message = format!("{} values cannot be parted among {world} ranks", all.len());
            return Err(Error::new(ErrorCode::InvalidConfig, message));
        }
        let mut own = all[..all.len() / world].to_vec();
        self.in_group(|group| group.reduce_scatter(all, &mut own, op.into()))?;
        Ok(own)
    }

    /// Every rank has in `values` those of rank 0. For much of it: parameters, a table. Every rank gives as many.
    ///
    /// ```
    /// # fn train(session: &carril::Session, weights: &mut [f32]) -> carril::Result<()> {
    /// session.broadcast_values(weights)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn broadcast_values<T: Element>(&self, values: &mut [T]) -> Result<()> {
        self.in_group(|group| group.broadcast(values, 0))
    }

    fn in_group<T>(&self, operate: impl FnOnce(&mut Group) -> std::result::Result<T, CollectiveError>) -> Result<T> {
        let mut group = self.collectives().0.lock().unwrap_or_else(PoisonError::into_inner);
        let group = match &mut *group {
            Some(group) => group,
            empty => empty.insert(self.join()?),
        };
        operate(group).map_err(failed)
    }

    fn join(&self) -> Result<Group> {
        if self.local_world_size() != self.world_size() {
            let message = "collectives reach the ranks of one machine only, and this run has several";
            return Err(Error::new(ErrorCode::NotAvailable, message));
        }
        let rank = self.rank() as usize;
        let mut group = if rank == 0 {
            let offer = Group::offer(self.world_size() as usize).map_err(failed)?;
            self.broadcast(&offer.address())?;
            offer.join(rank)
        } else {
            Group::join(&self.broadcast(&String::new())?, rank)
        }
        .map_err(failed)?;
        // Weak: the session has the group.
        let worker = self.worker_weakly();
        group.set_interrupt(move || worker.upgrade().is_none_or(|worker| worker.is_told()));
        Ok(group)
    }
}

fn failed(error: CollectiveError) -> Error {
    use CollectiveError as Why;
    let code = match &error {
        Why::Died { .. } | Why::GaveUp { .. } | Why::Interrupted { .. } => ErrorCode::CollectiveLost,
        Why::Left { .. } | Why::Disagree { .. } | Why::Disagreed { .. } => ErrorCode::CollectiveMismatch,
        Why::TimedOut { .. } => ErrorCode::CollectiveTimeout,
        Why::Length { .. } | Why::NoSuchRank { .. } | Why::MeanOfIntegers { .. } => ErrorCode::InvalidConfig,
        Why::Address { .. } | Why::Taken { .. } | Why::Memory(_) => ErrorCode::Internal,
    };
    let failure = Failure::new(code, error.to_string());
    match error {
        Why::Left { .. } | Why::Disagree { .. } => {
            failure.hint("every rank must call the same collectives in the same order").into()
        }
        _ => failure.into(),
    }
}
