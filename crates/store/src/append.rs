//! A file that only grows: each append is there whole, or not at all.
//!
//! APPEND-1: an append that fails leaves the file as it was before, so that the same can be tried again. Where that is refused too, and
//!   where a crash has cut the last line, what is torn is ended before the next append begins.
//! APPEND-2: a file that was removed or moved, alone or with its directory, is written again with everything that was appended to it.
//! APPEND-3: where an earlier copy of the file comes back (a remount), what was appended in the meantime is added to it; any other file
//!   that was put in its place is appended to.
//! APPEND-4: a file that somebody has made shorter than we left it is noticed with the next append or look: how many lines it lost is
//!   counted, and what is torn is ended.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::faults::room;
use crate::local;
use crate::regular;

const PIECE: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct AppendFile {
    path: PathBuf,
    file: File,
    /// Device and inode.
    identity: (u64, u64),
    /// The last line has no end.
    torn: bool,
    /// It was made again, and nobody has asked for that yet.
    restored: bool,
    /// As we left it; `lines` of a file whose lines are counted.
    length: u64,
    lines: u64,
    /// Lines that somebody has cut off, and nobody has asked for that yet.
    lost: u64,
}

impl AppendFile {
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let open = || {
            let opened = || regular::open_with(File::options().create(true).append(true).read(true), path);
            let file = opened().or_else(|error| match path.parent() {
                Some(parent) if error.kind() == io::ErrorKind::NotFound => {
                    fs::create_dir_all(parent)?;
                    opened()
                }
                _ => Err(error),
            })?;
            let meta = file.metadata()?;
            let mut last = [b'\n'];
            if meta.len() > 0 {
                file.read_exact_at(&mut last, meta.len() - 1)?;
            }
            Ok((file, (meta.dev(), meta.ino()), last != *b"\n", meta.len()))
        };
        let (file, identity, torn, length) = open().map_err(StoreError::io("open", path))?;
        Ok(Self { path: path.to_owned(), file, identity, torn, restored: false, length, lines: 0, lost: 0 })
    }

    /// Counts the lines, so that it is known how many are lost where somebody cuts some off.
    pub fn open_counted(path: &Path) -> Result<Self, StoreError> {
        let file = Self::open(path)?;
        let lines = file.count_lines().map_err(StoreError::io("read", path))?;
        Ok(Self { lines, ..file })
    }

    fn count_lines(&self) -> io::Result<u64> {
        let (mut buffer, mut at, mut lines) = (vec![0; PIECE], 0, 0);
        loop {
            let read = self.file.read_at(&mut buffer, at)?;
            if read == 0 {
                return Ok(lines);
            }
            lines += buffer[..read].iter().filter(|byte| **byte == b'\n').count() as u64;
            at += read as u64;
        }
    }

    /// Of records that have no lines: nothing of it is ever torn but by an append that could not be undone.
    pub fn open_binary(path: &Path) -> Result<Self, StoreError> {
        Self::open(path).map(|file| Self { torn: false, ..file })
    }

    pub fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.make_again()?;
        if !self.torn {
            return self.write(bytes);
        }
        self.write(&[b"\n", bytes].concat())?;
        self.torn = false;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match room(&self.path, rest.len()).and_then(|room| (&self.file).write(&rest[..room])) {
                Ok(0) => return Err(self.undo(bytes.len() - rest.len(), io::ErrorKind::WriteZero.into())),
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.undo(bytes.len() - rest.len(), error)),
            }
        }
        self.length += bytes.len() as u64;
        self.lines += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        Ok(())
    }

    fn undo(&mut self, written: usize, error: io::Error) -> StoreError {
        if written > 0 && take_back(&self.file, written).is_err() {
            self.torn = true;
        }
        StoreError::io("write", &self.path)(error)
    }

    /// Finds out whether the file is where it was; true where it had to be made again since the last time.
    pub fn restore(&mut self) -> Result<bool, StoreError> {
        self.make_again()?;
        Ok(std::mem::take(&mut self.restored))
    }

    pub fn is_in_place(&self) -> bool {
        self.length_in_place().is_some()
    }

    /// Whether somebody has made it shorter: APPEND-4.
    pub fn is_cut(&self) -> bool {
        self.length_in_place().is_some_and(|length| length < self.length)
    }

    fn length_in_place(&self) -> Option<u64> {
        let meta = fs::metadata(&self.path).ok()?;
        // A network file system may be behind in what it says by name.
        let own = || self.file.metadata().map_or(meta.len(), |own| own.len().max(meta.len()));
        ((meta.dev(), meta.ino()) == self.identity).then(own)
    }

    /// How many lines somebody has cut off since the last time.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    fn make_again(&mut self) -> Result<(), StoreError> {
        if let Some(length) = self.length_in_place() {
            return if length < self.length { self.take_cut() } else { Ok(()) };
        }
        if self.path.exists() {
            return self.take_over();
        }
        local::make_parent(&self.path)?;
        let torn = self.torn;
        self.copy_to(&self.path)?;
        let (lines, lost) = (self.lines, self.lost);
        *self = Self { torn, restored: true, lines, lost, ..Self::open(&self.path)? };
        Ok(())
    }

    /// What was cut off is nowhere any more.
    fn take_cut(&mut self) -> Result<(), StoreError> {
        let found = Self::open_counted(&self.path)?;
        let lost = self.lost + self.lines.saturating_sub(found.lines);
        *self = Self { restored: self.restored, lost, ..found };
        Ok(())
    }

    /// Another file has the name now.
    fn take_over(&mut self) -> Result<(), StoreError> {
        let mut found = Self { restored: self.restored, lost: self.lost, ..Self::open_counted(&self.path)? };
        let missing = self.behind(&found.file).map_err(StoreError::io("read", &self.path))?;
        if let Some(missing) = missing.filter(|missing| !missing.is_empty()) {
            // It ends where ours went on, in the middle of a line perhaps: the rest of that line comes first.
            found.write(&missing)?;
            (found.torn, found.restored) = (self.torn, true);
        }
        *self = found;
        Ok(())
    }

    /// What this file has behind the end of `other`; `None` unless `other` is its beginning.
    fn behind(&self, other: &File) -> io::Result<Option<Vec<u8>>> {
        let (ours, theirs) = (self.file.metadata()?.len(), other.metadata()?.len());
        if theirs > ours {
            return Ok(None);
        }
        let (mut mine, mut its) = (vec![0; PIECE], vec![0; PIECE]);
        let mut at = 0;
        while at < theirs {
            let length = PIECE.min((theirs - at) as usize);
            self.file.read_exact_at(&mut mine[..length], at)?;
            other.read_exact_at(&mut its[..length], at)?;
            if mine[..length] != its[..length] {
                return Ok(None);
            }
            at += length as u64;
        }
        let mut rest = vec![0; (ours - theirs) as usize];
        self.file.read_exact_at(&mut rest, theirs)?;
        Ok(Some(rest))
    }

    /// Everything that was written, also where no name leads to it any more.
    pub fn copy_to(&self, path: &Path) -> Result<(), StoreError> {
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let copy = || -> io::Result<()> {
            let mut target = regular::create(Path::new(&part))?;
            let (mut buffer, mut at) = (vec![0; PIECE], 0);
            loop {
                let read = self.file.read_at(&mut buffer, at)?;
                if read == 0 {
                    return fs::rename(&part, path);
                }
                target.write_all(&buffer[..read])?;
                at += read as u64;
            }
        };
        copy().map_err(|error| {
            let _ = fs::remove_file(&part);
            StoreError::io("write", path)(error)
        })
    }
}

/// Cuts off the last bytes of a file.
pub(crate) fn take_back(file: &File, written: usize) -> io::Result<()> {
    let length = file.metadata()?.len();
    file.set_len(length.saturating_sub(written as u64))
}

/// Lines that are gathered, and kept for another try where they cannot be written.
pub(crate) struct Lines {
    path: PathBuf,
    /// Made with the first line.
    file: Option<AppendFile>,
    pub buffer: String,
}

/// So much is kept for another try.
const MOST: usize = 64 << 20;

impl Lines {
    pub fn new(path: PathBuf) -> Self {
        Self { path, file: None, buffer: String::new() }
    }

    pub fn open(path: PathBuf) -> Result<Self, StoreError> {
        Ok(Self { file: Some(AppendFile::open_counted(&path)?), ..Self::new(path) })
    }

    pub fn flush(&mut self) -> Result<(), StoreError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let written = match &mut self.file {
            Some(file) => file.append(self.buffer.as_bytes()),
            none => {
                AppendFile::open_counted(&self.path).and_then(|file| none.insert(file).append(self.buffer.as_bytes()))
            }
        };
        if written.is_ok() || self.buffer.len() <= MOST {
            if written.is_ok() {
                self.buffer.clear();
            }
            return written;
        }
        let count = self.buffer.lines().count();
        self.buffer.clear();
        Err(StoreError::LinesLost { path: self.path.clone(), count })
    }

    pub fn restore(&mut self) -> Result<bool, StoreError> {
        self.file.as_mut().map_or(Ok(false), AppendFile::restore)
    }

    pub fn is_cut(&self) -> bool {
        self.file.as_ref().is_some_and(AppendFile::is_cut)
    }

    /// How many lines somebody has cut off since the last time, and of which file.
    pub fn take_lost(&mut self) -> Option<(&Path, u64)> {
        let lost = self.file.as_mut().map_or(0, AppendFile::take_lost);
        (lost > 0).then_some((&*self.path, lost))
    }

    /// What was written and what could not be, as a file of that name in another directory.
    pub fn copy_into(&self, directory: &Path) -> Result<(), StoreError> {
        let to = directory.join(self.path.file_name().unwrap_or_default());
        if let Some(file) = &self.file {
            file.copy_to(&to)?;
        }
        if self.buffer.is_empty() { Ok(()) } else { AppendFile::open(&to)?.append(self.buffer.as_bytes()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// APPEND-1: whatever a crash has cut off, what is appended afterwards is there line by line.
        #[test]
        fn a_file_that_was_cut_anywhere_keeps_every_later_line(
            lines in prop::collection::vec("[a-z{}\" ]{1,9}", 1..6), cut in any::<prop::sample::Index>()
        ) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("log");
            let mut file = AppendFile::open(&path).unwrap();
            lines.iter().for_each(|line| file.append(format!("{line}\n").as_bytes()).unwrap());
            let before = fs::read(&path).unwrap();
            let cut = cut.index(before.len() + 1);
            File::options().write(true).open(&path).unwrap().set_len(cut as u64).unwrap();
            let mut file = AppendFile::open(&path).unwrap();
            lines.iter().for_each(|line| file.append(format!("later {line}\n").as_bytes()).unwrap());
            let text = fs::read_to_string(&path).unwrap();
            let whole = before[..cut].iter().filter(|byte| **byte == b'\n').count();
            let read: Vec<&str> = text.lines().collect();
            prop_assert_eq!(&read[..whole], lines[..whole].iter().map(String::as_str).collect::<Vec<_>>());
            let later: Vec<String> = lines.iter().map(|line| format!("later {line}")).collect();
            prop_assert_eq!(&read[read.len() - lines.len()..], later.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }

    #[test]
    fn append_2_what_was_taken_away_is_made_again_with_all_its_lines() {
        let directory = tempfile::tempdir().unwrap();
        let (run, path) = (directory.path().join("run"), directory.path().join("run/log"));
        fs::create_dir(&run).unwrap();
        let mut file = AppendFile::open(&path).unwrap();
        file.append(b"one\n").unwrap();
        fs::remove_dir_all(&run).unwrap();
        assert!(file.restore().unwrap());
        assert!(!file.restore().unwrap());
        file.append(b"two\n").unwrap();
        assert!(!file.restore().unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        fs::rename(&run, directory.path().join("moved")).unwrap();
        file.append(b"three\n").unwrap();
        assert!(file.restore().unwrap(), "an append made it again");
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\nthree\n");
    }

    proptest! {
        #[test]
        fn append_4_lines_that_somebody_cuts_off_are_counted_and_later_ones_are_whole(
            before in 0_u64..4, count in 1_u64..6, cut in any::<prop::sample::Index>()
        ) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("log");
            fs::write(&path, "before\n".repeat(before as usize)).unwrap();
            let mut file = AppendFile::open_counted(&path).unwrap();
            (0..count).for_each(|_| file.append(b"line\n").unwrap());
            let whole = fs::read(&path).unwrap();
            let cut = cut.index(whole.len() + 1);
            File::options().write(true).open(&path).unwrap().set_len(cut as u64).unwrap();
            prop_assert_eq!(file.is_cut(), cut < whole.len());
            file.append(b"after\n").unwrap();
            let left = whole[..cut].iter().filter(|byte| **byte == b'\n').count() as u64;
            prop_assert_eq!((file.take_lost(), file.take_lost()), (before + count - left, 0));
            let text = fs::read_to_string(&path).unwrap();
            prop_assert_eq!(text.lines().last(), Some("after"));
        }
    }

    #[test]
    fn append_3_a_copy_that_comes_back_gets_what_was_appended_while_it_was_away() {
        let directory = tempfile::tempdir().unwrap();
        let (run, away) = (directory.path().join("run"), directory.path().join("away"));
        let path = run.join("log");
        let mut file = AppendFile::open(&path).unwrap();
        for turn in 0..3 {
            file.append(format!("before {turn}\n").as_bytes()).unwrap();
            fs::rename(&run, &away).unwrap();
            file.append(format!("meanwhile {turn}\n").as_bytes()).unwrap();
            fs::remove_dir_all(&run).unwrap();
            fs::rename(&away, &run).unwrap();
            assert!(file.restore().unwrap());
            assert!(!file.restore().unwrap());
        }
        file.append(b"after\n").unwrap();
        let all = (0..3).map(|turn| format!("before {turn}\nmeanwhile {turn}\n")).collect::<String>() + "after\n";
        assert_eq!(fs::read_to_string(&path).unwrap(), all);
        // As an editor does it: what is not a beginning of ours is somebody's own.
        fs::write(run.join("new"), "other\n").unwrap();
        fs::rename(run.join("new"), &path).unwrap();
        file.append(b"four\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "other\nfour\n");
    }
}
