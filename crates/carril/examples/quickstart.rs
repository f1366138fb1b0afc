//! Two workers fit a line: each has half of the points, and both go down the same gradient.
//!
//! cargo run --release --example quickstart

use carril::{Op, Session, TrainResult, Trainer};

#[derive(serde::Serialize, serde::Deserialize)]
struct Config {
    rate: f64,
    steps: u32,
}

fn train(session: &Session, config: Config) -> TrainResult<[f64; 2]> {
    // The points of y = 3x + 2 that are this rank's.
    let (rank, world) = (session.rank() as usize, session.world_size() as usize);
    let points: Vec<f64> = (0..100).skip(rank).step_by(world).map(|i| f64::from(i) / 100.0).collect();
    let mut line = [0.0; 2];
    for step in 0..config.steps {
        let mut sums = [0.0; 3];
        for x in &points {
            let error = line[0] * x + line[1] - (3.0 * x + 2.0);
            sums = [sums[0] + error * x, sums[1] + error, sums[2] + error * error];
        }
        session.all_reduce(&mut sums, Op::Sum)?;
        line = [line[0] - config.rate * sums[0] / 100.0, line[1] - config.rate * sums[1] / 100.0];
        session.report(&serde_json::json!({"step": step, "loss": sums[2] / 100.0}))?;
    }
    Ok(line)
}

fn main() -> carril::Result<()> {
    carril::init!(train);
    let result = Trainer::new(train, Config { rate: 0.5, steps: 200 }).workers(2).fit()?;
    let [slope, offset]: [f64; 2] = result.returned()?;
    println!("y = {slope:.2} x + {offset:.2}, in {}", result.path);
    Ok(())
}
