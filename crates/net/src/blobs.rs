//! Blobs travel in pieces, so that no message is large and nothing is held twice.

use std::io::{self, Read, Write};

use carril_proto::{CHUNK, v1};
use carril_types::{ErrorCode, Failure};
use tokio_stream::{Stream, StreamExt};
use tonic::{Status, Streaming};

use crate::to_status;

/// Writes what comes to `out`.
pub async fn receive(mut stream: Streaming<v1::BlobChunk>, out: &mut impl Write) -> Result<(), Status> {
    while let Some(chunk) = stream.next().await {
        out.write_all(&chunk?.data).map_err(|error| to_status(failure("write", &error)))?;
    }
    Ok(())
}

/// The pieces of `data`, read as they are asked for.
pub fn chunks(mut data: impl Read + Send + 'static) -> impl Stream<Item = Result<v1::BlobChunk, Status>> + Send {
    let pieces = std::iter::from_fn(move || {
        let mut piece = Vec::with_capacity(CHUNK);
        match data.by_ref().take(CHUNK as u64).read_to_end(&mut piece) {
            Ok(0) => None,
            Ok(_) => Some(Ok(v1::BlobChunk { data: piece.into() })),
            Err(error) => Some(Err(to_status(failure("read", &error)))),
        }
    });
    tokio_stream::iter(pieces)
}

fn failure(what: &str, error: &io::Error) -> Failure {
    Failure::new(ErrorCode::Storage, format!("could not {what} a blob: {error}"))
}
