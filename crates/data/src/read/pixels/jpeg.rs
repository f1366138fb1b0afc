//! JPEG, decoded to the very samples that libjpeg-turbo gives, which is what Pillow and most others have under them.
//!
//! A decoder of our own, because none that builds without a C compiler, an assembler or CMake gives the same pixels: their
//! transforms round differently, and they make up missing colours in other ways, which together is up to 5 of 255. What is
//! exact here: the transform (`transform`), the colours that are stored at half size, and the conversion to RGB (`colour`).
//! Baseline and progressive files of 8 bits are read, with Huffman codes: grey, YCbCr, RGB, CMYK and YCCK.
//! What is damaged is an error, where libjpeg would warn and go on.

mod bits;
mod colour;
mod frame;
mod scan;
mod transform;

#[cfg(target_arch = "x86_64")]
use super::wide::is_wide;
use super::{Mode, Outcome, Pixels};
use bits::Bits;
use colour::Plane;
use frame::{Encoding, Frame, Tables};
use scan::{Block, Scan};

const CUT: &str = "it is cut short";

/// A file, segment by segment.
struct Reader<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// The next marker and what belongs to it; nothing at the end.
    fn segment(&mut self) -> Outcome<Option<(u8, &'a [u8])>> {
        loop {
            // What stands between segments is passed over, as everybody does.
            let Some(next) = memchr::memchr(0xff, &self.data[self.at.min(self.data.len())..]) else { return Ok(None) };
            self.at += next + 1;
            match self.data.get(self.at) {
                None => return Ok(None),
                Some(0xff) => {}
                Some(0 | 1 | 0xd0..=0xd8) => self.at += 1,
                Some(0xd9) => {
                    self.at += 1;
                    return Ok(Some((0xd9, &[])));
                }
                Some(marker) => {
                    let length = self.data.get(self.at + 1..self.at + 3).ok_or(CUT)?;
                    let length = usize::from(length[0]) << 8 | usize::from(length[1]);
                    let begin = self.at + 1;
                    self.at = begin + length;
                    return match self.data.get(begin + 2..begin + length) {
                        Some(segment) => Ok(Some((*marker, segment))),
                        None => Err(CUT.to_owned()),
                    };
                }
            }
        }
    }
}

fn is_frame(marker: u8) -> bool {
    matches!(marker, 0xc0..=0xcf if ![0xc4, 0xc8, 0xcc].contains(&marker))
}

/// What the pixels will be, from the beginning of a file.
pub(super) fn mode(bytes: &[u8]) -> Outcome<Mode> {
    let (mut reader, mut tables) = (Reader { data: bytes, at: 0 }, Tables::default());
    while let Some((marker, segment)) = reader.segment()? {
        if is_frame(marker) {
            let frame = tables.frame(marker, segment)?;
            return Ok(if frame.encoding == Encoding::Grey { Mode::L } else { Mode::Rgb });
        }
        tables.read(marker, segment)?;
    }
    Err("it has no header".to_owned())
}

pub(super) fn decode(bytes: &[u8]) -> Outcome<Pixels> {
    let (mut reader, mut tables) = (Reader { data: bytes, at: 0 }, Tables::default());
    let mut picture: Option<Picture> = None;
    while let Some((marker, segment)) = reader.segment()? {
        match (marker, &mut picture) {
            (0xd9, Some(picture)) => return picture.finish(&tables),
            (0xd9, None) => break,
            (0xda, Some(picture)) => {
                let scan = tables.scan(&picture.frame, segment)?;
                reader.at = picture.read_scan(&scan, &tables, Bits::new(bytes, reader.at))?;
                if picture.is_whole() {
                    // A file without its end may lack more than that; Pillow does not take it either.
                    let end = memchr::memmem::find(&bytes[reader.at.min(bytes.len())..], b"\xff\xd9");
                    return if end.is_some() { picture.finish(&tables) } else { Err(CUT.to_owned()) };
                }
            }
            (marker, None) if is_frame(marker) => picture = Some(Picture::new(tables.frame(marker, segment)?)),
            (marker, Some(_)) if is_frame(marker) => return Err("it has several frames".to_owned()),
            _ => tables.read(marker, segment)?,
        }
    }
    Err(if picture.is_some() { CUT } else { "it has no header" }.to_owned())
}

/// A frame on the way to its samples.
struct Picture {
    frame: Frame,
    planes: Vec<Plane>,
    /// Of a progressive file: all coefficients, until the last scan is read.
    coefficients: Vec<Vec<Block>>,
    /// Which components have been read.
    seen: Vec<bool>,
}

impl Picture {
    fn new(frame: Frame) -> Self {
        let plane =
            |one: &frame::Component| Plane { samples: vec![0; one.columns * one.rows * 64], stride: one.columns * 8 };
        let planes = frame.components.iter().map(plane).collect();
        let coefficients = match frame.is_progressive {
            true => frame.components.iter().map(|one| vec![[0; 64]; one.columns * one.rows]).collect(),
            false => Vec::new(),
        };
        let seen = vec![false; frame.components.len()];
        Self { frame, planes, coefficients, seen }
    }

    /// A baseline file has nothing to add to what was read once; a progressive one may, until it ends.
    fn is_whole(&self) -> bool {
        !self.frame.is_progressive && self.seen.iter().all(|seen| *seen)
    }

    /// Returns where the scan ends.
    fn read_scan(&mut self, scan: &Scan<'_>, tables: &Tables, mut bits: Bits<'_>) -> Outcome<usize> {
        for part in &scan.parts {
            self.seen[part.component] = true;
        }
        if self.frame.is_progressive {
            scan.progressive(&self.frame, &mut bits, &mut self.coefficients)?;
            return Ok(bits.at());
        }
        let steps: Vec<_> = self.frame.components.iter().map(|one| tables.quantisation(one)).collect();
        for part in &scan.parts {
            steps[part.component].clone()?;
        }
        let planes = &mut self.planes;
        scan.baseline(&self.frame, &mut bits, |component, column, row, block, is_flat| {
            let Ok(steps) = steps[component] else { return };
            let plane = &mut planes[component];
            let to = &mut plane.samples[row * 8 * plane.stride + column * 8..];
            match is_flat {
                true => transform::flat(block, steps, to, plane.stride),
                false => transform::samples(block, steps, to, plane.stride),
            }
        })?;
        Ok(bits.at())
    }

    fn finish(&mut self, tables: &Tables) -> Outcome<Pixels> {
        if !self.seen.iter().all(|seen| *seen) {
            return Err(CUT.to_owned());
        }
        for (number, blocks) in self.coefficients.iter().enumerate() {
            let component = &self.frame.components[number];
            let steps = tables.quantisation(component)?;
            let plane = &mut self.planes[number];
            for (place, block) in blocks.iter().enumerate() {
                let (column, row) = (place % component.columns, place / component.columns);
                let to = &mut plane.samples[row * 8 * plane.stride + column * 8..];
                transform::samples(block, steps, to, plane.stride);
            }
        }
        let data = colour::pixels(&self.frame, &self.planes)?;
        let (height, width) = (self.frame.height, self.frame.width);
        Ok(match self.frame.encoding {
            Encoding::Grey => Pixels { mode: Mode::L, height, width, data },
            Encoding::Rgb | Encoding::Ycc => Pixels { mode: Mode::Rgb, height, width, data },
            // The inks of such files are stored the other way round, by Adobe's convention.
            Encoding::Cmyk | Encoding::Ycck => super::from_cmyk(height, width, &data, 255),
        })
    }
}
