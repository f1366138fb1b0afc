//! TFRecord and WebDataset: what a sample is made of, and what is wrong with one.

mod common;

use std::io::Write;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;
use common::{Directory, error, shown, table};
use serde_json::json;

/// The pixels of a small image, and its file.
fn picture(height: u32, width: u32) -> (Vec<u8>, Vec<u8>) {
    let pixel = |(x, y): (u32, u32)| [(x * 5) as u8, (y * 7) as u8, ((x + y) * 3) as u8];
    let pixels: Vec<u8> = (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).flat_map(pixel).collect();
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
    (pixels, file)
}

/// A field of a protocol buffer that holds bytes.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 128 {
        out.push(length as u8 | 128);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend(content);
    out
}

fn example(features: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let entries =
        features.iter().flat_map(|(name, feature)| field(1, &[field(1, name.as_bytes()), field(2, feature)].concat()));
    field(1, &entries.collect::<Vec<_>>())
}

fn bytes_feature(values: &[&[u8]]) -> Vec<u8> {
    field(1, &values.iter().flat_map(|value| field(1, value)).collect::<Vec<_>>())
}

fn float_feature(values: &[f32]) -> Vec<u8> {
    field(2, &field(1, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>()))
}

fn int_feature(values: &[u8]) -> Vec<u8> {
    field(3, &field(1, values))
}

fn record(data: &[u8]) -> Vec<u8> {
    let masked = |data: &[u8]| crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), data, &masked(data)].concat()
}

#[test]
fn tf_records() {
    let directory = Directory::new();
    let first =
        example(&[("id", int_feature(&[7])), ("name", bytes_feature(&[b"a"])), ("v", float_feature(&[1.5, 2.0]))]);
    let second = example(&[("id", int_feature(&[8])), ("v", float_feature(&[])), ("name", bytes_feature(&[b"b"]))]);
    let third = example(&[("id", int_feature(&[9]))]);
    let bytes = [record(&first), record(&second), record(&third)].concat();
    let path = directory.write("a.tfrecord", &bytes);
    let expected = table(json!({ "format": "tfrecord", "paths": [path] })).unwrap();
    assert_eq!(common::show(&expected)[1..], ["7|61|[1.5, 2.0]", "8|62|[]", "9|null|null"]);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&bytes).unwrap();
    let path = directory.write("b.tfrecord.gz", gzip.finish().unwrap());
    assert_eq!(table(json!({ "format": "tfrecord", "paths": [path] })).unwrap(), expected);
    let mut broken = bytes.clone();
    broken[record(&first).len() + 20] ^= 1;
    let path = directory.write("c.tfrecord", &broken);
    let told = error(json!({ "format": "tfrecord", "paths": [path] }));
    assert!(told.contains("c.tfrecord` at record 1: its checksum is wrong"), "TFRECORD-1: {told}");
    let path = directory.write("d.tfrecord", &bytes[..bytes.len() - 3]);
    assert!(error(json!({ "format": "tfrecord", "paths": [path] })).contains("record 2: it is cut short"));
    let path = directory.write("e.tfrecord", record(&example(&[("id", int_feature(&[7]))])));
    let rows = shown(json!({ "format": "tfrecord", "paths": [path], "options": { "lists": ["id"] } }));
    assert_eq!(rows[1..], ["[7]"]);
}

fn tar_of(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, name, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn web_datasets() {
    let directory = Directory::new();
    let (pixels, png) = picture(4, 6);
    let bytes = tar_of(&[
        ("d/1.png", &png),
        ("d/1.cls", b"3\n"),
        ("d/1.json", b"{\"a\": 1}"),
        ("d/2.cls", b"4"),
        ("d/2.extra.bin", b"\x01"),
    ]);
    let path = directory.write("a.tar", &bytes);
    let read = table(json!({ "format": "webdataset", "paths": [path] })).unwrap();
    let names: Vec<String> = read.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["__key__", "cls", "extra.bin", "json", "png", "__url__"]);
    let images = read.column(4).as_struct();
    assert!(images.is_valid(0) && images.is_null(1));
    assert_eq!(*images.column(0).as_list::<i32>().value(0).as_primitive::<UInt8Type>().values(), pixels);
    let options = json!({ "suffixes": ["cls", "extra.bin"] });
    let rows = shown(json!({ "format": "webdataset", "paths": [path], "options": options }));
    let from_file = |row: &str| format!("{row}|{path}");
    assert_eq!(rows[1..], ["d/1|3|null", "d/2|4|01"].map(from_file));
    let options = json!({ "suffixes": ["*.bin"] });
    let rows = shown(json!({ "format": "webdataset", "paths": [path], "options": options }));
    assert_eq!(rows[1..], [from_file("d/2|01")], "a pattern names the columns that there are");
    let options = json!({ "decode": false, "suffixes": ["cls"] });
    let rows = shown(json!({ "format": "webdataset", "paths": [path], "options": options }));
    assert_eq!(rows[1..], ["d/1|330a", "d/2|34"].map(from_file));
    let path = directory.write("b.tar", tar_of(&[("1.cls", b"cat")]));
    let told = error(json!({ "format": "webdataset", "paths": [path] }));
    assert!(told.contains("b.tar` at member `1.cls`: `cat` is not a number"), "{told}");
    let path = directory.write("c.tar", &bytes[..700]);
    assert!(error(json!({ "format": "webdataset", "paths": [path] })).contains("c.tar"));
}
