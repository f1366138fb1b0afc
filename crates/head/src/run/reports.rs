//! The reports of a run: collated, written to the files, told to whoever watches.

use std::time::Duration;

use carril_core::{Budget, Collated, Event, Kept, Retention, RetentionRule, RunOptions, reduce};
use carril_proto::v1;
use carril_types::{AUTOMATIC_FIELDS, Attempt, Metrics, Rank, RunSpec, ValidationTask, Value};

use super::Run;
use crate::outside::Outside;
use crate::saving::Saving;

/// Watchers that do not want every report are told of the last one this often.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// A report as it travels through the core: opaque to it.
pub(crate) struct RankReport {
    at: f64,
    clock: f64,
    metrics: Metrics,
    checkpoint_name: String,
    data_position: String,
    stall: f64,
    validation: Option<ValidationTask>,
    /// Only for its checkpoint.
    silent: bool,
}

impl Run {
    pub(super) fn on_report(&mut self, rank: Rank, report: v1::Report, outside: &mut dyn Outside) {
        self.standing.reported(rank, outside.now());
        let event = Event::Reported {
            rank,
            sequence: report.sequence,
            checkpoint: report.checkpoint.then_some(match (report.last, report.droppable) {
                (true, _) => carril_core::Saving::Last,
                (false, true) => carril_core::Saving::Async,
                (false, false) => carril_core::Saving::Sync,
            }),
            validate: self.spec.validation.is_some() && report.validation.is_some(),
            report: RankReport {
                at: report.at,
                clock: report.clock,
                metrics: report.metrics.unwrap_or_default().into(),
                checkpoint_name: report.checkpoint_name,
                data_position: report.data_position,
                stall: report.stall_s,
                validation: report.validation.map(Into::into),
                silent: report.silent,
            },
        };
        self.decide(event, outside);
    }

    pub(super) fn commit_report(
        &mut self,
        collated: Collated<RankReport>,
        checkpoint: bool,
        outside: &mut dyn Outside,
    ) {
        let Collated { iteration, by_rank } = collated;
        let silent = by_rank.iter().flatten().any(|report| report.silent);
        // A report that is only for its checkpoint has the metrics of the one before.
        let before = self.last.clone().filter(|_| silent);
        let metrics = before.or_else(|| reduced(&by_rank, &self.spec));
        let (at, clock) = by_rank.iter().flatten().next().map_or((0.0, 0.0), |report| (report.at, report.clock));
        let mut automatic = match &metrics {
            _ if silent => Metrics::default(),
            Some(metrics) => self.automatic.fields(iteration, at, clock, metrics),
            None => self.automatic.fields(iteration, at, clock, &Metrics::default()),
        };
        if checkpoint {
            let mut given = by_rank.iter().flatten().map(|report| report.checkpoint_name.as_str());
            let name = self.saving.begin(iteration, given.find(|name| !name.is_empty()));
            automatic.0.push(("checkpoint_dir_name".into(), Value::Text(name)));
            self.saving.stall += by_rank.iter().flatten().map(|report| report.stall).fold(0.0, f64::max);
        }
        if checkpoint || self.saving.stall > 0.0 {
            automatic.0.push(("checkpoint_stall_s".into(), Value::Float(self.saving.stall)));
            automatic.0.push(("checkpoint_upload_s".into(), Value::Float(self.saving.upload)));
        }
        if checkpoint {
            let mut asked = by_rank.iter().flatten().filter_map(|report| report.validation.clone());
            let validation = asked.next().filter(|_| self.spec.validation.is_some());
            let given = metrics.clone().unwrap_or_default();
            let is_automatic = |(name, _): &&(String, Value)| AUTOMATIC_FIELDS.contains(&name.as_str());
            let own = given.0.iter().filter(is_automatic).map(|(name, _)| name.clone()).filter(|_| !silent).collect();
            let reported = completed(given, &automatic);
            let positions = by_rank.iter().flatten().map(|report| report.data_position.clone()).collect();
            self.saving.set_header(iteration, reported, own, validation, positions);
        }
        if silent {
            return;
        }
        self.write_report(at, iteration, metrics, &automatic, &by_rank, outside);
        self.publish_report(iteration, by_rank, checkpoint, outside);
    }

    fn write_report(
        &mut self,
        at: f64,
        iteration: u64,
        metrics: Option<Metrics>,
        automatic: &Metrics,
        by_rank: &[Option<RankReport>],
        outside: &mut dyn Outside,
    ) {
        let mut result = Ok(());
        if let Some(metrics) = metrics {
            result = self.disk.append(at, iteration, &metrics, automatic);
            self.iterations = iteration;
            self.last = Some(completed(metrics, automatic));
        }
        let own_file = |rank: usize| rank > 0 || !self.spec.metrics_reduce.is_empty();
        for (rank, report) in by_rank.iter().enumerate() {
            let Some(report) = report else { continue };
            if own_file(rank) {
                let mut metrics = report.metrics.clone();
                metrics.set_default("training_iteration", Value::Int(iteration as i64));
                metrics.set_default("timestamp", Value::Float(report.at));
                result = result.and_then(|()| self.disk.append_rank(Rank(rank as u32), &metrics));
            }
            self.last_by_rank[rank].clone_from(&report.metrics);
        }
        if let Err(failure) = result {
            self.written(Err(failure), outside);
        }
    }

    fn publish_report(
        &mut self,
        iteration: u64,
        by_rank: Vec<Option<RankReport>>,
        checkpoint: bool,
        outside: &mut dyn Outside,
    ) {
        if self.watchers.want_reports() || self.trial.is_some() {
            let ranks = (0..)
                .zip(by_rank)
                .filter_map(|(rank, report)| Some(v1::RankReport { rank, metrics: Some(report?.metrics.into()) }))
                .collect();
            let metrics = self.last.clone().map(Into::into);
            let event = v1::Reported { iteration, metrics, ranks, checkpoint: None };
            self.publish_in_order(event, checkpoint.then_some(iteration), outside);
        }
        if self.trial.is_some() {
            return;
        }
        let now = outside.clock();
        if self.last_progress.is_none_or(|last| now.saturating_sub(last) >= PROGRESS_EVERY) {
            self.publish_progress(outside);
        } else if !std::mem::replace(&mut self.progress_due, true) {
            // The last report of a burst is shown too, a moment later.
            outside.set_progress_timer(self.id.clone(), PROGRESS_EVERY);
        }
    }

    pub fn on_progress_due(&mut self, outside: &mut dyn Outside) {
        self.progress_due = false;
        if !self.ended {
            self.publish_progress(outside);
        }
    }

    fn publish_progress(&mut self, outside: &mut dyn Outside) {
        let now = outside.clock();
        self.last_progress = Some(now);
        let event = v1::Progress {
            iteration: self.iterations,
            metrics: self.last.clone().map(Into::into),
            checkpoints: self.saving.count() as u64,
            time_total_s: self.automatic.seconds(now),
            saved: self.saving.saved,
        };
        self.publish(event, outside);
    }
}

/// What was reported, with the automatic fields beside it: a key of the user's wins.
fn completed(mut reported: Metrics, automatic: &Metrics) -> Metrics {
    for (key, value) in &automatic.0 {
        reported.set_default(key, value.clone());
    }
    reported
}

fn reduced(by_rank: &[Option<RankReport>], spec: &RunSpec) -> Option<Metrics> {
    let metrics: Vec<Option<&Metrics>> = by_rank.iter().map(|report| report.as_ref().map(|r| &r.metrics)).collect();
    reduce(&metrics, &spec.metrics_reduce)
}

/// What the run controller is told beyond the size of the group.
pub(super) fn options(spec: &RunSpec, saving: &Saving, budget: Budget, attempt: Attempt) -> RunOptions<RankReport> {
    let rule = RetentionRule {
        num_to_keep: spec.num_to_keep.map(|count| count as usize),
        score: spec.checkpoint_score_attribute.is_some().then_some(spec.checkpoint_score_order),
    };
    let newest = saving.newest().map(|newest| (newest.iteration, newest.path.clone()));
    let retention = Retention::new(rule, scores(spec, saving));
    let spec = spec.clone();
    RunOptions {
        hang_timeout: spec.hang_timeout_s.map(Duration::from_secs_f64),
        reports: newest.as_ref().map_or(0, |(iteration, _)| *iteration),
        retention,
        budget,
        attempt,
        newest,
        unvalidated: if spec.validation.is_some() { saving.unvalidated() } else { Vec::new() },
        score: Box::new(move |collated| {
            let metrics = reduced(&collated.by_rank, &spec)?;
            score_of(&spec, &metrics, collated.iteration)
        }),
    }
}

/// What each checkpoint that is there is worth.
pub(super) fn scores(spec: &RunSpec, saving: &Saving) -> Vec<Kept> {
    saving.scores(|metrics, iteration| score_of(spec, metrics, iteration))
}

pub(super) fn score_of(spec: &RunSpec, metrics: &Metrics, iteration: u64) -> Option<f64> {
    let attribute = spec.checkpoint_score_attribute.as_deref();
    let mut found = None;
    metrics
        .for_each_flat(&mut |name, value| found = found.or_else(|| value.as_f64().filter(|_| Some(name) == attribute)));
    found.or((attribute == Some("training_iteration")).then_some(iteration as f64))
}
