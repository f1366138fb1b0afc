//! The head and the agent of one driver, in one process: `carril private-head`, and a Rust driver that executes itself again.
//!
//! It says `ready SOCKET` on its standard output once it can be reached, and ends when the driver does, however that ends,
//! or when it is asked to. Whatever runs then is killed, and the directory removed: nothing is left behind.
//!
//! PANIC-1: a panic on any thread ends the process with code 101: half of a head would keep its driver waiting. What it said
//!   is on standard error and, for the driver, in the directory.

use std::collections::HashMap;
use std::io::Write;
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use carril_agent::Limits;
use carril_agent::{AgentConfig, AgentHandle, WorkerService, become_reaper};
use carril_head::{HeadHandle, HeadService, RealDisk};
use carril_net::{PANIC, PrivateDirectory, accept_own, raise_descriptor_limit, sweep};
use carril_process::kill_everything;
use carril_proto::v1::head_server::HeadServer;
use carril_proto::v1::worker_server::WorkerServer;
use carril_store::{BlobStore, Owner};
use carril_types::{ErrorCode, Failure, NodeId};
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tonic::transport::Server;

/// How long the runs may take to end in order before they are killed.
const ORDER: Duration = Duration::from_millis(500);
/// How often it is looked whether the directory is there.
const LOOK: Duration = Duration::from_secs(1);

/// Runs them in this process until the driver with this pid ends, or until it is asked to end.
pub fn run(driver: u32, limits: Limits) -> ExitCode {
    std::panic::set_hook(Box::new(end_after));
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(8).enable_all().build();
    let result = runtime.map_err(trouble("start")).and_then(|runtime| runtime.block_on(serve(driver, limits)));
    kill_everything();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let json = serde_json::to_string(&failure).unwrap_or_default();
            let _ = writeln!(std::io::stdout(), "{json}");
            ExitCode::from(3)
        }
    }
}

/// Where a panic is told.
static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();

/// Called on the thread that panics, before anything is unwound.
fn end_after(panic: &PanicHookInfo<'_>) {
    static ENDING: AtomicBool = AtomicBool::new(false);
    if ENDING.swap(true, Ordering::SeqCst) {
        // Another thread, or this one while it tells of the first panic.
        return;
    }
    let message = panic.payload().downcast_ref::<&str>().map(|text| (*text).to_owned());
    let message = message.or_else(|| panic.payload().downcast_ref::<String>().cloned()).unwrap_or_default();
    let place = panic.location().map_or_else(String::new, |place| format!("{}:{}: ", place.file(), place.line()));
    let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
    let _ = writeln!(std::io::stderr(), "carril: the head panicked in thread `{thread}`: {place}{message}");
    if let Some(directory) = DIRECTORY.get() {
        let _ = std::fs::write(directory.join(PANIC), format!("{place}{message}"));
    }
    kill_everything();
    // SAFETY: ends the process at once: no function that is registered for its end may wait for this thread.
    unsafe { nix::libc::_exit(101) }
}

async fn serve(driver: u32, limits: Limits) -> Result<(), Failure> {
    raise_descriptor_limit()?;
    become_reaper().map_err(trouble("become a subreaper"))?;
    let driver_end = carril_agent::process_end(driver).map_err(trouble("watch the driver"))?;
    sweep();
    let mut random = [0; 4];
    getrandom::fill(&mut random).map_err(|error| internal(&format!("no random bytes: {error}")))?;
    let directory = PrivateDirectory::create(random)?;
    let _ = DIRECTORY.set(directory.path().to_owned());
    let large = match directory.is_large() {
        true => None,
        false => Some(PrivateDirectory::create_large(random)?),
    };
    let spool = large.as_ref().unwrap_or(&directory).path().join("spool");
    let (shutdown, mut asked) = watch::channel(false);
    let (head, agent) = start(directory.path(), &spool, Owner::this_process().ends_with(driver), limits, shutdown)?;
    let mut signals = PreemptionSignals::new().map_err(trouble("listen to signals"))?;
    say_ready(directory.path());
    tokio::select! {
        _ = driver_end => {}
        _ = asked.wait_for(|asked| *asked) => {}
        _ = signals.until_ended(&head, &agent) => {}
        _ = watch_directory(directory.path(), &head) => {}
    }
    end_in_order(&head, &agent).await;
    // Before the directory goes: a zygote that has just been started would put its socket there.
    kill_everything();
    Ok(())
}

/// A cleaner of temporary files may take the directory away. Without it no worker can be started, and nothing new be submitted. Does not
/// end: who watches a run is to hear how that ends.
async fn watch_directory(directory: &Path, head: &HeadHandle) {
    let is_there = || ["head.sock", "agent.sock", "blobs"].iter().all(|name| directory.join(name).exists());
    while is_there() {
        tokio::time::sleep(LOOK).await;
    }
    let place = directory.display();
    let failure = Failure::new(ErrorCode::Storage, format!("the runtime directory `{place}` was removed while it was in use"))
        .hint("let whatever cleans temporary files leave `carril-*` alone, or set `XDG_RUNTIME_DIR` or `TMPDIR` to a directory that stays")
        .hint("the next `fit()` with the same `name` resumes from the last checkpoint");
    head.tell(move |head| head.break_all(&failure));
    std::future::pending().await
}

/// The signals by which Slurm and Kubernetes say that they are going to take the machine.
struct PreemptionSignals {
    term: Signal,
    usr1: Signal,
    usr2: Signal,
}

impl PreemptionSignals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            usr1: signal(SignalKind::user_defined1())?,
            usr2: signal(SignalKind::user_defined2())?,
        })
    }

    /// Passes them on. A head without a run ends when it is told to.
    async fn until_ended(&mut self, head: &HeadHandle, agent: &AgentHandle) {
        loop {
            let name = tokio::select! {
                _ = self.term.recv() => "SIGTERM",
                _ = self.usr1.recv() => "SIGUSR1",
                _ = self.usr2.recv() => "SIGUSR2",
            };
            if name == "SIGTERM" && head.ask(|head| head.is_idle()).await.unwrap_or(true) {
                return;
            }
            agent.tell(move |agent| agent.on_preemption_signal(format!("{name} to the agent")));
        }
    }
}

fn start(
    directory: &Path,
    spool: &Path,
    owner: Owner,
    limits: Limits,
    shutdown: watch::Sender<bool>,
) -> Result<(HeadHandle, AgentHandle), Failure> {
    let blobs = BlobStore::create(directory.join("blobs"))?;
    let listen = |name: &str| UnixListener::bind(directory.join(name)).map_err(trouble("listen"));
    let (head_socket, agent_socket) = (listen("head.sock")?, listen("agent.sock")?);
    let node = NodeId::new("local");
    let (orders, order_queue) = mpsc::unbounded_channel();
    let disk = RealDisk::new(spool.to_owned(), blobs.clone(), owner);
    let head = carril_head::start(HashMap::from([(node.clone(), orders)]), Arc::new(disk));
    let config = AgentConfig {
        directory: directory.to_owned(),
        socket: directory.join("agent.sock"),
        limits,
        blobs: blobs.clone(),
        spool: spool.to_owned(),
    };
    // In one process the two exchange the same messages as over a network, without one.
    let (to_head, from) = (head.clone(), node.clone());
    let agent =
        carril_agent::start(config, &node, move |message| to_head.agent_message(from.clone(), message), order_queue)?;
    let service = HeadService::new(head.clone(), blobs.clone(), directory.display().to_string(), shutdown);
    let head_server = HeadServer::new(service).max_decoding_message_size(usize::MAX);
    let workers = WorkerServer::new(WorkerService::new(agent.clone(), blobs)).max_decoding_message_size(usize::MAX);
    tokio::spawn(Server::builder().add_service(head_server).serve_with_incoming(accept_own(head_socket)));
    tokio::spawn(Server::builder().add_service(workers).serve_with_incoming(accept_own(agent_socket)));
    Ok((head, agent))
}

/// Says where it is reached, and lets go of the pipe: the driver must not be kept waiting for its end.
fn say_ready(directory: &Path) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "ready {}", directory.join("head.sock").display());
    let _ = out.flush();
    if let Ok(null) = std::fs::File::options().write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdout(null);
    }
}

async fn end_in_order(head: &HeadHandle, agent: &AgentHandle) {
    let ended = async {
        let mut force = false;
        while !head.ask(move |head| head.stop_all("the driver has gone", force)).await.unwrap_or(true) {
            force = true;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let _ = tokio::time::timeout(ORDER, ended).await;
    agent.tell(|agent| agent.kill_all());
}

fn trouble(what: &'static str) -> impl FnOnce(std::io::Error) -> Failure {
    move |error| internal(&format!("the private head cannot {what}: {error}"))
}

fn internal(message: &str) -> Failure {
    Failure::new(ErrorCode::Internal, message)
}
