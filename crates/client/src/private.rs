//! The private head-and-agent of a driver: one native process, in a session of its own, that ends with the driver.

use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use carril_types::{ErrorCode, Failure};

/// What the node has to give, where that is not found out.
#[derive(Clone, Debug, Default)]
pub struct PrivateOptions {
    pub cpus: Option<f64>,
    pub gpus: Option<f64>,
    pub resources: Vec<(String, f64)>,
    /// Variables that are set for the process besides the driver's.
    pub environment: Vec<(String, String)>,
}

impl PrivateOptions {
    fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        if let Some(cpus) = self.cpus {
            arguments.push(format!("--num-cpus={cpus}"));
        }
        if let Some(gpus) = self.gpus {
            arguments.push(format!("--num-gpus={gpus}"));
        }
        arguments.extend(self.resources.iter().map(|(name, amount)| format!("--resource={name}={amount}")));
        arguments
    }
}

/// The process. Dropping it does not end it: it ends with the driver, or when it is asked to.
pub struct PrivateHead {
    pub child: Child,
    pub socket: PathBuf,
}

/// Starts the process and waits until its socket is there. `driver` is the process whose end ends it.
pub fn start_private(command: &Path, driver: u32, options: &PrivateOptions) -> Result<PrivateHead, Failure> {
    let trouble = |what: &str, error: &dyn std::fmt::Display| {
        Failure::new(ErrorCode::HeadLost, format!("cannot {what} `{}`: {error}", command.display()))
    };
    let mut process = Command::new(command);
    process
        .arg("private-head")
        .arg(format!("--driver={driver}"))
        .args(options.arguments())
        .envs(options.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    // SAFETY: only a call that is safe between fork and exec is made.
    unsafe { process.pre_exec(|| nix::unistd::setsid().map(drop).map_err(io::Error::from)) };
    let mut child = process.spawn().map_err(|error| trouble("start", &error))?;
    let output = child.stdout.take().ok_or_else(|| trouble("read from", &"it has no output"))?;
    // The first line is `ready SOCKET`, or the error as JSON; a process that dies closes the pipe, so this ends.
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).map_err(|error| trouble("read from", &error))?;
    if let Some(socket) = line.trim_end().strip_prefix("ready ") {
        return Ok(PrivateHead { child, socket: PathBuf::from(socket) });
    }
    let _ = child.wait();
    Err(serde_json::from_str(&line).unwrap_or_else(|_| trouble("start", &"it ended before it was ready")))
}
