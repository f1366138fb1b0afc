"""The order of rows: how well a shuffle mixes, that seeds repeat it and epochs differ; and rows of several data sets together."""

import itertools
from pathlib import Path

import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carril import data
from carril.data import DataContext, ExecutionOptions, ExecutionResources
from carril.exceptions import ConfigError

ROWS = 200_000


def order_of(dataset: data.Dataset) -> numpy.ndarray:
    return numpy.concatenate([batch["id"] for batch in dataset.iter_batches(batch_size=None)])


def displacement(order: numpy.ndarray) -> float:
    """How far a row is from where it was, in the mean, as a part of all rows. A perfect shuffle has a third."""
    return float(numpy.abs(order - numpy.arange(len(order))).mean() / len(order))


def neighbours(order: numpy.ndarray) -> int:
    """How many rows still follow the one that they followed. A perfect shuffle has about one."""
    return int((numpy.diff(order) == 1).sum())


@pytest.fixture
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of a tenth of the rows."""
    limits = ExecutionResources(object_store_memory=ROWS * 8 // 10 * 8)
    monkeypatch.setattr(
        DataContext, "_current", DataContext(execution_options=ExecutionOptions(resource_limits=limits))
    )


def test_what_fits_into_a_window_is_mixed_perfectly() -> None:
    order = order_of(data.range(ROWS, override_num_blocks=50).random_shuffle(seed=1))
    assert sorted(order) == list(range(ROWS))
    assert 0.32 < displacement(order) < 0.345 and neighbours(order) < 10


@pytest.mark.usefixtures("small_budget")
def test_what_does_not_fit_is_mixed_window_by_window_out_of_units_from_anywhere() -> None:
    order = order_of(data.range(ROWS, override_num_blocks=100).random_shuffle(seed=1))
    assert sorted(order) == list(range(ROWS))
    # The first window is of units from the whole, and no unit is read as one.
    assert numpy.ptp(order[: ROWS // 10]) > 0.6 * ROWS
    assert displacement(order) > 0.25 and neighbours(order) < 200


def test_rows_stay_whole_where_a_shuffle_reads_their_columns_one_by_one(tmp_path: Path) -> None:
    """Of all kinds: numbers of every width, gaps, texts, lists, structs, a column that one file spells otherwise, and those that stand in the path."""
    for number, kind in enumerate(("a", "b")):
        ids = range(number * 1_000, number * 1_000 + 1_000)
        columns = {
            "id": pa.array(ids, pa.int64()),
            "small": pa.array([row % 100 for row in ids], pa.int8()),
            "half": pa.array([row / 2 for row in ids], pa.float32() if kind == "a" else pa.float64()),
            "gaps": pa.array([None if row % 3 else row for row in ids], pa.int32()),
            "text": pa.array([None if row % 7 == 0 else f"row {row}" for row in ids]),
            "list": pa.array([[row] * (row % 4) for row in ids]),
            "three": pa.array([[row, -row, 0] for row in ids], pa.list_(pa.float32(), 3)),
            "inner": pa.array([{"x": row, "y": str(row)} for row in ids]),
            "wide": pa.array([row.to_bytes(20, "little") for row in ids], pa.binary(20)),
        }
        place = tmp_path / f"kind={kind}"
        place.mkdir()
        pq.write_table(pa.table(columns), place / "rows.parquet", row_group_size=170)
    source = data.read_parquet(tmp_path, include_paths=True)
    rows = source.random_shuffle(seed=2).take_all()
    assert [row["id"] for row in rows] != list(range(2_000))
    assert repr(sorted(rows, key=lambda row: row["id"])) == repr(source.take_all())
    assert len(source.schema().names) == 11
    picked = source.select_columns(["path", "id"]).random_shuffle(seed=2).take_all()
    assert all(f"kind={'ab'[row['id'] // 1_000]}" in row["path"] and len(row) == 2 for row in picked)


def test_a_seed_repeats_and_passes_without_one_differ() -> None:
    def source() -> data.Dataset:
        return data.range(1_000, override_num_blocks=10)

    assert (order_of(source().random_shuffle(seed=5)) == order_of(source().random_shuffle(seed=5))).all()
    assert (order_of(source().random_shuffle(seed=5)) != order_of(source().random_shuffle(seed=6))).any()
    shuffled = source().random_shuffle()
    assert (order_of(shuffled) != order_of(shuffled)).any()


def test_a_union_is_read_one_behind_the_other_and_when_it_is_wanted(tmp_path: Path) -> None:
    made: list[int] = []
    first = data.range(100).map_batches(lambda batch: {"id": batch["id"] * 2})
    second = data.range(50).filter(lambda row: row["id"] % 2 == 1)
    both = first.union(second)
    assert order_of(both).tolist() == [*range(0, 200, 2), *range(1, 50, 2)]
    assert both.map(lambda row: {"id": row["id"] + 1}).count() == 125
    assert sorted(order_of(both.random_shuffle(seed=1))) == sorted([*range(0, 200, 2), *range(1, 50, 2)])
    assert not made
    with pytest.raises(ConfigError, match="the column `id` is of different types"):
        first.union(data.from_items([{"id": "a"}]))


def test_columns_that_are_selected_are_all_that_comes_also_where_the_reader_adds_some(tmp_path: Path) -> None:
    (tmp_path / "year=2024").mkdir()
    data.from_items([{"a": 1, "b": "x"}]).write_parquet(tmp_path / "year=2024")
    dataset = data.read_parquet(tmp_path, include_paths=True)
    assert dataset.columns() == ["a", "b", "year", "path"]
    assert dataset.select_columns("a").take_all() == [{"a": 1}]
    assert dataset.select_columns(["year", "a"]).take_all() == [{"year": 2024, "a": 1}]


def test_a_pass_that_is_left_is_not_repeated_by_the_next() -> None:
    (shard,) = data.range(40).random_shuffle(seed=1).streaming_split(1)

    def first_ten() -> list[int]:
        batches = shard.iter_batches(batch_size=5)
        return [int(row) for batch in itertools.islice(batches, 2) for row in batch["id"]]

    passes = [first_ten() for _ in range(4)]
    assert len({tuple(rows) for rows in passes}) == 4, "each has an order of its own"
    assert sorted(int(row["id"]) for row in shard.iter_rows()) == list(range(40))


def test_passes_side_by_side_are_epochs_of_their_own() -> None:
    (shard,) = data.range(10).random_shuffle(seed=1).streaming_split(1)
    pairs = [(int(a["id"]), int(b["id"])) for a, b in zip(shard.iter_rows(), shard.iter_rows(), strict=True)]
    assert sorted(a for a, _ in pairs) == sorted(b for _, b in pairs) == list(range(10))
    assert [a for a, _ in pairs] != [b for _, b in pairs]


@pytest.mark.parametrize("rows", [0, 1, 7, 11, 1000])
@pytest.mark.parametrize("kind", ["as they are", "shuffled", "filtered"])
def test_no_row_is_lost_in_a_streaming_split_unless_parts_are_to_be_equal(rows: int, kind: str) -> None:
    ds = data.range(rows, override_num_blocks=3)
    if kind == "filtered":
        ds = data.range(3 * rows, override_num_blocks=3).filter(lambda row: row["id"] < rows)
    if kind == "shuffled":
        ds = ds.random_shuffle(seed=3)
    parts = [[int(row["id"]) for row in part.iter_rows()] for part in ds.streaming_split(3)]
    assert sorted(row for part in parts for row in part) == list(range(rows))
    equal = [[int(row["id"]) for row in part.iter_rows()] for part in ds.streaming_split(3, equal=True)]
    assert [len(part) for part in equal] == [rows // 3] * 3
    assert len({row for part in equal for row in part}) == rows // 3 * 3


def test_rows_that_a_function_leaves_of_one_stretch_are_dealt_to_every_rank() -> None:
    for blocks in (1, 5, 40):
        ds = data.range(400, override_num_blocks=blocks).filter(lambda row: 100 <= row["id"] < 200)
        parts = [[int(row["id"]) for row in part.iter_rows()] for part in ds.streaming_split(2)]
        assert sorted(parts[0] + parts[1]) == list(range(100, 200))
        assert min(map(len, parts)) >= 40, (blocks, list(map(len, parts)))
