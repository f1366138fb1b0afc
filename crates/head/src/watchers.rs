//! Who watches a run, and what happens when a watcher is slower than the run.
//!
//! WATCH-1: a watcher that asked for every report gets every report, in order. While its queue is full the run's messages
//!   wait in the head, and with them the ranks, by the window of the collation: memory is bounded and nothing is lost.
//! WATCH-2: output is the exception: the file has all of it, so a watcher that is far behind is told what it misses.

use std::collections::VecDeque;

use carril_proto::v1;
use tokio::sync::mpsc;

/// How many events of output may wait for a slow watcher.
const OUTPUT_BACKLOG: usize = 2_000;
/// How many events wait for the first watcher.
const EARLY: usize = 10_000;

pub struct Watcher {
    pub id: u64,
    pub reports: bool,
    pub output: bool,
    /// Wants of the trials of a search only their making and their failures.
    pub quiet: bool,
    pub sender: mpsc::Sender<v1::RunEvent>,
}

pub(crate) struct Watchers {
    all: Vec<(Watcher, Backlog)>,
    /// What happened before anybody watched: a driver submits first and watches then.
    early: Option<Vec<v1::RunEvent>>,
    /// The ending, for those who come late.
    ended: Option<v1::RunEvent>,
}

#[derive(Default)]
struct Backlog {
    events: VecDeque<v1::RunEvent>,
    skipped: usize,
    asked: bool,
}

impl Watchers {
    pub fn new() -> Self {
        Self { all: Vec::new(), early: Some(Vec::new()), ended: None }
    }

    pub fn add(&mut self, watcher: Watcher) {
        self.all.push((watcher, Backlog::default()));
        match self.early.take() {
            Some(early) => early.iter().for_each(|event| self.publish(event)),
            None => {
                if let (Some(ended), Some((watcher, backlog))) = (&self.ended, self.all.last_mut()) {
                    backlog.events.push_back(ended.clone());
                    Self::send(watcher, backlog);
                }
            }
        }
    }

    /// Whether somebody wants every report, or may still come to want it.
    pub fn want_reports(&self) -> bool {
        self.early.is_some() || self.all.iter().any(|(watcher, _)| watcher.reports)
    }

    /// Whether one that wants everything is behind.
    pub fn are_behind(&self) -> bool {
        self.all.iter().any(|(watcher, backlog)| watcher.reports && !backlog.events.is_empty())
    }

    pub fn publish(&mut self, event: &v1::RunEvent) {
        use v1::run_event::Kind;
        if matches!(event.kind, Some(Kind::Ended(_))) {
            self.ended = Some(event.clone());
        }
        if let Some(early) = &mut self.early
            && early.len() < EARLY
        {
            early.push(event.clone());
            return;
        }
        self.all.retain(|(watcher, _)| !watcher.sender.is_closed());
        for (watcher, backlog) in &mut self.all {
            let wanted = match &event.kind {
                Some(Kind::Reported(_)) => watcher.reports,
                Some(Kind::Progress(_)) => !watcher.reports && backlog.events.is_empty(),
                Some(Kind::Standing(_)) => backlog.events.is_empty(),
                Some(Kind::Output(_)) => watcher.output,
                Some(Kind::Trial(changed)) => !watcher.quiet || changed.made.is_some(),
                Some(Kind::OfTrial(of_trial)) => !watcher.quiet || is_trouble(of_trial),
                _ => true,
            };
            if !wanted {
                continue;
            }
            let is_output = matches!(event.kind, Some(Kind::Output(_)));
            if is_output && backlog.events.len() >= OUTPUT_BACKLOG {
                backlog.skipped += 1;
                continue;
            }
            backlog.events.push_back(event.clone());
            Self::send(watcher, backlog);
        }
    }

    /// The watchers that must be waited for, each once.
    pub fn take_full(&mut self) -> Vec<(u64, mpsc::Sender<v1::RunEvent>)> {
        let full = self.all.iter_mut().filter(|(_, backlog)| !backlog.events.is_empty() && !backlog.asked);
        full.map(|(watcher, backlog)| {
            backlog.asked = true;
            (watcher.id, watcher.sender.clone())
        })
        .collect()
    }

    pub fn on_ready(&mut self, id: u64) {
        for (watcher, backlog) in self.all.iter_mut().filter(|(watcher, _)| watcher.id == id) {
            backlog.asked = false;
            Self::send(watcher, backlog);
        }
    }

    fn send(watcher: &Watcher, backlog: &mut Backlog) {
        while let Some(event) = backlog.events.pop_front() {
            match watcher.sender.try_send(event) {
                Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
                Err(mpsc::error::TrySendError::Full(event)) => {
                    backlog.events.push_front(event);
                    return;
                }
            }
            if backlog.skipped > 0 && backlog.events.len() < OUTPUT_BACKLOG / 2 {
                let text =
                    format!("{} pieces of output were not shown: the files in `ranks/` have them", backlog.skipped);
                backlog.skipped = 0;
                backlog.events.push_back(v1::Warning { text }.into());
            }
        }
    }

    /// Ends the watchers' streams.
    pub fn close(&mut self) {
        self.all.clear();
    }

    pub fn is_drained(&self) -> bool {
        self.all.iter().all(|(watcher, backlog)| backlog.events.is_empty() || watcher.sender.is_closed())
    }
}

/// Whether a trial has something to tell that must not be missed.
fn is_trouble(of_trial: &v1::TrialEvent) -> bool {
    use v1::run_event::Kind;
    match of_trial.event.as_ref().and_then(|event| event.kind.as_ref()) {
        Some(Kind::Ended(ended)) => ended.status != "finished",
        Some(Kind::Warning(_) | Kind::Restarted(_)) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use v1::run_event::Kind;

    use super::*;

    fn changed(made: bool) -> v1::RunEvent {
        v1::TrialChanged { made: made.then(v1::TrialMade::default), ..Default::default() }.into()
    }

    fn ended(status: &str) -> v1::RunEvent {
        let event = v1::RunEnded { status: status.to_owned(), ..Default::default() }.into();
        let of_trial = v1::TrialEvent { trial: 0, event: Some(Box::new(event)) };
        v1::RunEvent { kind: Some(Kind::OfTrial(Box::new(of_trial))) }
    }

    #[test]
    fn a_quiet_watcher_hears_of_trials_when_they_are_made_and_when_they_fail() {
        let events = [changed(true), changed(false), ended("finished"), ended("failed")];
        let heard = |quiet| {
            let (sender, mut receiver) = mpsc::channel(events.len());
            let mut watchers = Watchers::new();
            watchers.add(Watcher { id: 0, reports: false, output: false, quiet, sender });
            events.iter().for_each(|event| watchers.publish(event));
            std::iter::from_fn(|| receiver.try_recv().ok()).collect::<Vec<_>>()
        };
        assert_eq!(heard(false), events);
        assert_eq!(heard(true), [events[0].clone(), events[3].clone()]);
    }
}
