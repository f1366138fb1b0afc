//! The head's part in saving a checkpoint: it collects what the agents have prepared, has it uploaded where the storage is
//! elsewhere, has it committed, and tells whoever waits.
//!
//! SAVING-1: a report with a checkpoint, and every one after it, reaches the watchers when the checkpoint is settled: what a
//!   callback is given exists.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use carril_core::{Event, Kept};
use carril_proto::v1;
use carril_store::{Conflict, Header, MANIFEST, Manifest, Shard, StoredFile, json_of};
use carril_types::{ErrorCode, Failure, Metrics, NodeId, Rank, Validation, ValidationStatus, ValidationTask, Value};

use crate::outside::{Checkpoints, Commit, Committed, Outside};
use crate::run::{Run, rank_of};

/// A checkpoint on its way.
#[derive(Default)]
struct Save {
    name: String,
    metrics: Metrics,
    /// Automatic fields that the function has reported itself.
    own: Vec<String>,
    validation: Option<ValidationTask>,
    /// How far each rank had read its data sets: JSON.
    positions: Vec<String>,
    shards: Vec<Shard>,
    in_place: Option<String>,
    /// Agents that were asked to upload, and have not told of it yet.
    uploading: BTreeSet<NodeId>,
    /// Something of it is in the storage.
    uploaded: bool,
    displaced: Vec<u64>,
    /// When storing began, by the head's clock.
    began: Option<Duration>,
}

/// A checkpoint that is there.
#[derive(Clone)]
pub(crate) struct Stored {
    pub name: String,
    pub checkpoint: v1::Checkpoint,
    pub validation: Option<Validation>,
}

impl Stored {
    pub fn metrics(&self) -> Metrics {
        self.checkpoint.metrics.clone().unwrap_or_default().into()
    }

    pub fn is_unvalidated(&self) -> bool {
        self.validation.as_ref().is_some_and(|validation| validation.status == ValidationStatus::Pending)
    }
}

/// How far a checkpoint has come: its report's number, the seconds, by how much the number that is shown is ahead, and what was counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reached {
    pub reports: u64,
    pub seconds: f64,
    pub ahead: i64,
    pub timesteps: Option<i64>,
    pub episodes: Option<i64>,
}

/// What watchers hear of later.
struct Held {
    event: v1::RunEvent,
    /// The report whose checkpoint is to be settled first.
    waits: Option<u64>,
}

pub(crate) struct Saving {
    saves: BTreeMap<u64, Save>,
    /// What is kept, by report.
    kept: BTreeMap<u64, Stored>,
    held: VecDeque<Held>,
    /// Whose files are being moved.
    committing: Option<u64>,
    /// Names under which something that was given up is still being deleted.
    discarding: BTreeSet<String>,
    next: u32,
    /// There is at least one, as far as this head knows: none was found damaged or deleted by retention since.
    pub is_any_expected: bool,
    /// How many were saved, by this head and those before.
    pub saved: u64,
    first_size_told: bool,
    conflict_told: bool,
    /// What the callers have waited, and what storing has taken, in seconds.
    pub stall: f64,
    pub upload: f64,
}

impl Saving {
    pub fn new(location: &str, checkpoints: Checkpoints, saved: u64) -> Self {
        let Checkpoints { kept, next, .. } = checkpoints;
        let kept = as_kept(location, kept);
        let (saves, held, discarding) = (BTreeMap::new(), VecDeque::new(), BTreeSet::new());
        Self {
            is_any_expected: !kept.is_empty(),
            saves,
            kept,
            held,
            committing: None,
            discarding,
            next,
            saved,
            first_size_told: false,
            conflict_told: false,
            stall: 0.0,
            upload: 0.0,
        }
    }

    /// For the next attempt: what the last one has not brought to its end is forgotten.
    pub fn begin_anew(&mut self, location: &str, checkpoints: Checkpoints) {
        self.saves.clear();
        let before = std::mem::replace(&mut self.kept, as_kept(location, checkpoints.kept));
        // A check that has ended meanwhile may be missing in what was read.
        for (iteration, stored) in before {
            if let Some(read) = self.kept.get_mut(&iteration).filter(|read| read.name == stored.name) {
                *read = stored;
            }
        }
        self.next = self.next.max(checkpoints.next);
        self.is_any_expected = !self.kept.is_empty();
    }

    /// Forgets those that `is_there` denies; their names.
    pub fn forget_missing(&mut self, is_there: impl Fn(&str) -> bool) -> Vec<String> {
        let gone: Vec<u64> =
            self.kept.iter().filter(|(_, stored)| !is_there(&stored.name)).map(|(iteration, _)| *iteration).collect();
        gone.iter().filter_map(|iteration| Some(self.kept.remove(iteration)?.name)).collect()
    }

    pub fn is_discarding(&self) -> bool {
        !self.discarding.is_empty()
    }

    pub fn count(&self) -> usize {
        self.kept.len()
    }

    pub fn newest(&self) -> Option<&v1::Checkpoint> {
        self.kept.values().next_back().map(|stored| &stored.checkpoint)
    }

    pub fn newest_name(&self) -> Option<&str> {
        self.kept.values().next_back().map(|stored| stored.name.as_str())
    }

    pub fn get_mut(&mut self, iteration: u64) -> Option<&mut Stored> {
        self.kept.get_mut(&iteration)
    }

    pub fn get(&self, iteration: u64) -> Option<&Stored> {
        self.kept.get(&iteration)
    }

    pub fn remove(&mut self, iteration: u64) -> Option<Stored> {
        self.kept.remove(&iteration)
    }

    /// Those whose checks are still due.
    pub fn unvalidated(&self) -> Vec<u64> {
        let due = self.kept.iter().filter(|(_, stored)| stored.is_unvalidated());
        due.map(|(iteration, _)| *iteration).collect()
    }

    /// What the newest one has behind it.
    pub fn reached(&self) -> Reached {
        let Some(newest) = self.newest() else { return Reached::default() };
        let metrics: Metrics = newest.metrics.clone().unwrap_or_default().into();
        let number = |name| metrics.get(name).and_then(Value::as_f64);
        let shown = number("_training_iteration").map_or(newest.iteration as i64, |shown| shown as i64);
        Reached {
            reports: newest.iteration,
            seconds: number("time_total_s").unwrap_or(0.0),
            ahead: shown - newest.iteration as i64,
            timesteps: number("timesteps_total").map(|total| total as i64),
            episodes: number("episodes_total").map(|total| total as i64),
        }
    }

    /// What the retention starts from.
    pub fn scores(&self, score: impl Fn(&Metrics, u64) -> Option<f64>) -> Vec<Kept> {
        let scored = |(iteration, stored): (&u64, &Stored)| {
            let metrics = stored.metrics();
            Kept { iteration: *iteration, score: score(&metrics, *iteration) }
        };
        self.kept.iter().map(scored).collect()
    }

    /// The name of the checkpoint that comes with this report: the lowest rank that gave one wins.
    pub fn begin(&mut self, iteration: u64, given: Option<&str>) -> String {
        let save = self.saves.entry(iteration).or_default();
        save.name = match (&save.in_place, given) {
            (Some(name), _) => name.clone(),
            (None, Some(name)) => name.to_owned(),
            (None, None) => {
                self.next += 1;
                format!("checkpoint_{:06}", self.next - 1)
            }
        };
        save.name.clone()
    }

    pub fn set_header(
        &mut self,
        iteration: u64,
        metrics: Metrics,
        own: Vec<String>,
        validation: Option<ValidationTask>,
        positions: Vec<String>,
    ) {
        let save = self.saves.entry(iteration).or_default();
        (save.metrics, save.own, save.validation, save.positions) = (metrics, own, validation, positions);
    }
}

impl Run {
    /// After the run's directory was taken away.
    pub(crate) fn forget_missing_checkpoints(&mut self) -> Vec<String> {
        let Some(run) = self.storage.as_ref().and_then(|storage| storage.local_path().map(ToOwned::to_owned)) else {
            return Vec::new();
        };
        self.saving.forget_missing(|name| run.join(name).join(MANIFEST).exists())
    }

    pub(crate) fn on_prepared(&mut self, prepared: v1::CheckpointPrepared, outside: &mut dyn Outside) {
        let rank = rank_of(prepared.worker.as_ref());
        let result = match (prepared.shard, prepared.failure) {
            (_, Some(failure)) => Err(failure.into()),
            (shard, None) => {
                let save = self.saving.saves.entry(prepared.iteration).or_default();
                // Whose files they are is known by who sent them.
                save.shards.push(Shard { rank, ..from_wire(shard.unwrap_or_default()) });
                save.shards.sort_by_key(|shard| shard.rank);
                if !prepared.in_place.is_empty() {
                    save.name.clone_from(&prepared.in_place);
                    save.in_place = Some(prepared.in_place);
                }
                Ok(())
            }
        };
        self.decide(Event::CheckpointPrepared { rank, iteration: prepared.iteration, result }, outside);
    }

    pub(crate) fn store(&mut self, iteration: u64, displaced: Vec<u64>, outside: &mut dyn Outside) {
        let Some(storage) = &self.storage else { return };
        let (elsewhere, is_lenient) = (storage.local_path().is_none(), self.is_lenient());
        let Some(save) = self.saving.saves.get_mut(&iteration) else { return };
        save.began = Some(outside.clock());
        save.displaced = displaced;
        if is_lenient {
            let conflicts = carril_store::keep_first(&mut save.shards);
            self.warn_of_conflicts(&conflicts, outside);
        }
        let Some(save) = self.saving.saves.get_mut(&iteration) else { return };
        // Either of the two finds out whether the ranks' files fit together, before a file is moved.
        if elsewhere && save.in_place.is_none() {
            // `on_discarded` goes on where the name is not free yet.
            if !self.saving.discarding.contains(&save.name) {
                self.upload(iteration, outside);
            }
        } else {
            self.commit(iteration, outside);
        }
    }

    /// Each agent brings its own ranks' files; one that several ranks have is brought by the lowest.
    fn upload(&mut self, iteration: u64, outside: &mut dyn Outside) {
        let Some(save) = self.saving.saves.get(&iteration) else { return };
        let owned = match carril_store::owned(&save.shards) {
            Ok(owned) => owned,
            Err(conflict) => return self.reject(iteration, conflict.into(), outside),
        };
        let mut orders: BTreeMap<NodeId, Vec<v1::Shard>> = BTreeMap::new();
        for (shard, files) in save.shards.iter().zip(owned) {
            let files = files.iter().map(to_wire).collect();
            let spool = shard.spool.display().to_string();
            if let Some(node) = self.node_of(shard.rank) {
                orders.entry(node.clone()).or_default().push(v1::Shard { rank: shard.rank.0, spool, files });
            }
        }
        let name = save.name.clone();
        let uploading = orders.keys().cloned().collect();
        for (node, shards) in orders {
            let order = v1::UploadCheckpoint {
                run_id: self.id.as_str().to_owned(),
                attempt: self.machine.attempt().0,
                iteration,
                name: name.clone(),
                shards,
                storage: self.location.clone(),
                filesystem: self.filesystem(),
                variables: self.storage_variables().into_iter().collect(),
            };
            outside.to_agent(&node, order.into());
        }
        if let Some(save) = self.saving.saves.get_mut(&iteration) {
            (save.uploading, save.uploaded) = (uploading, true);
        }
    }

    /// What a lost node was to bring will not come.
    pub(crate) fn reject_uploads_of(&mut self, node: &NodeId, failure: &Failure, outside: &mut dyn Outside) {
        let waiting = self.saving.saves.iter().filter(|(_, save)| save.uploading.contains(node));
        let iterations: Vec<u64> = waiting.map(|(iteration, _)| *iteration).collect();
        for iteration in iterations {
            self.reject(iteration, failure.clone(), outside);
        }
    }

    pub(crate) fn on_uploaded(&mut self, from: &NodeId, uploaded: v1::CheckpointUploaded, outside: &mut dyn Outside) {
        let iteration = uploaded.iteration;
        // One that was given up in the meantime is not there any more.
        let Some(save) = self.saving.saves.get_mut(&iteration) else { return };
        if let Some(failure) = uploaded.failure {
            return self.reject(iteration, failure.into(), outside);
        }
        save.uploading.remove(from);
        if save.uploading.is_empty() {
            self.commit(iteration, outside);
        }
    }

    pub(crate) fn commit(&mut self, iteration: u64, outside: &mut dyn Outside) {
        // One that was given up while it waited is not there any more, and the mirror is not its to take.
        if !self.saving.saves.contains_key(&iteration) || self.storage.is_none() || self.holds_commit(iteration) {
            return;
        }
        self.flush(outside);
        let mirror = self.take_mirror();
        let is_lenient = self.is_lenient();
        let (Some(save), Some(storage)) = (self.saving.saves.get_mut(&iteration), &self.storage) else { return };
        let displaced =
            save.displaced.iter().filter_map(|gone| Some(self.saving.kept.get(gone)?.name.clone())).collect();
        let header = Header {
            iteration,
            attempt: self.machine.attempt().0,
            created: outside.now(),
            metrics: json_of(&Value::Map(save.metrics.clone())),
            own: save.own.clone(),
            validation: save.validation.clone().map(due),
            data_position: data_position(&save.positions),
        };
        let commit = Commit {
            iteration,
            storage: storage.clone(),
            name: save.name.clone(),
            header,
            shards: std::mem::take(&mut save.shards),
            in_place: save.in_place.is_some(),
            may_be_empty: is_lenient,
            epoch: self.epoch,
            displaced,
            mirror,
        };
        self.saving.committing = Some(iteration);
        outside.commit(self.id.clone(), commit);
    }

    pub(crate) fn on_committed(
        &mut self,
        iteration: u64,
        result: Result<Committed, Failure>,
        outside: &mut dyn Outside,
    ) {
        self.saving.committing = None;
        let committed = match result {
            Ok(committed) => committed,
            Err(failure) => return self.reject(iteration, failure, outside),
        };
        let Some(save) = self.saving.saves.remove(&iteration) else { return };
        let took = save.began.map_or(Duration::ZERO, |began| outside.clock().saturating_sub(began));
        self.saving.upload += took.as_secs_f64();
        for gone in &save.displaced {
            self.saving.kept.remove(gone);
        }
        let index = self.saving.newest().map_or(0, |newest| newest.index + 1);
        let validation = save.validation.map(due);
        let checkpoint = v1::Checkpoint {
            index,
            path: committed.location.clone(),
            metrics: Some(save.metrics.into()),
            iteration,
            validation: status_of(&validation),
            own: save.own,
        };
        self.saving.kept.insert(iteration, Stored { name: save.name, checkpoint: checkpoint.clone(), validation });
        self.saving.saved += 1;
        self.saving.is_any_expected = true;
        self.drop_checkpoint(Some(iteration), outside);
        self.warn_of_space(&committed, outside);
        if let Some(trouble) = committed.trouble {
            self.publish(v1::Warning { text: format!("an older checkpoint stays: {}", trouble.message) }, outside);
        }
        self.release_held(iteration, Some(checkpoint), outside);
        self.decide(Event::CheckpointCommitted { iteration, path: committed.location }, outside);
    }

    /// Says it once: a function that does it will do it with every checkpoint.
    fn warn_of_conflicts(&mut self, conflicts: &[Conflict], outside: &mut dyn Outside) {
        let Some(Conflict { first, second, file }) = conflicts.first() else { return };
        if std::mem::replace(&mut self.saving.conflict_told, true) {
            return;
        }
        let text = format!(
            "ranks {first} and {second} both reported `{file}` in one checkpoint, with different content: that of rank \
             {first} is kept, here and in later checkpoints; put the rank into the name of a file that each rank has"
        );
        self.publish(v1::Warning { text }, outside);
    }

    /// Says it once, as soon as it can be known: the next checkpoint has to fit beside this one.
    fn warn_of_space(&mut self, committed: &Committed, outside: &mut dyn Outside) {
        if std::mem::replace(&mut self.saving.first_size_told, true) {
            return;
        }
        if let Some(free) = committed.free.filter(|free| *free < committed.bytes) {
            let text = format!(
                "the disk cannot hold two checkpoints: one has {} bytes, {free} are free at `{}`",
                committed.bytes, self.location
            );
            self.publish(v1::Warning { text }, outside);
        }
    }

    fn reject(&mut self, iteration: u64, failure: Failure, outside: &mut dyn Outside) {
        self.decide(Event::CheckpointRejected { iteration, failure }, outside);
    }

    /// Nobody waits for an upload any more; but files under a commit are not taken away.
    pub(crate) fn cut_storing(&mut self, iteration: u64, outside: &mut dyn Outside) {
        if self.saving.committing != Some(iteration) {
            self.reject(iteration, Failure::new(ErrorCode::Aborted, "the run was stopped"), outside);
        }
    }

    /// What was taken for it goes, and nobody waits for it any more.
    pub(crate) fn give_up(&mut self, iteration: u64, outside: &mut dyn Outside) {
        let save = self.saving.saves.remove(&iteration);
        let elsewhere = self.storage.as_ref().filter(|storage| storage.local_path().is_none());
        if let (Some(save), Some(storage)) = (save.filter(|save| save.uploaded && save.in_place.is_none()), elsewhere) {
            self.saving.discarding.insert(save.name.clone());
            outside.discard(self.id.clone(), save.name.clone(), storage.join(&save.name));
        }
        self.drop_checkpoint(Some(iteration), outside);
        self.release_held(iteration, None, outside);
    }

    pub(crate) fn on_discarded(&mut self, name: &str, result: Result<(), Failure>, outside: &mut dyn Outside) {
        if let Err(failure) = result {
            let text = format!("what was stored of `{name}` stays: {}", failure.message);
            self.publish(v1::Warning { text }, outside);
        }
        self.saving.discarding.remove(name);
        let waiting =
            self.saving.saves.iter().filter(|(_, save)| save.name == name && save.began.is_some() && !save.uploaded);
        let iterations: Vec<u64> = waiting.map(|(iteration, _)| *iteration).collect();
        for iteration in iterations {
            self.upload(iteration, outside);
        }
        self.finish(outside);
    }

    pub(crate) fn drop_checkpoint(&self, iteration: Option<u64>, outside: &mut dyn Outside) {
        for share in &self.shares {
            let order = v1::DropCheckpoint { run_id: self.id.as_str().to_owned(), iteration };
            outside.to_agent(&share.node, order.into());
        }
    }

    /// Tells the watchers now, or when the checkpoints that came before are settled.
    pub(crate) fn publish_in_order(
        &mut self,
        event: impl Into<v1::RunEvent>,
        waits: Option<u64>,
        outside: &mut dyn Outside,
    ) {
        if waits.is_some() || !self.saving.held.is_empty() {
            self.saving.held.push_back(Held { event: event.into(), waits });
        } else {
            self.publish(event, outside);
        }
    }

    fn release_held(&mut self, iteration: u64, checkpoint: Option<v1::Checkpoint>, outside: &mut dyn Outside) {
        if let Some(held) = self.saving.held.iter_mut().find(|held| held.waits == Some(iteration)) {
            held.waits = None;
            if let Some(v1::run_event::Kind::Reported(report)) = &mut held.event.kind {
                report.checkpoint = checkpoint;
            }
        }
        while self.saving.held.front().is_some_and(|held| held.waits.is_none()) {
            if let Some(held) = self.saving.held.pop_front() {
                self.publish(held.event, outside);
            }
        }
    }

    /// In the order of their worth, the best last.
    pub(crate) fn kept_checkpoints(&self) -> Vec<v1::Checkpoint> {
        let kept = |iteration| self.saving.get(iteration).map(|stored| stored.checkpoint.clone());
        self.machine.kept_checkpoints().filter_map(kept).collect()
    }
}

/// A check that was asked for and has not come to an end.
fn due(task: ValidationTask) -> Validation {
    Validation { status: ValidationStatus::Pending, task }
}

pub(crate) fn status_of(validation: &Option<Validation>) -> String {
    validation.as_ref().map_or(String::new(), |validation| validation.status.name().to_owned())
}

fn as_kept(location: &str, checkpoints: Vec<(String, Manifest)>) -> BTreeMap<u64, Stored> {
    let kept = checkpoints.into_iter().zip(0..).map(|((name, manifest), index)| {
        let checkpoint = v1::Checkpoint {
            index,
            path: carril_store::joined(location, &name),
            metrics: Some(manifest.reported().into()),
            iteration: manifest.iteration,
            validation: status_of(&manifest.validation),
            own: manifest.own,
        };
        (manifest.iteration, Stored { name, checkpoint, validation: manifest.validation })
    });
    kept.collect()
}

fn from_wire(shard: v1::Shard) -> Shard {
    let file = |file: v1::StoredFile| StoredFile { path: file.path, size: file.size, crc32c: file.crc32c };
    Shard { rank: Rank(shard.rank), spool: shard.spool.into(), files: shard.files.into_iter().map(file).collect() }
}

fn to_wire(file: &StoredFile) -> v1::StoredFile {
    v1::StoredFile { path: file.path.clone(), size: file.size, crc32c: file.crc32c }
}

/// Nothing where no rank reads data of ours.
fn data_position(ranks: &[String]) -> serde_json::Value {
    match ranks.iter().all(String::is_empty) {
        true => serde_json::Value::Null,
        false => serde_json::json!({ "ranks": ranks }),
    }
}
