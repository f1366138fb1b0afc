//! Follows the files that workers append to: their reports and their output.
//!
//! One inotify descriptor for all of them. A file, and not a pipe, so that a worker never waits for the agent and loses
//! nothing when either of them dies.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use carril_proto::v1;
use carril_store::{ReportLogReader, regular};
use carril_types::{ErrorCode, Failure, WorkerKey};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use prost::Message;
use tokio::io::unix::AsyncFd;

/// Output is passed on in pieces of at most this size.
const PIECE: u64 = 64 << 10;
/// A line longer than this is passed on in parts.
const LONGEST_LINE: usize = 1 << 20;
const LAST_LINES: usize = 50;
const LAST_BYTES: u64 = 16 << 10;
/// A log that is longer than this is emptied before the next worker goes on with it.
const LONG_LOG: u64 = 1 << 20;

pub(crate) struct Followed {
    reports: ReportLogReader,
    reports_path: PathBuf,
    output: File,
    output_path: PathBuf,
    pending: Vec<u8>,
    /// Of the reports and of the output.
    watches: [WatchDescriptor; 2],
}

fn open_output(path: &Path) -> Result<File, Failure> {
    let open = || {
        let opened = || regular::open_with(File::options().create(true).append(true).read(true), path);
        let mut file = opened().or_else(|error| match path.parent() {
            Some(parent) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(parent)?;
                opened()
            }
            _ => Err(error),
        })?;
        file.seek(SeekFrom::End(0))?;
        Ok(file)
    };
    open().map_err(|error: io::Error| trouble(path, &error))
}

fn write_again(mut output: &File, path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    output.seek(SeekFrom::Start(0))?;
    io::copy(&mut output, &mut regular::create(path)?).map(drop)
}

fn trouble(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(ErrorCode::Storage, format!("cannot follow `{}`: {error}", path.display()))
}

/// The files of all workers on this node.
pub(crate) struct Followers {
    inotify: Inotify,
    by_worker: BTreeMap<WorkerKey, Followed>,
    by_watch: HashMap<WatchDescriptor, WorkerKey>,
}

impl Followers {
    pub fn new() -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        Ok(Self { inotify, by_worker: BTreeMap::new(), by_watch: HashMap::new() })
    }

    /// A second descriptor for the task that waits for changes.
    pub fn descriptor(&self) -> io::Result<ChangeSignal> {
        let copy = self.inotify.as_fd().try_clone_to_owned()?;
        // SAFETY: the descriptor is owned, and is closed only after it has left the reactor.
        Ok(ChangeSignal(unsafe { AsyncFd::register(copy)? }))
    }

    pub fn follow(&mut self, key: &WorkerKey, reports_path: PathBuf, output_path: PathBuf) -> Result<(), Failure> {
        let reports = ReportLogReader::open(&reports_path)?;
        let output = open_output(&output_path)?;
        let watches = [self.watch(&reports_path, key)?, self.watch(&output_path, key)?];
        let followed = Followed { reports, reports_path, output, output_path, pending: Vec::new(), watches };
        self.by_worker.insert(key.clone(), followed);
        Ok(())
    }

    /// A process that was `before` goes on as `key`: with the same log, and another file for its output.
    pub fn follow_on(&mut self, before: &WorkerKey, key: &WorkerKey, output_path: PathBuf) -> Result<(), Failure> {
        let nothing = || Failure::new(ErrorCode::Internal, format!("nothing of `{before}` is followed"));
        self.by_worker.get_mut(before).ok_or_else(nothing)?.reports.empty_if_longer(LONG_LOG)?;
        let output = open_output(&output_path)?;
        let watch = self.watch(&output_path, key)?;
        // From here on nothing can fail: either all of it belongs to `key`, or nothing does.
        let mut followed = self.by_worker.remove(before).ok_or_else(nothing)?;
        self.by_watch.insert(followed.watches[0], key.clone());
        self.unwatch(std::mem::replace(&mut followed.watches[1], watch));
        (followed.output, followed.output_path) = (output, output_path);
        followed.pending.clear();
        self.by_worker.insert(key.clone(), followed);
        Ok(())
    }

    fn watch(&mut self, path: &Path, key: &WorkerKey) -> Result<WatchDescriptor, Failure> {
        let watch = self.inotify.add_watch(path, AddWatchFlags::IN_MODIFY).map_err(|error| trouble(path, &error))?;
        self.by_watch.insert(watch, key.clone());
        Ok(watch)
    }

    fn unwatch(&mut self, watch: WatchDescriptor) {
        self.by_watch.remove(&watch);
        let _ = self.inotify.rm_watch(watch);
    }

    pub fn unfollow(&mut self, key: &WorkerKey) {
        let Some(followed) = self.by_worker.remove(key) else { return };
        for watch in followed.watches {
            self.unwatch(watch);
        }
        // The run's directory may have been taken away while the worker wrote.
        if !followed.output_path.exists() {
            let _ = write_again(&followed.output, &followed.output_path);
        }
        // Everything in it has been passed on.
        let _ = fs::remove_file(followed.reports_path.with_extension("stacks"));
        let _ = fs::remove_file(followed.reports_path);
    }

    /// The workers whose files have grown since the last call.
    pub fn changed(&mut self) -> Vec<WorkerKey> {
        let mut keys = Vec::new();
        while let Ok(events) = self.inotify.read_events() {
            keys.extend(events.iter().filter_map(|event| self.by_watch.get(&event.wd)).cloned());
        }
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    pub fn read_reports(&mut self, key: &WorkerKey) -> Result<Vec<v1::Report>, Failure> {
        let Some(followed) = self.by_worker.get_mut(key) else { return Ok(Vec::new()) };
        let mut reports = Vec::new();
        let mut unreadable = None;
        let take = |record: &[u8]| match v1::Report::decode(record) {
            Ok(report) => reports.push(report),
            Err(error) => unreadable = Some(error),
        };
        let mut take = take;
        while followed.reports.read(&mut take)? {}
        match unreadable {
            None => Ok(reports),
            Some(error) => Err(Failure::new(ErrorCode::Internal, format!("a report that cannot be read: {error}"))),
        }
    }

    /// Whole lines, at most a piece of them; a line longer than the longest comes in parts.
    pub fn read_output(&mut self, key: &WorkerKey, all: bool) -> Vec<u8> {
        let Some(followed) = self.by_worker.get_mut(key) else { return Vec::new() };
        loop {
            let read = (&mut followed.output).take(PIECE).read_to_end(&mut followed.pending).unwrap_or(0);
            // A progress bar ends its states with a carriage return: they are passed on as they come.
            let end = match followed.pending.iter().rposition(|byte| matches!(byte, b'\n' | b'\r')) {
                Some(at) => at + 1,
                None if followed.pending.len() >= LONGEST_LINE || (all && read == 0) => followed.pending.len(),
                None if read > 0 => continue,
                None => 0,
            };
            let rest = followed.pending.split_off(end);
            return std::mem::replace(&mut followed.pending, rest);
        }
    }

    pub fn last_output(&mut self, key: &WorkerKey) -> String {
        let Some(followed) = self.by_worker.get(key) else { return String::new() };
        let read = || {
            let mut file = File::open(&followed.output_path)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(LAST_BYTES)))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok::<_, io::Error>(bytes)
        };
        let text = String::from_utf8_lossy(&read().unwrap_or_default()).into_owned();
        let mut lines: VecDeque<&str> = VecDeque::with_capacity(LAST_LINES);
        for line in text.lines() {
            if lines.len() == LAST_LINES {
                lines.pop_front();
            }
            lines.push_back(line);
        }
        Vec::from(lines).join("\n")
    }
}

/// Becomes ready when some followed file has grown.
pub(crate) struct ChangeSignal(AsyncFd<OwnedFd>);

impl ChangeSignal {
    pub async fn wait(&self) -> io::Result<()> {
        let mut guard = self.0.readable().await?;
        // The events are read elsewhere: readiness is asked for anew each time.
        guard.clear_ready();
        Ok(())
    }
}
