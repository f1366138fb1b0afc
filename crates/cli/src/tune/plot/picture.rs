//! What a plot consists of: shapes in order, the later ones on top. Lengths are those of SVG, 96 to the inch; y grows downwards.

use super::colours::Colour;

pub type Point = (f64, f64);

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stroke {
    pub colour: Colour,
    pub width: f64,
    pub opacity: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Start,
    Middle,
    End,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    /// On the line that letters stand on.
    pub at: Point,
    pub text: String,
    pub size: f64,
    pub colour: Colour,
    pub align: Align,
    /// Read from below upwards.
    pub is_turned: bool,
    /// On a white rim, so that it can be read where lines cross it.
    pub has_rim: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    Line { points: Vec<Point>, stroke: Stroke },
    Area { points: Vec<Point>, colour: Colour, opacity: f64 },
    Circle { centre: Point, radius: f64, colour: Colour, opacity: f64 },
    Text(Text),
}

pub struct Picture {
    pub width: f64,
    pub height: f64,
    pub title: String,
    pub shapes: Vec<Shape>,
}

impl Stroke {
    pub fn new(colour: Colour, width: f64) -> Self {
        Self { colour, width, opacity: 1.0 }
    }
}

impl Text {
    pub fn new(text: impl Into<String>, at: Point, size: f64, colour: Colour) -> Self {
        let text = text.into();
        Self { at, text, size, colour, align: Align::Start, is_turned: false, has_rim: false }
    }

    pub fn align(mut self, align: Align) -> Self {
        self.align = align;
        self
    }

    pub fn turned(mut self) -> Self {
        self.is_turned = true;
        self
    }

    pub fn rim(mut self) -> Self {
        self.has_rim = true;
        self
    }

    /// Moves it so that its middle, not its foot, is at its height.
    pub fn centred(mut self) -> Self {
        self.at.1 += self.size * 0.36;
        self
    }
}

impl Picture {
    pub fn new(width: f64, height: f64, title: &str) -> Self {
        Self { width, height, title: title.to_owned(), shapes: Vec::new() }
    }

    pub fn line(&mut self, points: Vec<Point>, stroke: Stroke) {
        self.shapes.push(Shape::Line { points, stroke });
    }

    pub fn area(&mut self, points: Vec<Point>, colour: Colour, opacity: f64) {
        self.shapes.push(Shape::Area { points, colour, opacity });
    }

    /// An upright rectangle by two of its corners.
    pub fn box_of(&mut self, (left, top): Point, (right, bottom): Point, colour: Colour) {
        self.area(vec![(left, top), (right, top), (right, bottom), (left, bottom)], colour, 1.0);
    }

    pub fn circle(&mut self, centre: Point, radius: f64, colour: Colour, opacity: f64) {
        self.shapes.push(Shape::Circle { centre, radius, colour, opacity });
    }

    pub fn text(&mut self, text: Text) {
        self.shapes.push(Shape::Text(text));
    }
}
