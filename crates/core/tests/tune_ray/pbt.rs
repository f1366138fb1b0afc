//! Population-based training: who is among the worst and the best, who is replaced and who waits.

use carril_core::tune::TrialId;
use carril_core::tune::scheduler::{Decision, Order, Pbt, Scheduler};

use crate::{Case, Event, Queue, cases, recorded, word};

/// As for the others, with who is among the worst and the best. Also tells what happens to others.
pub fn play(case: &Case) -> (Vec<String>, Pbt) {
    let mut pbt = case.pbt();
    let synch = case.flag("synch", false);
    let mut queue = Queue::default();
    // Ray pauses the trial whose report lets all be compared, and chooses it again; ours keeps its place.
    let mut kept_its_place = None;
    let mut differing = Vec::new();
    for event in case.events.iter().map(|event| Event(event)) {
        let trial = event.trial();
        match event.kind() {
            "add" => queue.add(&mut pbt, trial),
            "run" if kept_its_place == Some(trial) => kept_its_place = None,
            "run" => differing.extend(queue.choose(&mut pbt, trial)),
            "report" => {
                let (decision, _) = pbt.on_result(trial, &event.result());
                let orders = pbt.take_orders();
                let compared = event.0.len() > 5;
                let expected = if synch && compared && event.decision() == "pause" { "go" } else { event.decision() };
                if word(&decision) != expected {
                    differing.push(format!("{} at {}: {expected}, {}", trial.0, event.time(), word(&decision)));
                }
                let is_over = compared || event.decision() == "pause";
                assert_eq!(pbt.wants_checkpoint(trial), is_over, "{:?} with {}", event.0, case.options);
                if compared {
                    compare_quantiles(&pbt, &event, &decision, &orders, synch);
                }
                match word(&decision) {
                    "pause" | "exploit" => queue.pause(trial),
                    _ if synch && compared => kept_its_place = Some(trial),
                    _ => {}
                }
            }
            "end" => pbt.on_trial_completed(trial, &event.result()),
            other => panic!("`{other}` is no event"),
        }
    }
    (differing, pbt)
}

fn compare_quantiles(pbt: &Pbt, event: &Event, decision: &Decision, orders: &[Order], synch: bool) {
    let (worst, best) = pbt.quantiles();
    assert_eq!((&worst, &best), (&event.trials_at(5), &event.trials_at(6)), "{:?}", event.0);
    let mut replaced: Vec<TrialId> = orders.iter().map(|(trial, _, _)| *trial).collect();
    let all = orders.iter().map(|(_, decision, _)| decision).chain([decision]);
    for decision in all {
        if let Decision::Exploit { from, .. } = decision {
            assert!(best.contains(from), "{from:?} of {best:?}");
        }
    }
    if matches!(decision, Decision::Exploit { .. }) {
        replaced.push(event.trial());
    }
    replaced.sort();
    let mut expected = if synch { worst } else { Vec::from_iter(worst.into_iter().find(|one| *one == event.trial())) };
    expected.sort();
    assert_eq!(replaced, expected, "{:?}", event.0);
}

#[test]
fn population_based_training_replaces_whom_ray_replaces() {
    let recorded = recorded();
    let (mut exploits, mut synchs, mut stuck) = (0, 0, 0);
    for case in cases(&recorded, "pbt") {
        let (differing, mut pbt) = play(case);
        assert_eq!(differing, [] as [&str; 0], "with {}", case.options);
        exploits += pbt.take_policies().len();
        synchs += usize::from(case.flag("synch", false));
        if case.stuck {
            // In steps that do not divide the interval, Ray's trials wait for each other in the end, and ours do not.
            stuck += 1;
            assert_eq!(pbt.choose(&[], &[TrialId(0), TrialId(1)]), Some(TrialId(0)));
        }
    }
    assert!(exploits >= 400 && synchs >= 20, "{exploits} exploits, {synchs} cases in step");
    assert!(stuck > 0);
}

/// PBT-3: Ray looks at the others only when somebody reports. If the one that they wait for ends, they wait for ever.
#[test]
fn one_that_ends_keeps_nobody_waiting() {
    let recorded = recorded();
    let case = &recorded.differences["pbt_waits_for_one_that_ended"];
    assert!(case.stuck);
    let (differing, mut pbt) = play(case);
    assert_eq!(differing, [] as [&str; 0]);
    let orders = pbt.take_orders();
    assert!(matches!(orders.as_slice(), [(TrialId(0), Decision::Exploit { from: TrialId(1), .. }, _)]), "PBT-3");
}
