//! What a data set is: where its rows come from, and what becomes of them.
//!
//! PLAN-1: a plan never changes: a transform makes another one.
//! PLAN-2: what is sent to a worker gives there what it gives here: files by their absolute paths, rows in memory as they are, functions
//!   by their place in `init!`.

use std::io::Cursor;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{Schema, SchemaRef};
use carril_data::order::Shuffle;
use carril_data::read::ReadSpec;
use carril_data::read::filter::{Condition, Conditions};
use carril_data::read::memory::Blocks;
use carril_data::{
    Columns, DataError, NextBatch, Pass, PassSpec, Pipeline, Selection, Source, Subset, Transform, Union, common,
};
use serde::{Deserialize, Serialize};

use super::change::{BatchFunction, Changes};
use super::training::PATIENCE;

/// `M` is rows in memory, `F` a function: here they are there themselves, on their way they are what stands for them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan<M, F> {
    pub origin: Origin<M, F>,
    pub steps: Vec<Step<F>>,
    pub shuffle: Shuffle,
    pub seed: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Origin<M, F> {
    /// What the readers open.
    Read(serde_json::Value),
    Memory(M),
    /// Some of the rows of another origin; `rows` are those of each of its units.
    Part {
        of: Box<Origin<M, F>>,
        selection: Selection,
        rows: Vec<u64>,
    },
    /// One behind the other.
    Union(Vec<Plan<M, F>>),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Step<F> {
    Columns(Columns),
    Filter(Condition),
    Function { function: F, keeps_rows: bool },
}

/// Rows in memory.
#[derive(Debug)]
pub(crate) struct Memory {
    pub schema: SchemaRef,
    pub batches: Vec<RecordBatch>,
}

/// A plan in the process that uses it.
pub(crate) type Here = Plan<Arc<Memory>, Arc<BatchFunction>>;

impl<M, F> Plan<M, F> {
    pub fn of(origin: Origin<M, F>) -> Self {
        Self { origin, steps: Vec::new(), shuffle: Shuffle::None, seed: 0 }
    }

    /// The same with what stands for rows in memory and for functions.
    pub fn try_map<N, G, E>(
        self,
        memory: &mut impl FnMut(M) -> Result<N, E>,
        function: &mut impl FnMut(F) -> Result<G, E>,
    ) -> Result<Plan<N, G>, E> {
        let Plan { origin, steps, shuffle, seed } = self;
        let origin = origin.try_map(memory, function)?;
        let steps = steps.into_iter().map(|step| {
            Ok(match step {
                Step::Columns(columns) => Step::Columns(columns),
                Step::Filter(condition) => Step::Filter(condition),
                Step::Function { function: given, keeps_rows } => {
                    Step::Function { function: function(given)?, keeps_rows }
                }
            })
        });
        Ok(Plan { origin, steps: steps.collect::<Result<_, E>>()?, shuffle, seed })
    }
}

impl<M, F> Origin<M, F> {
    fn try_map<N, G, E>(
        self,
        memory: &mut impl FnMut(M) -> Result<N, E>,
        function: &mut impl FnMut(F) -> Result<G, E>,
    ) -> Result<Origin<N, G>, E> {
        Ok(match self {
            Origin::Read(spec) => Origin::Read(spec),
            Origin::Memory(given) => Origin::Memory(memory(given)?),
            Origin::Part { of, selection, rows } => {
                Origin::Part { of: Box::new(of.try_map(memory, function)?), selection, rows }
            }
            Origin::Union(parts) => {
                let parts = parts.into_iter().map(|part| part.try_map(memory, function));
                Origin::Union(parts.collect::<Result<_, E>>()?)
            }
        })
    }
}

impl Memory {
    pub fn encode(&self, into: &mut Vec<u8>) -> Result<(), DataError> {
        let mut writer = StreamWriter::try_new(into, &self.schema)?;
        self.batches.iter().try_for_each(|batch| writer.write(batch))?;
        Ok(writer.finish()?)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DataError> {
        let reader = StreamReader::try_new(Cursor::new(bytes), None)?;
        Ok(Self { schema: reader.schema(), batches: reader.collect::<Result<_, _>>()? })
    }
}

impl Here {
    pub fn keeps_rows(&self) -> bool {
        self.steps.iter().all(|step| match step {
            Step::Columns(_) => true,
            Step::Filter(_) => false,
            Step::Function { keeps_rows, .. } => *keeps_rows,
        })
    }

    /// Opens the files.
    pub fn open(&self) -> Result<Pipeline, DataError> {
        let transform = |step: &Step<Arc<BatchFunction>>| -> Arc<dyn Transform> {
            match step {
                Step::Columns(columns) => Arc::new(columns.clone()),
                Step::Filter(condition) => Arc::new(Conditions(vec![condition.clone()])),
                Step::Function { function, keeps_rows } => {
                    Arc::new(Changes { function: function.clone(), keeps_rows: *keeps_rows })
                }
            }
        };
        Ok(Pipeline { source: self.origin.open()?, transforms: self.steps.iter().map(transform).collect() })
    }

    /// What comes out. Where functions are on the way, a row is read.
    pub fn schema(&self, pipeline: &Pipeline) -> Result<SchemaRef, DataError> {
        if self.steps.iter().any(|step| matches!(step, Step::Function { .. }))
            && let Some(batch) = next_of(&mut self.pass(pipeline, Some(1)))?
        {
            return Ok(batch.schema());
        }
        let mut empty = RecordBatch::new_empty(pipeline.source.schema());
        for transform in &pipeline.transforms {
            empty = transform.apply(empty)?.pop().unwrap_or_else(|| RecordBatch::new_empty(Arc::new(Schema::empty())));
        }
        Ok(empty.schema())
    }

    /// One pass over everything, for one consumer.
    pub fn pass(&self, pipeline: &Pipeline, batch_size: Option<usize>) -> Pass {
        let spec = PassSpec {
            shuffle: self.shuffle,
            seed: self.seed,
            batch_size,
            threads: super::training::threads(),
            budget: super::training::budget(),
            ..PassSpec::default()
        };
        Pass::begin(pipeline.clone(), spec)
    }
}

impl Origin<Arc<Memory>, Arc<BatchFunction>> {
    pub fn open(&self) -> Result<Arc<dyn Source>, DataError> {
        match self {
            Origin::Read(spec) => serde_json::from_value::<ReadSpec>(spec.clone())
                .map_err(|error| DataError::invalid(format!("what to read is not understood: {error}")))?
                .open(),
            Origin::Memory(memory) => Ok(Arc::new(Blocks::new(memory.schema.clone(), memory.batches.clone())?)),
            Origin::Part { of, selection, rows } => Ok(Arc::new(Subset::new(of.open()?, *selection, rows)?)),
            Origin::Union(parts) => union(parts),
        }
    }
}

fn union(parts: &[Here]) -> Result<Arc<dyn Source>, DataError> {
    let pipelines = parts.iter().map(Here::open).collect::<Result<Vec<_>, _>>()?;
    let schemas = parts.iter().zip(&pipelines).map(|(part, pipeline)| part.schema(pipeline));
    let schemas = schemas.collect::<Result<Vec<_>, _>>()?;
    let schema = common(schemas.iter())?;
    Ok(Arc::new(Union::new(&schema, pipelines)))
}

pub(crate) fn next_of(pass: &mut Pass) -> Result<Option<RecordBatch>, DataError> {
    loop {
        match pass.next(PATIENCE)? {
            NextBatch::Batch(batch) => return Ok(Some(batch)),
            NextBatch::Ended => return Ok(None),
            NextBatch::Pending => {}
        }
    }
}
