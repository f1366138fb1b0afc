//! Arrow's own format: a file, of which a unit is a record batch, or a stream, which is one unit.

mod lengths;

use std::sync::Arc;

use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::{FileDecoder, StreamReader, read_footer_length};
use arrow_ipc::{Block, MetadataVersion, root_as_footer};
use arrow_schema::{Schema, SchemaRef};
use bytes::{Buf, Bytes};
use serde::Deserialize;

use crate::error::DataError;
use crate::files::{FileOptions, FileRef, in_parallel};
use crate::read::BLOCK_ROWS;
use crate::read::file_source::{Damages, FileSource, Take, UnitReader, guarded, told};
use crate::read::layout::Layout;
use crate::read::schema::{Lacking, unify};
use crate::source::{Flow, Unit};

const MAGIC: &[u8] = b"ARROW1";
/// What is read of a stream at first, to find its schema.
const START: u64 = 1 << 20;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IpcOptions {
    pub columns: Option<Vec<String>>,
}

enum Opened {
    File { schema: SchemaRef, version: MetadataVersion, dictionaries: Vec<Block>, batches: Vec<Block> },
    Stream { schema: SchemaRef },
}

impl Opened {
    fn schema(&self) -> &SchemaRef {
        match self {
            Opened::File { schema, .. } | Opened::Stream { schema } => schema,
        }
    }
}

struct IpcReader {
    files: Arc<[FileRef]>,
    opened: Vec<Option<Opened>>,
    /// Of each unit: its file, and its record batch where the file is no stream.
    places: Vec<(usize, Option<usize>)>,
    layout: Layout,
}

pub(crate) fn open(files: Vec<FileRef>, common: &FileOptions, options: IpcOptions) -> Result<FileSource, DataError> {
    let files: Arc<[FileRef]> = files.into();
    let damages = Arc::new(Damages::new(common.max_errors));
    let opened = in_parallel(&files, |file| damages.tolerate(look(file)))?;
    let schemas = files.iter().zip(&opened);
    let schemas = schemas.filter_map(|(file, opened)| Some((file.name.as_str(), opened.as_ref()?.schema().as_ref())));
    let own = unify(schemas, Lacking::IsAnError)?;
    let mut layout = Layout::new(&own, &files, common.include_paths);
    if let Some(mut columns) = options.columns {
        if common.include_paths && !columns.iter().any(|column| column == "path") {
            columns.push("path".to_owned());
        }
        layout = layout.select(&columns)?;
    }
    let (mut units, mut places) = (Vec::new(), Vec::new());
    for (index, opened) in opened.iter().enumerate() {
        match opened {
            Some(Opened::File { batches, .. }) => {
                for (number, block) in batches.iter().enumerate() {
                    units.push(Unit { bytes: block.bodyLength().max(0) as u64, ..Unit::default() });
                    places.push((index, Some(number)));
                }
            }
            Some(Opened::Stream { .. }) => {
                units.push(Unit { bytes: files[index].size, ..Unit::default() });
                places.push((index, None));
            }
            None => {}
        }
    }
    let reader = IpcReader { files: files.clone(), opened, places, layout };
    Ok(FileSource { schema: reader.layout.schema(), units, files, damages, reader: Box::new(reader) })
}

fn look(file: &FileRef) -> Result<Opened, DataError> {
    let start = file.read_start(8)?;
    if start.starts_with(MAGIC) {
        return look_at_file(file);
    }
    let schema = |bytes: Bytes| guarded(|| StreamReader::try_new(bytes.reader(), None).map(|reader| reader.schema()));
    let found = schema(file.read_start(START)?);
    let found = if found.is_err() && file.size > START { schema(file.read()?) } else { found };
    match found {
        Ok(schema) => Ok(Opened::Stream { schema }),
        Err(error) => Err(DataError::damaged(&file.name, Some("its schema".to_owned()), told(error))),
    }
}

fn look_at_file(file: &FileRef) -> Result<Opened, DataError> {
    let damaged =
        |error: &dyn std::fmt::Display| DataError::damaged(&file.name, Some("its footer".to_owned()), told(error));
    if file.size < 18 {
        return Err(damaged(&"it is too short"));
    }
    let end = file.read_range(file.size - 10..file.size)?;
    let length =
        read_footer_length(end[..].try_into().expect("ten bytes were read")).map_err(|error| damaged(&error))?;
    let begin = (file.size - 10).checked_sub(length as u64).ok_or_else(|| damaged(&"it is longer than the file"))?;
    let bytes = file.read_range(begin..file.size - 10)?;
    let footer = root_as_footer(&bytes).map_err(|error| damaged(&error))?;
    let schema = footer.schema().ok_or_else(|| damaged(&"there is no schema"))?;
    let schema = guarded(|| try_fb_to_schema(schema)).map_err(|error| damaged(&error))?;
    Ok(Opened::File {
        schema: Arc::new(schema),
        version: footer.version(),
        dictionaries: footer.dictionaries().iter().flatten().copied().collect(),
        batches: footer.recordBatches().iter().flatten().copied().collect(),
    })
}

impl IpcReader {
    fn hand_over(&self, file: &FileRef, batch: arrow_array::RecordBatch, take: Take<'_>) -> Result<Flow, DataError> {
        for from in (0..batch.num_rows()).step_by(BLOCK_ROWS) {
            let piece = batch.slice(from, BLOCK_ROWS.min(batch.num_rows() - from));
            if take(self.layout.finish_one(piece, file)?)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::Continue)
    }

    fn columns(&self, schema: &Schema) -> Option<Vec<usize>> {
        let own = self.layout.own();
        let mut wanted: Vec<usize> =
            own.fields().iter().filter_map(|field| schema.index_of(field.name()).ok()).collect();
        wanted.sort_unstable();
        (wanted.len() < schema.fields().len()).then_some(wanted)
    }
}

impl UnitReader for IpcReader {
    fn read(&self, unit: usize, take: Take<'_>) -> Result<(), DataError> {
        let (index, number) = self.places[unit];
        let file = &self.files[index];
        let part = |number: usize| Some(format!("record batch {number}"));
        match (self.opened[index].as_ref().expect("a unit's file was opened"), number) {
            (Opened::File { schema, version, dictionaries, batches }, Some(number)) => {
                let damaged = |error: &dyn std::fmt::Display| DataError::damaged(&file.name, part(number), told(error));
                let read = |block: &Block| -> Result<Buffer, DataError> {
                    let begin = block.offset().max(0) as u64;
                    let length = block.metaDataLength().max(0) as u64 + block.bodyLength().max(0) as u64;
                    let end = begin.saturating_add(length);
                    if end > file.size {
                        return Err(damaged(&"it goes beyond the end of the file"));
                    }
                    let bytes = file.read_range(begin..end)?;
                    lengths::check_message(&bytes, block.metaDataLength().max(0) as usize)
                        .map_err(|why| damaged(&why))?;
                    Ok(Buffer::from(bytes))
                };
                let mut decoder = FileDecoder::new(schema.clone(), *version);
                if let Some(columns) = self.columns(schema) {
                    decoder = decoder.with_projection(columns);
                }
                for block in dictionaries {
                    let bytes = read(block)?;
                    guarded(|| decoder.read_dictionary(block, &bytes)).map_err(|why| damaged(&why))?;
                }
                let block = &batches[number];
                let bytes = read(block)?;
                let batch = guarded(|| decoder.read_record_batch(block, &bytes)).map_err(|why| damaged(&why))?;
                match batch {
                    Some(batch) => self.hand_over(file, batch, take).map(drop),
                    None => Ok(()),
                }
            }
            (opened, _) => {
                let damaged =
                    |number, error: &dyn std::fmt::Display| DataError::damaged(&file.name, part(number), told(error));
                let columns = self.columns(opened.schema());
                let bytes = file.read()?;
                lengths::check_stream(&bytes).map_err(|(number, why)| damaged(number, &why))?;
                let reader = || StreamReader::try_new(bytes.reader(), columns);
                let mut reader = guarded(reader).map_err(|why| damaged(0, &why))?;
                let mut number = 0;
                while let Some(batch) = guarded(|| reader.next().transpose()).map_err(|why| damaged(number, &why))? {
                    number += 1;
                    if self.hand_over(file, batch, take)? == Flow::Stop {
                        break;
                    }
                }
                Ok(())
            }
        }
    }
}
