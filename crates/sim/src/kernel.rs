//! The clock, the dice, and everything that is going to happen, in order.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::sim::Sim;

/// The clock begins here, in Unix time.
const BEGIN: f64 = 1_000_000_000.0;

pub type Job = Box<dyn FnOnce(&mut Sim) + Send>;

struct Scheduled {
    at: f64,
    number: u64,
    job: Job,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        // The earliest is the greatest: the heap gives that first. What is due at once goes in the order of its asking.
        other.at.total_cmp(&self.at).then(other.number.cmp(&self.number))
    }
}

pub struct State {
    now: f64,
    queue: BinaryHeap<Scheduled>,
    number: u64,
    random: fastrand::Rng,
    trace: Vec<String>,
}

/// Shared by all that is simulated. Nothing runs at the same time: the lock is never waited for.
#[derive(Clone)]
pub struct Kernel(Arc<Mutex<State>>);

impl Kernel {
    pub fn new(seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self(Arc::new(Mutex::new(State { now: BEGIN, queue: BinaryHeap::new(), number: 0, random, trace: Vec::new() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn now(&self) -> f64 {
        self.state().now
    }

    /// Seconds since the beginning.
    pub fn elapsed(&self) -> f64 {
        self.now() - BEGIN
    }

    pub fn after(&self, seconds: f64, job: impl FnOnce(&mut Sim) + Send + 'static) {
        let mut state = self.state();
        state.number += 1;
        let scheduled = Scheduled { at: state.now + seconds, number: state.number, job: Box::new(job) };
        state.queue.push(scheduled);
    }

    /// The next thing that happens; the clock is there already.
    pub fn next(&self) -> Option<Job> {
        let mut state = self.state();
        let next = state.queue.pop()?;
        state.now = next.at;
        Some(next.job)
    }

    /// A time between the two, in seconds.
    pub fn between(&self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.state().random.f64()
    }

    pub fn chance(&self, share: f64) -> bool {
        self.state().random.f64() < share
    }

    pub fn below(&self, count: usize) -> usize {
        self.state().random.usize(0..count)
    }

    /// What happened, for whoever replays a seed.
    pub fn note(&self, text: String) {
        let elapsed = self.elapsed();
        self.state().trace.push(format!("{elapsed:9.3}  {text}"));
    }

    pub fn trace(&self) -> Vec<String> {
        self.state().trace.clone()
    }
}
