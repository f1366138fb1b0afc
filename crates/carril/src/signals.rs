//! Signals to the driver while it follows a run: Ctrl-C stops the run, and those of a scheduler that is going to take the machine
//! are passed on. A signal that somebody else answers is left to them, and what was there before is there afterwards.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

const TAKEN: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2];

static INTERRUPTS: AtomicU32 = AtomicU32::new(0);
static PREEMPTION: AtomicI32 = AtomicI32::new(0);

/// How many follow a run, and what was there before the first of them.
static INSTALLED: Mutex<(u32, Vec<(Signal, SigAction)>)> = Mutex::new((0, Vec::new()));

extern "C" fn on_signal(number: libc::c_int) {
    if number == libc::SIGINT {
        INTERRUPTS.fetch_add(1, Ordering::Relaxed);
    } else {
        PREEMPTION.store(number, Ordering::Relaxed);
    }
}

/// For as long as it is there, signals are noted.
pub(crate) struct Signals {
    before: u32,
}

impl Signals {
    pub fn watch() -> Self {
        let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
        installed.0 += 1;
        if installed.0 == 1 {
            PREEMPTION.store(0, Ordering::Relaxed);
            installed.1 = TAKEN.into_iter().filter_map(|signal| Some((signal, take(signal)?))).collect();
        }
        Self { before: INTERRUPTS.load(Ordering::Relaxed) }
    }

    /// How often Ctrl-C was pressed since.
    pub fn interrupts(&self) -> u32 {
        INTERRUPTS.load(Ordering::Relaxed).wrapping_sub(self.before)
    }

    /// The signal of a scheduler, once.
    pub fn preemption(&self) -> Option<Signal> {
        Signal::try_from(PREEMPTION.swap(0, Ordering::Relaxed)).ok()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
        installed.0 -= 1;
        if installed.0 == 0 {
            for (signal, before) in installed.1.drain(..) {
                // SAFETY: puts back what was there.
                let _ = unsafe { sigaction(signal, &before) };
            }
        }
    }
}

/// Answers the signal where nobody else does.
fn take(signal: Signal) -> Option<SigAction> {
    let ours = SigAction::new(SigHandler::Handler(on_signal), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler only writes to an atomic.
    let before = unsafe { sigaction(signal, &ours) }.ok()?;
    if matches!(before.handler(), SigHandler::SigDfl) {
        return Some(before);
    }
    // SAFETY: puts back what was there.
    let _ = unsafe { sigaction(signal, &before) };
    None
}
