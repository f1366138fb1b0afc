//! A driver that searches, for the tests: `STORAGE NAME HOW`. It prints one line of JSON about the trials.

use std::path::PathBuf;

use carril::tune::{
    Asha, HyperBand, MedianStopping, Pbt, Searcher, Space, Trial, TuneResult, choice, fixed, grid, loguniform, randint,
    uniform,
};
use carril::{Mode, RunConfig, ScalingConfig, Session, TrainError, TrainResult, Tuner};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Config {
    rate: f64,
    inner: Inner,
    how: String,
    place: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct Inner {
    width: u32,
    kind: Kind,
}

#[derive(Debug, Serialize, Deserialize)]
enum Kind {
    Plain,
    Wide,
}

fn objective(session: &Session, config: Config) -> TrainResult {
    let trial = session.trial().ok_or_else(|| TrainError::message("this is no trial"))?;
    if config.how == "failing" && config.inner.width == 2 {
        return Err(TrainError::message("width 2 is not for me"));
    }
    if config.how == "slow" {
        std::fs::write(config.place.join(&trial.id), std::process::id().to_string())?;
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !config.place.join("go").exists() {
            assert!(std::time::Instant::now() < until, "nobody let the trial go on");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
    let first = match session.latest_checkpoint()? {
        Some(last) => last.read_json::<u32>("step.json")? + 1,
        None => 1,
    };
    for step in first..=16 {
        let loss = config.rate + 1.0 / f64::from(step);
        let metrics = serde_json::json!({"loss": loss, "world": session.world_size()});
        if config.how == "pbt" {
            session.report_and_save(&metrics, |to| std::fs::write(to.join("step.json"), step.to_string()))?;
        } else {
            session.report(&metrics)?;
        }
    }
    println!("{} is through", trial.name);
    Ok(())
}

fn main() {
    carril::init!(objective);
    let words: Vec<String> = std::env::args().collect();
    let [_, storage, name, how] = &words[..] else { panic!("STORAGE NAME HOW") };
    carril::start(&carril::Machine { cpus: Some(2.0), ..carril::Machine::default() }).expect("a head starts");
    println!("{}", shown(tuner(storage, name, how).fit()));
}

fn tuner(storage: &str, name: &str, how: &str) -> Tuner {
    let inner = Space::new().add("width", grid([1, 2, 3])).add("kind", choice([Kind::Plain, Kind::Wide]));
    let drawn = Space::new().add("width", randint(1, 4)).add("kind", fixed(Kind::Wide));
    let space = Space::new().add("how", fixed(how)).add("place", fixed(storage));
    let with = |rate, inner: Space| space.clone().add("rate", rate).add("inner", inner);
    let run = RunConfig { storage: Some(storage.to_owned()), ..RunConfig::named(name) };
    let searched = |space| Tuner::new(objective, space).metric("loss", Mode::Min).seed(3);
    let tuner = match how {
        "grid" | "failing" => searched(with(uniform(0.0, 1.0), inner)).samples(2),
        "asha" => {
            searched(with(uniform(0.0, 1.0), drawn)).samples(8).scheduler(Asha { max_t: 16.0, ..Asha::default() })
        }
        "hyperband" => searched(with(uniform(0.0, 1.0), drawn))
            .samples(4)
            .scheduler(HyperBand { max_t: 9.0, ..HyperBand::default() }),
        "median" => searched(with(uniform(0.0, 1.0), drawn)).samples(6).scheduler(MedianStopping::default()),
        "pbt" => {
            let mutations = Space::new().add("rate", uniform(0.0, 1.0));
            let pbt = Pbt { perturbation_interval: 4.0, ..Pbt::new(mutations) };
            searched(with(uniform(0.0, 1.0), drawn)).samples(2).scheduler(pbt)
        }
        "tpe" => searched(with(loguniform(1e-3, 1.0), drawn))
            .samples(12)
            .searcher(Searcher::Tpe)
            .try_first(&serde_json::json!({"rate": 0.5})),
        "gp" => searched(with(loguniform(1e-3, 1.0), drawn)).samples(8).searcher(Searcher::GaussianProcess),
        "two" => searched(with(uniform(0.0, 1.0), drawn))
            .scaling(ScalingConfig::workers(2))
            .stop_at("training_iteration", 3.0),
        "aimless" => Tuner::new(objective, with(uniform(0.0, 1.0), drawn)).scheduler(Asha::default()),
        "empty" => searched(with(choice::<f64>([]), drawn)),
        _ => searched(with(uniform(0.0, 1.0), drawn)).samples(2),
    };
    tuner.run_config(run)
}

fn shown(fitted: carril::Result<TuneResult>) -> serde_json::Value {
    match fitted {
        Ok(result) => serde_json::json!({
            "trials": result.trials.iter().map(one).collect::<Vec<_>>(),
            "best": result.best().map(one).unwrap_or_default(),
            "path": result.path,
        }),
        Err(error) => serde_json::json!({
            "headline": error.to_string(),
            "code": error.code(),
            "hints": error.hints(),
            "interrupted": error.is_interrupted(),
        }),
    }
}

fn one(trial: &Trial) -> serde_json::Value {
    let config: Config = trial.config().expect("it is the config");
    serde_json::json!({
        "config": config,
        "loss": trial.metrics.number("loss"),
        "world": trial.metrics.number("world"),
        "reports": trial.table().map_or(0, |rows| rows.len()),
        "error": trial.error,
        "checkpoint": trial.checkpoint().expect("it can be opened").map(|checkpoint| checkpoint.location().to_owned()),
    })
}
