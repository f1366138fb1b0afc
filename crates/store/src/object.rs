//! A bucket of S3, Google or Azure: puts, ranged gets, listings and deletes, several at once, retried.
//!
//! Requests go on beside the calling thread, which reads or writes its files meanwhile.
//! OBJECT-1: what is in memory is bounded, whatever the size of a file and the number of files.
//! OBJECT-2: every request may be sent twice: a put that was carried out before its answer was lost is put again, and a
//!   finished multipart upload that is not known any more is looked at.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path as Key;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use tokio::task::JoinSet;

use crate::credentials::{Client, Surroundings, client};
use crate::error::StoreError;
use crate::faults::point;
use crate::location::Location;
use crate::requests::{Outcome, again, failed, wait};
use crate::storage::{Content, Entry, StoredFile};

/// Up to this size a file is one put.
const ONE_PUT: u64 = 16 << 20;
const PART: u64 = 8 << 20;
const MOST_PARTS: u64 = 9_000;
/// What may be in memory, and how many requests may be on their way.
const IN_MEMORY: u64 = 64 << 20;
const AT_ONCE: usize = 16;

pub(crate) struct Bucket {
    client: Client,
}

/// A part of a file that has arrived; nothing where the file is not there.
struct Piece {
    file: usize,
    number: usize,
    bytes: Option<Bytes>,
}

impl Bucket {
    pub fn open(at: &Location, surroundings: &Surroundings) -> Result<Self, StoreError> {
        Ok(Self { client: client(at, surroundings)? })
    }

    pub fn read(&self, at: &Location) -> Result<Option<Vec<u8>>, StoreError> {
        let key = key(at)?;
        let read = wait(read_whole(&self.client, &key)).map_err(failed("read", at))?;
        Ok(read.map(|bytes| bytes.to_vec()))
    }

    pub fn read_range(&self, at: &Location, range: Range<u64>) -> Result<Option<Vec<u8>>, StoreError> {
        let key = key(at)?;
        let read = wait(read_piece(&self.client, &key, Some(range))).map_err(failed("read", at))?;
        Ok(read.map(|bytes| bytes.to_vec()))
    }

    pub fn read_all(&self, at: &Location, names: &[String]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let keys = names.iter().map(|name| key(&at.join(name))).collect::<Result<Vec<_>, _>>()?;
        let reads = futures_util::stream::iter(keys.iter().map(|key| read_whole(&self.client, key)));
        let all: Vec<Option<Bytes>> = wait(reads.buffered(AT_ONCE).try_collect()).map_err(failed("read", at))?;
        Ok(all.into_iter().map(|bytes| bytes.map(|bytes| bytes.to_vec())).collect())
    }

    pub fn write(&self, at: &Location, bytes: &[u8]) -> Result<(), StoreError> {
        let key = key(at)?;
        pass("put", at)?;
        wait(put(&self.client, &key, Bytes::copy_from_slice(bytes))).map_err(failed("write", at))
    }

    /// False where something is under the key, unless it is this very content: an answer may have been lost.
    pub fn create(&self, at: &Location, bytes: &[u8]) -> Result<bool, StoreError> {
        let name = key(at)?;
        pass("put", at)?;
        let content = Bytes::copy_from_slice(bytes);
        let put = || self.client.objects.put_opts(&name, PutPayload::from(content.clone()), PutMode::Create.into());
        match wait(again(put)) {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. }) => Ok(self.read(at)?.as_deref() == Some(bytes)),
            Err(error) => Err(failed("write", at)(error)),
        }
    }

    /// `None` where there is nothing under the key.
    pub fn size(&self, at: &Location) -> Result<Option<u64>, StoreError> {
        let key = key(at)?;
        match wait(again(|| self.client.objects.head(&key))) {
            Ok(meta) => Ok(Some(meta.size)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed("look at", at)(error)),
        }
    }

    pub fn list(&self, at: &Location) -> Result<Vec<Entry>, StoreError> {
        let prefix = key(at)?;
        let list = || self.client.objects.list(Some(&prefix)).try_collect::<Vec<_>>();
        let found = wait(again(list)).map_err(failed("list", at))?;
        let entry = |meta: object_store::ObjectMeta| {
            // A key that is the prefix itself stands for a directory; some consoles make such.
            let key = below(meta.location.as_ref(), prefix.as_ref())?.to_owned();
            Some(Entry { key, size: meta.size })
        };
        Ok(found.into_iter().filter_map(entry).collect())
    }

    /// Directories and files of the first level.
    pub fn level(&self, at: &Location) -> Result<(Vec<String>, Vec<String>), StoreError> {
        let prefix = key(at)?;
        let list = || self.client.objects.list_with_delimiter(Some(&prefix));
        let found = wait(again(list)).map_err(failed("list", at))?;
        let name = |path: &Key| below(path.as_ref(), prefix.as_ref()).map(str::to_owned);
        let directories = found.common_prefixes.iter().filter_map(name).collect();
        Ok((directories, found.objects.iter().filter_map(|meta| name(&meta.location)).collect()))
    }

    pub fn delete(&self, at: &Location) -> Result<(), StoreError> {
        let key = key(at)?;
        pass("delete", at)?;
        match wait(again(|| self.client.objects.delete(&key))) {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed("delete", at)(error)),
        }
    }

    pub fn delete_all(&self, at: &Location) -> Result<(), StoreError> {
        let keys = self.list(at)?.iter().map(|entry| key(&at.join(&entry.key))).collect::<Result<Vec<_>, _>>()?;
        pass("delete", at)?;
        let delete = || async {
            let keys = futures_util::stream::iter(keys.clone().into_iter().map(Ok)).boxed();
            let mut deleted = self.client.objects.delete_stream(keys);
            while let Some(one) = deleted.next().await {
                match one {
                    Ok(_) | Err(Error::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        wait(again(delete)).map_err(failed("delete", at))
    }

    /// Small files several at once, large ones part by part; never more than a bound in memory.
    pub fn upload_all(&self, at: &Location, files: &[(PathBuf, String)]) -> Result<Vec<StoredFile>, StoreError> {
        wait(async {
            let mut stored = Vec::with_capacity(files.len());
            let mut flight = JoinSet::new();
            let mut bytes = 0;
            for (from, name) in files {
                let at = at.join(name);
                let key = key(&at)?;
                let mut file = File::open(from).map_err(StoreError::io("open", from))?;
                let size = file.metadata().map_err(StoreError::io("look at", from))?.len();
                if size > ONE_PUT {
                    let crc32c = self.upload_parts(&at, key, &mut file, size, from).await?;
                    stored.push(StoredFile { path: name.clone(), size, crc32c: Some(crc32c) });
                    continue;
                }
                let content = read_exactly(&mut file, size).map_err(StoreError::io("read", from))?;
                let crc32c = crc32c::crc32c(&content);
                stored.push(StoredFile { path: name.clone(), size, crc32c: Some(crc32c) });
                while flight.len() >= AT_ONCE || (bytes + size > IN_MEMORY && !flight.is_empty()) {
                    bytes -= landed(&mut flight).await?;
                }
                pass("put", &at)?;
                bytes += size;
                let client = self.client.clone();
                flight.spawn(
                    async move { put(&client, &key, content).await.map(|()| size).map_err(failed("write", &at)) },
                );
            }
            while !flight.is_empty() {
                landed(&mut flight).await?;
            }
            Ok(stored)
        })
    }

    async fn upload_parts(
        &self,
        at: &Location,
        key: Key,
        file: &mut File,
        size: u64,
        from: &Path,
    ) -> Result<u32, StoreError> {
        pass("begin parts", at)?;
        let parts = &self.client.parts;
        let id = again(|| parts.create_multipart(&key)).await.map_err(failed("write", at))?;
        let sent = self.send_parts(at, &key, &id, file, size, from).await;
        if sent.is_err() {
            // Best effort: what is left of an upload is no object, and a lifecycle rule of the bucket clears it.
            let _ = tokio::time::timeout(Duration::from_secs(5), parts.abort_multipart(&key, &id)).await;
        }
        sent
    }

    async fn send_parts(
        &self,
        at: &Location,
        key: &Key,
        id: &String,
        file: &mut File,
        size: u64,
        from: &Path,
    ) -> Result<u32, StoreError> {
        let length = PART.max(size.div_ceil(MOST_PARTS).next_multiple_of(1 << 20));
        let at_once = (IN_MEMORY / length).max(1) as usize;
        let mut flight = JoinSet::new();
        let mut ids = vec![None; size.div_ceil(length) as usize];
        let mut crc32c = 0;
        for index in 0..ids.len() {
            let here = length.min(size - index as u64 * length);
            let content = read_exactly(file, here).map_err(StoreError::io("read", from))?;
            crc32c = crc32c::crc32c_append(crc32c, &content);
            while flight.len() >= at_once {
                let (index, part) = landed(&mut flight).await?;
                ids[index] = Some(part);
            }
            pass("part", at)?;
            let (parts, key, id, at) = (self.client.parts.clone(), key.clone(), id.clone(), at.clone());
            flight.spawn(async move {
                let put = || parts.put_part(&key, &id, index, PutPayload::from(content.clone()));
                again(put).await.map(|part| (index, part)).map_err(failed("write", &at))
            });
        }
        while !flight.is_empty() {
            let (index, part) = landed(&mut flight).await?;
            ids[index] = Some(part);
        }
        pass("finish parts", at)?;
        let ids: Vec<_> = ids.into_iter().map(|id| id.expect("every part has landed")).collect();
        let finish = || self.client.parts.complete_multipart(key, id, ids.clone());
        match again(finish).await {
            Ok(_) => Ok(crc32c),
            // The first answer may have been lost, and the second try found the upload finished.
            Err(error) => match self.client.objects.head(key).await {
                Ok(meta) if meta.size == size && matches!(error, Error::NotFound { .. }) => Ok(crc32c),
                _ => Err(failed("write", at)(error)),
            },
        }
    }

    /// Brings files to local paths, in pieces that arrive in any order.
    pub fn fetch(&self, at: &Location, wanted: &[(Entry, PathBuf)]) -> Result<Vec<Content>, StoreError> {
        for (_, to) in wanted {
            crate::local::make_parent(to)?;
            File::create(to).map_err(StoreError::io("make", to))?;
        }
        let entries: Vec<Entry> = wanted.iter().map(|(entry, _)| entry.clone()).collect();
        self.run_pieces(at, &entries, |index, offset, bytes| {
            let to = &wanted[index].1;
            let write = || OpenOptions::new().write(true).open(to)?.write_all_at(bytes, offset);
            write().map_err(StoreError::io("write", to))
        })
    }

    pub fn examine(&self, at: &Location, entries: &[Entry]) -> Result<Vec<Content>, StoreError> {
        self.run_pieces(at, entries, |_, _, _| Ok(()))
    }

    /// Reads files in pieces, several at once, hands each piece over as it arrives, and joins their checksums.
    fn run_pieces(
        &self,
        at: &Location,
        entries: &[Entry],
        mut arrived: impl FnMut(usize, u64, &[u8]) -> Result<(), StoreError>,
    ) -> Result<Vec<Content>, StoreError> {
        let places: Vec<Location> = entries.iter().map(|entry| at.join(&entry.key)).collect();
        let keys = places.iter().map(key).collect::<Result<Vec<_>, _>>()?;
        let pieces_of = |entry: &Entry| entry.size.div_ceil(PART).max(1) as usize;
        // Of every file: the length and the checksum of each piece.
        let mut sums: Vec<Vec<Option<(u64, u32)>>> = entries.iter().map(|entry| vec![None; pieces_of(entry)]).collect();
        let mut take = |piece: Piece| match piece.bytes {
            Some(bytes) => {
                sums[piece.file][piece.number] = Some((bytes.len() as u64, crc32c::crc32c(&bytes)));
                arrived(piece.file, piece.number as u64 * PART, &bytes)
            }
            None => Ok(()),
        };
        wait(async {
            let mut flight = JoinSet::new();
            for (file, entry) in entries.iter().enumerate() {
                let is_large = entry.size > PART;
                let at_once = if is_large { (IN_MEMORY / PART) as usize } else { AT_ONCE };
                for number in 0..pieces_of(entry) {
                    while flight.len() >= at_once {
                        take(landed(&mut flight).await?)?;
                    }
                    let begin = number as u64 * PART;
                    let range = is_large.then(|| begin..(begin + PART).min(entry.size));
                    let (client, key, at) = (self.client.clone(), keys[file].clone(), places[file].clone());
                    flight.spawn(async move {
                        let bytes = read_piece(&client, &key, range).await.map_err(failed("read", &at))?;
                        Ok(Piece { file, number, bytes })
                    });
                }
            }
            while !flight.is_empty() {
                take(landed(&mut flight).await?)?;
            }
            Ok::<(), StoreError>(())
        })?;
        Ok(sums.into_iter().map(join_sums).collect())
    }
}

fn join_sums(pieces: Vec<Option<(u64, u32)>>) -> Content {
    let joined = pieces.into_iter().try_fold((0, 0), |(size, crc32c), piece| {
        let (length, sum) = piece?;
        Some((size + length, crc32c::crc32c_combine(crc32c, sum, length as usize)))
    });
    match joined {
        Some((size, crc32c)) => Content::Read { size, crc32c },
        None => Content::Missing,
    }
}

async fn put(client: &Client, key: &Key, content: Bytes) -> Outcome<()> {
    again(|| client.objects.put(key, PutPayload::from(content.clone()))).await.map(drop)
}

async fn read_whole(client: &Client, key: &Key) -> Outcome<Option<Bytes>> {
    let get = || async { client.objects.get(key).await?.bytes().await };
    match again(get).await {
        Ok(bytes) => Ok(Some(bytes)),
        // A bucket that is not there is another matter than a key that is not.
        Err(Error::NotFound { source, .. }) if !source.to_string().contains("NoSuchBucket") => Ok(None),
        Err(error) => Err(error),
    }
}

/// `None` where there is nothing under the key.
async fn read_piece(client: &Client, key: &Key, range: Option<Range<u64>>) -> Outcome<Option<Bytes>> {
    let Some(range) = range else { return read_whole(client, key).await };
    match again(|| client.objects.get_range(key, range.clone())).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn landed<T: 'static>(flight: &mut JoinSet<Result<T, StoreError>>) -> Result<T, StoreError> {
    match flight.join_next().await.expect("something is in flight") {
        Ok(outcome) => outcome,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

fn read_exactly(file: &mut File, size: u64) -> io::Result<Bytes> {
    let mut content = Vec::with_capacity(size as usize);
    file.take(size).read_to_end(&mut content)?;
    match content.len() as u64 == size {
        true => Ok(content.into()),
        false => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it has become shorter")),
    }
}

fn key(at: &Location) -> Result<Key, StoreError> {
    let why = "a name in it has an empty part, a `.`, a `..` or a control character";
    Key::parse(&at.prefix).map_err(|_| StoreError::BadLocation { location: at.shown(), why })
}

/// What of a key is below a prefix; nothing of the prefix itself.
fn below<'a>(key: &'a str, prefix: &str) -> Option<&'a str> {
    let rest = if prefix.is_empty() { key } else { key.strip_prefix(prefix)?.strip_prefix('/')? };
    (!rest.is_empty()).then_some(rest)
}

fn pass(name: &str, at: &Location) -> Result<(), StoreError> {
    let path = PathBuf::from(at.shown());
    point(name, &path).map_err(StoreError::io("write", &path))
}

#[cfg(test)]
mod tests;
