//! Opens files of ours, and nothing else that may lie under their names.
//!
//! REGULAR-1: opening never waits. A named pipe would wait for its other end, a device for anything: what is not a file is refused.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use nix::libc;
use thiserror::Error;

use crate::faults::has_room;

#[derive(Clone, Copy, Debug, Error)]
#[error("it is {0}, not a file")]
pub(crate) struct NotAFile(pub &'static str);

/// For reading.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(File::options().read(true), path)
}

pub fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let opened = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    let kind = match &opened {
        Ok(file) => file.metadata()?.file_type(),
        // A file on which a file server holds a lease: it gives the lease back within a bound of the kernel's.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock && path.metadata()?.is_file() => {
            return options.custom_flags(libc::O_NOCTTY).open(path);
        }
        // A directory cannot be opened to be written, a pipe without a reader or a socket not at all.
        Err(error) => match path.metadata() {
            Ok(meta) if matches!(error.raw_os_error(), Some(libc::ENXIO | libc::EISDIR)) => meta.file_type(),
            _ => return opened,
        },
    };
    if kind.is_file() { opened } else { Err(io::Error::new(io::ErrorKind::InvalidData, NotAFile(name_of(kind)))) }
}

fn name_of(kind: FileType) -> &'static str {
    match () {
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a named pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    }
}

pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = open(path)?;
    let mut bytes = Vec::with_capacity(file.metadata().map_or(0, |meta| meta.len() as usize));
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What is no UTF-8 is replaced.
pub fn read_text(path: &Path) -> io::Result<String> {
    read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// An empty file for writing.
pub fn create(path: &Path) -> io::Result<File> {
    open_with(File::options().write(true).create(true).truncate(true), path)
}

/// Writes a file whole: who reads it sees what was there before, or this.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = Path::new(&part);
    let written = has_room(path).and_then(|()| create(part)).and_then(|mut file| file.write_all(text.as_bytes()));
    written.and_then(|()| fs::rename(part, path)).inspect_err(|_| drop(fs::remove_file(part)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use nix::sys::stat::Mode;

    use super::*;

    #[test]
    fn regular_1_what_is_not_a_file_is_named_and_nothing_waits_for_it() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        nix::unistd::mkfifo(&at("pipe"), Mode::S_IRWXU).unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("device")).unwrap();
        for (name, kind) in
            [("pipe", "a named pipe"), ("directory", "a directory"), ("socket", "a socket"), ("device", "a device")]
        {
            let expected = format!("it is {kind}, not a file");
            assert_eq!(read(&at(name)).unwrap_err().to_string(), expected);
            assert_eq!(create(&at(name)).unwrap_err().to_string(), expected);
            let appended = open_with(File::options().create(true).append(true).read(true), &at(name));
            assert_eq!(appended.unwrap_err().to_string(), expected);
        }
        replace(&at("file"), "text").unwrap();
        replace(&at("pipe"), "is a file now").unwrap();
        assert_eq!(read_text(&at("pipe")).unwrap(), "is a file now");
        assert_eq!(read_text(&at("file")).unwrap(), "text");
        assert_eq!(read(&at("nothing")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
