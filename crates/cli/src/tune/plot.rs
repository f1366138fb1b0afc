//! `carril tune plot EXPERIMENT best|parallel|importance`
//!
//! A plot is a list of shapes (`picture`), which is written as SVG or painted as PNG: both show the same. No font is looked for on
//! the machine.

mod axis;
mod best;
mod colours;
mod font;
mod importance;
mod parallel;
mod picture;
mod png;
mod svg;
mod ticks;

use std::path::{Path, PathBuf};

use carril_store::Experiment;
use carril_types::{ErrorCode, Failure, Metrics, Value, write_json};
use clap::{Args, ValueEnum};

use self::picture::Picture;
use super::export::write_whole;
use super::objective::{Objective, Scores};
use super::target::{Target, note};
use crate::table::print_all;

#[derive(Args)]
pub struct Plot {
    #[command(flatten)]
    target: Target,
    /// What to plot
    kind: Kind,
    /// Where to write it, FILE.png or FILE.svg, instead of EXPERIMENT_KIND.png
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    objective: Objective,
    /// Print one JSON object: where the plot is, and the shares of `importance`
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// The value of each trial and the best so far, in the order in which trials ended
    Best,
    /// A line per trial through its parameters, coloured by the metric
    Parallel,
    /// How much of the metric's variance each parameter explains (fANOVA over a random forest)
    Importance,
}

#[derive(Clone, Copy)]
enum Format {
    Png,
    Svg,
}

/// What a plot is made from.
struct Subject<'a> {
    experiment: &'a Experiment,
    scores: &'a Scores,
    /// The trials whose value is finite, and that value.
    valued: Vec<(usize, f64)>,
}

impl Plot {
    pub fn run(self) -> Result<(), Failure> {
        let format = self.output.as_deref().map_or(Ok(Format::Png), format_of)?;
        let experiment = self.target.open()?;
        let scores = self.objective.scores(&experiment)?;
        if let Some(left_out) = scores.left_out() {
            note(&left_out);
        }
        let valued: Vec<(usize, f64)> =
            (0..experiment.trials.len()).filter_map(|at| Some((at, scores.finite(at)?))).collect();
        if valued.is_empty() {
            let (name, metric) = (&experiment.summary.name, &scores.goal.metric);
            let message = format!("no trial of `{name}` has a `{metric}` that is a finite number");
            return Err(
                Failure::new(ErrorCode::NotFound, message).hint("--scope all looks at every result, not only the last")
            );
        }
        let subject = Subject { experiment: &experiment, scores: &scores, valued };
        let (word, (picture, table, shares)) = match self.kind {
            Kind::Best => ("best", (best::draw(&subject), String::new(), Value::None)),
            Kind::Parallel => ("parallel", (parallel::draw(&subject)?, String::new(), Value::None)),
            Kind::Importance => ("importance", importance::draw(&subject)?),
        };
        let path = self.output.unwrap_or_else(|| {
            PathBuf::from(format!("{}_{word}.png", experiment.summary.name.replace(['/', '\\'], "_")))
        });
        write_whole(&path, &bytes(&picture, format)?)?;
        if self.json {
            let text = |text: &str| Value::Text(text.to_owned());
            let mut fields = Metrics(vec![
                ("experiment".into(), text(&experiment.summary.name)),
                ("kind".into(), text(word)),
                ("metric".into(), text(&scores.goal.metric)),
                ("path".into(), text(&path.display().to_string())),
            ]);
            if shares != Value::None {
                fields.0.push(("importance".into(), shares));
            }
            let mut json = String::new();
            write_json(&mut json, &fields);
            print_all(&format!("{json}\n"));
        } else {
            print_all(&format!("{table}{}\n", path.display()));
        }
        Ok(())
    }
}

fn format_of(path: &Path) -> Result<Format, Failure> {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    match extension.as_deref() {
        Some("png") => Ok(Format::Png),
        Some("svg") => Ok(Format::Svg),
        _ => Err(Failure::new(
            ErrorCode::InvalidConfig,
            format!("`{}` is neither a PNG nor an SVG file", path.display()),
        )
        .hint("end its name in .png or .svg")),
    }
}

fn bytes(picture: &Picture, format: Format) -> Result<Vec<u8>, Failure> {
    match format {
        Format::Svg => Ok(svg::write(picture).into_bytes()),
        Format::Png => png::paint(picture).ok_or_else(|| {
            Failure::new(ErrorCode::Internal, "the plot could not be painted: write it as .svg instead")
        }),
    }
}
