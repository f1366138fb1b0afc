//! `make sim SEEDS=…`: a range of seeds (`0..1000`), or one, which is told in full.

use std::process::ExitCode;

use carril_sim::simulate;

fn main() -> ExitCode {
    let asked = std::env::args().nth(1).unwrap_or_else(|| "0..1000".to_owned());
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let (from, to) = match asked.split_once("..") {
        Some((from, to)) => (number(from), number(to)),
        None => (number(&asked), number(&asked).map(|seed| seed + 1)),
    };
    let (Some(from), Some(to)) = (from, to) else {
        eprintln!("error: `{asked}` is no seed\nhint: a number, or a range such as `0..1000`");
        return ExitCode::from(2);
    };
    let mut attempts = 0;
    for seed in from..to {
        match simulate(seed) {
            Ok(outcome) => {
                attempts += outcome.attempts;
                if to - from == 1 {
                    println!("{}", outcome.trace.join("\n"));
                }
            }
            Err(violation) => {
                eprintln!("{violation}\nhint: `make sim SEEDS={seed}` tells it again");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{} seeds, {attempts} attempts, nothing violated", to - from);
    ExitCode::SUCCESS
}
