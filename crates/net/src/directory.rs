//! The directory of a head: `carril-UID/<8 hex>/`, for its sockets, its blobs and its workers' report logs.
//!
//! It belongs to whoever holds the lock in it. The lock goes with the process, however that ends, so what a crash left
//! behind is told from what is alive without looking at pids.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use carril_types::{ErrorCode, Failure};
use nix::fcntl::{Flock, FlockArg};
use thiserror::Error;

/// So often it is tried to remove a directory.
const REMOVALS: usize = 5;

/// Socket paths end at 107 bytes on Linux; `/carril-UID/<8 hex>/` and the longest name of a socket need some of them.
const LONGEST: usize = 58;
/// A directory without a lock may be one that is just being made.
const FRESH: Duration = Duration::from_secs(60);

#[derive(Debug, Error)]
pub enum DirectoryError {
    #[error("`{}`, where heads have their sockets, {why}", path.display())]
    Foreign { path: PathBuf, why: String },
    #[error("there is no directory `{}` for temporary files", path.display())]
    NoTemporary { path: PathBuf },
    #[error("cannot make `{}`: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl From<DirectoryError> for Failure {
    fn from(error: DirectoryError) -> Self {
        let failure = Failure::new(ErrorCode::Storage, error.to_string());
        match &error {
            DirectoryError::Foreign { path, .. } => failure
                .hint(format!("if it is yours: `chmod 700 {}`, or remove it", path.display()))
                .hint("otherwise set `XDG_RUNTIME_DIR`, or `TMPDIR`, to a directory of your own"),
            DirectoryError::NoTemporary { path } => {
                failure.hint(format!("make it (`mkdir -p {}`), or set `TMPDIR` to one that is there", path.display()))
            }
            DirectoryError::Io { .. } => failure.hint("set `TMPDIR` to a directory that you can write to"),
        }
    }
}

/// The file in the directory of a head that says how it panicked.
pub const PANIC: &str = "panic";

/// Removed with all that is in it when it is dropped.
pub struct PrivateDirectory {
    path: PathBuf,
    _lock: Flock<File>,
}

impl PrivateDirectory {
    pub fn create(random: [u8; 4]) -> Result<Self, DirectoryError> {
        Self::create_below(&root()?, random)
    }

    /// For files of any size: on the disk that has the temporary files, not where memory is the disk.
    pub fn create_large(random: [u8; 4]) -> Result<Self, DirectoryError> {
        Self::create_below(&own_below(&std::env::temp_dir())?, random)
    }

    /// Whether files of any size may lie in this one.
    pub fn is_large(&self) -> bool {
        own_below(&std::env::temp_dir()).is_ok_and(|root| self.path.starts_with(root))
    }

    fn create_below(root: &Path, random: [u8; 4]) -> Result<Self, DirectoryError> {
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = root.join(name);
        let io = |source| DirectoryError::Io { path: path.clone(), source };
        DirBuilder::new().mode(0o700).create(&path).map_err(io)?;
        let lock = lock_of(&path).map_err(io)?;
        Ok(Self { path, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Best effort: what stays is swept by the next start. A process that is just ending may put a file there while it is emptied.
fn remove(path: &Path) {
    let _ = (0..REMOVALS).find(|_| fs::remove_dir_all(path).is_ok() || !path.exists());
}

/// The sockets of this user's heads on this machine, dead ones among them.
pub fn head_sockets() -> Vec<PathBuf> {
    let Ok(entries) =
        root().and_then(|root| fs::read_dir(&root).map_err(|source| DirectoryError::Io { path: root.clone(), source }))
    else {
        return Vec::new();
    };
    let mut sockets: Vec<PathBuf> = entries.flatten().map(|entry| entry.path().join("head.sock")).collect();
    sockets.retain(|socket| socket.exists());
    sockets.sort();
    sockets
}

/// Removes what processes that are gone have left behind.
pub fn sweep() {
    let roots = [root(), own_below(&std::env::temp_dir())].into_iter().flatten();
    for path in roots.filter_map(|root| fs::read_dir(root).ok()).flatten().flatten().map(|entry| entry.path()) {
        let dead = if path.join("lock").exists() { lock_of(&path).is_ok() } else { is_old(&path) };
        if dead {
            remove(&path);
        }
    }
}

fn is_old(path: &Path) -> bool {
    let age = fs::metadata(path).and_then(|meta| meta.modified()).ok().and_then(|time| time.elapsed().ok());
    age.is_some_and(|age| age > FRESH)
}

fn lock_of(directory: &Path) -> io::Result<Flock<File>> {
    let file = File::options().create(true).truncate(false).write(true).open(directory.join("lock"))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno.into())
}

/// `carril-UID` below `$XDG_RUNTIME_DIR` or the temporary directory, made if need be.
fn root() -> Result<PathBuf, DirectoryError> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| is_writable(path));
    let base = [runtime, Some(std::env::temp_dir())]
        .into_iter()
        .flatten()
        .find(|path| path.as_os_str().len() <= LONGEST)
        .unwrap_or_else(|| PathBuf::from("/tmp"));
    own_below(&base)
}

fn own_below(base: &Path) -> Result<PathBuf, DirectoryError> {
    let uid = nix::unistd::geteuid().as_raw();
    let root = base.join(format!("carril-{uid}"));
    match DirBuilder::new().mode(0o700).create(&root) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(_) if !base.is_dir() => return Err(DirectoryError::NoTemporary { path: base.to_owned() }),
        Err(source) => return Err(DirectoryError::Io { path: root, source }),
    }
    let meta = fs::symlink_metadata(&root).map_err(|source| DirectoryError::Io { path: root.clone(), source })?;
    let why = if !meta.is_dir() {
        "is no directory".to_owned()
    } else if meta.uid() != uid {
        format!("belongs to another user (uid {}, this process is {uid})", meta.uid())
    } else if meta.mode() & 0o077 != 0 {
        format!("can be entered by others (mode {:o}, it must be 700)", meta.mode() & 0o777)
    } else {
        return Ok(root);
    };
    Err(DirectoryError::Foreign { path: root, why })
}

fn is_writable(path: &Path) -> bool {
    nix::unistd::access(path, nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_socket_fits_behind_the_longest_directory() {
        let below = format!("/carril-{}/{:08x}/mappers-{:08x}.sock", u32::MAX, 0, 0);
        assert!(std::os::unix::net::SocketAddr::from_pathname("x".repeat(LONGEST) + &below).is_ok());
    }

    #[test]
    fn what_is_alive_is_not_swept_and_what_is_dead_is() {
        let alive = PrivateDirectory::create([0xa1, 0xfe, 0, 1]).unwrap();
        let dead = PrivateDirectory::create([0xde, 0xad, 0, 2]).unwrap();
        let dead_path = dead.path().to_owned();
        // As after kill -9: the lock is gone, the directory is not.
        let kept = dead_path.with_extension("kept");
        fs::rename(&dead_path, &kept).unwrap();
        drop(dead);
        fs::rename(&kept, &dead_path).unwrap();
        sweep();
        assert!(alive.path().exists());
        assert!(!dead_path.exists());
        assert_eq!(fs::metadata(alive.path()).unwrap().mode() & 0o777, 0o700);
    }
}
