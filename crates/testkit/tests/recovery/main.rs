//! A run survives what happens to it: real head, agent and workers, real faults, no Python anywhere.
//!
//! Every fault writes a witness before it fires, and a test that does not find it fails. The training is a function of its
//! seed, so that a run which was disturbed must end with the very bytes of one that was not.

mod between;
mod budgets;
mod elsewhere;
mod evidence;
mod halted;
mod lost_head;
mod matrix;
mod preemption;
#[path = "../programs/mod.rs"]
mod programs;
mod soak;

use std::path::PathBuf;

use carril_testkit::Fixture;
use carril_types::{FailureSpec, RunSpec};
use programs::programs;

const RANKS: u32 = 2;

async fn fixture() -> Fixture {
    Fixture::start(&programs(), 16.0).await
}

/// Something that goes wrong in a training: see the test worker's `fault.rs`.
#[derive(Clone)]
struct Fault {
    kind: &'static str,
    rank: u32,
    place: &'static str,
    step: u64,
    /// In every one, where there is none.
    attempt: Option<u32>,
    witness: PathBuf,
}

impl Fault {
    /// In the first attempt. `name` is the witness's.
    fn new(fixture: &Fixture, name: &str, kind: &'static str, rank: u32, place: &'static str, step: u64) -> Self {
        let witness = fixture.storage.path().join(format!("{name}.witness"));
        Self { kind, rank, place, step, attempt: Some(0), witness }
    }

    fn in_attempt(self, attempt: Option<u32>) -> Self {
        Self { attempt, ..self }
    }

    fn words(&self) -> Vec<String> {
        let attempt = self.attempt.map_or("any".to_owned(), |attempt| attempt.to_string());
        let (rank, step) = (self.rank.to_string(), self.step.to_string());
        let witness = self.witness.display().to_string();
        vec!["fault".into(), self.kind.into(), rank, self.place.into(), step, attempt, witness]
    }
}

/// A training of that many steps with these faults.
fn training(fixture: &Fixture, steps: u64, faults: &[&Fault]) -> RunSpec {
    let mut words: Vec<String> = faults.iter().flat_map(|fault| fault.words()).collect();
    words.extend(["train".to_owned(), steps.to_string()]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut spec = fixture.spec(RANKS, &words);
    let work = fixture.storage.path().join("work");
    std::fs::create_dir_all(&work).unwrap();
    spec.working_directory = work.display().to_string();
    spec
}

fn allowing(max_failures: i64, max_infrastructure_failures: i64) -> FailureSpec {
    let max_infrastructure_failures = Some(max_infrastructure_failures);
    FailureSpec { max_failures, max_infrastructure_failures, fail_fast: false }
}
