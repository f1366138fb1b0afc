//! Processes that run functions of the user's on blocks: what is Python's goes on beside us, and not under our interpreter's lock.
//!
//! A block goes over in memory that both share, as Arrow's stream format; a byte on the socket says that it is there. The
//! memory is used again and again: fresh pages would cost more than the copy.
//! MAPPER-1: a process has one block at a time; `apply` waits until one is free.
//! MAPPER-2: a process that has gone is replaced, and the block that it had is done again by another one, a few times: somebody may have
//!   killed it. A block with which every process ends is an error. It is the function's own where one of them left, crashed or took too much
//!   memory, and otherwise the doing of whoever killed them.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use carril_types::{ErrorCode, ExitStatus, Failure};
use nix::libc;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde::Deserialize;

use crate::engine::Transform;
use crate::error::DataError;

/// So many processes may end with the same block in their hands.
const TRIES: usize = 3;
/// Who forked a process says how it ended as soon as the kernel has told it.
const STATUS_WITHIN: Duration = Duration::from_secs(5);
const SIGKILL: ExitStatus = ExitStatus::Signal(9);

/// One process, by what connects us.
struct Mapper {
    socket: UnixStream,
    /// What it is given, and what it gives.
    given: File,
    made: File,
    /// On which its parent says how it ended.
    status: UnixStream,
}

/// How a process ended with a block in its hands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Death {
    Exit(ExitStatus),
    /// By the kernel, for its memory.
    OutOfMemory,
    /// Its parent has gone as well.
    Unknown,
}

impl Death {
    fn failure(self) -> Failure {
        let told =
            |what: &str| format!("a process that ran a function on data {what}, {TRIES} times with the same rows");
        match self {
            Death::Exit(exit) => {
                let hint = match exit.error_code() {
                    ErrorCode::WorkerKilled => {
                        "somebody outside killed it; with SIGKILL that may be the kernel, for its memory"
                    }
                    _ => {
                        "it left or crashed in the function, or in native code that it calls: its output is on the console"
                    }
                };
                Failure::new(exit.error_code(), told(&exit.what_happened())).hint(hint)
            }
            Death::OutOfMemory => Failure::new(ErrorCode::OutOfMemory, told("was ended by the kernel for its memory"))
                .hint("let the function hold less: a smaller `batch_size`, or a smaller `concurrency`"),
            Death::Unknown => Failure::new(ErrorCode::WorkerKilled, told("has gone with its parent")),
        }
    }

    fn is_own(self) -> bool {
        match self {
            Death::Exit(exit) => exit.error_code() == ErrorCode::WorkerExited,
            Death::OutOfMemory => true,
            Death::Unknown => false,
        }
    }
}

/// How many processes of this machine the kernel has ended for their memory.
fn memory_kills() -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
}

pub struct Pool {
    /// To the process that forks them.
    control: UnixStream,
    free: Mutex<Free>,
    ready: Condvar,
    keeps_rows: bool,
    /// As far as they were counted: a process that somebody kills later was not killed for its memory.
    memory_kills: AtomicU64,
}

struct Free {
    mappers: Vec<Mapper>,
    alive: usize,
}

/// What a process says of a function that raised.
#[derive(Deserialize)]
struct Raised {
    message: String,
    #[serde(default)]
    hints: Vec<String>,
    /// The exception, where it can be pickled.
    #[serde(default)]
    pickle: Option<String>,
}

impl Pool {
    pub fn start(control: UnixStream, processes: usize, keeps_rows: bool) -> Result<Self, DataError> {
        let mappers = (0..processes).map(|_| Mapper::fork(&control)).collect::<io::Result<Vec<_>>>();
        let mappers = mappers.map_err(|error| not_started(&error))?;
        Ok(Self {
            control,
            free: Mutex::new(Free { alive: mappers.len(), mappers }),
            ready: Condvar::new(),
            keeps_rows,
            memory_kills: AtomicU64::new(memory_kills()),
        })
    }

    fn take(&self) -> Result<Mapper, DataError> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(mapper) = free.mappers.pop() {
                return Ok(mapper);
            }
            if free.alive == 0 {
                return Err(not_started(&io::ErrorKind::BrokenPipe.into()));
            }
            free = self.ready.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// `kills` is how many processes the kernel had ended before.
    fn death(&self, mapper: &mut Mapper, kills: u64) -> Death {
        let Some(exit) = mapper.exit() else { return Death::Unknown };
        let now = if exit == SIGKILL { memory_kills() } else { kills };
        self.memory_kills.fetch_max(now, Ordering::Relaxed);
        if now > kills { Death::OutOfMemory } else { Death::Exit(exit) }
    }

    fn give_back(&self, mapper: Option<Mapper>) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        match mapper {
            Some(mapper) => free.mappers.push(mapper),
            None => free.alive -= 1,
        }
        drop(free);
        // All of them: when none is left, everybody has to hear it.
        self.ready.notify_all();
    }
}

impl Transform for Pool {
    fn apply(&self, block: RecordBatch) -> Result<Vec<RecordBatch>, DataError> {
        let mut deaths = Vec::new();
        for _ in 0..TRIES {
            let mut mapper = self.take()?;
            let kills = self.memory_kills.load(Ordering::Relaxed);
            match mapper.exchange(&block) {
                Ok(answer) => {
                    self.give_back(Some(mapper));
                    return answer;
                }
                Err(_) => {
                    deaths.push(self.death(&mut mapper, kills));
                    self.give_back(Mapper::fork(&self.control).ok());
                }
            }
        }
        let death = deaths.iter().find(|death| death.is_own()).or(deaths.last()).copied().unwrap_or(Death::Unknown);
        Err(DataError::User(Box::new(death.failure())))
    }

    fn keeps_rows(&self) -> bool {
        self.keeps_rows
    }

    fn shares_memory(&self) -> bool {
        false
    }
}

/// Nobody is there that could fork them: that is not the function's doing.
fn not_started(error: &io::Error) -> DataError {
    let told = format!("the processes that run functions on data have gone, and no other can be started: {error}");
    DataError::User(Box::new(Failure::new(ErrorCode::WorkerKilled, told)))
}

/// Memory for both sides. An open file has one place for both: each gets an opening of its own.
fn shared(name: &CStr) -> io::Result<(File, File)> {
    // SAFETY: the name ends with a zero, and the descriptor is ours when there is one.
    let ours = unsafe {
        match libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) {
            -1 => return Err(io::Error::last_os_error()),
            descriptor => File::from_raw_fd(descriptor),
        }
    };
    let theirs = File::options().read(true).write(true).open(format!("/proc/self/fd/{}", ours.as_raw_fd()))?;
    Ok((ours, theirs))
}

impl Mapper {
    fn fork(control: &UnixStream) -> io::Result<Self> {
        let (socket, there) = UnixStream::pair()?;
        let (given, given_there) = shared(c"carril-given")?;
        let (made, made_there) = shared(c"carril-made")?;
        let (status, status_there) = UnixStream::pair()?;
        status.set_read_timeout(Some(STATUS_WITHIN))?;
        let descriptors =
            [there.as_raw_fd(), given_there.as_raw_fd(), made_there.as_raw_fd(), status_there.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&descriptors)];
        sendmsg::<()>(control.as_raw_fd(), &[IoSlice::new(b"f")], &rights, MsgFlags::MSG_NOSIGNAL, None)?;
        Ok(Self { socket, given, made, status })
    }

    /// How it ended; nothing where nobody says so.
    fn exit(&mut self) -> Option<ExitStatus> {
        let mut code = [0; 4];
        self.status.read_exact(&mut code).ok()?;
        Some(match i32::from_le_bytes(code) {
            code @ 0.. => ExitStatus::Code(code),
            signal => ExitStatus::Signal(-signal),
        })
    }

    /// The outer error: the process has gone.
    fn exchange(&mut self, block: &RecordBatch) -> io::Result<Result<Vec<RecordBatch>, DataError>> {
        if let Err(error) = write_blocks(&mut self.given, std::slice::from_ref(block)) {
            return Ok(Err(error));
        }
        self.socket.write_all(&[1])?;
        let mut head = [0; 9];
        self.socket.read_exact(&mut head)?;
        let count = u64::from_le_bytes([head[1], head[2], head[3], head[4], head[5], head[6], head[7], head[8]]);
        if head[0] == 0 {
            return Ok(read_blocks(&mut self.made, count as usize));
        }
        let mut text = vec![0; count as usize];
        self.socket.read_exact(&mut text)?;
        let raised: Raised = serde_json::from_slice(&text)?;
        let failure = Failure::new(ErrorCode::UserException, raised.message);
        let failure = Box::new(raised.hints.into_iter().fold(failure, Failure::hint));
        Ok(Err(match raised.pickle {
            Some(pickle) => DataError::Raised { failure, pickle },
            None => DataError::User(failure),
        }))
    }
}

/// From the beginning of the file, one stream for each block: their columns may differ.
pub fn write_blocks(file: &mut File, blocks: &[RecordBatch]) -> Result<(), DataError> {
    let trouble = |error: io::Error| DataError::invalid(format!("shared memory cannot be written: {error}"));
    file.seek(SeekFrom::Start(0)).map_err(trouble)?;
    for block in blocks {
        let mut writer = StreamWriter::try_new(&mut *file, &block.schema())?;
        writer.write(block)?;
        writer.finish()?;
    }
    Ok(())
}

pub fn read_blocks(file: &mut File, count: usize) -> Result<Vec<RecordBatch>, DataError> {
    let trouble = |error: io::Error| DataError::invalid(format!("shared memory cannot be read: {error}"));
    file.seek(SeekFrom::Start(0)).map_err(trouble)?;
    let mut blocks = Vec::with_capacity(count);
    for _ in 0..count {
        let mut reader = StreamReader::try_new(&mut *file, None)?;
        let schema = reader.schema();
        blocks.push(reader.next().transpose()?.unwrap_or_else(|| RecordBatch::new_empty(schema)));
        // Its end is read too, so that the next one begins behind it.
        if reader.next().is_some() {
            return Err(DataError::invalid("shared memory holds more than was announced"));
        }
    }
    Ok(blocks)
}
