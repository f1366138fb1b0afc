//! Files of lines, cut into units and pieces that hold whole records.
//!
//! RECORDS-1: a record is in exactly one piece, also where a quoted value has line ends in it.
//! Only `\n` is a place for a cut: a file whose lines end in `\r` alone is one piece.

use std::io::Read;

use bytes::Bytes;
use memchr::{memchr, memrchr};

use crate::error::DataError;
use crate::files::FileRef;
use crate::read::compression::Compression;
use crate::source::Unit;

/// The length of a unit of a file that is not compressed. How many rows it has is not known: what ranks have left of such units at the end of an
/// epoch is read by all of them.
const UNIT: u64 = 4 << 20;
/// What is looked through, or unpacked, at a time.
const PIECE: usize = 8 << 20;
const NEAR: u64 = 256 << 10;

/// A range of bytes of a file that is not compressed, or all of one that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub file: usize,
    pub begin: u64,
    /// Nothing for all of a compressed file.
    pub end: Option<u64>,
}

/// How the ends of records are distinguished from other line ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ends {
    Lines,
    Quoted {
        quote: u8,
        delimiter: u8,
    },
    /// Only the end of the file is one.
    Whole,
}

/// Cuts a file from `begin` on, which is where its first record is.
pub(crate) fn cut(file: &FileRef, index: usize, begin: u64, ends: Ends) -> Result<Vec<Extent>, DataError> {
    cut_at(file, index, begin, ends, UNIT)
}

pub(crate) fn cut_at(
    file: &FileRef,
    index: usize,
    begin: u64,
    ends: Ends,
    length: u64,
) -> Result<Vec<Extent>, DataError> {
    if file.compression() != Compression::None {
        return Ok(vec![Extent { file: index, begin, end: None }]);
    }
    let mut cuts = vec![begin];
    // A rest that is shorter than half a unit stays with the unit before it.
    let worth = |at: u64| at + length / 2 < file.size;
    match ends {
        Ends::Whole => {}
        Ends::Lines => {
            let mut target = begin + length;
            while worth(target) {
                let Some(next) = next_line(file, target)? else { break };
                cuts.push(next);
                target = next + length;
            }
        }
        Ends::Quoted { quote, delimiter } if worth(begin + length) => {
            let mut quotes = Quotes::new(quote, delimiter);
            let mut target = begin + length;
            let mut offset = begin;
            while offset < file.size {
                let bytes = file.read_range(offset..file.size.min(offset + PIECE as u64))?;
                quotes.pass(&bytes, |from, to| {
                    while target < offset + to as u64 && worth(target) {
                        let from = from.max(target.saturating_sub(offset) as usize);
                        let Some(found) = memchr(b'\n', &bytes[from..to]) else { break };
                        let next = offset + (from + found + 1) as u64;
                        cuts.push(next);
                        target = next + length;
                    }
                });
                offset += bytes.len() as u64;
            }
        }
        Ends::Quoted { .. } => {}
    }
    cuts.retain(|at| *at < file.size || *at == begin);
    let ends = cuts.iter().skip(1).copied().chain([file.size]);
    Ok(cuts.iter().zip(ends).map(|(begin, end)| Extent { file: index, begin: *begin, end: Some(end) }).collect())
}

fn next_line(file: &FileRef, target: u64) -> Result<Option<u64>, DataError> {
    let mut from = target;
    while from < file.size {
        let to = file.size.min(from + NEAR);
        let bytes = file.read_range(from..to)?;
        if let Some(at) = memchr(b'\n', &bytes) {
            return Ok(Some(from + at as u64 + 1));
        }
        from = to;
    }
    Ok(None)
}

impl Extent {
    /// `times` is how much larger the rows are in memory than in the file.
    pub fn unit(&self, files: &[FileRef], times: u64) -> Unit {
        let bytes = match self.end {
            Some(end) => end.saturating_sub(self.begin),
            None => files[self.file].size * 4,
        };
        Unit { bytes: bytes * times, ..Unit::default() }
    }

    /// Hands over pieces that hold whole records, each with its offset in the plain text, until `take` says false.
    pub fn pieces(
        &self,
        files: &[FileRef],
        ends: Ends,
        take: &mut dyn FnMut(u64, Bytes) -> Result<bool, DataError>,
    ) -> Result<(), DataError> {
        let file = &files[self.file];
        if let Some(end) = self.end {
            if self.begin < end {
                bounded(file, self.begin, end - self.begin, ends)?;
                take(self.begin, file.read_range(self.begin..end)?)?;
            }
            return Ok(());
        }
        let damaged = |error| DataError::damaged(&file.name, None, error);
        let mut plain = file.stream_plain().map_err(damaged)?;
        std::io::copy(&mut plain.by_ref().take(self.begin), &mut std::io::sink()).map_err(damaged)?;
        let mut offset = self.begin;
        let mut rest: Vec<u8> = Vec::new();
        loop {
            let before = rest.len();
            // What holds no end is looked through again with as much more: once for each byte, however long a record is.
            let more = PIECE.max(before) as u64;
            let read = plain.by_ref().take(more).read_to_end(&mut rest).map_err(damaged)?;
            if read == 0 {
                if before > 0 {
                    take(offset, rest.into())?;
                }
                return Ok(());
            }
            let Some(end) = last_end(&rest, ends) else {
                bounded(file, offset, rest.len() as u64, ends)?;
                continue;
            };
            let after = rest.split_off(end);
            let piece = std::mem::replace(&mut rest, after);
            if !take(offset, piece.into())? {
                return Ok(());
            }
            offset += end as u64;
        }
    }
}

/// The longest piece: longer texts have no place in a column.
const LONGEST: u64 = i32::MAX as u64;

fn bounded(file: &FileRef, offset: u64, length: u64, ends: Ends) -> Result<(), DataError> {
    if length <= LONGEST || matches!(ends, Ends::Whole) {
        return Ok(());
    }
    let line = format!("line {}", line_at(file, offset));
    Err(DataError::damaged(&file.name, Some(line), "it has 2 GiB without an end of a record"))
}

/// Where the last record ends of bytes that begin with one.
pub(crate) fn last_end(bytes: &[u8], ends: Ends) -> Option<usize> {
    match ends {
        Ends::Whole => None,
        Ends::Lines => memrchr(b'\n', bytes).map(|at| at + 1),
        Ends::Quoted { quote, delimiter } => {
            let mut last = None;
            Quotes::new(quote, delimiter).pass(bytes, |from, to| {
                last = memrchr(b'\n', &bytes[from..to]).map(|at| from + at + 1).or(last);
            });
            last
        }
    }
}

/// The number of the line in which a byte of a file is, from 1.
pub(crate) fn line_at(file: &FileRef, offset: u64) -> u64 {
    let mut lines = 1;
    let Ok(mut plain) = file.stream_plain() else { return 0 };
    let mut buffer = vec![0; 64 << 10];
    let mut left = offset;
    while left > 0 {
        let most = buffer.len().min(left as usize);
        let Ok(read @ 1..) = plain.read(&mut buffer[..most]) else { break };
        lines += memchr::memchr_iter(b'\n', &buffer[..read]).count() as u64;
        left -= read as u64;
    }
    lines
}

/// Knows which bytes are outside of quotes. A quote that does not begin a value is a character as others are.
struct Quotes {
    quote: u8,
    delimiter: u8,
    state: State,
    previous: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Outside,
    Inside,
    /// After a quote within quotes: the first of two, or the closing one.
    Closing,
}

impl Quotes {
    fn new(quote: u8, delimiter: u8) -> Self {
        Self { quote, delimiter, state: State::Outside, previous: b'\n' }
    }

    /// Goes over the next bytes and tells each stretch that is outside of quotes.
    fn pass(&mut self, bytes: &[u8], mut outside: impl FnMut(usize, usize)) {
        let mut at = 0;
        while at < bytes.len() {
            match self.state {
                State::Inside => match memchr(self.quote, &bytes[at..]) {
                    Some(found) => {
                        at += found + 1;
                        self.state = State::Closing;
                    }
                    None => at = bytes.len(),
                },
                State::Closing if bytes[at] == self.quote => {
                    self.state = State::Inside;
                    at += 1;
                }
                State::Closing => {
                    self.state = State::Outside;
                    self.previous = self.quote;
                }
                State::Outside => {
                    let from = at;
                    let mut search = at;
                    let opening = loop {
                        let Some(found) = memchr(self.quote, &bytes[search..]) else { break None };
                        let quote = search + found;
                        let previous = if quote == from { self.previous } else { bytes[quote - 1] };
                        if previous == b'\n' || previous == b'\r' || previous == self.delimiter {
                            break Some(quote);
                        }
                        search = quote + 1;
                    };
                    let to = opening.unwrap_or(bytes.len());
                    if to > from {
                        outside(from, to);
                        self.previous = bytes[to - 1];
                    }
                    at = to;
                    if opening.is_some() {
                        self.state = State::Inside;
                        at += 1;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(text: &str) -> Vec<usize> {
        let mut found = Vec::new();
        // In every pair of pieces, for what stands at their seam.
        for seam in 0..=text.len() {
            let mut quotes = Quotes::new(b'"', b',');
            let mut here = Vec::new();
            for (offset, piece) in [(0, &text.as_bytes()[..seam]), (seam, &text.as_bytes()[seam..])] {
                quotes.pass(piece, |from, to| {
                    here.extend((from..to).filter(|at| piece[*at] == b'\n').map(|at| offset + at));
                });
            }
            assert!(seam == 0 || here == found, "{text:?} cut at {seam}");
            found = here;
        }
        found
    }

    #[test]
    fn records_1_line_ends_in_quotes_end_no_record() {
        assert_eq!(ends("a,b\nc\n"), [3, 5]);
        assert_eq!(ends("\"a\nb\",c\nd\n"), [7, 9]);
        assert_eq!(ends("\"a\"\"\nb\"\nd\n"), [7, 9]);
        assert_eq!(ends("5\" pipe\nx,6\" y\n"), [7, 14]);
        assert_eq!(ends("\"\"\n\"\",\"\n\"\n"), [2, 9]);
        assert_eq!(ends("\"a\"b\"c\nd\n"), [6, 8]);
    }
}
