//! `carril checkpoints RUN`: what there is to go on from.

use carril_store::{
    Damage, JournalRecord, Listed, Manifest, Storage as Place, list_checkpoints, saved_checkpoints, verify,
};
use carril_types::{ErrorCode, Failure, ValidationStatus};
use clap::Args;

use crate::find::{Storage, block_on, typed};
use crate::resolve::Kind;
use crate::table::{local_time, own_metrics, print_table, size};

#[derive(Args)]
pub struct Checkpoints {
    /// The name, id, directory or URI of a run or trial
    run: String,
    /// List only: do not read the files to see that they are whole
    #[arg(long)]
    no_verify: bool,
    #[command(flatten)]
    storage: Storage,
}

impl Checkpoints {
    pub fn run(self) -> Result<(), Failure> {
        let subject = block_on(self.storage.resolve(&self.run))?;
        let location = &subject.location;
        if let Kind::Experiment(experiment) = &subject.kind {
            let message = format!("`{}` is an experiment: its trials have the checkpoints", self.run);
            let trial = experiment.trials.first().map_or("TRIAL", |trial| trial.id.as_str());
            let trial = typed(&format!("{}/{trial}", self.run), &format!("{location}/{trial}"));
            return Err(Failure::new(ErrorCode::InvalidConfig, message)
                .hint(format!("`carril checkpoints {trial}` lists those of one"))
                .hint(format!(
                    "`carril tune best {}` names the best trial and its checkpoint",
                    typed(&self.run, location)
                )));
        }
        let place = Place::open(location, None)?;
        let listed = list_checkpoints(&place)?;
        if listed.is_empty() {
            println!("no checkpoints in {location}");
            return Ok(());
        }
        let mut table =
            vec![["checkpoint", "report", "saved", "files", "size", "state", "metrics"].map(str::to_owned).to_vec()];
        for Listed { name, state } in listed {
            let state = match state {
                Ok(manifest) if self.no_verify => Ok(manifest),
                Ok(_) => verify(&place.join(&name))?,
                damaged => damaged,
            };
            table.push(row(name, &state, self.no_verify));
        }
        print_table(&table);
        Ok(())
    }
}

/// How many checkpoints a run has, and how many it has saved in all: the same numbers for every command.
pub struct Saves {
    kept: u64,
    saved: u64,
}

impl Saves {
    pub fn of(place: &Place, records: &[JournalRecord]) -> Self {
        let listed = list_checkpoints(place).unwrap_or_default();
        let there = listed.iter().filter_map(|one| one.state.as_ref().ok()).map(|manifest| manifest.iteration);
        let saved = saved_checkpoints(records.iter().filter_map(JournalRecord::committed), there);
        let kept = listed.len() as u64;
        Self { kept, saved: saved.max(kept) }
    }

    pub fn kept_of(&self) -> (u64, u64) {
        (self.kept, self.saved)
    }
}

fn state_of(manifest: &Manifest, unread: bool) -> String {
    let read = if unread { "not read" } else { "verified" };
    match manifest.validation.as_ref().map(|validation| validation.status) {
        None => read.to_owned(),
        Some(ValidationStatus::Validated) => format!("{read}, validated"),
        Some(status) => format!("{read}, validation {}", status.name()),
    }
}

fn row(name: String, state: &Result<Manifest, Damage>, unread: bool) -> Vec<String> {
    match state {
        Err(damage) => {
            let nothing = || "-".to_owned();
            vec![name, nothing(), nothing(), nothing(), nothing(), format!("damaged: {damage}")]
        }
        Ok(manifest) => vec![
            name,
            manifest.iteration.to_string(),
            local_time(manifest.created),
            manifest.files.len().to_string(),
            size(manifest.files.iter().map(|file| file.size).sum()),
            state_of(manifest, unread),
            own_metrics(&manifest.reported()),
        ],
    }
}
