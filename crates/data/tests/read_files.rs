//! Which files are found, the columns in their paths, and the errors where there are none.

mod common;

use carril_data::{FileOptions, find_files};
use common::{Directory, error, shown};
use serde_json::json;

fn names(directory: &Directory, paths: &[&str], options: &FileOptions) -> Vec<String> {
    let paths: Vec<String> = paths.iter().map(|path| format!("{}/{path}", directory.all())).collect();
    let found = find_files(&paths, options).unwrap();
    found.iter().map(|file| file.name.strip_prefix(&directory.all()).unwrap()[1..].to_owned()).collect()
}

fn some() -> Directory {
    let directory = Directory::new();
    for name in ["b.csv", "a.csv", "sub/c.csv", "sub/d.txt", ".hidden", "_SUCCESS", "sub/_x/e.csv", "f[1].csv"] {
        directory.write(name, "a\n1\n");
    }
    directory
}

#[test]
fn files_1_and_2_directories_globs_and_lists() {
    let directory = some();
    let all = FileOptions::default();
    assert_eq!(names(&directory, &[""], &all), ["a.csv", "b.csv", "f[1].csv", "sub/c.csv", "sub/d.txt"]);
    assert_eq!(names(&directory, &["*.csv"], &all), ["a.csv", "b.csv", "f[1].csv"]);
    assert_eq!(names(&directory, &["**/*.csv"], &all), ["a.csv", "b.csv", "f[1].csv", "sub/c.csv"]);
    assert_eq!(names(&directory, &["s*"], &all), ["sub/c.csv", "sub/d.txt"]);
    assert_eq!(names(&directory, &["b.csv", "a.csv"], &all), ["b.csv", "a.csv"]);
    assert_eq!(names(&directory, &["f[1].csv"], &all), ["f[1].csv"]);
    assert_eq!(names(&directory, &["_SUCCESS"], &all), ["_SUCCESS"]);
    let only = FileOptions { file_extensions: Some(vec![".TXT".to_owned()]), ..FileOptions::default() };
    assert_eq!(names(&directory, &[""], &only), ["sub/d.txt"]);
    let uri = format!("file://{}/a.csv", directory.all());
    assert_eq!(find_files(&[uri], &all).unwrap()[0].name, format!("{}/a.csv", directory.all()));
}

#[test]
fn nothing_is_one_clear_error() {
    let directory = some();
    let missing = format!("{}/nowhere", directory.all());
    let told = error(json!({ "format": "csv", "paths": [missing] }));
    assert_eq!(told, format!("nothing is at `{missing}`"));
    let told = error(json!({ "format": "csv", "paths": [format!("{missing}/*.csv")] }));
    assert_eq!(told, format!("nothing is at `{missing}/*.csv`"));
    let told = error(json!({ "format": "parquet", "paths": [directory.all()] }));
    assert!(told.contains("none of the 5 files") && told.contains("`.parquet`"), "{told}");
    let both = [missing.clone(), directory.path("a.csv").to_str().unwrap().to_owned()];
    let spec = json!({ "format": "csv", "paths": both, "files": { "ignore_missing_paths": true } });
    assert_eq!(shown(spec), ["a: Int64", "1"]);
    let told = error(json!({ "format": "csv", "paths": [missing], "files": { "ignore_missing_paths": true } }));
    assert!(told.contains("there are no files to read"), "{told}");
    let told = error(json!({ "format": "csv", "paths": [missing], "options": { "delimeter": ";" } }));
    assert!(told.contains("delimeter"), "{told}");
}

#[test]
fn files_3_partitions_are_columns() {
    let directory = Directory::new();
    directory.write("year=2024/city=a%20b/1.csv", "x\n1\n");
    directory.write("year=2023/city=7/1.csv", "x\n2\n");
    directory.write("year=__HIVE_DEFAULT_PARTITION__/city=__HIVE_DEFAULT_PARTITION__/1.csv", "x\n3\n");
    assert_eq!(
        shown(json!({ "format": "csv", "paths": [directory.all()] })),
        ["x: Int64|year: Int64|city: Utf8", "2|2023|7", "1|2024|a b", "3|null|null"]
    );
    let spec = json!({ "format": "csv", "paths": [directory.all()],
        "files": { "partitioning": false, "include_paths": true } });
    let rows = shown(spec);
    assert_eq!(rows[0], "x: Int64|path: Utf8");
    assert!(rows[1].ends_with("/year=2023/city=7/1.csv"), "{rows:?}");
}

#[test]
fn a_text_file_without_a_record_has_no_rows_in_every_format() {
    let formats = [
        ("csv", "a\n1\n", vec!["a: Int64", "1"]),
        ("json", "{\"a\": 1}\n", vec!["a: Int64", "1"]),
        ("text", "x\n", vec!["text: Utf8", "x"]),
    ];
    for (format, content, rows) in formats {
        for empty in ["", "\n\n", "\u{feff}"] {
            let directory = Directory::new();
            let first = directory.write("1", empty);
            let paths = [first.clone(), directory.write("2", content), directory.write("3", empty)];
            assert_eq!(shown(json!({ "format": format, "paths": paths })), rows, "{format} {empty:?}");
            let alone = shown(json!({ "format": format, "paths": [first] }));
            assert_eq!(alone.len(), 1, "{format} {empty:?}: {alone:?}");
        }
    }
}

#[test]
fn a_line_that_has_no_place_in_a_column_is_an_error_that_names_it() {
    let directory = Directory::new();
    let path = directory.write("long.txt", "first\n");
    // It takes no space on the disk.
    std::fs::File::options().write(true).open(&path).unwrap().set_len(3 << 30).unwrap();
    let told = error(json!({ "format": "text", "paths": [path] }));
    assert!(told.contains("long.txt") && told.contains("2 GiB without an end"), "{told}");
}
