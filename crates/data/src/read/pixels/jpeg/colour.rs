//! From planes of samples to pixels: the missing samples of colour as libjpeg makes them up, and its conversion to RGB.
//!
//! Colours that are stored at half the size are weighted three to one between the two nearest samples, in each direction,
//! with libjpeg's own rounding; other ratios are repeated.

use super::Outcome;
use super::frame::{Component, Encoding, Frame};
use crate::read::pixels::wide::wide;

/// Samples of one component, of which rows are `stride` apart.
pub(super) struct Plane {
    pub samples: Vec<u8>,
    pub stride: usize,
}

impl Plane {
    fn row<'a>(&'a self, component: &Component, row: usize) -> &'a [u8] {
        let row = row.min(component.height - 1);
        &self.samples[row * self.stride..row * self.stride + component.width]
    }
}

/// How many samples of a component there are for one that it stores.
#[derive(Clone, Copy)]
struct Ratio {
    across: usize,
    down: usize,
}

/// The pixels in rows, of as many channels as there are components.
pub(super) fn pixels(frame: &Frame, planes: &[Plane]) -> Outcome<Vec<u8>> {
    let ratios = ratios(frame)?;
    let channels = frame.components.len();
    let mut data = vec![0; frame.width * frame.height * channels];
    let mut rows: Vec<Vec<u8>> = frame.components.iter().map(|one| vec![0; (one.width + 1) * 8]).collect();
    let mut sums = vec![0; frame.width + 8];
    for (y, out) in data.chunks_exact_mut(frame.width * channels).enumerate() {
        for (number, component) in frame.components.iter().enumerate() {
            upsample(&planes[number], component, ratios[number], y, &mut rows[number], &mut sums);
        }
        join(frame, &mut rows, out);
    }
    Ok(data)
}

fn ratios(frame: &Frame) -> Outcome<Vec<Ratio>> {
    let ratio = |component: &Component| match (frame.across % component.across, frame.down % component.down) {
        (0, 0) => Ok(Ratio { across: frame.across / component.across, down: frame.down / component.down }),
        _ => Err("its colours are stored in a ratio that is not supported".to_owned()),
    };
    frame.components.iter().map(ratio).collect()
}

fn upsample(plane: &Plane, component: &Component, ratio: Ratio, y: usize, to: &mut [u8], sums: &mut [u16]) {
    let row = y / ratio.down;
    let here = plane.row(component, row);
    // The row that is second nearest: above for the upper half of a sample, below for the lower.
    let other = match y % 2 {
        0 => plane.row(component, row.saturating_sub(1)),
        _ => plane.row(component, row + 1),
    };
    match (ratio.across, ratio.down) {
        (1, 1) => to[..here.len()].copy_from_slice(here),
        (2, 1) if here.len() > 2 => wide(|| double(here, to)),
        (1, 2) => {
            let half = if y.is_multiple_of(2) { 1 } else { 2 };
            for (to, (here, other)) in to.iter_mut().zip(here.iter().zip(other)) {
                *to = ((u16::from(*here) * 3 + u16::from(*other) + half) >> 2) as u8;
            }
        }
        (2, 2) if here.len() > 2 => wide(|| double_both(here, other, to, sums)),
        (across, _) => {
            for (to, sample) in to.chunks_exact_mut(across).zip(here) {
                to.fill(*sample);
            }
        }
    }
}

#[inline(always)]
fn double(here: &[u8], to: &mut [u8]) {
    let last = here.len() - 1;
    let to = &mut to[..here.len() * 2];
    for (pair, three) in to[2..].chunks_exact_mut(2).zip(here.windows(3)) {
        let sample = u16::from(three[1]) * 3;
        pair[0] = ((sample + u16::from(three[0]) + 1) >> 2) as u8;
        pair[1] = ((sample + u16::from(three[2]) + 2) >> 2) as u8;
    }
    to[0] = here[0];
    to[1] = ((u16::from(here[0]) * 3 + u16::from(here[1]) + 2) >> 2) as u8;
    to[2 * last] = ((u16::from(here[last]) * 3 + u16::from(here[last - 1]) + 1) >> 2) as u8;
    to[2 * last + 1] = here[last];
}

#[inline(always)]
fn double_both(here: &[u8], other: &[u8], to: &mut [u8], sums: &mut [u16]) {
    let sums = &mut sums[..here.len()];
    for (sum, (here, other)) in sums.iter_mut().zip(here.iter().zip(other)) {
        *sum = u16::from(*here) * 3 + u16::from(*other);
    }
    let last = here.len() - 1;
    let to = &mut to[..here.len() * 2];
    for (pair, three) in to[2..].chunks_exact_mut(2).zip(sums.windows(3)) {
        pair[0] = ((three[1] * 3 + three[0] + 8) >> 4) as u8;
        pair[1] = ((three[1] * 3 + three[2] + 7) >> 4) as u8;
    }
    to[0] = ((sums[0] * 4 + 8) >> 4) as u8;
    to[1] = ((sums[0] * 3 + sums[1] + 7) >> 4) as u8;
    to[2 * last] = ((sums[last] * 3 + sums[last - 1] + 8) >> 4) as u8;
    to[2 * last + 1] = ((sums[last] * 4 + 7) >> 4) as u8;
}

/// Makes pixels of the rows of all components, which are changed on the way.
fn join(frame: &Frame, rows: &mut [Vec<u8>], out: &mut [u8]) {
    let width = frame.width;
    match rows {
        [grey] => out.copy_from_slice(&grey[..width]),
        [first, second, third, rest @ ..] => {
            let (first, second, third) = (&mut first[..width], &mut second[..width], &mut third[..width]);
            if matches!(frame.encoding, Encoding::Ycc | Encoding::Ycck) {
                wide(|| to_rgb(first, second, third));
            }
            match rest {
                [] => {
                    for (pixel, x) in out.chunks_exact_mut(3).zip(0..width) {
                        (pixel[0], pixel[1], pixel[2]) = (first[x], second[x], third[x]);
                    }
                }
                [fourth, ..] => {
                    // What was red is how much of it is taken away by its ink.
                    let flip = if frame.encoding == Encoding::Ycck { 255 } else { 0 };
                    for (pixel, x) in out.chunks_exact_mut(4).zip(0..width) {
                        let inks = [first[x] ^ flip, second[x] ^ flip, third[x] ^ flip, fourth[x]];
                        pixel.copy_from_slice(&inks);
                    }
                }
            }
        }
        _ => unreachable!("a frame has one, three or four components"),
    }
}

/// In place: luminance and two differences become red, green and blue.
#[inline(always)]
fn to_rgb(first: &mut [u8], second: &mut [u8], third: &mut [u8]) {
    const HALF: i32 = 1 << 15;
    for ((first, second), third) in first.iter_mut().zip(second.iter_mut()).zip(third.iter_mut()) {
        let (y, blue, red) = (i32::from(*first), i32::from(*second) - 128, i32::from(*third) - 128);
        *first = (y + ((red * 91_881 + HALF) >> 16)).clamp(0, 255) as u8;
        *second = (y + ((HALF - blue * 22_554 - red * 46_802) >> 16)).clamp(0, 255) as u8;
        *third = (y + ((blue * 116_130 + HALF) >> 16)).clamp(0, 255) as u8;
    }
}
