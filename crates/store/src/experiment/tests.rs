use std::fs;

use super::*;

const ID: &str = "3f2a1_0000";

fn made(number: u64, config: &str) -> String {
    let directory = format!("train_{ID}{number}_{number}_2026-11-16_10-00-00");
    format!(
        "{{\"event\": \"made\", \"at\": 10.0, \"trial\": {number}, \"id\": \"{ID}{number}\", \"name\": \"train_{ID}{number}\", \
         \"directory\": \"{directory}\", \"tag\": \"{number}\", \"config\": {config}, \"resources\": {{\"CPU\": 1.0}}}}\n"
    )
}

fn started(number: u64, at: f64) -> String {
    format!("{{\"event\": \"started\", \"at\": {at:?}, \"trial\": {number}}}\n")
}

fn ended(number: u64, status: &str, metrics: &str) -> String {
    format!(
        "{{\"event\": \"ended\", \"at\": 30.5, \"trial\": {number}, \"status\": \"{status}\", \"reason\": \"stopped at a rung\", \
         \"metrics\": {metrics}, \"iterations\": 4, \"seconds\": 2.5, \"error\": null, \"checkpoint\": \"checkpoint_000003\"}}\n"
    )
}

fn experiment(status: &str, events: &str) -> (tempfile::TempDir, Experiment) {
    let directory = tempfile::tempdir().unwrap();
    let record = format!(
        "{{\"name\": \"search\", \"created\": 9.5, \"carril_version\": \"0.1.0\", \"metric\": \"loss\", \"mode\": \"min\", \
         \"trainable\": \"train\", \"num_samples\": 4, \"searcher\": \"random\", \"scheduler\": \"ASHA\", \"status\": \"{status}\", \
         \"ended\": null, \"asked\": {{\"seed\": NaN}}}}"
    );
    fs::write(directory.path().join(EXPERIMENT), record).unwrap();
    fs::write(directory.path().join(TRIALS), events).unwrap();
    let read = Experiment::read(directory.path()).unwrap();
    (directory, read)
}

#[test]
fn the_last_event_of_a_trial_decides_its_state() {
    let events = [
        made(0, "{\"lr\": 0.1}"),
        made(1, "{\"lr\": 0.2}"),
        made(2, "{\"lr\": 0.3}"),
        made(3, "{\"lr\": 0.4}"),
        started(0, 11.0),
        started(1, 11.0),
        started(2, 11.0),
        "{\"event\": \"told\", \"trial\": 0, \"anything\": [NaN, {}]}\n".to_owned(),
        "{\"event\":\"paused\",\"at\":12,\"trial\":1,\"reason\":\"waits for its bracket\"}\n".to_owned(),
        "{\"event\": \"exploited\", \"at\": 12, \"trial\": 2, \"from\": 0, \"config\": {\"lr\": 0.12}, \"reason\": \"r\"}\n"
            .to_owned(),
        ended(0, "error", "{\"loss\": 1.0}"),
        started(0, 20.0),
        ended(0, "terminated", "{\"loss\": NaN, \"eval\": {\"loss\": 2}}"),
    ];
    let (_directory, read) = experiment("finished", &events.concat());
    let states: Vec<TrialState> = read.trials.iter().map(|trial| trial.state).collect();
    use TrialState::{Paused, Pending, Terminated};
    assert_eq!(states, [Terminated, Paused, Paused, Pending], "EXPERIMENT-2");
    let first = &read.trials[0];
    assert_eq!((first.iterations, first.seconds, first.ended), (4, 2.5, Some(30.5)));
    assert_eq!((first.reason.as_str(), first.checkpoint.as_deref()), ("stopped at a rung", Some("checkpoint_000003")));
    assert_eq!(first.metrics.find("eval/loss"), Some(&Value::Int(2)));
    assert_eq!(read.trials[1].reason, "waits for its bracket");
    assert_eq!(read.trials[2].config.get("lr"), Some(&Value::Float(0.12)));
    assert_eq!((read.unreadable, read.torn, read.status_word()), (0, false, "finished"));
    assert_eq!((read.summary.metric.as_deref(), read.summary.mode), (Some("loss"), Some(ScoreOrder::Min)));
}

#[test]
fn a_trial_that_ended_has_the_config_that_its_end_names() {
    let exploited = "{\"event\": \"exploited\", \"at\": 12, \"trial\": 0, \"from\": 1, \"config\": {\"lr\": 0.12}, \"reason\": \"r\"}\n";
    let end = ended(0, "terminated", "{\"loss\": 1.0}");
    for (end, lr) in [(end.clone(), 0.12), (end.replacen('{', "{\"config\": {\"lr\": 0.1}, ", 1), 0.1)] {
        let events = [made(0, "{\"lr\": 0.1}"), started(0, 11.0), exploited.to_owned(), started(0, 13.0), end];
        let (_directory, read) = experiment("finished", &events.concat());
        assert_eq!(read.trials[0].config.get("lr"), Some(&Value::Float(lr)));
    }
}

#[test]
fn a_file_that_was_cut_anywhere_is_read_as_far_as_it_goes() {
    let events = [made(0, "{}"), started(0, 11.0), ended(0, "terminated", "{\"loss\": 1}"), made(1, "{}")].concat();
    for end in 0..events.len() {
        let (_directory, read) = experiment("running", &events[..end]);
        assert_eq!(read.unreadable, 0, "EXPERIMENT-1");
        let whole = events[..end].matches("\"made\"").count();
        assert!(read.trials.len() <= whole && read.trials.len() + 1 >= whole, "cut at {end}");
    }
    let middle = format!("{}no JSON\n{}{{\"event\": \"started\", \"trial\": 9}}\n", made(0, "{}"), started(0, 1.0));
    let (_directory, read) = experiment("running", &middle);
    assert_eq!((read.unreadable, read.trials[0].state), (2, TrialState::Running), "EXPERIMENT-1");
}

#[test]
fn a_trial_that_has_not_ended_is_told_from_its_own_results() {
    let (directory, mut read) = experiment("running", &[made(0, "{}"), started(0, 11.0)].concat());
    let place = directory.path().join(&read.trials[0].directory);
    fs::create_dir(&place).unwrap();
    let line = |iteration: u64, padding: usize| {
        let padding = "x".repeat(padding);
        format!(
            "{{\"loss\": {iteration}.5, \"training_iteration\": {iteration}, \"time_total_s\": 7.5, \"p\": \"{padding}\"}}\n"
        )
    };
    // A last line that is longer than the tail, one that is shorter, one that was cut.
    for (text, iterations) in [
        (line(1, 10) + &line(2, 40_000), 2),
        ([line(1, 30_000), line(2, 10), line(3, 10)].concat(), 3),
        (line(1, 10) + &line(2, 10)[..30], 1),
    ] {
        fs::write(place.join(RESULTS), text).unwrap();
        read.look_at_unfinished().unwrap();
        assert_eq!((read.trials[0].iterations, read.trials[0].seconds), (iterations, 7.5));
        let values = read.values(&read.trials[0], "loss").unwrap();
        assert_eq!((values[0], values.len() as u64), (1.5, iterations));
        assert_eq!(read.results(&read.trials[0]).unwrap().len() as u64, iterations);
    }
}

#[test]
fn an_experiment_is_live_while_its_owner_is() {
    let (directory, mut read) = experiment("running", &[made(0, "{}"), started(0, 11.0)].concat());
    assert_eq!(read.status_word(), "unfinished", "nobody tells of it");
    read.summary.owner = Some(Owner::this_process());
    assert_eq!(read.status_word(), "running");
    read.summary.owner = Some(Owner { host: "elsewhere".into(), ..Owner::this_process() });
    assert_eq!(read.status_word(), "unreachable");
    read.summary.renewed = now();
    assert_eq!(read.status_word(), "running", "it was heard of a moment ago");
    drop(directory);
}

#[test]
fn what_is_no_experiment_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let failure = Experiment::read(directory.path()).unwrap_err();
    assert!(matches!(failure, StoreError::NotAnExperiment { .. }), "{failure}");
    for content in ["", "{\"name\": \"a\"}", "{\"name\": \"a\", \"status\": \"dancing\"}"] {
        fs::write(directory.path().join(EXPERIMENT), content).unwrap();
        let failure = Experiment::read(directory.path()).unwrap_err();
        assert!(matches!(failure, StoreError::ExperimentDamaged { .. }), "{content}: {failure}");
    }
}

#[test]
fn trials_whose_lines_are_lost_or_exchanged_are_shown_as_a_head_resumes_them() {
    let (directory, _) = experiment("stopped", "");
    let record = fs::read_to_string(directory.path().join(EXPERIMENT)).unwrap();
    fs::write(directory.path().join(EXPERIMENT), record.replacen('{', "{\"id\": \"3f2a10123\", ", 1)).unwrap();
    let whole: Vec<String> = (0..3)
        .flat_map(|number| [made(number, "{\"lr\": 1}"), started(number, 11.0), ended(number, "terminated", "{}")])
        .collect();
    for number in 0..3 {
        let place = directory.path().join(format!("train_{ID}{number}_{number}_2026-11-16_10-00-00"));
        fs::create_dir(&place).unwrap();
        fs::write(place.join("params.json"), "{\"lr\": 1}").unwrap();
        fs::write(place.join(RESULTS), "{\"loss\": 2.5, \"training_iteration\": 4}\n").unwrap();
    }
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..100 {
        let mut lines: Vec<&String> = whole.iter().filter(|_| random.f64() < 0.6).collect();
        random.shuffle(&mut lines);
        let text: String = lines.iter().map(|line| line.as_str()).collect();
        fs::write(directory.path().join(TRIALS), &text).unwrap();
        let read = Experiment::read(directory.path()).unwrap();
        let numbers: Vec<u64> = read.trials.iter().map(|trial| trial.number).collect();
        assert_eq!((numbers, read.unreadable), (vec![0, 1, 2], 0), "{text}");
        assert_eq!(read.read_back, 3 - text.matches("\"made\"").count());
        for (trial, end) in read.trials.iter().zip(0..) {
            let is_over = lines.contains(&&ended(end, "terminated", "{}"));
            assert_eq!(trial.state == TrialState::Terminated, is_over, "{text}");
            assert_eq!(trial.config.get("lr"), Some(&Value::Int(1)));
        }
    }
}
