//! One scan: the coefficients of blocks, at once (baseline) or in several approaches (progressive).

use super::Outcome;
use super::bits::{Bits, Codes};
use super::frame::{Component, Frame};

/// Where the coefficients of a block, in the order of a file, lie in it.
pub(super) const NATURAL: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
    28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63,
];

pub(super) type Block = [i16; 64];

/// What a scan holds: of which components, which coefficients, and which of their bits.
pub(super) struct Scan<'a> {
    pub parts: Vec<Part<'a>>,
    pub begin: usize,
    pub end: usize,
    pub high: u32,
    pub low: u32,
    pub restart: usize,
}

pub(super) struct Part<'a> {
    pub component: usize,
    pub direct: Option<&'a Codes>,
    pub alternating: Option<&'a Codes>,
}

/// What goes from block to block.
struct State<'a, 'b> {
    bits: &'b mut Bits<'a>,
    before: [i32; 4],
    /// How many blocks more have nothing new in this scan.
    empty: u32,
}

impl Scan<'_> {
    /// Calls `done` for each block of a baseline scan with its component, column, row, and whether only its mean is not zero.
    pub fn baseline(
        &self,
        frame: &Frame,
        bits: &mut Bits<'_>,
        mut done: impl FnMut(usize, usize, usize, &Block, bool),
    ) -> Outcome<()> {
        self.each_block(frame, bits, |state, part, column, row| {
            let mut block = [0; 64];
            let is_flat = self.whole_block(state, part, &mut block)?;
            done(self.parts[part].component, column, row, &block, is_flat);
            Ok(())
        })
    }

    pub fn progressive(&self, frame: &Frame, bits: &mut Bits<'_>, all: &mut [Vec<Block>]) -> Outcome<()> {
        self.each_block(frame, bits, |state, part, column, row| {
            let component = self.parts[part].component;
            let block = &mut all[component][row * frame.components[component].columns + column];
            match (self.begin, self.high) {
                (0, 0) => self.first_mean(state, part, block),
                (0, _) => {
                    if state.bits.bit() {
                        block[0] |= 1 << self.low;
                    }
                    Ok(())
                }
                (_, 0) => self.first_rest(state, part, block),
                _ => self.refine_rest(state, part, block),
            }
        })
    }

    fn each_block<'a>(
        &self,
        frame: &Frame,
        bits: &mut Bits<'a>,
        mut block: impl FnMut(&mut State<'a, '_>, usize, usize, usize) -> Outcome<()>,
    ) -> Outcome<()> {
        let mut state = State { bits, before: [0; 4], empty: 0 };
        let alone = match &self.parts[..] {
            [part] => Some(&frame.components[part.component]),
            _ => None,
        };
        // A component that is alone has only the blocks that are seen.
        let (columns, rows) = match alone {
            Some(component) => (component.width.div_ceil(8), component.height.div_ceil(8)),
            None => (frame.columns, frame.rows),
        };
        let mut until_restart = self.restart;
        for row in 0..rows {
            for column in 0..columns {
                if self.restart > 0 && until_restart == 0 {
                    state.bits.restart()?;
                    (state.before, state.empty, until_restart) = ([0; 4], 0, self.restart);
                }
                until_restart = until_restart.wrapping_sub(1);
                if alone.is_some() {
                    block(&mut state, 0, column, row)?;
                    continue;
                }
                for (number, part) in self.parts.iter().enumerate() {
                    let Component { across, down, .. } = frame.components[part.component];
                    for y in 0..down {
                        for x in 0..across {
                            block(&mut state, number, column * across + x, row * down + y)?;
                        }
                    }
                }
            }
            state.bits.check()?;
        }
        Ok(())
    }

    fn mean(&self, state: &mut State<'_, '_>, part: usize) -> Outcome<i32> {
        let codes = self.parts[part].direct.ok_or("a table of its codes is missing")?;
        state.bits.fill();
        let size = u32::from(state.bits.symbol(codes)?);
        if size > 15 {
            return Err("a coefficient in it is too long".to_owned());
        }
        let change = state.bits.signed(size);
        state.before[part] = state.before[part].wrapping_add(change);
        Ok(state.before[part])
    }

    /// Whether there is nothing but the mean.
    #[inline(always)]
    fn whole_block(&self, state: &mut State<'_, '_>, part: usize, block: &mut Block) -> Outcome<bool> {
        block[0] = self.mean(state, part)? as i16;
        let codes = self.parts[part].alternating.ok_or("a table of its codes is missing")?;
        let mut at = 1;
        while at < 64 {
            state.bits.fill();
            let (zeros, value) = match state.bits.short_coefficient(codes) {
                Some(found) => found,
                None => {
                    let symbol = state.bits.symbol(codes)?;
                    match symbol & 15 {
                        0 if symbol == 0xf0 => {
                            at += 16;
                            continue;
                        }
                        0 => break,
                        size => (usize::from(symbol >> 4), state.bits.signed(u32::from(size)) as i16),
                    }
                }
            };
            at += zeros;
            *place(block, at)? = value;
            at += 1;
        }
        Ok(at == 1)
    }

    fn first_mean(&self, state: &mut State<'_, '_>, part: usize, block: &mut Block) -> Outcome<()> {
        block[0] = (self.mean(state, part)? << self.low) as i16;
        Ok(())
    }

    fn first_rest(&self, state: &mut State<'_, '_>, part: usize, block: &mut Block) -> Outcome<()> {
        if state.empty > 0 {
            state.empty -= 1;
            return Ok(());
        }
        let codes = self.parts[part].alternating.ok_or("a table of its codes is missing")?;
        let mut at = self.begin;
        while at <= self.end {
            state.bits.fill();
            let symbol = state.bits.symbol(codes)?;
            let (zeros, size) = (symbol >> 4, u32::from(symbol & 15));
            match (zeros, size) {
                (15, 0) => at += 16,
                (zeros, 0) => {
                    state.empty = (1 << zeros) - 1 + state.bits.take(u32::from(zeros)) as u32;
                    break;
                }
                (zeros, size) => {
                    at += usize::from(zeros);
                    let value = state.bits.signed(size);
                    *place(block, at)? = (value << self.low) as i16;
                    at += 1;
                }
            }
        }
        Ok(())
    }

    /// One bit more of what is not zero, and what was too small to be seen before.
    fn refine_rest(&self, state: &mut State<'_, '_>, part: usize, block: &mut Block) -> Outcome<()> {
        let codes = self.parts[part].alternating.ok_or("a table of its codes is missing")?;
        let unit = 1i16 << self.low;
        let mut at = self.begin;
        while at <= self.end && state.empty == 0 {
            state.bits.fill();
            let symbol = state.bits.symbol(codes)?;
            let mut zeros = symbol >> 4;
            let new = match symbol & 15 {
                0 if zeros == 15 => 0,
                0 => {
                    state.empty = (1 << zeros) + state.bits.take(u32::from(zeros)) as u32;
                    break;
                }
                1 => {
                    if state.bits.take(1) == 1 {
                        unit
                    } else {
                        -unit
                    }
                }
                _ => return Err("a refinement in it is too long".to_owned()),
            };
            while at <= self.end {
                let value = place(block, at)?;
                if *value != 0 {
                    refine(state, value, unit);
                } else if zeros == 0 {
                    *value = new;
                    at += 1;
                    break;
                } else {
                    zeros -= 1;
                }
                at += 1;
            }
        }
        if state.empty > 0 {
            for at in at..=self.end {
                let value = place(block, at)?;
                if *value != 0 {
                    refine(state, value, unit);
                }
            }
            state.empty -= 1;
        }
        Ok(())
    }
}

fn refine(state: &mut State<'_, '_>, value: &mut i16, unit: i16) {
    if state.bits.bit() && *value & unit == 0 {
        *value = value.wrapping_add(if *value > 0 { unit } else { -unit });
    }
}

#[inline(always)]
fn place(block: &mut Block, at: usize) -> Outcome<&mut i16> {
    match NATURAL.get(at) {
        Some(place) => Ok(&mut block[usize::from(*place)]),
        None => Err("a block in it has too many coefficients".to_owned()),
    }
}
