//! From the start of a driver in Rust to the first report of its two workers in its callback, beside the start of `true`.
//!
//! The program starts itself as the driver, and reads the word that it prints in the callback. It prints one line of JSON.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use carril::{Callback, CallbackResult, Report, RunConfig, RunInfo, Session, TrainResult, Trainer};

const TURNS: usize = 11;

fn train(session: &Session, _: ()) -> TrainResult {
    for step in 0..2 {
        session.report(&serde_json::json!({"step": step}))?;
    }
    Ok(())
}

struct Tell;

impl Callback for Tell {
    fn on_report(&mut self, _: &RunInfo, report: &Report) -> CallbackResult {
        if report.iteration == 1 {
            println!("reported");
            std::io::stdout().flush()?;
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    carril::init!(train);
    if std::env::args().nth(1).as_deref() == Some("driver") {
        let run = RunConfig { storage: std::env::var("BENCH_STORAGE").ok(), quiet: true, ..RunConfig::default() };
        Trainer::new(train, ()).workers(2).run_config(run).callback(Tell).fit()?;
        return Ok(());
    }
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        ours.push(first_report()?);
        let began = Instant::now();
        Command::new("true").status()?;
        plain.push(began.elapsed().as_secs_f64());
    }
    println!("BENCH {}", serde_json::json!({"first_report_s": median(ours), "true_s": median(plain)}));
    Ok(())
}

fn first_report() -> std::io::Result<f64> {
    let began = Instant::now();
    let mut driver = Command::new(std::env::current_exe()?).arg("driver").stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(driver.stdout.take().expect("it is piped")).read_line(&mut line)?;
    let took = began.elapsed().as_secs_f64();
    assert!(driver.wait()?.success() && line == "reported\n", "the driver has printed its first report");
    Ok(took)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
