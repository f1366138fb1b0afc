//! Several pipelines as one source, the rows of one behind those of the other.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{FieldRef, Schema, SchemaRef};

use crate::engine::Pipeline;
use crate::error::DataError;
use crate::join::fitted;
use crate::pieces::transformed;
use crate::source::{Flow, Source, Unit};

pub struct Union {
    schema: SchemaRef,
    parts: Vec<Pipeline>,
    units: Vec<Unit>,
    /// For each unit the part that it is of, and its number there.
    owners: Vec<(usize, usize)>,
}

impl Union {
    /// `schema` holds what comes out of every part.
    pub fn new(schema: &Schema, parts: Vec<Pipeline>) -> Union {
        // A column that has no missing value in one part may have one in another.
        let nullable = |field: &FieldRef| field.as_ref().clone().with_nullable(true);
        let schema = Arc::new(Schema::new(schema.fields().iter().map(nullable).collect::<Vec<_>>()));
        let mut units = Vec::new();
        let mut owners = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            let is_counted = part.is_counted();
            for (unit, there) in part.source.units().iter().enumerate() {
                units.push(Unit { rows: there.rows.filter(|_| is_counted), ..*there });
                owners.push((number, unit));
            }
        }
        Union { schema, parts, units, owners }
    }
}

impl Source for Union {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn read(&self, unit: usize, take: &mut dyn FnMut(RecordBatch) -> Result<Flow, DataError>) -> Result<(), DataError> {
        let (part, unit) = self.owners[unit];
        let Pipeline { source, transforms } = &self.parts[part];
        source.read(unit, &mut |block| transformed(transforms, block, &mut |made| take(fitted(&made, &self.schema)?)))
    }

    fn files(&self) -> Vec<String> {
        self.parts.iter().flat_map(|part| part.source.files()).collect()
    }

    fn warnings(&self) -> Vec<String> {
        self.parts.iter().flat_map(|part| part.source.warnings()).collect()
    }
}
