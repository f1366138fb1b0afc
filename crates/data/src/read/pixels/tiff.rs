//! TIFF: the first picture of a file, without what only other programs write (JPEG or web pictures inside of it).

use std::io::Cursor;

use tiff::ColorType;
use tiff::decoder::{Decoder, DecodingResult, Limits};
use tiff::tags::Tag;

use super::{MOST_PIXELS, Mode, Outcome, Pixels, check_size, from_cmyk, from_palette, text, without_alpha};

type Reader<'a> = Decoder<Cursor<&'a [u8]>>;

/// Four samples of two bytes for each pixel.
const MOST_BYTES: usize = MOST_PIXELS * 8;
const PHOTOMETRIC: u16 = 262;
const GREY: u8 = 1;
const PALETTE: u8 = 3;

fn reader(bytes: &[u8]) -> Outcome<(Reader<'_>, ColorType)> {
    // The decoder allocates as much as a file says that it has.
    let mut limits = Limits::unlimited();
    limits.ifd_value_size = bytes.len();
    (limits.decoding_buffer_size, limits.intermediate_buffer_size) = (MOST_BYTES, MOST_BYTES);
    let mut decoder = Decoder::new(Cursor::new(bytes)).map_err(text)?.with_limits(limits);
    let (width, height) = decoder.dimensions().map_err(text)?;
    check_size(height as usize, width as usize)?;
    Ok(match decoder.colortype().map_err(text)? {
        ColorType::Multiband { bit_depth, num_samples: 2 } => (decoder, ColorType::GrayA(bit_depth)),
        color => (decoder, color),
    })
}

/// The decoder has no palettes. It gives their indices where they are declared as greys: this is where a file says what it has.
fn palette_entry(bytes: &[u8]) -> Option<usize> {
    let is_little = bytes.starts_with(b"II");
    let half = |at: usize| {
        let two: [u8; 2] = bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if is_little { u16::from_le_bytes(two) } else { u16::from_be_bytes(two) })
    };
    let word: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
    let first = if is_little { u32::from_le_bytes(word) } else { u32::from_be_bytes(word) } as usize;
    let mut entries = (0..usize::from(half(first)?)).map(|number| first + 2 + number * 12);
    let value = entries.find(|at| half(*at) == Some(PHOTOMETRIC))? + 8 + usize::from(!is_little);
    (bytes.get(value) == Some(&PALETTE)).then_some(value)
}

/// What a fourth sample is: nothing, colours that it is multiplied into, or an alpha for itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extra {
    Nothing,
    Multiplied,
    Alpha,
}

fn extra(decoder: &mut Reader<'_>) -> Outcome<Extra> {
    let extras = decoder.find_tag_unsigned_vec::<u16>(Tag::ExtraSamples).map_err(text)?;
    Ok(match extras.as_deref() {
        Some([0, ..]) => Extra::Nothing,
        Some([1, ..]) => Extra::Multiplied,
        _ => Extra::Alpha,
    })
}

pub(super) fn mode(bytes: &[u8]) -> Outcome<Mode> {
    if palette_entry(bytes).is_some() {
        return Ok(Mode::Rgb);
    }
    let (mut decoder, color) = reader(bytes)?;
    Ok(match color {
        ColorType::Gray(_) => Mode::L,
        ColorType::GrayA(_) => Mode::La,
        ColorType::RGBA(_) if extra(&mut decoder)? != Extra::Nothing => Mode::Rgba,
        _ => Mode::Rgb,
    })
}

pub(super) fn decode(bytes: &[u8]) -> Outcome<Pixels> {
    match palette_entry(bytes) {
        None => decode_as(bytes, false),
        Some(entry) => {
            let mut greys = bytes.to_vec();
            greys[entry] = GREY;
            decode_as(&greys, true)
        }
    }
}

fn decode_as(bytes: &[u8], has_palette: bool) -> Outcome<Pixels> {
    let (mut decoder, color) = reader(bytes)?;
    let (width, height) = decoder.dimensions().map_err(text)?;
    let (height, width) = (height as usize, width as usize);
    let planes = decoder.find_tag_unsigned::<u16>(Tag::PlanarConfiguration).map_err(text)?;
    if planes == Some(2) && !matches!(color, ColorType::Gray(_)) {
        return Err("its colours are stored apart from each other, which is not supported".to_owned());
    }
    let is_white_zero = decoder.find_tag_unsigned::<u16>(Tag::PhotometricInterpretation).map_err(text)? == Some(0);
    let data = samples(decoder.read_image().map_err(text)?, matches!(color, ColorType::Gray(_)))?;
    let plain = |mode: Mode, data: Vec<u8>| Pixels { mode, height, width, data };
    Ok(match color {
        ColorType::Gray(bits @ 1..=8) if has_palette => {
            let indices: Vec<u8> = unpacked(&data, width, bits).collect();
            from_palette(height, width, &indices, &colours(&mut decoder)?)
        }
        ColorType::Gray(bits @ 1..8) => {
            let most = (1u8 << bits) - 1;
            let grey = |value: u8| if is_white_zero { most - value } else { value } * (255 / most);
            plain(Mode::L, unpacked(&data, width, bits).map(grey).collect())
        }
        ColorType::Gray(_) => plain(Mode::L, data),
        ColorType::GrayA(_) => plain(Mode::La, data),
        ColorType::RGB(_) => plain(Mode::Rgb, data),
        ColorType::RGBA(_) => match extra(&mut decoder)? {
            Extra::Alpha => plain(Mode::Rgba, data),
            Extra::Nothing => plain(Mode::Rgba, data).convert(Mode::Rgb),
            Extra::Multiplied => {
                let mut made = plain(Mode::Rgba, data);
                made.each_with_alpha(without_alpha);
                made
            }
        },
        ColorType::CMYK(_) => from_cmyk(height, width, &data, 0),
        other => return Err(format!("its colours ({other:?}) are not supported")),
    })
}

/// All samples in eight bits: of more the upper ones, but grey numbers are cut off at 255, as Pillow does it.
fn samples(read: DecodingResult, is_grey: bool) -> Outcome<Vec<u8>> {
    Ok(match read {
        DecodingResult::U8(samples) => samples,
        DecodingResult::U16(samples) if is_grey => samples.into_iter().map(|grey| grey.min(255) as u8).collect(),
        DecodingResult::U16(samples) => samples.into_iter().map(|sample| (sample >> 8) as u8).collect(),
        DecodingResult::I16(samples) if is_grey => samples.into_iter().map(|grey| grey.clamp(0, 255) as u8).collect(),
        DecodingResult::I32(samples) if is_grey => samples.into_iter().map(|grey| grey.clamp(0, 255) as u8).collect(),
        DecodingResult::U32(samples) if is_grey => samples.into_iter().map(|grey| grey.min(255) as u8).collect(),
        // Numbers that are no integers lose what is behind their point.
        DecodingResult::F32(samples) if is_grey => samples.into_iter().map(|grey| grey as u8).collect(),
        _ => return Err("its samples are of a type that is not supported".to_owned()),
    })
}

/// Several samples in a byte; each row begins a new one.
fn unpacked(data: &[u8], width: usize, bits: u8) -> impl Iterator<Item = u8> {
    let each = 8 / usize::from(bits);
    let most = ((1u16 << bits) - 1) as u8;
    data.chunks_exact(width.div_ceil(each))
        .flat_map(move |row| (0..width).map(move |x| row[x / each] >> (8 - usize::from(bits) * (x % each + 1)) & most))
}

/// All reds, then all greens, then all blues, in sixteen bits.
fn colours(decoder: &mut Reader<'_>) -> Outcome<Vec<[u8; 4]>> {
    let map = decoder.get_tag_u16_vec(Tag::ColorMap).map_err(text)?;
    let count = map.len() / 3;
    let colour = |index: usize| [0, 1, 2].map(|channel| (map[channel * count + index] >> 8) as u8);
    Ok((0..count).map(colour).map(|[red, green, blue]| [red, green, blue, 255]).collect())
}
