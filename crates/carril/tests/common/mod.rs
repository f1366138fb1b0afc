//! A driver as a process of its own, because it executes itself, and what a test asks of it.

// Each test uses a part of it.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Ten times what any of these runs takes on a slow machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// Builds the examples, once, and says where this one is.
pub fn built(program: &str) -> PathBuf {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| carril_testkit::build_examples(env!("CARGO"), "carril"));
    let test = std::env::current_exe().expect("a test has a program");
    test.parent().and_then(Path::parent).expect("it lies in target/release/deps").join("examples").join(program)
}

pub struct Fixture {
    program: PathBuf,
    storage: tempfile::TempDir,
    runtime: tempfile::TempDir,
}

pub struct Ended {
    pub told: Value,
    pub printed: String,
}

impl Fixture {
    /// For drivers of this program.
    pub fn of(program: &str) -> Self {
        let directory = || tempfile::tempdir().expect("there is a temporary directory");
        Self { program: built(program), storage: directory(), runtime: directory() }
    }

    pub fn spawn(&self, words: &[&str]) -> Child {
        self.started(Command::new(&self.program).arg(self.storage.path()).args(words))
    }

    /// The command `carril`, with these words.
    pub fn command(&self, words: &[&str]) -> Child {
        carril_testkit::build(env!("CARGO"), "carril-cli");
        let examples = self.program.parent().expect("it lies in target/release/examples");
        self.started(Command::new(examples.with_file_name("carril")).args(words).current_dir("/"))
    }

    fn started(&self, command: &mut Command) -> Child {
        let command = command.env("XDG_RUNTIME_DIR", self.runtime.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
    }

    pub fn end(&self, driver: Child) -> Ended {
        let output = driver.wait_with_output().expect("the driver ends");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        let out = String::from_utf8_lossy(&output.stdout);
        let told = serde_json::from_str(out.trim()).unwrap_or_else(|_| panic!("no word of the end: {out}\n{printed}"));
        Ended { told, printed }
    }

    pub fn run(&self, words: &[&str]) -> Ended {
        self.end(self.spawn(words))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.storage.path().join(name)
    }

    /// The pid that a rank has written down.
    pub fn pid(&self, rank: u32) -> u32 {
        let file = self.path(&format!("pid{rank}"));
        until(&format!("rank {rank} runs"), || std::fs::read_to_string(&file).ok()?.parse().ok())
    }

    pub fn told(&self) -> Vec<String> {
        let lines = std::fs::read_to_string(self.path("told")).expect("the callback heard of the end");
        lines.lines().map(str::to_owned).collect()
    }

    /// Nothing of ours is left below the runtime directory: neither sockets nor a process that has it.
    pub fn assert_nothing_left(&self) {
        until("the head is gone", || {
            let left = std::fs::read_dir(self.runtime.path()).expect("it is there").flatten();
            let inside = left.flat_map(|entry| std::fs::read_dir(entry.path()).into_iter().flatten());
            (inside.count() == 0).then_some(())
        });
    }
}

pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < end, "waited {DEADLINE:?} until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid as i32), signal).expect("the process is there");
}

pub fn is_gone(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}
