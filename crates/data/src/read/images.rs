//! Images: a row is an image, in a column `image` of tensors: of one shape with `size`, of several without.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::BooleanBufferBuilder;
use arrow_array::{ArrayRef, FixedSizeListArray, Int32Array, ListArray, RecordBatch, StructArray, UInt8Array};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use serde::Deserialize;

use crate::error::DataError;
use crate::files::{FileOptions, FileRef, in_parallel};
use crate::read::binary::group;
use crate::read::file_source::{Damages, FileSource, Take, UnitReader};
use crate::read::layout::{Layout, Run};
use crate::read::pixels::{Mode, Pixels, decode, native_mode};
use crate::source::{Flow, Unit};
use crate::tensor::{fixed_field, variable_field};

/// A unit is so many images.
const IMAGES: usize = 32;
/// Of so many files, and so much of each, is read which mode they have.
const SAMPLE: usize = 16;
const HEADER: u64 = 64 << 10;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImageOptions {
    /// Height and width.
    pub size: Option<(usize, usize)>,
    /// Without it, the mode of the first files if they have one, otherwise RGB.
    pub mode: Option<Mode>,
}

struct ImageReader {
    files: Arc<[FileRef]>,
    groups: Vec<Range<usize>>,
    own: SchemaRef,
    layout: Layout,
    mode: Mode,
    size: Option<(usize, usize)>,
    damages: Arc<Damages>,
}

pub(crate) fn open(files: Vec<FileRef>, common: &FileOptions, options: ImageOptions) -> Result<FileSource, DataError> {
    if options.size.is_some_and(|(height, width)| height == 0 || width == 0 || height.max(width) > 1 << 14) {
        return Err(DataError::invalid("`size` is a height and a width between 1 and 16384"));
    }
    let files: Arc<[FileRef]> = files.into();
    let damages = Arc::new(Damages::new(common.max_errors));
    let mode = match options.mode {
        Some(mode) => mode,
        None => common_mode(&files[..files.len().min(SAMPLE)]),
    };
    let field = match options.size {
        Some((height, width)) => fixed_field("image", DataType::UInt8, &mode.shape(height, width)),
        None => variable_field("image", DataType::UInt8, mode.shape(0, 0).len()),
    };
    let own = Arc::new(Schema::new(vec![field]));
    let layout = Layout::new(&own, &files, common.include_paths);
    let groups = group(&files, IMAGES, u64::MAX);
    let unit = |group: &Range<usize>| {
        let packed: u64 = files[group.clone()].iter().map(|file| file.size).sum();
        let bytes = match options.size {
            Some((height, width)) => (group.len() * height * width * mode.channels()) as u64,
            None => packed * 8,
        };
        Unit { rows: Some(group.len() as u64), bytes, ..Unit::default() }
    };
    let units = groups.iter().map(unit).collect();
    let size = options.size;
    let reader = ImageReader { files: files.clone(), groups, own, layout, mode, size, damages: damages.clone() };
    Ok(FileSource { schema: reader.layout.schema(), units, files, damages, reader: Box::new(reader) })
}

/// What cannot be read here is an error when its unit is read.
fn common_mode(files: &[FileRef]) -> Mode {
    let mode = |file: &FileRef| Ok(file.read_start(HEADER).ok().and_then(|start| native_mode(&start).ok()));
    let modes = in_parallel(files, mode).unwrap_or_default();
    let mut known = modes.into_iter().flatten();
    match known.next() {
        Some(first) if known.all(|mode| mode == first) => first,
        _ => Mode::Rgb,
    }
}

impl ImageReader {
    fn read_one(&self, file: &FileRef) -> Result<Pixels, DataError> {
        let damaged = |why: String| DataError::damaged(&file.name, None, why);
        let bytes = file.read()?;
        // First the mode and then the size, as Pillow is used: the other way round gives other pixels.
        let pixels = decode(&bytes).map_err(damaged)?.convert(self.mode);
        Ok(match self.size {
            Some((height, width)) => pixels.resize(height, width),
            None => pixels,
        })
    }
}

impl UnitReader for ImageReader {
    fn read(&self, unit: usize, take: Take<'_>) -> Result<(), DataError> {
        let files = &self.files[self.groups[unit].clone()];
        let mut runs = Vec::with_capacity(files.len());
        let mut images = Vec::with_capacity(files.len());
        for file in files {
            // One image that is damaged does not take its neighbours along.
            if let Some(pixels) = self.damages.tolerate(self.read_one(file))? {
                runs.push(Run { file, rows: 1 });
                images.push(Some(pixels));
            }
        }
        if images.is_empty() {
            return Ok(());
        }
        let column = match self.own.field(0).data_type() {
            DataType::FixedSizeList(item, size) => {
                let data: Vec<u8> =
                    images.iter().flatten().map(|image| image.data.as_slice()).collect::<Vec<_>>().concat();
                Arc::new(FixedSizeListArray::try_new(item.clone(), *size, Arc::new(UInt8Array::from(data)), None)?)
            }
            _ => variable_images(self.own.field(0), images)?,
        };
        let block = RecordBatch::try_new(self.own.clone(), vec![column])?;
        take(self.layout.finish(block, &runs)?).map(|_: Flow| ())
    }
}

/// A column of images of several shapes, some of which may be null.
pub(crate) fn variable_images(field: &Field, images: Vec<Option<Pixels>>) -> Result<ArrayRef, DataError> {
    let DataType::Struct(fields) = field.data_type() else {
        return Err(DataError::invalid("images of several shapes need a column of tensors of several shapes"));
    };
    let (DataType::List(item), DataType::FixedSizeList(length, dimensions)) =
        (fields[0].data_type(), fields[1].data_type())
    else {
        return Err(DataError::invalid("a tensor of several shapes has `data` and `shape`"));
    };
    let total = images.iter().flatten().map(|image| image.data.len()).sum();
    let mut data: Vec<u8> = Vec::with_capacity(total);
    let mut offsets: Vec<i32> = vec![0];
    let mut shapes: Vec<i32> = Vec::with_capacity(images.len() * *dimensions as usize);
    let mut valid = BooleanBufferBuilder::new(images.len());
    for image in &images {
        valid.append(image.is_some());
        match image {
            Some(image) => {
                data.extend_from_slice(&image.data);
                shapes.extend(image.mode.shape(image.height, image.width).iter().map(|length| *length as i32));
            }
            None => shapes.extend(std::iter::repeat_n(0, *dimensions as usize)),
        }
        let end = i32::try_from(data.len()).map_err(|_| DataError::invalid("the images of a unit have over 2 GiB"))?;
        offsets.push(end);
    }
    let data =
        ListArray::try_new(item.clone(), OffsetBuffer::new(offsets.into()), Arc::new(UInt8Array::from(data)), None)?;
    let shapes = FixedSizeListArray::try_new(length.clone(), *dimensions, Arc::new(Int32Array::from(shapes)), None)?;
    let nulls = Some(NullBuffer::new(valid.finish())).filter(|nulls| nulls.null_count() > 0);
    Ok(Arc::new(StructArray::try_new(fields.clone(), vec![Arc::new(data), Arc::new(shapes)], nulls)?))
}
