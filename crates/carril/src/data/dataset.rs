//! A data set: how it is made, changed, cut and looked at.

use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use carril_data::order::Shuffle;
use carril_data::write::{Format as WriteFormat, WriteSpec, Writer};
use carril_data::{Columns as Which, Selection, count};
use serde::Serialize;
use serde_json::{Value, json};

use super::change::{BatchFunction, Change};
use super::compare::Is;
use super::error::invalid;
use super::files::{Files, Format, Paths};
use super::plan::{Here, Memory, Origin, Plan, Step};
use super::rows::batch_of;
use super::shard::Batches;
use super::training::threads;
use super::{Columns, files};
use crate::error::{BoxError, Result};

/// Rows that are read when they are asked for.
///
/// It is cheap to clone. What a method changes is another data set.
///
/// ```
/// use carril::data::{Columns, Dataset, Is};
///
/// let small = Dataset::range(1000).filter("id", Is::Less, 10).random_shuffle(7);
/// let mut ids = small.take(100)?.values::<i64>("id")?.to_vec();
/// ids.sort_unstable();
/// assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
/// # Ok::<(), carril::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Dataset {
    pub(crate) plan: Here,
}

macro_rules! readers {
    ($($(#[$doc:meta])* $read:ident $begin:ident $path:literal;)*) => {
        impl Dataset { $(
            $(#[$doc])*
            #[doc = concat!("[`Files::", stringify!($begin), "`] has the options.")]
            ///
            /// ```
            #[doc = concat!("let dataset = carril::data::Dataset::", stringify!($read), "(\"", $path, "\");")]
            /// ```
            pub fn $read(paths: impl Paths) -> Self {
                Self::read(Files::$begin(paths))
            }
        )* }
    };
}

readers! {
    /// Parquet files.
    read_parquet parquet "data/*.parquet";
    /// Comma-separated values.
    read_csv csv "data.csv.gz";
    /// JSON, a value in each line or arrays.
    read_json json "data.jsonl";
    /// The lines of texts, in a column `text`.
    read_text text "book.txt";
    /// Whole files, in a column `bytes`.
    read_binary binary "blobs/";
    /// Images, in a column `image`.
    read_images images "photos/";
    /// Arrays of numpy, in a column `data`.
    read_numpy numpy "weights.npy";
    /// Arrow's own formats.
    read_ipc ipc "data.arrow";
    /// TensorFlow's records of examples.
    read_tfrecord tfrecord "data.tfrecord";
    /// Archives of samples.
    read_webdataset webdataset "shard-*.tar";
}

impl Dataset {
    /// Files, read as they say.
    ///
    /// ```
    /// use carril::data::{Dataset, Files};
    ///
    /// let dataset = Dataset::read(Files::csv("data.csv").delimiter(';'));
    /// ```
    pub fn read<F: Format>(files: Files<F>) -> Self {
        Self::of(Origin::Read(files.spec()))
    }

    /// The numbers from 0 on, in a column `id`.
    ///
    /// ```
    /// assert_eq!(carril::data::Dataset::range(1_000_000).count()?, 1_000_000);
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn range(rows: u64) -> Self {
        Self::of(Origin::Read(json!({"format": "range", "n": rows})))
    }

    /// Batches that are in memory. All have the same columns. Workers get them as they are.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use carril::data::Dataset;
    /// use carril::data::arrow::{ArrayRef, Float32Array, RecordBatch};
    ///
    /// let x: ArrayRef = Arc::new(Float32Array::from(vec![1.0, 2.0]));
    /// let dataset = Dataset::from_batches([RecordBatch::try_from_iter([("x", x)])?])?;
    /// assert_eq!(dataset.count()?, 2);
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn from_batches(batches: impl IntoIterator<Item = RecordBatch>) -> Result<Self> {
        let batches: Vec<RecordBatch> = batches.into_iter().collect();
        let schema = batches.first().map_or_else(|| Arc::new(Schema::empty()), RecordBatch::schema);
        let made = Self::of(Origin::Memory(Arc::new(Memory { schema, batches })));
        made.plan.origin.open()?;
        Ok(made)
    }

    /// Rows that are structs of your own, or maps. Whole numbers become 64 bits wide, others `f64`.
    ///
    /// ```
    /// use carril::data::{Columns, Dataset};
    ///
    /// #[derive(serde::Serialize)]
    /// struct Point {
    ///     x: f64,
    ///     label: String,
    /// }
    ///
    /// let points = (0..4).map(|i| Point { x: f64::from(i) / 4.0, label: format!("p{i}") });
    /// let batch = Dataset::from_rows(points)?.take(2)?;
    /// assert_eq!(batch.values::<f64>("x")?, [0.0, 0.25]);
    /// assert_eq!(batch.texts("label")?, ["p0", "p1"]);
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn from_rows<R: Serialize>(rows: impl IntoIterator<Item = R>) -> Result<Self> {
        let rows: Vec<R> = rows.into_iter().collect();
        Self::from_batches([batch_of(&rows)?])
    }

    fn of(origin: Origin<Arc<Memory>, Arc<BatchFunction>>) -> Self {
        Self { plan: Plan::of(origin) }
    }

    fn then(mut self, step: Step<Arc<BatchFunction>>) -> Self {
        self.plan.steps.push(step);
        self
    }

    /// An option of a reader, where nothing has become of its rows yet and it has this option for rows as they are.
    fn reader(&mut self, formats: &[&str]) -> Option<&mut serde_json::Map<String, Value>> {
        let Origin::Read(spec) = &mut self.plan.origin else { return None };
        let reads = self.plan.steps.is_empty() && formats.contains(&spec["format"].as_str()?);
        spec.get_mut("options")?.as_object_mut().filter(|_| reads)
    }

    /// What a function makes of batches: other columns, fewer rows or more. It runs in the threads that read, several at once, and is given
    /// as many rows as were read in one go.
    ///
    /// For training it is named in [`init!`](crate::init!), like the training function: workers are other processes.
    ///
    /// ```
    /// use carril::data::arrow::{BooleanArray, RecordBatch, filter_record_batch};
    /// use carril::data::{Columns, Dataset};
    ///
    /// fn even(batch: RecordBatch) -> carril::Result<RecordBatch> {
    ///     let keep: BooleanArray = batch.values::<i64>("id")?.iter().map(|id| Some(id % 2 == 0)).collect();
    ///     Ok(filter_record_batch(&batch, &keep)?)
    /// }
    ///
    /// assert_eq!(Dataset::range(100).map_batches(even).count()?, 50);
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn map_batches<E: Into<BoxError>>(self, function: impl Change<E>) -> Self {
        self.then(Step::Function { function: BatchFunction::new(function), keeps_rows: false })
    }

    /// As [`map_batches`](Self::map_batches), with a function that keeps every row in its place and only changes columns. Rows that were
    /// counted stay counted: ranks have equal parts to the row. A function that makes more or fewer rows is an error.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use carril::data::arrow::{ArrayRef, Float32Array, RecordBatch};
    /// use carril::data::{Columns, Dataset};
    ///
    /// fn halves(batch: RecordBatch) -> carril::Result<RecordBatch> {
    ///     let half: Float32Array = batch.values::<i64>("id")?.iter().map(|id| Some(*id as f32 / 2.0)).collect();
    ///     Ok(RecordBatch::try_from_iter([("half", Arc::new(half) as ArrayRef)])?)
    /// }
    ///
    /// let batch = Dataset::range(3).map_columns(halves).take(3)?;
    /// assert_eq!(batch.values::<f32>("half")?, [0.0, 0.5, 1.0]);
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn map_columns<E: Into<BoxError>>(self, function: impl Change<E>) -> Self {
        self.then(Step::Function { function: BatchFunction::new(function), keeps_rows: true })
    }

    /// The rows whose value in a column is so. [`Files::filter`] is for Parquet of which little is wanted.
    ///
    /// ```
    /// use carril::data::{Dataset, Is};
    ///
    /// assert_eq!(Dataset::range(100).filter("id", Is::GreaterOrEqual, 90).count()?, 10);
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn filter(self, column: impl Into<String>, is: Is, value: impl Into<Value>) -> Self {
        self.then(Step::Filter(is.condition(column, value)))
    }

    /// Only these columns, in this order. Right behind a reader, only they are read.
    ///
    /// ```
    /// let rows = carril::data::Dataset::read_parquet("data.parquet").select_columns(["x", "y"]);
    /// ```
    pub fn select_columns<T: Into<String>>(mut self, columns: impl IntoIterator<Item = T>) -> Self {
        let columns: Vec<String> = columns.into_iter().map(Into::into).collect();
        if let Some(options) = self.reader(&["parquet"])
            && !options.contains_key("columns")
        {
            options.insert("columns".to_owned(), json!(columns));
            return self;
        }
        self.then(Step::Columns(Which::Select(columns)))
    }

    /// All columns but these.
    ///
    /// ```
    /// let rows = carril::data::Dataset::read_csv("data.csv").drop_columns(["comment"]);
    /// ```
    pub fn drop_columns<T: Into<String>>(self, columns: impl IntoIterator<Item = T>) -> Self {
        self.then(Step::Columns(Which::Drop(columns.into_iter().map(Into::into).collect())))
    }

    /// Columns under other names: each is the name that is there, and the new one.
    ///
    /// ```
    /// let rows = carril::data::Dataset::range(3).rename_columns([("id", "number")]);
    /// assert_eq!(rows.schema()?.field(0).name(), "number");
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn rename_columns<T: Into<String>, U: Into<String>>(self, names: impl IntoIterator<Item = (T, U)>) -> Self {
        let names = names.into_iter().map(|(there, here)| (there.into(), here.into()));
        self.then(Step::Columns(Which::Rename(names.collect())))
    }

    /// The rows mixed: all of them where they fit into 64 MB, otherwise window by window, of parts from anywhere. The same seed gives the
    /// same order; in training each epoch has another.
    ///
    /// ```
    /// use carril::data::{Columns, Dataset};
    ///
    /// let first = |seed| Dataset::range(1000).random_shuffle(seed).take(3)?.values::<i64>("id").map(<[i64]>::to_vec);
    /// assert_eq!(first(7)?, first(7)?);
    /// assert_ne!(first(7)?, first(8)?);
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn random_shuffle(mut self, seed: u64) -> Self {
        (self.plan.shuffle, self.plan.seed) = (Shuffle::Rows, seed);
        self
    }

    /// What is read as one piece (a file, a row group) changes places; its rows stay together. That costs nothing.
    ///
    /// ```
    /// let rows = carril::data::Dataset::read_csv("logs/*.csv").shuffle_files(7);
    /// ```
    pub fn shuffle_files(mut self, seed: u64) -> Self {
        (self.plan.shuffle, self.plan.seed) = (Shuffle::Units, seed);
        self
    }

    /// The rows of another data set behind those of this one, in columns that hold the values of both; where one lacks a column, its rows
    /// have nulls. Shuffle what comes out, not what goes in.
    ///
    /// ```
    /// use carril::data::{Columns, Dataset};
    /// use serde_json::json;
    ///
    /// let both = Dataset::range(10).union(Dataset::range(5))?.random_shuffle(7);
    /// assert_eq!(both.count()?, 15);
    /// let other = Dataset::from_rows([json!({"id": 0.5, "name": "half"})])?;
    /// let batch = Dataset::range(1).union(other)?.take(2)?;
    /// assert_eq!((batch.values::<f64>("id")?, batch.column(1).null_count()), (&[0.0, 0.5][..], 1));
    /// assert!(both.union(Dataset::range(5)).is_err());
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn union(self, other: Dataset) -> Result<Self> {
        if self.plan.shuffle != Shuffle::None || other.plan.shuffle != Shuffle::None {
            return Err(invalid("a part of a union is shuffled: its order would be lost")
                .hint("shuffle what comes out of `union`, not what goes into it"));
        }
        Ok(Self::of(Origin::Union(vec![self.plan, other.plan])))
    }

    /// The first rows. Where they are counted nothing is read for it; otherwise, and after a shuffle, these rows are read into memory.
    ///
    /// ```
    /// assert_eq!(carril::data::Dataset::range(100).limit(7)?.count()?, 7);
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn limit(&self, rows: u64) -> Result<Self> {
        let pipeline = self.plan.open()?;
        if pipeline.is_counted() && self.plan.shuffle == Shuffle::None {
            return self.part(&count(&*pipeline.source, 1)?, Selection::Range { begin: 0, end: rows });
        }
        self.held(rows)
    }

    /// The first rows, and all the others. Rows that nobody has counted are counted by reading them once.
    ///
    /// ```
    /// let (first, rest) = carril::data::Dataset::range(100).split_at(30)?;
    /// assert_eq!((first.count()?, rest.count()?), (30, 70));
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn split_at(&self, rows: u64) -> Result<(Self, Self)> {
        let (whole, counts) = self.counted()?;
        let part = |begin, end| whole.part(&counts, Selection::Range { begin, end });
        Ok((part(0, rows)?, part(rows, u64::MAX)?))
    }

    /// Two data sets, the second with this part of the rows, between 0 and 1. With a seed they are drawn, and both are shuffled; without
    /// one they are the last.
    ///
    /// ```
    /// let (train, test) = carril::data::Dataset::range(100).train_test_split(0.2, Some(7))?;
    /// assert_eq!((train.count()?, test.count()?), (80, 20));
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn train_test_split(&self, test_size: f64, seed: Option<u64>) -> Result<(Self, Self)> {
        if !(0.0..=1.0).contains(&test_size) {
            return Err(invalid(format!("{test_size} is no part of a whole")).hint("it lies between 0 and 1"));
        }
        let (whole, counts) = self.counted()?;
        let all: u64 = counts.iter().sum();
        let test = (all as f64 * test_size).round() as u64;
        let Some(seed) = seed else {
            let part = |begin, end| whole.part(&counts, Selection::Range { begin, end });
            return Ok((part(0, all - test)?, part(all - test, all)?));
        };
        let part = |others| -> Result<Self> {
            let drawn = whole.part(&counts, Selection::Chance { rows: test, seed, others })?;
            Ok(drawn.random_shuffle(seed))
        };
        Ok((part(true)?, part(false)?))
    }

    /// What can be cut where it is read, with the rows of each of its units.
    fn counted(&self) -> Result<(Self, Vec<u64>)> {
        let cuttable = self.plan.keeps_rows() && self.plan.shuffle == Shuffle::None;
        let whole = if cuttable { self.clone() } else { self.materialize()? };
        let counts = count(&*whole.plan.origin.open()?, threads())?;
        Ok((whole, counts))
    }

    fn part(&self, rows: &[u64], selection: Selection) -> Result<Self> {
        let mut made = self.clone();
        made.plan.origin = Origin::Part { of: Box::new(made.plan.origin), selection, rows: rows.to_vec() };
        Ok(made)
    }

    /// Everything is read, once, and held in memory.
    ///
    /// ```
    /// let held = carril::data::Dataset::range(100).materialize()?;
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn materialize(&self) -> Result<Self> {
        self.held(u64::MAX)
    }

    fn held(&self, mut rows: u64) -> Result<Self> {
        let (schema, mut batches) = (self.schema()?, Vec::new());
        for batch in self.iter_blocks(None)? {
            let batch = batch?;
            let wanted = batch.slice(0, (batch.num_rows() as u64).min(rows) as usize);
            rows -= wanted.num_rows() as u64;
            batches.push(wanted);
            if rows == 0 {
                break;
            }
        }
        let schema = batches.first().map_or(schema, RecordBatch::schema);
        Ok(Self::of(Origin::Memory(Arc::new(Memory { schema, batches }))))
    }

    /// Reads everything, in batches of so many rows; the last may be smaller.
    ///
    /// ```
    /// use carril::data::Dataset;
    ///
    /// let sizes = Dataset::range(10).iter_batches(4)?.map(|batch| Ok(batch?.num_rows()));
    /// assert_eq!(sizes.collect::<carril::Result<Vec<_>>>()?, [4, 4, 2]);
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn iter_batches(&self, batch_size: usize) -> Result<Batches> {
        self.iter_blocks(Some(batch_size))
    }

    fn iter_blocks(&self, batch_size: Option<usize>) -> Result<Batches> {
        let pipeline = self.plan.open()?;
        Ok(Batches::of_pass(self.plan.pass(&pipeline, batch_size), pipeline))
    }

    /// How many rows there are. They are read only where no file says so.
    ///
    /// ```
    /// assert_eq!(carril::data::Dataset::range(42).count()?, 42);
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn count(&self) -> Result<u64> {
        let pipeline = self.plan.open()?;
        if pipeline.is_counted() {
            return Ok(pipeline.source.units().iter().filter_map(|unit| unit.rows).sum());
        }
        self.iter_blocks(None)?.map(|batch| Ok(batch?.num_rows() as u64)).sum()
    }

    /// The columns and their types.
    ///
    /// ```
    /// let schema = carril::data::Dataset::range(42).schema()?;
    /// assert_eq!(schema.field(0).name(), "id");
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn schema(&self) -> Result<SchemaRef> {
        Ok(self.plan.schema(&self.plan.open()?)?)
    }

    /// The first rows, or all where there are fewer, as one batch.
    ///
    /// ```
    /// use carril::data::{Columns, Dataset};
    ///
    /// assert_eq!(Dataset::range(100).take(2)?.values::<i64>("id")?, [0, 1]);
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn take(&self, rows: usize) -> Result<RecordBatch> {
        let first = match rows {
            0 => None,
            rows => self.iter_batches(rows)?.next().transpose()?,
        };
        match first {
            Some(batch) => Ok(batch),
            None => Ok(RecordBatch::new_empty(self.schema()?)),
        }
    }

    /// Prints the first rows.
    ///
    /// ```
    /// carril::data::Dataset::range(100).show(3)?;
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn show(&self, rows: usize) -> Result<()> {
        println!("{}", self.take(rows)?.to_table());
        Ok(())
    }

    /// Writes everything into Parquet files below a directory, or a URI, and says which. Files that are there stay. One that is written is
    /// whole or not there.
    ///
    /// ```
    /// use carril::data::Dataset;
    ///
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path().to_str().unwrap();
    /// let files = Dataset::range(100).write_parquet(directory)?;
    /// assert_eq!(Dataset::read_parquet(files).count()?, 100);
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn write_parquet(&self, directory: impl AsRef<std::path::Path>) -> Result<Vec<String>> {
        self.write(directory.as_ref(), WriteFormat::Parquet(Default::default()))
    }

    /// As [`write_parquet`](Self::write_parquet), as comma-separated values.
    ///
    /// ```no_run
    /// carril::data::Dataset::range(100).write_csv("numbers")?;
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn write_csv(&self, directory: impl AsRef<std::path::Path>) -> Result<Vec<String>> {
        self.write(directory.as_ref(), WriteFormat::Csv(Default::default()))
    }

    /// As [`write_parquet`](Self::write_parquet), as a JSON object in each line.
    ///
    /// ```no_run
    /// carril::data::Dataset::range(100).write_json("numbers")?;
    /// # Ok::<(), carril::Error>(())
    /// ```
    pub fn write_json(&self, directory: impl AsRef<std::path::Path>) -> Result<Vec<String>> {
        self.write(directory.as_ref(), WriteFormat::Json(Default::default()))
    }

    fn write(&self, directory: &std::path::Path, format: WriteFormat) -> Result<Vec<String>> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| invalid(format!("there are no random bytes: {error}")))?;
        let spec = WriteSpec {
            path: files::absolute(directory),
            format,
            id: format!("{:016x}", u64::from_le_bytes(random)),
            mode: Default::default(),
            partition_columns: Vec::new(),
            min_rows_per_file: None,
            max_rows_per_file: None,
            makes_directory: true,
            filesystem: None,
        };
        let empty = RecordBatch::new_empty(self.schema()?);
        let Some(mut writer) = Writer::open(spec)? else { return Ok(Vec::new()) };
        for batch in self.iter_blocks(None)? {
            writer.write(&batch?, None)?;
        }
        Ok(writer.finish(Some(&empty))?.files)
    }
}

/// Where the rows come from, and what becomes of them.
impl fmt::Display for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        origin(&self.plan.origin, f)?;
        for step in &self.plan.steps {
            match step {
                Step::Columns(Which::Select(names)) => write!(f, " -> select_columns({})", names.join(", "))?,
                Step::Columns(Which::Drop(names)) => write!(f, " -> drop_columns({})", names.join(", "))?,
                Step::Columns(Which::Rename(_)) => f.write_str(" -> rename_columns")?,
                Step::Filter(condition) => write!(f, " -> filter({})", condition.column())?,
                Step::Function { function, .. } => write!(f, " -> {}", function.short())?,
            }
        }
        match self.plan.shuffle {
            Shuffle::None => Ok(()),
            Shuffle::Units => f.write_str(" -> shuffle_files"),
            Shuffle::Rows => f.write_str(" -> random_shuffle"),
        }
    }
}

fn origin(origin: &Origin<Arc<Memory>, Arc<BatchFunction>>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match origin {
        Origin::Read(spec) => {
            let paths: Vec<&str> = spec["paths"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            write!(f, "{}({})", spec["format"].as_str().unwrap_or_default(), paths.join(", "))
        }
        Origin::Memory(memory) => {
            write!(f, "memory({} rows)", memory.batches.iter().map(RecordBatch::num_rows).sum::<usize>())
        }
        Origin::Part { of, .. } => {
            f.write_str("part of ")?;
            self::origin(of, f)
        }
        Origin::Union(parts) => write!(f, "union of {}", parts.len()),
    }
}
