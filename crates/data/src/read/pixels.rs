//! Images decoded, brought to a mode and a size, as Pillow does it.

use std::io::Cursor;

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use image::{ColorType, DynamicImage, ImageDecoder, ImageFormat, ImageReader};
use serde::Deserialize;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use crate::read::file_source::guarded;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Mode {
    L,
    #[serde(rename = "RGB")]
    Rgb,
    #[serde(rename = "RGBA")]
    Rgba,
}

impl Mode {
    pub fn channels(self) -> usize {
        match self {
            Mode::L => 1,
            Mode::Rgb => 3,
            Mode::Rgba => 4,
        }
    }

    fn pixel(self) -> PixelType {
        match self {
            Mode::L => PixelType::U8,
            Mode::Rgb => PixelType::U8x3,
            Mode::Rgba => PixelType::U8x4,
        }
    }

    /// The shape of an image: one channel is no dimension.
    pub fn shape(self, height: usize, width: usize) -> Vec<usize> {
        match self {
            Mode::L => vec![height, width],
            _ => vec![height, width, self.channels()],
        }
    }
}

/// Eight bits for each channel of each pixel, in rows.
pub(crate) struct Pixels {
    pub mode: Mode,
    pub height: usize,
    pub width: usize,
    pub data: Vec<u8>,
}

type Outcome<T> = Result<T, String>;

pub(crate) fn decode(bytes: &[u8]) -> Outcome<Pixels> {
    guarded(|| decode_any(bytes))
}

fn decode_any(bytes: &[u8]) -> Outcome<Pixels> {
    match format(bytes)? {
        ImageFormat::Jpeg => decode_jpeg(bytes),
        format => {
            let image = ImageReader::with_format(Cursor::new(bytes), format).decode().map_err(text)?;
            Ok(from_image(image))
        }
    }
}

/// The mode that the beginning of a file tells.
pub(crate) fn native_mode(bytes: &[u8]) -> Outcome<Mode> {
    let format = format(bytes)?;
    let decoder = ImageReader::with_format(Cursor::new(bytes), format).into_decoder().map_err(text)?;
    Ok(mode_of(decoder.color_type()))
}

fn format(bytes: &[u8]) -> Outcome<ImageFormat> {
    image::guess_format(bytes).map_err(|_| match bytes.is_empty() {
        true => "it is empty".to_owned(),
        false => "it is no image of a known format".to_owned(),
    })
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn mode_of(color: ColorType) -> Mode {
    match color {
        ColorType::L8 | ColorType::L16 => Mode::L,
        color if color.has_alpha() => Mode::Rgba,
        _ => Mode::Rgb,
    }
}

fn from_image(image: DynamicImage) -> Pixels {
    let (height, width) = (image.height() as usize, image.width() as usize);
    let mode = mode_of(image.color());
    let data = match mode {
        Mode::L => image.into_luma8().into_raw(),
        Mode::Rgb => image.into_rgb8().into_raw(),
        Mode::Rgba => image.into_rgba8().into_raw(),
    };
    Pixels { mode, height, width, data }
}

fn decode_jpeg(bytes: &[u8]) -> Outcome<Pixels> {
    // The decoder fills up what is missing with grey. Within the image this pair of bytes can only be the end.
    let begin = memchr::memmem::find(bytes, b"\xff\xda").unwrap_or(0);
    if memchr::memmem::rfind(&bytes[begin..], b"\xff\xd9").is_none() {
        return Err("it is cut short".to_owned());
    }
    let options = DecoderOptions::new_fast().set_max_width(1 << 16).set_max_height(1 << 16);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(text)?;
    let mode = match decoder.input_colorspace() {
        Some(ColorSpace::Luma) => Mode::L,
        _ => Mode::Rgb,
    };
    let wanted = if mode == Mode::L { ColorSpace::Luma } else { ColorSpace::RGB };
    decoder.set_options(options.jpeg_set_out_colorspace(wanted));
    let info = decoder.info().ok_or("it has no header")?;
    let data = decoder.decode().map_err(text)?;
    let (height, width) = (usize::from(info.height), usize::from(info.width));
    match data.len() == height * width * mode.channels() {
        true => Ok(Pixels { mode, height, width, data }),
        false => Err("its pixels are of another number than its header says".to_owned()),
    }
}

impl Pixels {
    pub fn convert(self, mode: Mode) -> Pixels {
        let each = |data: &[u8], length: usize, make: &dyn Fn(&[u8]) -> [u8; 4]| -> Vec<u8> {
            let size = mode.channels();
            data.chunks_exact(length).flat_map(|pixel| make(pixel).into_iter().take(size)).collect()
        };
        let data = match (self.mode, mode) {
            (from, to) if from == to => return self,
            (Mode::L, _) => each(&self.data, 1, &|pixel| [pixel[0], pixel[0], pixel[0], 255]),
            (Mode::Rgb, Mode::L) => self.data.chunks_exact(3).map(luma).collect(),
            (Mode::Rgba, Mode::L) => self.data.chunks_exact(4).map(luma).collect(),
            (from, _) => each(&self.data, from.channels(), &|pixel| [pixel[0], pixel[1], pixel[2], 255]),
        };
        Pixels { mode, data, ..self }
    }

    pub fn resize(self, height: usize, width: usize) -> Outcome<Pixels> {
        if (self.height, self.width) == (height, width) {
            return Ok(self);
        }
        let pixel = self.mode.pixel();
        let from = ImageRef::new(self.width as u32, self.height as u32, &self.data, pixel).map_err(text)?;
        let mut to = Image::new(width as u32, height as u32, pixel);
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
        Resizer::new().resize(&from, &mut to, &options).map_err(text)?;
        Ok(Pixels { mode: self.mode, height, width, data: to.into_vec() })
    }
}

/// ITU-R 601-2, in Pillow's rounding.
fn luma(pixel: &[u8]) -> u8 {
    let [red, green, blue] = [pixel[0], pixel[1], pixel[2]].map(u32::from);
    ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16) as u8
}
