//! JSON: lines and arrays, nested values, missing keys, and errors with their line.

mod common;

use std::io::Write;

use common::{Directory, error, open, shown, table};
use proptest::prelude::*;
use serde_json::{Value, json};

fn read(name: &str, content: &str) -> Vec<String> {
    let directory = Directory::new();
    let path = directory.write(name, content);
    shown(json!({ "format": "json", "paths": [path] }))
}

#[test]
fn lines_and_arrays_are_the_same() {
    let expected = ["b: Int64|a: Float64|s: Utf8", "1|null|x", "null|2.5|3"];
    assert_eq!(read("a.jsonl", "{\"b\": 1, \"a\": null, \"s\": \"x\"}\n\n{\"a\": 2.5, \"s\": 3}\n"), expected);
    assert_eq!(read("a.json", " [{\"b\": 1, \"a\": null, \"s\": \"x\"},\n {\"a\": 2.5, \"s\": 3}]\n"), expected);
    assert_eq!(
        read("a.json", "\u{feff}{\n \"b\": 1, \"a\": null,\n \"s\": \"x\"}\n{\n\"a\": 2.5, \"s\": 3}"),
        expected
    );
}

#[test]
fn nested_values() {
    let rows = read("a.jsonl", "{\"l\": [1, 2.5], \"o\": {\"x\": 1}}\r\n{\"l\": [], \"o\": {\"y\": [true]}}\r\n{}\n");
    assert_eq!(rows[1..], ["[1.0, 2.5]|{x: 1, y: null}", "[]|{x: null, y: [true]}", "null|null"]);
}

#[test]
fn files_are_brought_together() {
    let directory = Directory::new();
    directory.write("1.jsonl", "{\"a\": 1, \"o\": {\"x\": 1}}\n");
    directory.write("2.jsonl", "{\"o\": {\"y\": 2}, \"a\": 2.5, \"b\": \"z\"}\n");
    let rows = shown(json!({ "format": "json", "paths": [directory.all()] }));
    assert_eq!(rows[1..], ["1.0|{x: 1, y: null}|null", "2.5|{x: null, y: 2}|z"]);
    directory.write("3.jsonl", "{\"a\": {\"x\": 1}}\n");
    let told = error(json!({ "format": "json", "paths": [directory.all()] }));
    assert!(told.contains("3.jsonl") && told.contains("`a` is"), "{told}");
}

#[test]
fn errors_name_the_line_and_nothing_is_lost() {
    let directory = Directory::new();
    let path = directory.write("a.jsonl", "{\"a\": 1}\n{\"a\": 2}\n{\"a\": \n{\"a\": 3}\n");
    let told = error(json!({ "format": "json", "paths": [path] }));
    assert!(told.contains("a.jsonl` at line 3"), "{told}");
    let path = directory.write("b.jsonl", "{\"a\": 1}\n{\"a\": 2, \"late\": 1}\n");
    let told = error(json!({ "format": "json", "paths": [path], "options": { "infer_bytes": 9 } }));
    assert!(told.contains("line 2") && told.contains("late") && told.contains("column_types"), "{told}");
    let options = json!({ "infer_bytes": 9, "column_types": { "late": "float64" } });
    let rows = shown(json!({ "format": "json", "paths": [path], "options": options }));
    assert_eq!(rows, ["a: Int64|late: Float64", "1|null", "2|1.0"]);
    let path = directory.write("c.json", "[{\"a\": 1}, {\"a\": 2}");
    assert!(error(json!({ "format": "json", "paths": [path] })).contains("c.json"));
    let path = directory.write("d.json", "nonsense");
    assert!(error(json!({ "format": "json", "paths": [path] })).contains("d.json"));
}

#[test]
fn compressed_and_large_files() {
    let directory = Directory::new();
    let mut text = String::new();
    (0..400_000).for_each(|n| text.push_str(&format!("{{\"n\": {n}, \"text\": \"{}\"}}\n", "some words ".repeat(14))));
    assert!(text.len() > 64 << 20);
    let path = directory.write("a.jsonl", &text);
    let source = open(json!({ "format": "json", "paths": [path] })).unwrap();
    assert!(source.units().len() >= 2);
    let plain = table(json!({ "format": "json", "paths": [path], "options": { "columns": ["n"] } })).unwrap();
    assert_eq!(plain.num_rows(), 400_000);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    let path = directory.write("a.jsonl.gz", gzip.finish().unwrap());
    assert_eq!(table(json!({ "format": "json", "paths": [path], "options": { "columns": ["n"] } })).unwrap(), plain);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn what_is_written_is_read(rows in proptest::collection::vec((any::<i64>(), proptest::option::of(".{0,8}"), proptest::collection::vec(any::<i32>(), 0..4)), 1..30), as_array: bool) {
        let values: Vec<Value> = rows.iter().map(|(i, s, l)| json!({ "i": i, "s": s, "l": l })).collect();
        let text = match as_array {
            true => serde_json::to_string_pretty(&values).unwrap(),
            false => values.iter().map(|value| format!("{value}\n")).collect(),
        };
        let directory = Directory::new();
        let path = directory.write("a.json", text);
        let read = table(json!({ "format": "json", "paths": [path] })).unwrap();
        let mut out = arrow_json::ArrayWriter::new(Vec::new());
        out.write(&read).unwrap();
        out.finish().unwrap();
        let mut back: Vec<Value> = serde_json::from_slice(&out.into_inner()).unwrap();
        for value in &mut back {
            if value.get("s").is_none() {
                value["s"] = Value::Null;
            }
        }
        for (back, value) in back.iter().zip(&values) {
            prop_assert_eq!(&back["i"], &value["i"]);
            prop_assert_eq!(&back["s"], &value["s"]);
            prop_assert_eq!(&back["l"], &value["l"]);
        }
        prop_assert_eq!(back.len(), values.len());
    }
}
