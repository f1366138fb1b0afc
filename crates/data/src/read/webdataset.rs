//! WebDataset: tar files in which neighbours with one key are a sample.
//!
//! The key is the name up to the first dot of its last part; what follows the dot is the column.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use serde::Deserialize;

use crate::error::DataError;
use crate::files::{FileOptions, FileRef, in_parallel, is_like};
use crate::read::file_source::{Damages, FileSource, Take, UnitReader};
use crate::read::images::variable_images;
use crate::read::layout::Layout;
use crate::read::pixels::{Mode, decode};
use crate::source::{Flow, Unit};
use crate::tensor::variable_field;

const KEY: &str = "__key__";
/// The file that a sample is from.
const URL: &str = "__url__";
/// What is looked at of each file to find its columns.
const SAMPLES: usize = 64;
const SAMPLE: u64 = 4 << 20;
/// A block is so many samples, or so many bytes of them.
const ROWS: usize = 256;
const BYTES: usize = 16 << 20;

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebDatasetOptions {
    /// Whether images become tensors, classes numbers, and texts texts; without it, all is bytes.
    pub decode: bool,
    /// The columns, where not all are wanted; in a pattern such as `*.txt` they have a dot before them.
    pub suffixes: Option<Vec<String>>,
}

impl Default for WebDatasetOptions {
    fn default() -> Self {
        Self { decode: true, suffixes: None }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bytes,
    Image,
    Number,
    Text,
}

impl Kind {
    fn of(suffix: &str) -> Self {
        match suffix.rsplit('.').next().unwrap_or(suffix).to_lowercase().as_str() {
            "jpg" | "jpeg" | "png" | "bmp" | "gif" | "webp" | "tif" | "tiff" => Kind::Image,
            "cls" | "cls2" | "index" | "count" => Kind::Number,
            "txt" | "text" | "transcript" | "json" => Kind::Text,
            _ => Kind::Bytes,
        }
    }

    fn field(self, name: &str) -> Field {
        match self {
            Kind::Bytes => Field::new(name, DataType::Binary, true),
            Kind::Image => variable_field(name, DataType::UInt8, 3).with_nullable(true),
            Kind::Number => Field::new(name, DataType::Int64, true),
            Kind::Text => Field::new(name, DataType::Utf8, true),
        }
    }
}

struct WebDatasetReader {
    files: Arc<[FileRef]>,
    places: Vec<usize>,
    own: SchemaRef,
    layout: Layout,
    kinds: Vec<Kind>,
    suffixes: Option<Vec<String>>,
}

#[derive(Default)]
struct Sample {
    key: String,
    values: BTreeMap<String, Vec<u8>>,
}

pub(crate) fn open(
    files: Vec<FileRef>,
    common: &FileOptions,
    options: WebDatasetOptions,
) -> Result<FileSource, DataError> {
    let files: Arc<[FileRef]> = files.into();
    let damages = Arc::new(Damages::new(common.max_errors));
    let found = in_parallel(&files, |file| damages.tolerate(look(file, &options)))?;
    let all: BTreeSet<&String> = found.iter().flatten().flatten().collect();
    let names: Vec<String> = match &options.suffixes {
        Some(suffixes) if !suffixes.iter().any(|name| is_pattern(name)) => suffixes.clone(),
        _ => all.into_iter().cloned().collect(),
    };
    let kind = |name: &String| if options.decode { Kind::of(name) } else { Kind::Bytes };
    let kinds: Vec<Kind> = names.iter().map(kind).collect();
    let mut fields = vec![Field::new(KEY, DataType::Utf8, false)];
    fields.extend(names.iter().zip(&kinds).map(|(name, kind)| kind.field(name)));
    fields.push(Field::new(URL, DataType::Utf8, false));
    let own = Arc::new(Schema::new(fields));
    let layout = Layout::new(&own, &files, common.include_paths);
    let places: Vec<usize> = (0..files.len()).filter(|index| found[*index].is_some()).collect();
    let units = places.iter().map(|index| Unit { bytes: files[*index].size, ..Unit::default() }).collect();
    let suffixes = options.suffixes;
    let reader = WebDatasetReader { files: files.clone(), places, own, layout, kinds, suffixes };
    Ok(FileSource { schema: reader.layout.schema(), units, files, damages, reader: Box::new(reader) })
}

fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

fn is_meant(name: &str, suffix: &str) -> bool {
    name == suffix || (is_pattern(name) && is_like(name, &format!(".{suffix}")))
}

fn look(file: &FileRef, options: &WebDatasetOptions) -> Result<BTreeSet<String>, DataError> {
    let mut names = BTreeSet::new();
    let (mut samples, mut bytes) = (0, 0);
    read_samples(file, &options.suffixes, &mut |sample| {
        samples += 1;
        bytes += sample.values.values().map(Vec::len).sum::<usize>() as u64;
        names.extend(sample.values.into_keys());
        Ok(if samples < SAMPLES && bytes < SAMPLE { Flow::Continue } else { Flow::Stop })
    })?;
    Ok(names)
}

/// Hands over the samples of a tar file, in its order.
fn read_samples(
    file: &FileRef,
    suffixes: &Option<Vec<String>>,
    take: &mut dyn FnMut(Sample) -> Result<Flow, DataError>,
) -> Result<(), DataError> {
    let damaged = |member: &str, error: &dyn std::fmt::Display| {
        let part = (!member.is_empty()).then(|| format!("member `{member}`"));
        DataError::damaged(&file.name, part, error)
    };
    let plain = file.stream_plain().map_err(|error| damaged("", &error))?;
    let mut archive = tar::Archive::new(std::io::BufReader::with_capacity(256 << 10, plain));
    let mut sample: Option<Sample> = None;
    let mut last = String::new();
    for entry in archive.entries().map_err(|error| damaged("", &error))? {
        let mut entry = entry.map_err(|error| match last.as_str() {
            "" => damaged("", &error),
            last => damaged("", &format!("{error}, after member `{last}`")),
        })?;
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let (directory, base) =
            path.rsplit_once('/').map_or(("", path.as_str()), |(directory, base)| (directory, base));
        let parts = base.split_once('.').filter(|(stem, _)| !stem.is_empty() && !stem.starts_with("__"));
        let Some((stem, suffix)) = parts.filter(|_| entry.header().entry_type().is_file()) else { continue };
        let key = if directory.is_empty() { stem.to_owned() } else { format!("{directory}/{stem}") };
        let key = key.trim_start_matches("./").to_owned();
        if sample.as_ref().is_none_or(|sample| sample.key != key) {
            if let Some(whole) = sample.take().filter(|sample| !sample.values.is_empty())
                && take(whole)? == Flow::Stop
            {
                return Ok(());
            }
            sample = Some(Sample { key, ..Sample::default() });
        }
        if suffixes.as_ref().is_none_or(|wanted| wanted.iter().any(|name| is_meant(name, suffix))) {
            let mut value = Vec::with_capacity(entry.size().min(1 << 30) as usize);
            let read = entry.read_to_end(&mut value).map_err(|error| damaged(&path, &error))?;
            if read as u64 != entry.size() {
                return Err(damaged(&path, &"it is cut short"));
            }
            let known = sample.as_mut().expect("made above").values.insert(suffix.to_owned(), value);
            if known.is_some() {
                return Err(damaged(&path, &"its sample has two of them"));
            }
        }
        last = path;
    }
    match sample.filter(|sample| !sample.values.is_empty()) {
        Some(whole) => take(whole).map(drop),
        None => Ok(()),
    }
}

impl WebDatasetReader {
    fn block(&self, file: &FileRef, mut samples: Vec<Sample>) -> Result<RecordBatch, DataError> {
        let keys: Vec<String> = samples.iter().map(|sample| sample.key.clone()).collect();
        let mut columns: Vec<ArrayRef> = vec![Arc::new(StringArray::from(keys.clone()))];
        for (field, kind) in self.own.fields()[1..].iter().zip(&self.kinds) {
            let name = field.name();
            let values: Vec<Option<Vec<u8>>> = samples.iter_mut().map(|sample| sample.values.remove(name)).collect();
            let damaged = |row: usize, why: String| {
                DataError::damaged(&file.name, Some(format!("member `{}.{name}`", keys[row])), why)
            };
            columns.push(column(field, *kind, values).map_err(|(row, why)| damaged(row, why))?);
        }
        for (row, sample) in samples.iter().enumerate() {
            if let Some(name) = sample.values.keys().next() {
                let why = "no sample at the beginning of a file has one; name all columns with `suffixes`";
                return Err(DataError::damaged(&file.name, Some(format!("member `{}.{name}`", keys[row])), why));
            }
        }
        columns.push(Arc::new(StringArray::from_iter_values(std::iter::repeat_n(&file.name, samples.len()))));
        self.layout.finish_one(RecordBatch::try_new(self.own.clone(), columns)?, file)
    }
}

fn column(field: &Field, kind: Kind, values: Vec<Option<Vec<u8>>>) -> Result<ArrayRef, (usize, String)> {
    Ok(match kind {
        Kind::Bytes => Arc::new(values.into_iter().collect::<BinaryArray>()),
        Kind::Image => {
            let image = |(row, value): (usize, Option<Vec<u8>>)| match value {
                Some(bytes) => decode(&bytes).map(|pixels| Some(pixels.convert(Mode::Rgb))).map_err(|why| (row, why)),
                None => Ok(None),
            };
            let images = values.into_iter().enumerate().map(image).collect::<Result<Vec<_>, _>>()?;
            variable_images(field, images).map_err(|error| (0, error.to_string()))?
        }
        Kind::Number => {
            let number = |(row, value): (usize, Option<Vec<u8>>)| {
                let Some(bytes) = value else { return Ok(None) };
                let text = String::from_utf8_lossy(&bytes).trim().to_owned();
                text.parse::<i64>().map(Some).map_err(|_| (row, format!("`{text}` is not a number")))
            };
            Arc::new(values.into_iter().enumerate().map(number).collect::<Result<Int64Array, _>>()?)
        }
        Kind::Text => {
            let text = |(row, value): (usize, Option<Vec<u8>>)| {
                let Some(bytes) = value else { return Ok(None) };
                String::from_utf8(bytes).map(Some).map_err(|_| (row, "it is not UTF-8".to_owned()))
            };
            Arc::new(values.into_iter().enumerate().map(text).collect::<Result<StringArray, _>>()?)
        }
    })
}

impl UnitReader for WebDatasetReader {
    fn read(&self, unit: usize, take: Take<'_>) -> Result<(), DataError> {
        let file = &self.files[self.places[unit]];
        let (mut waiting, mut bytes) = (Vec::new(), 0);
        let mut stopped = false;
        read_samples(file, &self.suffixes, &mut |sample| {
            bytes += sample.values.values().map(Vec::len).sum::<usize>();
            waiting.push(sample);
            if waiting.len() < ROWS && bytes < BYTES {
                return Ok(Flow::Continue);
            }
            bytes = 0;
            let flow = take(self.block(file, std::mem::take(&mut waiting))?)?;
            stopped = flow == Flow::Stop;
            Ok(flow)
        })?;
        if !stopped && !waiting.is_empty() {
            take(self.block(file, waiting)?)?;
        }
        Ok(())
    }
}
