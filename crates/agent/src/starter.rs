//! The one thread that starts processes: it keeps the zygotes, and lives as long as the agent.
//!
//! One thread, because a zygote answers one request at a time anyway, and because the kernel ties a child's
//! parent-death signal to the thread that made it.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};

use carril_proto::v1;
use carril_store::regular;
use carril_types::{ErrorCode, Failure, PythonRuntime, WorkerCommand};

use crate::world::StartRequest;
use crate::zygote::{Fork, Zygote};

pub(crate) type Started = Box<dyn FnOnce(Result<(u32, String), Failure>) + Send>;

pub(crate) enum Task {
    Prepare(v1::PrepareRequest),
    Start { request: Box<StartRequest>, meeting_point: Option<TcpListener>, done: Started },
}

/// The pids of the zygotes, for whoever must not take them for leftovers.
pub(crate) type ZygotePids = Arc<Mutex<Vec<u32>>>;

pub(crate) struct Starter {
    /// By executable; `None` where there is none to be had, with the reason.
    zygotes: HashMap<String, Result<Zygote, String>>,
    pids: ZygotePids,
    /// The agent's, in which the zygotes have their temporary files and sockets.
    directory: PathBuf,
}

/// Starts the thread. It ends, and the zygotes with it, when the sender is dropped.
pub(crate) fn spawn(
    pids: ZygotePids,
    directory: PathBuf,
) -> io::Result<(mpsc::Sender<Task>, std::thread::JoinHandle<()>)> {
    let (sender, tasks) = mpsc::channel();
    let mut starter = Starter { zygotes: HashMap::new(), pids, directory };
    let thread = std::thread::Builder::new().name("carril-starter".into()).spawn(move || {
        while let Ok(task) = tasks.recv() {
            starter.perform(task);
        }
    })?;
    Ok((sender, thread))
}

impl Starter {
    fn perform(&mut self, task: Task) {
        match task {
            Task::Prepare(request) => {
                let runtime: PythonRuntime = request.runtime.unwrap_or_default().into();
                let script = Some(request.script.as_str()).filter(|script| !script.is_empty());
                let zygote = self.zygote(&runtime);
                if let Ok(zygote) = zygote
                    && let Err(error) = zygote.import(&runtime.path, &request.modules, script)
                {
                    self.give_up(&runtime, format!("the zygote failed while importing: {error}"));
                }
            }
            Task::Start { request, meeting_point, done } => {
                let result = self.start(&request, meeting_point.as_ref());
                done(result);
            }
        }
    }

    fn start(&mut self, request: &StartRequest, meeting_point: Option<&TcpListener>) -> Result<(u32, String), Failure> {
        let not_started = |error: io::Error| {
            let key = &request.key;
            Failure::new(ErrorCode::WorkerStartFailed, format!("rank {} cannot be started: {error}", key.rank))
        };
        let opened = regular::open_with(File::options().create(true).append(true), &request.output);
        let output = opened.map_err(not_started)?;
        match &request.command {
            WorkerCommand::Python(runtime) => {
                let reason = match self.fork(runtime, request, &output, meeting_point) {
                    Ok(pid) => return Ok((pid, "forked".to_owned())),
                    Err(reason) => reason,
                };
                let mut command = Command::new(&runtime.executable);
                command.args(["-P", "-m", "carril._internal.worker"]);
                let pid = exec(command, request, output, meeting_point).map_err(not_started)?;
                Ok((pid, format!("started plainly: {reason}")))
            }
            WorkerCommand::Command { arguments } => {
                let mut command = Command::new(&arguments[0]);
                command.args(&arguments[1..]);
                let pid = exec(command, request, output, meeting_point).map_err(not_started)?;
                Ok((pid, "started".to_owned()))
            }
        }
    }

    fn fork(
        &mut self,
        runtime: &PythonRuntime,
        request: &StartRequest,
        output: &File,
        meeting_point: Option<&TcpListener>,
    ) -> Result<u32, String> {
        let zygote = self.zygote(runtime)?;
        let mut descriptors = vec![output.as_fd()];
        descriptors.extend(meeting_point.map(AsFd::as_fd));
        let fork = Fork {
            environment: &request.environment,
            directory: &request.directory.to_string_lossy(),
            path: &runtime.path,
            threads: request.threads,
            descriptors,
        };
        let result = zygote.fork(&fork);
        if result.is_err() && !zygote.is_alive() {
            self.give_up(runtime, "the zygote has ended".to_owned());
        }
        result
    }

    fn zygote(&mut self, runtime: &PythonRuntime) -> Result<&mut Zygote, String> {
        if let Some(Ok(zygote)) = self.zygotes.get_mut(&runtime.executable)
            && !zygote.is_alive()
        {
            self.give_up(runtime, "the zygote has ended".to_owned());
        }
        let (pids, directory) = (&self.pids, &self.directory);
        let entry = self.zygotes.entry(runtime.executable.clone()).or_insert_with(|| {
            let zygote =
                Zygote::start(runtime, directory).map_err(|error| format!("the zygote cannot be started: {error}"))?;
            pids.lock().unwrap_or_else(PoisonError::into_inner).push(zygote.pid());
            Ok(zygote)
        });
        entry.as_mut().map_err(|reason| reason.clone())
    }

    fn give_up(&mut self, runtime: &PythonRuntime, reason: String) {
        self.zygotes.insert(runtime.executable.clone(), Err(reason));
    }
}

/// Starts a process that gets the worker's environment and nothing else.
fn exec(
    mut command: Command,
    request: &StartRequest,
    output: File,
    meeting_point: Option<&TcpListener>,
) -> io::Result<u32> {
    command
        .env_clear()
        .envs(request.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(&request.directory)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    if let WorkerCommand::Python(runtime) = &request.command {
        // The new interpreter needs the path to find us; it then gives the user's own variable back.
        let path: Vec<&str> = runtime.path.iter().map(String::as_str).filter(|path| !path.is_empty()).collect();
        let own = request.environment.iter().find(|(name, _)| name == "PYTHONPATH").map(|(_, value)| value.as_str());
        command.env("PYTHONPATH", path.join(":")).env("CARRIL_PYTHONPATH", own.unwrap_or_default());
    }
    // What a fork sets by hand after it, an interpreter reads when it starts.
    let given = |name: &str| request.environment.iter().any(|(known, _)| known == name);
    if matches!(request.command, WorkerCommand::Python(_)) && !given("OMP_NUM_THREADS") {
        command.env("OMP_NUM_THREADS", request.threads.to_string());
    }
    let meeting_point = meeting_point.map(AsRawFd::as_raw_fd);
    if let Some(number) = meeting_point {
        command.env("CARRIL_STORE_FD", number.to_string());
    }
    // SAFETY: only calls that are safe between fork and exec are made.
    unsafe {
        command.pre_exec(move || {
            use nix::libc;
            carril_net::give_descriptor_limit_back();
            if let Some(number) = meeting_point
                && libc::fcntl(number, libc::F_SETFD, 0) < 0
            {
                return Err(io::Error::last_os_error());
            }
            if libc::setsid() < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    // The exit is collected by its descriptor: dropping the handle neither waits nor kills.
    carril_process::spawn(&mut command).map(|child| child.id())
}
