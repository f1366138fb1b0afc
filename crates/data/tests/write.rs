//! Writers: what is there while a write goes on, after it, and when it is given up.

mod common;

use std::path::Path;
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use carril_data::write::{WriteSpec, Writer};
use common::Directory;
use serde_json::{Value, json};

fn rows(numbers: std::ops::Range<i64>) -> RecordBatch {
    let schema =
        Schema::new(vec![Field::new("number", DataType::Int64, false), Field::new("text", DataType::Utf8, true)]);
    let texts: StringArray = numbers.clone().map(|number| (number % 2 == 0).then(|| format!("t{number}"))).collect();
    let numbers = Int64Array::from_iter_values(numbers);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(numbers), Arc::new(texts)]).unwrap()
}

fn open(directory: &Path, more: Value) -> Writer {
    let mut spec = json!({ "path": directory, "format": { "name": "csv" }, "id": "x" });
    for (name, value) in more.as_object().unwrap() {
        spec[name] = value.clone();
    }
    let spec: WriteSpec = serde_json::from_value(spec).unwrap();
    Writer::open(spec).unwrap().expect("nothing is there that would be ignored")
}

/// Every file below, hidden ones too.
fn there(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false => found.push(path.strip_prefix(directory).unwrap().display().to_string()),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_file_appears_when_it_is_whole() {
    let directory = Directory::new();
    let root = Path::new(&directory.all()).join("out");
    let mut writer = open(&root, json!({ "max_rows_per_file": 3 }));
    writer.write(&rows(0..4), None).unwrap();
    assert_eq!(there(&root), [".x_000001.csv.part", "x_000000.csv"]);
    writer.write(&rows(4..5), None).unwrap();
    let written = writer.finish(None).unwrap();
    assert_eq!((written.rows, written.files.len()), (5, 2));
    assert_eq!(there(&root), ["x_000000.csv", "x_000001.csv"]);
    assert_eq!(std::fs::read_to_string(root.join("x_000001.csv")).unwrap(), "number,text\n3,\n4,t4\n");
    drop(writer);
    assert_eq!(there(&root).len(), 2);
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let directory = Directory::new();
    let root = Path::new(&directory.all()).join("a/b");
    let mut writer = open(&root, json!({ "max_rows_per_file": 2, "partition_columns": ["text"] }));
    writer.write(&rows(0..20), None).unwrap();
    assert!(there(&root).iter().any(|name| name.ends_with(".csv")));
    drop(writer);
    assert!(!root.parent().unwrap().exists());
}

#[test]
fn columns_that_change_are_told_by_name() {
    let directory = Directory::new();
    let mut writer = open(&Path::new(&directory.all()).join("out"), json!({}));
    writer.write(&rows(0..2), None).unwrap();
    let narrow = rows(0..2).project(&[0]).unwrap();
    assert!(writer.write(&narrow, None).unwrap_err().to_string().contains("column `text` is missing"));
    let turned = rows(7..8).project(&[1, 0]).unwrap();
    writer.write(&turned, None).unwrap();
    let written = writer.finish(None).unwrap();
    assert!(std::fs::read_to_string(&written.files[0]).unwrap().ends_with("\n7,\n"));
}
