//! Twenty rates are tried on a valley; those that fall behind are stopped early.
//!
//! cargo run --release --example search

use carril::tune::{Asha, Searcher, Space, choice, loguniform};
use carril::{Mode, Session, TrainResult, Tuner};

#[derive(serde::Serialize, serde::Deserialize)]
struct Config {
    rate: f64,
    momentum: f64,
}

fn objective(session: &Session, config: Config) -> TrainResult {
    let (mut place, mut speed) = ([2.0, 2.0], [0.0, 0.0]);
    for _ in 0..64 {
        // A valley that is twenty times as steep in one direction as in the other.
        for (axis, steepness) in [1.0, 20.0].into_iter().enumerate() {
            speed[axis] = config.momentum * speed[axis] - config.rate * steepness * place[axis];
            place[axis] += speed[axis];
        }
        session.report(&serde_json::json!({"loss": place[0] * place[0] + 20.0 * place[1] * place[1]}))?;
    }
    Ok(())
}

fn main() -> carril::Result<()> {
    carril::init!(objective);
    let space = Space::new().add("rate", loguniform(1e-4, 1.0)).add("momentum", choice([0.0, 0.5, 0.9]));
    let result = Tuner::new(objective, space)
        .metric("loss", Mode::Min)
        .samples(20)
        .searcher(Searcher::Tpe)
        .scheduler(Asha { max_t: 64.0, grace_period: 4.0, ..Asha::default() })
        .seed(1)
        .fit()?;
    let best = result.best()?;
    let Config { rate, momentum } = best.config()?;
    println!("the best of {}: rate {rate:.4}, momentum {momentum}, {}", result.trials.len(), best.name);
    Ok(())
}
