//! How the core grows: 100, 1,000 and 10,000 workers start, report ten times each, and one fails. One JSON line per size.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use carril_core::{Command, Event, RunMachine, RunOptions, Timer};
use carril_types::{Attempt, ErrorCode, ExitStatus, Failure, Rank, WorkerFailure};

/// Counts what is allocated, and the most that ever was.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands everything on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    for workers in [100, 1_000, 10_000] {
        let before = LIVE.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let start = Instant::now();
        let reports = run(workers);
        let seconds = start.elapsed().as_secs_f64();
        let bytes = PEAK.load(Ordering::Relaxed) - before;
        assert_eq!(reports, 10, "every report of every worker is collated");
        println!("{{\"workers\": {workers}, \"seconds\": {seconds}, \"bytes\": {bytes}}}");
    }
}

fn run(workers: u32) -> usize {
    let mut machine: RunMachine<[f64; 5]> = RunMachine::new(workers, RunOptions::default());
    let mut reports = 0;
    let mut ended = false;
    let mut tell = |event| {
        for command in machine.on_event(Duration::ZERO, event).commands {
            reports += usize::from(matches!(command, Command::CommitReport { .. }));
            ended |= matches!(command, Command::EndRun(_));
        }
    };
    let ranks = || (0..workers).map(Rank);
    tell(Event::Placed);
    ranks().for_each(|rank| tell(Event::WorkerStarted { rank, how: String::new() }));
    ranks().for_each(|rank| tell(Event::WorkerReady { rank }));
    for sequence in 0..10 {
        ranks().for_each(|rank| {
            tell(Event::Reported { rank, sequence, report: [0.0; 5], checkpoint: None, validate: false })
        });
    }
    let failure = Failure::new(ErrorCode::UserException, "one failure");
    let failure = WorkerFailure::of_process(Rank(workers / 2), failure, String::new());
    tell(Event::WorkerFailed { failure, alone: true });
    tell(Event::TimerFired(Timer::Gather(Attempt(0))));
    ranks().for_each(|rank| {
        tell(Event::WorkerExited {
            rank,
            exit: ExitStatus::Signal(9),
            last_output: String::new(),
            out_of_memory: None,
        });
    });
    assert!(ended, "the run ends");
    reports
}
