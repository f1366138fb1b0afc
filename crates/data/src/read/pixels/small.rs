//! PNG, GIF and WebP, by decoders that exist, brought to what Pillow makes of them.

use std::io::Cursor;

use gif::{ColorOutput, DecodeOptions};
use image_webp::WebPDecoder;
use png::{BitDepth, ColorType, Decoder, Transformations};

use super::{Mode, Outcome, Pixels, check_size, from_palette, text};

fn png_reader(bytes: &[u8]) -> Outcome<png::Reader<Cursor<&[u8]>>> {
    let mut decoder = Decoder::new(Cursor::new(bytes));
    // Palettes become colours, and what is transparent an alpha.
    decoder.set_transformations(Transformations::EXPAND);
    let reader = decoder.read_info().map_err(text)?;
    check_size(reader.info().height as usize, reader.info().width as usize)?;
    Ok(reader)
}

fn mode_of(color: ColorType) -> Mode {
    match color {
        ColorType::Grayscale => Mode::L,
        ColorType::GrayscaleAlpha => Mode::La,
        ColorType::Rgba => Mode::Rgba,
        ColorType::Rgb | ColorType::Indexed => Mode::Rgb,
    }
}

pub(super) fn png_mode(bytes: &[u8]) -> Outcome<Mode> {
    Ok(mode_of(png_reader(bytes)?.output_color_type().0))
}

pub(super) fn png(bytes: &[u8]) -> Outcome<Pixels> {
    let mut reader = png_reader(bytes)?;
    let mut data = vec![0; reader.output_buffer_size().ok_or("it is too large")?];
    let frame = reader.next_frame(&mut data).map_err(text)?;
    data.truncate(frame.buffer_size());
    // What stands behind the pixels is read too: a file that is cut there is damaged.
    reader.finish().map_err(text)?;
    let mode = mode_of(frame.color_type);
    if frame.bit_depth == BitDepth::Sixteen {
        let is_grey = mode == Mode::L;
        data = data.chunks_exact(2).map(|sample| to_eight(sample[0], sample[1], is_grey)).collect();
    }
    Ok(Pixels { mode, height: frame.height as usize, width: frame.width as usize, data })
}

/// Of sixteen bits Pillow takes the upper eight; but grey numbers it cuts off at 255.
fn to_eight(high: u8, low: u8, is_grey: bool) -> u8 {
    match (is_grey, high) {
        (true, 0) => low,
        (true, _) => 255,
        (false, high) => high,
    }
}

/// The first frame, on a canvas that is transparent where it can be.
pub(super) fn gif(bytes: &[u8]) -> Outcome<Pixels> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    let mut decoder = options.read_info(bytes).map_err(text)?;
    let screen = (usize::from(decoder.height()), usize::from(decoder.width()));
    let global = decoder.global_palette().map(<[u8]>::to_vec);
    let frame = decoder.read_next_frame().map_err(text)?.ok_or("it has no frame")?;
    let (top, left) = (usize::from(frame.top), usize::from(frame.left));
    let (down, across) = (usize::from(frame.height), usize::from(frame.width));
    let (height, width) = (screen.0.max(top + down), screen.1.max(left + across));
    check_size(height, width)?;
    let mut indices = vec![frame.transparent.unwrap_or(0); height * width];
    for (row, line) in frame.buffer.chunks_exact(across.max(1)).enumerate() {
        let begin = (top + row) * width + left;
        indices[begin..begin + across].copy_from_slice(line);
    }
    let Some(palette) = frame.palette.as_ref().or(global.as_ref()) else {
        return Ok(Pixels { mode: Mode::L, height, width, data: indices });
    };
    let alpha = |index: usize| if frame.transparent.map(usize::from) == Some(index) { 0 } else { 255 };
    let colour = |(index, rgb): (usize, &[u8])| [rgb[0], rgb[1], rgb[2], alpha(index)];
    let colours: Vec<[u8; 4]> = palette.chunks_exact(3).enumerate().map(colour).collect();
    Ok(from_palette(height, width, &indices, &colours))
}

fn webp_reader(bytes: &[u8]) -> Outcome<(WebPDecoder<Cursor<&[u8]>>, Mode)> {
    let decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(text)?;
    let mode = if decoder.has_alpha() { Mode::Rgba } else { Mode::Rgb };
    Ok((decoder, mode))
}

pub(super) fn webp_mode(bytes: &[u8]) -> Outcome<Mode> {
    Ok(webp_reader(bytes)?.1)
}

pub(super) fn webp(bytes: &[u8]) -> Outcome<Pixels> {
    let (mut decoder, mode) = webp_reader(bytes)?;
    let (width, height) = decoder.dimensions();
    let (height, width) = (height as usize, width as usize);
    check_size(height, width)?;
    let mut data = vec![0; decoder.output_buffer_size().ok_or("it is too large")?];
    match decoder.is_animated() {
        true => decoder.read_frame(&mut data).map(drop),
        false => decoder.read_image(&mut data),
    }
    .map_err(text)?;
    Ok(Pixels { mode, height, width, data })
}
