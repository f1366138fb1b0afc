//! `plot importance`: a bar per parameter, as long as the share of the metric's variance that it explains alone.

use carril_types::{ErrorCode, Failure, Metrics, Value};

use super::Subject;
use super::axis::{Axis, MetricAxis};
use super::colours::{BLUE, GREY, GRID, INK};
use super::font;
use super::picture::{Align, Picture, Stroke, Text};
use super::ticks;
use crate::table::table;
use crate::tune::forest::{Column, Importance, Share, importance};
use crate::tune::parameters::{Parameter, varying};
use crate::tune::target::note;
use crate::tune::words::trials;

/// Fewer trials than this tell nothing.
const FEWEST: usize = 10;
const MOST_BARS: usize = 20;
/// The forest explains too little for its shares to mean much.
const POOR: f64 = 0.3;
const SEED: u64 = 0;

const WIDTH: f64 = 860.0;
const TOP: f64 = 96.0;
const STEP: f64 = 30.0;
const SMALL: f64 = 12.0;
/// Room right of the bars, for their numbers.
const BESIDE: f64 = 118.0;

/// The parameters by their share, the greatest first; `None` where there is nothing to explain.
pub fn ranked(subject: &Subject, parameters: &[Parameter]) -> Option<Vec<(usize, Share)>> {
    let Importance { shares, .. } = explained(subject, parameters)?;
    let mut ranked: Vec<(usize, Share)> = shares.into_iter().enumerate().collect();
    ranked.sort_by(|(_, one), (_, other)| other.median.total_cmp(&one.median));
    Some(ranked)
}

/// Parameters and metric are taken on the scales of the plots: so a logarithmic one counts by its decades, and a value that is beyond
/// the axis as its end.
fn explained(subject: &Subject, parameters: &[Parameter]) -> Option<Importance> {
    let goal = &subject.scores.goal;
    let shown: Vec<usize> = subject.valued.iter().map(|(at, _)| *at).collect();
    let values: Vec<f64> = subject.valued.iter().map(|(_, value)| *value).collect();
    let column =
        |parameter: &Parameter| Column { positions: Axis::of_parameter(parameter, &shown).places, low: 0.0, high: 1.0 };
    let columns: Vec<Column> = parameters.iter().map(column).collect();
    importance(&columns, &MetricAxis::of(&goal.metric, &values, goal.mode).axis.places, SEED)
}

/// The plot, the table of shares for people, and for programs.
pub fn draw(subject: &Subject) -> Result<(Picture, String, Value), Failure> {
    let (name, metric) = (&subject.experiment.summary.name, &subject.scores.goal.metric);
    let count = subject.valued.len();
    if count < FEWEST {
        let message = format!("{count} trials of `{name}` have a finite `{metric}`: too few to tell what matters");
        return Err(Failure::new(ErrorCode::InvalidConfig, message).hint(format!("it takes at least {FEWEST}")));
    }
    let parameters = varying(subject.experiment);
    let Some(Importance { shares, fit }) = explained(subject, &parameters) else {
        let message = if parameters.is_empty() {
            format!("no parameter of `{name}` differs between its trials")
        } else {
            format!("every trial of `{name}` has the same `{metric}`: there is nothing to explain")
        };
        return Err(Failure::new(ErrorCode::NotFound, message).hint("`plot best` shows what there is"));
    };
    let mut bars: Vec<(&str, Share)> = parameters.iter().map(|parameter| parameter.name.as_str()).zip(shares).collect();
    bars.sort_by(|(_, one), (_, other)| other.median.total_cmp(&one.median));
    let (table, shares) = (table_of(&bars), json_of(&bars));
    if fit < POOR {
        note(&format!(
            "the forest explains {} of the variance of trials that it has not seen: the shares mean little",
            percent(fit.max(0.0))
        ));
    }
    if bars.len() > MOST_BARS {
        note(&format!("the plot shows the {MOST_BARS} most important of {} parameters", bars.len()));
        bars.truncate(MOST_BARS);
    }
    Ok((picture(subject, &bars, fit), table, shares))
}

fn table_of(bars: &[(&str, Share)]) -> String {
    let mut rows = vec![["parameter", "share", "80 % of the trees"].map(str::to_owned).to_vec()];
    let row = |(name, share): &(&str, Share)| vec![(*name).to_owned(), percent(share.median), spread(*share)];
    rows.extend(bars.iter().map(row));
    table(&rows)
}

fn json_of(bars: &[(&str, Share)]) -> Value {
    let number = |name: &str, value: f64| (name.to_owned(), Value::Float(value));
    let one = |(name, share): &(&str, Share)| {
        let named = ("parameter".to_owned(), Value::Text((*name).to_owned()));
        let fields = [named, number("share", share.median), number("low", share.low), number("high", share.high)];
        Value::Map(Metrics(fields.to_vec()))
    };
    Value::List(bars.iter().map(one).collect())
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn spread(share: Share) -> String {
    format!("{:.0} to {:.0} %", share.low * 100.0, share.high * 100.0)
}

fn picture(subject: &Subject, bars: &[(&str, Share)], fit: f64) -> Picture {
    let (name, metric) = (&subject.experiment.summary.name, &subject.scores.goal.metric);
    let bottom = TOP + bars.len() as f64 * STEP;
    let mut picture = Picture::new(WIDTH, bottom + 58.0, &format!("{name}: what {metric} depends on"));
    let widest = bars.iter().map(|(name, _)| font::width(name, SMALL)).fold(60.0, f64::max).min(270.0);
    let (left, right) = (24.0 + widest + 10.0, WIDTH - BESIDE - 20.0);
    let title = font::elided(&picture.title, 17.0, WIDTH - 48.0);
    picture.text(Text::new(title, (24.0, 32.0), 17.0, INK));
    let fit = if fit < POOR { format!("only {fit:.2}: read with care") } else { format!("{fit:.2}") };
    let told = [
        "share of the variance that each parameter explains alone (fANOVA main effects; what is left is interactions and noise)".to_owned(),
        format!("random forest over {}; bars: the median of its trees, whiskers: 80 % of them; R² on unseen trials {fit}", trials(subject.valued.len())),
    ];
    for (at, line) in told.iter().enumerate() {
        let line = font::elided(line, SMALL, WIDTH - 48.0);
        picture.text(Text::new(line, (24.0, 54.0 + at as f64 * 17.0), SMALL, GREY));
    }
    let longest = bars.iter().map(|(_, share)| share.high).fold(0.05, f64::max);
    let x = |share: f64| left + share / longest * (right - left);
    for tick in ticks::linear(0.0, longest * 100.0, 6, false) {
        let x = x(tick.value / 100.0);
        picture.line(vec![(x, TOP - 4.0), (x, bottom)], Stroke::new(GRID, 1.0));
        picture.text(Text::new(tick.label, (x, bottom + 18.0), SMALL, INK).align(Align::Middle));
    }
    for (at, (name, share)) in bars.iter().enumerate() {
        let y = TOP + (at as f64 + 0.5) * STEP - 2.0;
        let label = font::elided(name, SMALL, 270.0);
        picture.text(Text::new(label, (left - 8.0, y), SMALL, INK).align(Align::End).centred());
        picture.box_of((left, y - 9.0), (x(share.median), y + 9.0), BLUE);
        let (low, high) = (x(share.low), x(share.high));
        for points in [[(low, y), (high, y)], [(low, y - 4.0), (low, y + 4.0)], [(high, y - 4.0), (high, y + 4.0)]] {
            picture.line(points.to_vec(), Stroke::new(INK, 1.3));
        }
        let told = format!("{}  ({:.0}–{:.0})", percent(share.median), share.low * 100.0, share.high * 100.0);
        picture.text(Text::new(told, (right + 14.0, y), SMALL, INK).centred());
    }
    picture.line(vec![(left, TOP - 4.0), (left, bottom)], Stroke::new(GREY, 1.2));
    let below = Text::new(
        format!("share of the variance of {metric}, %"),
        (f64::midpoint(left, right), bottom + 42.0),
        13.0,
        INK,
    );
    picture.text(below.align(Align::Middle));
    picture
}
