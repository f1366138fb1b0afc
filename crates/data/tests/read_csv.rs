//! CSV as it is found: quotes, line ends, nulls, types, compressed files, and the errors.

mod common;

use std::io::Write;

use common::{Directory, error, open, shown, table};
use proptest::prelude::*;
use serde_json::json;

fn read(content: &str) -> Vec<String> {
    let directory = Directory::new();
    let path = directory.write("a.csv", content);
    shown(json!({ "format": "csv", "paths": [path] }))
}

#[test]
fn types_are_inferred() {
    let rows = read(
        "i,f,b,d,t,n,s,z\n1,1.5,true,2024-01-02,2024-01-02 03:04:05,2024-01-02T03:04:05.25,x,\n-2,3,False,1969-12-31,1970-01-01 00:00:00,1970-01-01,1,NA\n",
    );
    assert_eq!(
        rows,
        [
            "i: Int64|f: Float64|b: Boolean|d: Date32|t: Timestamp(s)|n: Timestamp(ns)|s: Utf8|z: Null",
            "1|1.5|true|2024-01-02|2024-01-02T03:04:05|2024-01-02T03:04:05.250|x|null",
            "-2|3.0|false|1969-12-31|1970-01-01T00:00:00|1970-01-01T00:00:00|1|null",
        ]
    );
}

#[test]
fn quotes_line_ends_and_marks() {
    assert_eq!(
        read("\u{feff}\"a b\",c\r\n\"x\r\ny\",\"say \"\"hi\"\"\"\r\n\r\n5\" pipe,\"q\"r\r\nlast,\"\""),
        ["a b: Utf8|c: Utf8", "x\r\ny|say \"hi\"", "5\" pipe|qr", "last|"]
    );
    assert_eq!(read("a,b\r1,2\r3,4\r"), ["a: Int64|b: Int64", "1|2", "3|4"]);
    assert_eq!(read("a,b\n1,\n,2"), ["a: Int64|b: Int64", "1|null", "null|2"]);
    assert_eq!(read("a\n1\n\n2\n\n"), ["a: Int64", "1", "2"]);
    assert_eq!(read("a,b\n"), ["a: Null|b: Null"]);
}

#[test]
fn numbers_at_the_edge() {
    assert_eq!(
        read("a,b,c\n9223372036854775807,9223372036854775808,NaN\n-9223372036854775808, 7 ,-inf\n"),
        [
            "a: Int64|b: Float64|c: Float64",
            "9223372036854775807|9.223372036854776e18|null",
            "-9223372036854775808|7.0|-inf"
        ]
    );
}

#[test]
fn nulls_are_not_texts_unless_asked_for() {
    let directory = Directory::new();
    let path = directory.write("a.csv", "n,s\nNA,NA\n1,\nnull,x\n");
    let paths = [path];
    assert_eq!(shown(json!({ "format": "csv", "paths": paths })), ["n: Int64|s: Utf8", "null|NA", "1|", "null|x"]);
    let options = json!({ "strings_can_be_null": true });
    let rows = shown(json!({ "format": "csv", "paths": paths, "options": options }));
    assert_eq!(rows, ["n: Int64|s: Utf8", "null|null", "1|null", "null|x"]);
    let options = json!({ "null_values": ["1", "NA", "null"] });
    let rows = shown(json!({ "format": "csv", "paths": paths, "options": options }));
    assert_eq!(rows, ["n: Null|s: Utf8", "null|NA", "null|", "null|x"]);
}

#[test]
fn dialects() {
    let directory = Directory::new();
    let spec = |content: &str, options: serde_json::Value| {
        let path = directory.write("a.csv", content);
        shown(json!({ "format": "csv", "paths": [path], "options": options }))
    };
    assert_eq!(spec("a\tb\n1\t'x\ty'\n", json!({ "delimiter": "\t", "quote": "'" })), ["a: Int64|b: Utf8", "1|x\ty"]);
    assert_eq!(spec("1,2\n3,4\n", json!({ "header": false })), ["f0: Int64|f1: Int64", "1|2", "3|4"]);
    let named = json!({ "header": false, "column_names": ["x", "y"], "columns": ["y"] });
    assert_eq!(spec("1,2\n3,4\n", named), ["y: Int64", "2", "4"]);
    assert_eq!(spec("# made by hand\na\n1\n", json!({ "skip_rows": 1 })), ["a: Int64", "1"]);
    assert_eq!(spec("a,b\nx\\,y,\"q\\\"z\"\n", json!({ "escape": "\\" })), ["a: Utf8|b: Utf8", "x,y|q\"z"]);
    assert_eq!(spec("a\n\"x\"\n", json!({ "quote": null })), ["a: Utf8", "\"x\""]);
    let typed = json!({ "column_types": { "a": "int8", "b": "string", "c": "decimal128(5,2)", "d": "timestamp[ms]" } });
    assert_eq!(
        spec("a,b,c,d\n1,2,3.45,2024-01-02 03:04:05\n", typed),
        ["a: Int8|b: Utf8|c: Decimal128(5, 2)|d: Timestamp(ms)", "1|2|3.45|2024-01-02T03:04:05"]
    );
}

#[test]
fn files_are_brought_together() {
    let directory = Directory::new();
    directory.write("1.csv", "a,b,c\n1,2,3\n");
    directory.write("2.csv", "c,a,b\nx,,2.5\n");
    directory.write("_ignored.csv", "q\n1\n");
    assert_eq!(
        shown(json!({ "format": "csv", "paths": [directory.all()] })),
        ["a: Int64|b: Float64|c: Utf8", "1|2.0|3", "null|2.5|x"]
    );
    directory.write("3.csv", "a,b\n1,2\n");
    let told = error(json!({ "format": "csv", "paths": [directory.all()] }));
    assert!(told.contains("1.csv") && told.contains("3.csv") && told.contains("`c` is only in the first"), "{told}");
}

#[test]
fn errors_name_the_line() {
    let directory = Directory::new();
    let path = directory.write("a.csv", "a,b\n1,2\n\"x\ny\",2,3\n");
    let told = error(json!({ "format": "csv", "paths": [path] }));
    assert!(told.contains("at line 3: it has 3 fields instead of 2"), "{told}");
    let mut late = "a\n".to_owned();
    (0..400_000).for_each(|number| late.push_str(&format!("{number}\n")));
    late.push_str("oops\n");
    let path = directory.write("b.csv", &late);
    let told = error(json!({ "format": "csv", "paths": [path] }));
    assert!(told.contains("line 400002") && told.contains("`oops` in column `a` is no Int64"), "{told}");
    let path = directory.write("c.csv", "a\n\"never closed\n1\n");
    let told = error(json!({ "format": "csv", "paths": [path] }));
    assert!(told.contains("line 2") && told.contains("never closed"), "{told}");
    let path = directory.write("d.csv", b"a\nx\n\xff\n");
    let told = error(json!({ "format": "csv", "paths": [path] }));
    assert!(told.contains("line 3: it is not UTF-8"), "{told}");
    let path = directory.write("f.csv", "a,a\n1,2\n");
    assert!(error(json!({ "format": "csv", "paths": [path] })).contains("two columns are named `a`"));
}

#[test]
fn damaged_files_are_passed_over_within_the_bound() {
    let directory = Directory::new();
    directory.write("1.csv", "a\n1\n");
    directory.write("2.csv", "a\n1\n2,3\n");
    directory.write("3.csv", "a\n4\n");
    let spec = |most: u64| json!({ "format": "csv", "paths": [directory.all()], "files": { "max_errors": most } });
    let source = open(spec(1)).unwrap();
    let rows: usize =
        (0..2).map(|_| common::blocks(source.as_ref()).unwrap().iter().map(|b| b.num_rows()).sum::<usize>()).sum();
    assert_eq!(rows, 4, "DAMAGE-1, DAMAGE-2: two rows, twice");
    assert!(source.warnings().len() == 1 && source.warnings()[0].contains("2.csv"), "{:?}", source.warnings());
    assert!(error(spec(0)).contains("2.csv"));
}

#[test]
fn compressed_files_are_read() {
    let directory = Directory::new();
    let mut text = "a,b\n".to_owned();
    (0..300_000).for_each(|number| text.push_str(&format!("{number},\"line\nend {number}\"\n")));
    let plain = directory.write("a.csv", &text);
    let expected = table(json!({ "format": "csv", "paths": [plain] })).unwrap();
    assert_eq!(expected.num_rows(), 300_000);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    let mut bzip = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip.write_all(text.as_bytes()).unwrap();
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    lz4.write_all(text.as_bytes()).unwrap();
    let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
    let packed = [
        ("gz", gzip.finish().unwrap()),
        ("bz2", bzip.finish().unwrap()),
        ("lz4", lz4.finish().unwrap()),
        ("zst", zstd),
    ];
    for (end, bytes) in packed {
        let path = directory.write(&format!("a.csv.{end}"), &bytes);
        assert_eq!(table(json!({ "format": "csv", "paths": [path] })).unwrap(), expected, "{end}");
        let path = directory.write(&format!("cut.csv.{end}"), &bytes[..bytes.len() / 2]);
        assert!(error(json!({ "format": "csv", "paths": [path] })).contains(&format!("cut.csv.{end}")));
    }
}

#[test]
fn large_files_are_cut_between_records() {
    let directory = Directory::new();
    let mut text = "number,text\n".to_owned();
    let filler = "quoted \"\"text\"\"\n, with ends".repeat(30);
    let rows = 110_000;
    (0..rows).for_each(|number| text.push_str(&format!("{number},\"{filler}{number}\"\n")));
    assert!(text.len() > 80 << 20);
    let path = directory.write("a.csv", &text);
    let source = open(json!({ "format": "csv", "paths": [path] })).unwrap();
    assert!(source.units().len() >= 2, "{} units", source.units().len());
    let mut next = 0;
    for block in common::blocks(source.as_ref()).unwrap() {
        use arrow_array::cast::AsArray;
        let numbers = block.column(0).as_primitive::<arrow_array::types::Int64Type>();
        let texts = block.column(1).as_string::<i32>();
        for row in 0..block.num_rows() {
            assert_eq!(numbers.value(row), next);
            assert!(texts.value(row).ends_with(&format!("ends{next}")));
            next += 1;
        }
    }
    assert_eq!(next, rows);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_written_is_read(rows in proptest::collection::vec(
        (any::<i64>(), proptest::option::of(-1e300..1e300f64), "[ -~\n\r\"é,]{0,12}"), 1..40)) {
        let mut text = "i,f,s\n".to_owned();
        for (i, f, s) in &rows {
            let f = f.map_or_else(String::new, |f| f.to_string());
            text.push_str(&format!("{i},{f},\"x{}\"\n", s.replace('"', "\"\"")));
        }
        let directory = Directory::new();
        let path = directory.write("a.csv", &text);
        let table = table(json!({ "format": "csv", "paths": [path], "options": { "column_types": { "f": "double" } } })).unwrap();
        use arrow_array::cast::AsArray;
        use arrow_array::Array;
        let (is, fs, ss) = (
            table.column(0).as_primitive::<arrow_array::types::Int64Type>(),
            table.column(1).as_primitive::<arrow_array::types::Float64Type>(),
            table.column(2).as_string::<i32>(),
        );
        prop_assert_eq!(table.num_rows(), rows.len());
        for (at, (i, f, s)) in rows.iter().enumerate() {
            prop_assert_eq!(is.value(at), *i);
            prop_assert_eq!(fs.is_valid(at).then(|| fs.value(at)), *f);
            let expected = format!("x{s}");
            prop_assert_eq!(ss.value(at), expected.as_str());
        }
    }
}
