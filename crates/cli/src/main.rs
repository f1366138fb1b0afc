//! The `carril` command.

mod as_ray;
mod checkpoints;
mod explain;
mod find;
mod logs;
mod private_head;
mod resolve;
mod resume;
mod runs;
mod stacks;
mod status;
mod stop_run;
mod table;
mod tune;
mod verify;

use std::process::ExitCode;

use carril_types::{ErrorCode, Origin};
use clap::{Args, Parser, Subcommand};

#[derive(Parser)]
#[command(name = "carril", version, about = "Distributed training with a Rust core", propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a command in which the name `ray` stands for carril
    AsRay(as_ray::AsRay),
    /// List runs: those that are live and those in the storage
    Runs(runs::Runs),
    /// Show how live runs stand, or one run
    Status(status::Status),
    /// Print what the workers of a run printed
    Logs(logs::Logs),
    /// Tell what happened in a run, in order, and why
    Explain(explain::Explain),
    /// List the checkpoints of a run: sizes, metrics, whether they are whole
    Checkpoints(checkpoints::Checkpoints),
    /// See whether a checkpoint, or every one of a run, trial or search, is what was saved
    Verify(verify::Verify),
    /// Show where every rank of a live run is
    Stacks(stacks::Stacks),
    /// Stop a live run
    StopRun(stop_run::StopRun),
    /// Run again the command of a run or search that did not finish: it resumes
    Resume(resume::Resume),
    /// Look at experiments: their trials, the best one, tables and plots of them
    #[command(subcommand)]
    Tune(tune::Tune),
    /// The head and agent of one driver; started by the driver, not by people
    #[command(hide = true)]
    PrivateHead(private_head::PrivateHead),
}

/// What this machine gives, where that is not found out from its CPUs, memory and devices.
#[derive(Args, Clone, Debug, Default)]
struct NodeLimits {
    /// How many CPUs this machine gives, instead of those found
    #[arg(long, value_name = "N", value_parser = amount)]
    num_cpus: Option<f64>,
    /// How many GPUs this machine gives, instead of those found
    #[arg(long, value_name = "N", value_parser = amount)]
    num_gpus: Option<f64>,
    /// A resource of your own, as NAME=AMOUNT; may be given several times
    #[arg(long = "resource", value_name = "NAME=AMOUNT", value_parser = named_amount)]
    resources: Vec<(String, f64)>,
}

impl NodeLimits {
    /// As they were given.
    fn arguments(&self) -> Vec<String> {
        let counts = [("cpus", self.num_cpus), ("gpus", self.num_gpus)];
        let counts = counts.into_iter().filter_map(|(name, count)| Some(format!("--num-{name}={}", count?)));
        counts.chain(self.resources.iter().map(|(name, amount)| format!("--resource={name}={amount}"))).collect()
    }
}

fn amount(text: &str) -> Result<f64, String> {
    let amount: f64 = text.parse().map_err(|_| "it must be a number".to_owned())?;
    if amount.is_finite() && amount >= 0.0 {
        Ok(amount)
    } else {
        Err("it must be a finite number of at least 0".into())
    }
}

fn named_amount(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or("it must be NAME=AMOUNT")?;
    if name.is_empty() {
        return Err("it must be NAME=AMOUNT".into());
    }
    Ok((name.to_owned(), amount(value)?))
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::AsRay(command) => return command.run(),
        Command::PrivateHead(command) => return command.run(),
        Command::Runs(command) => command.run(),
        Command::Status(command) => command.run(),
        Command::Logs(command) => command.run(),
        Command::Explain(command) => command.run(),
        Command::Stacks(command) => command.run(),
        Command::StopRun(command) => command.run(),
        Command::Resume(command) => command.run(),
        Command::Checkpoints(command) => command.run(),
        Command::Tune(command) => command.run(),
        Command::Verify(command) => match command.run() {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(exit_code(failure.code))
        }
    }
}

/// 2 for what was asked wrongly, 3 for what the machine could not do.
fn exit_code(code: ErrorCode) -> u8 {
    match code.origin() {
        Origin::User => 2,
        Origin::Infrastructure | Origin::Preemption => 3,
        Origin::Carril => 101,
    }
}
