//! How requests to a bucket are carried out: on one thread beside the caller's, retried, and explained when they fail.
//!
//! REQUEST-1: a request whose answer was cut is tried again, not only one that the client could not send.
//! REQUEST-2: a message holds the server's words, and neither an address nor what rides in its query.

use std::error::Error as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};
use tokio::runtime::Runtime;

use crate::credentials::REQUEST;
use crate::error::StoreError;
use crate::location::Location;

/// An answer that was cut is asked for again within this time; the client itself is more patient with a server that is away.
const AGAIN_WITHIN: Duration = Duration::from_secs(30);

pub(crate) type Outcome<T> = Result<T, Error>;

/// REQUEST-1: what the client gives up on at once, because bytes of an answer had arrived.
pub(crate) async fn again<T, F: Future<Output = Outcome<T>>>(mut call: impl FnMut() -> F) -> Outcome<T> {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(100);
    loop {
        match call().await {
            Err(error) if begun.elapsed() < AGAIN_WITHIN && is_cut(&error) => tokio::time::sleep(pause).await,
            outcome => return outcome,
        }
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}

fn http_error(error: &Error) -> Option<&HttpError> {
    let mut next = error.source();
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<HttpError>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

fn is_cut(error: &Error) -> bool {
    // A server that gave up on a slow body says so with a status that means nothing else.
    http_error(error).is_some() || error.to_string().contains("<Code>RequestTimeout</Code>")
}

pub(crate) fn failed(what: &'static str, at: &Location) -> impl FnOnce(Error) -> StoreError {
    let location = at.shown();
    move |error| {
        let missing = matches!(error, Error::NotFound { .. });
        StoreError::Remote { what, location, why: explain(&error), missing }
    }
}

/// The server's own words, without the wrapping, the address and whatever rides in its query.
pub(crate) fn explain(error: &Error) -> String {
    let mut root: &dyn std::error::Error = error;
    while let Some(source) = root.source() {
        root = source;
    }
    let text = root.to_string();
    let tries = error
        .to_string()
        .split_once(" after ")
        .and_then(|(_, rest)| rest.split_once(" retries").map(|(count, _)| count.parse::<u32>().ok()))
        .flatten();
    let tried = tries.map(|count| format!(", after {count} retries")).unwrap_or_default();
    if http_error(error).is_some_and(|error| error.kind() == HttpErrorKind::Timeout) {
        return format!("no answer within {} s{tried}", REQUEST.as_secs());
    }
    let Some((_, answer)) = text.split_once("status code: ") else {
        return format!("{}{tried}", text.lines().next().unwrap_or_default());
    };
    let (status, body) = answer.split_once(": ").unwrap_or((answer, ""));
    let tag = |name: &str| {
        let (_, rest) = body.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(inner, _)| inner)
    };
    let words: Vec<&str> = [tag("Code"), tag("Message")].into_iter().flatten().collect();
    let words = if words.is_empty() { String::new() } else { format!(" ({})", words.join(": ")) };
    format!("the server answered {status}{words}{tried}")
}

/// Runs a future on the calling thread; what it spawns runs beside it.
pub(crate) fn wait<F: Future>(future: F) -> F::Output {
    runtime().block_on(future)
}

/// One for the process. A child that was forked has none of its parent's threads, and gets its own.
fn runtime() -> Arc<Runtime> {
    static RUNTIME: Mutex<Option<(u32, Arc<Runtime>)>> = Mutex::new(None);
    let mut made = RUNTIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let pid = std::process::id();
    if let Some((owner, runtime)) = made.as_ref()
        && *owner == pid
    {
        return runtime.clone();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("carril-storage")
        .enable_all()
        .build()
        .expect("a thread for the storage can be started");
    let runtime = Arc::new(runtime);
    if let Some(old) = made.replace((pid, runtime.clone())) {
        // Its threads are the parent's: to wait for them would be for ever.
        std::mem::forget(old);
    }
    runtime
}
