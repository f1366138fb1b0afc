//! The one font of the plots: how wide its texts are, how to fit them, and their outlines. DejaVu Sans is part of the program.

use std::sync::OnceLock;

use tiny_skia::PathBuilder;
use ttf_parser::{Face, GlyphId, OutlineBuilder};

use super::picture::Point;

fn face() -> &'static Face<'static> {
    static FACE: OnceLock<Face<'static>> = OnceLock::new();
    FACE.get_or_init(|| Face::parse(dejavu::sans::regular(), 0).expect("the font is part of the program"))
}

/// A letter that the font does not have is shown as its empty box.
fn glyph(letter: char) -> GlyphId {
    face().glyph_index(letter).unwrap_or(GlyphId(0))
}

fn advance(glyph: GlyphId) -> f64 {
    f64::from(face().glyph_hor_advance(glyph).unwrap_or(0)) / f64::from(face().units_per_em())
}

pub fn width(text: &str, size: f64) -> f64 {
    text.chars().map(|letter| advance(glyph(letter))).sum::<f64>() * size
}

/// The text, or as much of its two ends as there is room for.
pub fn elided(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let letters: Vec<char> = text.chars().collect();
    let shortened = |kept: usize| -> String {
        let front = kept.div_ceil(2);
        let back = &letters[letters.len() - (kept - front)..];
        letters[..front].iter().chain(['…'].iter()).chain(back).collect()
    };
    let kept = (1..letters.len()).rev().find(|kept| width(&shortened(*kept), size) <= room).unwrap_or(1);
    shortened(kept)
}

/// The text in at most three lines, broken after `/`, `_`, `.`, `-` or a space.
pub fn wrapped(text: &str, size: f64, room: f64) -> Vec<String> {
    const MOST: usize = 3;
    let mut lines: Vec<String> = vec![String::new()];
    for part in text.split_inclusive(['/', '_', '.', '-', ' ']) {
        let may_break = lines.len() < MOST;
        let last = lines.last_mut().expect("there is always one");
        if may_break && !last.is_empty() && width(last, size) + width(part, size) > room {
            lines.push(part.to_owned());
        } else {
            last.push_str(part);
        }
    }
    lines.iter().map(|line| elided(line.trim_end(), size, room)).collect()
}

/// Adds the outline of a text that starts at a point.
pub fn outline(path: &mut PathBuilder, text: &str, size: f64, (mut x, y): Point) {
    let scale = size / f64::from(face().units_per_em());
    for letter in text.chars() {
        let glyph = glyph(letter);
        face().outline_glyph(glyph, &mut Pen { path, x, y, scale });
        x += advance(glyph) * size;
    }
}

/// Letters are drawn upwards in their own units.
struct Pen<'a> {
    path: &'a mut PathBuilder,
    x: f64,
    y: f64,
    scale: f64,
}

impl Pen<'_> {
    fn at(&self, x: f32, y: f32) -> (f32, f32) {
        ((self.x + f64::from(x) * self.scale) as f32, (self.y - f64::from(y) * self.scale) as f32)
    }
}

impl OutlineBuilder for Pen<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.path.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.path.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.at(x1, y1), self.at(x, y));
        self.path.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2), (x, y)) = (self.at(x1, y1), self.at(x2, y2), self.at(x, y));
        self.path.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_made_to_fit() {
        assert!(width("lr", 12.0) > 5.0 && width("lr", 24.0) > width("lr", 12.0) * 1.99);
        for text in ["optimizer/parameter_groups/weight_decay", "a", "ümläuté_δ/学習"] {
            for room in [20.0, 60.0, 400.0] {
                assert!(width(&elided(text, 12.0, room), 12.0) <= room, "{text} in {room}");
                let lines = wrapped(text, 12.0, room);
                assert!(lines.len() <= 3 && lines.iter().all(|line| width(line, 12.0) <= room), "{lines:?} in {room}");
            }
            assert_eq!(elided(text, 12.0, 1000.0), text);
            assert_eq!(wrapped(text, 12.0, 1000.0), [text]);
        }
        assert_eq!(wrapped("optimizer/weight_decay", 12.0, 70.0), ["optimizer/", "weight_", "decay"]);
    }
}
