//! Two hundred seeds, each a run with its own misfortunes; ten thousand with `CARRIL_LONG`.

use carril_sim::simulate;

#[test]
fn every_seed_keeps_what_is_promised() {
    let seeds: u64 = if std::env::var_os("CARRIL_LONG").is_some() { 10_000 } else { 200 };
    let failed: Vec<String> = (0..seeds).filter_map(|seed| simulate(seed).err()).take(1).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[test]
fn a_seed_goes_the_same_way_every_time() {
    let (first, second) = (simulate(7).unwrap(), simulate(7).unwrap());
    assert_eq!(first.trace, second.trace);
}

#[test]
fn the_seeds_meet_what_they_are_there_for() {
    let traces: Vec<String> = (0..200).map(|seed| simulate(seed).unwrap().trace.join("\n")).collect();
    for misfortune in [
        "head 1 dies",
        "dies at place",
        "is cut off",
        "is killed at place",
        "its lease is over",
        "is left half-way",
        " restarted",
    ] {
        assert!(traces.iter().any(|trace| trace.contains(misfortune)), "no seed has `{misfortune}`");
    }
}
