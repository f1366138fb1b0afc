//! What the segments of a JPEG file say of its picture, before and between its scans.

use super::Outcome;
use super::bits::Codes;
use super::scan::{NATURAL, Part, Scan};
use super::transform::Quantisation;

/// What the components mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Grey,
    Rgb,
    Ycc,
    Cmyk,
    Ycck,
}

pub(super) struct Component {
    id: u8,
    /// Blocks in each unit of a scan that has several components.
    pub across: usize,
    pub down: usize,
    quantisation: usize,
    /// Its own samples.
    pub width: usize,
    pub height: usize,
    /// Blocks, with those that only fill up the last unit.
    pub columns: usize,
    pub rows: usize,
}

pub(super) struct Frame {
    pub width: usize,
    pub height: usize,
    pub is_progressive: bool,
    pub encoding: Encoding,
    pub components: Vec<Component>,
    /// The largest of the components'.
    pub across: usize,
    pub down: usize,
    /// Units of a scan that has several components.
    pub columns: usize,
    pub rows: usize,
}

/// What segments have set up so far.
#[derive(Default)]
pub(super) struct Tables {
    quantisations: [Option<Box<Quantisation>>; 4],
    direct: [Option<Codes>; 4],
    alternating: [Option<Codes>; 4],
    restart: usize,
    has_jfif: bool,
    adobe: Option<u8>,
}

/// The bytes of a segment, taken from the front.
struct Segment<'a>(&'a [u8]);

impl<'a> Segment<'a> {
    fn take(&mut self, count: usize) -> Outcome<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("one of its segments is too short")?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Outcome<u8> {
        Ok(self.take(1)?[0])
    }

    fn halves(&mut self) -> Outcome<(u8, u8)> {
        let byte = self.byte()?;
        Ok((byte >> 4, byte & 15))
    }

    fn word(&mut self) -> Outcome<usize> {
        let two = self.take(2)?;
        Ok(usize::from(two[0]) << 8 | usize::from(two[1]))
    }
}

impl Tables {
    /// A segment that is no frame and no scan.
    pub fn read(&mut self, marker: u8, segment: &[u8]) -> Outcome<()> {
        let mut segment = Segment(segment);
        match marker {
            0xdb => self.read_quantisations(&mut segment),
            0xc4 => self.read_codes(&mut segment),
            0xdd => {
                self.restart = segment.word()?;
                Ok(())
            }
            0xe0 if segment.0.starts_with(b"JFIF\0") => {
                self.has_jfif = true;
                Ok(())
            }
            0xee if segment.0.starts_with(b"Adobe") && segment.0.len() >= 12 => {
                self.adobe = Some(segment.0[11]);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn read_quantisations(&mut self, segment: &mut Segment<'_>) -> Outcome<()> {
        while !segment.0.is_empty() {
            let (precision, number) = segment.halves()?;
            let mut table = Box::new([0; 64]);
            for place in NATURAL {
                let value = if precision == 0 { usize::from(segment.byte()?) } else { segment.word()? };
                table[usize::from(place)] = value as i32;
            }
            *self.quantisations.get_mut(usize::from(number)).ok_or("a table has an impossible number")? = Some(table);
        }
        Ok(())
    }

    fn read_codes(&mut self, segment: &mut Segment<'_>) -> Outcome<()> {
        while !segment.0.is_empty() {
            let (class, number) = segment.halves()?;
            let counts: &[u8; 16] = segment.take(16)?.try_into().expect("sixteen bytes");
            let symbols = segment.take(counts.iter().map(|count| usize::from(*count)).sum())?;
            let tables = if class == 0 { &mut self.direct } else { &mut self.alternating };
            let table = tables.get_mut(usize::from(number)).ok_or("a table has an impossible number")?;
            *table = Some(Codes::new(counts, symbols)?);
        }
        Ok(())
    }

    pub fn frame(&self, marker: u8, segment: &[u8]) -> Outcome<Frame> {
        let mut segment = Segment(segment);
        if !matches!(marker, 0xc0..=0xc2) {
            return Err(match marker {
                0xc9..=0xcf => "its arithmetic coding is not supported".to_owned(),
                _ => "its lossless or hierarchical coding is not supported".to_owned(),
            });
        }
        if segment.byte()? != 8 {
            return Err("it has another number of bits than 8 for a sample".to_owned());
        }
        let (height, width) = (segment.word()?, segment.word()?);
        super::super::check_size(height, width)?;
        let number = usize::from(segment.byte()?);
        let mut components = Vec::with_capacity(number);
        for _ in 0..number {
            let id = segment.byte()?;
            let (across, down) = segment.halves()?;
            let quantisation = usize::from(segment.byte()?);
            if !(1..=4).contains(&across) || !(1..=4).contains(&down) || quantisation > 3 {
                return Err("its colours are stored in an impossible way".to_owned());
            }
            let (across, down) = (usize::from(across), usize::from(down));
            components.push(Component { id, across, down, quantisation, width: 0, height: 0, columns: 0, rows: 0 });
        }
        let encoding = self.encoding(&components)?;
        let (across, down) =
            components.iter().fold((1, 1), |(across, down), one| (one.across.max(across), one.down.max(down)));
        let (columns, rows) = (width.div_ceil(8 * across), height.div_ceil(8 * down));
        for one in &mut components {
            one.width = (width * one.across).div_ceil(across);
            one.height = (height * one.down).div_ceil(down);
            (one.columns, one.rows) = (columns * one.across, rows * one.down);
        }
        let is_progressive = marker == 0xc2;
        Ok(Frame { width, height, is_progressive, encoding, components, across, down, columns, rows })
    }

    /// By the rules of libjpeg, for files that do not say it.
    fn encoding(&self, components: &[Component]) -> Outcome<Encoding> {
        let ids: Vec<u8> = components.iter().map(|one| one.id).collect();
        Ok(match (components.len(), self.has_jfif, self.adobe) {
            (1, ..) => Encoding::Grey,
            (3, true, _) => Encoding::Ycc,
            (3, _, Some(0)) => Encoding::Rgb,
            (3, _, None) if ids == *b"RGB" => Encoding::Rgb,
            (3, ..) => Encoding::Ycc,
            (4, _, Some(2)) => Encoding::Ycck,
            (4, ..) => Encoding::Cmyk,
            (number, ..) => return Err(format!("it has {number} components, which is not supported")),
        })
    }

    pub fn quantisation(&self, component: &Component) -> Outcome<&Quantisation> {
        Ok(self.quantisations[component.quantisation].as_deref().ok_or("a table of its steps is missing")?)
    }

    pub fn scan(&self, frame: &Frame, segment: &[u8]) -> Outcome<Scan<'_>> {
        let mut segment = Segment(segment);
        let number = usize::from(segment.byte()?);
        let mut parts: Vec<Part<'_>> = Vec::with_capacity(number);
        for _ in 0..number {
            let id = segment.byte()?;
            let (direct, alternating) = segment.halves()?;
            let component = frame.components.iter().position(|one| one.id == id);
            let component = component.ok_or("a scan is of a component that is not there")?;
            if parts.iter().any(|part| part.component == component) {
                return Err("a scan has a component twice".to_owned());
            }
            let table = |tables: &'_ [Option<Codes>; 4], number: u8| tables.get(usize::from(number)).is_some();
            if !table(&self.direct, direct) || !table(&self.alternating, alternating) {
                return Err("a table has an impossible number".to_owned());
            }
            let direct = self.direct[usize::from(direct)].as_ref();
            parts.push(Part { component, direct, alternating: self.alternating[usize::from(alternating)].as_ref() });
        }
        let (begin, end) = (usize::from(segment.byte()?), usize::from(segment.byte()?));
        let (high, low) = segment.halves()?;
        let is_possible = match frame.is_progressive {
            false => true,
            true => begin <= end && end < 64 && low < 14 && (begin > 0 || end == 0) && (begin == 0 || number == 1),
        };
        if parts.is_empty() || !is_possible {
            return Err("a scan is impossible".to_owned());
        }
        Ok(Scan { parts, begin, end, high: u32::from(high), low: u32::from(low), restart: self.restart })
    }
}
