use super::*;
use crate::take::{Take, take};
use crate::verify::find_latest;

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn header(iteration: u64) -> Header {
    Header {
        iteration,
        attempt: 0,
        created: 1.5,
        metrics: serde_json::json!({"loss": 0.5}),
        own: Vec::new(),
        validation: None,
        data_position: serde_json::Value::Null,
    }
}

/// A run's directory and what its ranks report.
struct Run {
    root: tempfile::TempDir,
    run: Storage,
}

impl Run {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("run");
        fs::create_dir(&path).unwrap();
        Self { run: Storage::local(&path), root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join("run").join(name)
    }

    /// What the caller reports, under a name of its own.
    fn reported(&self, files: &[(&str, &str)]) -> PathBuf {
        let from = self.root.path().join("mine");
        for (file, text) in files {
            write(&from.join(file), text);
        }
        from
    }

    fn shard(&self, iteration: u64, rank: u32, files: &[(&str, &str)], give_away: bool) -> Shard {
        let from = self.reported(files);
        let spool = self.path(STAGING).join(iteration.to_string()).join(format!("rank_{rank}"));
        let asked =
            Take { from: &from, to: &spool, run: self.run.local_path(), give_away, durable: true, may_be_empty: false };
        let taken = take(&asked).unwrap();
        if !give_away {
            fs::remove_dir_all(&from).unwrap();
        }
        assert!(!from.exists());
        let files = prepare(&spool, taken, true).unwrap();
        Shard { rank: Rank(rank), spool, files }
    }
}

#[test]
fn ranks_merge_into_one_checkpoint_with_a_manifest() {
    for give_away in [false, true] {
        let run = Run::new();
        let first = [("model.bin", "of rank 0"), ("shared.txt", "the same"), (METADATA, "{\"of\": 0}")];
        let second = [("optimizer/shard_1.bin", "of rank 1"), ("shared.txt", "the same"), (METADATA, "{\"of\": 1}")];
        let shards = [run.shard(7, 0, &first, give_away), run.shard(7, 1, &second, give_away)];
        let owned = owned(&shards).unwrap();
        let names: Vec<Vec<&str>> = owned.iter().map(|files| files.iter().map(|file| &*file.path).collect()).collect();
        assert_eq!(names, [vec![METADATA, "model.bin", "shared.txt"], vec!["optimizer/shard_1.bin"]]);
        let committed = commit(&run.run, "checkpoint_000000", &header(7), &shards, false).unwrap();
        let path = run.path("checkpoint_000000");
        assert_eq!(committed, Committed { location: path.display().to_string(), bytes: 9 + 8 + 9 });
        assert_eq!(fs::read_to_string(path.join("model.bin")).unwrap(), "of rank 0");
        assert_eq!(fs::read_to_string(path.join("optimizer/shard_1.bin")).unwrap(), "of rank 1");
        assert_eq!(fs::read_to_string(path.join(METADATA)).unwrap(), "{\"of\": 0}");
        let (name, manifest) = find_latest(&run.run).unwrap().kept.pop().unwrap();
        assert_eq!((name.as_str(), manifest.iteration, manifest.ranks), ("checkpoint_000000", 7, vec![0, 1]));
        let files: Vec<(&str, u32)> = manifest.files.iter().map(|file| (&*file.path, file.rank)).collect();
        assert_eq!(files, [("model.bin", 0), ("optimizer/shard_1.bin", 1), ("shared.txt", 0)]);
        assert!(!run.path(".staging/7").exists());
    }
}

#[test]
fn two_ranks_that_disagree_on_a_file_are_named() {
    let run = Run::new();
    let shards =
        [run.shard(3, 2, &[("model.bin", "of rank 2")], false), run.shard(3, 5, &[("model.bin", "of rank 5")], false)];
    let error = owned(&shards).unwrap_err().to_string();
    assert!(error.contains("ranks 2 and 5") && error.contains("model.bin"), "{error}");
    assert!(commit(&run.run, "checkpoint_000000", &header(3), &shards, false).is_err());
    assert!(find_latest(&run.run).unwrap().kept.is_empty(), "CHECKPOINT-1: nothing half-made is seen");
    let shards = [run.shard(4, 0, &[("model", "a file")], false), run.shard(4, 1, &[("model/part", "in one")], false)];
    let error = owned(&shards).unwrap_err().to_string();
    assert!(error.contains("ranks 0 and 1") && error.contains("model/part"), "{error}");
}

#[test]
fn a_name_is_given_once() {
    let run = Run::new();
    let save = |iteration| {
        let shards = [run.shard(iteration, 0, &[("model.bin", "x")], false)];
        commit(&run.run, "best", &header(iteration), &shards, false)
    };
    save(1).unwrap();
    assert!(matches!(save(2), Err(StoreError::CheckpointExists { name }) if name == "best"));
    remove(&run.run, "best").unwrap();
    assert!(!run.path("best").exists());
    save(3).unwrap();
    remove(&run.run, "never").unwrap();
}

#[test]
fn directories_that_are_no_checkpoint_are_refused() {
    let run = Run::new();
    let spool = run.path(".staging/1/rank_0");
    let refused = |from: &Path| {
        let asked =
            Take { from, to: &spool, run: run.run.local_path(), give_away: true, durable: false, may_be_empty: false };
        let error = take(&asked).unwrap_err().to_string();
        assert!(!spool.exists());
        error
    };
    assert!(refused(&run.root.path().join("none")).ends_with("does not exist"));
    let file = run.root.path().join("file");
    fs::write(&file, "x").unwrap();
    assert!(refused(&file).ends_with("is not a directory"));
    let empty = run.root.path().join("empty");
    fs::create_dir_all(empty.join("inside")).unwrap();
    assert!(refused(&empty).ends_with("is empty"));
    assert!(refused(run.root.path()).ends_with("holds the run's own directory"));
    nix::unistd::mkfifo(&empty.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(refused(&empty).ends_with("it is neither a file nor a directory"));
    fs::remove_file(empty.join("pipe")).unwrap();
    std::os::unix::fs::symlink("/nonexistent", empty.join("link")).unwrap();
    assert!(refused(&empty).ends_with("it is a link to nothing"));
}

#[test]
fn take_1_what_is_taken_is_a_copy_also_behind_links_and_for_a_checkpoint_of_the_run() {
    let run = Run::new();
    let outside = run.root.path().join("outside");
    fs::write(&outside, "linked").unwrap();
    let from = run.reported(&[("own", "own")]);
    std::os::unix::fs::symlink(&outside, from.join("link")).unwrap();
    let shards = [run.shard(1, 0, &[], true)];
    fs::write(&outside, "overwritten").unwrap();
    commit(&run.run, "checkpoint_000000", &header(1), &shards, false).unwrap();
    assert_eq!(fs::read_to_string(run.path("checkpoint_000000/link")).unwrap(), "linked");

    let spool = run.path(".staging/2/rank_0");
    let again = run.path("checkpoint_000000");
    let asked = Take {
        from: &again,
        to: &spool,
        run: run.run.local_path(),
        give_away: true,
        durable: true,
        may_be_empty: false,
    };
    let names: Vec<String> = take(&asked).unwrap().into_iter().map(|file| file.path).collect();
    assert_eq!(names, ["link", "own"]);
    assert!(again.join(MANIFEST).exists(), "a checkpoint of the run is never given away");
    assert!(!spool.join(MANIFEST).exists());
}

#[test]
fn files_that_are_in_place_get_their_manifest_there() {
    let run = Run::new();
    let place = run.run.join("checkpoint_000004");
    let missing = prepare_in_place(&place, false).unwrap_err().to_string();
    assert!(missing.ends_with("does not exist"), "{missing}");
    write(&run.path("checkpoint_000004/a/model.bin"), "there already");
    let files = prepare_in_place(&place, false).unwrap();
    assert_eq!(files[0].crc32c, Some(crc32c::crc32c(b"there already")));
    let shards: Vec<Shard> =
        [0, 1].map(|rank| Shard { rank: Rank(rank), spool: PathBuf::new(), files: files.clone() }).into();
    commit(&run.run, "checkpoint_000004", &header(5), &shards, true).unwrap();
    assert_eq!(find_latest(&run.run).unwrap().kept.pop().unwrap().0, "checkpoint_000004");
}

#[test]
fn many_small_files_are_taken_and_flushed_together() {
    let run = Run::new();
    let files: Vec<(String, String)> = (0..200).map(|at| (format!("d{}/f{at}", at % 7), at.to_string())).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let shards = [run.shard(1, 0, &files, false)];
    assert_eq!(shards[0].files.len(), 200);
    commit(&run.run, "checkpoint_000000", &header(1), &shards, false).unwrap();
    assert_eq!(find_latest(&run.run).unwrap().kept.pop().unwrap().1.files.len(), 200);
}
