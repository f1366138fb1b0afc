//! What a user's build is spared.

use std::process::Command;

/// The packages that a user's build has, with these features.
fn tree(features: &[&str]) -> Vec<String> {
    let plain = ["tree", "--offline", "--package", "carril", "--edges", "normal", "--prefix", "none"];
    let output = Command::new(env!("CARGO"))
        .args(plain)
        .args(features)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo");
    let names = String::from_utf8_lossy(&output.stdout);
    let names: Vec<String> = names.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    let is_read = names.iter().any(|name| name == "carril-worker");
    assert!(is_read, "the tree was read: {}", String::from_utf8_lossy(&output.stderr));
    names
}

fn among(names: &[String], unwanted: impl Fn(&str) -> bool) -> Vec<&String> {
    names.iter().filter(|name| unwanted(name)).collect()
}

fn is_of_data(name: &str) -> bool {
    name.starts_with("arrow") || ["parquet", "carril-data"].contains(&name)
}

#[test]
fn neither_python_nor_arrow_is_pulled_in() {
    let names = tree(&[]);
    assert_eq!(among(&names, |name| name.starts_with("pyo3") || is_of_data(name)), Vec::<&String>::new());
}

#[test]
fn data_sets_bring_arrow_and_still_no_python() {
    let names = tree(&["--features", "data"]);
    assert!(among(&names, is_of_data).len() > 5, "{names:?}");
    assert_eq!(among(&names, |name| name.starts_with("pyo3")), Vec::<&String>::new());
}

/// Everything else here is built with the feature.
#[test]
fn the_crate_is_whole_without_data_sets() {
    carril_testkit::build(env!("CARGO"), "carril");
}
