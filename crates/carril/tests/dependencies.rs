//! What a user's build is spared.

use std::process::Command;

#[test]
fn neither_python_nor_arrow_is_pulled_in() {
    let tree =
        ["tree", "--offline", "--package", "carril", "--edges", "normal", "--prefix", "none", "--no-default-features"];
    let output =
        Command::new(env!("CARGO")).args(tree).current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo");
    let names = String::from_utf8_lossy(&output.stdout);
    let names: Vec<&str> = names.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains(&"carril-worker"), "the tree was read: {}", String::from_utf8_lossy(&output.stderr));
    let unwanted = |name: &&&str| name.starts_with("arrow") || name.starts_with("pyo3") || **name == "parquet";
    assert_eq!(names.iter().filter(unwanted).collect::<Vec<_>>(), Vec::<&&str>::new());
}
