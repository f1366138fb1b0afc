//! A Parquet pipeline: points are written to a file, read, cleaned and shuffled, and two workers fit a line to them. The run is then gone on
//! with by one worker, from the checkpoint and the epoch that the two have left.
//!
//! cargo run --release --features data --example parquet

use carril::data::arrow::{ArrayRef, Float64Array, RecordBatch};
use carril::data::{Columns, Dataset, Is};
use carril::{Op, RunConfig, Session, TrainResult, Trainer};

#[derive(serde::Serialize)]
struct Point {
    celsius: f64,
    sold: f64,
    is_valid: bool,
}

/// Degrees become a number near one: the gradient likes that.
fn scale(batch: RecordBatch) -> TrainResult<RecordBatch> {
    let x: Float64Array = batch.values::<f64>("celsius")?.iter().map(|celsius| Some(celsius / 40.0)).collect();
    let sold = batch.column_by_name("sold").cloned().ok_or("nothing is sold").map_err(carril::TrainError::message)?;
    Ok(RecordBatch::try_from_iter([("x", std::sync::Arc::new(x) as ArrayRef), ("y", sold)])?)
}

fn train(session: &Session, epochs: u64) -> TrainResult<[f64; 2]> {
    let mut line: [f64; 2] = match session.latest_checkpoint()? {
        Some(last) => last.read_json("line.json")?,
        None => [0.0; 2],
    };
    let shard = session.data_shard("points")?;
    while shard.epoch() < epochs {
        for batch in shard.iter_batches(16)? {
            let batch = batch?;
            let mut sums = [0.0; 3];
            for (x, y) in batch.values::<f64>("x")?.iter().zip(batch.values::<f64>("y")?) {
                let error = line[0] * x + line[1] - y;
                sums = [sums[0] + error * x, sums[1] + error, sums[2] + 1.0];
            }
            session.all_reduce(&mut sums, Op::Sum)?;
            line = [line[0] - 0.5 * sums[0] / sums[2], line[1] - 0.5 * sums[1] / sums[2]];
        }
        let metrics = serde_json::json!({"epoch": shard.epoch(), "slope": line[0], "offset": line[1]});
        session.report_and_save(&metrics, |to| std::fs::write(to.join("line.json"), serde_json::to_vec(&line)?))?;
    }
    Ok(line)
}

fn main() -> TrainResult {
    carril::init!(train, scale);
    let directory = tempfile::tempdir()?;
    // Ice cream: 30 for each 40 degrees, and 5 when it freezes.
    let points = (0..1000).map(|i| f64::from(i) / 25.0);
    let points = points.map(|celsius| Point { celsius, sold: 0.75 * celsius + 5.0, is_valid: celsius != 20.0 });
    let files = Dataset::from_rows(points)?.write_parquet(directory.path())?;

    let points = Dataset::read_parquet(files).filter("is_valid", Is::Equal, true).map_columns(scale).random_shuffle(7);
    println!("{} points, such as\n{}", points.count()?, points.take(2)?.to_table());

    let name = format!("ice-cream-{}", std::process::id());
    let trainer = |epochs| Trainer::new(train, epochs).dataset("points", points.clone());
    let first = trainer(3).workers(2).run_config(RunConfig::named(&name)).fit()?;
    let [slope, offset]: [f64; 2] = first.returned()?;
    println!("after 3 epochs: y = {slope:.2} x + {offset:.2}");

    let last = trainer(20).workers(1).run_config(RunConfig { resume: true, ..RunConfig::named(&name) }).fit()?;
    let [slope, offset]: [f64; 2] = last.returned()?;
    println!("after {} epochs: y = {slope:.2} x + {offset:.2}, in {}", last.table()?.len(), last.path);
    Ok(())
}
