//! The programs that tests start and that are not of their own crate.

use std::process::Command;

/// Builds a package of the workspace, as the build that the tests belong to has built everything else.
pub fn build(cargo: &str, package: &str) {
    build_with(cargo, &["--package", package]);
}

/// Builds the examples of a package.
pub fn build_examples(cargo: &str, package: &str) {
    build_with(cargo, &["--package", package, "--examples"]);
}

fn build_with(cargo: &str, what: &[&str]) {
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--release"]).args(what).current_dir(env!("CARGO_MANIFEST_DIR"));
    // What cargo tells a test about the test's own package. Some build scripts look at it, and would run again, and with them
    // the compiler for everything that depends on them.
    let own = |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.starts_with(prefix));
    for (name, _) in std::env::vars().filter(|(name, _)| own(name)) {
        command.env_remove(name);
    }
    assert!(command.status().is_ok_and(|status| status.success()), "`{what:?}` is built");
}
