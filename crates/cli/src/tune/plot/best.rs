//! `plot best`: the value of each trial and the best so far, in the order in which trials ended.

use super::Subject;
use super::axis::MetricAxis;
use super::colours::{BLUE, GREY, GRID, INK, RED};
use super::font;
use super::picture::{Align, Picture, Point, Stroke, Text};
use super::ticks;
use crate::tune::words::{significant, trials};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 500.0;
const TOP: f64 = 92.0;
const BOTTOM: f64 = HEIGHT - 58.0;
const RIGHT: f64 = WIDTH - 26.0;
const STRIP: f64 = 14.0;
const SMALL: f64 = 12.0;

/// The frame, and how a trial's turn and value become a point in it.
struct Frame {
    left: f64,
    count: usize,
    metric: MetricAxis,
}

pub fn draw(subject: &Subject) -> Picture {
    let goal = &subject.scores.goal;
    let values: Vec<f64> = subject.valued.iter().map(|(_, value)| *value).collect();
    let metric = MetricAxis::of(&goal.metric, &values, goal.mode);
    let widest = metric.axis.marks.iter().map(|mark| font::width(&mark.label, SMALL)).fold(0.0, f64::max);
    let frame = Frame { left: 52.0 + widest, count: subject.experiment.trials.len(), metric };
    let name = &subject.experiment.summary.name;
    let mut picture = Picture::new(WIDTH, HEIGHT, &format!("{name}: best {} so far", goal.metric));
    let turns = in_order(subject);
    heading(&mut picture, subject, &frame);
    frame.draw(&mut picture, &goal.metric);
    points(&mut picture, subject, &frame, &turns);
    best_line(&mut picture, subject, &frame, &turns);
    picture
}

impl Frame {
    fn x(&self, turn: usize) -> f64 {
        self.left + (turn as f64 + 0.5) / self.count as f64 * (RIGHT - self.left)
    }

    /// Between two strips: above for what is beyond the axis, below for what has no value.
    fn y(&self, place: f64) -> f64 {
        BOTTOM - STRIP - place * (BOTTOM - TOP - 2.0 * STRIP)
    }

    fn at(&self, turn: usize, value: f64) -> Point {
        (self.x(turn), self.y(self.metric.scale.place(value)))
    }

    fn draw(&self, picture: &mut Picture, metric: &str) {
        for mark in &self.metric.axis.marks {
            let y = self.y(mark.place);
            picture.line(vec![(self.left, y), (RIGHT, y)], Stroke::new(GRID, 1.0));
            picture.text(Text::new(&mark.label, (self.left - 8.0, y), SMALL, INK).align(Align::End).centred());
        }
        for tick in ticks::linear(1.0, self.count as f64, 8, true) {
            let x = self.x(tick.value as usize - 1);
            picture.line(vec![(x, BOTTOM), (x, BOTTOM + 5.0)], Stroke::new(GREY, 1.0));
            picture.text(Text::new(tick.label, (x, BOTTOM + 20.0), SMALL, INK).align(Align::Middle));
        }
        let corners = vec![(self.left, TOP), (self.left, BOTTOM), (RIGHT, BOTTOM)];
        picture.line(corners, Stroke::new(GREY, 1.2));
        let middle = f64::midpoint(self.left, RIGHT);
        let below = Text::new("trials, in the order in which they ended", (middle, BOTTOM + 44.0), 13.0, INK);
        picture.text(below.align(Align::Middle));
        let scale = if self.metric.axis.is_log { " (logarithmic)" } else { "" };
        let label = format!("{}{scale}", font::elided(metric, 13.0, 230.0));
        let beside = Text::new(label, (24.0, f64::midpoint(TOP, BOTTOM)), 13.0, INK);
        picture.text(beside.align(Align::Middle).turned());
    }
}

/// The trials in the order in which they ended; those that have not come last, as they were made.
fn in_order(subject: &Subject) -> Vec<usize> {
    let all = &subject.experiment.trials;
    let mut turns: Vec<usize> = (0..all.len()).collect();
    turns.sort_by(|one, other| {
        let key = |at: &usize| all[*at].ended.unwrap_or(f64::INFINITY);
        key(one).total_cmp(&key(other)).then(one.cmp(other))
    });
    turns
}

fn heading(picture: &mut Picture, subject: &Subject, frame: &Frame) {
    let (goal, left) = (&subject.scores.goal, 24.0);
    let title = picture.title.clone();
    picture.text(Text::new(font::elided(&title, 17.0, WIDTH - 50.0), (left, 32.0), 17.0, INK));
    let mut told = format!("{}; {}; {} of each", trials(frame.count), goal.mode_sentence(), goal.scope_word());
    if let Some(at) = subject.scores.best() {
        let value = significant(subject.scores.finite(at).unwrap_or(f64::NAN));
        told.push_str(&format!("; best {value} in {}", subject.experiment.trials[at].id));
    }
    picture.text(Text::new(font::elided(&told, SMALL, WIDTH - 50.0), (left, 52.0), SMALL, GREY));
    let mut x = left;
    let mut legend = |picture: &mut Picture, text: &str, draw: &dyn Fn(&mut Picture, Point)| {
        draw(picture, (x + 8.0, 72.0));
        picture.text(Text::new(text, (x + 22.0, 72.0), SMALL, INK).centred());
        x += 22.0 + font::width(text, SMALL) + 24.0;
    };
    legend(picture, "a trial", &|picture, at| picture.circle(at, 3.5, BLUE, 0.8));
    legend(picture, "best so far", &|picture, (x, y)| {
        picture.line(vec![(x - 8.0, y), (x + 8.0, y)], Stroke::new(RED, 2.4));
    });
    let without = frame.count - subject.valued.len();
    if without > 0 {
        legend(picture, &format!("without a finite value ({without})"), &|picture, at| cross(picture, at));
    }
    if frame.metric.beyond > 0 {
        let text = format!("beyond the axis ({})", frame.metric.beyond);
        legend(picture, &text, &|picture, at| triangle(picture, at, 1.0));
    }
}

fn points(picture: &mut Picture, subject: &Subject, frame: &Frame, turns: &[usize]) {
    let (radius, opacity) = match frame.count {
        0..100 => (3.5, 0.8),
        100..1000 => (2.6, 0.6),
        _ => (1.7, 0.4),
    };
    for (turn, trial) in turns.iter().enumerate() {
        match subject.scores.finite(*trial) {
            None => cross(picture, (frame.x(turn), BOTTOM - STRIP / 2.0)),
            Some(value) => {
                let (x, y) = frame.at(turn, value);
                // The scale has room at its ends: what stands on an end is beyond it.
                if y <= frame.y(1.0) {
                    triangle(picture, (x, y - 6.0), 1.0);
                } else if y >= frame.y(0.0) {
                    triangle(picture, (x, y - 6.0), -1.0);
                } else {
                    picture.circle((x, y), radius, BLUE, opacity);
                }
            }
        }
    }
}

fn best_line(picture: &mut Picture, subject: &Subject, frame: &Frame, turns: &[usize]) {
    let mut line: Vec<Point> = Vec::new();
    let mut best: Option<f64> = None;
    for (turn, trial) in turns.iter().enumerate() {
        let Some(value) = subject.scores.finite(*trial) else { continue };
        if best.is_some_and(|best| !subject.scores.goal.is_better(value, best)) {
            continue;
        }
        if let Some(before) = best {
            line.push(frame.at(turn, before));
        }
        line.push(frame.at(turn, value));
        best = Some(value);
    }
    if let Some(best) = best {
        line.push((RIGHT, frame.at(0, best).1));
        picture.line(line, Stroke::new(RED, 2.4));
    }
}

fn cross(picture: &mut Picture, (x, y): Point) {
    let stroke = Stroke::new(GREY, 1.3);
    picture.line(vec![(x - 3.0, y - 3.0), (x + 3.0, y + 3.0)], stroke);
    picture.line(vec![(x - 3.0, y + 3.0), (x + 3.0, y - 3.0)], stroke);
}

/// Points upwards with 1, downwards with -1.
fn triangle(picture: &mut Picture, (x, y): Point, up: f64) {
    picture.area(vec![(x, y - 4.0 * up), (x + 4.0, y + 3.0 * up), (x - 4.0, y + 3.0 * up)], BLUE, 0.8);
}
