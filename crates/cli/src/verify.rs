//! `carril verify PATH`: whether a checkpoint, or every one of a run, a trial or a search, is what was saved.

use std::process::ExitCode;

use carril_store::{Experiment, MANIFEST, Manifest, Storage as Place, list_checkpoints, verify};
use carril_types::{ErrorCode, Failure, count};
use clap::Args;
use serde_json::json;

use crate::find::{Storage, absolute, block_on};
use crate::resolve::Kind;
use crate::table::{print_all, size};

#[derive(Args)]
pub struct Verify {
    /// A checkpoint, run, trial or experiment: a directory, a URI, or the name or id of one of the latter three
    path: String,
    /// Print one JSON object per checkpoint
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    storage: Storage,
}

/// What was found so far.
#[derive(Default)]
struct Found {
    verified: u64,
    damaged: u64,
    bytes: u64,
}

impl Verify {
    /// 0 when everything is whole, 1 when something is damaged.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let place = Place::open(&absolute(&self.path), None)?;
        let mut found = Found::default();
        if place.read(MANIFEST)?.is_some() {
            self.verify(&place, None, &mut found)?;
            return Ok(found.code());
        }
        // Checkpoints may be there without the files of a run beside them.
        if self.verify_below(&place, None, &mut found)? > 0 {
            return Ok(found.code());
        }
        // A path without a checkpoint is looked at as what else it may be.
        let none = || {
            let hint = "a checkpoint is a directory with a `.manifest.json`; a run or trial holds several, an experiment those of its trials";
            Failure::new(ErrorCode::NotFound, format!("there is no checkpoint in `{}`", self.path)).hint(hint)
        };
        let subject = match block_on(self.storage.resolve(&self.path)) {
            Err(failure) if failure.code == ErrorCode::NotFound && self.path.contains('/') => return Err(none()),
            resolved => resolved?,
        };
        match &subject.kind {
            Kind::Experiment(experiment) => self.verify_search(experiment, &mut found)?,
            _ => {
                if self.verify_below(&Place::open(&subject.location, None)?, None, &mut found)? == 0 {
                    return Err(none());
                }
            }
        }
        Ok(found.code())
    }

    fn verify_search(&self, experiment: &Experiment, found: &mut Found) -> Result<(), Failure> {
        let mut without = 0;
        for trial in &experiment.trials {
            if self.verify_below(&experiment.place_of(trial), Some(&trial.id), found)? == 0 {
                without += 1;
            }
        }
        let trials = count(experiment.trials.len() as u64, "trial");
        if found.verified + found.damaged == 0 {
            let message = format!("none of the {trials} of `{}` has a checkpoint", experiment.summary.name);
            let hint = "`tune.report(metrics, checkpoint=…)` or `save_checkpoint` of a class makes one";
            return Err(Failure::new(ErrorCode::NotFound, message).hint(hint));
        }
        if !self.json {
            let none = if without > 0 { format!("; {} without one", count(without, "trial")) } else { String::new() };
            print_all(&format!(
                "{}: {} of {trials} verified, {}, {} damaged{none}\n",
                experiment.summary.name,
                count(found.verified, "checkpoint"),
                size(found.bytes),
                found.damaged
            ));
        }
        Ok(())
    }

    /// Every checkpoint right below a place; how many there are.
    fn verify_below(&self, place: &Place, trial: Option<&str>, found: &mut Found) -> Result<usize, Failure> {
        let listed = list_checkpoints(place)?;
        for one in &listed {
            self.verify(&place.join(&one.name), trial, found)?;
        }
        Ok(listed.len())
    }

    fn verify(&self, place: &Place, trial: Option<&str>, found: &mut Found) -> Result<(), Failure> {
        let bytes = |manifest: &Manifest| manifest.files.iter().map(|file| file.size).sum::<u64>();
        let state = verify(place)?;
        match &state {
            Ok(manifest) => (found.verified, found.bytes) = (found.verified + 1, found.bytes + bytes(manifest)),
            Err(_) => found.damaged += 1,
        }
        let location = place.location();
        let line = match (&state, self.json) {
            (Ok(manifest), false) => {
                let (files, bytes) = (count(manifest.files.len() as u64, "file"), size(bytes(manifest)));
                format!("verified  {location}  {files}, {bytes}")
            }
            (Err(damage), false) => format!("damaged   {location}  {damage}"),
            (state, true) => json!({
                "checkpoint": location, "trial": trial, "verified": state.is_ok(),
                "damage": state.as_ref().err().map(ToString::to_string),
                "files": state.as_ref().ok().map(|manifest| manifest.files.len()),
                "bytes": state.as_ref().ok().map(bytes),
            })
            .to_string(),
        };
        print_all(&format!("{line}\n"));
        Ok(())
    }
}

impl Found {
    fn code(&self) -> ExitCode {
        if self.damaged == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
    }
}
