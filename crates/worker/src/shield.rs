//! Signals that a scheduler sends to every process of a job before it takes the machine: they are the agent's to
//! understand. Workers, and what they fork, ignore them, and still end when their own parent ends them.
//!
//! The handler is inherited by a fork and forgotten by an exec.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

use nix::libc::{self, c_int, c_void, siginfo_t};

const SIGNALS: [c_int; 3] = [libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

/// What was there before, by the place in `SIGNALS`.
struct Before(UnsafeCell<[MaybeUninit<libc::sigaction>; 3]>);

// SAFETY: each place is written before its handler is installed, and only read after that.
unsafe impl Sync for Before {}

static BEFORE: Before = Before(UnsafeCell::new([const { MaybeUninit::uninit() }; 3]));

/// From here on only this process and its parent can end it by these signals. What was installed before is called then.
pub fn shield_from_preemption() {
    for (place, number) in SIGNALS.into_iter().enumerate() {
        // SAFETY: plain system calls on memory of ours; the handler below keeps to what a handler may do.
        unsafe {
            let mut before = MaybeUninit::<libc::sigaction>::uninit();
            if libc::sigaction(number, std::ptr::null(), before.as_mut_ptr()) != 0 {
                continue;
            }
            let before = before.assume_init();
            let handler = on_signal as extern "C" fn(c_int, *mut siginfo_t, *mut c_void) as libc::sighandler_t;
            if before.sa_sigaction == handler {
                continue;
            }
            (*BEFORE.0.get())[place].write(before);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler;
            // A call of the system is cut short by what was installed before, or not: Python's handlers need that.
            let restart = match before.sa_sigaction {
                libc::SIG_DFL | libc::SIG_IGN => libc::SA_RESTART,
                _ => before.sa_flags & libc::SA_RESTART,
            };
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | restart;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(number, &action, std::ptr::null_mut());
        }
    }
}

extern "C" fn on_signal(number: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a valid `info`; everything that is called here may be called in a handler.
    unsafe {
        let sender = (*info).si_pid();
        let ours = sender == libc::getppid() || sender == libc::getpid();
        let Some(place) = SIGNALS.iter().position(|known| *known == number).filter(|_| ours) else { return };
        let before = (*BEFORE.0.get())[place].assume_init_ref();
        match before.sa_sigaction {
            libc::SIG_IGN => {}
            libc::SIG_DFL => {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(number, &default, std::ptr::null_mut());
                libc::raise(number);
            }
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = std::mem::transmute(handler);
                handler(number, info, context);
            }
            handler => {
                let handler: extern "C" fn(c_int) = std::mem::transmute(handler);
                handler(number);
            }
        }
    }
}
