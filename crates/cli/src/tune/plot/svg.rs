//! A picture as SVG. Texts stay texts: they can be searched, and edited before they go into a paper.

use std::fmt::Write;

use super::colours::{Colour, WHITE};
use super::picture::{Align, Picture, Point, Shape, Stroke, Text};

/// Those that follow the first are narrower or as wide: what was laid out for it fits.
const FONTS: &str = "'DejaVu Sans', Verdana, 'Bitstream Vera Sans', Arial, sans-serif";

pub fn write(picture: &Picture) -> String {
    let (width, height) = (number(picture.width), number(picture.height));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"{FONTS}\" stroke-linejoin=\"round\">\n<title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"{}\"/>\n",
        escaped(&picture.title),
        hex(WHITE)
    );
    for shape in &picture.shapes {
        match shape {
            Shape::Line { points, stroke } => line(&mut out, points, stroke),
            Shape::Area { points, colour, opacity } => {
                let (points, colour, opacity) = (coordinates(points), hex(*colour), fill_opacity(*opacity));
                out.push_str(&format!("<polygon points=\"{points}\" fill=\"{colour}\"{opacity}/>\n"));
            }
            Shape::Circle { centre, radius, colour, opacity } => {
                let (x, y, radius) = (number(centre.0), number(centre.1), number(*radius));
                let (colour, opacity) = (hex(*colour), fill_opacity(*opacity));
                out.push_str(&format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" fill=\"{colour}\"{opacity}/>\n"));
            }
            Shape::Text(written) => text(&mut out, written),
        }
    }
    out.push_str("</svg>\n");
    out
}

fn line(out: &mut String, points: &[Point], stroke: &Stroke) {
    let (points, colour, width) = (coordinates(points), hex(stroke.colour), number(stroke.width));
    let opacity =
        if stroke.opacity < 1.0 { format!(" stroke-opacity=\"{}\"", number(stroke.opacity)) } else { String::new() };
    out.push_str(&format!(
        "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"{opacity}/>\n"
    ));
}

fn text(out: &mut String, text: &Text) {
    let (x, y, size, colour) = (number(text.at.0), number(text.at.1), number(text.size), hex(text.colour));
    out.push_str(&format!("<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" fill=\"{colour}\""));
    match text.align {
        Align::Start => {}
        Align::Middle => out.push_str(" text-anchor=\"middle\""),
        Align::End => out.push_str(" text-anchor=\"end\""),
    }
    if text.is_turned {
        out.push_str(&format!(" transform=\"rotate(-90 {x} {y})\""));
    }
    if text.has_rim {
        out.push_str(&format!(
            " stroke=\"{}\" stroke-width=\"3\" stroke-opacity=\"0.85\" paint-order=\"stroke\"",
            hex(WHITE)
        ));
    }
    out.push_str(&format!(">{}</text>\n", escaped(&text.text)));
}

fn fill_opacity(opacity: f64) -> String {
    if opacity < 1.0 { format!(" fill-opacity=\"{}\"", number(opacity)) } else { String::new() }
}

fn coordinates(points: &[Point]) -> String {
    let mut out = String::with_capacity(points.len() * 14);
    for (x, y) in points {
        let space = if out.is_empty() { "" } else { " " };
        write!(out, "{space}{},{}", number(*x), number(*y)).expect("a String has room");
    }
    out
}

/// A hundredth of a pixel is enough.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn hex(colour: Colour) -> String {
    format!("#{:02x}{:02x}{:02x}", colour.0, colour.1, colour.2)
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            // What XML has no way to write at all.
            control if control.is_control() => out.push(' '),
            other => out.push(other),
        }
    }
    out
}
