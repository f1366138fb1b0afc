//! `carril verify PATH`: whether a checkpoint, or every one of a run, is what was saved.

use std::process::ExitCode;

use carril_store::{MANIFEST, Storage as Place, list_checkpoints, verify};
use carril_types::{ErrorCode, Failure};
use clap::Args;

use crate::find::absolute;
use crate::table::size;

#[derive(Args)]
pub struct Verify {
    /// A checkpoint or a run: a directory or a URI
    path: String,
}

impl Verify {
    /// 0 when everything is whole, 1 when something is damaged.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let place = Place::open(&absolute(&self.path), None)?;
        let places: Vec<Place> = if place.read(MANIFEST)?.is_some() {
            vec![place]
        } else {
            list_checkpoints(&place)?.into_iter().map(|listed| place.join(&listed.name)).collect()
        };
        if places.is_empty() {
            return Err(Failure::new(ErrorCode::NotFound, format!("there is no checkpoint in `{}`", self.path))
                .hint("a checkpoint is a directory with a `.manifest.json`; a run holds several"));
        }
        let mut whole = true;
        for place in places {
            match verify(&place)? {
                Ok(manifest) => {
                    let bytes = size(manifest.files.iter().map(|file| file.size).sum());
                    let files = if manifest.files.len() == 1 { "file" } else { "files" };
                    println!("verified  {}  {} {files}, {bytes}", place.location(), manifest.files.len());
                }
                Err(damage) => {
                    whole = false;
                    println!("damaged   {}  {damage}", place.location());
                }
            }
        }
        Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}
