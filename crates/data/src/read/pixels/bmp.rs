//! BMP: bitmaps of Windows and OS/2, raw, in runs, or with masks.

use super::{Mode, Outcome, Pixels, check_size, from_palette};

const RAW: u32 = 0;
const RUNS_OF_8: u32 = 1;
const RUNS_OF_4: u32 = 2;
const MASKS: u32 = 3;

struct Header {
    height: usize,
    width: usize,
    is_upside_down: bool,
    bits: usize,
    compression: u32,
    /// Red, green, blue, alpha.
    masks: [u32; 4],
    colours: Vec<[u8; 4]>,
    /// Where the pixels begin.
    begin: usize,
}

fn part(bytes: &[u8], at: usize, length: usize) -> Outcome<&[u8]> {
    at.checked_add(length).and_then(|end| bytes.get(at..end)).ok_or_else(|| "it is cut short".to_owned())
}

fn half(bytes: &[u8], at: usize) -> Outcome<usize> {
    part(bytes, at, 2).map(|two| usize::from(u16::from_le_bytes([two[0], two[1]])))
}

fn word(bytes: &[u8], at: usize) -> Outcome<u32> {
    part(bytes, at, 4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]))
}

fn header(bytes: &[u8]) -> Outcome<Header> {
    let (begin, size) = (word(bytes, 10)? as usize, word(bytes, 14)? as usize);
    let is_old = size == 12;
    if !is_old && ![40, 52, 56, 64, 108, 124].contains(&size) {
        return Err(format!("its header of {size} bytes is not known"));
    }
    let (width, height, bits, compression, used) = match is_old {
        true => (half(bytes, 18)? as i32, half(bytes, 20)? as i32, half(bytes, 24)?, RAW, 0),
        false => {
            let (width, height) = (word(bytes, 18)? as i32, word(bytes, 22)? as i32);
            (width, height, half(bytes, 28)?, word(bytes, 30)?, word(bytes, 46)? as usize)
        }
    };
    let width = usize::try_from(width).map_err(|_| "its width is negative")?;
    check_size(height.unsigned_abs() as usize, width)?;
    let mut masks = match bits {
        16 => [0x7c00, 0x3e0, 0x1f, 0],
        _ => [0xff_0000, 0xff00, 0xff, 0],
    };
    if compression == MASKS && !is_old {
        let number = if size >= 56 { 4 } else { 3 };
        for (place, mask) in masks.iter_mut().take(number).enumerate() {
            *mask = word(bytes, 54 + place * 4)?;
        }
    }
    let colours = match bits {
        1 | 4 | 8 => {
            let (length, count) = (if is_old { 3 } else { 4 }, if used == 0 { 1 << bits } else { used.min(256) });
            let table = part(bytes, 14 + size, count * length)?;
            table.chunks_exact(length).map(|colour| [colour[2], colour[1], colour[0], 255]).collect()
        }
        _ => Vec::new(),
    };
    let (height, is_upside_down) = (height.unsigned_abs() as usize, height > 0);
    Ok(Header { height, width, is_upside_down, bits, compression, masks, colours, begin })
}

pub(super) fn decode(bytes: &[u8]) -> Outcome<Pixels> {
    let header = header(bytes)?;
    let Header { height, width, bits, .. } = header;
    let mut pixels = match (bits, header.compression) {
        (1 | 4 | 8, RAW) => with_colours(&header, indices(&header, bytes)?),
        (8, RUNS_OF_8) | (4, RUNS_OF_4) => with_colours(&header, runs(&header, bytes)?),
        (16 | 24 | 32, RAW | MASKS) => direct(&header, bytes)?,
        (bits, kind) => return Err(format!("its {bits} bits for a pixel in compression {kind} are not supported")),
    };
    if header.is_upside_down {
        let rows: Vec<&[u8]> = pixels.data.chunks_exact(width * pixels.mode.channels()).rev().collect();
        pixels.data = rows.concat();
    }
    debug_assert_eq!(pixels.data.len(), height * width * pixels.mode.channels());
    Ok(pixels)
}

/// A palette of greys in their order is none.
fn with_colours(header: &Header, indices: Vec<u8>) -> Pixels {
    let (height, width, count) = (header.height, header.width, header.colours.len());
    let grey = |index: usize| if count == 2 { index as u8 * 255 } else { index as u8 };
    let is_grey = header.colours.iter().enumerate().all(|(index, colour)| colour[..3] == [grey(index); 3]);
    match is_grey {
        true => {
            let data = indices.into_iter().map(|index| grey(usize::from(index))).collect();
            Pixels { mode: Mode::L, height, width, data }
        }
        false => from_palette(height, width, &indices, &header.colours),
    }
}

/// Rows are filled up to words of four bytes.
fn rows<'a>(header: &Header, bytes: &'a [u8]) -> Outcome<impl Iterator<Item = &'a [u8]>> {
    let length = (header.width * header.bits).div_ceil(32) * 4;
    Ok(part(bytes, header.begin, length * header.height)?.chunks_exact(length))
}

fn indices(header: &Header, bytes: &[u8]) -> Outcome<Vec<u8>> {
    let (bits, width) = (header.bits, header.width);
    let each = 8 / bits;
    let most = ((1u16 << bits) - 1) as u8;
    let index = move |row: &[u8], x: usize| row[x / each] >> (8 - bits * (x % each + 1)) & most;
    Ok(rows(header, bytes)?.flat_map(move |row| (0..width).map(move |x| index(row, x))).collect())
}

fn direct(header: &Header, bytes: &[u8]) -> Outcome<Pixels> {
    let (height, width) = (header.height, header.width);
    let mode = if header.masks[3] == 0 { Mode::Rgb } else { Mode::Rgba };
    let masks = &header.masks[..mode.channels()];
    let mut data = Vec::with_capacity(height * width * mode.channels());
    for row in rows(header, bytes)? {
        for pixel in row.chunks_exact(header.bits / 8).take(width) {
            let value = pixel.iter().rev().fold(0, |value: u32, byte| value << 8 | u32::from(*byte));
            data.extend(masks.iter().map(|mask| channel(value, *mask)));
        }
    }
    Ok(Pixels { mode, height, width, data })
}

/// The bits of one mask, stretched to eight.
fn channel(value: u32, mask: u32) -> u8 {
    if mask == 0 {
        return 0;
    }
    let most = u64::from(mask >> mask.trailing_zeros());
    (u64::from((value & mask) >> mask.trailing_zeros()) * 255 / most) as u8
}

/// Runs of one index (or two that take turns), and stretches as they are.
fn runs(header: &Header, bytes: &[u8]) -> Outcome<Vec<u8>> {
    let (width, total) = (header.width, header.width * header.height);
    let is_half = header.compression == RUNS_OF_4;
    let mut made = vec![0; total];
    let (mut at, mut x, mut y) = (header.begin, 0, 0);
    let mut put = |x: usize, y: usize, index: u8| {
        if x < width && y * width + x < total {
            made[y * width + x] = index;
        }
    };
    let nth = |pair: u8, number: usize| match (is_half, number % 2) {
        (false, _) => pair,
        (true, 0) => pair >> 4,
        (true, _) => pair & 15,
    };
    while y < header.height {
        let two = part(bytes, at, 2)?;
        at += 2;
        match (two[0], two[1]) {
            (0, 0) => (x, y) = (0, y + 1),
            (0, 1) => break,
            (0, 2) => {
                let by = part(bytes, at, 2)?;
                (x, y, at) = (x + usize::from(by[0]), y + usize::from(by[1]), at + 2);
            }
            (0, count) => {
                let count = usize::from(count);
                let length = if is_half { count.div_ceil(2) } else { count };
                let stretch = part(bytes, at, length)?;
                (0..count).for_each(|n| put(x + n, y, nth(stretch[if is_half { n / 2 } else { n }], n)));
                (x, at) = (x + count, at + length.next_multiple_of(2));
            }
            (count, pair) => {
                (0..usize::from(count)).for_each(|n| put(x + n, y, nth(pair, n)));
                x += usize::from(count);
            }
        }
    }
    Ok(made)
}
