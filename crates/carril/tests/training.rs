//! Drivers in Rust, as processes: what they are told, what they survive, what they leave behind.

mod common;

use common::{Fixture, is_gone, signal, until};
use nix::sys::signal::Signal;

/// The line of the subject that carries this comment.
fn line_of(comment: &str) -> usize {
    let source = include_str!("programs/subject.rs");
    1 + source.lines().position(|line| line.ends_with(comment)).expect("the comment is there")
}

#[test]
fn a_function_runs_with_its_typed_config_on_every_rank() {
    let fixture = Fixture::of("subject");
    let ended = fixture.run(&["plainly", "well"]);
    let returned = ended.told["returned"].as_str().unwrap_or_default();
    assert!(returned.contains("rate: inf, layers: [3, 4]"), "{returned}");
    assert_eq!((ended.told["rows"].as_u64(), ended.told["opened"].as_f64()), (Some(1), Some(1.0)));
    assert_eq!(ended.told["rank"].as_f64(), Some(1.0), "summed over both ranks");
    for line in
        ["(rank 0) hello from rank 0\n", "(rank 1) hello from rank 1\n", "carril: `plainly` finished: 1 report in"]
    {
        assert!(ended.printed.contains(line), "{line:?} in {}", ended.printed);
    }
    assert_eq!(fixture.told(), ["start plainly 2", "report 1 of 2", "end well"]);
    fixture.assert_nothing_left();
}

#[test]
fn nothing_is_printed_by_a_quiet_run() {
    assert_eq!(Fixture::of("subject").run(&["silent", "well", "quiet"]).printed, "");
}

#[test]
fn a_driver_inside_of_a_runtime_works_too() {
    let ended = Fixture::of("subject").run(&["inside", "runtime"]);
    assert_eq!(ended.told["rows"].as_u64(), Some(1));
}

#[test]
fn ranks_wait_for_each_other_and_share_a_value() {
    assert_eq!(Fixture::of("subject").run(&["together", "together"]).told["rows"].as_u64(), Some(1));
}

#[test]
fn a_driver_that_forgot_the_first_line_is_told_which() {
    let fixture = Fixture::of("subject");
    let ended = fixture.run(&["forgotten", "uninitialised"]);
    let headline = "`carril::init!` was not called: this program's workers would not know what to run";
    assert_eq!(ended.told["headline"], headline);
    assert_eq!(ended.told["hints"][0], "make this the first line of `main`: carril::init!(train);");
    assert!(!fixture.path("forgotten").exists(), "nothing was started");
}

#[test]
fn a_function_that_is_not_named_is_refused() {
    let ended = Fixture::of("subject").run(&["unknown", "unknown"]);
    assert_eq!(ended.told["hints"][0], "make this the first line of `main`: carril::init!(train, unknown);");
}

#[test]
fn an_error_comes_with_its_rank_its_line_and_its_causes() {
    let ended = Fixture::of("subject").run(&["failing", "error"]);
    let line = line_of("// the line of the error");
    let headline = ended.told["headline"].as_str().unwrap_or_default();
    let begins = "rank 1 failed: error: the labels cannot be loaded: invalid digit found in string at ";
    assert!(headline.starts_with(begins), "{headline}");
    assert!(headline.ends_with(&format!("subject.rs:{line}:13")), "{headline}, expected line {line}");
    assert_eq!(
        ended.told["causes"],
        serde_json::json!(["the labels cannot be loaded", "invalid digit found in string"])
    );
    assert_eq!((&ended.told["code"], &ended.told["ranks"][0]), (&"user-exception".into(), &1.into()));
    assert!(ended.told["all"].as_str().unwrap_or_default().contains("caused by: invalid digit found in string"));
}

#[test]
fn an_error_that_is_a_sentence_has_its_line_too() {
    let ended = Fixture::of("subject").run(&["plainly", "plain"]);
    let headline = ended.told["headline"].as_str().unwrap_or_default();
    assert!(headline.starts_with("rank 1 failed: error: the data is empty at "), "{headline}");
}

#[test]
fn a_panic_comes_with_its_line() {
    let ended = Fixture::of("subject").run(&["panicking", "panic"]);
    let headline = ended.told["headline"].as_str().unwrap_or_default();
    let begins = "rank 1 failed: panic: index out of bounds: the len is 0 but the index is 2 at ";
    assert!(headline.starts_with(begins), "{headline}");
    assert!(headline.contains(&format!("subject.rs:{}:", line_of("// the line of the panic"))), "{headline}");
}

#[test]
fn a_panic_of_another_thread_is_told_as_the_cause() {
    let ended = Fixture::of("subject").run(&["panicking", "thread"]);
    let cause = ended.told["causes"][1].as_str().unwrap_or_default();
    assert!(cause.starts_with("another thread panicked at ") && cause.ends_with(": the loader has no disk"), "{cause}");
}

#[test]
fn a_callback_that_fails_stops_the_run_and_is_the_error() {
    let ended = Fixture::of("subject").run(&["called", "steps", "fails"]);
    let headline = ended.told["headline"].as_str().unwrap_or_default();
    assert!(
        headline.starts_with("a callback failed, and the run was stopped: the labels cannot be loaded"),
        "{headline}"
    );
    assert_eq!(ended.told["causes"][1], "invalid digit found in string");
}

#[test]
fn a_killed_worker_costs_no_step_that_was_saved() {
    let fixture = Fixture::of("subject");
    let driver = fixture.spawn(&["killed", "steps"]);
    let pid = fixture.pid(1);
    until("the third step is saved", || fixture.path("killed/checkpoint_000002/.manifest.json").exists().then_some(()));
    signal(pid, Signal::SIGKILL);
    let ended = fixture.end(driver);
    assert_eq!(ended.told["restarts"], serde_json::json!(["worker-killed"]));
    assert_eq!(ended.told["returned"], "from 4");
    assert_eq!(ended.told["rows"].as_u64(), Some(6), "each step once");
    assert_eq!(ended.told["checkpoints"], serde_json::json!([5, 6]), "two are kept, the best last");
    let told = fixture.told();
    assert!(told.contains(&"restart 1 worker-killed".to_owned()), "{told:?}");
    assert!(told.contains(&"checkpoint 6".to_owned()), "{told:?}");
    assert!(ended.printed.contains("carril: restart 1: rank 1 "), "{}", ended.printed);
}

#[test]
fn a_killed_driver_leaves_nothing_and_the_next_one_goes_on() {
    let fixture = Fixture::of("subject");
    let mut driver = fixture.spawn(&["again", "steps"]);
    let pid = fixture.pid(1);
    until("the third step is saved", || fixture.path("again/checkpoint_000002/.manifest.json").exists().then_some(()));
    signal(driver.id(), Signal::SIGKILL);
    driver.wait().expect("it was killed");
    until("the worker is gone", || is_gone(pid).then_some(()));
    fixture.assert_nothing_left();
    std::fs::write(fixture.path("go"), "").expect("the storage is there");
    let ended = fixture.run(&["again", "steps"]);
    assert_eq!((ended.told["returned"].as_str(), ended.told["rows"].as_u64()), (Some("from 4"), Some(6)));
}

#[test]
fn the_command_resumes_a_run_whose_name_was_made_up() {
    let fixture = Fixture::of("subject");
    let mut driver = fixture.spawn(&["-", "steps"]);
    let pid = fixture.pid(1);
    let runs = || {
        let entries = std::fs::read_dir(fixture.path("")).expect("the storage is there").flatten();
        entries.map(|entry| entry.path()).filter(|path| path.join("run.json").exists()).collect::<Vec<_>>()
    };
    let run = until("the run has its directory", || runs().pop());
    until("the third step is saved", || run.join("checkpoint_000002/.manifest.json").exists().then_some(()));
    signal(driver.id(), Signal::SIGKILL);
    driver.wait().expect("it was killed");
    until("the worker is gone", || is_gone(pid).then_some(()));
    std::fs::write(fixture.path("go"), "").expect("the storage is there");
    let run = run.display().to_string();
    let ended = fixture.end(fixture.command(&["resume", &run]));
    assert_eq!((ended.told["returned"].as_str(), ended.told["path"].as_str()), (Some("from 4"), Some(run.as_str())));
    assert_eq!(runs().len(), 1, "it is no new run");
    let again = fixture.command(&["resume", &run]).wait_with_output().expect("the command ends");
    let refused = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(refused.contains("has finished") && refused.contains("`RunConfig { resume: true, .. }`"), "{refused}");
}

#[test]
fn a_killed_head_is_replaced_and_the_run_goes_on() {
    let fixture = Fixture::of("subject");
    let driver = fixture.spawn(&["headless", "steps"]);
    let pid = fixture.pid(1);
    until("the third step is saved", || {
        fixture.path("headless/checkpoint_000002/.manifest.json").exists().then_some(())
    });
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the worker is there");
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("it has a parent");
    std::fs::write(fixture.path("go"), "").expect("the storage is there");
    signal(parent.trim().parse().expect("a pid"), Signal::SIGKILL);
    let ended = fixture.end(driver);
    assert_eq!(ended.told["rows"].as_u64(), Some(6), "{}", ended.told);
    assert!(ended.printed.contains("the head has gone and is started again"), "{}", ended.printed);
}

#[test]
fn a_finished_run_is_refused_and_can_be_resumed() {
    let fixture = Fixture::of("subject");
    std::fs::write(fixture.path("go"), "").expect("the storage is there");
    assert_eq!(fixture.run(&["once", "steps"]).told["returned"], "from 1");
    assert_eq!(fixture.run(&["once", "steps"]).told["code"], "run-exists");
    assert_eq!(fixture.run(&["once", "steps", "resume"]).told["returned"], "from 7");
}

#[test]
fn ctrl_c_stops_the_run_and_leaves_nothing() {
    let fixture = Fixture::of("subject");
    let driver = fixture.spawn(&["interrupted", "hang"]);
    let pids = [fixture.pid(0), fixture.pid(1)];
    signal(driver.id(), Signal::SIGINT);
    let ended = fixture.end(driver);
    assert_eq!(ended.told["interrupted"], true, "{}", ended.told);
    assert!(ended.printed.contains("carril: interrupted: stopping"), "{}", ended.printed);
    assert!(pids.into_iter().all(is_gone));
    assert_eq!(fixture.told().last().map(String::as_str), Some("end badly"));
    fixture.assert_nothing_left();
}

#[test]
fn a_function_that_asks_leaves_in_order() {
    let fixture = Fixture::of("subject");
    let driver = fixture.spawn(&["polite", "polite"]);
    let pids = [fixture.pid(0), fixture.pid(1)];
    signal(driver.id(), Signal::SIGINT);
    assert_eq!(fixture.end(driver).told["interrupted"], true);
    assert!(pids.into_iter().all(is_gone));
    assert!(fixture.path("left0").exists() && fixture.path("left1").exists());
}

#[test]
fn a_preempted_run_ends_with_its_last_checkpoint_and_goes_on() {
    let fixture = Fixture::of("subject");
    let driver = fixture.spawn(&["taken", "preempted"]);
    fixture.pid(0);
    fixture.pid(1);
    signal(driver.id(), Signal::SIGUSR1);
    let ended = fixture.end(driver);
    assert_eq!(ended.told["preempted"], true, "{}", ended.told);
    let ended = fixture.run(&["taken", "preempted"]);
    assert_eq!((ended.told["opened"].as_f64(), ended.told["rows"].as_u64()), (Some(2.0), Some(2)), "{}", ended.told);
}
