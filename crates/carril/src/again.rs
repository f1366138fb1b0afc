//! How this driver was started, and which run it was started again for.
//!
//! `carril resume` runs a recorded command once more, in the directory where it was first run, and says in a variable of the
//! environment which run that is for. A run whose name was made up has to be found again among all that the program runs: it is
//! known by its function, and by how many runs of that function had a made-up name before it.
//!
//! AGAIN-1: workers do not see the variable: what they run is not what was started again.
//! AGAIN-2: a name is given out once.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use carril_store::Storage;
use carril_types::ErrorCode;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::{Error, Result};

pub(crate) const VARIABLE: &str = "CARRIL_RESUME";

/// What a made-up name is known by when the program is run again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MadeUp {
    function: String,
    number: u64,
}

/// The run that this driver was started again for.
struct Resumed {
    name: String,
    /// Nothing where the user gave it its name.
    made_up: Option<MadeUp>,
}

/// Where the program was started: it may have gone elsewhere since.
static DIRECTORY: OnceLock<Option<PathBuf>> = OnceLock::new();
static COUNTS: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

/// To be called when the program begins.
pub(crate) fn note_directory() {
    DIRECTORY.get_or_init(|| std::env::current_dir().ok());
}

/// What it takes to run this driver's command again, for `run.json`.
pub(crate) fn how_started(made_up: Option<&MadeUp>) -> serde_json::Value {
    let program = std::env::current_exe().unwrap_or_default().display().to_string();
    let directory = DIRECTORY.get().cloned().flatten().unwrap_or_default();
    json!({
        // The kernel's word for a file that was built anew since.
        "program": program.trim_end_matches(" (deleted)"),
        "command_line": std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>(),
        "started_as": "program",
        "directory": directory.display().to_string(),
        "made_up_name": made_up,
    })
}

/// The name of a run that was given none: `fresh`, unless it is the one that this driver was started again for.
pub(crate) fn name_for(function: &str, fresh: String) -> Result<(String, MadeUp)> {
    let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let count = counts.entry(function.to_owned()).or_default();
    let made_up = MadeUp { function: function.to_owned(), number: *count };
    *count += 1;
    let meant = resumed()?.filter(|resumed| resumed.made_up.as_ref() == Some(&made_up));
    Ok((meant.map_or(fresh, |resumed| resumed.name), made_up))
}

/// Whether this driver was started by `carril resume`.
pub(crate) fn is_again() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

fn resumed() -> Result<Option<Resumed>> {
    let Ok(location) = std::env::var(VARIABLE) else { return Ok(None) };
    let none = || {
        Error::new(ErrorCode::NotFound, format!("`{VARIABLE}` is `{location}`: there is no run"))
            .hint("`carril resume` sets it; unset it")
    };
    let location = location.trim_end_matches('/');
    let place = Storage::open(location, None)?;
    let record = match place.read("run.json")? {
        Some(record) => record,
        None => place.read("experiment.json")?.ok_or_else(none)?,
    };
    let record: serde_json::Value = serde_json::from_slice(&record).map_err(|_| none())?;
    // A run of a program in another language has none that is understood, and is not meant.
    let made_up = serde_json::from_value(record["asked"]["made_up_name"].clone()).ok();
    Ok(location.rsplit('/').next().map(|name| Resumed { name: name.to_owned(), made_up }))
}
