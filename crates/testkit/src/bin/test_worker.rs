//! A worker whose behaviour is its arguments, one word after the other:
//!
//! `report N`, `print N` (lines), `checkpoint` (reports one, given away), `copy` (one that is copied), `async` (one that is
//! not waited for), `barrier`, `rank R WORD…` (only on that rank, one word and its
//! number), `exit C`, `abort`, `panic`, `kill` (itself, SIGKILL), `hang`, `orphan` (leaves a child in a session of its own that
//! ignores SIGTERM), `child` (leaves one in its own session), `latest` (prints the latest checkpoint), `train N` (steps, see
//! `train.rs`), `stubborn` (ignores SIGTERM from here on), `fork FILE` (a child that is there until it is ended, when
//! `FILE.go` is there; FILE holds its pid). `fault …` says what goes wrong in a training, see `fault.rs`.
//!
//! Started as Python would be for a file system (`-P -m … FILE`), it is storage elsewhere, see `elsewhere.rs`.

#[path = "test_worker/elsewhere.rs"]
mod elsewhere;
#[path = "test_worker/fault.rs"]
mod fault;
#[path = "test_worker/train.rs"]
mod train;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use carril_types::{ErrorCode, Failure, Metrics, Value};
use carril_worker::{ReportOptions, Saving, Session, shield_from_preemption};
use elsewhere::Elsewhere;
use fault::{Faults, wait_for, worker_failure};
use nix::sys::signal::{SigHandler, Signal, kill, raise, signal};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork, pause};

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "-P") {
        let pickle = words.last().map(Path::new).unwrap_or(Path::new(""));
        return match Elsewhere::open(pickle).and_then(|elsewhere| elsewhere.serve()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    shield_from_preemption();
    let session = match Session::from_environment() {
        Ok(session) => session,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let faults = Faults::take(&session, &mut words);
    let result = faults.at("start", 0).and_then(|()| {
        session.ready(false);
        perform(&session, &faults, &words)
    });
    let runtime = session.runtime().clone();
    match result {
        Ok(()) => session.returned(None),
        Err(failure) => {
            session.failed(worker_failure(&session, failure));
        }
    }
    runtime.block_on(session.wait_exit());
    ExitCode::SUCCESS
}

fn perform(session: &Session, faults: &Faults, words: &[String]) -> Result<(), Failure> {
    let mut words = words.iter().map(String::as_str);
    let rank = session.key().rank.0;
    while let Some(word) = words.next() {
        if word == "rank" {
            let wanted = number(words.next());
            let word = words.next().unwrap_or_default();
            let argument = takes_argument(word).then(|| words.next()).flatten();
            if wanted == u64::from(rank) {
                act(session, faults, word, argument)?;
            }
        } else {
            let argument = takes_argument(word).then(|| words.next()).flatten();
            act(session, faults, word, argument)?;
        }
    }
    Ok(())
}

fn takes_argument(word: &str) -> bool {
    matches!(word, "report" | "print" | "exit" | "train" | "fork")
}

fn number(word: Option<&str>) -> u64 {
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn act(session: &Session, faults: &Faults, word: &str, argument: Option<&str>) -> Result<(), Failure> {
    let runtime = session.runtime();
    match word {
        "report" => (0..number(argument)).try_for_each(|step| report(session, step, &ReportOptions::default()))?,
        "print" => (0..number(argument)).for_each(|line| println!("line {line} of rank {}", session.key().rank)),
        "checkpoint" => checkpoint(session, true, Saving::Sync)?,
        "copy" => checkpoint(session, false, Saving::Sync)?,
        "async" => checkpoint(session, false, Saving::Async)?,
        "latest" => println!("latest {:?}", runtime.block_on(session.latest_checkpoint())?),
        "barrier" => runtime.block_on(session.barrier())?,
        "exit" => std::process::exit(number(argument) as i32),
        "abort" => std::process::abort(),
        "kill" => drop(raise(Signal::SIGKILL)),
        "train" => train::train(session, faults, number(argument))?,
        // SAFETY: ignores a signal.
        "stubborn" => drop(unsafe { signal(Signal::SIGTERM, SigHandler::SigIgn) }),
        "fork" => fork_child(Path::new(argument.unwrap_or_default())),
        "panic" => return Err(Failure::new(ErrorCode::UserException, "a mistake on purpose")),
        "hang" => loop {
            std::thread::sleep(Duration::from_secs(3600));
        },
        "orphan" => leave_child("trap '' TERM; exec setsid sleep 1000"),
        "child" => leave_child("trap '' TERM; sleep 1000"),
        other => return Err(Failure::new(ErrorCode::InvalidConfig, format!("`{other}` is no behaviour"))),
    }
    Ok(())
}

fn report(session: &Session, step: u64, options: &ReportOptions) -> Result<(), Failure> {
    if session.is_ahead() {
        session.runtime().block_on(session.wait_for_room())?;
    }
    session.runtime().block_on(session.store_checkpoint(options))?;
    let metrics = Metrics(vec![
        ("step".into(), Value::Int(step as i64)),
        ("rank".into(), Value::Int(i64::from(session.key().rank.0))),
    ]);
    session.report(metrics, options, Duration::ZERO, std::thread::sleep)?;
    if options.last {
        session.runtime().block_on(session.wait_for_end())?;
    } else if session.waits_for_commit(options) {
        session.runtime().block_on(session.latest_checkpoint())?;
    }
    Ok(())
}

fn checkpoint(session: &Session, give_away: bool, saving: Saving) -> Result<(), Failure> {
    let directory = std::env::temp_dir().join(format!("carril-test-{}", std::process::id()));
    let write = || {
        std::fs::create_dir_all(&directory)?;
        std::fs::write(directory.join(format!("rank_{}.txt", session.key().rank)), "weights")
    };
    write().map_err(|error| Failure::new(ErrorCode::Checkpoint, error.to_string()))?;
    let last = session.is_preempted();
    let options = ReportOptions {
        checkpoint: Some(directory.clone()),
        give_away,
        name: None,
        saving,
        last,
        validation: None,
        silent: false,
    };
    let result = report(session, 0, &options);
    let _ = std::fs::remove_dir_all(directory);
    result
}

fn leave_child(script: &str) {
    let child = std::process::Command::new("sh").args(["-c", script]).spawn();
    println!("child {}", child.map(|child| child.id()).unwrap_or(0));
}

/// A child that was only forked: whatever this process has done to its signals, the child has as well.
fn fork_child(witness: &Path) {
    // SAFETY: the child makes nothing but a system call that is safe after a fork.
    let child = match unsafe { fork() }.expect("there is room for a process") {
        ForkResult::Child => loop {
            pause();
        },
        ForkResult::Parent { child } => child,
    };
    let part = witness.with_extension("part");
    let written = std::fs::write(&part, child.to_string()).and_then(|()| std::fs::rename(&part, witness));
    written.expect("the file can be written");
    wait_for(|| witness.with_extension("go").exists());
    kill(child, Signal::SIGTERM).expect("the child is there");
    println!("{:?}", waitpid(child, None).expect("it is ours"));
}
