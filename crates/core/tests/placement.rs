//! Placement: whole groups, in order, and an answer at once to what can never be.

use carril_core::{Decision, Placement, PlacementRequest};
use carril_types::{NodeId, Resources, RunId};
use proptest::prelude::*;

fn resources(amounts: &[(&str, f64)]) -> Resources {
    Resources::from_amounts(amounts.iter().copied()).unwrap()
}

fn node(amounts: &[(&str, f64)], devices: &[&str]) -> Placement {
    let mut placement = Placement::default();
    let devices = devices.iter().map(|name| (*name).to_owned()).collect();
    placement.add_node(NodeId::new("one"), resources(amounts), devices);
    placement
}

fn request(run: &str, workers: u32, per_worker: &[(&str, f64)]) -> PlacementRequest {
    PlacementRequest { run: RunId::new(run), workers, per_worker: resources(per_worker) }
}

#[test]
fn place_1_a_group_is_placed_whole_or_not_at_all() {
    let mut placement = node(&[("CPU", 4.0)], &[]);
    assert!(matches!(placement.ask(request("a", 3, &[("CPU", 1.0)])), Decision::Placed(_)));
    let Decision::Waits(reason) = placement.ask(request("b", 2, &[("CPU", 1.0)])) else { panic!("there is no room") };
    assert_eq!(reason, "asks for 2 CPU, free is 1 CPU: waits for 1 other run");
    let (_, node) = placement.nodes().next().unwrap();
    assert_eq!(node.free, resources(&[("CPU", 1.0)]), "one that waits holds nothing");
    let started = placement.release(&RunId::new("a"));
    assert_eq!(started.len(), 1);
    assert_eq!(started[0].0, RunId::new("b"));
}

#[test]
fn place_2_a_small_group_does_not_pass_a_large_one_that_waits() {
    let mut placement = node(&[("CPU", 4.0)], &[]);
    placement.ask(request("a", 2, &[("CPU", 1.0)]));
    assert!(matches!(placement.ask(request("large", 4, &[("CPU", 1.0)])), Decision::Waits(_)));
    assert!(matches!(placement.ask(request("small", 1, &[("CPU", 1.0)])), Decision::Waits(_)));
    let started = placement.release(&RunId::new("a"));
    assert_eq!(started[0].0, RunId::new("large"));
    assert_eq!(started.len(), 1);
}

#[test]
fn place_3_what_can_never_fit_is_refused_with_the_line_that_makes_it_fit() {
    let mut placement = node(&[("CPU", 2.0)], &[]);
    let Decision::Never(failure) = placement.ask(request("a", 8, &[("CPU", 1.0)])) else { panic!("it can never fit") };
    assert_eq!(failure.message, "8 workers with 1 CPU each ask for 8 CPU: this machine has 2 CPU");
    assert_eq!(failure.hints, ["carril.init(num_cpus=8)", "ScalingConfig(num_workers=2)"]);

    let Decision::Never(failure) = placement.ask(request("a", 2, &[("CPU", 1.0), ("disk", 1.5)])) else { panic!() };
    assert_eq!(failure.hints, ["carril.init(resources={\"disk\": 3})"]);

    let Decision::Never(failure) = placement.ask(request("a", 1, &[("GPU", 1.0)])) else { panic!() };
    assert_eq!(failure.hints, ["no NVIDIA device is visible here: ScalingConfig(use_gpu=False)"]);
}

#[test]
fn workers_get_devices_of_their_own_and_give_them_back() {
    let mut placement = node(&[("CPU", 4.0), ("GPU", 2.0)], &["0", "3"]);
    let Decision::Placed(shares) = placement.ask(request("a", 2, &[("GPU", 1.0)])) else { panic!("there is room") };
    assert_eq!(shares[0].devices, [["0"], ["3"]]);
    assert!(matches!(placement.ask(request("b", 1, &[("GPU", 0.5)])), Decision::Waits(_)));
    let started = placement.release(&RunId::new("a"));
    assert_eq!(started[0].1[0].devices, [["0"]]);
    placement.check_invariants();
}

proptest! {
    #[test]
    fn resources_are_neither_lost_nor_gained(
        asks in prop::collection::vec((0usize..6, 1u32..5, 1u32..30, any::<bool>()), 1..60)
    ) {
        let mut placement = node(&[("CPU", 5.0), ("GPU", 2.0)], &["0", "1"]);
        let mut live = std::collections::BTreeSet::new();
        for (run, workers, tenths, release) in asks {
            let id = RunId::new(format!("run{run}"));
            if release {
                live.remove(&id);
                live.extend(placement.release(&id).into_iter().map(|(id, _)| id));
            } else if !live.contains(&id) {
                let per_worker = resources(&[("CPU", f64::from(tenths) / 10.0), ("GPU", f64::from(tenths % 2) / 2.0)]);
                placement.release(&id);
                if let Decision::Placed(shares) = placement.ask(PlacementRequest { run: id.clone(), workers, per_worker }) {
                    let placed: usize = shares.iter().map(|share| share.devices.len()).sum();
                    prop_assert_eq!(placed, workers as usize, "PLACE-1");
                    live.insert(id);
                }
            }
            placement.check_invariants();
        }
    }
}
