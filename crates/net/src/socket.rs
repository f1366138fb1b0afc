//! Unix sockets as tonic wants them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use carril_proto::{PROTOCOL, VERSION};
use carril_types::{ErrorCode, Failure};
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::{Stream, StreamExt, wrappers::UnixListenerStream};
use tonic::transport::{Channel, Endpoint};

/// After a connection that could not be taken.
const PAUSE: Duration = Duration::from_millis(20);

/// Connects to the socket at `path`. `lost` says whose socket it is, should nobody answer.
pub async fn connect(path: &Path, lost: ErrorCode) -> Result<Channel, Failure> {
    let socket: PathBuf = path.to_owned();
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    // The address is not used, but an endpoint must have one.
    Endpoint::from_static("http://carril.local").connect_with_connector(connector).await.map_err(|error| {
        let source = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        Failure::new(lost, format!("nobody answers at `{}`: {source}", path.display()))
    })
}

/// The connections of this user; one of another user is dropped before a byte of it is read.
pub fn accept_own(listener: UnixListener) -> impl Stream<Item = io::Result<UnixStream>> {
    let own = nix::unistd::geteuid().as_raw();
    // One that cannot be taken for want of a descriptor is there again at once: without a pause that is all that is done.
    let paced = UnixListenerStream::new(listener).then(|connection| async {
        if connection.is_err() {
            tokio::time::sleep(PAUSE).await;
        }
        connection
    });
    paced.filter(move |connection| match connection {
        Ok(stream) => stream.peer_cred().is_ok_and(|peer| peer.uid() == own),
        Err(_) => true,
    })
}

/// Both sides of a connection must be of one protocol and one version. `other` and `own` name the sides.
pub fn check_versions(other: &str, own: &str, protocol: u32, version: &str) -> Result<(), Failure> {
    if protocol == PROTOCOL && version == VERSION {
        return Ok(());
    }
    let message =
        format!("{other} is carril {version} (protocol {protocol}), {own} is carril {VERSION} (protocol {PROTOCOL})");
    Err(Failure::new(ErrorCode::VersionMismatch, message)
        .hint("install one version of carril for the driver, the `carril` command and the workers"))
}
