//! Which node runs which ranks.
//!
//! PLACE-1: a group is placed whole or not at all.
//! PLACE-2: groups are placed in the order in which they asked; one that waits lets no later one pass.
//! PLACE-3: what can never fit is refused at once, with the line that would make it fit.

use std::collections::{BTreeMap, VecDeque};

use carril_types::{ErrorCode, Failure, NodeId, Resources, RunId};

use crate::devices::Devices;

#[derive(Clone, Debug)]
pub struct NodeResources {
    pub total: Resources,
    pub free: Resources,
    pub devices: Devices,
}

/// A node's part of a group: devices by local rank, `devices.len()` workers.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    pub node: NodeId,
    pub devices: Vec<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlacementRequest {
    pub run: RunId,
    pub workers: u32,
    pub per_worker: Resources,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    Placed(Vec<Share>),
    /// The reason says what is asked and what is free.
    Waits(String),
    Never(Failure),
}

#[derive(Clone, Debug, Default)]
pub struct Placement {
    nodes: BTreeMap<NodeId, NodeResources>,
    waiting: VecDeque<PlacementRequest>,
    held: BTreeMap<RunId, (Resources, Vec<Share>)>,
}

impl Placement {
    pub fn add_node(&mut self, id: NodeId, total: Resources, devices: Vec<String>) {
        let devices = Devices::new(devices);
        self.nodes.insert(id, NodeResources { free: total.clone(), total, devices });
    }

    /// What runs hold of it is gone with it.
    pub fn remove_node(&mut self, id: &NodeId) {
        self.nodes.remove(id);
    }

    pub fn nodes(&self) -> impl Iterator<Item = (&NodeId, &NodeResources)> {
        self.nodes.iter()
    }

    /// Places a group, or queues it, or refuses it for ever.
    pub fn ask(&mut self, request: PlacementRequest) -> Decision {
        if let Some(failure) = self.never(&request) {
            return Decision::Never(failure);
        }
        self.ask_patiently(request)
    }

    /// Places a group, or queues it: what does not fit now may fit when a node has come back.
    pub fn ask_patiently(&mut self, request: PlacementRequest) -> Decision {
        if self.waiting.is_empty()
            && let Some(shares) = self.try_place(&request)
        {
            return Decision::Placed(shares);
        }
        let reason = self.why_waiting(&request);
        self.waiting.push_back(request);
        Decision::Waits(reason)
    }

    /// Places a group that a worker of `parent` asks for: what that one holds is the group's first, and it goes before all that wait.
    /// With the runs that have room by what is left.
    pub fn ask_within(&mut self, parent: &RunId, request: PlacementRequest) -> (Decision, Vec<(RunId, Vec<Share>)>) {
        if let Some(failure) = self.never(&request) {
            return (Decision::Never(failure), Vec::new());
        }
        self.free_what_is_held(parent);
        let decision = match self.try_place(&request) {
            Some(shares) => Decision::Placed(shares),
            None => {
                let reason = self.why_waiting(&request);
                self.waiting.push_front(request);
                Decision::Waits(reason)
            }
        };
        (decision, self.try_waiting())
    }

    /// Gives back what a run holds or asks for, and returns the runs that can start now.
    pub fn release(&mut self, run: &RunId) -> Vec<(RunId, Vec<Share>)> {
        self.waiting.retain(|request| request.run != *run);
        self.free_what_is_held(run);
        self.try_waiting()
    }

    fn free_what_is_held(&mut self, run: &RunId) {
        if let Some((per_worker, shares)) = self.held.remove(run) {
            for share in shares {
                let Some(node) = self.nodes.get_mut(&share.node) else { continue };
                node.free.add(&per_worker.times(share.devices.len() as u32));
                for names in &share.devices {
                    node.devices.give_back(&per_worker, names);
                }
            }
        }
    }

    /// The runs that can start now: after a release, or with a node that has come.
    pub fn try_waiting(&mut self) -> Vec<(RunId, Vec<Share>)> {
        let mut placed = Vec::new();
        while let Some(request) = self.waiting.front().cloned() {
            let Some(shares) = self.try_place(&request) else { break };
            self.waiting.pop_front();
            placed.push((request.run, shares));
        }
        placed
    }

    fn try_place(&mut self, request: &PlacementRequest) -> Option<Vec<Share>> {
        // Worked out on copies: a group that does not fit leaves nothing taken.
        let mut nodes = self.nodes.clone();
        let shares = spread(&mut nodes, request);
        if count(&shares) < request.workers {
            return None;
        }
        self.nodes = nodes;
        self.held.insert(request.run.clone(), (request.per_worker.clone(), shares.clone()));
        Some(shares)
    }

    /// Why a group can never fit.
    pub fn never(&self, request: &PlacementRequest) -> Option<Failure> {
        // On machines that nobody uses, device by device.
        let mut empty = self.nodes.clone();
        for node in empty.values_mut() {
            node.free = node.total.clone();
            node.devices = node.devices.all_free();
        }
        let capacity = count(&spread(&mut empty, request));
        if capacity >= request.workers {
            return None;
        }
        let asked = request.per_worker.times(request.workers);
        let total = self.total();
        let message = format!(
            "{} with {} {} for {asked}: this machine has {}",
            if request.workers == 1 { "1 worker".to_owned() } else { format!("{} workers", request.workers) },
            if request.workers == 1 { request.per_worker.to_string() } else { format!("{} each", request.per_worker) },
            if request.workers == 1 { "asks" } else { "ask" },
            shown(&total, &asked),
        );
        let mut failure = Failure::new(ErrorCode::PlacementImpossible, message);
        for hint in hints(&total, &asked, capacity) {
            failure = failure.hint(hint);
        }
        Some(failure)
    }

    fn why_waiting(&self, request: &PlacementRequest) -> String {
        let mut free = Resources::default();
        for node in self.nodes.values() {
            free.add(&node.free);
        }
        let asked = request.per_worker.times(request.workers);
        let runs = self.held.len() + self.waiting.len();
        let others = carril_types::count(runs as u64, "other run");
        format!("asks for {asked}, free is {}: waits for {others}", shown(&free, &asked))
    }

    fn total(&self) -> Resources {
        let mut total = Resources::default();
        for node in self.nodes.values() {
            total.add(&node.total);
        }
        total
    }

    pub fn check_invariants(&self) {
        for (id, node) in &self.nodes {
            assert!(node.total.contains(&node.free), "PLACE-1: node {id} has more free than it has");
            let mut held = node.free.clone();
            for (per_worker, shares) in self.held.values() {
                for share in shares.iter().filter(|share| share.node == *id) {
                    held.add(&per_worker.times(share.devices.len() as u32));
                }
            }
            assert_eq!(held, node.total, "PLACE-1: node {id} has lost or gained resources");
        }
    }
}

/// Takes room for as many of the group's workers as there is, node by node.
fn spread(nodes: &mut BTreeMap<NodeId, NodeResources>, request: &PlacementRequest) -> Vec<Share> {
    let mut left = request.workers;
    let mut shares = Vec::new();
    for (id, node) in nodes {
        let mut devices = Vec::new();
        while left > 0 && node.free.contains(&request.per_worker) {
            let Some(names) = node.devices.take(&request.per_worker) else { break };
            node.free.subtract(&request.per_worker);
            devices.push(names);
            left -= 1;
        }
        if !devices.is_empty() {
            shares.push(Share { node: id.clone(), devices });
        }
    }
    shares
}

fn count(shares: &[Share]) -> u32 {
    shares.iter().map(|share| share.devices.len() as u32).sum()
}

/// Of `have`, only the names that were asked for: the rest is no answer to the question.
fn shown(have: &Resources, asked: &Resources) -> String {
    let parts: Vec<String> = asked
        .iter()
        .map(|(name, _)| {
            Resources::from_amounts([(name, have.amount(name))])
                .ok()
                .filter(|amount| *amount != Resources::default())
                .map_or_else(|| format!("0 {name}"), |amount| amount.to_string())
        })
        .collect();
    if parts.is_empty() { "enough".to_owned() } else { parts.join(", ") }
}

fn hints(total: &Resources, asked: &Resources, capacity: u32) -> Vec<String> {
    let short: Vec<(&str, f64)> = asked.iter().filter(|(name, amount)| total.amount(name) < *amount).collect();
    let mut arguments = Vec::new();
    let mut custom = Vec::new();
    for (name, amount) in &short {
        match *name {
            "CPU" => arguments.push(format!("num_cpus={}", amount.ceil())),
            "GPU" => arguments.push(format!("num_gpus={}", amount.ceil())),
            "memory" => {}
            other => custom.push(format!("\"{other}\": {amount}")),
        }
    }
    if !custom.is_empty() {
        arguments.push(format!("resources={{{}}}", custom.join(", ")));
    }
    let mut hints = Vec::new();
    if !arguments.is_empty() && !short.iter().any(|(name, _)| *name == "GPU") {
        hints.push(format!("carril.init({})", arguments.join(", ")));
    }
    if short.iter().any(|(name, _)| *name == "GPU") && total.amount("GPU") == 0.0 {
        hints.push("no NVIDIA device is visible here: ScalingConfig(use_gpu=False)".to_owned());
    } else if capacity > 0 {
        hints.push(format!("ScalingConfig(num_workers={capacity})"));
    }
    hints
}
