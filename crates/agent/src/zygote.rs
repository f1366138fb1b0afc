//! The Python process from which workers are forked, and how the agent speaks to it.
//!
//! On the socket pair each message is its length (four bytes, little endian) and JSON; descriptors ride with the first bytes.
//! Requests are answered one by one, in order. No answer within its time is a refusal, and the zygote is then given up.

use std::io::{self, IoSlice, Read};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use carril_types::PythonRuntime;
use nix::sys::signal::Signal;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde::{Deserialize, Serialize};

/// Imports may read a cold disk; a fork has nothing to wait for.
const IMPORT: Duration = Duration::from_secs(120);
const FORK: Duration = Duration::from_secs(10);
const LARGEST: usize = 64 << 20;

#[derive(Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Request<'a> {
    Import {
        path: &'a [String],
        modules: &'a [String],
        script: Option<&'a str>,
    },
    Fork {
        environment: serde_json::Map<String, serde_json::Value>,
        directory: &'a str,
        path: &'a [String],
        threads: u32,
    },
}

#[derive(Debug, Default, Deserialize)]
struct Answer {
    pid: Option<u32>,
    refused: Option<String>,
}

pub(crate) struct Zygote {
    child: Child,
    socket: UnixStream,
}

/// What a worker is to be, beyond the interpreter.
pub(crate) struct Fork<'a> {
    pub environment: &'a [(String, String)],
    pub directory: &'a str,
    pub path: &'a [String],
    pub threads: u32,
    /// The output's descriptor first, then the meeting point's, if this is rank 0.
    pub descriptors: Vec<BorrowedFd<'a>>,
}

impl Zygote {
    /// Must be called on the thread that lives as long as the agent: the zygote dies with that thread.
    /// What libraries put into temporary files while they are imported is in `directory`, the agent's, and goes with it. So does the
    /// socket on which the zygote forks processes for data.
    pub fn start(runtime: &PythonRuntime, directory: &Path) -> io::Result<Self> {
        let temporary = directory.join("temporary");
        match std::fs::create_dir(&temporary) {
            // An agent that is ending may have removed its directory: it must not be there again.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let (ours, theirs) = UnixStream::pair()?;
        let inherited = OwnedFd::from(theirs);
        let number = inherited.as_raw_fd();
        let mut command = Command::new(&runtime.executable);
        command
            .args(["-P", "-m", "carril._internal.zygote", &number.to_string()])
            .env(
                "PYTHONPATH",
                runtime.path.iter().filter(|path| !path.is_empty()).cloned().collect::<Vec<_>>().join(":"),
            )
            .env("TMPDIR", temporary)
            .env("CARRIL_NODE_DIRECTORY", directory)
            .env_remove("CARRIL_WORKER")
            .env_remove("CARRIL_HEAD")
            .current_dir("/")
            .stdin(Stdio::null());
        let agent = std::process::id();
        // SAFETY: only calls that are safe between fork and exec are made.
        unsafe { command.pre_exec(move || before_exec(number, agent)) };
        let child = carril_process::spawn(&mut command)?;
        Ok(Self { child, socket: ours })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn import(&mut self, path: &[String], modules: &[String], script: Option<&str>) -> io::Result<()> {
        self.ask(&Request::Import { path, modules, script }, &[], IMPORT).map(drop)
    }

    /// The pid of the new worker, or why there is none.
    pub fn fork(&mut self, fork: &Fork) -> Result<u32, String> {
        let environment = fork.environment.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
        let (directory, path, threads) = (fork.directory, fork.path, fork.threads);
        let request = Request::Fork { environment, directory, path, threads };
        let descriptors: Vec<RawFd> = fork.descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        match self.ask(&request, &descriptors, FORK) {
            Ok(Answer { pid: Some(pid), .. }) => Ok(pid),
            Ok(Answer { refused, .. }) => Err(refused.unwrap_or_else(|| "the zygote gave no answer".to_owned())),
            Err(error) => Err(format!("the zygote did not answer: {error}")),
        }
    }

    fn ask(&mut self, request: &Request, descriptors: &[RawFd], patience: Duration) -> io::Result<Answer> {
        let json = serde_json::to_vec(request)?;
        let mut message = (json.len() as u32).to_le_bytes().to_vec();
        message.extend_from_slice(&json);
        let rights = [ControlMessage::ScmRights(descriptors)];
        let rights = if descriptors.is_empty() { &rights[..0] } else { &rights[..] };
        let sent =
            sendmsg::<()>(self.socket.as_raw_fd(), &[IoSlice::new(&message)], rights, MsgFlags::MSG_NOSIGNAL, None)?;
        io::Write::write_all(&mut self.socket, &message[sent..])?;
        self.socket.set_read_timeout(Some(patience))?;
        let mut length = [0u8; 4];
        self.socket.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > LARGEST {
            return Err(io::Error::other("an answer that is too long"));
        }
        let mut json = vec![0; length];
        self.socket.read_exact(&mut json)?;
        Ok(serde_json::from_slice(&json)?)
    }

    /// Whether the process is there; one that ended is reaped.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lets the socket through and ties the zygote's life to the agent's.
fn before_exec(socket: RawFd, agent: u32) -> io::Result<()> {
    use nix::libc;
    carril_net::give_descriptor_limit_back();
    // SAFETY: plain system calls on our own descriptor and process.
    unsafe {
        if libc::fcntl(socket, libc::F_SETFD, 0) < 0 {
            return Err(io::Error::last_os_error());
        }
        if libc::setsid() < 0 {
            return Err(io::Error::last_os_error());
        }
        if libc::prctl(libc::PR_SET_PDEATHSIG, Signal::SIGKILL as libc::c_ulong) < 0 {
            return Err(io::Error::last_os_error());
        }
        // The agent may have died between the fork and the line above.
        if libc::getppid() as u32 != agent {
            return Err(io::Error::other("the agent is gone"));
        }
    }
    Ok(())
}
