//! The `carril` command.

mod as_ray;
mod private_head;

use std::process::ExitCode;

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
    match Arguments::parse().command {
        Command::AsRay(command) => command.run(),
        Command::PrivateHead(command) => command.run(),
    }
}
