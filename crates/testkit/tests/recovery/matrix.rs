//! Every kind of fault, in rank 0 and in another, at every place of a step.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carril_store::Fact;
use carril_testkit::{Fixture, RunEnd};
use carril_types::ErrorCode;

use crate::evidence::{assert_contiguous, assert_nothing_left, journal, starts, undisturbed, weights};
use crate::{Fault, allowing, fixture, training};

const STEPS: u64 = 5;
/// The step in which it happens, the fourth.
const STEP: u64 = 3;
/// Runs that go on beside each other.
const TOGETHER: usize = 4;
const PLACES: &[&str] = &["code", "collective", "save", "report", "reported"];
/// Ten times what is promised for the sight of a death.
const SEEN_WITHIN: f64 = 2.0;

const USER: &str = "failure 1 of 1 by `max_failures`";
const INFRASTRUCTURE: &str = "failure 1 of 1 by `max_infrastructure_failures`";

/// A kind of fault, the code and the words that name it, and the budget that pays for it.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    code: ErrorCode,
    words: &'static str,
    budget: &'static str,
}

const KINDS: &[Kind] = &[
    Kind { name: "error", code: ErrorCode::UserException, words: "failed: Error: a mistake on purpose", budget: USER },
    Kind {
        name: "exit",
        code: ErrorCode::WorkerExited,
        words: "failed: the worker process left with exit code 1",
        budget: USER,
    },
    Kind {
        name: "kill",
        code: ErrorCode::WorkerKilled,
        words: "failed: the worker process was ended by SIGKILL",
        budget: INFRASTRUCTURE,
    },
    Kind {
        name: "segv",
        code: ErrorCode::WorkerExited,
        words: "failed: the worker process was ended by SIGSEGV",
        budget: USER,
    },
    Kind {
        name: "abort",
        code: ErrorCode::WorkerExited,
        words: "failed: the worker process was ended by SIGABRT",
        budget: USER,
    },
];

const MEMORY: Kind = Kind {
    name: "memory",
    code: ErrorCode::OutOfMemory,
    words: "failed: the worker process ran out of memory and the kernel ended it",
    budget: USER,
};

fn cells(kinds: &[Kind]) -> Vec<(Kind, u32, &'static str)> {
    let ranks =
        |kind: Kind| [0, 1].into_iter().flat_map(move |rank| PLACES.iter().map(move |place| (kind, rank, *place)));
    kinds.iter().flat_map(|kind| ranks(*kind)).collect()
}

#[tokio::test]
async fn every_fault_at_every_place_costs_one_restart_and_no_bit() {
    let fixture = fixture().await;
    let expected = undisturbed(&fixture, STEPS).await;
    for together in cells(KINDS).chunks(TOGETHER) {
        for (kind, fault, end) in run_cells(&fixture, together, "").await {
            check(&kind, &fault, &end, &expected);
        }
    }
}

#[tokio::test]
async fn memory_that_runs_out_at_every_place_costs_one_restart_and_no_bit() {
    let cgroup = Cgroup::with_limit(160 << 20);
    let fixture = fixture().await;
    cgroup.add(fixture.head.child.id());
    let expected = undisturbed(&fixture, STEPS).await;
    // One after the other: the kernel's counter is that of the whole cgroup.
    for cell in cells(&[MEMORY]) {
        let mut is_alone = false;
        for turn in ["", "-again", "-last"] {
            let before = cgroup.kills();
            let ended = run_cells(&fixture, &[cell], turn).await;
            // The kernel may end a second process while the first one still has its memory: that is not the fault that is meant here.
            is_alone = cgroup.kills() == before + 1;
            if is_alone {
                ended.iter().for_each(|(kind, fault, end)| check(kind, fault, end, &expected));
                break;
            }
        }
        assert!(is_alone, "rank {} at {}: the kernel ends others too", cell.1, cell.2);
    }
}

async fn run_cells(fixture: &Fixture, cells: &[(Kind, u32, &'static str)], turn: &str) -> Vec<(Kind, Fault, RunEnd)> {
    let mut going = Vec::new();
    for (kind, rank, place) in cells {
        let name = format!("{}-{rank}-{place}{turn}", kind.name);
        let fault = Fault::new(fixture, &name, kind.name, *rank, place, STEP);
        let mut spec = training(fixture, STEPS, &[&fault]);
        spec.name.clone_from(&name);
        spec.failures = allowing(1, 1);
        going.push((*kind, fault, fixture.submit(&spec).await.unwrap()));
    }
    let mut ended = Vec::new();
    for (kind, fault, reply) in going {
        let end = fixture.follow(&reply, |_| {}).await;
        assert_nothing_left(fixture, &end, &reply.run_id).await;
        ended.push((kind, fault, end));
    }
    ended
}

fn check(kind: &Kind, fault: &Fault, end: &RunEnd, expected: &[String]) {
    let cell = format!("{} in rank {} at {}", fault.kind, fault.rank, fault.place);
    let witness = fault.witness();
    assert!(end.pids.contains(&(witness.pid.as_raw() as u32)), "{cell}: another process fired");
    assert_eq!(end.ended.status, "finished", "{cell}: {end:#?}");

    let [restart] = &end.restarts[..] else { panic!("{cell}: one restart, not {:?}", end.restarts) };
    let named = format!("rank {} {}", fault.rank, kind.words);
    assert!(restart.reason.starts_with(&named) && restart.reason.contains(kind.budget), "{cell}: {}", restart.reason);
    assert_eq!((restart.attempt, restart.code.as_str()), (1, kind.code.name()), "{cell}");
    let records = journal(&end.path);
    let at = records.iter().position(|record| matches!(record.fact, Some(Fact::Restarted(_))));
    let at = at.unwrap_or_else(|| panic!("{cell}: the journal tells of the restart"));
    assert_eq!(records[at].reason, restart.reason, "{cell}");

    // The newest checkpoint that was committed, which is that of the last step that all ranks reported.
    let committed = |event: &str| event.strip_prefix("CheckpointCommitted: report ")?.split_once(',')?.0.parse().ok();
    let newest: u64 = records[..at].iter().filter_map(|record| committed(&record.event)).max().unwrap_or(0);
    let made = STEP + u64::from(fault.place == "reported");
    assert!(newest == made || newest + 1 == made, "{cell}: {made} were reported, {newest} is kept");
    for rank in 0..crate::RANKS {
        assert_eq!(starts(end, rank), [0, newest], "{cell}: rank {rank}");
    }
    assert_contiguous(&end.path, &[0, newest], STEPS);
    assert_eq!(weights(end), expected, "{cell}");

    let seen = records.iter().find(|record| {
        let of_rank = format!("WorkerExited: rank {},", fault.rank);
        record.event.starts_with(&of_rank) || record.event.starts_with("WorkerFailed:")
    });
    let after = seen.unwrap_or_else(|| panic!("{cell}: the end was seen")).at - witness.at;
    // To take all memory needs its time.
    assert!(kind.name == MEMORY.name || (0.0..SEEN_WITHIN).contains(&after), "{cell}: seen after {after} s");
}

#[tokio::test]
async fn a_kill_beside_a_run_that_ran_out_of_memory_is_not_taken_for_the_same() {
    let cgroup = Cgroup::with_limit(160 << 20);
    let fixture = fixture().await;
    cgroup.add(fixture.head.child.id());
    let paused = Fault::new(&fixture, "paused", "pause", 1, "code", STEP);
    let mut beside = training(&fixture, STEPS, &[&paused]);
    beside.failures = allowing(0, 1);
    let beside = fixture.submit(&beside).await.unwrap();
    let witness = paused.wait_until_fired().await;
    let sooner =
        |pid: i32| -> i32 { fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim().parse().unwrap() };
    assert_eq!(sooner(witness.pid.as_raw()), sooner(fixture.head.child.id() as i32) + 100, "before the head");
    cgroup.release_all_but(fixture.head.child.id());

    let hungry = Fault::new(&fixture, "hungry", "memory", 1, "code", STEP);
    let reply = fixture.submit(&training(&fixture, STEPS, &[&hungry])).await.unwrap();
    let end = fixture.follow(&reply, |_| {}).await;
    let code = end.ended.failure.as_ref().map(|failure| failure.code.as_str());
    assert_eq!((end.ended.status.as_str(), code), ("failed", Some("out-of-memory")), "{end:#?}");

    nix::sys::signal::kill(witness.pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    let end = fixture.follow(&beside, |_| {}).await;
    assert_eq!((end.ended.status.as_str(), end.restarts[0].code.as_str()), ("finished", "worker-killed"), "{end:#?}");
}

/// A cgroup of either generation with a limit of memory.
struct Cgroup(PathBuf);

impl Cgroup {
    fn with_limit(bytes: u64) -> Self {
        let first = Path::new("/sys/fs/cgroup/memory");
        let hierarchy = if first.is_dir() { first } else { Path::new("/sys/fs/cgroup") };
        let unique = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let path = hierarchy.join(format!("carril-test-{}-{}", std::process::id(), unique.as_nanos()));
        fs::create_dir(&path)
            .unwrap_or_else(|error| panic!("no cgroup can be made in {}: {error}", hierarchy.display()));
        let limit = ["memory.limit_in_bytes", "memory.max"].into_iter().find(|name| path.join(name).exists());
        let limit = limit.expect("the cgroup has the controller of memory");
        fs::write(path.join(limit), bytes.to_string()).expect("a limit can be set");
        Self(path)
    }

    fn add(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("a process can be put into the cgroup");
    }

    /// The kernel may take a second process before the first has given its memory back: only this one and what it starts stay.
    fn release_all_but(&self, pid: u32) {
        let pids = fs::read_to_string(self.0.join("cgroup.procs")).expect("the processes are known");
        let outside = self.0.with_file_name("cgroup.procs");
        for other in pids.lines().filter(|other| *other != pid.to_string()) {
            fs::write(&outside, other).expect("a process can leave the cgroup");
        }
    }

    /// How many processes the kernel has ended in it.
    fn kills(&self) -> u64 {
        let files = ["memory.oom_control", "memory.events"].map(|name| fs::read_to_string(self.0.join(name)));
        let counts = files.into_iter().flatten();
        let count = |text: String| text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
        counts.filter_map(count).next().expect("the kernel counts what it ends")
    }
}

impl Drop for Cgroup {
    /// Its processes are on their way out: the head was ended before.
    fn drop(&mut self) {
        let until = Instant::now() + Duration::from_secs(10);
        while fs::remove_dir(&self.0).is_err() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(std::thread::panicking() || !self.0.exists(), "{} is empty", self.0.display());
    }
}
