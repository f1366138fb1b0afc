//! Whatever happens in whatever order, a run keeps its invariants and ends.

use carril_core::{
    Budget, Command, Event, FailureRule, Infrastructure, Kept, Limit, Retention, RetentionRule, RunMachine, RunOptions,
    Saving, Timer, WaitKind,
};
use carril_types::{Attempt, ErrorCode, ExitStatus, Failure, Rank, ScoreOrder, WorkerFailure};
use proptest::prelude::*;
use std::time::Duration;

const WORLD: u32 = 3;

/// What a rank may do next; the order among ranks is what varies.
#[derive(Clone, Debug)]
enum Step {
    Report { rank: u32, checkpoint: Option<Saving>, validate: bool },
    Prepare { works: bool },
    Wait { rank: u32, kind: WaitKind },
    Return(u32),
    Fail(u32),
    Exit(u32),
    Commit { works: bool },
    Validated { score: Option<u8> },
    ValidationLate,
    Gather,
    Stop { force: bool },
    Preempt,
    Halt { rank: u32, halted: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let rank = 0..WORLD;
    let rank_again = rank.clone();
    let kind = prop_oneof![
        Just(WaitKind::Barrier),
        Just(WaitKind::Broadcast),
        Just(WaitKind::Checkpoint),
        Just(WaitKind::Place),
        Just(WaitKind::Preempted),
        Just(WaitKind::Settled),
        Just(WaitKind::Validated)
    ];
    let saving = prop_oneof![
        8 => Just(None),
        1 => Just(Some(Saving::Sync)),
        1 => Just(Some(Saving::Async)),
        1 => Just(Some(Saving::Last)),
    ];
    prop_oneof![
        12 => (rank.clone(), saving, any::<bool>())
            .prop_map(|(rank, checkpoint, validate)| Step::Report { rank, checkpoint, validate }),
        3 => (rank.clone(), kind).prop_map(|(rank, kind)| Step::Wait { rank, kind }),
        2 => rank.clone().prop_map(Step::Return),
        1 => rank.clone().prop_map(Step::Fail),
        2 => rank.prop_map(Step::Exit),
        6 => prop::bool::weighted(0.9).prop_map(|works| Step::Prepare { works }),
        6 => prop::bool::weighted(0.9).prop_map(|works| Step::Commit { works }),
        4 => prop::option::of(any::<u8>()).prop_map(|score| Step::Validated { score }),
        1 => Just(Step::ValidationLate),
        1 => Just(Step::Gather),
        1 => any::<bool>().prop_map(|force| Step::Stop { force }),
        1 => Just(Step::Preempt),
        1 => (rank_again, any::<bool>()).prop_map(|(rank, halted)| Step::Halt { rank, halted }),
    ]
}

/// Ranks as they are in truth: a machine that believes otherwise is found out.
struct World {
    machine: RunMachine<(u32, u64)>,
    reports: Vec<u64>,
    collectives: Vec<u64>,
    alive: Vec<bool>,
    busy: Vec<bool>,
    preparing: Vec<(u32, u64)>,
    committing: Vec<u64>,
    /// What is stored and not deleted.
    kept: Vec<u64>,
    /// What the store that is going on deletes when it is done.
    displaced: Vec<u64>,
    validating: Option<u64>,
    /// What the checkpoint that is validated costs.
    keeping: Option<(u64, Vec<u64>)>,
    /// Asked where the ranks are, and not answered yet.
    asked: bool,
    endings: usize,
    stopped: bool,
    attempt: Attempt,
    /// The report of the newest checkpoint that is stored.
    newest: Option<u64>,
    preempted: bool,
}

impl World {
    fn new() -> Self {
        let none = |value| vec![value; WORLD as usize];
        let retention =
            Retention::new(RetentionRule { num_to_keep: Some(1), score: Some(ScoreOrder::Max) }, Vec::new());
        let infrastructure = Infrastructure::OnItsOwn(Limit::AtMost(2));
        let budget = Budget::new(FailureRule { failures: Limit::AtMost(2), infrastructure, fail_fast: false });
        let mut world = Self {
            machine: RunMachine::new(WORLD, RunOptions { retention, budget, ..RunOptions::default() }),
            reports: none(0),
            collectives: none(0),
            alive: vec![false; WORLD as usize],
            busy: vec![false; WORLD as usize],
            preparing: Vec::new(),
            committing: Vec::new(),
            kept: Vec::new(),
            displaced: Vec::new(),
            validating: None,
            keeping: None,
            asked: false,
            endings: 0,
            stopped: false,
            attempt: Attempt(0),
            newest: None,
            preempted: false,
        };
        world.tell(Event::Placed);
        world
    }

    /// Every process of a new group says that it is there.
    fn group_runs(&mut self) {
        for rank in 0..WORLD {
            self.tell(Event::WorkerStarted { rank: Rank(rank), how: "forked".into() });
            self.tell(Event::WorkerReady { rank: Rank(rank) });
        }
    }

    fn on_started(&mut self, attempt: Attempt, reports: u64) {
        assert!(self.alive.iter().all(|alive| !alive), "RESTART-1: no process of two attempts at once");
        assert!(self.committing.is_empty(), "RESTART-1: every checkpoint is settled");
        assert_eq!(Some(reports).filter(|reports| *reports > 0), self.newest, "RESTART-2");
        assert_eq!(attempt.0, self.attempt.0 + u32::from(self.stopped), "attempts are counted one by one");
        (self.attempt, self.stopped) = (attempt, false);
        self.reports.fill(reports);
        self.collectives.fill(0);
        self.alive.fill(true);
        self.busy.fill(false);
        self.preparing.clear();
    }

    fn delete(&mut self, gone: &[u64]) {
        assert!(!gone.iter().any(|gone| self.validating == Some(*gone)), "VALIDATE-2");
        assert!(!gone.iter().any(|gone| self.newest == Some(*gone)), "RETAIN-1");
        self.kept.retain(|kept| !gone.contains(kept));
    }

    fn tell(&mut self, event: Event<(u32, u64)>) {
        let outcome = self.machine.on_event(Duration::ZERO, event);
        self.machine.check_invariants();
        let (mut starts, mut looks) = (false, false);
        for command in outcome.commands {
            match command {
                Command::CommitReport { collated, .. } => {
                    for (rank, report) in (0..).zip(&collated.by_rank) {
                        let Some((of, sequence)) = report else { continue };
                        assert_eq!((*of, *sequence + 1), (rank, collated.iteration), "COLLATE-1");
                    }
                }
                Command::KeepValidation { iteration, displaced } => self.keeping = Some((iteration, displaced)),
                Command::Validate { iteration } => {
                    assert_eq!(self.validating.replace(iteration), None, "VALIDATE-1: one at a time");
                    assert!(self.kept.contains(&iteration), "VALIDATE-2: it is there");
                }
                Command::StopValidation { iteration, .. } => assert_eq!(self.validating, Some(iteration)),
                Command::StoreCheckpoint { iteration, displaced, .. } => {
                    self.displaced = displaced;
                    assert!(self.committing.is_empty(), "SAVE-1: one at a time");
                    self.committing.push(iteration);
                }
                Command::DropCheckpoint { iteration } => self.committing.retain(|stored| *stored != iteration),
                Command::GatherStacks { .. } => self.asked = true,
                Command::StartGroup { attempt, reports } => {
                    self.on_started(attempt, reports);
                    starts = true;
                }
                Command::FindLatest => looks = true,
                Command::Release { rank, .. } => {
                    assert!(self.busy[rank.index()], "nobody is released who does not wait");
                    self.busy[rank.index()] = false;
                }
                Command::StopGroup { .. } => {
                    assert!(!outcome.reason.is_empty(), "RUN-3");
                    self.stopped = true;
                }
                Command::EndRun(ending) => {
                    self.endings += 1;
                    assert!(self.alive.iter().all(|alive| !alive), "RUN-1: no process outlives the run");
                    assert!(self.committing.is_empty(), "RUN-4");
                    // A run whose last checkpoint could not be stored has what its ranks returned, too.
                    assert!(ending.failure.is_some() || !ending.return_values.is_empty());
                    assert!(ending.failure.is_some() || self.validating.is_none(), "VALIDATE-3");
                }
                _ => {}
            }
        }
        assert!(self.endings <= 1, "RUN-1: a run ends once");
        if looks {
            let newest = self.newest.map(|iteration| (iteration, "path".to_owned()));
            let kept = self.kept.iter().map(|iteration| Kept { iteration: *iteration, score: None }).collect();
            self.tell(Event::LatestFound { newest, kept });
        }
        if starts {
            self.group_runs();
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Report { rank, checkpoint, validate } if self.is_free(rank) => {
                let sequence = self.reports[rank as usize];
                self.reports[rank as usize] += 1;
                let report = (rank, sequence);
                self.tell(Event::Reported { rank: Rank(rank), sequence, report, checkpoint, validate });
                if checkpoint.is_some() {
                    self.preparing.push((rank, sequence + 1));
                }
            }
            Step::Wait { rank, kind } if self.is_free(rank) => {
                let sequence = match kind {
                    WaitKind::Place | WaitKind::Settled => self.reports[rank as usize],
                    // Only a rank that was told, and has brought a checkpoint, waits for the end.
                    WaitKind::Preempted if !self.preempted => return,
                    WaitKind::Checkpoint | WaitKind::Preempted if self.reports[rank as usize] == 0 => return,
                    WaitKind::Checkpoint | WaitKind::Preempted => self.reports[rank as usize] - 1,
                    _ => self.collectives[rank as usize],
                };
                if matches!(kind, WaitKind::Barrier | WaitKind::Broadcast) {
                    self.collectives[rank as usize] += 1;
                }
                self.busy[rank as usize] = true;
                self.tell(Event::WorkerWaits { rank: Rank(rank), kind, sequence, payload: Vec::new() });
            }
            Step::Return(rank) if self.is_free(rank) => {
                self.busy[rank as usize] = true;
                self.tell(Event::WorkerReturned { rank: Rank(rank), value: Some("value".into()), preempted: false });
            }
            Step::Fail(rank) if self.is_free(rank) => {
                self.busy[rank as usize] = true;
                let failure = Failure::new(ErrorCode::UserException, "mistake");
                self.tell(Event::WorkerFailed {
                    failure: WorkerFailure::of_process(Rank(rank), failure, String::new()),
                    alone: rank % 2 == 0,
                });
            }
            Step::Exit(rank) if self.alive[rank as usize] => {
                self.alive[rank as usize] = false;
                self.tell(Event::WorkerExited {
                    rank: Rank(rank),
                    exit: ExitStatus::Code(1),
                    last_output: String::new(),
                    out_of_memory: None,
                });
            }
            Step::Prepare { works } => {
                let Some((rank, iteration)) = self.preparing.pop() else { return };
                let result = if works { Ok(()) } else { Err(Failure::new(ErrorCode::Storage, "no space")) };
                self.tell(Event::CheckpointPrepared { rank: Rank(rank), iteration, result });
            }
            Step::Commit { works } => {
                let Some(iteration) = self.committing.pop() else { return };
                if works {
                    self.newest = Some(iteration);
                    self.kept.push(iteration);
                    let displaced = std::mem::take(&mut self.displaced);
                    self.delete(&displaced);
                }
                self.tell(if works {
                    Event::CheckpointCommitted { iteration, path: "path".into() }
                } else {
                    Event::CheckpointRejected { iteration, failure: Failure::new(ErrorCode::Storage, "no space") }
                });
            }
            Step::Validated { score } => {
                if let Some((iteration, displaced)) = self.keeping.take() {
                    self.validating = None;
                    self.delete(&displaced);
                    return self.tell(Event::ValidationKept { iteration });
                }
                let Some(iteration) = self.validating else { return };
                let (score, how) = (score.map(f64::from), "checked".to_owned());
                self.tell(Event::Validated { iteration, score, how });
            }
            Step::ValidationLate => {
                let Some(iteration) = self.validating else { return };
                self.tell(Event::TimerFired(Timer::Validation(iteration)));
            }
            Step::Gather => {
                self.tell(Event::TimerFired(Timer::Gather(self.attempt)));
                if std::mem::take(&mut self.asked) {
                    self.tell(Event::StacksGathered(Vec::new()));
                }
            }
            Step::Stop { force } => self.tell(Event::StopRequested { reason: "stop".into(), force }),
            Step::Preempt => {
                self.preempted = true;
                self.tell(Event::Preempted { reason: "SIGTERM".into(), grace: Duration::from_secs(30) });
            }
            Step::Halt { rank, halted } if self.alive[rank as usize] => {
                self.tell(Event::WorkerHalted { rank: Rank(rank), halted });
            }
            _ => {}
        }
    }

    fn is_free(&self, rank: u32) -> bool {
        self.alive[rank as usize] && !self.busy[rank as usize]
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_run_keeps_its_invariants_and_ends(steps in prop::collection::vec(step(), 0..80)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        // What the world does by itself in the end: free ranks return, commits come, processes go.
        // A failed attempt is followed by the next one, as often as the budgets allow.
        for _ in 0..12 {
            for rank in 0..WORLD {
                world.step(Step::Return(rank));
            }
            while !(world.committing.is_empty() && world.preparing.is_empty()) {
                world.step(Step::Prepare { works: true });
                world.step(Step::Commit { works: true });
            }
            while world.validating.is_some() && world.endings == 0 {
                world.step(Step::Validated { score: None });
            }
            world.step(Step::Gather);
            world.tell(Event::TimerFired(Timer::Preempt));
            prop_assert!(world.stopped || world.endings == 1, "no run waits for ever: {:?}", world.busy);
            for rank in 0..WORLD {
                world.step(Step::Exit(rank));
            }
        }
        while !world.committing.is_empty() || (world.validating.is_some() && world.endings == 0) {
            world.step(Step::Commit { works: true });
            world.step(Step::Validated { score: None });
        }
        prop_assert_eq!(world.endings, 1);
    }
}
