//! The experiment machine: scripts of what happens, and what it wants done.

use std::collections::BTreeMap;

use carril_core::tune::experiment::{
    Answer, Experiment, ExperimentCommand, ExperimentEnd, ExperimentEvent, ExperimentOptions, Question, Record,
    Resuming, RunEnd, Verdict,
};
use carril_core::tune::scheduler::{
    AnyScheduler, Asha, AshaOptions, Decision, Fifo, HyperBand, HyperBandOptions, Mutation, MutationOptions, NewConfig,
    Order, Pbt, PbtOptions, Scheduler, Target,
};
use carril_core::tune::search::{AnySearcher, Basic, BasicOptions, Searcher, Suggestion};
use carril_core::tune::space::{Domain, Node};
use carril_core::tune::{Mode, TrialId};
use carril_types::{ErrorCode, Failure, Metrics, Resources, Value};
use proptest::prelude::*;

/// Carries out what the machine wants, in a world with so many places, and keeps a record of all of it.
struct World {
    machine: Experiment,
    places: usize,
    running: Vec<TrialId>,
    waiting: Vec<TrialId>,
    /// How many may wait for room.
    ahead: usize,
    reports: Vec<u64>,
    records: Vec<Record>,
    verdicts: Vec<(TrialId, u64, Verdict, u64)>,
    questions: Vec<(u64, Question)>,
    adopted: Vec<(TrialId, TrialId)>,
    warnings: Vec<String>,
    end: Option<ExperimentEnd>,
}

fn space() -> Node {
    Node::Map(vec![("x".into(), Node::Domain(Domain::uniform(0.0, 1.0).unwrap()))])
}

fn basic(samples: u64) -> AnySearcher {
    let options = BasicOptions { num_samples: Some(samples), seed: 7, ..BasicOptions::default() };
    AnySearcher::Basic(Basic::new(space(), options).unwrap())
}

fn target() -> Target {
    Target::new("training_iteration", "loss", Mode::Min)
}

impl World {
    fn new(places: usize, machine: Experiment) -> Self {
        Self::with_ahead(places, 1, machine)
    }

    fn with_ahead(places: usize, ahead: usize, machine: Experiment) -> Self {
        let mut world = Self {
            machine,
            places,
            running: Vec::new(),
            waiting: Vec::new(),
            ahead,
            reports: Vec::new(),
            records: Vec::new(),
            verdicts: Vec::new(),
            questions: Vec::new(),
            adopted: Vec::new(),
            warnings: Vec::new(),
            end: None,
        };
        world.tell(ExperimentEvent::Begun);
        world
    }

    fn fifo(places: usize, samples: u64, options: ExperimentOptions) -> Self {
        let fifo = AnyScheduler::Fifo(Fifo::default());
        Self::with_ahead(places, 3, Experiment::new(options, Some(basic(samples)), Some(fifo)))
    }

    fn tell(&mut self, event: ExperimentEvent) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for command in self.machine.on_event(event) {
                match command {
                    ExperimentCommand::Ask { question, about } => self.questions.push((question, about)),
                    ExperimentCommand::Submit { trial, .. } => {
                        assert!(self.waiting.len() < self.ahead, "EXP-1: so many at most wait for room");
                        self.waiting.push(trial);
                    }
                    ExperimentCommand::Adopt { trial, from } => self.adopted.push((trial, from)),
                    ExperimentCommand::Decide { trial, number, verdict, free, .. } => {
                        self.verdicts.push((trial, number, verdict, free));
                    }
                    ExperimentCommand::StopTrial { trial, .. } => {
                        self.leave(trial);
                        events.push(ExperimentEvent::RunEnded { trial, end: RunEnd::Aborted("told to".into()) });
                    }
                    ExperimentCommand::Record(record) => self.records.push(record),
                    ExperimentCommand::End(end) => {
                        assert!(self.end.is_none(), "it ends once");
                        self.end = Some(end);
                    }
                    ExperimentCommand::Warn(text) => self.warnings.push(text),
                    ExperimentCommand::LogPolicy(_) => {}
                }
            }
            if self.running.len() < self.places && !self.waiting.is_empty() {
                let trial = self.waiting.remove(0);
                self.running.push(trial);
                self.reports.resize(self.reports.len().max(trial.0 as usize + 1), 0);
                events.push(ExperimentEvent::Placed { trial });
            }
        }
    }

    fn leave(&mut self, trial: TrialId) {
        self.running.retain(|running| *running != trial);
        self.waiting.retain(|waiting| *waiting != trial);
    }

    /// The trial reports, and leaves if it is told to. Returns what it was told.
    fn report(&mut self, trial: u64, loss: f64) -> Verdict {
        let id = TrialId(trial);
        self.reports[trial as usize] += 1;
        let number = self.reports[trial as usize];
        let result = Metrics(vec![
            ("loss".into(), Value::Float(loss)),
            ("training_iteration".into(), Value::Int(number as i64)),
        ]);
        self.tell(ExperimentEvent::Reported { trial: id, number, result });
        let verdict = self.verdicts.iter().rev().find(|(of, at, ..)| *of == id && *at == number);
        let verdict = verdict.map_or(Verdict::Continue, |(_, _, verdict, _)| *verdict);
        if matches!(verdict, Verdict::Stop | Verdict::Pause) {
            self.finish(trial);
        }
        verdict
    }

    fn finish(&mut self, trial: u64) {
        self.leave(TrialId(trial));
        self.tell(ExperimentEvent::RunEnded { trial: TrialId(trial), end: RunEnd::Finished });
    }

    /// The driver answers the one question of that kind.
    fn answer(&mut self, kind: impl Fn(&Question) -> bool, answer: Answer, orders: Vec<Order>) {
        let at = self.questions.iter().position(|(_, about)| kind(about)).expect("the driver is asked");
        let (question, _) = self.questions.remove(at);
        self.tell(ExperimentEvent::Answered { question, answer, orders });
    }

    fn fail(&mut self, trial: u64) {
        self.leave(TrialId(trial));
        self.tell(ExperimentEvent::RunEnded { trial: TrialId(trial), end: RunEnd::Failed("ValueError: no".into()) });
    }

    fn ended(&self) -> Vec<u64> {
        let ended = self.records.iter().filter_map(|record| match record {
            Record::Ended(ended) => Some(ended.trial.0),
            _ => None,
        });
        ended.collect()
    }
}

#[test]
fn exp_3_without_what_all_trials_need_the_experiment_ends_and_no_trial_has_failed() {
    let mut world = World::fifo(2, 6, ExperimentOptions::default());
    let (first, second) = (world.running[0], world.running[1]);
    let failure = Failure::new(ErrorCode::StorageRefused, "the disk is full");
    world.leave(first);
    world.tell(ExperimentEvent::Broken { trial: Some(first), failure: failure.clone() });
    assert!(!world.running.contains(&second), "it was stopped, and is resumed by the next head");
    assert_eq!(world.end, Some(ExperimentEnd::Broken(failure)));
    assert!(!world.records.iter().any(|record| matches!(record, Record::Ended(_))));
}

#[test]
fn trials_run_as_long_as_there_is_room_and_the_next_is_made_when_one_has_it() {
    let mut world = World::fifo(2, 4, ExperimentOptions::default());
    assert_eq!(world.running, [TrialId(0), TrialId(1)]);
    assert_eq!(world.waiting, [TrialId(2), TrialId(3)], "EXP-1: where nothing is learnt, some are made ahead");
    world.report(0, 1.0);
    world.finish(0);
    assert_eq!(world.running, [TrialId(1), TrialId(2)]);
    for trial in [1, 2, 3] {
        world.finish(trial);
    }
    assert_eq!(world.ended(), [0, 1, 2, 3]);
    assert_eq!(world.end, Some(ExperimentEnd::Finished("every trial has ended".into())));
}

#[test]
fn a_failed_trial_does_not_stop_the_others_unless_that_is_asked_for() {
    let mut world = World::fifo(1, 2, ExperimentOptions::default());
    world.fail(0);
    world.finish(1);
    assert!(matches!(world.end, Some(ExperimentEnd::Finished(_))));
    let options = ExperimentOptions { fail_fast: true, ..ExperimentOptions::default() };
    let mut world = World::fifo(2, 5, options);
    world.fail(0);
    assert!(world.running.is_empty(), "the others were stopped");
    assert!(matches!(&world.end, Some(ExperimentEnd::Failed(reason)) if reason.contains("ValueError")));
}

#[test]
fn a_trial_that_has_room_and_cannot_be_opened_has_failed_and_nobody_waits_for_it() {
    let mut world = World::fifo(1, 2, ExperimentOptions::default());
    world.leave(TrialId(0));
    world.tell(ExperimentEvent::Refused { trial: TrialId(0), reason: "its files are damaged".into() });
    world.finish(1);
    assert_eq!(world.ended(), [0, 1]);
    assert_eq!(world.end, Some(ExperimentEnd::Finished("every trial has ended".into())), "EXP-5");
}

#[test]
fn a_metric_that_is_nearly_right_is_suggested() {
    let metric = Some(("los".to_owned(), Mode::Min));
    let mut world = World::fifo(1, 1, ExperimentOptions { metric, ..ExperimentOptions::default() });
    world.report(0, 1.0);
    world.finish(0);
    let Some(ExperimentEnd::Failed(reason)) = world.end else { panic!("{:?}", world.end) };
    assert!(reason.ends_with("reported `loss`; did you mean `loss`?"), "{reason}");
}

#[test]
fn a_rule_about_a_field_of_every_report_that_is_nearly_right_is_suggested() {
    let stop = vec![("training_iterations".to_owned(), 3.0)];
    let mut world = World::fifo(1, 1, ExperimentOptions { stop, ..ExperimentOptions::default() });
    world.report(0, 1.0);
    let Some(ExperimentEnd::Failed(reason)) = world.end else { panic!("{:?}", world.end) };
    assert!(reason.ends_with("which `stop` is to look at; did you mean `training_iteration`?"), "{reason}");
}

#[test]
fn a_rule_stops_a_trial_at_the_report_that_meets_it_and_reports_before_that_need_not_ask() {
    let stop = vec![("training_iteration".to_owned(), 3.0)];
    let mut world = World::fifo(1, 1, ExperimentOptions { stop, ..ExperimentOptions::default() });
    assert_eq!(world.report(0, 1.0), Verdict::Continue);
    assert_eq!(world.verdicts.last().unwrap().3, 2, "EXP-2: the second report is free, the third is not");
    assert_eq!(world.report(0, 1.0), Verdict::Continue);
    assert_eq!(world.report(0, 1.0), Verdict::Stop);
    assert!(matches!(world.end, Some(ExperimentEnd::Finished(_))));
    let stop = vec![("loss".to_owned(), 3.0)];
    let mut world = World::fifo(1, 1, ExperimentOptions { stop, ..ExperimentOptions::default() });
    assert_eq!(world.report(0, 1.0), Verdict::Continue);
    assert_eq!(world.verdicts.last().unwrap().3, 1, "any report may meet a rule about a metric");
    assert_eq!(world.report(0, 3.5), Verdict::Stop);
}

fn asha(world_places: usize, samples: u64) -> World {
    let options = AshaOptions { max_t: 9.0, reduction_factor: 3.0, ..AshaOptions::new(target()) };
    let scheduler = AnyScheduler::Asha(Asha::new(options).unwrap());
    let metric = Some(("loss".to_owned(), Mode::Min));
    let options = ExperimentOptions { metric, ..ExperimentOptions::default() };
    World::new(world_places, Experiment::new(options, Some(basic(samples)), Some(scheduler)))
}

#[test]
fn asha_stops_the_bad_one_at_its_rung_and_leaves_the_reports_between_rungs_alone() {
    let mut world = asha(3, 3);
    assert_eq!(world.report(0, 1.0), Verdict::Continue);
    assert_eq!(world.verdicts.last().unwrap().3, 2, "the next rung is at 3");
    assert_eq!(world.report(1, 2.0), Verdict::Stop);
    assert_eq!(world.report(2, 0.5), Verdict::Continue);
    let told = |world: &World| world.records.iter().filter(|record| matches!(record, Record::Told { .. })).count();
    let before = told(&world);
    world.report(0, 1.0);
    assert_eq!(told(&world), before, "what decides nothing is not written down");
}

#[test]
fn a_metric_that_nobody_reports_ends_the_experiment_with_the_names_that_there_are() {
    let mut world = asha(1, 5);
    let result = Metrics(vec![("los".into(), Value::Float(1.0))]);
    world.tell(ExperimentEvent::Reported { trial: TrialId(0), number: 1, result });
    world.finish(0);
    let Some(ExperimentEnd::Failed(reason)) = &world.end else { panic!("{:?}", world.end) };
    assert!(reason.contains("`loss`") && reason.contains("`los`"), "{reason}");
}

#[test]
fn a_trial_that_reports_nothing_leaves_it_to_the_others_to_report_the_metric() {
    let metric = || ExperimentOptions { metric: Some(("loss".into(), Mode::Min)), ..ExperimentOptions::default() };
    for places in [1, 2] {
        let mut world = World::fifo(places, 3, metric());
        world.finish(0);
        assert_eq!(world.end, None, "EXP-6: the others may report it");
        world.report(1, 1.0);
        world.finish(1);
        world.finish(2);
        assert!(matches!(world.end, Some(ExperimentEnd::Finished(_))), "{:?}", world.end);
    }
    let mut world = World::fifo(1, 3, metric());
    for trial in 0..3 {
        assert_eq!(world.end, None);
        world.finish(trial);
    }
    let reason = "no trial reported `loss`: trial 0 reported nothing";
    assert_eq!(world.end, Some(ExperimentEnd::Failed(reason.into())));
    let mut world = World::fifo(1, 2, metric());
    world.fail(0);
    world.fail(1);
    assert!(
        matches!(world.end, Some(ExperimentEnd::Finished(_))),
        "what failed is reported as failed: {:?}",
        world.end
    );
}

#[test]
fn a_metric_is_missing_when_those_that_ran_beside_have_not_reported_it_either() {
    let metric = || ExperimentOptions { metric: Some(("loss".into(), Mode::Min)), ..ExperimentOptions::default() };
    let other = |world: &mut World, trial: u64| {
        let result = Metrics(vec![("accuracy".into(), Value::Float(1.0))]);
        world.tell(ExperimentEvent::Reported { trial: TrialId(trial), number: 1, result });
        world.finish(trial);
    };
    let mut world = World::fifo(2, 20, metric());
    other(&mut world, 0);
    assert_eq!(world.end, None, "EXP-6: trial 1 may report it");
    other(&mut world, 2);
    assert_eq!(world.end, None);
    world.fail(1);
    let Some(ExperimentEnd::Failed(reason)) = &world.end else { panic!("{:?}", world.end) };
    assert_eq!(reason, "no trial reported the metric `loss`: trial 0 reported `accuracy`");
    let mut world = World::fifo(2, 3, metric());
    other(&mut world, 0);
    world.report(1, 1.0);
    world.finish(1);
    assert_eq!(world.end, None);
}

#[test]
fn hyperband_pauses_trials_until_their_bracket_is_there_and_brings_the_best_to_the_end() {
    let options = HyperBandOptions { max_t: 4.0, reduction_factor: 2.0, ..HyperBandOptions::new(target()) };
    let scheduler = AnyScheduler::HyperBand(HyperBand::new(options).unwrap());
    let machine = Experiment::new(ExperimentOptions::default(), Some(basic(4)), Some(scheduler));
    let mut world = World::new(1, machine);
    for _ in 0..200 {
        let Some(trial) = world.running.first().copied() else { break };
        // The smaller its number, the better it is.
        world.report(trial.0, trial.0 as f64);
    }
    assert!(matches!(world.end, Some(ExperimentEnd::Finished(_))), "{:?}", world.end);
    assert_eq!(world.ended().len(), 4);
    assert_eq!(*world.ended().last().unwrap(), 0, "the best one goes on longest");
    assert!(world.records.iter().any(|record| matches!(record, Record::Paused { .. })));
}

fn pbt(places: usize, samples: u64, asks: bool) -> World {
    World::new(places, pbt_machine(samples, asks))
}

fn pbt_machine(samples: u64, asks: bool) -> Experiment {
    let options = PbtOptions { perturbation_interval: 2.0, ..PbtOptions::new(target()) };
    let lr = if asks { Mutation::Ask } else { Mutation::Choices(vec![Value::Int(1), Value::Int(2)]) };
    let mutations = MutationOptions::new(vec![("x".into(), lr)]);
    let scheduler = AnyScheduler::Pbt(Pbt::new(options, mutations).unwrap());
    Experiment::new(ExperimentOptions::default(), Some(basic(samples)), Some(scheduler))
}

#[test]
fn a_bad_member_of_a_population_goes_on_from_a_good_one_if_that_has_a_checkpoint() {
    for checkpoints in [0, 1] {
        let mut world = pbt(2, 2, false);
        for trial in [0, 1] {
            world.machine.set_checkpoints(TrialId(trial), checkpoints);
        }
        world.report(0, 1.0);
        world.report(0, 1.0);
        world.report(1, 9.0);
        let verdict = world.report(1, 9.0);
        if checkpoints == 0 {
            assert_eq!(verdict, Verdict::Continue, "there is nothing to go on from");
            assert!(world.records.iter().any(|record| matches!(record, Record::ExploitRefused { .. })));
            continue;
        }
        assert_eq!(verdict, Verdict::Stop, "it leaves its own work");
        assert_eq!(world.adopted, [(TrialId(1), TrialId(0))]);
        assert!(world.running.contains(&TrialId(1)), "and goes on at once, since there is room");
        let exploited = world.records.iter().find_map(|record| match record {
            Record::Exploited { trial, from, config, .. } => Some((*trial, *from, config.clone())),
            _ => None,
        });
        let (trial, from, config) = exploited.unwrap();
        assert_eq!((trial, from), (TrialId(1), TrialId(0)));
        assert_eq!(world.machine.config(TrialId(1)), &config);
    }
}

/// Two trials, of which the second goes on from the first with another config.
fn exploited() -> (World, Metrics) {
    let mut world = pbt(2, 2, false);
    for trial in [0, 1] {
        world.machine.set_checkpoints(TrialId(trial), 1);
    }
    let before = world.machine.config(TrialId(1)).clone();
    for (trial, loss) in [(0, 1.0), (0, 1.0), (1, 9.0), (1, 9.0)] {
        world.report(trial, loss);
    }
    assert!(world.running.contains(&TrialId(1)));
    assert_ne!(world.machine.config(TrialId(1)), &before);
    (world, before)
}

/// What the record of the trial's end says of its config.
fn config_at_end(world: &World, trial: u64) -> Option<Metrics> {
    let ended = world.records.iter().find_map(|record| match record {
        Record::Ended(ended) if ended.trial == TrialId(trial) => Some(ended.config.clone()),
        _ => None,
    });
    ended.expect("it has ended")
}

/// EXP-7.
#[test]
fn a_trial_ends_with_the_config_that_its_last_report_was_made_with() {
    let (mut world, before) = exploited();
    world.finish(1);
    assert_eq!(config_at_end(&world, 1), Some(before.clone()));
    assert_eq!(world.machine.config(TrialId(1)), &before);

    let (mut world, before) = exploited();
    world.report(1, 0.5);
    world.finish(1);
    assert_eq!(config_at_end(&world, 1), None);
    assert_ne!(world.machine.config(TrialId(1)), &before);

    // A head that takes over does the same, also where the report after the exploit has no record.
    for (reports_after, expected) in [(false, Some(before)), (true, None)] {
        let (world, _) = exploited();
        let records = world.records.iter().map(|record| (record.clone(), None)).collect();
        let mut machine = pbt_machine(2, false);
        machine.replay(records, BTreeMap::new(), Resuming::default());
        let seen = |iteration: i64| {
            Metrics(vec![("loss".into(), Value::Float(9.0)), ("training_iteration".into(), Value::Int(iteration))])
        };
        machine.set_reached(TrialId(1), seen(if reports_after { 3 } else { 2 }), true);
        let mut world = World::new(2, machine);
        assert!(world.running.contains(&TrialId(1)), "{:?}", world.running);
        world.finish(1);
        assert_eq!(config_at_end(&world, 1), expected);
    }
}

/// RANDOM-3.
#[test]
fn a_population_does_not_draw_what_its_searcher_draws_from_the_same_seed() {
    let x = |config: &Metrics| config.get("x").and_then(Value::as_f64).unwrap().to_bits();
    let mut searched = basic(200);
    let suggested: Vec<u64> = (0..200)
        .map(|trial| match searched.suggest(TrialId(trial)) {
            Suggestion::Config(config) => x(&config),
            other => panic!("{other:?}"),
        })
        .collect();
    let options = PbtOptions { perturbation_interval: 1.0, seed: 7, ..PbtOptions::new(target()) };
    let domain = Mutation::Domain(Domain::uniform(0.0, 1.0).unwrap());
    let mutations = MutationOptions { resample_probability: 1.0, ..MutationOptions::new(vec![("x".into(), domain)]) };
    let mut population = Pbt::new(options, mutations).unwrap();
    // What a config lacks is drawn.
    let filled = (0..50).map(|trial| population.on_trial_added(TrialId(trial), &Metrics::default()).unwrap());
    for filled in filled.collect::<Vec<_>>() {
        assert!(!suggested.contains(&x(&filled.config)), "{filled:?}");
    }
}

#[test]
fn a_population_without_checkpoints_is_warned_of_once() {
    // One after the other: none is ever compared with another.
    for places in [1, 2] {
        let mut world = pbt(places, 3, false);
        for trial in 0..3 {
            for _ in 0..4 {
                world.report(trial, trial as f64);
            }
            world.finish(trial);
        }
        assert_eq!(world.warnings.len(), 1, "{:?}", world.warnings);
    }
    let mut world = pbt(1, 3, false);
    world.machine.set_checkpoints(TrialId(0), 1);
    world.report(0, 1.0);
    world.finish(0);
    assert_eq!(world.warnings, [""; 0]);
}

/// One that has a checkpoint for every report of it.
fn report_saved(world: &mut World, trial: TrialId, loss: f64) -> Verdict {
    world.machine.set_checkpoints(trial, 1);
    world.report(trial.0, loss)
}

#[test]
fn a_population_shares_the_places_that_there_are() {
    for max_concurrent in [None, Some(1)] {
        let options = PbtOptions { perturbation_interval: 2.0, ..PbtOptions::new(target()) };
        let lr = Mutation::Choices(vec![Value::Int(1), Value::Int(2)]);
        let pbt = Pbt::new(options, MutationOptions::new(vec![("x".into(), lr)])).unwrap();
        let stop = vec![("training_iteration".to_owned(), 8.0)];
        let options = ExperimentOptions { max_concurrent, stop, ..ExperimentOptions::default() };
        let places = if max_concurrent.is_some() { 4 } else { 1 };
        let mut world = World::new(places, Experiment::new(options, Some(basic(4)), Some(AnyScheduler::Pbt(pbt))));
        let mut furthest = 0;
        while let Some(trial) = world.running.first().copied() {
            assert_eq!(world.running.len(), 1);
            report_saved(&mut world, trial, trial.0 as f64);
            let reached = |trial: usize| world.reports.get(trial).copied().unwrap_or(0);
            furthest = furthest.max((0..4).map(reached).max().unwrap());
            let least = (0..4).map(reached).min().unwrap();
            assert!(furthest <= least + 4, "PBT-5: none is more than its interval ahead: {:?}", world.reports);
        }
        assert!(matches!(world.end, Some(ExperimentEnd::Finished(_))), "{:?}", world.end);
        assert_eq!(world.ended().len(), 4);
        assert!(!world.adopted.is_empty(), "what does badly resumes from what does well");
    }
}

#[test]
fn who_has_no_checkpoint_keeps_its_place_and_who_is_alone_too() {
    let mut world = pbt(1, 2, false);
    world.report(0, 1.0);
    assert_eq!(world.report(0, 1.0), Verdict::Save, "it would begin again");
    let mut world = pbt(1, 1, false);
    report_saved(&mut world, TrialId(0), 1.0);
    assert_eq!(report_saved(&mut world, TrialId(0), 1.0), Verdict::Save, "nobody waits");
    let mut world = pbt(4, 4, false);
    report_saved(&mut world, TrialId(0), 1.0);
    assert_eq!(report_saved(&mut world, TrialId(0), 1.0), Verdict::Save, "there is room for all");
}

#[test]
fn a_population_that_shares_its_places_is_the_same_after_a_replay() {
    let mut world = pbt(1, 4, false);
    for _ in 0..9 {
        let trial = world.running[0];
        // The later ones are better, so that none is replaced yet.
        report_saved(&mut world, trial, -(trial.0 as f64));
    }
    let state = |world: &World| {
        let paused = world.records.iter().filter(|record| matches!(record, Record::Paused { .. })).count();
        (world.running.clone(), paused)
    };
    let (running, paused) = state(&world);
    assert!(paused >= 3, "{:?}", world.records);
    let mut again = pbt(0, 4, false);
    again.machine = {
        let options = PbtOptions { perturbation_interval: 2.0, ..PbtOptions::new(target()) };
        let lr = Mutation::Choices(vec![Value::Int(1), Value::Int(2)]);
        let scheduler = Pbt::new(options, MutationOptions::new(vec![("x".into(), lr)])).unwrap();
        Experiment::new(ExperimentOptions::default(), Some(basic(4)), Some(AnyScheduler::Pbt(scheduler)))
    };
    again.machine.replay(replayed(&world, |_| true), BTreeMap::new(), Resuming::default());
    (again.running, again.waiting, again.records, again.places) = (Vec::new(), Vec::new(), Vec::new(), 1);
    again.tell(ExperimentEvent::Begun);
    assert!(!again.records.iter().any(|record| matches!(record, Record::Paused { .. } | Record::Exploited { .. })));
    assert_eq!(again.running.len(), running.len());
    assert_eq!(again.machine.len(), 4);
}

#[test]
fn what_the_user_draws_is_asked_before_a_trial_goes_on_from_another() {
    let mut world = pbt(2, 2, true);
    let asked: Vec<u64> = world.questions.iter().map(|(question, _)| *question).collect();
    assert!(!asked.is_empty() || world.machine.len() == 2);
    for question in asked {
        answer_resolve(&mut world, question);
    }
    while let Some((question, _)) = world.questions.pop() {
        answer_resolve(&mut world, question);
    }
    for trial in [0, 1] {
        world.machine.set_checkpoints(TrialId(trial), 1);
    }
    world.report(0, 1.0);
    world.report(0, 1.0);
    world.report(1, 9.0);
    world.report(1, 9.0);
    if let Some((question, Question::Resolve { explored: true, .. })) = world.questions.pop() {
        assert!(!world.running.contains(&TrialId(1)), "it waits for the answer");
        answer_resolve(&mut world, question);
    }
    assert!(world.running.contains(&TrialId(1)));
}

fn answered(question: u64, answer: Answer) -> ExperimentEvent {
    ExperimentEvent::Answered { question, answer, orders: Vec::new() }
}

fn answer_resolve(world: &mut World, question: u64) {
    let config = Metrics(vec![("x".into(), Value::Int(5))]);
    world.questions.retain(|(number, _)| *number != question);
    let answer = Answer::Resolved { config, names: None, resources: None };
    world.tell(answered(question, answer));
}

#[test]
fn a_searcher_of_the_users_is_asked_one_trial_at_a_time() {
    let options = ExperimentOptions { most: Some(3), ..ExperimentOptions::default() };
    let machine = Experiment::new(options, None, Some(AnyScheduler::Fifo(Fifo::default())));
    let mut world = World::new(1, machine);
    for number in 0..3 {
        let (question, about) = world.questions.pop().expect("it asks for the next trial");
        assert_eq!(about, Question::Suggest { trial: TrialId(number) });
        assert!(world.questions.is_empty());
        let config = Metrics(vec![("x".into(), Value::Int(number as i64))]);
        world.tell(answered(question, Answer::Config(config)));
        if number > 0 {
            world.finish(number - 1);
        }
    }
    world.finish(2);
    assert!(matches!(world.end, Some(ExperimentEnd::Finished(_))));
}

#[test]
fn a_searcher_that_wants_to_wait_is_asked_again_when_a_trial_has_ended_and_not_for_ever() {
    let machine = Experiment::new(ExperimentOptions::default(), None, Some(AnyScheduler::Fifo(Fifo::default())));
    let mut world = World::new(2, machine);
    let (question, _) = world.questions.pop().unwrap();
    world.tell(answered(question, Answer::Config(Metrics::default())));
    let (question, _) = world.questions.pop().unwrap();
    world.tell(answered(question, Answer::NotNow));
    assert!(world.questions.is_empty());
    world.finish(0);
    let (question, _) = world.questions.pop().expect("asked again");
    world.tell(answered(question, Answer::NotNow));
    assert!(matches!(world.end, Some(ExperimentEnd::Finished(_))), "EXP-5: nothing runs that it could wait for");
}

#[test]
fn a_judge_in_the_driver_has_the_first_word_and_may_end_it_all() {
    let options = ExperimentOptions { asks_judge: true, ..ExperimentOptions::default() };
    let mut world = World::fifo(2, 5, options);
    world.report(0, 1.0);
    let (question, _) = world.questions.pop().unwrap();
    let judged =
        |decision, stop_all| Answer::Judged { decision, reason: "says the user".into(), saves: false, stop_all };
    world.tell(answered(question, judged(Decision::Continue, false)));
    assert_eq!(world.verdicts.last().unwrap().2, Verdict::Continue);
    world.report(1, 1.0);
    let (question, _) = world.questions.pop().unwrap();
    world.tell(answered(question, judged(Decision::Complete, true)));
    assert!(matches!(world.end, Some(ExperimentEnd::Finished(_))));
    assert!(
        world.ended().is_empty(),
        "EXP-3: what the end of the whole cuts off has not ended, also not the one that was judged"
    );
}

/// Two trials that run by the choice of the driver's scheduler, of so many.
fn of_the_drivers(most: u64) -> World {
    let options = ExperimentOptions { asks_judge: true, most: Some(most), ..ExperimentOptions::default() };
    let mut world = World::new(2, Experiment::new(options, Some(basic(most)), None));
    for trial in 0..2 {
        world.answer(
            |about| matches!(about, Question::Choose { .. }),
            Answer::Chosen(Some(TrialId(trial))),
            Vec::new(),
        );
    }
    assert_eq!(world.running, [TrialId(0), TrialId(1)]);
    world
}

fn judges(about: &Question) -> bool {
    matches!(about, Question::Judge { .. })
}

fn judged(decision: Decision) -> Answer {
    Answer::Judged { decision, reason: "says the user".into(), saves: true, stop_all: false }
}

#[test]
fn a_scheduler_of_the_drivers_stops_trials_that_run_or_wait() {
    let mut world = of_the_drivers(3);
    world.report(0, 1.0);
    let stop = |trial: u64| (TrialId(trial), Decision::Stop, "says the user".to_owned());
    // The last is the number of no trial.
    world.answer(judges, judged(Decision::Continue), vec![stop(2), stop(1), stop(9)]);
    assert_eq!(world.verdicts.last().unwrap().2, Verdict::Save);
    assert_eq!(world.ended(), [2, 1]);
    assert_eq!(world.running, [TrialId(0)]);
    world.finish(0);
    // It was asked before the trial was stopped.
    world.answer(|about| matches!(about, Question::Choose { .. }), Answer::Chosen(Some(TrialId(2))), Vec::new());
    assert!(matches!(world.end, Some(ExperimentEnd::Finished(_))), "{:?}", world.end);
}

#[test]
fn a_scheduler_of_the_drivers_may_have_a_trial_resume_from_another_one() {
    let mut world = of_the_drivers(2);
    let config = Metrics(vec![("x".into(), Value::Int(5))]);
    let exploit = |from: u64| {
        let with = NewConfig { config: config.clone(), ask: Vec::new() };
        judged(Decision::Exploit { from: TrialId(from), with })
    };
    for from in [1, 9] {
        world.report(0, 1.0);
        world.answer(judges, exploit(from), Vec::new());
        assert_eq!(world.verdicts.last().unwrap().2, Verdict::Continue, "there is nothing to resume from");
    }
    world.machine.set_checkpoints(TrialId(1), 1);
    world.report(0, 1.0);
    world.answer(judges, exploit(1), Vec::new());
    assert_eq!(world.verdicts.last().unwrap().2, Verdict::Stop);
    world.finish(0);
    assert_eq!(world.adopted, [(TrialId(0), TrialId(1))]);
    assert_eq!(world.machine.config(TrialId(0)), &config);
    world.answer(|about| matches!(about, Question::Choose { .. }), Answer::Chosen(Some(TrialId(0))), Vec::new());
    assert!(world.running.contains(&TrialId(0)));
}

#[test]
fn what_is_interrupted_has_not_ended_and_goes_on_when_the_records_are_replayed() {
    let mut world = asha(2, 6);
    world.report(0, 1.0);
    world.report(1, 2.0);
    world.report(0, 1.0);
    world.tell(ExperimentEvent::StopRequested { reason: "interrupted".into() });
    assert_eq!(world.end, Some(ExperimentEnd::Stopped("interrupted".into())));
    let ended = world.ended();
    let records: Vec<(Record, Option<Metrics>)> = world.records.iter().cloned().map(|one| (one, None)).collect();

    let mut again = asha(0, 6);
    again.machine = {
        let options = AshaOptions { max_t: 9.0, reduction_factor: 3.0, ..AshaOptions::new(target()) };
        let scheduler = AnyScheduler::Asha(Asha::new(options).unwrap());
        Experiment::new(ExperimentOptions::default(), Some(basic(6)), Some(scheduler))
    };
    again.machine.replay(records, BTreeMap::new(), Resuming::default());
    again.places = 2;
    (again.running, again.waiting, again.records) = (Vec::new(), Vec::new(), Vec::new());
    again.tell(ExperimentEvent::Begun);
    for trial in &again.running {
        assert!(!ended.contains(&trial.0), "what has ended is not run again");
        assert_eq!(again.machine.config(*trial), world.machine.config(*trial));
    }
    assert!(again.running.contains(&TrialId(0)));
}

fn replayed(world: &World, keep: impl Fn(&Record) -> bool) -> Vec<(Record, Option<Metrics>)> {
    world.records.iter().filter(|record| keep(record)).cloned().map(|record| (record, None)).collect()
}

fn ends(world: &World) -> Vec<(u64, String, bool)> {
    let ended = world.records.iter().filter_map(|record| match record {
        Record::Ended(ended) => Some((ended.trial.0, ended.reason.clone(), ended.early)),
        _ => None,
    });
    ended.collect()
}

#[test]
fn a_run_that_ended_unheard_is_the_end_of_its_trial_with_what_it_had_reported() {
    let metric = || ExperimentOptions { metric: Some(("loss".into(), Mode::Min)), ..ExperimentOptions::default() };
    let world = World::fifo(2, 3, metric());
    let records = replayed(&world, |_| true);
    let machine = || Experiment::new(metric(), Some(basic(3)), Some(AnyScheduler::Fifo(Fifo::default())));
    let mut again = machine();
    let runs_ended = BTreeMap::from([(TrialId(0), RunEnd::Finished), (TrialId(1), RunEnd::Failed("no luck".into()))]);
    again.replay(records.clone(), runs_ended, Resuming::default());
    assert_eq!((0..3).map(|trial| again.ends_at_once(TrialId(trial))).collect::<Vec<_>>(), [true, true, false]);
    let last = Metrics(vec![("loss".into(), Value::Float(0.5))]);
    again.set_reached(TrialId(0), last, true);
    let world = World::with_ahead(1, 3, again);
    assert_eq!(ends(&world), [(0, "the function returned".into(), false), (1, "it failed".into(), false)]);
    assert!(world.end.is_none() && world.running == [TrialId(2)], "what is left goes on: {:?}", world.end);

    // One that resumes at its last step returns without another report.
    let mut again = machine();
    again.replay(records, BTreeMap::new(), Resuming::default());
    again.set_reached(TrialId(0), Metrics(vec![("loss".into(), Value::Float(0.5))]), true);
    let mut world = World::with_ahead(1, 3, again);
    world.finish(0);
    assert!(world.end.is_none(), "the metric was reported: {:?}", world.end);
}

#[test]
fn what_a_scheduler_has_decided_is_done_by_the_head_that_resumes() {
    let mut world = asha(3, 6);
    world.report(0, 1.0);
    world.report(1, 1.0);
    assert_eq!(world.report(2, 9.0), Verdict::Stop);
    let before = ends(&world);
    assert!(before.iter().any(|(trial, _, early)| *trial == 2 && *early), "{before:?}");
    let options = AshaOptions { max_t: 9.0, reduction_factor: 3.0, ..AshaOptions::new(target()) };
    let scheduler = AnyScheduler::Asha(Asha::new(options).unwrap());
    let mut again = Experiment::new(ExperimentOptions::default(), Some(basic(6)), Some(scheduler));
    let is_told = |record: &Record| !matches!(record, Record::Ended(_) | Record::Chosen { trial: TrialId(3..) });
    again.replay(replayed(&world, is_told), BTreeMap::new(), Resuming::default());
    let again = World::new(2, again);
    assert_eq!(ends(&again), before, "it is stopped, and not run again");
    assert!(!again.running.contains(&TrialId(2)));
}

#[test]
fn trials_of_another_space_keep_what_they_have_and_the_rest_comes_from_the_new_one() {
    let grid = |values: &[i64]| {
        let options = values.iter().map(|value| Node::Constant(Value::Int(*value))).collect();
        let space = Node::Map(vec![("x".into(), Node::grid(options).unwrap())]);
        let basic = Basic::new(space, BasicOptions::default()).unwrap();
        let fifo = AnyScheduler::Fifo(Fifo::default());
        Experiment::new(ExperimentOptions::default(), Some(AnySearcher::Basic(basic)), Some(fifo))
    };
    let mut world = World::with_ahead(1, 3, grid(&[0, 1, 2]));
    world.finish(0);
    world.tell(ExperimentEvent::StopRequested { reason: "interrupted".into() });
    let own = Resources::from_amounts([("CPU", 3.0)]).unwrap();
    let mut records = replayed(&world, |_| true);
    for (record, _) in &mut records {
        if let Record::Made { resources, .. } = record {
            *resources = Some(own.clone());
        }
    }
    let resumed = || {
        let mut again = grid(&[7, 1, 0, 8]);
        again.replay(records.clone(), BTreeMap::new(), Resuming { made_before: 3, ..Resuming::default() });
        again
    };
    assert_eq!(resumed().expected(), Some(5), "7 and 8 are still to be made");
    let submitted = resumed().on_event(ExperimentEvent::Begun).into_iter().find_map(|command| match command {
        ExperimentCommand::Submit { trial, resources, .. } => Some((trial, resources)),
        _ => None,
    });
    assert_eq!(submitted, Some((TrialId(1), Some(own))), "what is unfinished resumes as it was");
    let mut world = World::with_ahead(1, 3, resumed());
    while let Some(trial) = world.running.first().copied() {
        world.finish(trial.0);
    }
    let tried: Vec<_> =
        (0..world.machine.len() as u64).map(|trial| world.machine.config(TrialId(trial)).clone()).collect();
    let x: Vec<_> = tried.iter().filter_map(|config| config.get("x").and_then(Value::as_f64)).collect();
    assert_eq!(x, [0.0, 1.0, 2.0, 7.0, 8.0]);
}

#[test]
fn a_trial_whose_record_is_lost_keeps_its_number_and_its_config() {
    let world = World::fifo(4, 4, ExperimentOptions::default());
    for known in [true, false] {
        let found = |record: &Record| match record {
            Record::Made { trial, config, .. } if trial.0 == 1 => {
                Record::Found { trial: *trial, config: known.then(|| config.clone()) }
            }
            other => other.clone(),
        };
        let records = world.records.iter().map(|record| (found(record), None)).collect();
        let fifo = AnyScheduler::Fifo(Fifo::default());
        let mut again = Experiment::new(ExperimentOptions::default(), Some(basic(4)), Some(fifo));
        again.replay(records, BTreeMap::new(), Resuming::default());
        assert_eq!(again.len(), 4);
        for trial in (0..4).map(TrialId) {
            assert_eq!(again.config(trial), world.machine.config(trial), "{trial:?}");
        }
    }
}

#[test]
fn what_the_time_budget_cuts_off_is_unfinished_and_resumes() {
    let stop = || vec![("training_iteration".to_owned(), 2.0)];
    let mut world = World::fifo(2, 6, ExperimentOptions { stop: stop(), ..ExperimentOptions::default() });
    world.report(0, 1.0);
    assert_eq!(world.report(0, 1.0), Verdict::Stop);
    world.tell(ExperimentEvent::EnoughSeen { reason: "the time budget is used up".into() });
    assert!(matches!(world.end, Some(ExperimentEnd::Finished(_))));
    assert_eq!(world.ended(), [0], "EXP-3: the rule has ended one for good, the budget none");

    let options = ExperimentOptions { stop: stop(), ..ExperimentOptions::default() };
    let mut again = Experiment::new(options, Some(basic(6)), Some(AnyScheduler::Fifo(Fifo::default())));
    again.replay(replayed(&world, |_| true), BTreeMap::new(), Resuming::default());
    let mut again = World::with_ahead(2, 3, again);
    again.reports.resize(6, 0);
    while let Some(trial) = again.running.first().copied() {
        again.report(trial.0, 1.0);
    }
    assert_eq!(again.ended(), [1, 2, 3, 4, 5]);
    assert_eq!(again.end, Some(ExperimentEnd::Finished("every trial has ended".into())));
}

#[test]
fn what_is_paused_when_the_time_is_over_stays_paused() {
    let options = HyperBandOptions { max_t: 4.0, reduction_factor: 2.0, ..HyperBandOptions::new(target()) };
    let scheduler = || Some(AnyScheduler::HyperBand(HyperBand::new(options.clone()).unwrap()));
    let mut world = World::new(1, Experiment::new(ExperimentOptions::default(), Some(basic(4)), scheduler()));
    assert_eq!(world.report(0, 1.0), Verdict::Pause);
    world.tell(ExperimentEvent::EnoughSeen { reason: "the time budget is used up".into() });
    assert!(world.ended().is_empty());
    let mut again = Experiment::new(ExperimentOptions::default(), Some(basic(4)), scheduler());
    again.replay(replayed(&world, |_| true), BTreeMap::new(), Resuming::default());
    let mut again = World::new(1, again);
    again.reports = vec![1, 0, 0, 0];
    for _ in 0..200 {
        let Some(trial) = again.running.first().copied() else { break };
        again.report(trial.0, trial.0 as f64);
    }
    assert_eq!(again.ended().len(), 4, "{:?}", again.end);
}

#[test]
fn at_most_so_many_trials_run_at_a_time() {
    let options = ExperimentOptions { max_concurrent: Some(2), ..ExperimentOptions::default() };
    let mut world = World::fifo(10, 6, options);
    let mut most = 0;
    while let Some(trial) = world.running.first().copied() {
        most = most.max(world.running.len());
        world.finish(trial.0);
    }
    assert_eq!((most, world.ended().len()), (2, 6));
}

#[test]
fn a_report_without_what_the_scheduler_compares_ends_the_experiment_at_once() {
    let options = ExperimentOptions { requires: vec!["loss".into(), "epoch".into()], ..ExperimentOptions::default() };
    let mut world = World::fifo(1, 3, options);
    world.report(0, 1.0);
    let Some(ExperimentEnd::Failed(reason)) = &world.end else { panic!("{:?}", world.end) };
    assert!(reason.contains("no `epoch`"), "{reason}");
}

#[test]
fn a_report_without_what_a_rule_looks_at_ends_the_experiment_at_once() {
    let options = ExperimentOptions { stop: vec![("accuracy".into(), 0.9)], ..ExperimentOptions::default() };
    let mut world = World::fifo(1, 3, options);
    world.report(0, 1.0);
    let Some(ExperimentEnd::Failed(reason)) = &world.end else { panic!("{:?}", world.end) };
    assert!(reason.contains("no `accuracy`, which `stop` is to look at"), "{reason}");
}

#[test]
fn an_answer_to_another_question_ends_the_experiment() {
    let options = ExperimentOptions { asks_judge: true, ..ExperimentOptions::default() };
    let mut judged = World::fifo(1, 1, options);
    judged.report(0, 1.0);
    let (asked, _) = judged.questions.pop().unwrap();
    judged.tell(answered(asked, Answer::Chosen(None)));
    assert!(matches!(judged.end, Some(ExperimentEnd::Failed(_))), "{:?}", judged.end);
    assert!(judged.running.is_empty());
}

/// A search as it is cut off after so many reports, and what its scheduler is.
fn cut_off(kind: u8, samples: u64, reports: usize, losses: &[u64]) -> (World, impl Fn() -> Experiment) {
    let machine = move || {
        let options = HyperBandOptions { max_t: 4.0, reduction_factor: 2.0, ..HyperBandOptions::new(target()) };
        let scheduler = match kind {
            0 => AnyScheduler::HyperBand(HyperBand::new(options).unwrap()),
            1 => AnyScheduler::HyperBand(HyperBand::for_bohb(options).unwrap()),
            _ => AnyScheduler::Asha(Asha::new(AshaOptions { max_t: 4.0, ..AshaOptions::new(target()) }).unwrap()),
        };
        Experiment::new(ExperimentOptions::default(), Some(basic(samples)), Some(scheduler))
    };
    let mut world = World::new(3, machine());
    for at in 0..reports {
        let Some(trial) = world.running.get(at % 3).or(world.running.first()).copied() else { break };
        world.report(trial.0, losses[at % losses.len()] as f64);
    }
    (world, machine)
}

/// The records that are left, as `recover` brings them back: every trial is made once, before all else that is said of it.
fn with_found(world: &World, kept: &[bool]) -> Vec<(Record, Option<Metrics>)> {
    let mut left = Vec::new();
    for (at, record) in world.records.iter().enumerate() {
        let is_kept = kept[at % kept.len()];
        match record {
            Record::Made { trial, config, .. } if !is_kept => {
                left.push((Record::Found { trial: *trial, config: Some(config.clone()) }, None));
            }
            record if is_kept => left.push((record.clone(), None)),
            _ => {}
        }
    }
    left
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// WAITS-1, EXP-5.
    #[test]
    fn whatever_records_are_lost_a_search_that_resumes_comes_to_its_end(
        kind in 0..3u8,
        samples in 1..10u64,
        reports in 0..60usize,
        losses in prop::collection::vec(0..100u64, 1..12),
        kept in prop::collection::vec(prop::bool::weighted(0.7), 1..60),
        leaves_unfinished in prop::bool::weighted(0.2),
    ) {
        let (world, machine) = cut_off(kind, samples, reports, &losses);
        let records = with_found(&world, &kept);
        let over: Vec<TrialId> = records.iter().filter_map(|(record, _)| match record {
            Record::Ended(ended) => Some(ended.trial),
            _ => None,
        }).collect();
        let mut again = machine();
        again.replay(records, BTreeMap::new(), Resuming { leaves_unfinished, ..Resuming::default() });
        let mut again = World::new(3, again);
        again.reports.resize(samples as usize, 0);
        for (trial, reports) in world.reports.iter().enumerate() {
            again.reports[trial] = *reports;
        }
        for at in 0..1_000 {
            let Some(trial) = again.running.get(at % 3).or(again.running.first()).copied() else { break };
            prop_assert!(!over.contains(&trial), "what has ended is not run again: {trial:?}");
            again.report(trial.0, losses[at % losses.len()] as f64);
        }
        prop_assert_eq!(&again.end, &Some(ExperimentEnd::Finished("every trial has ended".into())));
        prop_assert_eq!(again.machine.len() as u64, samples);
        let mut ended: Vec<u64> = over.iter().map(|trial| trial.0).chain(again.ended()).collect();
        ended.sort_unstable();
        let distinct = { let mut all = ended.clone(); all.dedup(); all };
        prop_assert_eq!(&ended, &distinct, "EXP-3: a trial ends once");
        prop_assert!(leaves_unfinished || ended == (0..samples).collect::<Vec<_>>(), "{:?}", ended);
    }

    /// REPLAY-1. The store puts lines into their order where it can; what is left of a disorder must not bring the head down.
    #[test]
    fn replay_1_records_in_any_order_are_replayed_as_far_as_they_go(
        kind in 0..3u8,
        samples in 1..10u64,
        reports in 0..60usize,
        losses in prop::collection::vec(0..100u64, 1..12),
        picked in prop::collection::vec(any::<prop::sample::Index>(), 0..90),
    ) {
        let (world, machine) = cut_off(kind, samples, reports, &losses);
        let records = picked.iter().map(|at| (at.get(&world.records).clone(), None)).collect();
        let mut again = machine();
        again.replay(records, BTreeMap::new(), Resuming::default());
        prop_assert!(again.len() as u64 <= samples);
        again.on_event(ExperimentEvent::Begun);
    }
}
