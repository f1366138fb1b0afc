//! A picture as PNG, two pixels for each of its units: sharp on a screen, and at a third of a page's width on paper.

use png::{BitDepth, ColorType, Compression, Encoder, PixelDimensions, Unit};
use tiny_skia::{
    FillRule, LineCap, LineJoin, Paint, Path, PathBuilder, Pixmap, PremultipliedColorU8, Stroke as Pen, Transform,
};

use super::colours::{Colour, WHITE};
use super::font;
use super::picture::{Align, Picture, Point, Shape, Stroke, Text};

const SCALE: f32 = 2.0;
/// How wide and how dense the white rim of a text is, as in the SVG.
const RIM: (f32, f64) = (3.0, 0.85);

/// `None` only where there is no memory for it.
pub fn paint(picture: &Picture) -> Option<Vec<u8>> {
    let pixels = |length: f64| (length * f64::from(SCALE)).ceil() as u32;
    let mut pixmap = Pixmap::new(pixels(picture.width), pixels(picture.height))?;
    pixmap.fill(tiny_skia::Color::WHITE);
    for shape in &picture.shapes {
        match shape {
            Shape::Line { points, stroke } if stroke.opacity < 1.0 => {
                for pair in points.windows(2) {
                    glaze(&mut pixmap, pair[0], pair[1], stroke);
                }
            }
            Shape::Line { points, stroke } => {
                stroke_path(&mut pixmap, path(points, false), stroke.width as f32, stroke.colour, stroke.opacity);
            }
            Shape::Area { points, colour, opacity } => fill(&mut pixmap, path(points, true), *colour, *opacity),
            Shape::Circle { centre, radius, colour, opacity } => {
                let circle = PathBuilder::from_circle(centre.0 as f32, centre.1 as f32, *radius as f32);
                fill(&mut pixmap, circle, *colour, *opacity);
            }
            Shape::Text(written) => text(&mut pixmap, written),
        }
    }
    encoded(&pixmap)
}

/// Lightly compressed, for lines by the thousand compress badly whatever it costs; with the size on paper.
fn encoded(pixmap: &Pixmap) -> Option<Vec<u8>> {
    let per_metre = (f64::from(SCALE) * 96.0 / 0.0254).round() as u32;
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, pixmap.width(), pixmap.height());
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::Fast);
    encoder.set_pixel_dims(Some(PixelDimensions { xppu: per_metre, yppu: per_metre, unit: Unit::Meter }));
    // Every pixel is opaque: the picture is painted on white.
    let pixels: Vec<u8> = pixmap.pixels().iter().flat_map(|at| [at.red(), at.green(), at.blue()]).collect();
    encoder.write_header().ok()?.write_image_data(&pixels).ok()?;
    Some(bytes)
}

fn path(points: &[Point], is_closed: bool) -> Option<Path> {
    let mut path = PathBuilder::new();
    for (at, (x, y)) in points.iter().enumerate() {
        if at == 0 { path.move_to(*x as f32, *y as f32) } else { path.line_to(*x as f32, *y as f32) }
    }
    if is_closed {
        path.close();
    }
    path.finish()
}

fn paint_of(colour: Colour, opacity: f64) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color_rgba8(colour.0, colour.1, colour.2, (opacity.clamp(0.0, 1.0) * 255.0).round() as u8);
    paint
}

fn to_pixels() -> Transform {
    Transform::from_scale(SCALE, SCALE)
}

/// What has no extent is no path, and nothing is painted.
fn fill(pixmap: &mut Pixmap, path: Option<Path>, colour: Colour, opacity: f64) {
    if let Some(path) = path {
        pixmap.fill_path(&path, &paint_of(colour, opacity), FillRule::Winding, to_pixels(), None);
    }
}

fn stroke_path(pixmap: &mut Pixmap, path: Option<Path>, width: f32, colour: Colour, opacity: f64) {
    let pen = Pen { width, line_join: LineJoin::Round, line_cap: LineCap::Butt, ..Pen::default() };
    if let Some(path) = path {
        pixmap.stroke_path(&path, &paint_of(colour, opacity), &pen, to_pixels(), None);
    }
}

/// A translucent line from one point to another. A thousand lines across the whole picture take `stroke_path` seconds, and this a
/// twentieth of that: it goes along the line, and paints of each pixel the part that is covered.
fn glaze(pixmap: &mut Pixmap, from: Point, to: Point, stroke: &Stroke) {
    let scaled = |(x, y): Point| (x * f64::from(SCALE), y * f64::from(SCALE));
    let ((x1, y1), (x2, y2)) = (scaled(from), scaled(to));
    let is_steep = (y2 - y1).abs() > (x2 - x1).abs();
    let (start, end) = if is_steep { ((y1, x1), (y2, x2)) } else { ((x1, y1), (x2, y2)) };
    let (start, end) = if start.0 <= end.0 { (start, end) } else { (end, start) };
    if end.0 - start.0 < 1e-9 {
        return;
    }
    let slope = (end.1 - start.1) / (end.0 - start.0);
    let half = stroke.width * f64::from(SCALE) / 2.0 * (1.0 + slope * slope).sqrt();
    let (width, height) = (pixmap.width() as usize, pixmap.height() as usize);
    let (length, breadth) = if is_steep { (height, width) } else { (width, height) };
    let pixels = pixmap.pixels_mut();
    for along in start.0.max(0.0) as usize..(end.0.ceil().max(0.0) as usize).min(length) {
        let part = (end.0.min(along as f64 + 1.0) - start.0.max(along as f64)).max(0.0);
        let middle = start.1 + slope * (along as f64 + 0.5 - start.0);
        let (low, high) = (middle - half, middle + half);
        for across in low.max(0.0) as usize..(high.ceil().max(0.0) as usize).min(breadth) {
            let covered = (high.min(across as f64 + 1.0) - low.max(across as f64)).max(0.0);
            let (x, y) = if is_steep { (across, along) } else { (along, across) };
            // In 65536ths.
            let opacity = (stroke.opacity * part * covered * 65536.0) as i32;
            blend(&mut pixels[y * width + x], stroke.colour, opacity);
        }
    }
}

/// Over what is there, which is opaque.
fn blend(pixel: &mut PremultipliedColorU8, colour: Colour, opacity: i32) {
    let mix = |under: u8, over: u8| {
        (i32::from(under) + (((i32::from(over) - i32::from(under)) * opacity + 32768) >> 16)) as u8
    };
    let (red, green, blue) = (mix(pixel.red(), colour.0), mix(pixel.green(), colour.1), mix(pixel.blue(), colour.2));
    *pixel = PremultipliedColorU8::from_rgba(red, green, blue, u8::MAX).unwrap_or(*pixel);
}

fn text(pixmap: &mut Pixmap, text: &Text) {
    let width = font::width(&text.text, text.size);
    let before = match text.align {
        Align::Start => 0.0,
        Align::Middle => width / 2.0,
        Align::End => width,
    };
    let mut builder = PathBuilder::new();
    font::outline(&mut builder, &text.text, text.size, (-before, 0.0));
    let (x, y) = (text.at.0 as f32, text.at.1 as f32);
    let place = if text.is_turned {
        Transform::from_rotate(-90.0).post_translate(x, y)
    } else {
        Transform::from_translate(x, y)
    };
    let outline = builder.finish().and_then(|path| path.transform(place));
    if text.has_rim {
        stroke_path(pixmap, outline.clone(), RIM.0, WHITE, RIM.1);
    }
    fill(pixmap, outline, text.colour, 1.0);
}
