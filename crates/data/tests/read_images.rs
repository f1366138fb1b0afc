//! Images: their shapes and modes, and what is wrong with one. That their pixels are Pillow's is tested beside Pillow.

mod common;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, UInt8Type};
use common::{Directory, blocks, error, open};
use serde_json::json;

fn pixels(height: u32, width: u32, channels: u32) -> Vec<u8> {
    (0..height * width * channels).map(|place| (place * 7) as u8).collect()
}

fn png(height: u32, width: u32, color: png::ColorType) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(color);
    encoder.write_header().unwrap().write_image_data(&pixels(height, width, color.samples() as u32)).unwrap();
    file
}

#[test]
fn images_of_several_shapes() {
    let directory = Directory::new();
    directory.write("1.png", png(4, 6, png::ColorType::Rgb));
    directory.write("2.png", png(5, 3, png::ColorType::Rgb));
    directory.write("notes.txt", "no image");
    let source = open(json!({ "format": "images", "paths": [directory.all()] })).unwrap();
    assert!(carril_data::tensor::is_variable(source.schema().field(0)));
    let all = blocks(source.as_ref()).unwrap();
    let images = all[0].column(0).as_struct();
    for (row, (height, width)) in [(4, 6), (5, 3)].into_iter().enumerate() {
        let shape = images.column(1).as_fixed_size_list().value(row);
        assert_eq!(*shape.as_primitive::<Int32Type>().values(), [height, width, 3]);
        let data = images.column(0).as_list::<i32>().value(row);
        assert_eq!(*data.as_primitive::<UInt8Type>().values(), pixels(height as u32, width as u32, 3));
    }
}

#[test]
fn images_of_one_size_and_mode() {
    let directory = Directory::new();
    directory.write("1.png", png(40, 60, png::ColorType::Rgba));
    directory.write("2.png", png(50, 30, png::ColorType::Grayscale));
    for (mode, shape) in [("L", vec![8, 10]), ("LA", vec![8, 10, 2]), ("RGB", vec![8, 10, 3]), ("RGBA", vec![8, 10, 4])]
    {
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
    let whole = png(64, 64, png::ColorType::Rgb);
    directory.write("1.png", &whole);
    directory.write("2.png", &whole[..whole.len() / 2]);
    directory.write("3.jpg", "");
    directory.write("4.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF");
    directory.write("5.png", &whole);
    let spec = |most: u64| json!({ "format": "images", "paths": [directory.all()], "files": { "max_errors": most, "include_paths": true } });
    let told = error(spec(0));
    assert!(told.contains("2.png`: "), "{told}");
    let source = open(spec(3)).unwrap();
    let all = blocks(source.as_ref()).unwrap();
    assert_eq!((all[0].num_rows(), source.warnings().len()), (2, 3));
    assert!(all[0].column(1).as_string::<i32>().value(1).ends_with("5.png"));
    assert!(error(spec(2)).contains("4.jpg`: it is cut short"));
}
