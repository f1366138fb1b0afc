//! A driver whose behaviour is its arguments: `STORAGE NAME WHAT`, where the name `-` is no name. It prints one line of JSON about how
//! the run ended.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use carril::{
    Callback, CallbackResult, Checkpoint, CheckpointConfig, Error, FailureConfig, Mode, Op, Reduce, Report, RunConfig,
    RunInfo, RunResult, Session, TrainError, TrainResult, Trainer,
};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Config {
    what: String,
    rate: f64,
    layers: Vec<u16>,
    /// Where the test waits for files, and puts some.
    place: PathBuf,
}

#[derive(Debug)]
struct LoadError(std::num::ParseIntError);

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the labels cannot be loaded")
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

fn parse(text: &str) -> Result<u32, LoadError> {
    text.parse().map_err(LoadError)
}

#[derive(Serialize)]
struct Step {
    step: u64,
    loss: f64,
    rank: u32,
}

/// Waits for a file that the test makes.
fn wait_for(path: PathBuf) {
    let until = Instant::now() + Duration::from_secs(30);
    while !path.exists() {
        assert!(Instant::now() < until, "nobody made `{}`", path.display());
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn train(session: &Session, config: Config) -> TrainResult<String> {
    let (rank, place) = (session.rank(), &config.place);
    match config.what.as_str() {
        "error" if rank == 1 => {
            parse("seven")?; // the line of the error
        }
        "plain" if rank == 1 => return Err(TrainError::message("the data is empty")),
        "panic" if rank == 1 => {
            let rows: Vec<u8> = Vec::new();
            println!("{}", rows[config.layers.len()]); // the line of the panic
        }
        "thread" if rank == 1 => {
            std::thread::spawn(|| panic!("the loader has no disk")).join().unwrap();
        }
        "hang" => {
            std::fs::write(place.join(format!("pid{rank}")), std::process::id().to_string())?;
            wait_for(place.join("never"));
        }
        "polite" => {
            std::fs::write(place.join(format!("pid{rank}")), std::process::id().to_string())?;
            while !session.should_stop() {
                std::thread::sleep(Duration::from_millis(2));
            }
            std::fs::write(place.join(format!("left{rank}")), "in order")?;
        }
        "preempted" => {
            let mut step = session.latest_checkpoint()?.map_or(0, |last| last.metrics().number("step").unwrap() as u64);
            std::fs::write(place.join(format!("pid{rank}")), std::process::id().to_string())?;
            // The second time there is nobody to take the machine.
            while step == 0 && session.preemption().is_none() {
                std::thread::sleep(Duration::from_millis(2));
            }
            step += 1;
            session.report_and_save(&Step { step, loss: 0.0, rank }, |to| std::fs::write(to.join("step.json"), "x"))?;
            return Ok(String::new());
        }
        "together" => {
            session.barrier()?;
            let from_zero: Vec<f64> = session.broadcast(&vec![f64::from(rank), f64::NAN])?;
            assert!(from_zero[0] == 0.0 && from_zero[1].is_nan());
            let mut values = [f64::from(rank), 2.0];
            session.all_reduce(&mut values, Op::Mean)?;
            assert_eq!(values, [0.5, 2.0]);
            assert_eq!(session.all_gather(&[i64::from(rank), 7])?, [0, 7, 1, 7]);
            assert_eq!(session.reduce_scatter(&[1.0_f32, 10.0], Op::Sum)?, [[2.0], [20.0]][rank as usize]);
            session.broadcast_values(&mut values[..1])?;
            assert!(session.reduce_scatter(&[1.0], Op::Sum).is_err());
            assert_eq!((session.local_rank(), session.local_world_size(), session.node_rank()), (rank, 2, 0));
            assert!(session.trial().is_none() && session.run_directory().is_dir());
        }
        "steps" => return steps(session, &config),
        _ => {}
    }
    println!("hello from rank {rank}");
    session.report(&Step { step: 1, loss: f64::from(rank), rank })?;
    Ok(format!("{config:?}"))
}

/// Six steps with a checkpoint each, which rank 1 of the first attempt does not survive where it is told to.
fn steps(session: &Session, config: &Config) -> TrainResult<String> {
    let first = match session.latest_checkpoint()? {
        Some(last) => {
            let saved: u64 = last.read_json("step.json")?;
            assert_eq!(last.metrics().get::<u64>("step")?, Some(saved));
            saved + 1
        }
        None => 1,
    };
    for step in first..=6 {
        let metrics = Step { step, loss: config.rate / step as f64, rank: session.rank() };
        if step == 4 && session.attempt() == 0 && session.rank() == 1 {
            std::fs::write(config.place.join("pid1"), std::process::id().to_string())?;
            wait_for(config.place.join("go"));
        }
        if session.rank() == 0 {
            session.report_and_save(&metrics, |to| std::fs::write(to.join("step.json"), step.to_string()))?;
        } else {
            session.report(&metrics)?;
        }
    }
    Ok(format!("from {first}"))
}

/// Named by nobody.
fn unknown(session: &Session, _: u8) -> carril::Result<()> {
    session.barrier()
}

#[derive(Default)]
struct Told {
    lines: Vec<String>,
    place: PathBuf,
    fails: bool,
}

impl Callback for Told {
    fn on_start(&mut self, run: &RunInfo) -> CallbackResult {
        self.lines.push(format!("start {} {}", run.name, run.num_workers));
        Ok(())
    }

    fn on_report(&mut self, _: &RunInfo, report: &Report) -> CallbackResult {
        self.lines.push(format!("report {} of {}", report.iteration, report.ranks.len()));
        if self.fails {
            return Err(Box::new(LoadError("x".parse::<u8>().unwrap_err())));
        }
        Ok(())
    }

    fn on_checkpoint(&mut self, _: &RunInfo, checkpoint: &Checkpoint) -> CallbackResult {
        assert!(checkpoint.path()?.join("step.json").is_file());
        self.lines.push(format!("checkpoint {}", checkpoint.iteration()));
        Ok(())
    }

    fn on_restart(&mut self, _: &RunInfo, restart: &carril::Restart) -> CallbackResult {
        self.lines.push(format!("restart {} {}", restart.attempt, restart.code));
        Ok(())
    }

    fn on_end(&mut self, _: &RunInfo, result: Result<&RunResult, &Error>) -> CallbackResult {
        self.lines.push(format!("end {}", if result.is_ok() { "well" } else { "badly" }));
        std::fs::write(self.place.join("told"), self.lines.join("\n"))?;
        Ok(())
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let uninitialised = words.get(3).is_some_and(|what| what == "uninitialised");
    if !uninitialised {
        carril::init!(train);
    }
    let [_, storage, name, what, more @ ..] = &words[..] else { panic!("STORAGE NAME WHAT") };
    let has = |word: &str| more.iter().any(|given| given == word);
    let run = RunConfig {
        storage: Some(storage.clone()),
        failure: FailureConfig { max_failures: if has("patient") { 2 } else { 0 }, ..FailureConfig::default() },
        checkpoint: CheckpointConfig { keep: Some(2), score: Some(("loss".into(), Mode::Min)) },
        reduce: [("rank".to_owned(), Reduce::Sum)].into(),
        quiet: has("quiet"),
        resume: has("resume"),
        name: Some(name.clone()).filter(|name| name != "-"),
        ..RunConfig::default()
    };
    let place = PathBuf::from(storage);
    let config = Config { what: what.clone(), rate: f64::INFINITY, layers: vec![3, 4], place: place.clone() };
    let told = Told { fails: has("fails"), place, ..Told::default() };
    carril::start(&carril::Machine { cpus: Some(2.0), ..carril::Machine::default() }).expect("a head starts");
    let fitted = match what.as_str() {
        "unknown" => Trainer::new(unknown, 1).run_config(run).fit(),
        "runtime" => tokio::runtime::Runtime::new()
            .expect("a runtime")
            .block_on(async { Trainer::new(train, config).workers(2).run_config(run).fit() }),
        _ => Trainer::new(train, config).workers(2).run_config(run).callback(told).fit(),
    };
    println!("{}", serde_json::to_string(&shown(fitted)).expect("it is JSON"));
}

fn shown(fitted: carril::Result<RunResult>) -> serde_json::Value {
    match fitted {
        Ok(result) => serde_json::json!({
            "path": result.path,
            "loss": result.metrics.number("loss"),
            "rank": result.metrics.number("rank"),
            "rows": result.table().expect("there are rows").len(),
            "opened": RunResult::open(&result.path).expect("it can be opened").metrics.number("step"),
            "checkpoints": result.checkpoints.iter().map(Checkpoint::iteration).collect::<Vec<_>>(),
            "latest": result.checkpoint().map(|latest| latest.location().to_owned()),
            "restarts": result.restarts.iter().map(|restart| restart.code.clone()).collect::<Vec<_>>(),
            "returned": result.returned::<Option<String>>().expect("a text"),
        }),
        Err(error) => {
            let (mut causes, mut next) = (Vec::new(), std::error::Error::source(&error));
            while let Some(cause) = next {
                causes.push(cause.to_string());
                next = cause.source();
            }
            serde_json::json!({
                "headline": error.to_string(),
                "all": format!("{error:?}"),
                "causes": causes,
                "code": error.code(),
                "hints": error.hints(),
                "interrupted": error.is_interrupted(),
                "preempted": error.is_preempted(),
                "ranks": error.ranks().iter().map(|failure| failure.rank).collect::<Vec<_>>(),
            })
        }
    }
}
