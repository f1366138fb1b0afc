//! HyperBand: the brackets, and who goes on at each halving.

use std::collections::{BTreeMap, BTreeSet};

use carril_core::tune::TrialId;
use carril_core::tune::scheduler::{HyperBand, Scheduler, plan};
use carril_types::Metrics;

use crate::{Band, Case, Event, cases, recorded, word};

/// HyperBand's events, of which each bracket's are played until Ray's bracket and ours are of different size.
struct BandPlayer<'a> {
    hyperband: HyperBand,
    case: &'a Case,
    /// Ray's trial to ours: it fills the brackets from the other end.
    ours: BTreeMap<TrialId, TrialId>,
    bracket_of: BTreeMap<TrialId, usize>,
    /// Brackets where one more trial is left to Ray than to us.
    apart: BTreeSet<usize>,
    scores: BTreeMap<TrialId, f64>,
    stopped: BTreeSet<TrialId>,
    halvings: usize,
}

impl<'a> BandPlayer<'a> {
    fn new(case: &'a Case) -> Self {
        let mut player = Self {
            hyperband: case.hyperband(),
            case,
            ours: BTreeMap::new(),
            bracket_of: BTreeMap::new(),
            apart: BTreeSet::new(),
            scores: BTreeMap::new(),
            stopped: BTreeSet::new(),
            halvings: 0,
        };
        for (bracket, trials) in case.brackets.iter().enumerate().rev() {
            for trial in trials {
                let (trial, our) = (TrialId(*trial), TrialId(player.ours.len() as u64));
                player.hyperband.on_trial_added(our, &Metrics::default());
                player.ours.insert(trial, our);
                player.bracket_of.insert(trial, bracket);
            }
        }
        player.hyperband.on_no_more_trials();
        player
    }

    fn play(&mut self) {
        for event in self.case.events.iter().map(|event| Event(event)) {
            let is_apart = || self.bracket_of.get(&event.trial()).is_some_and(|bracket| self.apart.contains(bracket));
            if !matches!(event.kind(), "report" | "end") || is_apart() {
                continue;
            }
            let (trial, our) = (event.trial(), self.ours[&event.trial()]);
            self.scores.insert(trial, event.score());
            if event.kind() == "end" {
                self.hyperband.on_trial_completed(our, &event.result());
                self.stopped.insert(trial);
                self.compare_stopped(&event, event.trials_at(4), BTreeSet::new());
                continue;
            }
            let decision = word(&self.hyperband.on_result(our, &event.result()).0);
            if event.time() >= self.case.number("max_t", 81.0) {
                // Ray lets a trial that is done wait until its whole bracket is; ours ends.
                assert_eq!((decision, event.decision() == "go"), ("stop", false), "{:?}", event.0);
                self.stopped.insert(trial);
                continue;
            }
            let itself = |decision: &str| (decision == "stop").then_some(trial);
            let theirs = event.trials_at(5).into_iter().chain(itself(event.decision())).collect();
            if self.compare_stopped(&event, theirs, itself(decision).into_iter().collect()) {
                assert_eq!(decision, event.decision(), "{:?}", event.0);
            }
        }
    }

    /// Whether Ray and we have stopped the same trials. If we have not, what is right is asserted.
    fn compare_stopped(&mut self, event: &Event, theirs: Vec<TrialId>, mut ours: BTreeSet<TrialId>) -> bool {
        let theirs = BTreeSet::from_iter(theirs);
        let orders: BTreeSet<TrialId> = self.hyperband.take_orders().into_iter().map(|(our, _, _)| our).collect();
        ours.extend(self.ours.iter().filter(|(_, our)| orders.contains(our)).map(|(trial, _)| trial));
        self.halvings += usize::from(!ours.is_empty());
        self.stopped.extend(&ours);
        if ours == theirs {
            return true;
        }
        self.apart.insert(self.bracket_of[&event.trial()]);
        self.assert_one_fewer(event, &theirs, &ours);
        false
    }

    /// Of n trials ⌊n/η⌋ go on and not ⌈n/η⌉, as in the paper (BAND-1): the worst of those that Ray keeps stops too.
    fn assert_one_fewer(&self, event: &Event, theirs: &BTreeSet<TrialId>, ours: &BTreeSet<TrialId>) {
        assert!(ours.is_superset(theirs), "{:?}: {theirs:?}, {ours:?}", event.0);
        let sign = if self.case.options["mode"] == "min" { -1.0 } else { 1.0 };
        let bracket = self.bracket_of[&event.trial()];
        let more: Vec<TrialId> = ours.difference(theirs).copied().collect();
        assert_eq!(more.len(), 1, "{:?}", event.0);
        let kept = self.bracket_of.iter().filter(|(trial, home)| **home == bracket && !self.stopped.contains(trial));
        for (trial, _) in kept {
            assert!(sign * self.scores[trial] >= sign * self.scores[&more[0]], "{trial:?} and {more:?}");
        }
    }
}

#[test]
fn hyperband_halves_as_ray_does_where_the_paper_does() {
    let recorded = recorded();
    let (mut halvings, mut apart) = (0, 0);
    for case in cases(&recorded, "hyperband") {
        let mut player = BandPlayer::new(case);
        player.play();
        halvings += player.halvings;
        apart += player.apart.len();
    }
    assert!(halvings >= 50, "{halvings}");
    assert!(apart >= 8, "brackets where Ray keeps ⌈n/η⌉: {apart}");
}

#[test]
fn hyperband_has_the_brackets_of_ray_where_the_paper_does() {
    for Band { max_t, reduction_factor, brackets } in recorded().hyperband_plans {
        let mut ours = plan(max_t, reduction_factor);
        ours.reverse();
        let whole = reduction_factor.powi(ours.len() as i32 - 1) == max_t;
        if !whole && (max_t.ln() / reduction_factor.ln()).fract() > 0.5 {
            // Ray rounds s_max where the paper takes the floor: its brackets are those of one halving more, which has no time.
            assert_eq!(brackets[0][0].0, ours.len() + 1);
            continue;
        }
        assert_eq!(ours.len(), brackets.len());
        for (our, theirs) in ours.iter().zip(&brackets) {
            assert_eq!((our.0.len(), our.0[0].trials), (theirs.len(), theirs[0].0));
            for (rung, (trials, until)) in our.0.iter().zip(theirs) {
                assert!(rung.trials <= *trials, "⌊n/η⌋ go on, and not ⌈n/η⌉");
                // Ray rounds the first milestone, and so its longest trials may end before `max_t`.
                assert!(if whole { rung.until == *until } else { rung.until >= *until }, "{rung:?}, {until}");
            }
            assert_eq!(our.0.last().unwrap().until, max_t);
        }
    }
}

/// BAND-2: Ray looks at a bracket only once after a trial of it has ended, and then never again.
#[test]
fn one_that_ends_keeps_its_bracket_not_waiting() {
    let recorded = recorded();
    let case = &recorded.differences["hyperband_waits_for_one_that_ended"];
    assert!(case.stuck);
    let mut player = BandPlayer::new(case);
    player.play();
    let waits = player.ours[&TrialId(8)];
    assert_eq!(player.hyperband.choose(&[], &[waits]), Some(waits), "BAND-2: all that live are there");
}

/// Nothing speaks for either, and the one that was made first is the one that a replay chooses too.
#[test]
fn of_equals_the_older_ones_go_on() {
    let recorded = recorded();
    let case = &recorded.differences["hyperband_keeps_the_newer_of_equals"];
    let mut hyperband = BandPlayer::new(case).hyperband;
    let reports: Vec<Event> =
        case.events.iter().map(|event| Event(event)).filter(|one| one.kind() == "report").collect();
    let first = reports[0].trial().0;
    let decisions: Vec<&str> = reports
        .iter()
        .map(|event| word(&hyperband.on_result(TrialId(event.trial().0 - first), &event.result()).0))
        .collect();
    let stopped: Vec<u64> = hyperband.take_orders().into_iter().map(|(trial, _, _)| trial.0 + first).collect();
    assert_eq!(reports[3].trials_at(5), [TrialId(6), TrialId(7)]);
    assert_eq!((decisions[3], stopped), ("stop", vec![8]), "trials 6 and 7 go on");
}

/// ⌊n/η⌋ of the n that there are go on (BAND-3): Ray keeps as many as if its bracket were full.
#[test]
fn a_bracket_that_is_not_full_is_halved_by_what_is_in_it() {
    let recorded = recorded();
    let case = &recorded.differences["hyperband_halves_what_is_not_full"];
    let mut hyperband = case.hyperband();
    let first = 8;
    for trial in 0..4 {
        hyperband.on_trial_added(TrialId(trial), &Metrics::default());
    }
    hyperband.on_no_more_trials();
    let reports: Vec<Event> =
        case.events.iter().map(|event| Event(event)).filter(|one| one.kind() == "report").collect();
    let mut stopped = Vec::new();
    for event in &reports {
        hyperband.on_result(TrialId(event.trial().0 - first), &event.result());
        stopped.extend(hyperband.take_orders().into_iter().map(|(trial, _, _)| trial.0 + first));
    }
    assert_eq!(reports.last().unwrap().trials_at(5), [TrialId(8)], "three of four, as of nine");
    assert_eq!(stopped, [10, 9, 8], "one of four");
}
