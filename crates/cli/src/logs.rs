//! `carril logs RUN [--rank N] [--follow]`

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use carril_store::RunRecord;
use carril_types::{ErrorCode, Failure};
use clap::Args;

use crate::find::{Storage, block_on};

/// How often a file that is followed is looked at.
const LOOK: Duration = Duration::from_millis(100);
const PIECE: u64 = 1 << 20;

#[derive(Args)]
pub struct Logs {
    /// The run's name, id or directory
    run: String,
    /// Only this rank, without marks
    #[arg(long, value_name = "N")]
    rank: Option<u32>,
    /// Go on until the run ends
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    storage: Storage,
}

/// One rank's output, and how much of it has been printed.
struct Source {
    path: PathBuf,
    mark: String,
    at: u64,
    rest: Vec<u8>,
}

impl Logs {
    pub fn run(self) -> Result<(), Failure> {
        let directory = block_on(self.storage.directory_of(&self.run))?;
        let mut sources = BTreeMap::new();
        loop {
            // Looked at before the files are read: what was written before the end is then read after it.
            let ended = !self.follow || !is_going_on(&directory);
            self.find_sources(&directory, &mut sources);
            if sources.is_empty() && ended {
                return Err(self.nothing(&directory));
            }
            for source in sources.values_mut() {
                if print_new(source, ended).is_err() {
                    // The reader has gone, as `head` does.
                    return Ok(());
                }
            }
            if ended {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Files are named `rank_0.attempt_0.log`; new ones may come while they are followed.
    fn find_sources(&self, directory: &Path, sources: &mut BTreeMap<(u32, u32), Source>) {
        let Ok(entries) = std::fs::read_dir(directory.join("ranks")) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            let Some((rank, attempt)) = path.file_name().and_then(|name| parse(name.to_str()?)) else { continue };
            if self.rank.is_some_and(|wanted| wanted != rank) {
                continue;
            }
            let mark = if self.rank.is_some() { String::new() } else { format!("(rank {rank}) ") };
            sources.entry((attempt, rank)).or_insert(Source { path, mark, at: 0, rest: Vec::new() });
        }
    }

    fn nothing(&self, directory: &Path) -> Failure {
        let of = self.rank.map_or_else(String::new, |rank| format!(" of rank {rank}"));
        Failure::new(ErrorCode::NotFound, format!("there is no output{of} in `{}`", directory.join("ranks").display()))
    }
}

fn parse(name: &str) -> Option<(u32, u32)> {
    let (rank, attempt) = name.strip_prefix("rank_")?.strip_suffix(".log")?.split_once(".attempt_")?;
    Some((rank.parse().ok()?, attempt.parse().ok()?))
}

fn is_going_on(directory: &Path) -> bool {
    RunRecord::read(directory).is_some_and(|record| {
        !matches!(record.status_word(), "finished" | "failed" | "aborted" | "preempted" | "unfinished")
    })
}

fn print_new(source: &mut Source, to_the_end: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let Ok(mut file) = File::open(&source.path) else { return Ok(()) };
    file.seek(SeekFrom::Start(source.at))?;
    loop {
        let read = (&mut file).take(PIECE).read_to_end(&mut source.rest)? as u64;
        source.at += read;
        while let Some(end) = source.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = source.rest.drain(..=end).collect();
            out.write_all(source.mark.as_bytes())?;
            out.write_all(&line)?;
        }
        if read < PIECE {
            break;
        }
    }
    if to_the_end && !source.rest.is_empty() {
        out.write_all(source.mark.as_bytes())?;
        out.write_all(&std::mem::take(&mut source.rest))?;
        out.write_all(b"\n")?;
    }
    out.flush()
}
