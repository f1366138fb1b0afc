//! Parquet: row groups, columns, filters, widening, damage, and what is written is read.

mod common;

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float32Array, Float64Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray,
    StructArray, types::Int32Type,
};
use arrow_schema::{DataType, Field};
use common::{Directory, blocks, error, open, shown, table};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use serde_json::json;

fn write(directory: &Directory, name: &str, batch: &RecordBatch, rows: usize, compression: Compression) -> String {
    let properties =
        WriterProperties::builder().set_max_row_group_row_count(Some(rows)).set_compression(compression).build();
    let mut out = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut out, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    directory.write(name, out)
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter(columns).unwrap()
}

fn numbers(from: i64, to: i64) -> RecordBatch {
    batch(vec![
        ("x", Arc::new(Int64Array::from_iter_values(from..to))),
        ("y", Arc::new(Float64Array::from_iter_values((from..to).map(|x| x as f64 / 2.0)))),
        ("s", Arc::new(StringArray::from_iter_values((from..to).map(|x| format!("name {x:04}"))))),
    ])
}

#[test]
fn units_are_row_groups_and_blocks_are_bounded() {
    let directory = Directory::new();
    write(&directory, "a.parquet", &numbers(0, 200_000), 150_000, Compression::UNCOMPRESSED);
    write(&directory, "b.parquet", &numbers(200_000, 200_010), 4, Compression::SNAPPY);
    let source = open(json!({ "format": "parquet", "paths": [directory.all()] })).unwrap();
    let rows: Vec<u64> = source.units().iter().map(|unit| unit.rows.unwrap()).collect();
    assert_eq!(rows, [150_000, 50_000, 4, 4, 2]);
    assert!(source.units()[0].bytes > 150_000 * 16);
    let all = blocks(source.as_ref()).unwrap();
    assert!(all.iter().all(|block| block.num_rows() <= 65_536));
    let all = arrow_select::concat::concat_batches(&source.schema(), &all).unwrap();
    assert_eq!(all.columns(), numbers(0, 200_010).columns());
}

#[test]
fn columns_and_filters() {
    let directory = Directory::new();
    write(&directory, "k=1/a.parquet", &numbers(0, 100), 10, Compression::UNCOMPRESSED);
    write(&directory, "k=2/a.parquet", &numbers(100, 200), 10, Compression::UNCOMPRESSED);
    let spec =
        |options: serde_json::Value| json!({ "format": "parquet", "paths": [directory.all()], "options": options });
    let rows = shown(spec(json!({ "columns": ["k", "y"], "filter": [["x", ">=", 98], ["x", "<", 102.5]] })));
    assert_eq!(rows, ["k: Int64|y: Float64", "1|49.0", "1|49.5", "2|50.0", "2|50.5", "2|51.0"]);
    let units = |filter: serde_json::Value| open(spec(json!({ "filter": filter }))).unwrap().units().len();
    assert_eq!(units(json!([])), 20);
    assert_eq!(units(json!([["x", ">", 189]])), 1);
    assert_eq!(units(json!([["k", "=", 2]])), 10);
    assert_eq!(units(json!([["s", "in", ["name 0005", "name 0150"]]])), 2);
    assert_eq!(units(json!([["y", "<=", 4.5], ["k", "!=", 2]])), 1);
    assert_eq!(units(json!([["k", "!=", 2]])), 20, "`!=` prunes nothing");
    let rows = shown(spec(json!({ "columns": ["x"], "filter": [["s", "in", ["name 0005", "name 0150"]]] })));
    assert_eq!(rows, ["x: Int64", "5", "150"]);
    assert_eq!(table(spec(json!({ "filter": [["x", "not in", [5]]] }))).unwrap().num_rows(), 199);
    assert_eq!(table(spec(json!({ "columns": ["k"] }))).unwrap().num_rows(), 200);
    let told = error(spec(json!({ "columns": ["z"] })));
    assert!(told.contains("no column `z`") && told.contains("`x`"), "{told}");
    assert!(error(spec(json!({ "filter": [["z", "=", 1]] }))).contains("no column `z`"));
    assert!(error(spec(json!({ "filter": [["x", "=", "text"]] }))).contains("cannot be compared"));
}

#[test]
fn filter_1_null_and_nan() {
    let directory = Directory::new();
    let values = Float32Array::from(vec![Some(1.0), None, Some(f32::NAN), Some(-0.0), Some(5.0)]);
    let path = write(&directory, "a.parquet", &batch(vec![("f", Arc::new(values))]), 100, Compression::UNCOMPRESSED);
    let count = |operator: &str, value: serde_json::Value| {
        table(json!({ "format": "parquet", "paths": [path], "options": { "filter": [["f", operator, value]] } }))
            .unwrap()
            .num_rows()
    };
    assert_eq!(count(">", json!(0)), 2);
    assert_eq!(count("=", json!(0)), 1);
    assert_eq!(count("!=", json!(0)), 3);
    assert_eq!(count("=", json!(null)), 1);
    assert_eq!(count("!=", json!(null)), 4);
    assert_eq!(count("in", json!([1, 5])), 2);
}

#[test]
fn schemas_are_widened_or_refused() {
    let directory = Directory::new();
    let int = batch(vec![("a", Arc::new(Int32Array::from(vec![1]))), ("b", Arc::new(StringArray::from(vec!["x"])))]);
    let float =
        batch(vec![("b", Arc::new(StringArray::from(vec!["y"]))), ("a", Arc::new(Float32Array::from(vec![2.5])))]);
    write(&directory, "1.parquet", &int, 10, Compression::UNCOMPRESSED);
    write(&directory, "2.parquet", &float, 10, Compression::UNCOMPRESSED);
    assert_eq!(
        shown(json!({ "format": "parquet", "paths": [directory.all()] })),
        ["a: Float64|b: Utf8", "1.0|x", "2.5|y"]
    );
    let other =
        batch(vec![("a", Arc::new(StringArray::from(vec!["1"]))), ("b", Arc::new(StringArray::from(vec!["x"])))]);
    write(&directory, "3.parquet", &other, 10, Compression::UNCOMPRESSED);
    let told = error(json!({ "format": "parquet", "paths": [directory.all()] }));
    assert!(told.contains("1.parquet") && told.contains("3.parquet") && told.contains("`a` is"), "{told}");
}

#[test]
fn damage_is_told_with_its_place() {
    let directory = Directory::new();
    let path = write(&directory, "a.parquet", &numbers(0, 30_000), 10_000, Compression::ZSTD(Default::default()));
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle - 2000..middle + 2000].fill(0x5a);
    directory.write("a.parquet", &bytes);
    let spec = |most: u64| json!({ "format": "parquet", "paths": [directory.all()], "files": { "max_errors": most } });
    let told = error(spec(0));
    assert!(told.contains("a.parquet` at row group 1"), "{told}");
    assert_eq!(table(spec(1)).unwrap().num_rows(), 20_000);
    directory.write("b.parquet", b"PAR1 nothing here PAR1");
    let told = error(json!({ "format": "parquet", "paths": [directory.path("b.parquet")] }));
    assert!(told.contains("b.parquet` at its metadata"), "{told}");
    directory.write("a.parquet", &bytes[..100]);
    assert!(error(spec(0)).contains("a.parquet` at its metadata"));
    let good = write(&directory, "c.parquet", &numbers(0, 5), 10, Compression::UNCOMPRESSED);
    let source = open(spec(2)).unwrap();
    assert_eq!(source.units().len(), 1);
    assert_eq!(source.warnings().len(), 2);
    assert!(source.files().contains(&good));
}

#[test]
fn compressions_and_nested_types() {
    let directory = Directory::new();
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None, Some(vec![])]);
    let inner: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("c")]));
    let structs = StructArray::from(vec![(Arc::new(Field::new("s", DataType::Utf8, true)), inner)]);
    let flags = BooleanArray::from(vec![Some(true), None, Some(false)]);
    let expected = batch(vec![("l", Arc::new(lists)), ("t", Arc::new(structs)), ("b", Arc::new(flags))]);
    for (name, compression) in [
        ("snappy", Compression::SNAPPY),
        ("gzip", Compression::GZIP(Default::default())),
        ("brotli", Compression::BROTLI(Default::default())),
        ("lz4", Compression::LZ4_RAW),
        ("zstd", Compression::ZSTD(Default::default())),
    ] {
        let path = write(&directory, &format!("{name}.parquet"), &expected, 100, compression);
        let read = table(json!({ "format": "parquet", "paths": [path] })).unwrap();
        assert_eq!(read.columns(), expected.columns(), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn what_is_written_is_read(
        rows in proptest::collection::vec((proptest::option::of(any::<i64>()), any::<f32>(), proptest::option::of(".{0,9}"), any::<bool>()), 1..300),
        group in 1usize..200,
    ) {
        let expected = batch(vec![
            ("i", Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>())),
            ("f", Arc::new(Float32Array::from_iter_values(rows.iter().map(|row| row.1)))),
            ("s", Arc::new(rows.iter().map(|row| row.2.clone()).collect::<StringArray>())),
            ("b", Arc::new(BooleanArray::from(rows.iter().map(|row| row.3).collect::<Vec<_>>()))),
        ]);
        let directory = Directory::new();
        let path = write(&directory, "a.parquet", &expected, group, Compression::SNAPPY);
        let source = open(json!({ "format": "parquet", "paths": [path] })).unwrap();
        prop_assert_eq!(source.units().len(), rows.len().div_ceil(group));
        let read = arrow_select::concat::concat_batches(&source.schema(), &blocks(source.as_ref()).unwrap()).unwrap();
        prop_assert_eq!(read.columns(), expected.columns());
    }
}
