//! Asks processes where they are: a signal, on which each writes its stacks into a file that it holds open.
//!
//! The signal is taken in C, so a process answers also while its interpreter is stuck. One that is stopped cannot, and its
//! state says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carril_proto::v1;
use carril_types::Rank;
use nix::libc;

/// How long the ranks have to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// An answer that has not grown for so long is complete.
const QUIET: Duration = Duration::from_millis(60);
const LOOK: Duration = Duration::from_millis(20);

pub(crate) async fn gather(ranks: Vec<(Rank, u32, bool, PathBuf)>) -> Vec<v1::RankStack> {
    let until = Instant::now() + PATIENCE;
    let before: Vec<u64> = ranks.iter().map(|(.., file)| length(file)).collect();
    for (_, pid, answers, _) in &ranks {
        if *answers {
            ask(*pid);
        }
    }
    let mut stacks = Vec::new();
    for ((rank, pid, answers, file), before) in ranks.into_iter().zip(before) {
        let text = if answers { read_answer(pid, &file, before, until).await } else { String::new() };
        stacks.push(v1::RankStack { rank: rank.0, text, state: state_of(pid).to_owned() });
    }
    stacks
}

fn ask(pid: u32) {
    // SAFETY: sends a signal that the process has said it takes.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGRTMIN() + 9) };
}

async fn read_answer(pid: u32, file: &Path, before: u64, until: Instant) -> String {
    let mut last = (before, Instant::now());
    loop {
        let now = length(file);
        if now != last.0 {
            last = (now, Instant::now());
        }
        let complete = now > before && last.1.elapsed() >= QUIET;
        if complete || Instant::now() >= until || state_of(pid) == "stopped" {
            let bytes = fs::read(file).unwrap_or_default();
            let answer = bytes.get(before as usize..).unwrap_or_default();
            return String::from_utf8_lossy(answer).into_owned();
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn length(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |meta| meta.len())
}

/// The kernel's word for what the process does.
fn state_of(pid: u32) -> &'static str {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    match state {
        Some('R') => "running",
        Some('T' | 't') => "stopped",
        Some('D') => "waiting for a disk",
        Some('Z' | 'X') | None => "gone",
        Some(_) => "sleeping",
    }
}
