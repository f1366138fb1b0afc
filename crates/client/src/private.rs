//! The private head-and-agent of a driver: one native process, in a session of its own, that ends with the driver.

use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use carril_net::{give_descriptor_limit_back, raise_driver_limit};
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

    /// The driver and the options out of the arguments that a private head was started with, its name and `private-head` left
    /// out; `None` where they are not such.
    pub fn from_arguments(arguments: impl IntoIterator<Item = String>) -> Option<(u32, Self)> {
        let (mut driver, mut options) = (None, Self::default());
        for argument in arguments {
            match argument.strip_prefix("--")?.split_once('=')? {
                ("driver", pid) => driver = Some(pid.parse().ok()?),
                ("num-cpus", amount) => options.cpus = Some(amount.parse().ok()?),
                ("num-gpus", amount) => options.gpus = Some(amount.parse().ok()?),
                ("resource", named) => {
                    let (name, amount) = named.split_once('=')?;
                    options.resources.push((name.to_owned(), amount.parse().ok()?));
                }
                _ => return None,
            }
        }
        Some((driver?, options))
    }
}

/// The process. Dropping it does not end it: it ends with the driver, or when it is asked to.
pub struct PrivateHead {
    pub child: Child,
    pub socket: PathBuf,
}

/// A head that was asked to end has this long.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether a head has ended: `std` has no wait for a process with a deadline.
const LOOK: Duration = Duration::from_millis(2);

impl PrivateHead {
    /// Waits until a head that was asked to end is gone, and ends one that does not go.
    pub fn wait_or_kill(&mut self) {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(LOOK),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the process and waits until its socket is there. `driver` is the process whose end ends it.
pub fn start_private(command: &Path, driver: u32, options: &PrivateOptions) -> Result<PrivateHead, Failure> {
    raise_driver_limit()?;
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
    unsafe {
        process.pre_exec(|| {
            give_descriptor_limit_back();
            nix::unistd::setsid().map(drop).map_err(io::Error::from)
        });
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_back_from_the_arguments() {
        let resources = vec![("licence".to_owned(), 0.5)];
        let options = PrivateOptions { cpus: Some(2.0), gpus: Some(0.0), resources, environment: Vec::new() };
        let arguments = std::iter::once("--driver=17".to_owned()).chain(options.arguments());
        let (driver, parsed) = PrivateOptions::from_arguments(arguments).expect("they are such");
        assert_eq!((driver, parsed.arguments()), (17, options.arguments()));
    }

    #[test]
    fn what_a_person_typed_is_not_taken_for_them() {
        for typed in [&["--driver"][..], &["--driver=x"], &["--num-cpus=1"], &["file"], &["--driver=1", "--lr=0.1"]] {
            assert!(PrivateOptions::from_arguments(typed.iter().map(|word| (*word).to_owned())).is_none(), "{typed:?}");
        }
    }
}
