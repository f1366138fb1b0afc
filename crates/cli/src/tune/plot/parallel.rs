//! `plot parallel`: an axis per parameter and one for the metric, a line per trial, coloured by how good it is.

use carril_types::{ErrorCode, Failure, ScoreOrder};

use super::Subject;
use super::axis::{Axis, MetricAxis};
use super::colours::{GREY, INK, RED, ramp};
use super::font;
use super::importance::ranked;
use super::picture::{Align, Picture, Point, Stroke, Text};
use crate::tune::parameters::{Parameter, varying};
use crate::tune::target::note;
use crate::tune::words::{significant, trials};

/// More axes than this cannot be read on a page.
const MOST_PARAMETERS: usize = 12;
/// More lines than this are only a surface: the best are drawn, and a sample of the others.
const MOST_LINES: usize = 1000;
const MARGIN: f64 = 24.0;
const LENGTH: f64 = 400.0;
/// Below the heading, above the names of the axes.
const HEADING: f64 = 86.0;
const LINE: f64 = 15.0;
/// Room right of the metric's axis, for its colours and labels.
const BESIDE: f64 = 92.0;
const BAR: f64 = 12.0;
const SMALL: f64 = 12.0;

struct Layout {
    axes: Vec<Axis>,
    metric: MetricAxis,
    spacing: f64,
    top: f64,
}

pub fn draw(subject: &Subject) -> Result<Picture, Failure> {
    let goal = &subject.scores.goal;
    let trials_shown: Vec<usize> = subject.valued.iter().map(|(at, _)| *at).collect();
    let values: Vec<f64> = subject.valued.iter().map(|(_, value)| *value).collect();
    let parameters = chosen(subject, varying(subject.experiment))?;
    let axes: Vec<Axis> = parameters.iter().map(|parameter| Axis::of_parameter(parameter, &trials_shown)).collect();
    let metric = MetricAxis::of(&goal.metric, &values, goal.mode);
    let spacing = (1000.0 / axes.len() as f64).clamp(108.0, 300.0);
    let names = axes.iter().map(|axis| wrapped(axis, spacing)).chain([wrapped(&metric.axis, BESIDE + MARGIN)]);
    let names = names.map(|lines| lines.len()).max().unwrap_or(1);
    let layout = Layout { axes, metric, spacing, top: HEADING + (names + 1) as f64 * LINE };
    let width = 2.0 * MARGIN + layout.axes.len() as f64 * spacing + BESIDE;
    let title = format!("{}: parameters and {}", subject.experiment.summary.name, goal.metric);
    let mut picture = Picture::new(width, layout.top + LENGTH + 28.0, &title);
    let drawn = lines(&mut picture, subject, &layout);
    frames(&mut picture, &layout, goal.mode);
    heading(&mut picture, subject, &layout, drawn);
    Ok(picture)
}

/// As many as can be read; of more, those that explain most.
fn chosen(subject: &Subject, mut parameters: Vec<Parameter>) -> Result<Vec<Parameter>, Failure> {
    if parameters.is_empty() {
        let message = format!("no parameter of `{}` differs between its trials", subject.experiment.summary.name);
        return Err(Failure::new(ErrorCode::NotFound, message)
            .hint("`plot best` needs none; parameters are what `param_space` held"));
    }
    if parameters.len() > MOST_PARAMETERS {
        let keep: Vec<usize> = match ranked(subject, &parameters) {
            Some(ranked) => ranked.into_iter().map(|(at, _)| at).take(MOST_PARAMETERS).collect(),
            None => (0..MOST_PARAMETERS).collect(),
        };
        note(&format!("{} parameters differ: the {MOST_PARAMETERS} most important are shown", parameters.len()));
        let mut at = 0;
        parameters.retain(|_| {
            at += 1;
            keep.contains(&(at - 1))
        });
    }
    Ok(parameters)
}

impl Layout {
    fn x(&self, axis: usize) -> f64 {
        MARGIN + axis as f64 * self.spacing
    }

    fn bottom(&self) -> f64 {
        self.top + LENGTH
    }

    fn y(&self, place: f64) -> f64 {
        self.bottom() - place * LENGTH
    }

    /// The line of one of the trials that have a value.
    fn line(&self, at: usize) -> Vec<Point> {
        // A line goes through the mark of its category: anywhere else it would say another value.
        let height = |axis: &Axis| self.y(axis.places[at]);
        let mut points: Vec<Point> = self.axes.iter().enumerate().map(|(x, axis)| (self.x(x), height(axis))).collect();
        points.push((self.x(self.axes.len()), self.y(self.metric.axis.places[at])));
        points
    }

    /// From the worst of the axis, 0, to the best, 1.
    fn goodness(&self, at: usize, mode: ScoreOrder) -> f64 {
        let place = self.metric.axis.places[at];
        if mode == ScoreOrder::Min { 1.0 - place } else { place }
    }
}

/// Draws the lines, the better ones on top; how many there are.
fn lines(picture: &mut Picture, subject: &Subject, layout: &Layout) -> usize {
    let mode = subject.scores.goal.mode;
    let mut order: Vec<usize> = (0..subject.valued.len()).collect();
    order.sort_by(|one, other| {
        let (one, other) = (subject.valued[*one].1, subject.valued[*other].1);
        if mode == ScoreOrder::Min { other.total_cmp(&one) } else { one.total_cmp(&other) }
    });
    if order.len() > MOST_LINES {
        let best = order.split_off(order.len() - MOST_LINES / 3);
        let mut random = fastrand::Rng::with_seed(0);
        let wanted = MOST_LINES - best.len();
        let mut left = order.len();
        let mut taken = 0;
        // Each of those left is taken with the chance that fills the sample exactly; the order stays.
        order.retain(|_| {
            let is_taken = random.usize(0..left) < wanted - taken;
            left -= 1;
            taken += usize::from(is_taken);
            is_taken
        });
        order.extend(best);
    }
    let opacity = match order.len() {
        0..60 => 0.8,
        60..250 => 0.6,
        250..700 => 0.42,
        _ => 0.3,
    };
    let Some((best, others)) = order.split_last() else { return 0 };
    for at in others {
        let stroke = Stroke { colour: ramp(layout.goodness(*at, mode)), width: 1.2, opacity };
        picture.line(layout.line(*at), stroke);
    }
    picture.line(layout.line(*best), Stroke::new(RED, 2.6));
    order.len()
}

fn frames(picture: &mut Picture, layout: &Layout, mode: ScoreOrder) {
    for (at, axis) in layout.axes.iter().enumerate() {
        let x = layout.x(at);
        picture.line(vec![(x, layout.top), (x, layout.bottom())], Stroke::new(INK, 1.2));
        for mark in &axis.marks {
            let y = layout.y(mark.place);
            picture.line(vec![(x, y), (x + 4.0, y)], Stroke::new(INK, 1.2));
            let label = font::elided(&mark.label, SMALL, layout.spacing - 22.0);
            picture.text(Text::new(label, (x + 8.0, y), SMALL, INK).centred().rim());
        }
        name(picture, axis, (x, layout.spacing), layout);
    }
    let x = layout.x(layout.axes.len());
    const STEPS: usize = 96;
    for step in 0..STEPS {
        let place = |at: usize| layout.y(at as f64 / STEPS as f64);
        let good = (step as f64 + 0.5) / STEPS as f64;
        let colour = ramp(if mode == ScoreOrder::Min { 1.0 - good } else { good });
        // Each reaches under the next, or the eye sees a line between them.
        let over = if step + 1 < STEPS { 0.6 } else { 0.0 };
        picture.box_of((x, place(step + 1) - over), (x + BAR, place(step)), colour);
    }
    for mark in &layout.metric.axis.marks {
        let y = layout.y(mark.place);
        picture.line(vec![(x + BAR, y), (x + BAR + 4.0, y)], Stroke::new(INK, 1.2));
        picture.text(Text::new(&mark.label, (x + BAR + 8.0, y), SMALL, INK).centred());
    }
    name(picture, &layout.metric.axis, (x, BESIDE + MARGIN), layout);
}

fn wrapped(axis: &Axis, spacing: f64) -> Vec<String> {
    font::wrapped(&axis.name, SMALL, spacing - 12.0)
}

/// Above the axis, in as many lines as it takes; whether the scale is logarithmic is said below the axis.
fn name(picture: &mut Picture, axis: &Axis, (x, spacing): (f64, f64), layout: &Layout) {
    for (at, line) in wrapped(axis, spacing).iter().rev().enumerate() {
        picture.text(Text::new(line, (x - 2.0, layout.top - 14.0 - at as f64 * LINE), SMALL, INK));
    }
    if axis.is_log {
        picture.text(Text::new("log", (x, layout.bottom() + 17.0), 11.0, GREY).align(Align::Middle));
    }
}

fn heading(picture: &mut Picture, subject: &Subject, layout: &Layout, drawn: usize) {
    let (goal, room) = (&subject.scores.goal, picture.width - 2.0 * MARGIN);
    let title = font::elided(&picture.title, 17.0, room);
    picture.text(Text::new(title, (MARGIN - 2.0, 32.0), 17.0, INK));
    let mut told = trials(subject.valued.len());
    if drawn < subject.valued.len() {
        told = format!("{drawn} of {told}: the best {} and a sample", MOST_LINES / 3);
    }
    told.push_str(&format!("; {}: {}", goal.metric, goal.mode_sentence()));
    if layout.metric.beyond > 0 {
        told.push_str(&format!("; {} beyond its axis", layout.metric.beyond));
    }
    picture.text(Text::new(font::elided(&told, SMALL, room), (MARGIN - 2.0, 52.0), SMALL, GREY));
    if let Some(at) = subject.scores.best() {
        let value = significant(subject.scores.finite(at).unwrap_or(f64::NAN));
        let best = format!("best: {}, {} {value}", subject.experiment.trials[at].id, goal.metric);
        picture.line(vec![(MARGIN - 2.0, 68.0), (MARGIN + 16.0, 68.0)], Stroke::new(RED, 2.6));
        let best = font::elided(&best, SMALL, room - 24.0);
        picture.text(Text::new(best, (MARGIN + 22.0, 68.0), SMALL, INK).centred());
    }
}
