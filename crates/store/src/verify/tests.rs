use std::fs;
use std::path::PathBuf;

use carril_types::Rank;

use super::*;
use crate::METADATA;
use crate::checkpoint::{Header, Shard, commit, prepare};
use crate::storage::StoredFile;

struct Run {
    _root: tempfile::TempDir,
    path: PathBuf,
    run: Storage,
}

impl Run {
    /// With checkpoints of iterations 1 to `count`.
    fn with(count: u64) -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("run");
        fs::create_dir(&path).unwrap();
        let run = Self { run: Storage::local(&path), path, _root: root };
        (1..=count).for_each(|iteration| run.save(iteration));
        run
    }

    fn save(&self, iteration: u64) {
        let spool = self.path.join(format!(".staging/{iteration}/rank_0"));
        fs::create_dir_all(spool.join("deep")).unwrap();
        fs::write(spool.join("model.bin"), format!("the model of {iteration}")).unwrap();
        fs::write(spool.join("deep/more.bin"), "more").unwrap();
        let taken =
            ["model.bin", "deep/more.bin"].map(|path| StoredFile { path: path.into(), size: 0, crc32c: None }).into();
        let files = prepare(&spool, taken, true).unwrap();
        let header = Header {
            iteration,
            attempt: 0,
            created: 0.0,
            metrics: serde_json::Value::Null,
            own: Vec::new(),
            validation: None,
            data_position: serde_json::Value::Null,
        };
        let shards = [Shard { rank: Rank(0), spool, files }];
        commit(&self.run, &name(iteration), &header, &shards, false).unwrap();
    }

    fn file(&self, iteration: u64, file: &str) -> PathBuf {
        self.path.join(name(iteration)).join(file)
    }

    fn found(&self) -> (Option<String>, Vec<(String, String)>) {
        let found = find_latest(&self.run).unwrap();
        (found.kept.last().map(|(name, _)| name.clone()), found.set_aside)
    }
}

fn name(iteration: u64) -> String {
    format!("checkpoint_{iteration:06}")
}

#[test]
fn verify_1_the_newest_that_verifies_is_the_latest_and_damaged_ones_are_set_aside() {
    let run = Run::with(6);
    fs::write(run.file(6, "model.bin"), "the model of 7").unwrap();
    fs::write(run.file(5, "model.bin"), "short").unwrap();
    fs::remove_file(run.file(4, "deep/more.bin")).unwrap();
    fs::write(run.file(3, MANIFEST), "{}").unwrap();
    let (latest, aside) = run.found();
    assert_eq!(latest, Some(name(2)));
    let why: Vec<(&str, bool)> = aside
        .iter()
        .zip(["content of `model.bin`", "`model.bin` has 5 bytes", "`deep/more.bin` is missing", "`.manifest.json`"])
        .map(|((name, why), words)| (&name[16..], why.contains(words)))
        .collect();
    assert_eq!(why, [("6", true), ("5", true), ("4", true), ("3", true)], "{aside:?}");
    for iteration in 3..=6 {
        assert!(run.path.join(format!("{}.damaged", name(iteration))).exists());
    }
    assert_eq!(run.found(), (Some(name(2)), vec![]), "what was set aside stays there");
    run.save(6);
    fs::write(run.file(6, "model.bin"), "again").unwrap();
    assert_eq!(run.found().1.len(), 1);
    assert!(run.path.join("checkpoint_000006.2.damaged").exists());
}

#[test]
fn checkpoint_1_what_never_got_its_manifest_is_no_checkpoint_and_is_swept() {
    let run = Run::with(1);
    run.save(2);
    fs::remove_file(run.file(2, MANIFEST)).unwrap();
    fs::create_dir_all(run.path.join(".staging/3/rank_0")).unwrap();
    fs::create_dir(run.path.join("checkpoint_of_mine")).unwrap();
    fs::write(run.path.join("result.json"), "").unwrap();
    let listed: Vec<String> = list_checkpoints(&run.run).unwrap().into_iter().map(|listed| listed.name).collect();
    assert_eq!(listed, [name(1)]);
    assert_eq!(run.found().0, Some(name(1)));
    assert_eq!(run.run.names().unwrap(), ["checkpoint_000001", "checkpoint_of_mine", "result.json"]);
}

#[test]
fn a_checkpoint_of_a_newer_version_is_an_error_and_stays() {
    let run = Run::with(1);
    let mut manifest = Manifest::new(9, 0, 0.0);
    manifest.version = 3;
    fs::create_dir(run.path.join("best")).unwrap();
    fs::write(run.path.join("best").join(MANIFEST), manifest.to_bytes()).unwrap();
    assert!(matches!(find_latest(&run.run), Err(StoreError::CheckpointNewer { version: 3, .. })));
    assert!(run.path.join("best").exists());
}

#[test]
fn a_checkpoint_is_brought_to_a_directory_only_if_it_is_what_it_was() {
    let run = Run::with(1);
    let checkpoint = run.run.join(&name(1));
    checkpoint.write(METADATA, b"{}").unwrap();
    let to = run.path.join("copy");
    assert_eq!(download(&checkpoint, &to, Trust::Compare).unwrap().unwrap().iteration, 1);
    let names: Vec<String> = Storage::local(&to).list().unwrap().into_iter().map(|entry| entry.key).collect();
    assert_eq!(names, [METADATA, "deep/more.bin", "model.bin"]);
    assert!(verify(&checkpoint).unwrap().is_ok());
    fs::write(run.file(1, "model.bin"), "the model of 8").unwrap();
    assert!(matches!(verify(&checkpoint).unwrap(), Err(Damage::Content { file, .. }) if file == "model.bin"));
    let error = download(&checkpoint, &run.path.join("other"), Trust::Compare).unwrap_err().to_string();
    assert!(error.contains("is damaged") && error.contains("model.bin"), "{error}");
    fs::remove_file(run.file(1, MANIFEST)).unwrap();
    assert_eq!(download(&checkpoint, &run.path.join("third"), Trust::Compare).unwrap(), None);
    assert!(
        download(&run.run.join("none"), &run.path.join("fourth"), Trust::Compare)
            .unwrap_err()
            .to_string()
            .contains("none")
    );
}
