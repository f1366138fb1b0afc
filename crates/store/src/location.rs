//! What a user types to name a storage, taken apart: a local path, or a bucket, a prefix and how to reach them.
//!
//! Credentials have no place in a location: it is printed, recorded and sent around.

use std::fmt;
use std::path::PathBuf;

use crate::error::StoreError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    S3,
    Google,
    Azure,
}

/// Before the bucket's name: pyarrow and Ray write so for a public bucket.
const ANONYMOUS: &str = "anonymous@";

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Local(PathBuf),
    Object(Location),
}

/// A prefix in a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub kind: Kind,
    scheme: String,
    /// The bucket; for Azure a container, or `container@account.dfs.core.windows.net`.
    pub bucket: String,
    /// `anonymous@bucket`, for a public bucket: requests are not signed.
    pub is_anonymous: bool,
    /// Without a `/` at either end; empty for the whole bucket.
    pub prefix: String,
    /// As typed, with its `?`; empty where there is none.
    query: String,
}

impl Place {
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return match text.starts_with('/') {
                true => Ok(Place::Local(local(text))),
                false => Err(bad(text, "it is neither an absolute path nor a URI")),
            };
        };
        let kind = match scheme {
            "file" | "local" => return parse_file(text, rest),
            "s3" | "s3a" => Kind::S3,
            "gs" | "gcs" => Kind::Google,
            "az" | "azure" | "abfs" | "abfss" => Kind::Azure,
            _ => return Err(bad(text, "nothing is known of its scheme")),
        };
        let (path, query) = match rest.rfind('?') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        let (bucket, is_anonymous) = match bucket.strip_prefix(ANONYMOUS).filter(|_| kind == Kind::S3) {
            Some(bucket) => (bucket, true),
            None => (bucket, false),
        };
        if bucket.is_empty() {
            return Err(bad(text, "it names no bucket"));
        }
        if bucket.contains('@') && kind != Kind::Azure {
            return Err(bad(text, "credentials do not belong into a URI"));
        }
        let prefix = prefix.trim_matches('/');
        if !prefix.is_empty() && object_store::path::Path::parse(prefix).is_err() {
            return Err(bad(text, "its path has an empty part, a `.`, a `..` or a control character"));
        }
        let location = Location {
            kind,
            scheme: scheme.to_owned(),
            bucket: bucket.to_owned(),
            is_anonymous,
            prefix: prefix.to_owned(),
            query: query.to_owned(),
        };
        let known =
            |(name, _): (&str, &str)| kind == Kind::S3 && ["region", "endpoint_override", "scheme"].contains(&name);
        let understood = location.parameters().all(known);
        match understood {
            true => Ok(Place::Object(location)),
            false => Err(bad(text, "after the `?` only `region`, `endpoint_override` and `scheme` are known, for S3")),
        }
    }
}

/// The place `name` right inside a location, as a user would type it.
pub fn joined(location: &str, name: &str) -> String {
    match Place::parse(location) {
        Ok(Place::Object(at)) => at.join(name).to_string(),
        _ => format!("{}/{name}", location.trim_end_matches('/')),
    }
}

impl Location {
    pub fn join(&self, key: &str) -> Self {
        let prefix = if self.prefix.is_empty() { key.to_owned() } else { format!("{}/{key}", self.prefix) };
        Self { prefix, ..self.clone() }
    }

    /// The names and values after the `?`.
    fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        let query = self.query.trim_start_matches('?');
        query.split('&').filter(|part| !part.is_empty()).map(|part| part.split_once('=').unwrap_or((part, "")))
    }

    pub fn parameter(&self, name: &str) -> Option<String> {
        self.parameters().find(|(known, _)| *known == name).map(|(_, value)| decode(value))
    }

    /// The URI of the bucket alone, as the builders of clients read it.
    pub fn bucket_uri(&self) -> String {
        format!("{}://{}", self.scheme, self.bucket)
    }

    /// For messages.
    pub fn shown(&self) -> String {
        format!("{}://{}/{}", self.scheme, self.bucket, self.prefix)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        let who = if self.is_anonymous { ANONYMOUS } else { "" };
        write!(f, "{}://{who}{}{slash}{}{}", self.scheme, self.bucket, self.prefix, self.query)
    }
}

fn parse_file(text: &str, rest: &str) -> Result<Place, StoreError> {
    let path = rest.strip_prefix("localhost").filter(|path| path.starts_with('/')).unwrap_or(rest);
    match path.starts_with('/') {
        true => Ok(Place::Local(local(&decode(path)))),
        false => Err(bad(text, "a `file://` URI needs three slashes")),
    }
}

fn local(path: &str) -> PathBuf {
    let trimmed = path.trim_end_matches('/');
    PathBuf::from(if trimmed.is_empty() { "/" } else { trimmed })
}

fn bad(text: &str, why: &'static str) -> StoreError {
    StoreError::BadLocation { location: without_secrets(text), why }
}

/// A URI as it may be printed: without what stands before an `@` or after a `?`.
fn without_secrets(text: &str) -> String {
    let text = text.split('?').next().unwrap_or(text);
    match text.split_once("://") {
        Some((scheme, rest)) => match rest.split_once('@') {
            Some((_, rest)) => format!("{scheme}://…@{rest}"),
            None => text.to_owned(),
        },
        None => text.to_owned(),
    }
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Location {
        match Place::parse(text) {
            Ok(Place::Object(location)) => location,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn what_users_type_is_understood() {
        for (text, path) in [("/a/b/", "/a/b"), ("file:///a%20b", "/a b"), ("file://localhost/x", "/x"), ("/", "/")] {
            assert_eq!(Place::parse(text).unwrap(), Place::Local(path.into()), "{text}");
        }
        let location = object("s3://bucket/a/b/?region=eu-west-1&endpoint_override=http%3A%2F%2Flocalhost:9000");
        assert_eq!((location.bucket.as_str(), location.prefix.as_str()), ("bucket", "a/b"));
        assert_eq!(location.parameter("endpoint_override").as_deref(), Some("http://localhost:9000"));
        let run = location.join("run");
        assert_eq!(object(&run.to_string()), run, "a joined location can be typed again");
        assert_eq!(object("gs://bucket").join("x").to_string(), "gs://bucket/x");
        let public = object("s3://anonymous@bucket/x");
        assert_eq!((public.bucket.as_str(), public.is_anonymous), ("bucket", true));
        assert_eq!(public.join("y").to_string(), "s3://anonymous@bucket/x/y");
        assert_eq!(object("abfss://box@account.dfs.core.windows.net/p").bucket, "box@account.dfs.core.windows.net");
        let kinds = ["s3a://b", "gcs://b", "az://b", "azure://b", "abfs://b"].map(|text| object(text).kind);
        assert_eq!(kinds, [Kind::S3, Kind::Google, Kind::Azure, Kind::Azure, Kind::Azure]);
    }

    #[test]
    fn what_is_no_place_is_refused_without_telling_secrets() {
        for text in
            ["results", "ftp://x/y", "s3://", "s3:///x", "s3://b/a//c", "s3://b/../c", "gs://b?region=x", "file://a/b"]
        {
            assert!(matches!(Place::parse(text), Err(StoreError::BadLocation { .. })), "{text}");
        }
        let error = Place::parse("s3://KEY:SECRET@bucket/x?y=SECRET").unwrap_err().to_string();
        assert!(error.contains("bucket/x") && !error.contains("SECRET"), "{error}");
    }
}
