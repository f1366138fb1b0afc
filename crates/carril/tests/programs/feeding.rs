//! A driver that feeds rows to its workers: `STORAGE NAME WHAT WORKERS STOP_AT POLICY`. Which rows came to whom is kept in every checkpoint.
//! It prints one line of JSON: the rows of each epoch, or how the run failed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carril::data::arrow::{BooleanArray, RecordBatch, filter_record_batch};
use carril::data::{Columns, Dataset, Is, Uneven};
use carril::{Checkpoint, RunConfig, RunResult, Session, TrainError, TrainResult, Trainer};
use serde::{Deserialize, Serialize};

const ROWS: i64 = 211;
const FILES: i64 = 7;
const EPOCHS: u64 = 3;

#[derive(Clone, Serialize, Deserialize)]
struct Config {
    what: String,
    /// The step of a life of the run at which rank 0 fails.
    stop_at: usize,
    place: PathBuf,
}

/// A row that was consumed: in which epoch, and which.
type Entry = (u64, i64);

fn is_kept(id: i64) -> bool {
    id % 5 != 3
}

fn some(batch: RecordBatch) -> TrainResult<RecordBatch> {
    let keep: BooleanArray = batch.values::<i64>("id")?.iter().map(|id| Some(is_kept(*id))).collect();
    Ok(filter_record_batch(&batch, &keep)?)
}

fn fails(batch: RecordBatch) -> TrainResult<RecordBatch> {
    if batch.values::<i64>("id")?.contains(&100) {
        "a hundred".parse::<u8>()?; // the line of the function of data
    }
    Ok(batch)
}

fn panics(batch: RecordBatch) -> TrainResult<RecordBatch> {
    let ids = batch.values::<i64>("id")?;
    assert!(!ids.contains(&100), "not a hundred"); // the line of its panic
    Ok(batch)
}

fn shrinks(batch: RecordBatch) -> TrainResult<RecordBatch> {
    Ok(batch.slice(0, 0))
}

/// Named by nobody.
fn unknown(batch: RecordBatch) -> TrainResult<RecordBatch> {
    Ok(batch)
}

fn train(session: &Session, config: Config) -> TrainResult<String> {
    match config.what.as_str() {
        "no-shard" => drop(session.data_shard("test")?),
        "no-column" => {
            let batch = session.data_shard("train")?.iter_batches(8)?.next().ok_or(TrainError::message("no row"))??;
            batch.values::<f32>("weight")?; // the line of the column
        }
        "whole" => {
            let all = session.data_shard("words")?;
            let count: usize =
                all.iter_batches(10)?.map(|batch| batch.map(|batch| batch.num_rows())).sum::<carril::Result<_>>()?;
            return Ok(format!("{count} of {}", all.schema()?.field(0).name()));
        }
        _ => return feed(session, &config),
    }
    Ok(String::new())
}

/// Every batch is saved with all that came before it.
fn feed(session: &Session, config: &Config) -> TrainResult<String> {
    let history = match session.latest_checkpoint()? {
        Some(last) if session.rank() == 0 => ledger(&last)?,
        _ => Vec::new(),
    };
    let (mut own, mut step) = (Vec::new(), 0);
    let shard = session.data_shard("train")?;
    while shard.epoch() < EPOCHS {
        let epoch = shard.epoch();
        for batch in shard.iter_batches(8)? {
            let batch = batch?;
            let ids = batch.values::<i64>("id")?.iter();
            let padding = batch.column_by_name("is_padding").map(|_| batch.cast::<u8>("is_padding")).transpose()?;
            let padding = padding.unwrap_or_else(|| vec![0; batch.num_rows()]);
            own.extend(ids.zip(padding).filter(|(_, padding)| *padding == 0).map(|(id, _)| (epoch, *id)));
            step += 1;
            if step == 6 && session.rank() == 1 && !config.place.join("go").exists() {
                fs::write(config.place.join("pid1"), std::process::id().to_string())?;
                wait_for(config.place.join("go"));
            }
            if step == config.stop_at && session.rank() == 0 {
                return Err(TrainError::message("it is stopped here"));
            }
            session.report_and_save(&serde_json::json!({"epoch": epoch, "rows": own.len()}), |to| {
                if session.rank() == 0 {
                    fs::write(to.join("history.json"), serde_json::to_vec(&history)?)?;
                }
                fs::write(to.join(format!("rank{}.json", session.rank())), serde_json::to_vec(&own)?)
            })?;
        }
    }
    Ok(step.to_string())
}

fn ledger(checkpoint: &Checkpoint) -> TrainResult<Vec<Entry>> {
    let mut files: Vec<PathBuf> = fs::read_dir(checkpoint.path()?)?.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.')));
    files.sort();
    let mut all: Vec<Entry> = Vec::new();
    for file in files {
        all.extend(serde_json::from_slice::<Vec<Entry>>(&fs::read(file)?)?);
    }
    Ok(all)
}

/// Waits for a file that the test makes.
fn wait_for(path: PathBuf) {
    let until = Instant::now() + Duration::from_secs(30);
    while !path.exists() {
        assert!(Instant::now() < until, "nobody made `{}`", path.display());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Files of different sizes.
fn parts() -> impl Iterator<Item = Dataset> {
    let bounds = move |part: i64| part * part * ROWS / (FILES * FILES);
    (0..FILES).map(move |part| {
        Dataset::range(ROWS as u64).filter("id", Is::GreaterOrEqual, bounds(part)).filter(
            "id",
            Is::Less,
            bounds(part + 1),
        )
    })
}

fn rows(what: &str, place: &Path) -> carril::Result<Dataset> {
    let (parquet, csv) = (place.join("parquet"), place.join("csv"));
    if !parquet.exists() {
        for part in parts() {
            part.write_parquet(&parquet)?;
            part.write_csv(&csv)?;
        }
    }
    Ok(match what {
        "missing" => Dataset::read_parquet(place.join("nowhere.parquet")),
        "damaged" => {
            fs::write(place.join("damaged.parquet"), "no Parquet").expect("the storage is there");
            Dataset::read_parquet(place.join("damaged.parquet"))
        }
        "one-file" => {
            let one = place.join("one-file");
            Dataset::range(ROWS as u64).write_csv(&one)?;
            Dataset::read_csv(one)
        }
        "csv" => Dataset::read_csv(&csv).random_shuffle(7),
        "some" => Dataset::read_parquet(&parquet).map_batches(some).random_shuffle(7),
        "memory" => Dataset::from_rows((0..ROWS).map(|id| BTreeMap::from([("id", id)])))?.random_shuffle(7),
        "union" => {
            let (low, high) = Dataset::read_parquet(&parquet).split_at(100)?;
            low.union(high)?.select_columns(["id"])
        }
        "fails" => Dataset::range(ROWS as u64).map_batches(fails),
        "panics" => Dataset::range(ROWS as u64).map_batches(panics),
        "shrinks" => Dataset::range(ROWS as u64).map_columns(shrinks),
        "unknown" => Dataset::range(ROWS as u64).map_batches(unknown),
        "other-seed" => Dataset::read_parquet(&parquet).random_shuffle(8),
        _ => Dataset::read_parquet(&parquet).random_shuffle(7),
    })
}

fn main() {
    carril::init!(train, some, fails, panics, shrinks);
    let words: Vec<String> = std::env::args().collect();
    let [_, storage, name, what, workers, stop_at, policy] = &words[..] else { panic!("{words:?}") };
    let place = PathBuf::from(storage);
    let config = Config { what: what.clone(), stop_at: stop_at.parse().expect("a step"), place: place.clone() };
    let uneven = match policy.as_str() {
        "pad" => Uneven::Pad,
        "repeat" => Uneven::Repeat,
        _ => Uneven::Drop,
    };
    carril::start(&carril::Machine { cpus: Some(4.0), ..carril::Machine::default() }).expect("a head starts");
    let fitted = rows(what, &place).and_then(|rows| {
        Trainer::new(train, config)
            .workers(workers.parse().expect("a number"))
            .run_config(RunConfig { storage: Some(storage.clone()), resume: true, ..RunConfig::named(name) })
            .whole_dataset("words", Dataset::range(25).rename_columns([("id", "word")]))
            .dataset("train", rows)
            .uneven(uneven)
            .fit()
    });
    println!("{}", shown(fitted).expect("the run can be read"));
}

fn shown(fitted: carril::Result<RunResult>) -> TrainResult<serde_json::Value> {
    Ok(match fitted {
        Ok(result) => {
            let all = result.checkpoint().map(ledger).transpose()?.unwrap_or_default();
            let epoch = |epoch| all.iter().filter(|entry| entry.0 == epoch).map(|entry| entry.1).collect::<Vec<i64>>();
            serde_json::json!({
                "epochs": (0..EPOCHS).map(epoch).collect::<Vec<_>>(),
                "returned": result.returned::<String>()?,
                "restarts": result.restarts.iter().map(|restart| restart.code.clone()).collect::<Vec<_>>(),
                "position": result.checkpoint().map(|last| fs::read_to_string(last.path()?.join(".manifest.json")).map_err(TrainError::from)).transpose()?,
            })
        }
        Err(error) => serde_json::json!({
            "headline": error.to_string(),
            "hints": error.hints(),
            "all": format!("{error:?}"),
        }),
    })
}
