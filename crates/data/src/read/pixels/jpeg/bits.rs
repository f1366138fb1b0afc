//! The entropy-coded bits of a scan, and the Huffman codes in them.
//!
//! BITS-1: behind the end of a segment there are zeros, which are counted: whoever used one of them has read too far.

use super::Outcome;

/// Codes up to this length are found in one step.
const LOOK: u32 = 10;

pub(super) struct Bits<'a> {
    data: &'a [u8],
    at: usize,
    /// The next bits, from the top.
    held: u64,
    count: u32,
    /// How many of the bits that are held, the last ones, are zeros from behind the end.
    beyond: u32,
}

impl<'a> Bits<'a> {
    pub fn new(data: &'a [u8], at: usize) -> Self {
        Self { data, at, held: 0, count: 0, beyond: 0 }
    }

    /// At a marker, or before it.
    pub fn at(&self) -> usize {
        self.at
    }

    /// At least 32 bits are there afterwards.
    #[inline(always)]
    pub fn fill(&mut self) {
        if self.count >= 32 {
            return;
        }
        if let Some(next) = self.data.get(self.at..self.at + 8) {
            let word = u64::from_be_bytes(next.try_into().expect("eight bytes"));
            // Without a byte of ones there is neither a marker nor a stuffed zero.
            if (!word).wrapping_sub(0x0101_0101_0101_0101) & word & 0x8080_8080_8080_8080 == 0 {
                let bytes = (63 - self.count) / 8;
                self.held |= word >> self.count & !(u64::MAX >> (self.count + bytes * 8));
                self.count += bytes * 8;
                self.at += bytes as usize;
                return;
            }
        }
        self.fill_slowly();
    }

    #[inline(never)]
    fn fill_slowly(&mut self) {
        while self.count <= 48 {
            let byte = match (self.data.get(self.at), self.data.get(self.at + 1)) {
                (Some(0xff), Some(0)) => {
                    self.at += 2;
                    Some(0xff)
                }
                (Some(0xff) | None, _) => None,
                (Some(byte), _) => {
                    self.at += 1;
                    Some(*byte)
                }
            };
            if byte.is_none() {
                self.beyond += 8;
            }
            self.held |= u64::from(byte.unwrap_or(0)) << (56 - self.count);
            self.count += 8;
        }
    }

    #[inline(always)]
    fn skip(&mut self, count: u32) {
        self.held <<= count;
        self.count -= count;
    }

    /// Up to 16 bits, that are there.
    #[inline(always)]
    pub fn take(&mut self, count: u32) -> i32 {
        let value = (self.held >> 1 >> (63 - count)) as i32;
        self.skip(count);
        value
    }

    pub fn bit(&mut self) -> bool {
        self.fill();
        self.take(1) == 1
    }

    /// A number of so many bits, half of which are negative.
    #[inline(always)]
    pub fn signed(&mut self, count: u32) -> i32 {
        let value = self.take(count);
        if count > 0 && value < 1 << (count - 1) { value - (1 << count) + 1 } else { value }
    }

    #[inline(always)]
    pub fn symbol(&mut self, codes: &Codes) -> Outcome<u8> {
        let (length, symbol) = codes.short[(self.held >> (64 - LOOK)) as usize];
        if length > 0 {
            self.skip(u32::from(length));
            return Ok(symbol);
        }
        self.long_symbol(codes)
    }

    #[inline(never)]
    fn long_symbol(&mut self, codes: &Codes) -> Outcome<u8> {
        let next = (self.held >> 48) as u32;
        for length in LOOK + 1..=16 {
            let code = next >> (16 - length);
            let (end, shift) = codes.long[length as usize];
            if code < end {
                self.skip(length);
                return Ok(codes.symbols[(code as i32 + shift) as usize]);
            }
        }
        Err("a code in it is not one of its codes".to_owned())
    }

    /// A coefficient with the zeros before it, where its code and its value are short together.
    #[inline(always)]
    pub fn short_coefficient(&mut self, codes: &Codes) -> Option<(usize, i16)> {
        let found = codes.coefficients[(self.held >> (64 - LOOK)) as usize];
        if found.bits == 0 {
            return None;
        }
        self.skip(u32::from(found.bits));
        Some((usize::from(found.zeros), found.value))
    }

    pub fn check(&self) -> Outcome<()> {
        if self.count < self.beyond { Err("it is cut short".to_owned()) } else { Ok(()) }
    }

    /// Goes on behind the next restart marker.
    pub fn restart(&mut self) -> Outcome<()> {
        self.check()?;
        let mut at = self.at;
        while self.data.get(at) == Some(&0xff) && self.data.get(at + 1) == Some(&0xff) {
            at += 1;
        }
        if !matches!(self.data.get(at..at + 2), Some([0xff, 0xd0..=0xd7])) {
            return Err("a restart marker is missing".to_owned());
        }
        *self = Self::new(self.data, at + 2);
        Ok(())
    }
}

#[derive(Clone, Copy, Default)]
struct Short {
    bits: u8,
    zeros: u8,
    value: i16,
}

/// One Huffman table.
pub(super) struct Codes {
    symbols: Vec<u8>,
    /// Length and symbol by the next bits; of length 0 where the code is longer.
    short: Vec<(u8, u8)>,
    /// For each length: the first code that is longer, and what leads from a code to its symbol.
    long: [(u32, i32); 17],
    coefficients: Vec<Short>,
}

impl Codes {
    /// How many codes there are of each length, and their symbols.
    pub fn new(counts: &[u8; 16], symbols: &[u8]) -> Outcome<Self> {
        let wrong = || "a table of its codes is impossible".to_owned();
        let mut short = vec![(0, 0); 1 << LOOK];
        let mut long = [(0, 0); 17];
        let (mut code, mut number) = (0u32, 0usize);
        for length in 1..=16u32 {
            let count = usize::from(counts[length as usize - 1]);
            if code as usize + count > 1 << length || number + count > symbols.len() {
                return Err(wrong());
            }
            long[length as usize] = (code + count as u32, number as i32 - code as i32);
            for symbol in &symbols[number..number + count] {
                if length <= LOOK {
                    let begin = (code << (LOOK - length)) as usize;
                    short[begin..begin + (1 << (LOOK - length))].fill((length as u8, *symbol));
                }
                code += 1;
            }
            number += count;
            code <<= 1;
        }
        let coefficients = (0..1u64 << LOOK).map(|next| coefficient(next, short[next as usize])).collect();
        Ok(Self { symbols: symbols.to_vec(), short, long, coefficients })
    }
}

fn coefficient(next: u64, (length, symbol): (u8, u8)) -> Short {
    let size = u32::from(symbol & 15);
    if length == 0 || size == 0 || u32::from(length) + size > LOOK {
        return Short::default();
    }
    let mut bits = Bits { data: &[], at: 0, held: next << (64 - LOOK), count: 64, beyond: 0 };
    bits.skip(u32::from(length));
    Short { bits: length + size as u8, zeros: symbol >> 4, value: bits.signed(size) as i16 }
}
