//! Text: a row is a line.

use std::sync::Arc;

use arrow_array::{RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use serde::Deserialize;

use crate::error::DataError;
use crate::files::{FileOptions, FileRef, in_parallel};
use crate::read::BLOCK_ROWS;
use crate::read::file_source::{Damages, FileSource, Take, UnitReader};
use crate::read::layout::Layout;
use crate::read::records::{Ends, Extent, cut, line_at};
use crate::source::Flow;

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TextOptions {
    pub encoding: String,
    pub drop_empty_lines: bool,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self { encoding: "utf-8".to_owned(), drop_empty_lines: true }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Utf8,
    Latin1,
}

struct TextReader {
    files: Arc<[FileRef]>,
    extents: Vec<Extent>,
    own: SchemaRef,
    layout: Layout,
    encoding: Encoding,
    drop_empty_lines: bool,
}

pub(crate) fn open(files: Vec<FileRef>, common: &FileOptions, options: TextOptions) -> Result<FileSource, DataError> {
    let files: Arc<[FileRef]> = files.into();
    let encoding = match options.encoding.to_lowercase().replace('_', "-").as_str() {
        "utf-8" | "utf8" | "ascii" | "us-ascii" => Encoding::Utf8,
        "latin-1" | "latin1" | "iso-8859-1" => Encoding::Latin1,
        _ => {
            let what = format!("text in the encoding `{}` cannot be read", options.encoding);
            let hint = Some("`utf-8` and `latin-1` can; read others as binary files and decode them".to_owned());
            return Err(DataError::Invalid { what, hint });
        }
    };
    let damages = Arc::new(Damages::new(common.max_errors));
    let indices: Vec<usize> = (0..files.len()).collect();
    let extents = in_parallel(&indices, |index| damages.tolerate(cut(&files[*index], *index, 0, Ends::Lines)))?;
    let extents: Vec<Extent> = extents.into_iter().flatten().flatten().collect();
    let own = Arc::new(Schema::new(vec![Field::new("text", DataType::Utf8, false)]));
    let layout = Layout::new(&own, &files, common.include_paths);
    let units = extents.iter().map(|extent| extent.unit(&files, 1)).collect();
    let drop_empty_lines = options.drop_empty_lines;
    let reader = TextReader { files: files.clone(), extents, own, layout, encoding, drop_empty_lines };
    Ok(FileSource { schema: reader.layout.schema(), units, files, damages, reader: Box::new(reader) })
}

impl TextReader {
    fn read_piece(&self, index: usize, offset: u64, piece: &Bytes, take: Take<'_>) -> Result<bool, DataError> {
        let file = &self.files[index];
        let decoded;
        let text = match self.encoding {
            Encoding::Latin1 => {
                decoded = piece.iter().map(|byte| char::from(*byte)).collect::<String>();
                decoded.as_str()
            }
            Encoding::Utf8 => std::str::from_utf8(piece).map_err(|error| {
                let line = line_at(file, offset + error.valid_up_to() as u64);
                DataError::damaged(&file.name, Some(format!("line {line}")), "it is not UTF-8")
            })?,
        };
        let text = if offset == 0 { text.strip_prefix('\u{feff}').unwrap_or(text) } else { text };
        let mut lines = text.lines().filter(|line| !(self.drop_empty_lines && line.trim().is_empty())).peekable();
        while lines.peek().is_some() {
            let column = StringArray::from_iter_values(lines.by_ref().take(BLOCK_ROWS));
            let block = RecordBatch::try_new(self.own.clone(), vec![Arc::new(column)])?;
            if take(self.layout.finish_one(block, file)?)? == Flow::Stop {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl UnitReader for TextReader {
    fn read(&self, unit: usize, take: Take<'_>) -> Result<(), DataError> {
        let extent = &self.extents[unit];
        extent.pieces(&self.files, Ends::Lines, &mut |offset, text| self.read_piece(extent.file, offset, &text, take))
    }
}
