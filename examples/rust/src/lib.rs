//! What the two classifiers share: the images, the order in which they are learned, when to stop, and the arguments.
//! Nothing here knows Candle or Burn.

use std::str::FromStr;

use carril::{CheckpointConfig, Mode, Reduce, RunConfig, RunResult, Session, TrainResult};
use serde::{Deserialize, Serialize};

/// An image has as many rows and columns.
pub const SIDE: usize = 8;
pub const DIGITS: usize = 10;

/// Images of a step, on all ranks together: 1, 2, 3, 4 and 6 ranks have equal parts of it, so that the mean of their gradients is that
/// of the whole.
const BATCH: usize = 24;

/// Pixels from 0 to 1, image after image, and which digit each is.
#[derive(Default)]
pub struct Images {
    pub pixels: Vec<f32>,
    pub labels: Vec<i64>,
}

/// Three fifths of the images to learn from, one to decide by when to stop, and one to be judged by.
#[derive(Default)]
pub struct Digits {
    pub learned: Images,
    pub validation: Images,
    pub test: Images,
}

impl Digits {
    /// They are a part of the program: no worker has to find a file.
    pub fn load() -> TrainResult<Self> {
        let mut digits = Self::default();
        for (row, line) in include_str!("../data/digits.csv").lines().enumerate() {
            let mut numbers = line.split(',').map(u8::from_str).collect::<Result<Vec<_>, _>>()?;
            let label = numbers.split_off(SIDE * SIDE)[0];
            let images = match row % 5 {
                0 => &mut digits.test,
                1 => &mut digits.validation,
                _ => &mut digits.learned,
            };
            images.pixels.extend(numbers.into_iter().map(|shade| f32::from(shade) / 16.0));
            images.labels.push(label.into());
        }
        Ok(digits)
    }
}

impl Images {
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// An epoch: for each of its steps, the images of this rank. The order is another one in every epoch, and the same on every rank
    /// and in every run.
    pub fn steps(&self, session: &Session, epoch: u64) -> impl Iterator<Item = Self> {
        let (rank, world) = (session.rank() as usize, session.world_size() as usize);
        let mut order: Vec<usize> = (0..self.len()).collect();
        fastrand::Rng::with_seed(epoch).shuffle(&mut order);
        let batches = 0..self.len() / BATCH;
        batches.map(move |batch| self.pick(order[BATCH * batch..][..BATCH].iter().skip(rank).step_by(world)))
    }

    fn pick<'a>(&self, rows: impl Iterator<Item = &'a usize>) -> Self {
        let mut picked = Self::default();
        for &row in rows {
            picked.pixels.extend(&self.pixels[SIDE * SIDE * row..][..SIDE * SIDE]);
            picked.labels.push(self.labels[row]);
        }
        picked
    }
}

/// What the training functions are given.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    pub rate: f64,
    /// At most so many,
    pub epochs: u64,
    /// and no more after so many without a better one.
    pub patience: u64,
}

/// What an epoch is reported with: beside the weights, all that a run needs to go on after it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Epochs that are done.
    pub epoch: u64,
    /// Of the images of this rank; the run has the mean of all ranks.
    pub loss: f64,
    /// The part of the images that is read rightly, of those to decide by and of those to be judged by.
    pub validation: f64,
    pub accuracy: f64,
    pub best_epoch: u64,
    pub best_validation: f64,
}

impl Progress {
    pub fn add_epoch(&mut self, loss: f64, validation: f64, accuracy: f64) {
        self.epoch += 1;
        (self.loss, self.validation, self.accuracy) = (loss, validation, accuracy);
        if validation > self.best_validation {
            (self.best_epoch, self.best_validation) = (self.epoch, validation);
        }
    }

    /// All ranks have the same weights, and so the same answer: they stop together, without a word.
    pub fn is_done(&self, config: &Config) -> bool {
        self.epoch >= config.epochs || self.epoch - self.best_epoch >= config.patience
    }
}

/// `--workers N --epochs N --patience N --name NAME --storage DIRECTORY`, all of which may be left out.
pub struct Arguments {
    pub workers: u32,
    pub config: Config,
    pub run: RunConfig,
}

impl Arguments {
    /// Those of the command line; what is wrong with them ends the program.
    pub fn of_the_program(rate: f64) -> Self {
        Self::parse(rate, std::env::args().skip(1)).unwrap_or_else(|wrong| {
            eprintln!("error: {wrong}");
            std::process::exit(2);
        })
    }

    fn parse(rate: f64, mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let config = Config { rate, epochs: 40, patience: 6 };
        let run = RunConfig {
            // A run that has finished goes on where more epochs are asked for.
            resume: true,
            checkpoint: CheckpointConfig { keep: Some(2), score: Some(("validation".into(), Mode::Max)) },
            reduce: [("loss".into(), Reduce::Mean)].into(),
            ..RunConfig::default()
        };
        let mut arguments = Self { workers: 2, config, run };
        while let Some(word) = words.next() {
            let value = words.next().ok_or(format!("`{word}` needs a value"))?;
            let unfit = |error| format!("`{word} {value}`: {error}");
            match word.as_str() {
                "--workers" => arguments.workers = value.parse().map_err(unfit)?,
                "--epochs" => arguments.config.epochs = value.parse().map_err(unfit)?,
                "--patience" => arguments.config.patience = value.parse().map_err(unfit)?,
                "--name" => arguments.run.name = Some(value),
                "--storage" => arguments.run.storage = Some(value),
                _ => return Err(format!("there is no argument `{word}`")),
            }
        }
        Ok(arguments)
    }
}

/// The last line of a program: how well the best network reads, and where it is.
pub fn summary(result: &RunResult, workers: u32) -> carril::Result<String> {
    let last: Progress = result.metrics.parse()?;
    let best = result.best_checkpoint().map(|best| (best.metrics().number("accuracy").unwrap_or(0.0), best.location()));
    let (accuracy, location) = best.unwrap_or((last.accuracy, "no checkpoint"));
    let (percent, epochs, s) = (100.0 * accuracy, last.epoch, if workers == 1 { "" } else { "s" });
    Ok(format!("accuracy {percent:.1}% after {epochs} epochs with {workers} worker{s}, in {location}"))
}
