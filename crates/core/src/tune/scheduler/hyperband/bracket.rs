//! One bracket of HyperBand: a run of successive halving, and the plan that says how large it is.

use std::collections::BTreeMap;
use std::fmt;

use carril_types::exact;
use serde::{Deserialize, Serialize};

use crate::tune::TrialId;
use crate::tune::scheduler::Score;

/// `trials` of a bracket are trained until a total of `until`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rung {
    pub trials: usize,
    #[serde(with = "exact")]
    pub until: f64,
}

/// A bracket as the paper has it, if it is full and no trial fails.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan(pub Vec<Rung>);

/// A reduction factor of almost 1 would make brackets without end.
const MAX_HALVINGS: usize = 64;

/// The brackets of one round of HyperBand, the one of many short trials first (BAND-1).
pub fn plan(max_t: f64, reduction_factor: f64) -> Vec<Plan> {
    // Powers of η by multiplication, which is exact where η is whole: a logarithm of 3^5 to base 3 may be below 5.
    let mut powers = vec![1.0];
    while powers.len() <= MAX_HALVINGS && powers[powers.len() - 1] * reduction_factor <= max_t {
        powers.push(powers[powers.len() - 1] * reduction_factor);
    }
    let brackets = powers.len();
    (0..brackets).rev().map(|halvings| bracket_plan(max_t, reduction_factor, &powers[..=halvings], brackets)).collect()
}

/// `powers` are those of η from 0 to s, `brackets` is s_max + 1.
fn bracket_plan(max_t: f64, reduction_factor: f64, powers: &[f64], brackets: usize) -> Plan {
    let halvings = powers.len() - 1;
    let mut trials = (brackets as f64 * powers[halvings] / powers.len() as f64).ceil() as usize;
    let rungs = powers.iter().rev().map(|power| {
        let rung = Rung { trials, until: max_t / power };
        trials = survivors(trials, reduction_factor);
        rung
    });
    Plan(rungs.collect())
}

/// How many of `trials` go on.
fn survivors(trials: usize, reduction_factor: f64) -> usize {
    ((trials as f64 / reduction_factor).floor() as usize).max(1)
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Bracket {
    plan: Plan,
    /// Which rung of the plan it is trained for.
    rung: usize,
    /// How many trials this rung was begun with; while the bracket takes trials, how many joined.
    begun: usize,
    open: bool,
    /// Those that live.
    members: BTreeMap<TrialId, Member>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Member {
    /// How far it is and its score there, as last reported.
    #[serde(with = "exact")]
    time: f64,
    score: Option<Score>,
    /// It has reached the milestone and waits for the others.
    arrived: bool,
}

pub(super) struct Halved {
    pub(super) losers: Vec<(TrialId, Score)>,
    pub(super) keep: usize,
    pub(super) of: usize,
}

impl Bracket {
    pub(super) fn new(plan: Plan) -> Self {
        Self { plan, rung: 0, begun: 0, open: true, members: BTreeMap::new() }
    }

    pub(super) fn join(&mut self, trial: TrialId) {
        self.members.insert(trial, Member::default());
        self.begun += 1;
        self.open = self.places_left() > 0;
    }

    pub(super) fn close(&mut self) {
        self.open = false;
    }

    pub(super) fn leave(&mut self, trial: TrialId) {
        self.members.remove(&trial);
    }

    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Nothing is left in it, and nothing comes.
    pub(super) fn is_done(&self) -> bool {
        !self.open && self.members.is_empty()
    }

    pub(super) fn milestone(&self) -> f64 {
        self.plan.0[self.rung].until
    }

    pub(super) fn places_left(&self) -> usize {
        if self.open { self.plan.0[0].trials.saturating_sub(self.begun) } else { 0 }
    }

    /// How many have not reached the milestone.
    pub(super) fn missing(&self) -> usize {
        self.members.values().filter(|member| !member.arrived).count()
    }

    /// It has not reached the milestone, and may run.
    pub(super) fn is_ready(&self, trial: TrialId) -> bool {
        self.members.get(&trial).is_some_and(|member| !member.arrived)
    }

    /// Whether the trial waits for the others now.
    pub(super) fn arrive(&mut self, trial: TrialId, time: f64, score: Score) -> bool {
        let milestone = self.milestone();
        let Some(member) = self.members.get_mut(&trial) else { return false };
        // What it does while it should wait does not change how it is compared.
        if !member.arrived {
            *member = Member { time, score: Some(score), arrived: time >= milestone };
        }
        member.arrived
    }

    pub(super) fn is_assembled(&self) -> bool {
        let last = self.rung + 1 == self.plan.0.len();
        !self.open && !last && !self.members.is_empty() && self.members.values().all(|member| member.arrived)
    }

    /// The next rung begins with the best, of whom some may have reached it already.
    pub(super) fn halve(&mut self, reduction_factor: f64) -> Halved {
        let of = self.begun;
        let keep = survivors(of, reduction_factor);
        let mut ranked: Vec<(Option<Score>, TrialId)> =
            self.members.iter().map(|(trial, member)| (member.score, *trial)).collect();
        ranked.sort_by(|(left, older), (right, newer)| right.cmp(left).then(older.cmp(newer)));
        let losers: Vec<(TrialId, Score)> =
            ranked.into_iter().skip(keep).filter_map(|(score, trial)| Some((trial, score?))).collect();
        for (trial, _) in &losers {
            self.members.remove(trial);
        }
        self.rung += 1;
        self.begun = keep;
        let milestone = self.milestone();
        for member in self.members.values_mut() {
            member.arrived = member.time >= milestone;
        }
        Halved { losers, keep, of }
    }
}

impl fmt::Display for Bracket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (live, missing) = (self.members.len(), self.missing());
        write!(f, "{} of {live} have reached {}", live - missing, self.milestone())?;
        match self.places_left() {
            0 => Ok(()),
            places => write!(f, ", room for {places} more"),
        }
    }
}
