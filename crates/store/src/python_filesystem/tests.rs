//! The process is stood in for by a shell script where its faults are the point; the real one is tried from Python.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::storage::Storage;

/// A "Python" that answers as the script says.
fn script(root: &Path, body: &str) -> PythonFilesystem {
    let executable = root.join("python");
    fs::write(&executable, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(&executable, fs::Permissions::from_mode(0o755)).unwrap();
    PythonFilesystem {
        executable: executable.to_str().unwrap().to_owned(),
        path: vec![],
        pickle: root.join("filesystem.pickle"),
    }
}

#[test]
fn a_python_that_is_not_there_is_named() {
    let filesystem = PythonFilesystem { executable: "/nonexistent/python".into(), path: vec![], pickle: "/x".into() };
    let error = Storage::open("bucket/run", Some(filesystem)).unwrap_err().to_string();
    let expected = "cannot open `bucket/run` through the Python file system: `/nonexistent/python` cannot be started";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn one_that_ends_or_refuses_at_the_start_says_why() {
    let root = tempfile::tempdir().unwrap();
    let ended = Storage::open("x", Some(script(root.path(), "exit 3"))).unwrap_err().to_string();
    assert!(ended.ends_with("ended before it was ready: exit status: 3"), "{ended}");
    let refused = script(root.path(), r#"echo '{"error": "ModuleNotFoundError: no s3fs"}'"#);
    let refused = Storage::open("x", Some(refused)).unwrap_err().to_string();
    assert!(refused.ends_with("ModuleNotFoundError: no s3fs"), "{refused}");
}

#[test]
fn helper_1_one_that_died_is_started_again_once_per_question() {
    let root = tempfile::tempdir().unwrap();
    let count = root.path().join("count");
    // The first one dies at its first question, the second answers, the third and fourth die.
    let body = format!(
        "echo x >> {0}; echo '{{\"ok\": true}}'; read question; \
         [ $(wc -l < {0}) -eq 2 ] && {{ echo '{{\"ok\": 2}}'; printf hi; }}; exit 1",
        count.display()
    );
    let storage = Storage::open("place", Some(script(root.path(), &body))).unwrap();
    assert_eq!(storage.read("a").unwrap().as_deref(), Some(&b"hi"[..]));
    let error = storage.read("a").unwrap_err().to_string();
    assert!(error.contains("`place/a`") && error.ends_with("ended twice without an answer"), "{error}");
    assert_eq!(fs::read_to_string(&count).unwrap().lines().count(), 3);
}

#[test]
fn a_joined_place_asks_the_same_process_under_a_longer_key() {
    let root = tempfile::tempdir().unwrap();
    let body = r#"echo '{"ok": true}'; while read -r question; do echo "$question" >> "$0.log"; echo '{"ok": [["b", 2], ["a", 1]]}'; done"#;
    let storage = Storage::open("place/", Some(script(root.path(), body))).unwrap();
    let listed = storage.join("run").join("checkpoint").list().unwrap();
    assert_eq!(listed, [Entry { key: "a".into(), size: 1 }, Entry { key: "b".into(), size: 2 }]);
    let asked = fs::read_to_string(root.path().join("python.log")).unwrap();
    assert_eq!(asked, "{\"op\":\"files\",\"key\":\"place/run/checkpoint\"}\n");
    assert_eq!(storage.join("run").location(), "place/run");
}

#[test]
fn a_part_is_asked_for_by_its_bounds_and_comes_as_it_is() {
    let root = tempfile::tempdir().unwrap();
    let body = r#"echo '{"ok": true}'; while read -r question; do echo "$question" >> "$0.log";
        case "$question" in *none*) echo '{"ok": null}';; *size*) echo '{"ok": 7}';; *) echo '{"ok": 4}'; printf '\n\000\377"';; esac; done"#;
    let storage = Storage::open("place", Some(script(root.path(), body))).unwrap();
    assert_eq!(storage.read_range("a", 3..7).unwrap().as_deref(), Some(&b"\n\0\xff\""[..]));
    assert_eq!(storage.read("none").unwrap(), None);
    assert_eq!((storage.size("a").unwrap(), storage.size("none").unwrap()), (Some(7), None));
    let asked = fs::read_to_string(root.path().join("python.log")).unwrap();
    assert!(asked.starts_with("{\"op\":\"read\",\"key\":\"place/a\",\"begin\":3,\"end\":7}\n"), "{asked}");
}
