//! What a run leaves behind, and what it must not: the journal, the reports, the weights, the witnesses.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carril_proto::v1;
use carril_proto::v1::run_event::Kind;
use carril_store::{History, Journal, JournalRecord};
use carril_testkit::{Fixture, RunEnd};
use nix::libc;
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::Pid;

use crate::{Fault, training};

/// Ten times what anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a fault wrote before it fired.
pub struct Witness {
    /// Unix time in seconds.
    pub at: f64,
    pub pid: Pid,
}

impl Fault {
    pub fn witness(&self) -> Witness {
        let text = fs::read_to_string(&self.witness);
        let text = text.unwrap_or_else(|error| panic!("`{}` did not fire: {error}", self.witness.display()));
        let words: Vec<&str> = text.split(' ').collect();
        let pid = Pid::from_raw(words[1].parse().unwrap());
        Witness { at: words[0].parse().unwrap(), pid }
    }

    pub async fn wait_until_fired(&self) -> Witness {
        wait_for(&format!("`{}`", self.witness.display()), || self.witness.exists()).await;
        self.witness()
    }

    /// Lets a rank that paused go on.
    pub fn go(&self) {
        fs::write(self.witness.with_extension("go"), "").unwrap();
    }
}

pub async fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "{what} did not come within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Watches until an event is the one that is meant.
pub async fn wait_for_event(fixture: &Fixture, reply: &v1::RunReply, mut is_meant: impl FnMut(&Kind) -> bool) {
    let mut watch = fixture.watch(&reply.run_id).await;
    loop {
        let next = tokio::time::timeout(PATIENCE, watch.next()).await;
        let event = next.expect("the event comes").expect("the head lives").expect("the run goes on");
        if is_meant(&event) {
            return;
        }
    }
}

pub fn is_state(event: &Kind, name: &str) -> bool {
    matches!(event, Kind::State(state) if state.state == name)
}

pub fn journal(run: &Path) -> Vec<JournalRecord> {
    Journal::read(&run.join("journal")).unwrap()
}

pub fn history(run: &Path) -> History {
    History::replay(journal(run))
}

/// The steps at which the attempts began, as the rank printed them.
pub fn starts(end: &RunEnd, rank: u32) -> Vec<u64> {
    let attempts = 0..history(&end.path).next_attempt.0;
    let log = |attempt| fs::read_to_string(end.path.join(format!("ranks/rank_{rank}.attempt_{attempt}.log"))).unwrap();
    let start = |text: String| text.lines().find_map(|line| line.strip_prefix("starts at step ")?.parse().ok());
    attempts.filter_map(|attempt| start(log(attempt))).collect()
}

/// What every rank had at the end, byte by byte.
pub fn weights(end: &RunEnd) -> Vec<String> {
    let last = end.ended.checkpoints.iter().max_by_key(|checkpoint| checkpoint.iteration);
    weights_in(Path::new(&last.expect("there is a checkpoint").path))
}

pub fn weights_in(path: &Path) -> Vec<String> {
    (0..crate::RANKS).map(|rank| fs::read_to_string(path.join(format!("rank_{rank}.txt"))).unwrap()).collect()
}

/// What a run to which nothing happens ends with.
pub async fn undisturbed(fixture: &Fixture, steps: u64) -> Vec<String> {
    let reply = fixture.submit(&training(fixture, steps, &[])).await.unwrap();
    let end = fixture.follow(&reply, |_| {}).await;
    assert_eq!((end.ended.status.as_str(), end.restarts.len()), ("finished", 0), "{end:#?}");
    let weights = weights(&end);
    assert!(weights.iter().all(|one| one.starts_with(&format!("{steps} "))), "{weights:?}");
    weights
}

/// The numbers of the reports in a file.
fn iterations(file: &Path) -> Vec<u64> {
    let text = fs::read_to_string(file).unwrap();
    let number = |line: &str| {
        let report: serde_json::Value = serde_json::from_str(line).unwrap();
        report["training_iteration"].as_u64().unwrap()
    };
    text.lines().map(number).collect()
}

/// Each report follows the one before it, or is the first of an attempt that began where it did.
pub fn assert_contiguous(run: &Path, starts: &[u64], steps: u64) {
    for file in ["result.json", "ranks/rank_1.json"] {
        let iterations = iterations(&run.join(file));
        let mut begun = starts.iter();
        let mut last = *begun.next().expect("there was an attempt");
        for iteration in &iterations {
            while *iteration != last + 1 {
                last = *begun.next().unwrap_or_else(|| panic!("{file}: {iterations:?} from {starts:?}"));
            }
            last = *iteration;
        }
        assert_eq!(last, steps, "{file}: {iterations:?} from {starts:?}");
    }
}

/// No process, no half-made checkpoint, and nothing of the run in the head's own directory.
pub async fn assert_nothing_left(fixture: &Fixture, end: &RunEnd, run_id: &str) {
    for pid in &end.pids {
        wait_until_gone(*pid).await;
    }
    wait_for("the end of `.staging`", || !end.path.join(".staging").exists()).await;
    wait_for(&format!("the end of what {run_id} has in the head's directory"), || {
        let entries = [PathBuf::from(&fixture.client.directory), Path::new(&fixture.client.directory).join("spool")];
        let names = entries.iter().filter_map(|path| fs::read_dir(path).ok()).flatten().flatten();
        !names.into_iter().any(|entry| entry.file_name().to_string_lossy().contains(run_id))
    })
    .await;
}

/// Waits until the process is gone or only its name is left.
pub async fn wait_until_gone(pid: u32) {
    wait_for(&format!("the end of process {pid}"), || matches!(state_of(pid), None | Some('Z' | 'X'))).await;
}

/// The kernel's letter for what the process does.
pub fn state_of(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Sends a signal and waits until the process has taken it.
pub async fn send(pid: Pid, number: Signal) {
    kill(pid, number).unwrap();
    let is_pending = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let pending = |line: &str| Some(line.strip_prefix("ShdPnd:")?.trim().trim_matches('0').to_owned());
        status.lines().find_map(pending).is_some_and(|pending| !pending.is_empty())
    };
    wait_for(&format!("{number} in {pid}"), || !is_pending()).await;
}

/// Keeps everybody from opening a file until it is dropped.
pub struct Lease(File);

impl Lease {
    /// A file that somebody has open at the moment is waited for.
    pub async fn take(path: &Path) -> Self {
        // SAFETY: ignores the signal by which the kernel says that somebody waits.
        unsafe { signal(Signal::SIGIO, SigHandler::SigIgn) }.unwrap();
        let file = File::options().read(true).write(true).open(path).unwrap();
        wait_for(&format!("a lease on `{}`", path.display()), || {
            // SAFETY: the descriptor is open.
            let taken = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) } == 0;
            let error = io::Error::last_os_error();
            assert!(taken || error.kind() == io::ErrorKind::WouldBlock, "a lease on `{}`: {error}", path.display());
            taken
        })
        .await;
        Self(file)
    }

    /// Somebody waits to open the file.
    pub fn is_wanted(&self) -> bool {
        // SAFETY: the descriptor is open.
        unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_GETLEASE) != libc::F_WRLCK }
    }
}

pub async fn wait_for_checkpoint(run: &Path, iteration: u64) -> PathBuf {
    let what = format!("the checkpoint of report {iteration}");
    wait_for(&what, || newest(run).is_some_and(|(newest, _)| newest == iteration)).await;
    newest(run).expect("it was just there").1
}

/// The newest checkpoint that is there, by its number and its directory.
pub fn newest(run: &Path) -> Option<(u64, PathBuf)> {
    let storage = carril_store::Storage::open(&run.display().to_string(), None).unwrap();
    let listed = carril_store::list_checkpoints(&storage).unwrap();
    let whole = listed.into_iter().filter_map(|one| Some((one.state.ok()?.iteration, run.join(one.name))));
    whole.max_by_key(|(iteration, _)| *iteration)
}
