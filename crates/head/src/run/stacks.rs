//! Where every rank is: asked of each node, and answered when the last of them has.
//!
//! STACKS-1: the answer has the ranks of every node that was asked, but for nodes that are lost meanwhile.

use std::collections::BTreeSet;

use carril_core::{Event, RankStack, summarize};
use carril_proto::v1;
use carril_types::{NodeId, Rank};
use tokio::sync::oneshot;

use super::Run;
use crate::outside::Outside;

#[derive(Default)]
pub(super) struct Gathering {
    /// Nodes that were asked and have not answered.
    waiting: BTreeSet<NodeId>,
    stacks: Vec<v1::RankStack>,
    askers: Vec<oneshot::Sender<v1::StacksReply>>,
}

impl Run {
    pub fn ask_for_stacks(&mut self, asker: oneshot::Sender<v1::StacksReply>, outside: &mut dyn Outside) {
        self.gathering.askers.push(asker);
        self.gather_stacks(outside);
    }

    pub(super) fn gather_stacks(&mut self, outside: &mut dyn Outside) {
        // Whoever asks meanwhile is answered with the same.
        if !self.gathering.waiting.is_empty() {
            return;
        }
        self.gathering.waiting = self.shares.iter().map(|share| share.node.clone()).collect();
        if self.gathering.waiting.is_empty() {
            return self.answer_stacks(outside);
        }
        let attempt = self.machine.attempt().0;
        for node in &self.gathering.waiting {
            outside.to_agent(node, v1::GatherStacks { run_id: self.id.as_str().to_owned(), attempt }.into());
        }
    }

    pub(super) fn on_stacks(&mut self, from: &NodeId, stacks: Vec<v1::RankStack>, outside: &mut dyn Outside) {
        if self.gathering.waiting.remove(from) {
            let world = self.spec.num_workers;
            self.gathering.stacks.extend(stacks.into_iter().filter(|stack| stack.rank < world));
            self.answer_if_complete(outside);
        }
    }

    /// What a lost node was asked it will not answer.
    pub(super) fn stacks_without(&mut self, node: &NodeId, outside: &mut dyn Outside) {
        if self.gathering.waiting.remove(node) {
            self.answer_if_complete(outside);
        }
    }

    /// The attempt that was asked is over: nobody of it answers any more.
    pub(super) fn forget_stacks(&mut self) {
        self.gathering = Gathering::default();
    }

    fn answer_if_complete(&mut self, outside: &mut dyn Outside) {
        if self.gathering.waiting.is_empty() {
            self.answer_stacks(outside);
        }
    }

    /// Answers whoever asked, and keeps the stacks with the run.
    fn answer_stacks(&mut self, outside: &mut dyn Outside) {
        let Gathering { mut stacks, askers, .. } = std::mem::take(&mut self.gathering);
        stacks.sort_by_key(|stack| stack.rank);
        let read: Vec<RankStack> = stacks
            .iter()
            .map(|s| RankStack { rank: Rank(s.rank), text: s.text.clone(), state: s.state.clone() })
            .collect();
        let every: Vec<Rank> = read.iter().map(|stack| stack.rank).collect();
        let summary = summarize(&read, &every);
        let mut text = format!("{summary}\n");
        for stack in &stacks {
            text.push_str(&format!("\nrank {} ({})\n{}\n", stack.rank, stack.state, stack.text.trim_end()));
        }
        if let Err(failure) = self.disk.write_stacks(&text) {
            self.publish(v1::Warning { text: failure.message }, outside);
        }
        for asker in askers {
            let _ = asker.send(v1::StacksReply { summary: summary.clone(), stacks: stacks.clone() });
        }
        self.decide(Event::StacksGathered(read), outside);
    }
}
