use super::*;
use crate::order::ALL;

fn saved(text: &str) -> Vec<Option<Progress>> {
    serde_json::from_str(text).unwrap()
}

fn pipeline() -> Pipeline {
    let column: arrow_array::ArrayRef = Arc::new(arrow_array::Int64Array::from_iter_values(0..40));
    let block = RecordBatch::try_from_iter([("id", column)]).unwrap();
    let source = crate::read::memory::Blocks::new(block.schema(), vec![block]).unwrap();
    Pipeline { source: Arc::new(source), transforms: Vec::new() }
}

fn options(world: usize) -> ShardOptions {
    ShardOptions {
        name: "train".to_owned(),
        shuffle: Shuffle::Rows,
        seed: 1,
        world,
        rank: 0,
        uneven: Uneven::Drop,
        deals_rest: false,
        meeting: None,
        multiple: 1,
        threads: 1,
        budget: 1 << 20,
        warn: |_| (),
        watch: None,
    }
}

fn at(pieces: u64, rows: u64, own: u64) -> Position {
    Position { pieces, done: 0, rows, own }
}

fn of_rank(epoch: u64, before: &str, position: &str) -> String {
    let rules = r#"{"window": 100, "chunk": null, "local_shuffle": null, "together": null}"#;
    let deal = r#"{"deals_rest": false, "stripes": false}"#;
    format!(
        r#"{{"format": 3, "seed": 7, "epoch": {epoch}, "rules": {rules}, "deal": {deal}, "before": {before}, "position": {position}}}"#
    )
}

#[test]
fn ranks_resume_from_the_epoch_of_the_slowest() {
    let segment = r#"[{"deal": {"deals_rest": false, "stripes": false}, "is_round": false, "ranks": [[1, 0, 0, 9]]}]"#;
    let ranks = [of_rank(3, "[]", "[1, 0, 2, 8]"), of_rank(2, segment, "[0, 0, 5, 5]")];
    let state = State::resumed(&saved(&format!("[{}]", ranks.join(","))), &pipeline(), &options(2)).unwrap();
    assert_eq!((state.seed, state.epoch, state.position, state.rules.window), (7, 2, at(0, 0, 0), 100));
    // Whoever is in the next epoch has read all of this one.
    let segment = |ranks: Vec<Position>| Segment { ranks, ..Segment::default() };
    let all = Position { pieces: ALL, done: 0, rows: 0, own: ALL };
    assert_eq!(state.before, [segment(vec![at(1, 0, 9)]), segment(vec![all, at(0, 5, 5)])]);
    // What a rank saves that has not asked since is the same for all of them.
    let resumed = |ranks: Vec<Option<Progress>>| State::resumed(&ranks, &pipeline(), &options(2)).unwrap();
    let ranks = saved(&format!("[{}]", ranks.join(",")));
    assert_eq!(resumed(vec![carried(&ranks), carried(&ranks)]), resumed(ranks));
    // And whoever has saved nothing has read nothing, of all epochs.
    let ranks = saved(&format!("[{}, null]", of_rank(1, "[]", "[0, 0, 5, 5]")));
    let state = State::resumed(&ranks, &pipeline(), &options(2)).unwrap();
    assert_eq!((state.epoch, state.before), (0, vec![segment(vec![all, at(0, 0, 0)])]));
}

#[test]
fn at_the_beginning_of_an_epoch_nothing_was_read_before() {
    let ranks = saved(&format!("[{}]", of_rank(2, "[]", "[0, 0, 0, 0]")));
    let state = State::resumed(&ranks, &pipeline(), &options(1)).unwrap();
    assert_eq!((state.epoch, state.before), (2, Vec::new()));
    assert_eq!(State::resumed(&saved("[null, null]"), &pipeline(), &options(1)).unwrap().epoch, 0);
}

#[test]
fn a_position_without_windows_is_resumed_by_as_many_ranks_alone() {
    let old = r#"[{"seed": 7, "epoch": 2, "before": [], "position": [0, 0, 5]}]"#;
    let state = State::resumed(&saved(old), &pipeline(), &options(1)).unwrap();
    assert_eq!((state.rules.window, state.before[0].ranks[0].rows), ((1 << 20) / 8, 5));
    let error = State::resumed(&saved(old), &pipeline(), &options(2)).unwrap_err();
    assert!(error.to_string().contains("`train` cannot be resumed with 2 workers"), "{error}");
    // Where nothing was read of the epoch, or nothing is shuffled, windows do not matter.
    let begun = r#"[{"seed": 7, "epoch": 2, "before": [], "position": [0, 0, 0]}]"#;
    assert_eq!(State::resumed(&saved(begun), &pipeline(), &options(2)).unwrap().epoch, 2);
    let plain = ShardOptions { shuffle: Shuffle::None, ..options(2) };
    assert_eq!(State::resumed(&saved(old), &pipeline(), &plain).unwrap().epoch, 2);
}

#[test]
fn a_format_that_is_not_known_is_refused() {
    let text = r#"{"ranks": ["{\"train\": {\"format\": 99}}"]}"#;
    let error = positions(&serde_json::from_str(text).unwrap(), "train").unwrap_err();
    assert!(error.to_string().contains("it has format 99, which only a newer Carril reads"), "{error}");
}

#[test]
fn a_pass_that_is_left_ends_its_epoch_and_is_resumed_after_a_restart() {
    let shard = Shard::new(pipeline(), options(1), &[]).unwrap();
    let cut = Cut { batch_size: Some(5), ..Cut::default() };
    let mut firsts = Vec::new();
    for number in 0..3 {
        assert_eq!(shard.epoch(), number);
        let mut epoch = shard.begin(cut).unwrap();
        firsts.push(epoch.next_batch().unwrap().unwrap());
        assert_eq!(shard.epoch(), number);
    }
    assert!(firsts[0] != firsts[1] && firsts[1] != firsts[2] && firsts[0] != firsts[2]);
    let saved = shard.progress();
    assert_eq!((shard.epoch(), saved.epoch), (3, 2));
    let again = Shard::new(pipeline(), options(1), &[Some(saved)]).unwrap();
    let mut rest = again.begin(cut).unwrap();
    let mut rows = firsts[2].num_rows();
    while let Some(batch) = rest.next_batch().unwrap() {
        rows += batch.num_rows();
    }
    assert_eq!((rows, again.epoch()), (40, 3));
}

#[test]
fn progress_is_written_as_it_is_read() {
    let text = of_rank(2, "[]", "[0, 0, 5, 5]").replace(": ", ":").replace(", ", ",");
    let progress: Progress = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&progress).unwrap(), text);
}
