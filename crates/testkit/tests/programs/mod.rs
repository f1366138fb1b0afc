//! Where the tests of this crate find the programs that they start.

use std::path::{Path, PathBuf};

/// The directory of the programs that this build has made, the `carril` command among them.
pub fn programs() -> PathBuf {
    let worker = Path::new(env!("CARGO_BIN_EXE_carril-test-worker"));
    let directory = worker.parent().expect("a program lies in a directory").to_owned();
    static BUILT: std::sync::Once = std::sync::Once::new();
    BUILT.call_once(|| carril_testkit::build(env!("CARGO"), "carril-cli"));
    directory
}
