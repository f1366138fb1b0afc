//! This process as a worker: it runs one function, and tells how that ended.
//!
//! WORKER-1: what the function printed is written out before its end is told, so that output never comes after it.
//! WORKER-2: `failed` or `returned` is told exactly once, unless the process was told to go.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

use carril_types::{ErrorCode, Failure, Rank, Value, WorkerFailure};
use carril_worker::shield_from_preemption;
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction, signal};
use serde::{Deserialize, Serialize};

use crate::blocking::drive;
use crate::error::{Error, Located, causes, chain, joined};
use crate::functions::{Ended, Function};
use crate::session::Session;
use crate::training::Sent;

/// What the workers of a run are told to run: a blob.
#[derive(Serialize, Deserialize)]
pub(crate) struct Call {
    pub function: usize,
    pub name: String,
    pub config: Value,
    /// Rows in memory follow behind the line that this is.
    #[serde(default)]
    pub data: Sent,
}

/// What ends the call in its blob. JSON in one line has none.
pub(crate) const END: u8 = b'\n';

/// The function asks whether it is to stop, and so has the time to.
pub(crate) static ASKS: AtomicBool = AtomicBool::new(false);

/// Panics, the first one first.
static PANICS: Mutex<Vec<Panic>> = Mutex::new(Vec::new());

struct Panic {
    thread: ThreadId,
    message: String,
    location: String,
}

/// Runs the worker to its end, and the process with it.
pub(crate) fn run(functions: &[Function]) -> ! {
    take_the_programs_name();
    answer_signals();
    shield_from_preemption();
    let code = crate::blocking::outside(|| serve(functions));
    leave(code)
}

pub(crate) fn leave(code: i32) -> ! {
    let _ = std::io::stdout().flush();
    std::process::exit(code)
}

/// The program was executed as `/proc/PID/exe`, which is what `ps` and `top` would call it.
pub(crate) fn take_the_programs_name() {
    if let Ok(program) = std::fs::read_link("/proc/self/exe")
        && let Some(name) = program.file_name().and_then(|name| std::ffi::CString::new(name.as_encoded_bytes()).ok())
    {
        // SAFETY: the kernel copies at most sixteen bytes of a text that ends with a zero.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }
}

/// Ctrl-C goes to the driver, which stops the run. The agent's SIGTERM ends the process, unless the function asks whether it is
/// to stop: then it is left the time to.
fn answer_signals() {
    let end = SigAction::new(SigHandler::Handler(on_term), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler makes only calls that a handler may make.
    unsafe {
        let _ = signal(Signal::SIGINT, SigHandler::SigIgn);
        let _ = sigaction(Signal::SIGTERM, &end);
    }
}

extern "C" fn on_term(_: libc::c_int) {
    if !ASKS.load(Ordering::Relaxed) {
        // SAFETY: both calls may be made in a handler.
        unsafe {
            let _ = signal(Signal::SIGTERM, SigHandler::SigDfl);
        }
        let _ = raise(Signal::SIGTERM);
    }
}

fn serve(functions: &[Function]) -> i32 {
    let session = match carril_worker::Session::from_environment() {
        Ok(session) => Session::new(session),
        Err(error) => {
            eprintln!("carril: the worker ends: {error}");
            return 2;
        }
    };
    note_panics();
    let result = perform(&session, functions);
    let _ = std::io::stdout().flush();
    let worker = session.worker();
    if worker.is_told() {
        // The run is being stopped: nobody asks how the function took it.
        return 0;
    }
    match result {
        Ok(value) => worker.returned(value),
        Err(failure) => worker.failed(*failure),
    }
    drive(worker.runtime(), worker.wait_exit());
    0
}

/// Runs the function. Returns the hash of the blob with what this rank returned, where the driver wants it.
fn perform(session: &Session, functions: &[Function]) -> Result<Option<String>, Box<WorkerFailure>> {
    let rank = Rank(session.rank());
    let failed = |failure: Failure| Box::new(WorkerFailure::of_process(rank, failure, String::new()));
    let (function, config) = find(session, functions).map_err(failed)?;
    session.worker().ready(false);
    let ended = catch_unwind(AssertUnwindSafe(|| (function.run)(session, config)));
    let value = match ended {
        Ok(Ok(value)) => value,
        Ok(Err(Ended::Config(unfit))) => {
            let message = format!("`{}` cannot be given its config: {unfit}", function.name());
            return Err(failed(Failure::new(ErrorCode::InvalidConfig, message)));
        }
        Ok(Err(Ended::Error { error, .. })) if is_stop(error.as_ref()) => return Ok(None),
        Ok(Err(Ended::Error { kind, error })) => {
            let located = error.downcast_ref::<Located>();
            let location = located.and_then(|located| located.location).map(ToString::to_string).unwrap_or_default();
            let failure = failure(rank, &kind, chain(error.as_ref()), location);
            let code = storage_failure(error.as_ref()).unwrap_or(failure.failure.code);
            let failure = WorkerFailure { failure: Failure { code, ..failure.failure }, ..failure };
            return Err(Box::new(failure));
        }
        Err(_) => return Err(Box::new(of_panic(rank))),
    };
    if rank != Rank::ZERO || value == Value::None {
        return Ok(None);
    }
    let bytes =
        serde_json::to_vec(&value).map_err(|error| failed(Failure::new(ErrorCode::Internal, error.to_string())))?;
    let worker = session.worker();
    drive(worker.runtime(), worker.put_blob(bytes)).map(Some).map_err(failed)
}

fn find<'a>(session: &Session, functions: &'a [Function]) -> Result<(&'a Function, Value), Failure> {
    let assignment = session.worker().assignment();
    let unread = |why: String| Failure::new(ErrorCode::Internal, format!("the worker's call cannot be read: {why}"));
    let bytes = std::fs::read(Path::new(&assignment.function_path)).map_err(|error| unread(error.to_string()))?;
    let end = bytes.iter().position(|byte| *byte == END).unwrap_or(bytes.len());
    let call: Call = serde_json::from_slice(&bytes[..end]).map_err(|error| unread(error.to_string()))?;
    let function = functions.get(call.function).filter(|function| function.name() == call.name).ok_or_else(|| {
        let message = format!("this program does not know `{}` where the driver does", call.name);
        Failure::new(ErrorCode::InvalidConfig, message)
            .hint("`carril::init!` must be the first line of `main`, with the same functions each time")
    })?;
    let given = call.data.receive(bytes.get(end + 1..).unwrap_or_default(), functions).map_err(Failure::from)?;
    session.data().give(given);
    let config = match &assignment.trial {
        Some(trial) => Value::Map(trial.config.clone().unwrap_or_default().into()),
        None => call.config,
    };
    Ok((function, config))
}

fn is_stop(error: &(dyn std::error::Error + 'static)) -> bool {
    let inner = error.downcast_ref::<Located>().map(|located| &*located.error as &(dyn std::error::Error + 'static));
    causes(inner.unwrap_or(error)).any(|error| error.downcast_ref::<Error>().is_some_and(Error::is_stop))
}

/// Storage that fails is not the function's own failure, though the function returns it.
fn storage_failure(error: &(dyn std::error::Error + 'static)) -> Option<ErrorCode> {
    let inner = error.downcast_ref::<Located>().map(|located| &*located.error as &(dyn std::error::Error + 'static));
    let mut ours = causes(inner.unwrap_or(error)).filter_map(|error| error.downcast_ref::<Error>());
    ours.find_map(|error| match error.code() {
        "storage" => Some(ErrorCode::Storage),
        "storage-refused" => Some(ErrorCode::StorageRefused),
        _ => None,
    })
}

/// `texts` are the error and what it came from: the driver has them one by one, the files in one line.
fn failure(rank: Rank, kind: &str, texts: Vec<String>, location: String) -> WorkerFailure {
    WorkerFailure {
        rank,
        failure: Failure::new(ErrorCode::UserException, joined(&texts)),
        exception_type: kind.to_owned(),
        traceback: texts.iter().skip(1).map(|cause| format!("caused by: {cause}\n")).collect(),
        location,
        exception: serde_json::to_vec(&texts).unwrap_or_default(),
        exit: None,
        peak_memory: 0,
    }
}

/// A hook, because a panic's place is told to nobody else.
fn note_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().copied().or_else(|| Some(payload.downcast_ref::<String>()?.as_str()));
        let message = text.unwrap_or("(no text)").to_owned();
        let location = info.location().map(ToString::to_string).unwrap_or_default();
        let panic = Panic { thread: std::thread::current().id(), message, location };
        PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(panic);
        before(info);
    }));
}

/// What the last panic of this thread said, and where it was. It is told once.
#[cfg(feature = "data")]
pub(crate) fn panic_here() -> Option<(String, String)> {
    let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    let here = std::thread::current().id();
    let place = panics.iter().rposition(|panic| panic.thread == here)?;
    let Panic { message, location, .. } = panics.remove(place);
    Some((message, location))
}

/// The panic that has left the function. Those of other threads came first, and may be why.
fn of_panic(rank: Rank) -> WorkerFailure {
    let panics = std::mem::take(&mut *PANICS.lock().unwrap_or_else(PoisonError::into_inner));
    let here = std::thread::current().id();
    let (own, others): (Vec<Panic>, Vec<Panic>) = panics.into_iter().partition(|panic| panic.thread == here);
    let (message, location) = match own.into_iter().next_back() {
        Some(own) => (own.message, own.location),
        None => ("resumed from another thread".to_owned(), String::new()),
    };
    let others = others.iter().map(|other| format!("another thread panicked at {}: {}", other.location, other.message));
    failure(rank, "panic", std::iter::once(message).chain(others).collect(), location)
}
