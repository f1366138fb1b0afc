//! A training that is a function of its seed: whatever happens on the way, the same weights come out.
//!
//! The weights of a rank after a step follow from its own and rank 0's before it. Each step ends with a report and a
//! checkpoint with a file per rank; a training goes on from the newest one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use carril_types::{ErrorCode, Failure, Metrics, Value};
use carril_worker::{ReportOptions, Saving, Session};

use crate::elsewhere::Elsewhere;
use crate::fault::Faults;

const SEED: u64 = 0x5eed;

struct Model {
    /// How many have been made.
    step: u64,
    weights: u64,
}

impl Model {
    fn restore(session: &Session) -> Result<Self, Failure> {
        let rank = session.key().rank;
        let Some(path) = session.runtime().block_on(session.latest_checkpoint())? else {
            return Ok(Self { step: 0, weights: mixed(SEED ^ u64::from(rank.0)) });
        };
        let place = match session.assignment().filesystem_path.as_str() {
            "" => PathBuf::from(&path),
            pickle => Elsewhere::open(Path::new(pickle)).map_err(trouble)?.path(&path),
        };
        let text = fs::read_to_string(place.join(format!("rank_{rank}.txt"))).map_err(trouble)?;
        let numbers = text.split_once(' ').and_then(|(step, weights)| Some((step.parse(), weights.parse().ok()?)));
        match numbers {
            Some((Ok(step), weights)) => Ok(Self { step, weights }),
            _ => Err(Failure::new(ErrorCode::Checkpoint, format!("`{path}` holds `{text}`"))),
        }
    }

    fn learn(&mut self, rank: u32, leader: u64) {
        self.weights = mixed(self.weights ^ leader.rotate_left(17) ^ mixed(self.step ^ (u64::from(rank) << 32)));
        self.step += 1;
    }
}

pub fn train(session: &Session, faults: &Faults, steps: u64) -> Result<(), Failure> {
    let rank = session.key().rank.0;
    let mut model = Model::restore(session)?;
    println!("starts at step {}", model.step);
    while model.step < steps {
        let step = model.step;
        faults.at("code", step)?;
        let leader = faults.in_collective(step, session.broadcast(model.weights.to_le_bytes().to_vec()))?;
        let leader = leader.try_into().map_err(|_| Failure::new(ErrorCode::Internal, "weights have eight bytes"))?;
        model.learn(rank, u64::from_le_bytes(leader));
        report(session, faults, &model)?;
    }
    Ok(())
}

fn report(session: &Session, faults: &Faults, model: &Model) -> Result<(), Failure> {
    let (rank, step) = (session.key().rank, model.step - 1);
    // Below the working directory, which is the test's: nobody else would remove it when this process dies.
    let directory = std::env::current_dir().map_err(trouble)?.join(format!("saved-{}", std::process::id()));
    let file = directory.join(format!("rank_{rank}.txt"));
    let text = format!("{} {}", model.step, model.weights);
    fs::create_dir_all(&directory).and_then(|()| fs::write(&file, text)).map_err(trouble)?;
    let options = ReportOptions {
        checkpoint: Some(directory.clone()),
        give_away: false,
        name: None,
        saving: Saving::Sync,
        last: session.is_preempted(),
        validation: None,
        silent: false,
    };
    faults.in_save(step, &file, session.store_checkpoint(&options))?;
    faults.in_report(step)?;
    let metrics = Metrics(vec![
        ("step".into(), Value::Int(model.step as i64)),
        ("weights".into(), Value::Text(model.weights.to_string())),
    ]);
    session.report(metrics, &options, Duration::ZERO, std::thread::sleep)?;
    faults.at("reported", step)?;
    fs::remove_dir_all(directory).map_err(trouble)?;
    if options.last {
        session.runtime().block_on(session.wait_for_end())?;
    } else if session.waits_for_commit(&options) {
        session.runtime().block_on(session.latest_checkpoint())?;
    }
    Ok(())
}

fn trouble(error: std::io::Error) -> Failure {
    Failure::new(ErrorCode::Checkpoint, error.to_string())
}

/// Each bit of the result depends on each bit of the number.
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
