//! The manifest of a checkpoint: what it holds, who wrote it, when, and the checksums that tell damage from content.
//!
//! MANIFEST-1: the file is one line of compact JSON whose last field is `checksum`: the CRC-32C of the same line without that
//!   field. It is checked on the bytes as they are, before anything of them is believed.
//! MANIFEST-2: neither the manifest nor the user's metadata, which may change later, is among its own `files`.

use std::fmt;

use carril_types::Validation;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub const MANIFEST: &str = ".manifest.json";
/// Where the manifest of a damaged checkpoint is kept on a storage that cannot rename.
pub const SET_ASIDE: &str = ".manifest.damaged.json";
pub const METADATA: &str = ".metadata.json";
pub(crate) const VERSION: u32 = 2;
const CHECKSUM: &str = ",\"checksum\":\"";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub version: u32,
    pub iteration: u64,
    pub attempt: u32,
    /// Seconds since 1970.
    pub created: f64,
    pub ranks: Vec<u32>,
    pub metrics: serde_json::Value,
    /// Automatic fields that the function has reported itself, so that they are its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<String>,
    /// Where the data sets stood.
    pub data_position: serde_json::Value,
    /// The user's check of it, where one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<Validation>,
    pub files: Vec<ManifestFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Relative, with `/` between its parts.
    pub path: String,
    pub size: u64,
    /// `None` where the file was on a remote storage already and nobody read it.
    #[serde(serialize_with = "write_hex", deserialize_with = "read_hex")]
    pub crc32c: Option<u32>,
    pub rank: u32,
}

/// What is wrong with a checkpoint, and with which of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    Manifest {
        why: String,
    },
    /// Not damage in truth, but as unloadable: its manifest is of a later version.
    Newer {
        version: u64,
    },
    Missing {
        file: String,
    },
    Size {
        file: String,
        expected: u64,
        found: u64,
    },
    Content {
        file: String,
        expected: u32,
        found: u32,
    },
    Unreadable {
        file: String,
        why: String,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Manifest { why } => write!(f, "`{MANIFEST}` {why}"),
            Damage::Newer { version } => {
                write!(f, "`{MANIFEST}` has version {version}, which only a newer Carril reads")
            }
            Damage::Missing { file } => write!(f, "`{file}` is missing"),
            Damage::Size { file, expected, found } => {
                write!(f, "`{file}` has {found} bytes, the manifest says {expected}")
            }
            Damage::Content { file, expected, found } => {
                write!(f, "the content of `{file}` has checksum {found:08x}, the manifest says {expected:08x}")
            }
            Damage::Unreadable { file, why } => write!(f, "`{file}` cannot be read: {why}"),
        }
    }
}

impl Manifest {
    pub(crate) fn new(iteration: u64, attempt: u32, created: f64) -> Self {
        Self {
            version: VERSION,
            iteration,
            attempt,
            created,
            ranks: Vec::new(),
            metrics: serde_json::Value::Null,
            own: Vec::new(),
            data_position: serde_json::Value::Null,
            validation: None,
            files: Vec::new(),
        }
    }

    /// The bytes of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut text = serde_json::to_string(self).expect("a manifest of plain fields is always JSON");
        let checksum = crc32c::crc32c(text.as_bytes());
        text.truncate(text.len() - 1);
        text.push_str(&format!("{CHECKSUM}{checksum:08x}\"}}\n"));
        text.into_bytes()
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Damage> {
        let broken = |why: &str| Damage::Manifest { why: why.to_owned() };
        let text = std::str::from_utf8(bytes).map_err(|_| broken("is not text"))?.trim_end();
        let (body, checksum) = text
            .strip_suffix("\"}")
            .and_then(|text| text.rsplit_once(CHECKSUM))
            .ok_or_else(|| broken("does not end in its checksum"))?;
        let found = crc32c::crc32c_append(crc32c::crc32c(body.as_bytes()), b"}");
        if u32::from_str_radix(checksum, 16) != Ok(found) {
            return Err(broken("does not match its checksum"));
        }
        let value: serde_json::Value = serde_json::from_str(text).map_err(|_| broken("is not JSON"))?;
        match value["version"].as_u64() {
            Some(version) if version > u64::from(VERSION) => return Err(Damage::Newer { version }),
            Some(version) if version == u64::from(VERSION) => {}
            _ => return Err(broken("has no version that is known")),
        }
        let manifest: Manifest = serde_json::from_value(value)
            .map_err(|error| Damage::Manifest { why: format!("lacks what it should say: {error}") })?;
        match manifest.files.iter().all(|file| stays_below(&file.path)) {
            true => Ok(manifest),
            false => Err(broken("names a file outside of the checkpoint")),
        }
    }
}

/// Whether a path is a plain one below the directory that it is joined to: what a manifest says is never a way out of it.
fn stays_below(path: &str) -> bool {
    path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

fn write_hex<S: Serializer>(value: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.serialize_str(&format!("{value:08x}")),
        None => serializer.serialize_none(),
    }
}

fn read_hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let text: Option<String> = Option::deserialize(deserializer)?;
    text.map(|text| u32::from_str_radix(&text, 16).map_err(serde::de::Error::custom)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let mut manifest = Manifest::new(7, 1, 1_700_000_000.1);
        manifest.ranks = vec![0, 1];
        manifest.metrics = serde_json::json!({"loss": 0.1 + 0.2, "accuracy": "NaN", "checksum": "00000000"});
        manifest.files = vec![
            ManifestFile { path: "model.bin".into(), size: 3, crc32c: Some(0xabc), rank: 0 },
            ManifestFile { path: "a/b".into(), size: 0, crc32c: None, rank: 1 },
        ];
        manifest
    }

    #[test]
    fn manifest_1_survives_its_bytes_and_any_flipped_bit_is_seen() {
        let bytes = manifest().to_bytes();
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(text.contains("\"crc32c\":\"00000abc\"") && text.contains("\"crc32c\":null"), "{text}");
        let read = Manifest::from_bytes(&bytes).unwrap();
        assert_eq!((read.ranks, read.files, read.iteration), (manifest().ranks, manifest().files, 7));
        for at in 0..bytes.len() - 1 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Manifest::from_bytes(&damaged).is_err(), "byte {at}");
            assert!(Manifest::from_bytes(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_manifest_that_points_out_of_its_checkpoint_is_not_believed() {
        for path in ["../other", "/etc/passwd", "a/../../b", ""] {
            let mut manifest = manifest();
            manifest.files[0].path = path.into();
            assert!(Manifest::from_bytes(&manifest.to_bytes()).is_err(), "{path}");
        }
    }

    #[test]
    fn a_manifest_of_a_later_version_is_not_taken_for_damage() {
        let mut later = manifest();
        later.version = 3;
        assert_eq!(Manifest::from_bytes(&later.to_bytes()), Err(Damage::Newer { version: 3 }));
    }
}
