//! Compressed files of text: `.gz`, `.zst`, `.bz2`, `.xz`, `.lz4`, told by their names.

use std::io::{self, BufRead, BufReader, Read};

use bytes::{Buf, Bytes};

use crate::error::DataError;
use crate::files::FileRef;

// The most bytes that one byte can become: a copy of 64 bytes in 3, a match of 258 bytes in 2 bits, a byte of a match's length, a block of one
// repeated byte in 4.
pub(crate) const SNAPPY_RATIO: u64 = 22;
pub(crate) const GZIP_RATIO: u64 = 1_032;
pub(crate) const LZ4_RATIO: u64 = 256;
pub(crate) const ZSTD_RATIO: u64 = 1 << 15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
    Bzip2,
    Xz,
    Lz4,
}

/// The endings of a format, also those of its compressed files.
pub(crate) const ENDINGS: [&str; 5] = ["gz", "zst", "bz2", "xz", "lz4"];

impl Compression {
    pub fn of(name: &str) -> Self {
        match name.rsplit('.').next().unwrap_or_default().to_lowercase().as_str() {
            "gz" | "gzip" => Compression::Gzip,
            "zst" | "zstd" => Compression::Zstd,
            "bz2" => Compression::Bzip2,
            "xz" => Compression::Xz,
            "lz4" => Compression::Lz4,
            _ => Compression::None,
        }
    }

    /// What the bytes are when they are unpacked.
    fn unpack<'a>(self, packed: impl BufRead + 'a) -> io::Result<Box<dyn Read + 'a>> {
        Ok(match self {
            Compression::None => Box::new(packed),
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
            Compression::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(packed)?),
            Compression::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(packed)),
            Compression::Xz => Box::new(lzma_rust2::XzReader::new(packed, true)),
            Compression::Lz4 => Box::new(lz4_flex::frame::FrameDecoder::new(packed)),
        })
    }
}

/// How much of a file is fetched at a time.
const PIECE: u64 = 4 << 20;

/// Reads a file from its beginning, piece by piece.
pub(crate) struct Stream<'a> {
    file: &'a FileRef,
    offset: u64,
    piece: Bytes,
}

impl Read for Stream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() {
            let end = self.file.size.min(self.offset + PIECE);
            if end == self.offset {
                return Ok(0);
            }
            self.piece = self.file.read_range(self.offset..end).map_err(io::Error::other)?;
            self.offset = end;
        }
        let length = buffer.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}

impl FileRef {
    /// The file as it is, piece by piece.
    pub(crate) fn stream(&self) -> Stream<'_> {
        Stream { file: self, offset: 0, piece: Bytes::new() }
    }

    /// The file unpacked, piece by piece.
    pub(crate) fn stream_plain(&self) -> io::Result<Box<dyn Read + '_>> {
        self.compression().unpack(BufReader::with_capacity(64 << 10, self.stream()))
    }

    pub(crate) fn compression(&self) -> Compression {
        self.packed.unwrap_or_else(|| Compression::of(&self.name))
    }

    /// The beginning of the file, unpacked: at most this many bytes, and whether that is all of it.
    pub(crate) fn read_plain_start(&self, most: u64) -> Result<(Bytes, bool), DataError> {
        let compression = self.compression();
        if compression == Compression::None {
            return Ok((self.read_start(most)?, self.size <= most));
        }
        let mut plain = Vec::new();
        let read = self.stream_plain().and_then(|read| read.take(most + 1).read_to_end(&mut plain));
        read.map_err(|error| DataError::damaged(&self.name, None, error))?;
        let is_all = plain.len() as u64 <= most;
        plain.truncate(most as usize);
        Ok((plain.into(), is_all))
    }
}
