//! The last report of a run or trial, as its `result.json` has it: what the end of a run, `carril explain` and `carril status` go by.
//!
//! Reports behind the checkpoint that a run resumes from stay in the file, so that the last line is what was last reported, and not
//! what the checkpoint has.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use carril_types::{Metrics, Value};

use crate::error::StoreError;
use crate::python_json::parse_object;
use crate::regular;
use crate::storage::Storage;

pub(crate) const RESULTS: &str = "result.json";
/// It is looked for in the last part of the file first.
const TAIL: u64 = 16 * 1024;

/// `None` where nothing was reported. A line that was cut short is passed over.
pub fn last_report(place: &Storage) -> Result<Option<Metrics>, StoreError> {
    if let Some(directory) = place.local_path()
        && let Some(report) = tail(&directory.join(RESULTS)).as_deref().and_then(last_object)
    {
        return Ok(Some(report));
    }
    Ok(place.read(RESULTS)?.and_then(|bytes| last_object(&String::from_utf8_lossy(&bytes))))
}

/// The number of a report. A user may report `training_iteration` too, which then is the user's.
pub fn report_number(report: &Metrics) -> Option<u64> {
    match report.get("_training_iteration").or_else(|| report.get("training_iteration"))? {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

/// The last part of a file, from the start of a line; `None` where it has to be read whole.
fn tail(path: &Path) -> Option<String> {
    let mut file = regular::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    let start = if length > TAIL { bytes.iter().position(|byte| *byte == b'\n')? + 1 } else { 0 };
    Some(String::from_utf8_lossy(&bytes[start..]).into_owned())
}

fn last_object(text: &str) -> Option<Metrics> {
    text.lines().rev().find_map(parse_object)
}
