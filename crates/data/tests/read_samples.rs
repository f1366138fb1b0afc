//! Images, TFRecord and WebDataset: what a sample is made of, and what is wrong with one.

mod common;

use std::io::{Cursor, Write};

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, UInt8Type};
use common::{Directory, blocks, error, open, shown, table};
use image::{DynamicImage, ImageFormat, Rgb, RgbImage};
use serde_json::json;

fn picture(height: u32, width: u32) -> DynamicImage {
    RgbImage::from_fn(width, height, |x, y| Rgb([(x * 5) as u8, (y * 7) as u8, ((x + y) * 3) as u8])).into()
}

fn encoded(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    image.write_to(&mut out, format).unwrap();
    out.into_inner()
}

#[test]
fn images_of_several_shapes() {
    let directory = Directory::new();
    directory.write("1.png", encoded(&picture(4, 6), ImageFormat::Png));
    directory.write("2.bmp", encoded(&picture(5, 3), ImageFormat::Bmp));
    directory.write("3.jpg", encoded(&picture(16, 8), ImageFormat::Jpeg));
    directory.write("4.gif", encoded(&picture(2, 2), ImageFormat::Gif));
    directory.write("5.tiff", encoded(&picture(3, 3), ImageFormat::Tiff));
    directory.write("6.webp", encoded(&picture(3, 4), ImageFormat::WebP));
    directory.write("notes.txt", "no image");
    let spec = json!({ "format": "images", "paths": [directory.all()], "options": { "mode": "RGB" } });
    let source = open(spec).unwrap();
    assert!(carril_data::tensor::is_variable(source.schema().field(0)));
    let all = blocks(source.as_ref()).unwrap();
    let images = all[0].column(0).as_struct();
    let shape =
        |row: usize| images.column(1).as_fixed_size_list().value(row).as_primitive::<Int32Type>().values().to_vec();
    let data = |row: usize| images.column(0).as_list::<i32>().value(row).as_primitive::<UInt8Type>().values().to_vec();
    let shapes = [[4, 6, 3], [5, 3, 3], [16, 8, 3], [2, 2, 3], [3, 3, 3], [3, 4, 3]];
    for (row, expected) in shapes.into_iter().enumerate() {
        assert_eq!(shape(row), expected);
    }
    for (row, height, width) in [(0, 4, 6), (1, 5, 3), (4, 3, 3), (5, 3, 4)] {
        assert_eq!(data(row), picture(height, width).into_bytes(), "row {row}");
    }
    let far = data(2).iter().zip(picture(16, 8).into_bytes()).map(|(a, b)| a.abs_diff(b)).max().unwrap();
    assert!(far < 40, "{far}");
}

#[test]
fn images_of_one_size_and_mode() {
    let directory = Directory::new();
    directory.write("1.png", encoded(&picture(40, 60), ImageFormat::Png));
    directory.write("2.png", encoded(&DynamicImage::from(picture(50, 30).to_luma8()), ImageFormat::Png));
    for (mode, shape) in [("L", vec![8, 10]), ("RGB", vec![8, 10, 3]), ("RGBA", vec![8, 10, 4])] {
        let options = json!({ "size": [8, 10], "mode": mode });
        let source = open(json!({ "format": "images", "paths": [directory.all()], "options": options })).unwrap();
        assert_eq!(carril_data::tensor::fixed_shape(source.schema().field(0)), Some(shape));
        assert_eq!(blocks(source.as_ref()).unwrap()[0].num_rows(), 2);
    }
    let told = error(json!({ "format": "images", "paths": [directory.all()], "options": { "size": [0, 3] } }));
    assert!(told.contains("`size`"), "{told}");
}

#[test]
fn a_damaged_image_does_not_take_its_neighbours_along() {
    let directory = Directory::new();
    let whole = encoded(&picture(64, 64), ImageFormat::Jpeg);
    directory.write("1.jpg", &whole);
    directory.write("2.jpg", &whole[..whole.len() / 2]);
    directory.write("3.jpg", "");
    directory.write("4.png", b"\x89PNG\r\n\x1a\nnothing");
    directory.write("5.jpg", &whole);
    let spec = |most: u64| json!({ "format": "images", "paths": [directory.all()], "files": { "max_errors": most, "include_paths": true } });
    let told = error(spec(0));
    assert!(told.contains("2.jpg`: it is cut short"), "{told}");
    let source = open(spec(3)).unwrap();
    let all = blocks(source.as_ref()).unwrap();
    assert_eq!((all[0].num_rows(), source.warnings().len()), (2, 3));
    assert!(all[0].column(1).as_string::<i32>().value(1).ends_with("5.jpg"));
    assert!(error(spec(2)).contains("4.png"));
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
    let png = encoded(&picture(4, 6), ImageFormat::Png);
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
    assert_eq!(names, ["__key__", "cls", "extra.bin", "json", "png"]);
    let images = read.column(4).as_struct();
    assert!(images.is_valid(0) && images.is_null(1));
    assert_eq!(
        images.column(0).as_list::<i32>().value(0).as_primitive::<UInt8Type>().values(),
        picture(4, 6).as_bytes()
    );
    let options = json!({ "suffixes": ["cls", "extra.bin"] });
    let rows = shown(json!({ "format": "webdataset", "paths": [path], "options": options }));
    assert_eq!(rows[1..], ["d/1|3|null", "d/2|4|01"]);
    let options = json!({ "decode": false, "suffixes": ["cls"] });
    let rows = shown(json!({ "format": "webdataset", "paths": [path], "options": options }));
    assert_eq!(rows[1..], ["d/1|330a", "d/2|34"]);
    let path = directory.write("b.tar", tar_of(&[("1.cls", b"cat")]));
    let told = error(json!({ "format": "webdataset", "paths": [path] }));
    assert!(told.contains("b.tar` at member `1.cls`: `cat` is no number"), "{told}");
    let path = directory.write("c.tar", &bytes[..700]);
    assert!(error(json!({ "format": "webdataset", "paths": [path] })).contains("c.tar"));
}
