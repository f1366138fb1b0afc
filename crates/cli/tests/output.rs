//! What the command prints, word for word. Times, ids, pids and paths are replaced.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use carril_proto::v1::run_event::Kind;
use carril_testkit::Fixture;

fn programs() -> PathBuf {
    let directory = Path::new(env!("CARGO_BIN_EXE_carril")).parent().expect("a program lies in a directory").to_owned();
    static BUILT: std::sync::Once = std::sync::Once::new();
    BUILT.call_once(|| carril_testkit::build(env!("CARGO"), "carril-testkit"));
    directory
}

/// `runtime` is where heads are looked for.
fn carril(runtime: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carril"));
    command
        .args(arguments)
        .env("TZ", "UTC")
        .env("HOME", "/nonexistent")
        .env("XDG_RUNTIME_DIR", runtime)
        .env_remove("CARRIL_HEAD");
    command.output().expect("the command runs")
}

/// Exit code, then what was printed, then what went to the error stream.
fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it is text");
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    let mut shown = format!("exit {}\n{out}", output.status.code().expect("it was not killed"));
    if !error.is_empty() {
        shown.push_str(&format!("--- stderr\n{error}"));
    }
    shown
}

fn settings(storage: &Path) -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_omit_expression(true);
    settings.set_prepend_module_to_snapshot(false);
    settings.add_filter(&escape(&storage.display().to_string()), "[storage]");
    settings.add_filter(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "[time]");
    settings.add_filter(r"[0-9a-f]{16}", "[id]");
    settings.add_filter(r"pid \d+ on \S+,", "pid [pid] on [host],");
    settings.add_filter(r" +\d+\.\d{3} s", " [seconds] s");
    // What a group uses is known when it is a few seconds old.
    settings.add_filter(r"  uses .*\n", "");
    settings.add_filter(r" +\+\d+\.\d+ s", " +[seconds]");
    settings.add_filter(r"after \d+\.\d+ s", "after [seconds]");
    settings.add_filter(r"workers on \S+", "workers on [host]");
    settings
}

fn escape(text: &str) -> String {
    text.replace('.', r"\.")
}

/// A run's story differs only in the order of its ranks: sorted, it is the same every time.
fn sorted(text: &str) -> String {
    let without_time =
        |line: &str| line.split_once(" s  ").map_or_else(|| line.to_owned(), |(_, event)| event.to_owned());
    let mut lines: Vec<String> = text.lines().map(without_time).collect();
    lines.sort_unstable();
    lines.join("\n")
}

#[test]
fn help_of_every_command() {
    let storage = tempfile::tempdir().unwrap();
    settings(storage.path()).bind(|| {
        for command in
            ["", "as-ray", "runs", "status", "logs", "explain", "stacks", "stop-run", "resume", "checkpoints", "verify"]
        {
            let arguments: Vec<&str> = [command, "--help"].into_iter().filter(|word| !word.is_empty()).collect();
            let name = if command.is_empty() { "help".to_owned() } else { format!("help_{command}") };
            insta::assert_snapshot!(name, shown(&carril(storage.path(), &arguments)));
        }
    });
}

#[test]
fn what_is_asked_wrongly_gets_one_clear_error() {
    let storage = tempfile::tempdir().unwrap();
    let path = storage.path().display().to_string();
    settings(storage.path()).bind(|| {
        insta::assert_snapshot!("no_run", shown(&carril(storage.path(), &["logs", "nosuch", "--storage", &path])));
        insta::assert_snapshot!("no_runs", shown(&carril(storage.path(), &["runs", "--storage", &path])));
        insta::assert_snapshot!("not_live", shown(&carril(storage.path(), &["stop-run", "nosuch-run"])));
        insta::assert_snapshot!("unknown_command", shown(&carril(storage.path(), &["sattus"])));
        insta::assert_snapshot!(
            "bad_amount",
            shown(&carril(storage.path(), &["as-ray", "--num-cpus", "many", "--", "true"]))
        );
        insta::assert_snapshot!("no_program", shown(&carril(storage.path(), &["as-ray", "--", "no-such-program"])));
    });
}

#[tokio::test]
async fn a_run_that_failed_is_told_in_order() {
    let fixture = Fixture::start(&programs(), 8.0).await;
    let end = fixture.run(2, &["print", "2", "report", "3", "barrier", "rank", "1", "exit", "7", "barrier"]).await;
    assert_eq!(end.ended.status, "failed");
    let path = fixture.storage.path().display().to_string();
    settings(fixture.storage.path()).bind(|| {
        insta::assert_snapshot!("failed_runs", shown(&carril(fixture.runtime.path(), &["runs", "--storage", &path])));
        insta::assert_snapshot!(
            "failed_status",
            shown(&carril(fixture.runtime.path(), &["status", "run0", "--storage", &path]))
        );
        insta::assert_snapshot!(
            "failed_logs",
            shown(&carril(fixture.runtime.path(), &["logs", "run0", "--storage", &path]))
        );
        insta::assert_snapshot!(
            "failed_logs_rank",
            shown(&carril(fixture.runtime.path(), &["logs", "run0", "--rank", "1", "--storage", &path]))
        );
        insta::assert_snapshot!(
            "failed_logs_no_rank",
            shown(&carril(fixture.runtime.path(), &["logs", "run0", "--rank", "9", "--storage", &path]))
        );
        insta::assert_snapshot!(
            "failed_explain",
            shown(&carril(fixture.runtime.path(), &["explain", "run0", "--storage", &path]))
        );
        insta::assert_snapshot!(
            "failed_explain_all",
            sorted(&shown(&carril(fixture.runtime.path(), &["explain", "run0", "--all", "--storage", &path])))
        );
        insta::assert_snapshot!(
            "failed_resume",
            shown(&carril(fixture.runtime.path(), &["resume", "run0", "--storage", &path]))
        );
    });
}

#[tokio::test]
async fn a_live_run_can_be_seen_followed_and_stopped() {
    let fixture = Fixture::start(&programs(), 8.0).await;
    let spec = fixture.spec(2, &["print", "1", "report", "2", "hang"]);
    let reply = fixture.submit(&spec).await.unwrap();
    let mut watch = fixture.watch(&reply.run_id).await;
    let (mut reports, mut lines) = (0, 0);
    while reports < 2 || lines < 2 {
        match watch.next().await.unwrap().expect("the run goes on") {
            Kind::Reported(_) => reports += 1,
            Kind::Output(_) => lines += 1,
            _ => {}
        }
    }
    let path = fixture.storage.path().display().to_string();
    let runtime = fixture.runtime.path().to_owned();
    let follow = Command::new(env!("CARGO_BIN_EXE_carril"))
        .args(["logs", &reply.path, "--follow", "--rank", "0"])
        .env("XDG_RUNTIME_DIR", &runtime)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = tokio::task::spawn_blocking(move || {
        settings(Path::new(&path)).bind(|| {
            insta::assert_snapshot!("live_status", shown(&carril(&runtime, &["status", &reply.path])));
            insta::assert_snapshot!("live_stacks", shown(&carril(&runtime, &["stacks", &reply.run_id])));
            insta::assert_snapshot!("live_stop", shown(&carril(&runtime, &["stop-run", &reply.run_id])));
            insta::assert_snapshot!("stopped_status", shown(&carril(&runtime, &["status", &reply.path])));
        });
        follow.wait_with_output().unwrap().stdout
    })
    .await
    .unwrap();
    assert_eq!(String::from_utf8(stdout).unwrap(), "line 0 of rank 0\n", "it ends with the run");
}
