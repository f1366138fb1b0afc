//! Which head has a run: a number that is taken once, by making a file that nobody else can make.
//!
//! EPOCH-1: of several heads that want a run at the same moment one gets it.
//! EPOCH-2: a head that was followed by another makes no checkpoint any more.
//!
//! A Python file system has no way to make a file exclusively: there a moment stays in which two may get it.

use crate::error::StoreError;
use crate::owner::Owner;
use crate::storage::Storage;

const DIRECTORY: &str = "journal";

/// The epoch that this head now has; `None` when another was quicker.
pub fn take_epoch(run: &Storage, owner: &Owner) -> Result<Option<u64>, StoreError> {
    let number = |name: &String| name.strip_prefix("epoch_")?.parse::<u64>().ok();
    let last = run.join(DIRECTORY).names()?.iter().filter_map(number).max().unwrap_or(0);
    let content = serde_json::to_string(owner).expect("an owner of plain fields is always JSON");
    let made = run.create(&key(last + 1), content.as_bytes())?;
    Ok(made.then_some(last + 1))
}

/// Whether nobody has taken the run since.
pub fn is_current(run: &Storage, epoch: u64) -> Result<bool, StoreError> {
    Ok(run.read(&key(epoch + 1))?.is_none())
}

fn key(epoch: u64) -> String {
    format!("{DIRECTORY}/epoch_{epoch:06}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoch_1_of_many_at_once_one_gets_each_number() {
        let directory = tempfile::tempdir().unwrap();
        let run = Storage::local(directory.path());
        let owners =
            (0..8).map(|start| Owner { host: "host".into(), boot: "boot".into(), pid: 1, start, driver: None });
        let taken: Vec<Option<u64>> = std::thread::scope(|scope| {
            let threads: Vec<_> = owners
                .map(|owner| {
                    scope.spawn({
                        let run = run.clone();
                        move || take_epoch(&run, &owner).unwrap()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut numbers: Vec<u64> = taken.into_iter().flatten().collect();
        numbers.sort_unstable();
        assert!(!numbers.is_empty());
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    }

    #[test]
    fn epoch_2_the_one_before_is_over() {
        let directory = tempfile::tempdir().unwrap();
        let run = Storage::local(directory.path());
        let first = take_epoch(&run, &Owner::this_process()).unwrap().unwrap();
        assert!(is_current(&run, first).unwrap());
        let second = take_epoch(&run, &Owner::this_process()).unwrap().unwrap();
        assert!(!is_current(&run, first).unwrap());
        assert!(is_current(&run, second).unwrap());
    }
}
