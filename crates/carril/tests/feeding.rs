//! Data sets in training: each row once in each epoch, whatever befalls the workers and however many there are.

mod common;

use common::{Ended, Fixture, signal, until};
use nix::sys::signal::Signal;

/// As many as the program has.
const ROWS: i64 = 211;
const EPOCHS: usize = 3;
const NEVER: &str = "0";

fn all() -> Vec<i64> {
    (0..ROWS).collect()
}

fn kept() -> Vec<i64> {
    (0..ROWS).filter(|id| id % 5 != 3).collect()
}

fn epochs(ended: &Ended) -> Vec<Vec<i64>> {
    serde_json::from_value(ended.told["epochs"].clone()).unwrap_or_else(|_| panic!("the run failed: {}", ended.told))
}

fn sorted(mut rows: Vec<i64>) -> Vec<i64> {
    rows.sort_unstable();
    rows
}

fn headline(ended: &Ended) -> &str {
    ended.told["headline"].as_str().unwrap_or_else(|| panic!("the run did not fail: {}", ended.told))
}

/// The line of the program that carries this comment.
fn line_of(comment: &str) -> String {
    let source = include_str!("programs/feeding.rs");
    let line = 1 + source.lines().position(|line| line.ends_with(comment)).expect("the comment is there");
    format!("feeding.rs:{line}:")
}

fn go(fixture: &Fixture) {
    std::fs::write(fixture.path("go"), "").expect("the storage is there");
}

/// A worker is killed, then the run fails and goes on with another number of workers, twice.
fn through_everything(what: &str, policy: &str) -> Vec<Vec<i64>> {
    let fixture = Fixture::of("feeding");
    let driver = fixture.spawn(&["run", what, "2", "17", policy]);
    let pid = fixture.pid(1);
    until("the fifth step is saved", || fixture.path("run/checkpoint_000004/.manifest.json").exists().then_some(()));
    go(&fixture);
    signal(pid, Signal::SIGKILL);
    let ended = fixture.end(driver);
    assert!(headline(&ended).starts_with("rank 0 failed: error: it is stopped here"), "{}", ended.told);
    assert!(ended.printed.contains("carril: restart 1: rank 1 "), "{}", ended.printed);
    let ended = fixture.run(&["run", what, "3", "5", policy]);
    assert!(headline(&ended).starts_with("rank 0 failed: error: it is stopped here"), "{}", ended.told);
    epochs(&fixture.run(&["run", what, "1", NEVER, policy]))
}

#[test]
fn each_row_comes_once_per_epoch_through_a_kill_and_two_resizes() {
    for what in ["parquet", "memory", "union"] {
        for epoch in through_everything(what, "pad") {
            assert_eq!(sorted(epoch), all(), "{what}");
        }
    }
}

#[test]
fn rows_that_nobody_counted_come_once_too() {
    for (what, rows) in [("csv", all()), ("some", kept())] {
        for epoch in through_everything(what, "pad") {
            assert_eq!(sorted(epoch), rows, "{what}");
        }
    }
}

#[test]
fn where_ranks_must_be_equal_less_than_a_row_for_each_is_left_out() {
    for (number, epoch) in through_everything("parquet", "drop").into_iter().enumerate() {
        let rows = sorted(epoch);
        assert!(rows.windows(2).all(|pair| pair[0] < pair[1]), "no row twice: {rows:?}");
        assert!(rows.len() as i64 > ROWS - 3, "epoch {number}: {} rows", rows.len());
    }
}

#[test]
fn ranks_have_equally_many_batches_under_every_policy() {
    for (what, policy) in [("csv", "drop"), ("some", "drop"), ("some", "pad"), ("csv", "repeat"), ("parquet", "drop")] {
        let fixture = Fixture::of("feeding");
        go(&fixture);
        // A rank that has made another number of reports with checkpoints than the others fails the run.
        let ended = fixture.run(&["run", what, "3", NEVER, policy]);
        let rows = if what == "some" { kept() } else { all() };
        for epoch in epochs(&ended) {
            let mut epoch = sorted(epoch);
            if policy == "drop" {
                assert!(epoch.windows(2).all(|pair| pair[0] < pair[1]), "{what}, {policy}: {epoch:?}");
            } else {
                epoch.dedup();
                assert_eq!(epoch, rows, "{what}, {policy}");
            }
        }
    }
}

#[test]
fn what_is_left_out_is_told() {
    let fixture = Fixture::of("feeding");
    go(&fixture);
    let printed = fixture.run(&["run", "parquet", "2", NEVER, "drop"]).printed;
    let told = "rows of `train` are left out of each epoch, so that all ranks have equally many: 1 row of this one is;";
    assert_eq!(printed.matches(told).count(), 2, "once by each rank: {printed}");
}

#[test]
fn what_nobody_counted_is_dealt_to_the_last_row_for_each_rank() {
    for (what, workers, rows) in [("csv", "3", ROWS), ("one-file", "2", ROWS)] {
        let fixture = Fixture::of("feeding");
        go(&fixture);
        let ended = fixture.run(&["run", what, workers, NEVER, "drop"]);
        for epoch in epochs(&ended) {
            let most: i64 = workers.parse().expect("a number");
            assert!(rows - (epoch.len() as i64) < most, "{what}: {} of {rows} rows", epoch.len());
        }
    }
}

#[test]
fn a_seed_gives_the_same_order_and_each_epoch_another() {
    let fixture = Fixture::of("feeding");
    go(&fixture);
    let order = |name: &str, what: &str| epochs(&fixture.run(&[name, what, "1", NEVER, "drop"]));
    let first = order("first", "parquet");
    assert_eq!(first, order("again", "parquet"));
    assert_eq!(first.len(), EPOCHS);
    for (one, other) in [(0, 1), (1, 2), (0, 2)] {
        assert_ne!(first[one], first[other]);
    }
    assert_ne!(first[0], order("other", "other-seed")[0]);
    assert_ne!(first[0], all());
}

#[test]
fn the_position_is_kept_where_python_looks_for_it() {
    let fixture = Fixture::of("feeding");
    go(&fixture);
    let ended = fixture.run(&["run", "parquet", "2", NEVER, "pad"]);
    let manifest: serde_json::Value =
        serde_json::from_str(ended.told["position"].as_str().expect("a text")).expect("JSON");
    let ranks = manifest["data_position"]["ranks"].as_array().expect("a list of all ranks");
    let rank: serde_json::Value = serde_json::from_str(ranks[1].as_str().expect("a text")).expect("JSON");
    let mine = &rank["train"];
    assert_eq!((ranks.len(), &mine["seed"], &mine["epoch"]), (2, &7.into(), &2.into()), "{mine}");
    assert_eq!((mine["position"].as_array().map(Vec::len), &mine["format"]), (Some(4), &3.into()));
    assert_eq!(mine["before"].as_array().map(Vec::len), Some(0));
}

#[test]
fn every_rank_may_read_a_data_set_whole() {
    let ended = Fixture::of("feeding").run(&["run", "whole", "2", NEVER, "drop"]);
    assert_eq!(ended.told["returned"], "25 of word", "{}", ended.told);
}

#[test]
fn what_is_not_there_is_named() {
    let ended = Fixture::of("feeding").run(&["run", "no-shard", "2", NEVER, "drop"]);
    assert!(headline(&ended).contains("no data set is named `test`; there are `train`, `words`"), "{}", ended.told);

    let ended = Fixture::of("feeding").run(&["run", "no-column", "1", NEVER, "drop"]);
    assert!(headline(&ended).contains("there is no column `weight`; there are `id` at "), "{}", ended.told);
    assert!(headline(&ended).contains(&line_of("// the line of the column")), "{}", ended.told);

    let fixture = Fixture::of("feeding");
    let ended = fixture.run(&["run", "missing", "2", NEVER, "drop"]);
    let path = fixture.path("nowhere.parquet");
    assert!(headline(&ended).contains(&format!("nothing is at `{}`", path.display())), "{}", ended.told);

    let fixture = Fixture::of("feeding");
    let ended = fixture.run(&["run", "damaged", "2", NEVER, "drop"]);
    let path = fixture.path("damaged.parquet");
    assert!(headline(&ended).contains(&format!("cannot read `{}`", path.display())), "{}", ended.told);
}

#[test]
fn a_function_of_data_that_fails_is_told_with_its_line() {
    let ended = Fixture::of("feeding").run(&["run", "fails", "2", NEVER, "drop"]);
    assert!(headline(&ended).contains("`fails` failed on data: invalid digit found in string at "), "{}", ended.told);
    assert!(headline(&ended).contains(&line_of("// the line of the function of data")), "{}", ended.told);

    let ended = Fixture::of("feeding").run(&["run", "panics", "2", NEVER, "drop"]);
    assert!(headline(&ended).contains("`panics` failed on data: panic: not a hundred at "), "{}", ended.told);
    assert!(headline(&ended).contains(&line_of("// the line of its panic")), "{}", ended.told);

    let ended = Fixture::of("feeding").run(&["run", "shrinks", "1", NEVER, "drop"]);
    assert!(headline(&ended).contains("`shrinks` made 0 rows of "), "{}", ended.told);
}

#[test]
fn a_function_of_data_that_is_not_named_is_refused_before_anything_starts() {
    let fixture = Fixture::of("feeding");
    let ended = fixture.run(&["run", "unknown", "2", NEVER, "drop"]);
    let hint = "make this the first line of `main`: carril::init!(train, some, fails, panics, shrinks, unknown);";
    assert_eq!(ended.told["hints"][0], hint, "{}", ended.told);
    assert!(!fixture.path("run").exists(), "nothing was started");
}
