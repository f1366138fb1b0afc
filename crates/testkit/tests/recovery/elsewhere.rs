//! The same with storage that is no local path: files go through the agent's spool, and reports through a mirror.

use std::fs;
use std::path::{Path, PathBuf};

use carril_client::hash_of;
use carril_testkit::Fixture;
use carril_types::{FilesystemSpec, RunSpec};

use crate::evidence::{assert_contiguous, assert_nothing_left, starts, undisturbed, weights_in};
use crate::lost_head::replace;
use crate::programs::programs;
use crate::{Fault, allowing, fixture, training};

const STEPS: u64 = 5;
const STEP: u64 = 3;

/// Lets the run be kept below that directory, behind a process that stands in for Python's.
async fn keep_elsewhere(fixture: &Fixture, spec: &mut RunSpec, directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    let pickle = directory.display().to_string().into_bytes();
    let hash = hash_of(&pickle);
    let pickle = fixture.client.put_blob(pickle, hash).await.unwrap();
    let executable = programs().join("carril-test-worker").display().to_string();
    spec.filesystem = Some(FilesystemSpec { executable, path: Vec::new(), pickle });
    spec.storage_path = "/bucket".into();
}

fn newest(run: &Path) -> PathBuf {
    run.join(format!("checkpoint_{:06}", STEPS - 1))
}

#[tokio::test]
async fn a_fault_costs_one_restart_and_no_bit_and_the_storage_stays_connected() {
    let fixture = fixture().await;
    let expected = undisturbed(&fixture, STEPS).await;
    for (kind, rank, place) in [
        ("kill", 0, "save"),
        ("kill", 1, "report"),
        ("kill", 0, "reported"),
        ("error", 1, "collective"),
        ("segv", 0, "code"),
    ] {
        let name = format!("{kind}-{rank}-{place}");
        let directory = fixture.storage.path().join(&name).join("files");
        let fault = Fault::new(&fixture, &name, kind, rank, place, STEP);
        let mut spec = training(&fixture, STEPS, &[&fault]);
        keep_elsewhere(&fixture, &mut spec, &directory).await;
        spec.failures = allowing(1, 1);
        let reply = fixture.submit(&spec).await.unwrap();
        let mut end = fixture.follow(&reply, |_| {}).await;
        fault.witness();
        assert_eq!((end.ended.status.as_str(), end.restarts.len()), ("finished", 1), "{name}: {end:#?}");
        assert_eq!(end.warnings, [] as [String; 0], "{name}");
        end.path = directory.join("bucket").join(&spec.name);
        let begun = starts(&end, 0);
        assert!(begun == [0, STEP] || begun == [0, STEP + 1], "{name}: {begun:?}");
        assert_contiguous(&end.path, &begun, STEPS);
        assert_eq!(weights_in(&newest(&end.path)), expected, "{name}");
        // One of the head's and one of the agent's: the end of a worker is not theirs.
        let helpers = fs::read_to_string(directory.with_extension("helpers")).unwrap();
        assert_eq!(helpers.lines().count(), 2, "{name}: {helpers}");
        assert_nothing_left(&fixture, &end, &reply.run_id).await;
    }
}

#[tokio::test]
async fn a_head_that_is_lost_while_files_are_taken_is_replaced() {
    let fixture = fixture().await;
    let expected = undisturbed(&fixture, STEPS).await;
    let directory = fixture.storage.path().join("elsewhere/files");
    let storing = Fault::new(&fixture, "storing", "pause", 1, "save", STEP);
    let mut spec = training(&fixture, STEPS, &[&storing]);
    keep_elsewhere(&fixture, &mut spec, &directory).await;
    spec.failures = allowing(0, 1);
    let reply = fixture.submit(&spec).await.unwrap();
    storing.wait_until_fired().await;
    let fixture = replace(fixture, 16.0).await;
    keep_elsewhere(&fixture, &mut spec, &directory).await;
    spec.continues = Some(reply.run_id);
    let reply = fixture.submit(&spec).await.unwrap();
    let mut end = fixture.follow(&reply, |_| {}).await;
    assert_eq!(end.ended.status, "finished", "{end:#?}");
    assert_eq!(end.ended.restarts.len(), 1, "{end:#?}");
    end.path = directory.join("bucket").join(&spec.name);
    // The reports up to the checkpoint were mirrored with it.
    assert_contiguous(&end.path, &[0, STEP], STEPS);
    assert_eq!(weights_in(&newest(&end.path)), expected);
    assert_nothing_left(&fixture, &end, &reply.run_id).await;
}
