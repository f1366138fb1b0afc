//! Searches of a driver in Rust, as processes.

mod common;

use common::{Fixture, is_gone, signal, until};
use nix::sys::signal::Signal;
use serde_json::Value;

fn trials(told: &Value) -> &Vec<Value> {
    told["trials"].as_array().unwrap_or_else(|| panic!("there are trials: {told}"))
}

fn search(how: &str) -> Value {
    let ended = Fixture::of("searching").run(&["search", how]);
    assert!(ended.told.get("trials").is_some(), "{}\n{}", ended.told, ended.printed);
    ended.told
}

#[test]
fn a_grid_is_tried_whole_and_configs_are_typed() {
    let ended = Fixture::of("searching").run(&["search", "grid"]);
    let mut widths: Vec<i64> =
        trials(&ended.told).iter().map(|trial| trial["config"]["inner"]["width"].as_i64().unwrap_or(0)).collect();
    widths.sort_unstable();
    assert_eq!(widths, [1, 1, 2, 2, 3, 3], "{}", ended.told);
    let best = ended.told["best"]["loss"].as_f64().expect("there is a best one");
    assert!(trials(&ended.told).iter().all(|trial| trial["loss"].as_f64().is_some_and(|loss| loss >= best)));
    assert!(ended.printed.contains("is through"), "{}", ended.printed);
    assert!(ended.printed.contains("carril: `search` finished in"), "{}", ended.printed);
}

#[test]
fn a_trial_that_fails_is_told_of_and_the_others_go_on() {
    let told = search("failing");
    for trial in trials(&told) {
        let failed = trial["config"]["inner"]["width"] == 2;
        let headline = trial["error"].as_str().unwrap_or_default();
        assert_eq!(headline.contains("width 2 is not for me at "), failed, "{trial}");
    }
}

#[test]
fn trials_that_fall_behind_are_stopped_by_their_own_report() {
    let told = search("asha");
    let reports: Vec<u64> = trials(&told).iter().map(|trial| trial["reports"].as_u64().unwrap_or(0)).collect();
    assert_eq!(reports.len(), 8);
    assert!(reports.iter().any(|count| *count < 16) && reports.contains(&16), "{reports:?}");
    assert!(trials(&told).iter().all(|trial| trial["error"].is_null()), "a stop is no failure: {told}");
}

#[test]
fn every_searcher_and_scheduler_of_the_head_can_be_used() {
    for (how, count) in [("hyperband", 4), ("median", 6), ("tpe", 12), ("gp", 8)] {
        assert_eq!(trials(&search(how)).len(), count, "{how}");
    }
    let first = &search("tpe")["trials"][0]["config"]["rate"];
    assert_eq!(first.as_f64(), Some(0.5), "what is to be tried first is");
}

#[test]
fn a_population_goes_on_from_checkpoints() {
    for trial in trials(&search("pbt")) {
        assert!(trial["checkpoint"].is_string() && trial["error"].is_null(), "{trial}");
    }
}

#[test]
fn a_trial_may_have_several_workers_and_a_rule_that_stops_it() {
    let told = search("two");
    assert_eq!((told["best"]["world"].as_f64(), told["best"]["reports"].as_u64()), (Some(2.0), Some(3)), "{told}");
}

#[test]
fn what_is_wrong_is_said_before_anything_starts() {
    let fixture = Fixture::of("searching");
    let aimless = fixture.run(&["search", "aimless"]).told;
    assert_eq!(aimless["hints"][0], "give the tuner one: `.metric(\"loss\", Mode::Min)`");
    let empty = fixture.run(&["search", "empty"]).told;
    assert_eq!(empty["headline"], "the parameter `rate` has nothing to choose from");
    assert!(!fixture.path("search").exists());
}

#[test]
fn a_search_that_was_interrupted_goes_on() {
    let fixture = Fixture::of("searching");
    let driver = fixture.spawn(&["search", "slow"]);
    let pids: Vec<u32> = until("both trials run", || {
        let files = std::fs::read_dir(fixture.path("")).ok()?.flatten();
        let pids: Vec<u32> = files.filter_map(|file| std::fs::read_to_string(file.path()).ok()?.parse().ok()).collect();
        (pids.len() == 2).then_some(pids)
    });
    signal(driver.id(), Signal::SIGINT);
    let ended = fixture.end(driver);
    assert_eq!(ended.told["interrupted"], true, "{}", ended.told);
    assert!(pids.into_iter().all(is_gone));
    fixture.assert_nothing_left();
    std::fs::write(fixture.path("go"), "").expect("the storage is there");
    let refused = fixture.run(&["search", "other"]).told;
    let differs = "the search `search` was started with another `param_space`: `how` was \"slow\" and is \"other\"";
    assert_eq!(refused["headline"], differs);
    assert!(refused["hints"][0].as_str().is_some_and(|hint| hint.starts_with("`RunConfig { resume: true, .. }`")));
    let resumed = fixture.run(&["search", "slow"]);
    assert!(resumed.printed.contains("resuming `search`: 0 of 2 trials done"), "{}", resumed.printed);
    let told = resumed.told;
    assert_eq!(trials(&told).len(), 2, "{told}");
    assert!(trials(&told).iter().all(|trial| trial["reports"].as_u64() == Some(16)), "{told}");
}
