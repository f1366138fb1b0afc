//! This process's one connection to its private head, which is this program, executed once more, and ends with this process.
//!
//! DRIVER-1: at most one head per process, whichever threads ask at once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use carril_client::{Client, PrivateHead, PrivateOptions, start_private};
use carril_types::{ErrorCode, Failure};
use tokio::runtime::{Handle, Runtime};

use crate::blocking::drive;
use crate::error::{Error, Result};
use crate::functions::WORKER;

/// What this machine counts as having, where that is not what it has.
///
/// ```no_run
/// use carril::Machine;
///
/// carril::start(&Machine { cpus: Some(4.0), ..Machine::default() })?;
/// # Ok::<(), carril::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// How many CPUs there are to reserve.
    pub cpus: Option<f64>,
    /// How many GPUs there are to reserve.
    pub gpus: Option<f64>,
    /// Resources of your own, by name.
    pub resources: BTreeMap<String, f64>,
}

/// A connection to the head.
#[derive(Clone)]
pub(crate) struct Connection {
    pub client: Client,
    pub runtime: Handle,
}

struct Head {
    process: PrivateHead,
    client: Client,
}

struct State {
    machine: Machine,
    runtime: Option<Runtime>,
    head: Option<Head>,
}

static STATE: Mutex<State> = Mutex::new(State {
    machine: Machine { cpus: None, gpus: None, resources: BTreeMap::new() },
    runtime: None,
    head: None,
});

/// Starts the private head, and says what the machine counts as having. Without it, the first `fit` starts one.
///
/// It does nothing where one is running already: call it before the first `fit`, or after [`shutdown`].
///
/// ```no_run
/// carril::start(&carril::Machine::default())?;
/// # Ok::<(), carril::Error>(())
/// ```
pub fn start(machine: &Machine) -> Result<()> {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if state.head.is_none() {
        state.machine = machine.clone();
    }
    state.connect().map(drop)
}

/// Ends the private head and waits until it is gone. It ends with this process in any case.
///
/// ```
/// carril::shutdown();
/// ```
pub fn shutdown() {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    state.machine = Machine::default();
    let (Some(mut head), Some(runtime)) = (state.head.take(), &state.runtime) else { return };
    // A head that does not answer is as good as asked: it is waited for all the same.
    let _ = drive(runtime.handle(), head.client.shutdown());
    head.process.wait_or_kill();
}

/// The connection of this process, made when it is first needed.
pub(crate) fn connect() -> Result<Connection> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner).connect()
}

/// Why the head is gone, as far as it could tell.
pub(crate) fn why(lost: &Connection, error: &Error) -> String {
    lost.client.panic().map_or_else(|| error.to_string(), |panic| format!("the head panicked at {panic}"))
}

/// A new head in the place of one that is gone.
pub(crate) fn replace_lost(lost: &Connection) -> Result<Connection> {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    // Another thread may have been faster.
    if let Some(mut head) = state.head.take_if(|head| head.client.pid == lost.client.pid) {
        let _ = head.process.child.kill();
        let _ = head.process.child.wait();
    }
    state.connect()
}

impl State {
    fn connect(&mut self) -> Result<Connection> {
        let runtime = match &self.runtime {
            Some(runtime) => runtime.handle().clone(),
            None => self.runtime.insert(new_runtime()?).handle().clone(),
        };
        // Something has cleaned up the temporary files: that head can start nothing any more.
        if let Some(mut head) = self.head.take_if(|head| !head.process.socket.exists()) {
            let _ = head.process.child.kill();
            let _ = head.process.child.wait();
        }
        let client = match &self.head {
            Some(head) => head.client.clone(),
            None => {
                let options = PrivateOptions {
                    cpus: self.machine.cpus,
                    gpus: self.machine.gpus,
                    resources: self.machine.resources.clone().into_iter().collect(),
                    environment: Vec::new(),
                };
                let process = start_private(Path::new("/proc/self/exe"), std::process::id(), &options)?;
                let client = drive(&runtime, Client::connect(&process.socket))?;
                self.head.insert(Head { process, client }).client.clone()
            }
        };
        Ok(Connection { client, runtime })
    }
}

fn new_runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(1)
        .thread_name("carril-client")
        .enable_all()
        .build()
        .map_err(|error| Failure::new(ErrorCode::Internal, format!("the client's thread cannot start: {error}")))
}

/// How a worker of this driver is started: the very program that this process runs, also where its file was replaced since.
pub(crate) fn worker_command() -> Vec<String> {
    vec![format!("/proc/{}/exe", std::process::id()), WORKER.to_owned()]
}
