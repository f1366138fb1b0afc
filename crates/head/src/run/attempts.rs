//! From one attempt of a run to the next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use carril_core::{Budget, Event, FailureRule, Infrastructure, Limit, Verdict, alike};
use carril_proto::v1;
use carril_store::{Fact, History, RETRY, deadline};
use carril_types::{Attempt, ErrorCode, Failure, NodeId, Rank, Restart, RunSpec};

use super::Run;
use super::reports::scores;
use crate::outside::{Checkpoints, Outside};

impl Run {
    pub(super) fn find_latest(&mut self, outside: &mut dyn Outside) {
        if let Some(storage) = &self.storage {
            outside.find_latest(self.id.clone(), storage.clone());
        }
    }

    /// The next attempt can go on from what was found.
    pub fn on_latest_found(&mut self, found: Result<Checkpoints, Failure>, outside: &mut dyn Outside) {
        let mut found = match found {
            Ok(found) if self.is_away(&found) => return self.look_again(outside),
            Ok(found) => found,
            Err(failure) => return self.decide(Event::Refused(failure), outside),
        };
        self.looking_since = None;
        self.tell_set_aside(std::mem::take(&mut found.set_aside), outside);
        self.saving.begin_anew(&self.location, found);
        self.automatic.begin_anew(outside.clock(), self.saving.reached());
        self.tell_resumed(self.machine.attempt(), outside);
        let newest = self.saving.newest().map(|newest| (newest.iteration, newest.path.clone()));
        let kept = scores(&self.spec, &self.saving);
        self.decide(Event::LatestFound { newest, kept }, outside);
    }

    /// Whether checkpoints that were there are gone, all of them: their directory was moved, removed or unmounted.
    fn is_away(&self, found: &Checkpoints) -> bool {
        let is_local = self.storage.as_ref().is_some_and(|storage| storage.local_path().is_some());
        is_local && self.saving.is_any_expected && found.kept.is_empty() && found.set_aside.is_empty()
    }

    /// A restart from the beginning would throw away what comes back in a moment.
    fn look_again(&mut self, outside: &mut dyn Outside) {
        let now = outside.clock();
        let text = format!("the checkpoints of this run are not in `{}` any more", self.location);
        let since = match self.looking_since {
            Some(since) => since,
            None => {
                let text = format!("{text}: they are waited for, {} s at most", deadline().as_secs());
                self.publish(v1::Warning { text }, outside);
                *self.looking_since.insert(now)
            }
        };
        if now.saturating_sub(since) < deadline() {
            return outside.set_retry_timer(self.id.clone(), RETRY);
        }
        let failure = Failure::new(ErrorCode::Storage, text)
            .hint("bring its directory back, and the next `fit()` with the same `name` resumes the run")
            .hint("to start over, give the run another `name`");
        self.decide(Event::Refused(failure), outside);
    }

    /// Whether nothing of an attempt that an earlier head has lost sight of can still be running: each of its nodes has
    /// come back, and has stopped what it had, or is followed by a new one of its name, or its lease is over.
    pub fn is_free(&self, nodes: &BTreeMap<NodeId, Arc<v1::Node>>, now: Duration) -> bool {
        let (earlier, until) = &self.earlier;
        now >= *until || earlier.iter().all(|lost| nodes.keys().any(|node| is_same_place(lost, node)))
    }

    pub fn is_freed_by(&self, node: &NodeId) -> bool {
        self.placed && self.earlier.0.iter().any(|lost| is_same_place(lost, node))
    }

    /// When that is so at the latest; `None` where nothing was running.
    pub fn free_at(&self) -> Option<Duration> {
        let (earlier, until) = &self.earlier;
        (!earlier.is_empty()).then_some(*until)
    }

    pub fn on_node_lost(&mut self, node: &NodeId, why: &str, outside: &mut dyn Outside) {
        let mut first = 0;
        let mut ranks = Vec::new();
        for share in &self.shares {
            let next = first + share.devices.len() as u32;
            if share.node == *node {
                ranks.extend((first..next).map(Rank));
            }
            first = next;
        }
        if ranks.is_empty() {
            return;
        }
        // The place was found, and nothing has started there yet.
        if std::mem::take(&mut self.placed) {
            self.misplaced = true;
            return;
        }
        let failure = Failure::new(ErrorCode::AgentLost, format!("node `{node}` is lost: {why}"));
        self.reject_uploads_of(node, &failure, outside);
        self.stacks_without(node, outside);
        self.decide(Event::NodeLost { ranks, failure }, outside);
    }

    /// Says from where the next attempt begins; false for the first one of all.
    pub(super) fn tell_resumed(&mut self, attempts: Attempt, outside: &mut dyn Outside) -> bool {
        let (state, reason) = match self.saving.newest() {
            Some(newest) => {
                let name = self.saving.newest_name().unwrap_or(&newest.path);
                ("resuming", format!("after report {} from {name}", newest.iteration))
            }
            None if attempts > Attempt(0) && self.saving.saved > 0 => {
                ("starting over", "none of its checkpoints is left, or whole".to_owned())
            }
            None if attempts > Attempt(0) => ("starting over", "no checkpoint was saved".to_owned()),
            None => return false,
        };
        let event = if state == "resuming" { "Resumed" } else { "StartedOver" };
        self.journal(event.into(), reason.clone(), Vec::new(), outside);
        if self.trial.is_none() {
            self.publish(v1::StateChanged { state: state.into(), reason, ..Default::default() }, outside);
        }
        true
    }

    pub(super) fn tell_set_aside(&mut self, set_aside: Vec<(String, String)>, outside: &mut dyn Outside) {
        for (name, why) in set_aside {
            let text = format!("checkpoint `{name}` is damaged and was set aside: {why}");
            self.journal("CheckpointSetAside".into(), text.clone(), Vec::new(), outside);
            self.publish(v1::Warning { text }, outside);
        }
    }

    pub(super) fn tell_restart(&mut self, restart: Restart, outside: &mut dyn Outside) {
        let told = to_wire(outside.now(), &restart);
        self.restarts.push(told.clone());
        let reason = restart.reason.clone();
        self.journal_fact("Restarted", reason, Fact::Restarted(restart), outside);
        self.publish_in_order(told, None, outside);
    }
}

/// What is left of the budgets after what earlier heads of the same `fit` have paid for, and what the loss of the last
/// one costs.
pub(crate) fn budget_of(spec: &RunSpec, history: &History, reports: u64) -> Result<(Budget, Option<Restart>), Failure> {
    let mut budget = Budget::new(rule_of(spec));
    if spec.continues.is_none() {
        return Ok((budget, None));
    }
    for (_, restart) in &history.restarts {
        budget.charge(&Failure::new(restart.code, &*restart.headline), &restart.headline, restart.reports);
    }
    let failure = match &spec.head_panic {
        Some(panic) => panicked(panic, history)?,
        None => Failure::new(ErrorCode::HeadLost, "the head was lost and was started again"),
    };
    match budget.charge(&failure, &failure.message, reports) {
        Verdict::Restart(why) => {
            let reason = format!("{} ({why})", failure.message);
            let attempt = history.next_attempt;
            Ok((budget, Some(Restart { attempt, reason, code: failure.code, headline: failure.message, reports })))
        }
        Verdict::End(why) => Err(Failure { message: format!("{} once too often: {why}", failure.message), ..failure }),
    }
}

/// A head that panicked may panic again for the same run: not for ever, whatever the budget says.
const SAME_PANICS: usize = 3;

fn panicked(panic: &str, history: &History) -> Result<Failure, Failure> {
    let failure = Failure::new(ErrorCode::HeadLost, format!("the head panicked and was started again: {panic}"));
    let same = |restart: &Restart| alike(&restart.headline) == alike(&failure.message);
    if history.restarts.iter().filter(|(_, restart)| same(restart)).count() + 1 < SAME_PANICS {
        return Ok(failure);
    }
    let message = format!("the head panicked {SAME_PANICS} times in the same way: {panic}");
    let bug = "this is a bug in carril: please report it with the run's `journal` directory";
    Err(Failure::new(ErrorCode::Internal, message).hint(bug))
}

fn rule_of(spec: &RunSpec) -> FailureRule {
    let limit = |number: i64| u32::try_from(number).map_or(Limit::Any, Limit::AtMost);
    let own = spec.failures.max_infrastructure_failures;
    FailureRule {
        failures: limit(spec.failures.max_failures),
        infrastructure: own.map_or(Infrastructure::WithTheUsers, |own| Infrastructure::OnItsOwn(limit(own))),
        fail_fast: spec.failures.fail_fast,
    }
}

/// `name#2` is the second life of the node `name`.
fn is_same_place(lost: &NodeId, node: &NodeId) -> bool {
    let name = |id: &NodeId| id.as_str().split('#').next().map(str::to_owned);
    name(lost) == name(node)
}

pub(super) fn to_wire(at: f64, restart: &Restart) -> v1::Restarted {
    let Attempt(attempt) = restart.attempt;
    v1::Restarted { attempt, reason: restart.reason.clone(), code: restart.code.name().to_owned(), at }
}
