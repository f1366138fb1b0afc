//! Batches as they come: of a whole data set, or of a worker's part.

use std::sync::{Arc, Weak};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use carril_data::{Cut, Epoch, Pass, Pipeline, Shard};

use super::plan::{Here, next_of};
use super::training::{told_once, warn};
use crate::error::Result;

/// What becomes of rows that not every rank has a counterpart for: every rank gets equally many batches.
///
/// ```
/// # fn train(session: &carril::Session, rate: f64) -> carril::TrainResult { Ok(()) }
/// use carril::data::{Dataset, Uneven};
///
/// let trainer = carril::Trainer::new(train, 0.1).workers(2).dataset("train", Dataset::range(101)).uneven(Uneven::Pad);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Uneven {
    /// They are left out of the epoch, and how many is logged once.
    #[default]
    Drop,
    /// Every row is handed over; a rank that has no more gets copies of a row. A column `is_padding` marks them.
    Pad,
    /// Every row is handed over; a rank that has no more begins its part again.
    Repeat,
}

/// A worker's part of a data set, from [`Session::data_shard`](crate::Session::data_shard). Each pass over it is an epoch.
///
/// It is cheap to clone: all clones are at the same place.
///
/// ```
/// # fn train(session: &carril::Session) -> carril::TrainResult {
/// let shard = session.data_shard("train")?;
/// while shard.epoch() < 10 {
///     for batch in shard.iter_batches(64)? {
///         println!("{} rows", batch?.num_rows());
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DataShard {
    pub(super) name: Arc<str>,
    pub(super) plan: Arc<Here>,
    pub(super) shard: Arc<Shard>,
    /// Shards are kept by the session: one that had it would never go.
    pub(super) worker: Weak<carril_worker::Session>,
}

impl DataShard {
    /// The next epoch, in batches of so many rows; the last may be smaller. In a run that goes on, the first pass is the rest of the epoch
    /// that the checkpoint was made in. A pass that is left before its end counts for nothing: the next one begins the epoch again.
    ///
    /// Every rank gets equally many batches, so that each may wait for the others after each of them: see [`Uneven`].
    ///
    /// ```
    /// # fn train(session: &carril::Session) -> carril::TrainResult {
    /// use carril::data::Columns;
    ///
    /// for batch in session.data_shard("train")?.iter_batches(64)? {
    ///     let batch = batch?;
    ///     let (x, y) = (batch.values::<f32>("x")?, batch.values::<i64>("y")?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn iter_batches(&self, batch_size: usize) -> Result<Batches> {
        self.begin(Cut { batch_size: Some(batch_size), ..Cut::default() })
    }

    /// As [`iter_batches`](Self::iter_batches), without a last batch that is smaller.
    ///
    /// ```
    /// # fn train(session: &carril::Session) -> carril::TrainResult {
    /// for batch in session.data_shard("train")?.iter_full_batches(64)? {
    ///     assert_eq!(batch?.num_rows(), 64);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn iter_full_batches(&self, batch_size: usize) -> Result<Batches> {
        self.begin(Cut { batch_size: Some(batch_size), drop_last: true, ..Cut::default() })
    }

    fn begin(&self, cut: Cut) -> Result<Batches> {
        let epoch = self.shard.begin(cut)?;
        if epoch.rest() > 0 {
            let rows = epoch.rest();
            let (are, s) = if rows == 1 { ("is", "") } else { ("are", "s") };
            let name = &self.name;
            told_once(
                &format!("rows of `{name}` are left out of each epoch, so that all ranks have equally many"),
                &format!("{rows} row{s} of this one {are}; `Trainer::uneven` can pad or repeat instead"),
            );
        }
        let inner = Inner::Epoch(Box::new(epoch), self.clone());
        Ok(Batches { inner, pipeline: self.shard.pipeline().clone(), is_over: false })
    }

    /// How many epochs are done with: the number, from 0, of the one that is read now or next.
    ///
    /// ```
    /// # fn train(session: &carril::Session) -> carril::TrainResult {
    /// println!("epoch {}", session.data_shard("train")?.epoch());
    /// # Ok(())
    /// # }
    /// ```
    pub fn epoch(&self) -> u64 {
        self.shard.epoch()
    }

    /// The columns and their types.
    ///
    /// ```
    /// # fn train(session: &carril::Session) -> carril::TrainResult {
    /// println!("{}", session.data_shard("train")?.schema()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn schema(&self) -> Result<SchemaRef> {
        Ok(self.plan.schema(self.shard.pipeline())?)
    }
}

/// Batches, one after the other: an iterator. An error is the last.
///
/// ```
/// let mut batches = carril::data::Dataset::range(10).iter_batches(5)?;
/// assert_eq!(batches.next().unwrap()?.num_rows(), 5);
/// # Ok::<(), carril::Error>(())
/// ```
pub struct Batches {
    inner: Inner,
    pipeline: Pipeline,
    is_over: bool,
}

enum Inner {
    Pass(Box<Pass>),
    Epoch(Box<Epoch>, DataShard),
}

impl Batches {
    pub(super) fn of_pass(pass: Pass, pipeline: Pipeline) -> Self {
        Self { inner: Inner::Pass(Box::new(pass)), pipeline, is_over: false }
    }

    /// Once for each data set: the numbers differ from epoch to epoch.
    fn tell_left_out(&self) {
        let Inner::Epoch(epoch, DataShard { name, .. }) = &self.inner else { return };
        let (handed, left_out) = epoch.left_out();
        if left_out > 0 {
            told_once(
                &format!("rows of `{name}` are left out where another rank has no more"),
                &format!(
                    "{left_out} of {} in this epoch; `Trainer::uneven` can pad or repeat instead",
                    handed + left_out
                ),
            );
        }
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = match &mut self.inner {
            Inner::Pass(pass) => next_of(pass),
            Inner::Epoch(epoch, shard) => {
                let next = epoch.next_batch();
                if let (Some(worker), Some((done, total))) = (shard.worker.upgrade(), epoch.rows_read()) {
                    worker.set_rows_read(&shard.name, epoch.epoch(), done, total);
                }
                next
            }
        };
        self.is_over = !matches!(next, Ok(Some(_)));
        if let Ok(None) = &next {
            self.pipeline.source.warnings().iter().for_each(|warning| warn(warning));
            self.tell_left_out();
        }
        next.map_err(Into::into).transpose()
    }
}
