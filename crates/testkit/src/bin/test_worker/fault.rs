//! One thing that goes wrong on purpose: of which kind, in which rank, attempt and step, and at which place in the step.
//!
//! `fault KIND RANK PLACE STEP ATTEMPT WITNESS` among the worker's arguments. ATTEMPT is a number or `any`. Before a fault
//! fires it writes the file WITNESS (the time, the pid, the step), so that a test can assert that it did.
//! KIND: `error`, `exit`, `kill`, `segv`, `abort`, `memory` (takes more and more of it), `pause` (goes on when the file
//! `WITNESS.go` is there). PLACE: `start` (before the function), `code`, `collective` (while this rank waits in one), `save`
//! (while the agent takes this rank's files), `report` (half of the record is in the log), `reported` (all of it is).

use std::fs::{self, File};
use std::future::Future;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use carril_types::{ErrorCode, Failure, WorkerFailure};
use carril_worker::Session;
use nix::libc;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigHandler, Signal, raise, signal};

pub struct Fault {
    kind: String,
    rank: u32,
    place: String,
    step: u64,
    attempt: Option<u32>,
    witness: PathBuf,
}

/// Those of one attempt, in every rank: a rank waits for what happens in another.
pub struct Faults<'a> {
    session: &'a Session,
    all: Vec<Fault>,
}

impl<'a> Faults<'a> {
    /// Takes the faults out of the arguments and leaves the other words.
    pub fn take(session: &'a Session, words: &mut Vec<String>) -> Self {
        let mut all = Vec::new();
        while let Some(at) = words.iter().position(|word| word == "fault") {
            let given: Vec<String> = words.drain(at..(at + 7).min(words.len())).collect();
            let [_, kind, rank, place, step, attempt, witness] = <[String; 7]>::try_from(given).expect("six words");
            let number = |word: &str| word.parse().expect("a number");
            let attempt = (attempt != "any").then(|| number(&attempt));
            let witness = PathBuf::from(witness);
            all.push(Fault { kind, rank: number(&rank), place, step: number(&step).into(), attempt, witness });
        }
        all.retain(|fault| fault.attempt.is_none_or(|attempt| attempt == session.key().attempt.0));
        Self { session, all }
    }

    fn find(&self, place: &str, step: u64, is_meant: impl Fn(u32) -> bool) -> Option<&Fault> {
        self.all.iter().find(|fault| fault.place == place && fault.step == step && is_meant(fault.rank))
    }

    fn own(&self, place: &str, step: u64) -> Option<&Fault> {
        let own = self.session.key().rank.0;
        self.find(place, step, |rank| rank == own)
    }

    /// Fires here and now, if this is the place.
    pub fn at(&self, place: &str, step: u64) -> Result<(), Failure> {
        self.own(place, step).map_or(Ok(()), Fault::fire)
    }

    /// Waits for the others, and fires while it waits. Nobody can arrive before that: the others wait for the witness.
    pub fn in_collective<T>(&self, step: u64, collective: impl Future<Output = T>) -> T {
        let wait = |future| self.session.runtime().block_on(future);
        match self.own("collective", step) {
            Some(fault) => {
                let waits = AtomicBool::new(false);
                self.meanwhile(fault, || waits.load(Ordering::Acquire), || wait(noting(collective, &waits)))
            }
            None => {
                if let Some(elsewhere) = self.find("collective", step, |_| true) {
                    wait_for(|| elsewhere.witness.exists());
                }
                self.session.runtime().block_on(collective)
            }
        }
    }

    /// Has the file taken, and fires while the agent is at it: a lease lets it open the file only when this process lets go
    /// of it, which it also does by dying.
    pub fn in_save<T>(&self, step: u64, file: &Path, save: impl Future<Output = T>) -> T {
        let Some(fault) = self.own("save", step) else { return self.session.runtime().block_on(save) };
        let held = File::options().read(true).write(true).open(file).expect("the file was just written");
        // The kernel says by this signal that somebody waits; the lease itself says it as well.
        // SAFETY: ignores a signal.
        unsafe { signal(Signal::SIGIO, SigHandler::SigIgn) }.expect("a signal can be ignored");
        // SAFETY: the descriptor is open.
        let leased = unsafe { libc::fcntl(held.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) };
        assert_eq!(leased, 0, "a lease on `{}`: {}", file.display(), std::io::Error::last_os_error());
        // SAFETY: the descriptor is open: the thread that asks is joined before it is closed.
        let is_wanted = || unsafe { libc::fcntl(held.as_raw_fd(), libc::F_GETLEASE) } != libc::F_WRLCK;
        let release = || {
            // SAFETY: as above.
            unsafe { libc::fcntl(held.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
        };
        self.meanwhile_then(fault, is_wanted, release, || self.session.runtime().block_on(save))
    }

    /// Half of a record is in the log when the process ends.
    pub fn in_report(&self, step: u64) -> Result<(), Failure> {
        let Some(fault) = self.own("report", step) else { return Ok(()) };
        let log = File::options().append(true).open(&self.session.assignment().report_log);
        let torn = log.and_then(|mut log| log.write_all(&[100, 0, 0, 0, 1, 2, 3, 4, 5]));
        torn.expect("the log can be written");
        fault.fire()
    }

    fn meanwhile<T>(&self, fault: &Fault, when: impl Fn() -> bool + Send, work: impl FnOnce() -> T) -> T {
        self.meanwhile_then(fault, when, || {}, work)
    }

    /// Does the work, and fires from another thread as soon as it may.
    fn meanwhile_then<T>(
        &self,
        fault: &Fault,
        when: impl Fn() -> bool + Send,
        then: impl FnOnce() + Send,
        work: impl FnOnce() -> T,
    ) -> T {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                wait_for(when);
                match fault.fire() {
                    Ok(()) => then(),
                    Err(failure) => {
                        self.session.failed(worker_failure(self.session, failure));
                        stay();
                    }
                }
            });
            work()
        })
    }
}

impl Fault {
    fn fire(&self) -> Result<(), Failure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let part = self.witness.with_extension("part");
        let text = format!("{now} {} {}", std::process::id(), self.step);
        fs::write(&part, text).and_then(|()| fs::rename(&part, &self.witness)).expect("the witness can be written");
        let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
        match self.kind.as_str() {
            "error" => Err(Failure::new(ErrorCode::UserException, "a mistake on purpose")),
            // SAFETY: ends the process at once.
            "exit" => unsafe { libc::_exit(1) },
            "kill" => die_of(Signal::SIGKILL),
            "segv" => die_of(Signal::SIGSEGV),
            "abort" => die_of(Signal::SIGABRT),
            "memory" => take_memory(),
            "pause" => {
                let go = self.witness.with_extension("go");
                wait_for(|| go.exists());
                Ok(())
            }
            other => panic!("`{other}` is no kind of fault"),
        }
    }
}

/// What is told to the head when the function fails.
pub fn worker_failure(session: &Session, failure: Failure) -> WorkerFailure {
    let rank = session.key().rank;
    WorkerFailure { exception_type: "Error".into(), ..WorkerFailure::of_process(rank, failure, String::new()) }
}

fn die_of(number: Signal) -> ! {
    if number != Signal::SIGKILL {
        // SAFETY: what Rust's own handler does with a fault of memory must not come in between.
        let _ = unsafe { signal(number, SigHandler::SigDfl) };
    }
    let _ = raise(number);
    stay()
}

/// More and more, each page of it touched, until the kernel ends it.
fn take_memory() -> ! {
    let mut held: Vec<Vec<u8>> = Vec::new();
    loop {
        held.push(vec![1; 8 << 20]);
        std::hint::black_box(&held);
    }
}

fn stay() -> ! {
    loop {
        std::thread::park();
    }
}

pub fn wait_for(condition: impl Fn() -> bool) {
    while !condition() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sets the flag once the future has begun and is not done.
async fn noting<T>(future: impl Future<Output = T>, waits: &AtomicBool) -> T {
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        let polled = future.as_mut().poll(context);
        waits.store(polled.is_pending(), Ordering::Release);
        polled
    })
    .await
}
