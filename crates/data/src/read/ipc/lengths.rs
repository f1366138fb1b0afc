//! Whether the lengths in Arrow messages can be true. A compressed buffer begins with the number of bytes that come out of it, and the decoder
//! allocates so many before it decompresses one: a damaged number would abort the process instead of being an error.
//!
//! What cannot be parsed is left to the decoder, which says what is wrong with it.

use arrow_ipc::{CompressionType, Message, MessageHeader, RecordBatch, root_as_message};

use crate::read::compression::{LZ4_RATIO, ZSTD_RATIO};

/// Stands before the length of a message; older writers leave it out.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// What is not compressed begins with -1.
const PLAIN: i64 = -1;

fn largest_ratio(codec: CompressionType) -> u64 {
    if codec == CompressionType::LZ4_FRAME { LZ4_RATIO } else { ZSTD_RATIO }
}

/// Of a message of a file, whose footer says where its body begins. The decoder believes that, and not the length before the message.
pub(super) fn check_message(bytes: &[u8], body: usize) -> Result<(), String> {
    let begin = if bytes.starts_with(&CONTINUATION) { 8 } else { 4 };
    let message = bytes.get(begin..).and_then(|bytes| root_as_message(bytes).ok());
    match (message, bytes.get(body..)) {
        (Some(message), Some(body)) => check(&message, body),
        _ => Ok(()),
    }
}

/// Of every message of a stream. An error has the number of the record batch.
pub(super) fn check_stream(mut bytes: &[u8]) -> Result<(), (usize, String)> {
    let mut number = 0;
    while let Some((message, length)) = parse(bytes) {
        let body = &bytes[length..];
        check(&message, body).map_err(|why| (number, why))?;
        number += usize::from(message.header_type() == MessageHeader::RecordBatch);
        let Some(rest) = usize::try_from(message.bodyLength()).ok().and_then(|length| body.get(length..)) else {
            break;
        };
        bytes = rest;
    }
    Ok(())
}

/// A message, and how many bytes it takes without its body. Nothing at the end of a stream, or where there is no message.
fn parse(bytes: &[u8]) -> Option<(Message<'_>, usize)> {
    let before = if bytes.starts_with(&CONTINUATION) { 4 } else { 0 };
    let length: [u8; 4] = bytes.get(before..before + 4)?.try_into().ok()?;
    let length = usize::try_from(i32::from_le_bytes(length)).ok().filter(|length| *length > 0)?;
    let begin = before + 4;
    let message = root_as_message(bytes.get(begin..begin + length)?).ok()?;
    Some((message, begin + length))
}

fn check(message: &Message<'_>, body: &[u8]) -> Result<(), String> {
    let batch = match message.header_type() {
        MessageHeader::RecordBatch => message.header_as_record_batch(),
        MessageHeader::DictionaryBatch => message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data()),
        _ => None,
    };
    batch.map_or(Ok(()), |batch| check_batch(batch, body))
}

fn check_batch(batch: RecordBatch<'_>, body: &[u8]) -> Result<(), String> {
    let Some(compression) = batch.compression() else { return Ok(()) };
    for buffer in batch.buffers().iter().flatten() {
        let (Ok(begin), Ok(length)) = (usize::try_from(buffer.offset()), usize::try_from(buffer.length())) else {
            continue;
        };
        let Some(bytes) = begin.checked_add(length).and_then(|end| body.get(begin..end)) else { continue };
        let Some((plain, compressed)) = bytes.split_first_chunk::<8>() else { continue };
        let plain = i64::from_le_bytes(*plain);
        if plain == PLAIN {
            continue;
        }
        let most = (compressed.len() as u64).saturating_mul(largest_ratio(compression.codec()));
        // Less than that may still be more than there is.
        let fits = |plain: u64| plain <= most && Vec::<u8>::new().try_reserve_exact(plain as usize).is_ok();
        if !u64::try_from(plain).is_ok_and(fits) {
            return Err(format!("a buffer of {} bytes cannot hold {plain} bytes, as it says", compressed.len()));
        }
    }
    Ok(())
}
