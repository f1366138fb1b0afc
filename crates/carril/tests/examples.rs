//! The examples run as a reader would run them, and so do the pieces of Rust in the readme.

mod common;

use std::process::Command;

fn run(example: &str) -> String {
    let home = tempfile::tempdir().expect("there is a temporary directory");
    let output =
        Command::new(common::built(example)).env("HOME", home.path()).env("XDG_RUNTIME_DIR", home.path()).output();
    let output = output.expect("the example starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_quickstart_fits_its_line() {
    let printed = run("quickstart");
    assert!(printed.starts_with("y = 3.00 x + 2.00, in "), "{printed}");
}

#[test]
fn the_search_finds_a_rate() {
    let printed = run("search");
    assert!(printed.starts_with("the best of 20: rate 0."), "{printed}");
}

#[test]
fn the_parquet_pipeline_goes_on_with_its_line() {
    let printed = run("parquet");
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[0], "999 points, such as", "{printed}");
    assert!(lines[4].starts_with("after 3 epochs: y = "), "{printed}");
    assert!(lines[5].starts_with("after 20 epochs: y = 30.00 x + 5.00, in "), "{printed}");
}
