//! Collectives between the processes of one host, over shared memory: barrier, broadcast, all-reduce, all-gather,
//! reduce-scatter of `f32`, `f64` and `i64`.
//!
//! One process offers a group and tells the others its address; each joins it under its rank. Results have the same bits
//! for the same number of ranks: values are reduced in the order of the ranks. A rank that dies, leaves, or asks for
//! something else is named to all the others. After an error the group is of no further use.
//!
//! It does not reach another host, and it starts no thread: the callers do the work.

mod element;
mod error;
mod memory;
mod operation;
mod steps;

use std::time::Duration;

pub use element::{Element, Op};
pub use error::{CollectiveError, Member};

use memory::Memory;
use operation::{AllGather, AllReduce, Asked, Barrier, Broadcast, Kind, ReduceScatter, run};
use steps::Steps;

/// A slot has a cache line for every rank.
const MOST_RANKS: usize = 1024;

/// A group that others can join, and that this process has not joined yet.
pub struct Offer {
    memory: Memory,
}

impl Offer {
    /// How other processes of this user and host reach the group, for as long as this process has it.
    pub fn address(&self) -> String {
        self.memory.address()
    }

    /// Joins it; for the process that offered it.
    pub fn join(self, rank: usize) -> Result<Group, CollectiveError> {
        Ok(Group { steps: Steps::join(self.memory, rank)? })
    }
}

/// This process among the others. Every rank must call the same operations in the same order.
pub struct Group {
    steps: Steps,
}

impl Group {
    /// Makes a group of so many ranks.
    pub fn offer(world_size: usize) -> Result<Offer, CollectiveError> {
        if world_size == 0 || world_size > MOST_RANKS {
            return Err(CollectiveError::NoSuchRank { rank: MOST_RANKS, world_size });
        }
        Ok(Offer { memory: Memory::create(world_size)? })
    }

    /// Joins a group that another process offers. It waits for nobody: the first operation does.
    pub fn join(address: &str, rank: usize) -> Result<Self, CollectiveError> {
        Ok(Self { steps: Steps::join(Memory::open(address)?, rank)? })
    }

    pub fn rank(&self) -> usize {
        self.steps.rank
    }

    pub fn world_size(&self) -> usize {
        self.steps.memory.world_size()
    }

    /// How long an operation waits for ranks that do not come: half an hour, unless it is set.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.steps.timeout = timeout;
    }

    /// Asked every 100 ms while an operation waits; true ends it with [`CollectiveError::Interrupted`].
    pub fn set_interrupt(&mut self, interrupt: impl FnMut() -> bool + Send + 'static) {
        self.steps.interrupt = Some(Box::new(interrupt));
    }

    /// Returns when every rank has called it.
    pub fn barrier(&mut self) -> Result<(), CollectiveError> {
        let asked = Asked { kind: Kind::Barrier, op: Op::Sum, element: 0, root: 0, length: 0 };
        run(&mut self.steps, asked, &mut Barrier)
    }

    /// Every rank has the values of `root`.
    pub fn broadcast<T: Element>(&mut self, values: &mut [T], root: usize) -> Result<(), CollectiveError> {
        let world_size = self.world_size();
        if root >= world_size {
            return Err(CollectiveError::NoSuchRank { rank: root, world_size });
        }
        let asked = Asked { root: root as u32, ..asked::<T>(Kind::Broadcast, Op::Sum, values.len())? };
        run(&mut self.steps, asked, &mut Broadcast { values, root })
    }

    /// Every rank has what `op` makes of the values of all of them.
    pub fn all_reduce<T: Element>(&mut self, values: &mut [T], op: Op) -> Result<(), CollectiveError> {
        let asked = asked::<T>(Kind::AllReduce, op, values.len())?;
        run(&mut self.steps, asked, &mut AllReduce { values, op })
    }

    /// Every rank has the values of all of them, in the order of the ranks. `all` is as long as all of them together.
    pub fn all_gather<T: Element>(&mut self, own: &[T], all: &mut [T]) -> Result<(), CollectiveError> {
        self.check_length(Kind::AllGather, all.len(), own.len())?;
        let asked = asked::<T>(Kind::AllGather, Op::Sum, own.len())?;
        run(&mut self.steps, asked, &mut AllGather { own, all })
    }

    /// Each rank has its part of what `op` makes of the values of all of them: `all` is as long as the parts of all ranks.
    pub fn reduce_scatter<T: Element>(&mut self, all: &[T], own: &mut [T], op: Op) -> Result<(), CollectiveError> {
        self.check_length(Kind::ReduceScatter, all.len(), own.len())?;
        let asked = asked::<T>(Kind::ReduceScatter, op, all.len())?;
        let ranks = self.world_size();
        run(&mut self.steps, asked, &mut ReduceScatter { all, own, op, ranks })
    }

    fn check_length(&self, kind: Kind, given: usize, part: usize) -> Result<(), CollectiveError> {
        let wanted = part * self.world_size();
        if given != wanted {
            return Err(CollectiveError::Length { during: kind.name(), given, wanted });
        }
        Ok(())
    }
}

fn asked<T: Element>(kind: Kind, op: Op, length: usize) -> Result<Asked, CollectiveError> {
    if !T::IS_FLOAT && matches!(op, Op::Mean | Op::ScaledSum) {
        return Err(CollectiveError::MeanOfIntegers { during: kind.name() });
    }
    Ok(Asked { kind, op, element: T::CODE, root: 0, length: length as u64 })
}
