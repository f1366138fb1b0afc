//! What `carril tune` prints, word for word, and that it reads what a killed experiment left.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

struct Place {
    root: tempfile::TempDir,
}

/// A result of one of the made-up trials: iteration and loss as JSON has it.
type Results<'a> = &'a [&'a str];

impl Place {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> &Path {
        self.root.path()
    }

    fn carril(&self, arguments: &[&str]) -> Output {
        self.command(&[&["tune"], arguments].concat())
    }

    fn command(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_carril"));
        command.args(arguments).env("TZ", "UTC").env("HOME", self.path()).env("XDG_RUNTIME_DIR", self.path());
        command.current_dir(self.path()).output().expect("the command runs")
    }

    fn make(&self, name: &str, status: &str) -> Maker {
        let directory = self.path().join("carril_results").join(name);
        fs::create_dir_all(&directory).unwrap();
        let record = format!(
            "{{\"name\": \"{name}\", \"created\": 1000.0, \"carril_version\": \"0.1.0\", \"metric\": \"loss\", \"mode\": \"min\", \
             \"trainable\": \"train\", \"num_samples\": 4, \"searcher\": \"random\", \"scheduler\": \"ASHA\", \
             \"status\": \"{status}\", \"ended\": null, \"asked\": {{}}}}"
        );
        fs::write(directory.join("experiment.json"), record).unwrap();
        Maker { directory, events: String::new(), count: 0 }
    }
}

/// Writes the files of an experiment, trial by trial.
struct Maker {
    directory: PathBuf,
    events: String,
    count: usize,
}

impl Maker {
    /// A trial with these results; `ending` is the rest of its end, nothing where it has not ended.
    fn trial(&mut self, config: &str, results: Results, ending: Option<&str>) -> &mut Self {
        let (number, count) = (self.count, results.len());
        let id = format!("3f2a1_{number:05}");
        let directory = format!("train_{id}_{number}_2026-11-16_10-00-00");
        self.count += 1;
        writeln!(
            self.events,
            "{{\"event\": \"made\", \"at\": 1001.0, \"trial\": {number}, \"id\": \"{id}\", \"name\": \"train_{id}\", \
             \"directory\": \"{directory}\", \"tag\": \"{number}\", \"config\": {config}, \"resources\": {{\"CPU\": 1.0}}}}\n\
             {{\"event\": \"started\", \"at\": 1002.0, \"trial\": {number}}}"
        )
        .unwrap();
        let results: Vec<String> = results
            .iter()
            .enumerate()
            .map(|(at, loss)| {
                let iteration = at + 1;
                format!(
                    "{{\"loss\": {loss}, \"eval\": {{\"top1\": 0.{iteration}}}, \"training_iteration\": {iteration}, \
                     \"time_total_s\": {iteration}.5, \"trial_id\": \"{id}\", \"config\": {config}}}"
                )
            })
            .collect();
        fs::create_dir(self.directory.join(&directory)).unwrap();
        fs::write(self.directory.join(&directory).join("result.json"), results.join("\n") + "\n").unwrap();
        let last = results.last().map_or("{}", String::as_str);
        if let Some(ending) = ending {
            let at = 1100 - number;
            writeln!(
                self.events,
                "{{\"event\": \"ended\", \"at\": {at}.0, \"trial\": {number}, \"metrics\": {last}, \"iterations\": {count}, \
                 \"seconds\": {count}.5, {ending}}}"
            )
            .unwrap();
        }
        self
    }

    fn write(&self, torn: &str) {
        fs::write(self.directory.join("trials.jsonl"), format!("{}{torn}", self.events)).unwrap();
    }
}

const DONE: &str = "\"status\": \"terminated\", \"reason\": \"returned\", \"error\": null, \"checkpoint\": null";
const STOPPED: &str = "\"status\": \"terminated\", \"reason\": \"below the rung at 2\", \"error\": null, \
                       \"checkpoint\": \"checkpoint_000001\"";
const FAILED: &str = "\"status\": \"error\", \"reason\": \"failed\", \"checkpoint\": null, \
                      \"error\": \"ValueError: bad luck, in train.py line 3\"";

/// One of every kind: ended well, stopped, failed, NaN, unfinished, without a result.
fn mixed(place: &Place) {
    let mut maker = place.make("search", "running");
    maker
        .trial(
            r#"{"lr": 0.1, "opt": {"name": "sgd", "momentum": 0.9}, "epochs": 3}"#,
            &["0.5", "0.2", "0.4"],
            Some(DONE),
        )
        .trial(r#"{"lr": 0.00001234567, "opt": {"name": "adam"}, "epochs": 3}"#, &["0.6", "0.3"], Some(STOPPED))
        .trial(r#"{"lr": 0.01, "opt": {"name": "adam"}, "epochs": 3}"#, &[], Some(FAILED))
        .trial(r#"{"lr": 0.02, "opt": {"name": "adam"}, "epochs": 3}"#, &["NaN"], Some(DONE))
        .trial(r#"{"lr": 0.03, "opt": {"name": "adam"}, "epochs": 3}"#, &["0.9", "0.7"], None)
        .write("{\"event\": \"ended\", \"at\": 11");
}

fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it is text");
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    let mut shown = format!("exit {}\n{out}", output.status.code().expect("it was not killed"));
    if !error.is_empty() {
        write!(shown, "--- stderr\n{error}").unwrap();
    }
    shown
}

fn settings(place: &Place) -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_omit_expression(true);
    settings.set_prepend_module_to_snapshot(false);
    settings.add_filter(&place.path().display().to_string().replace('.', r"\."), "[home]");
    settings.add_filter(r"\d+ d \d\d h", "[age]");
    settings
}

#[test]
fn help_of_every_command() {
    let place = Place::new();
    settings(&place).bind(|| {
        insta::assert_snapshot!("help_tune", shown(&place.carril(&["--help"])));
        for command in ["ls", "show", "best", "export", "plot"] {
            insta::assert_snapshot!(format!("help_tune_{command}"), shown(&place.carril(&[command, "--help"])));
        }
    });
}

#[test]
fn an_experiment_of_every_kind_of_trial_is_told() {
    let place = Place::new();
    mixed(&place);
    place.make("empty", "finished").write("");
    fs::create_dir(place.path().join("carril_results/broken")).unwrap();
    fs::write(place.path().join("carril_results/broken/experiment.json"), "{").unwrap();
    settings(&place).bind(|| {
        insta::assert_snapshot!("tune_ls", shown(&place.carril(&["ls"])));
        insta::assert_snapshot!("tune_ls_json", shown(&place.carril(&["ls", "carril_results/search", "--json"])));
        insta::assert_snapshot!("tune_show", shown(&place.carril(&["show", "search"])));
        insta::assert_snapshot!("tune_show_empty", shown(&place.carril(&["show", "empty"])));
        insta::assert_snapshot!("tune_best", shown(&place.carril(&["best", "search"])));
        insta::assert_snapshot!("tune_best_all", shown(&place.carril(&["best", "search", "--scope", "all"])));
        let other = ["best", "search", "--metric", "eval/top1", "--mode", "max", "--json"];
        insta::assert_snapshot!("tune_best_json", shown(&place.carril(&other)));
        insta::assert_snapshot!("tune_export", shown(&place.carril(&["export", "search"])));
        insta::assert_snapshot!(
            "tune_export_json",
            shown(&place.carril(&["export", "search", "--format", "json", "--results"]))
        );
    });
}

#[test]
fn what_is_asked_wrongly_gets_one_clear_error() {
    let place = Place::new();
    mixed(&place);
    place.make("empty", "finished").write("");
    let mut same = place.make("same", "finished");
    for _ in 0..12 {
        same.trial(r#"{"lr": 0.1}"#, &["1.0"], Some(DONE));
    }
    same.write("");
    fs::create_dir(place.path().join("carril_results/broken")).unwrap();
    fs::write(place.path().join("carril_results/broken/experiment.json"), "{").unwrap();
    settings(&place).bind(|| {
        for (name, arguments) in [
            ("no_experiment", &["show", "nosuch"][..]),
            ("no_place", &["ls", "nosuch"]),
            ("near", &["show", "sear"]),
            ("a_trial", &["show", "carril_results/search/train_3f2a1_00000_0_2026-11-16_10-00-00"]),
            ("broken", &["show", "carril_results/broken"]),
            ("no_metric", &["best", "search", "--metric", "nosuch", "--mode", "min"]),
            ("no_mode", &["best", "search", "--metric", "eval/top1"]),
            ("nothing_reported", &["best", "empty"]),
            ("not_a_picture", &["plot", "search", "best", "-o", "best.jpg"]),
            ("no_directory", &["plot", "search", "best", "-o", "nosuch/best.svg"]),
            ("too_few", &["plot", "search", "importance"]),
            ("nothing_varies", &["plot", "same", "parallel"]),
            ("nothing_to_explain", &["plot", "same", "importance"]),
        ] {
            insta::assert_snapshot!(format!("tune_error_{name}"), shown(&place.carril(arguments)));
        }
    });
}

#[test]
fn a_trial_is_named_in_every_way_that_people_know_it_by() {
    let place = Place::new();
    mixed(&place);
    let directory = "train_3f2a1_00001_1_2026-11-16_10-00-00";
    let path = place.path().join("carril_results/search").join(directory);
    fs::create_dir(path.join("ranks")).unwrap();
    fs::write(path.join("ranks/rank_0.attempt_0.log"), "hello\n").unwrap();
    let whole = path.display().to_string();
    let below = format!("carril_results/search/{directory}/");
    let ways = ["3f2a1_00001", "train_3f2a1_00001", "search/1", "search/3f2a1_00001", &below, &whole];
    for way in ways.into_iter().chain([directory, "carril_results/search/train_3f2a1_00001"]) {
        let output = place.command(&["logs", way]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "(rank 0) hello\n", "{way}: {}", shown(&output));
    }
    let elsewhere = place.command(&["logs", "3f2a1_00001", "--storage", "nowhere"]);
    assert_eq!(elsewhere.status.code(), Some(2), "{}", shown(&elsewhere));
    let error = place.command(&["logs", "search/9"]);
    let told = "error: there is no trial `search/9`\nhint: there are: 3f2a1_00000, 3f2a1_00001, 3f2a1_00002, 3f2a1_00003, 3f2a1_00004\n";
    assert_eq!(String::from_utf8_lossy(&error.stderr), told);
}

#[test]
fn several_trials_of_one_name_are_told_apart_by_their_ids() {
    let place = Place::new();
    let mut maker = place.make("search", "finished");
    maker.trial(r#"{"lr": 0.1}"#, &["1.0"], Some(DONE)).trial(r#"{"lr": 0.2}"#, &["1.0"], Some(DONE));
    maker.events = maker.events.replace("\"name\": \"train_3f2a1_00000\"", "\"name\": \"same\"");
    maker.events = maker.events.replace("\"name\": \"train_3f2a1_00001\"", "\"name\": \"same\"");
    maker.write("");
    let output = place.command(&["logs", "search/same"]);
    let told = "error: 2 trials of `search` are called `same`\nhint: name one by its id: 3f2a1_00000, 3f2a1_00001\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), told, "RESOLVE-1");
}

#[test]
fn every_command_takes_storage_and_prints_json() {
    let place = Place::new();
    plottable(&place, 30);
    fs::rename(place.path().join("carril_results"), place.path().join("elsewhere")).unwrap();
    for arguments in [
        &["ls"][..],
        &["show", "plots"],
        &["best", "plots"],
        &["export", "plots"],
        &["plot", "plots", "best"],
        &["plot", "plots", "parallel"],
        &["plot", "plots", "importance"],
    ] {
        let output = place.carril(&[arguments, &["--storage", "elsewhere", "--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", shown(&output));
        let text = String::from_utf8(output.stdout).unwrap().replace("NaN", "null");
        let whole = serde_json::from_str::<serde_json::Value>(&text).is_ok();
        let each = text.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok());
        assert!(!text.is_empty() && (whole || each), "{arguments:?}: {text}");
        let without = place.carril(arguments);
        assert!(arguments == ["ls"] || without.status.code() == Some(2), "{}", shown(&without));
    }
}

#[test]
fn lines_of_a_parallel_plot_go_through_the_marks_of_categories() {
    let place = Place::new();
    let mut maker = place.make("plots", "finished");
    for at in 0..12 {
        let optimizer = ["adam", "sgd", "lion"][at % 3];
        maker.trial(&format!("{{\"opt\": \"{optimizer}\"}}"), &[&format!("{at}.5")], Some(DONE));
    }
    maker.write("");
    let output = place.carril(&["plot", "plots", "parallel", "-o", "plot.svg"]);
    assert!(output.status.success(), "{}", shown(&output));
    let text = fs::read_to_string(place.path().join("plot.svg")).unwrap();
    let lines = text.lines().filter(|line| line.contains("<polyline") && line.matches(',').count() == 2);
    let starts: std::collections::BTreeSet<&str> = lines
        .filter_map(|line| line.split_once("points=\"")?.1.split(' ').next())
        .filter(|at| at.starts_with("24,"))
        .collect();
    // The axis itself and three marks begin there too.
    assert!(starts.len() <= 5, "a category is one point: {starts:?}");
}

#[test]
fn a_directory_that_was_moved_reads_the_same() {
    let place = Place::new();
    mixed(&place);
    let before = place.carril(&["best", "search", "--scope", "all", "--json"]);
    fs::create_dir(place.path().join("elsewhere")).unwrap();
    fs::rename(place.path().join("carril_results/search"), place.path().join("elsewhere/other")).unwrap();
    let after = place.carril(&["best", "elsewhere/other", "--scope", "all", "--json"]);
    let text = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
    assert!(text(&before).contains("carril_results/search"), "{}", text(&before));
    assert_eq!(text(&before).replace("carril_results/search", "elsewhere/other"), text(&after));
}

#[test]
fn a_table_goes_into_a_file_of_the_kind_that_its_name_says() {
    let place = Place::new();
    mixed(&place);
    let csv = ("trials.csv", "trial/id,trial/number,", 6);
    let json = ("trials.json", "[\n{\"trial/id\": \"3f2a1_00000\"", 7);
    for (file, start, lines) in [csv, json] {
        let output = place.carril(&["export", "search", "-o", file]);
        assert!(output.status.success() && output.stdout.is_empty(), "{}", shown(&output));
        let text = fs::read_to_string(place.path().join(file)).unwrap();
        assert!(text.starts_with(start), "{text}");
        assert_eq!(text.lines().count(), lines, "a row per trial: {text}");
    }
    let ours = |entry: &fs::DirEntry| !entry.file_name().to_string_lossy().starts_with("carril-");
    let left = fs::read_dir(place.path()).unwrap().flatten().filter(ours).count();
    assert_eq!(left, 3, "nothing but the two files, the storage and the directory of heads");
}

/// Trials with a parameter of every kind, enough of them for every plot.
fn plottable(place: &Place, count: usize) {
    let mut maker = place.make("plots", "finished");
    for at in 0..count {
        let part = (at as f64 * 0.618_034).fract();
        let (lr, optimizer) = (10.0_f64.powf(-5.0 + 4.0 * part), ["adam", "sgd", "<&>"][at % 3]);
        let momentum = if optimizer == "sgd" { format!(", \"momentum\": {}", part / 2.0) } else { String::new() };
        let config =
            format!("{{\"lr\": {lr}, \"opt\": {{\"name\": \"{optimizer}\"{momentum}}}, \"flag\": {}}}", at % 2 == 0);
        let loss = if at % 17 == 5 { "NaN".into() } else { format!("{:?}", (part - 0.4).powi(2)) };
        maker.trial(&config, &[&loss], Some(DONE));
    }
    maker.write("");
}

#[test]
fn every_plot_is_written_in_both_formats() {
    let place = Place::new();
    plottable(&place, 60);
    for kind in ["best", "parallel", "importance"] {
        let svg = place.carril(&["plot", "plots", kind, "-o", "plot.svg"]);
        assert!(svg.status.success(), "{}", shown(&svg));
        let text = fs::read_to_string(place.path().join("plot.svg")).unwrap();
        assert!(text.starts_with("<svg") && text.ends_with("</svg>\n"), "{text}");
        if kind != "best" {
            assert!(text.contains("opt/name") || (text.contains(">opt/<") && text.contains(">name<")), "{text}");
        }
        assert!(!text.contains("NaN,") && !text.contains("inf,"), "no point is nowhere: {text}");
        let png = place.carril(&["plot", "plots", kind]);
        assert!(png.status.success(), "{}", shown(&png));
        let bytes = fs::read(place.path().join(format!("plots_{kind}.png"))).unwrap();
        assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n") && bytes.len() > 10_000, "{} bytes", bytes.len());
        let again = place.carril(&["plot", "plots", kind, "-o", "again.png"]);
        assert!(again.status.success(), "{}", shown(&again));
        assert_eq!(bytes, fs::read(place.path().join("again.png")).unwrap(), "the same experiment gives the same plot");
    }
    let importance = place.carril(&["plot", "plots", "importance"]);
    let text = String::from_utf8(importance.stdout).unwrap();
    assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("lr ")), "lr is what decides: {text}");
}

#[test]
fn a_great_many_trials_take_a_moment() {
    // The bar is a second on an idle machine; what is caught here is a cost that grows faster than the trials.
    const BAR: Duration = Duration::from_secs(10);
    let place = Place::new();
    plottable(&place, if std::env::var_os("CARRIL_LONG").is_some() { 10_000 } else { 2_000 });
    for arguments in [
        &["ls"][..],
        &["show", "plots"],
        &["best", "plots", "--scope", "all"],
        &["export", "plots", "--results"],
        &["plot", "plots", "best"],
        &["plot", "plots", "parallel"],
        &["plot", "plots", "importance"],
    ] {
        let started = Instant::now();
        let output = place.carril(arguments);
        assert!(output.status.success(), "{}", shown(&output));
        let took = started.elapsed();
        assert!(took < BAR, "`{}` took {took:?}", arguments.join(" "));
    }
}
