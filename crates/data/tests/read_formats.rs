//! Text, bytes, NumPy, Arrow's own format, and what is in memory.

mod common;

use std::sync::Arc;

use arrow_array::{DictionaryArray, Int64Array, RecordBatch, StringArray, types::Int32Type};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use carril_data::Source;
use carril_data::read::memory::Blocks;
use common::{Directory, blocks, error, open, shown, table};
use serde_json::json;

#[test]
fn text_is_lines() {
    let directory = Directory::new();
    let path = directory.write("a.txt", "\u{feff}one\r\n\n  \ntwo é\nlast");
    assert_eq!(shown(json!({ "format": "text", "paths": [path] })), ["text: Utf8", "one", "two é", "last"]);
    let options = json!({ "drop_empty_lines": false });
    let rows = shown(json!({ "format": "text", "paths": [path], "options": options }));
    assert_eq!(rows, ["text: Utf8", "one", "", "  ", "two é", "last"]);
    let path = directory.write("b.txt", b"caf\xe9\n");
    let told = error(json!({ "format": "text", "paths": [path] }));
    assert!(told.contains("line 1: it is not UTF-8"), "{told}");
    let rows = shown(json!({ "format": "text", "paths": [path], "options": { "encoding": "latin-1" } }));
    assert_eq!(rows, ["text: Utf8", "café"]);
    let told = error(json!({ "format": "text", "paths": [path], "options": { "encoding": "utf-16" } }));
    assert!(told.contains("utf-16"), "{told}");
    let path = directory.write("c.txt", "");
    assert_eq!(table(json!({ "format": "text", "paths": [path] })).unwrap().num_rows(), 0);
}

#[test]
fn bytes_are_files() {
    let directory = Directory::new();
    (0..2000).for_each(|number| drop(directory.write(&format!("{number:04}.bin"), vec![number as u8; 3])));
    directory.write("large.bin", vec![1; 9 << 20]);
    let source =
        open(json!({ "format": "binary", "paths": [directory.all()], "files": { "include_paths": true } })).unwrap();
    assert_eq!(source.units().iter().map(|unit| unit.rows.unwrap()).collect::<Vec<_>>(), [1024, 976, 1]);
    let all = blocks(source.as_ref()).unwrap();
    use arrow_array::cast::AsArray;
    assert_eq!(all[0].column(0).as_binary::<i32>().value(5), [5, 5, 5]);
    assert!(all[2].column(1).as_string::<i32>().value(0).ends_with("large.bin"));
}

fn npy(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
    header.push_str(&" ".repeat(63 - (header.len() + 10) % 64));
    header.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(data);
    out
}

#[test]
fn numpy_arrays() {
    let directory = Directory::new();
    let read = |bytes: Vec<u8>| {
        let path = directory.write("a.npy", bytes);
        shown(json!({ "format": "numpy", "paths": [path] }))
    };
    let floats: Vec<u8> = (0..6).flat_map(|n| (n as f32).to_le_bytes()).collect();
    let rows = read(npy("<f4", false, "(2, 3)", &floats));
    assert_eq!(rows[1..], ["[0.0, 1.0, 2.0]", "[3.0, 4.0, 5.0]"]);
    let rows = read(npy("<f4", true, "(2, 3)", &floats));
    assert_eq!(rows[1..], ["[0.0, 2.0, 4.0]", "[1.0, 3.0, 5.0]"]);
    let big: Vec<u8> = [1i16, -2].iter().flat_map(|n| n.to_be_bytes()).collect();
    assert_eq!(read(npy(">i2", false, "(2,)", &big)), ["data: Int16", "1", "-2"]);
    assert_eq!(read(npy("|b1", false, "(3,)", &[1, 0, 1])), ["data: Boolean", "true", "false", "true"]);
    let halves: Vec<u8> = [0x3c00u16, 0xc000].iter().flat_map(|n| n.to_le_bytes()).collect();
    assert_eq!(read(npy("<f2", false, "(2,)", &halves)), ["data: Float16", "1", "-2"]);
    let path = directory.write("o.npy", npy("|O", false, "(1,)", &[]));
    assert!(error(json!({ "format": "numpy", "paths": [path] })).contains("`|O`"));
    for (descr, shape) in [("<f4", "(1099511627776, 0)"), ("|S0", "(1099511627776,)"), ("<U0", "(1099511627776,)")] {
        let path = directory.write("none.npy", npy(descr, false, shape, &[]));
        let told = error(json!({ "format": "numpy", "paths": [path] }));
        assert!(told.contains("none.npy") && told.contains("rows of no bytes"), "{told}");
    }
    let path = directory.write("few.npy", npy("<f4", false, "(100000, 0)", &[]));
    assert_eq!(shown(json!({ "format": "numpy", "paths": [path] })).len(), 100_001);
    let path = directory.write("short.npy", npy("<f8", false, "(2,)", &[0; 9]));
    assert!(error(json!({ "format": "numpy", "paths": [path] })).contains("short.npy"));
    directory.write("d/1.npy", npy("<f4", false, "(1, 6)", &floats));
    directory.write("d/2.npy", npy("<f4", false, "(1, 2, 3)", &floats));
    assert!(error(json!({ "format": "numpy", "paths": [directory.path("d")] })).contains("[6]"));
}

#[test]
fn large_numpy_arrays_are_several_units() {
    let directory = Directory::new();
    let numbers: Vec<u8> = (0..5_000_000i64).flat_map(i64::to_le_bytes).collect();
    let path = directory.write("a.npy", npy("<i8", false, "(1000000, 5)", &numbers));
    let source = open(json!({ "format": "numpy", "paths": [path] })).unwrap();
    assert_eq!(source.units().len(), 3);
    assert_eq!(carril_data::tensor::fixed_shape(source.schema().field(0)), Some(vec![5]));
    let rows: usize = blocks(source.as_ref()).unwrap().iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, 1_000_000);
}

#[test]
fn arrow_files_and_streams() {
    let directory = Directory::new();
    let words: DictionaryArray<Int32Type> = ["a", "b", "a"].into_iter().collect();
    let batch = RecordBatch::try_from_iter([
        ("n", Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])) as _),
        ("s", Arc::new(StringArray::from(vec!["x", "y", "z"])) as _),
        ("d", Arc::new(words) as _),
    ])
    .unwrap();
    for compression in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
        let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let mut file = FileWriter::try_new_with_options(Vec::new(), &batch.schema(), options.clone()).unwrap();
        file.write(&batch).unwrap();
        file.write(&batch.slice(1, 2)).unwrap();
        let bytes = file.into_inner().unwrap();
        let path = directory.write("a.arrow", &bytes);
        let source = open(json!({ "format": "ipc", "paths": [path] })).unwrap();
        assert_eq!(source.units().len(), 2);
        let all = blocks(source.as_ref()).unwrap();
        assert_eq!((all[0].columns(), all[1].columns()), (batch.columns(), batch.slice(1, 2).columns()));
        let rows = shown(json!({ "format": "ipc", "paths": [path], "options": { "columns": ["d", "n"] } }));
        assert_eq!(rows[1..], ["a|1", "b|null", "a|3", "b|null", "a|3"]);
        let mut stream = StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
        stream.write(&batch).unwrap();
        let path = directory.write("b.arrow", stream.into_inner().unwrap());
        assert_eq!(table(json!({ "format": "ipc", "paths": [path] })).unwrap().columns(), batch.columns());
        let path = directory.write("cut.arrow", &bytes[..bytes.len() - 30]);
        assert!(error(json!({ "format": "ipc", "paths": [path] })).contains("cut.arrow` at its footer"));
    }
}

#[test]
fn ranges_and_blocks() {
    let source = open(json!({ "format": "range", "n": 10, "per_unit": 4 })).unwrap();
    assert_eq!(source.units().iter().map(|unit| unit.rows.unwrap()).collect::<Vec<_>>(), [4, 4, 2]);
    assert_eq!(shown(json!({ "format": "range", "n": 3 })), ["id: Int64", "0", "1", "2"]);
    assert_eq!(table(json!({ "format": "range", "n": 0 })).unwrap().num_rows(), 0);
    let rows = shown(json!({ "format": "range", "n": 2, "shape": [2, 2] }));
    assert_eq!(rows[1..], ["[0, 0, 0, 0]", "[1, 1, 1, 1]"]);
    let block = RecordBatch::try_from_iter([("x", Arc::new(Int64Array::from_iter_values(0..100_000)) as _)]).unwrap();
    let source = Blocks::new(block.schema(), vec![block.clone(), block.slice(0, 0)]).unwrap();
    assert_eq!(source.units().len(), 2);
    let all = blocks(&source).unwrap();
    assert_eq!(all.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [65_536, 34_464]);
}
