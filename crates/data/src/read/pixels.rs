//! Images decoded, brought to a mode and a size, as Pillow does it: `Image.open(file).convert(mode).resize(size, BILINEAR)`.
//!
//! PIXELS-1: every pixel is Pillow's.
//! PIXELS-2: as with Pillow, the orientation that a camera has noted and the profiles of colours change nothing.
//!
//! Each format has its decoder, called directly: one crate for all of them brings the management of colours along, which
//! takes longer to build than all decoders together. JPEG is our own (`jpeg` says why), and so is BMP, which is short.

mod bmp;
mod jpeg;
mod resize;
mod small;
mod tiff;
mod wide;

use serde::Deserialize;

use crate::read::file_source::guarded;

/// What Pillow takes for an attempt to fill up the memory.
const MOST_PIXELS: usize = 178_956_970;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Mode {
    L,
    #[serde(rename = "LA")]
    La,
    #[serde(rename = "RGB")]
    Rgb,
    #[serde(rename = "RGBA")]
    Rgba,
}

impl Mode {
    pub fn channels(self) -> usize {
        match self {
            Mode::L => 1,
            Mode::La => 2,
            Mode::Rgb => 3,
            Mode::Rgba => 4,
        }
    }

    fn has_alpha(self) -> bool {
        matches!(self, Mode::La | Mode::Rgba)
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

#[derive(Clone, Copy)]
enum Format {
    Jpeg,
    Png,
    Gif,
    Bmp,
    Webp,
    Tiff,
}

pub(crate) fn decode(bytes: &[u8]) -> Outcome<Pixels> {
    guarded(|| {
        let pixels = match format(bytes)? {
            Format::Jpeg => jpeg::decode(bytes),
            Format::Png => small::png(bytes),
            Format::Gif => small::gif(bytes),
            Format::Bmp => bmp::decode(bytes),
            Format::Webp => small::webp(bytes),
            Format::Tiff => tiff::decode(bytes),
        }?;
        match pixels.data.len() == pixels.height * pixels.width * pixels.mode.channels() {
            true => Ok(pixels),
            false => Err("it has another number of pixels than its header says".to_owned()),
        }
    })
}

/// The mode that the beginning of a file tells.
pub(crate) fn native_mode(bytes: &[u8]) -> Outcome<Mode> {
    guarded(|| match format(bytes)? {
        Format::Jpeg => jpeg::mode(bytes),
        Format::Png => small::png_mode(bytes),
        Format::Webp => small::webp_mode(bytes),
        Format::Tiff => tiff::mode(bytes),
        // What these have is seen in their pixels; they are small.
        Format::Gif => small::gif(bytes).map(|pixels| pixels.mode),
        Format::Bmp => bmp::decode(bytes).map(|pixels| pixels.mode),
    })
}

fn format(bytes: &[u8]) -> Outcome<Format> {
    Ok(match bytes {
        [] => return Err("it is empty".to_owned()),
        [0xff, 0xd8, 0xff, ..] => Format::Jpeg,
        [0x89, b'P', b'N', b'G', ..] => Format::Png,
        [b'G', b'I', b'F', b'8', ..] => Format::Gif,
        [b'B', b'M', ..] => Format::Bmp,
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Format::Webp,
        [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..] => Format::Tiff,
        _ => return Err("it is no image of a known format: JPEG, PNG, GIF, BMP, WebP or TIFF".to_owned()),
    })
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn check_size(height: usize, width: usize) -> Outcome<()> {
    match height.checked_mul(width) {
        Some(0) => Err("it has no pixels".to_owned()),
        Some(..=MOST_PIXELS) => Ok(()),
        _ => Err(format!("it has {height} by {width} pixels, and {MOST_PIXELS} are the most")),
    }
}

/// Inks to light; `flip` is 255 where the inks are stored the other way round.
fn from_cmyk(height: usize, width: usize, inks: &[u8], flip: u8) -> Pixels {
    let mut data = Vec::with_capacity(height * width * 3);
    for ink in inks.chunks_exact(4) {
        let light = 255 - (ink[3] ^ flip);
        data.extend([0, 1, 2].map(|channel| light.saturating_sub(product(ink[channel] ^ flip, light))));
    }
    Pixels { mode: Mode::Rgb, height, width, data }
}

/// Indices to the colours of a palette: three bytes each, with an alpha where there is one.
fn from_palette(height: usize, width: usize, indices: &[u8], colours: &[[u8; 4]]) -> Pixels {
    let mode = if colours.iter().all(|colour| colour[3] == 255) { Mode::Rgb } else { Mode::Rgba };
    let colour = |index: &u8| colours.get(usize::from(*index)).copied().unwrap_or([0, 0, 0, 255]);
    let data = indices.iter().flat_map(|index| colour(index).into_iter().take(mode.channels())).collect();
    Pixels { mode, height, width, data }
}

/// Two numbers of 255, rounded.
fn product(left: u8, right: u8) -> u8 {
    let product = u32::from(left) * u32::from(right) + 128;
    (((product >> 8) + product) >> 8) as u8
}

fn without_alpha(colour: u8, alpha: u8) -> u8 {
    match alpha {
        0 | 255 => colour,
        alpha => (u32::from(colour) * 255 / u32::from(alpha)).min(255) as u8,
    }
}

impl Pixels {
    pub fn convert(self, mode: Mode) -> Pixels {
        if self.mode == mode {
            return self;
        }
        let data = match (self.mode, mode) {
            (Mode::Rgb, Mode::L) => self.data.chunks_exact(3).map(luma).collect(),
            (Mode::Rgba, Mode::L) => self.data.chunks_exact(4).map(luma).collect(),
            (Mode::L, Mode::Rgb) => self.data.iter().flat_map(|grey| [*grey; 3]).collect(),
            (from, to) => {
                let each = |pixel: &[u8]| {
                    let alpha = if from.has_alpha() { pixel[from.channels() - 1] } else { 255 };
                    match (from, to) {
                        (Mode::Rgb | Mode::Rgba, Mode::La) => [luma(pixel), alpha, 0, 0],
                        (Mode::Rgb | Mode::Rgba, _) => [pixel[0], pixel[1], pixel[2], alpha],
                        (_, Mode::L | Mode::La) => [pixel[0], alpha, 0, 0],
                        _ => [pixel[0], pixel[0], pixel[0], alpha],
                    }
                };
                let pixels = self.data.chunks_exact(from.channels());
                pixels.flat_map(|pixel| each(pixel).into_iter().take(to.channels())).collect()
            }
        };
        Pixels { mode, data, ..self }
    }

    /// Colours are mixed by how much of them is seen, as Pillow does it.
    pub fn resize(mut self, height: usize, width: usize) -> Pixels {
        if (self.height, self.width) == (height, width) {
            return self;
        }
        self.each_with_alpha(product);
        let (from, channels) = ((self.height, self.width), self.mode.channels());
        let data = resize::resize(&self.data, channels, from, (height, width));
        let mut made = Pixels { mode: self.mode, height, width, data };
        made.each_with_alpha(without_alpha);
        made
    }

    fn each_with_alpha(&mut self, change: impl Fn(u8, u8) -> u8) {
        if !self.mode.has_alpha() {
            return;
        }
        for pixel in self.data.chunks_exact_mut(self.mode.channels()) {
            if let [colours @ .., alpha] = pixel
                && *alpha < 255
            {
                colours.iter_mut().for_each(|colour| *colour = change(*colour, *alpha));
            }
        }
    }
}

/// ITU-R 601-2, in Pillow's rounding.
fn luma(pixel: &[u8]) -> u8 {
    let [red, green, blue] = [pixel[0], pixel[1], pixel[2]].map(u32::from);
    ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16) as u8
}
