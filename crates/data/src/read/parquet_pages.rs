//! Whether the header of a Parquet page can be true. The decoder allocates what a header declares before it looks at the page: a damaged one
//! took half a minute and all of the memory before it was an error.
//!
//! A limit follows from the bytes that the page has, never from what pages usually are. What cannot be parsed is left to the decoder, which says
//! what is wrong with it.

use std::io::{self, BufRead, Read};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Type};
use parquet::errors::Result as Parquet;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, Length};

use crate::read::compression::{GZIP_RATIO, LZ4_RATIO, SNAPPY_RATIO, ZSTD_RATIO};
use crate::read::parquet_input::{Input, InputRead};

/// Pages that are larger are allocated once on trial: where that fails in the decoder, the process is aborted.
const USUAL_PAGE: u64 = 1 << 20;

/// An input that looks at each header before the decoder gets it.
pub(crate) struct CheckedInput {
    input: Input,
    limits: Vec<Arc<PageLimits>>,
}

pub(crate) struct CheckedRead {
    read: InputRead,
    /// Until the first byte is read. The decoder also opens the bytes after a header, and then reads none of them.
    limits: Option<Arc<PageLimits>>,
}

/// Where the pages of one column are, and what decides how large they can be.
pub(crate) struct PageLimits {
    pub range: Range<u64>,
    column: String,
    /// The most bytes that one byte of a page can become. `None`: a codec without such a limit.
    ratio: Option<u64>,
    /// What the metadata of the file has for all pages together.
    total: u64,
    /// The fewest bits that a value of a dictionary takes.
    value_bits: u64,
}

/// What a header declares.
#[derive(Debug, Default, PartialEq)]
struct Header {
    size: i64,
    compressed_size: i64,
    /// Of the second version: what stands before the values, and is never compressed.
    levels: i64,
    is_compressed: bool,
    /// Only of a dictionary.
    dictionary_values: Option<i64>,
}

impl PageLimits {
    pub fn new(chunk: &ColumnChunkMetaData) -> Self {
        let (start, length) = chunk.byte_range();
        Self {
            range: start..start.saturating_add(length),
            column: chunk.column_path().string(),
            ratio: match chunk.compression() {
                Compression::UNCOMPRESSED => Some(1),
                Compression::SNAPPY => Some(SNAPPY_RATIO),
                Compression::GZIP(_) => Some(GZIP_RATIO),
                Compression::LZ4 | Compression::LZ4_RAW => Some(LZ4_RATIO),
                Compression::ZSTD(_) => Some(ZSTD_RATIO),
                Compression::BROTLI(_) | Compression::LZO => None,
            },
            total: chunk.uncompressed_size().max(0) as u64,
            value_bits: match chunk.column_type() {
                Type::BOOLEAN => 1,
                Type::INT32 | Type::FLOAT | Type::BYTE_ARRAY => 32,
                Type::INT64 | Type::DOUBLE => 64,
                Type::INT96 => 96,
                Type::FIXED_LEN_BYTE_ARRAY => 8 * chunk.column_descr().type_length().max(0) as u64,
            },
        }
    }

    /// `bytes` begin with a header, and may end in the middle of it.
    pub fn check(&self, bytes: &[u8]) -> Result<(), String> {
        let Some(header) = parse(bytes) else { return Ok(()) };
        let wrong = |why: String| Err(format!("column `{}`: {why}", self.column));
        // Sizes below 0 are what the decoder looks for itself.
        let (Ok(size), Ok(compressed)) = (u64::try_from(header.size), u64::try_from(header.compressed_size)) else {
            return Ok(());
        };
        let levels = header.levels.max(0) as u64;
        let most = match self.ratio {
            // The decoder gives such a page as it is, whatever its header says of its size.
            Some(1) => u64::MAX,
            _ if !header.is_compressed => u64::MAX,
            Some(ratio) => levels.saturating_add(compressed.saturating_sub(levels).saturating_mul(ratio)),
            None => self.total,
        };
        let has_memory = || size <= USUAL_PAGE || Vec::<u8>::new().try_reserve_exact(size as usize).is_ok();
        if most < u64::MAX && (size > most || !has_memory()) {
            return wrong(format!("a page of {compressed} bytes cannot hold {size} bytes, as its header says"));
        }
        let plain = if most == u64::MAX { compressed } else { size };
        if let Some(values) = header.dictionary_values.and_then(|values| u64::try_from(values).ok())
            && values.saturating_mul(self.value_bits) > plain.saturating_mul(8)
        {
            return wrong(format!("a dictionary of {plain} bytes cannot hold {values} values, as its header says"));
        }
        Ok(())
    }
}

impl CheckedInput {
    pub fn new(input: Input, limits: Vec<PageLimits>) -> Self {
        Self { input, limits: limits.into_iter().map(Arc::new).collect() }
    }
}

impl Length for CheckedInput {
    fn len(&self) -> u64 {
        self.input.len()
    }
}

impl ChunkReader for CheckedInput {
    type T = CheckedRead;

    fn get_read(&self, start: u64) -> Parquet<CheckedRead> {
        let limits = self.limits.iter().find(|limits| limits.range.contains(&start));
        Ok(CheckedRead { read: self.input.get_read(start)?, limits: limits.cloned() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Parquet<Bytes> {
        self.input.get_bytes(start, length)
    }
}

impl Read for CheckedRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(limits) = self.limits.take() {
            limits.check(self.read.fill_buf()?).map_err(io::Error::other)?;
        }
        self.read.read(buffer)
    }
}

/// Thrift's compact encoding, as far as the numbers of a header need it: they stand before everything else.
struct Fields<'a> {
    bytes: &'a [u8],
    last: i64,
}

enum Field {
    Integer(i64),
    Bool(bool),
    Struct,
}

impl Fields<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn integer(&mut self) -> Option<i64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        None
    }

    /// `None` at the end of the struct, and at a field of another kind.
    fn next(&mut self) -> Option<(i64, Field)> {
        let head = self.byte()?;
        if head == 0 {
            return None;
        }
        self.last = match head >> 4 {
            0 => self.integer()?,
            delta => self.last + i64::from(delta),
        };
        let field = match head & 0xf {
            1 => Field::Bool(true),
            2 => Field::Bool(false),
            4..=6 => Field::Integer(self.integer()?),
            12 => Field::Struct,
            _ => return None,
        };
        Some((self.last, field))
    }
}

fn parse(bytes: &[u8]) -> Option<Header> {
    let mut fields = Fields { bytes, last: 0 };
    let mut header = Header { is_compressed: true, ..Header::default() };
    loop {
        match fields.next()? {
            (2, Field::Integer(size)) => header.size = size,
            (3, Field::Integer(size)) => header.compressed_size = size,
            (5, Field::Struct) => return Some(header),
            (kind @ (7 | 8), Field::Struct) => {
                let mut inner = Fields { bytes: fields.bytes, last: 0 };
                while let Some(field) = inner.next() {
                    match (kind, field) {
                        (7, (1, Field::Integer(values))) => header.dictionary_values = Some(values),
                        (8, (5 | 6, Field::Integer(length))) => header.levels = header.levels.saturating_add(length),
                        (8, (7, Field::Bool(is_compressed))) => header.is_compressed = is_compressed,
                        (_, (_, Field::Struct)) => break,
                        _ => {}
                    }
                }
                return Some(header);
            }
            (_, Field::Struct) => return None,
            _ => {}
        }
    }
}
