//! An S3 server for tests: files below a directory, credentials checked, on a port of its own choosing.
//!
//! `carril-test-s3 --root DIR --access-key KEY --secret-key SECRET` prints the port as its first line and serves until
//! its standard input ends, so that it goes with whoever started it. Buckets are the directories below DIR: as with the
//! real thing, nothing can be put into one that was not made before.

use std::path::PathBuf;
use std::process::ExitCode;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::SimpleAuth;
use s3s::path::S3Path;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{S3Result, s3_error};
use s3s_fs::FileSystem;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

struct Options {
    root: String,
    access_key: String,
    secret_key: String,
}

impl Options {
    fn from_arguments(mut arguments: impl Iterator<Item = String>) -> Option<Self> {
        let (mut root, mut access_key, mut secret_key) = (None, None, None);
        while let Some(name) = arguments.next() {
            let place = match name.as_str() {
                "--root" => &mut root,
                "--access-key" => &mut access_key,
                "--secret-key" => &mut secret_key,
                _ => return None,
            };
            *place = Some(arguments.next()?);
        }
        Some(Self { root: root?, access_key: access_key?, secret_key: secret_key? })
    }
}

/// Lets nobody in without credentials, nor into a bucket or to an upload that is not there.
struct Existing(PathBuf);

#[async_trait::async_trait]
impl S3Access for Existing {
    async fn check(&self, request: &mut S3AccessContext<'_>) -> S3Result<()> {
        if request.credentials().is_none() {
            return Err(s3_error!(AccessDenied, "no credentials were given"));
        }
        let query = request.uri().query().unwrap_or_default();
        let upload = query.split('&').find_map(|pair| pair.strip_prefix("uploadId="));
        // The server below takes one that has been finished for somebody else's.
        if upload.is_some_and(|id| !self.0.join(format!(".upload-{id}.json")).exists()) {
            return Err(s3_error!(NoSuchUpload, "the upload is not known, or was finished"));
        }
        match request.s3_path() {
            S3Path::Bucket { bucket } | S3Path::Object { bucket, .. }
                if request.s3_op().name() != "CreateBucket" && !self.0.join(&**bucket).is_dir() =>
            {
                Err(s3_error!(NoSuchBucket, "the bucket does not exist"))
            }
            _ => Ok(()),
        }
    }
}

fn main() -> ExitCode {
    let Some(options) = Options::from_arguments(std::env::args().skip(1)) else {
        eprintln!("usage: carril-test-s3 --root DIR --access-key KEY --secret-key SECRET");
        return ExitCode::from(2);
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let served = runtime.map_err(Into::into).and_then(|runtime| {
        let served = runtime.block_on(serve(options));
        // A read of standard input cannot be cancelled, and nobody waits for it.
        runtime.shutdown_background();
        served
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(options: Options) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let files = FileSystem::new(&options.root).map_err(|error| format!("`{}`: {error:?}", options.root))?;
    let mut builder = S3ServiceBuilder::new(files);
    builder.set_auth(SimpleAuth::from_single(options.access_key, options.secret_key.as_str()));
    builder.set_access(Existing(options.root.into()));
    let service = builder.build();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("{}", listener.local_addr()?.port());
    tokio::select! {
        refused = accept(listener, service) => refused,
        () = end_of_input() => Ok(()),
    }
}

async fn accept(listener: TcpListener, service: S3Service) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = service.clone();
        tokio::spawn(async move {
            // A client that goes away in the middle is what the tests do to it: no message.
            let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn end_of_input() {
    let mut byte = [0];
    let mut input = tokio::io::stdin();
    while matches!(input.read(&mut byte).await, Ok(1..)) {}
}
