"""Data sets as a user has them: made, changed, looked at, split."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from carril import data
from carril.exceptions import CarrilError, ConfigError, StorageError


def ids(dataset: data.DataIterator) -> list[int]:
    return [int(row["id"]) for row in dataset.iter_rows()]


def test_a_range_is_counted_taken_and_batched() -> None:
    ds = data.range(1000)
    assert ds.count() == 1000
    assert ds.columns() == ["id"]
    assert ds.take(3) == [{"id": 0}, {"id": 1}, {"id": 2}]
    batches = list(ds.iter_batches(batch_size=256))
    assert [len(batch["id"]) for batch in batches] == [256, 256, 256, 232]
    assert np.concatenate([batch["id"] for batch in batches]).tolist() == list(range(1000))
    assert len(list(ds.iter_batches(batch_size=256, drop_last=True))) == 3


def test_a_data_set_is_something_even_without_rows() -> None:
    assert data.range(3) and data.range(0)


def test_items_are_rows_of_any_kind() -> None:
    rows = [
        {"a": 1, "b": "x", "c": [1, 2], "d": {"e": 1.5}, "f": None, "g": b"\0\1", "h": True},
        {"a": 2, "b": None, "c": [], "d": {"e": None}, "f": None, "g": b"", "h": False},
    ]
    assert data.from_items(rows).take_all() == rows
    assert data.from_items([1, 2, 3]).take_all() == [{"item": 1}, {"item": 2}, {"item": 3}]
    with pytest.raises(TypeError, match="`a` has values of two kinds"):
        data.from_items([{"a": 1}, {"a": "x"}])


def test_tensors_keep_their_shapes() -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    ds = data.from_numpy(array)
    assert np.array_equal(ds.take_batch(4)["data"], array)
    assert np.array_equal(ds.take(2)[1]["data"], array[1])
    ragged = data.from_items([{"x": np.ones((2, 3))}, {"x": np.zeros((1, 3))}])
    assert [row["x"].shape for row in ragged.iter_rows()] == [(2, 3), (1, 3)]
    tensors = data.range_tensor(3, shape=(2, 2)).take_batch(3)["data"]
    assert tensors.shape == (3, 2, 2) and tensors[2].tolist() == [[2, 2], [2, 2]]


def test_functions_run_in_processes_of_their_own_and_keep_the_order() -> None:
    import os

    here = os.getpid()

    def doubled(batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": batch["id"] * 2, "pid": np.full(len(batch["id"]), os.getpid())}

    ds = data.range(200_000).map_batches(doubled)
    assert ids(ds) == list(range(0, 400_000, 2))
    assert here not in {int(pid) for batch in ds.iter_batches() for pid in batch["pid"]}


def test_every_kind_of_function() -> None:
    ds = data.range(10)
    assert [row["x"] for row in ds.map(lambda row: {"x": row["id"] + 1}).iter_rows()] == list(range(1, 11))
    assert ids(ds.filter(lambda row: row["id"] % 3 == 0)) == [0, 3, 6, 9]
    assert ids(ds.flat_map(lambda row: [row] * (row["id"] % 2))) == [1, 3, 5, 7, 9]
    added = ds.add_column("square", lambda frame: frame["id"] ** 2)
    assert [row["square"] for row in added.iter_rows()] == [n * n for n in range(10)]
    frames = ds.map_batches(lambda frame: frame[frame["id"] > 7], batch_format="pandas")
    assert ids(frames) == [8, 9]
    tables = ds.map_batches(lambda table: table.slice(0, 2), batch_format="pyarrow")
    assert ids(tables) == [0, 1]


@pytest.mark.parametrize(
    ("rows", "proportions", "sizes"),
    [
        (10, [0.7, 0.1], [7, 1, 2]),
        (10, [0.1] * 9, [1] * 10),
        (3, [1 / 3, 1 / 3], [1, 1, 1]),
        (10, [0.01, 0.01], [1, 1, 8]),
        (10, [0.5, 0.49], [5, 4, 1]),
        (4, [0.9, 0.05, 0.04], [1, 1, 1, 1]),
        (1_000_000, [0.7, 0.1], [700_000, 100_000, 200_000]),
        (2, [0.4, 0.4], [0, 1, 1]),
    ],
)
def test_proportions_are_those_of_the_rows(rows: int, proportions: list[float], sizes: list[int]) -> None:
    parts = data.range(rows).split_proportionately(proportions)
    assert [part.count() for part in parts] == sizes
    with pytest.raises(ConfigError, match="whose sum is below 1"):
        data.range(rows).split_proportionately([0.1] * 10)


def test_a_class_is_made_once_in_each_process() -> None:
    class Counting:
        def __init__(self, start: int) -> None:
            self.calls = start

        def __call__(self, batch: dict[str, Any], *, step: int) -> dict[str, Any]:
            self.calls += step
            return {"calls": np.full(len(batch["id"]), self.calls)}

    ds = data.range(8).map_batches(
        Counting, batch_size=2, concurrency=1, fn_constructor_args=(10,), fn_kwargs={"step": 1}
    )
    assert [row["calls"] for row in ds.iter_rows()] == [11, 11, 12, 12, 13, 13, 14, 14]


def test_what_a_function_does_wrong_is_told_with_its_line_and_row() -> None:
    def fails(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 3:
            raise ValueError("three is too many")
        return row

    with pytest.raises(CarrilError) as raised:
        data.range(10).map(fails).take_all()
    text = str(raised.value)
    assert "`fails` in `map` failed in row 3" in text and "three is too many" in text and "test_data.py" in text
    with pytest.raises(CarrilError, match="unequal length: `a` has 1, `b` has 2"):
        data.range(10).map_batches(lambda batch: {"a": [1], "b": [1, 2]}).take_all()
    with pytest.raises(CarrilError, match="a batch is a dictionary of arrays"):
        data.range(10).map_batches(lambda batch: 5).take_all()


def test_a_process_that_dies_is_told() -> None:
    def dies(batch: dict[str, Any]) -> dict[str, Any]:
        import os

        os._exit(3)

    with pytest.raises(CarrilError, match="left with exit code 3, 3 times with the same rows"):
        data.range(10).map_batches(dies).take_all()


def test_columns_are_chosen_dropped_and_renamed() -> None:
    ds = data.from_items([{"a": 1, "b": 2, "c": 3}])
    assert ds.select_columns(["c", "a"]).take_all() == [{"c": 3, "a": 1}]
    assert ds.drop_columns(["b"]).columns() == ["a", "c"]
    assert ds.rename_columns({"a": "x"}).columns() == ["x", "b", "c"]
    with pytest.raises(CarrilError, match="there is no column `z`; there are `a`, `b`, `c`"):
        ds.select_columns(["z"]).take_all()


def test_a_limit_comes_before_what_follows_it() -> None:
    assert ids(data.range(100).limit(5)) == [0, 1, 2, 3, 4]
    assert data.range(100).limit(5).count() == 5
    assert ids(data.range(100).limit(5).filter(lambda row: row["id"] > 2)) == [3, 4]
    mixed = ids(data.range(100).limit(5).map(lambda row: row).limit(7).random_shuffle(seed=1).limit(3))
    assert len(set(mixed)) == 3 and set(mixed) <= set(range(5))
    assert ids(data.range(100).filter(lambda row: row["id"] % 2).limit(3).map(lambda row: row)) == [1, 3, 5]
    assert data.range(100).limit(0).map(lambda row: row).take_all() == []


def test_behind_a_limit_nothing_is_read(tmp_path: Path) -> None:
    whole = pyarrow.table({"id": range(1000)})
    for number in range(3):
        parquet.write_table(whole.slice(number * 100, 100), tmp_path / f"{number}.parquet", compression="none")
    damaged = bytearray((tmp_path / "1.parquet").read_bytes())
    damaged[4:40] = bytes(36)
    (tmp_path / "1.parquet").write_bytes(damaged)
    rows = data.read_parquet(tmp_path)
    with pytest.raises(StorageError):
        rows.take_all()
    for limited in (rows.limit(100), rows.limit(100).map(lambda row: row), rows.limit(60).random_shuffle()):
        assert sorted(ids(limited)) == list(range(limited.count()))


def test_shuffled_rows_are_the_same_rows_in_an_order_of_the_seed() -> None:
    ds = data.range(10_000)
    one, again, other = (ids(ds.random_shuffle(seed=seed)) for seed in (1, 1, 2))
    assert one == again != other
    assert sorted(one) == list(range(10_000))
    moved = [abs(place - number) for place, number in enumerate(one)]
    assert sum(moved) / len(moved) > 10_000 / 4, "a full shuffle moves a row by a third of the whole on average"
    mixed = ds.random_shuffle()
    assert ids(mixed) != ids(mixed), "without a seed each pass has an order of its own"


def test_splits() -> None:
    ds = data.range(10)
    assert [ids(part) for part in ds.split(3)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]
    assert [part.count() for part in ds.split(3, equal=True)] == [3, 3, 3]
    assert [ids(part) for part in ds.split_at_indices([2, 5])] == [[0, 1], [2, 3, 4], [5, 6, 7, 8, 9]]
    train, test = ds.train_test_split(test_size=0.3)
    assert (ids(train), ids(test)) == ([0, 1, 2, 3, 4, 5, 6], [7, 8, 9])
    train, test = ds.train_test_split(test_size=4, shuffle=True, seed=5)
    assert sorted(ids(train) + ids(test)) == list(range(10)) and ids(test) != [6, 7, 8, 9]
    labelled = data.from_items([{"id": n, "label": n % 2} for n in range(20)])
    _, test = labelled.train_test_split(test_size=0.5, stratify="label")
    assert sorted(row["label"] for row in test.iter_rows()) == [0] * 5 + [1] * 5
    with pytest.raises(ConfigError, match=r"`test_size=1\.5` is no part of a whole"):
        ds.train_test_split(test_size=1.5)


def test_parts_of_several_consumers_are_equal_and_complete() -> None:
    parts = data.range(10_000).random_shuffle(seed=3).streaming_split(3, equal=True)
    first = [ids(part) for part in parts]
    assert [len(part) for part in first] == [3333] * 3
    assert len(set().union(*first)) == 9999
    second = [ids(part) for part in parts]
    assert first != second, "epochs differ"


def test_tensors_of_torch() -> None:
    import torch

    ds = data.from_items([{"x": float(n), "y": n} for n in range(10)])
    batches = list(ds.iter_torch_batches(batch_size=4, dtypes={"x": torch.float32}))
    assert [batch["x"].dtype for batch in batches] == [torch.float32] * 3
    assert torch.cat([batch["y"] for batch in batches]).tolist() == list(range(10))
    batches[0]["x"] += 1
    assert ds.take(1)[0]["x"] == 0.0, "what is held is not what was handed over"
    sums = ds.iter_torch_batches(batch_size=5, collate_fn=lambda batch: torch.as_tensor(batch["x"]).sum())
    assert [float(total) for total in sums] == [10.0, 35.0]
    with pytest.raises(ConfigError, match="column `name` cannot be a tensor"):
        list(data.from_items([{"name": "a"}]).iter_torch_batches())


def test_lists_that_are_equally_long_are_tensors_of_torch(tmp_path: Path) -> None:
    import torch

    rows = {"tokens": [[1, 2], [3, 4]], "grid": [[[1.5], [2.5]], [[3.5], [4.5]]], "flags": [[True], [False]]}
    parquet.write_table(pyarrow.table(rows), tmp_path / "a.parquet")
    for ds in (
        data.read_parquet(str(tmp_path)),
        data.range(2).map(lambda row: {k: v[row["id"]] for k, v in rows.items()}),
    ):
        (batch,) = ds.iter_torch_batches(dtypes={"grid": torch.float32})
        assert {name: tensor.tolist() for name, tensor in batch.items()} == rows
        assert [tensor.dtype for tensor in batch.values()] == [torch.int64, torch.float32, torch.bool]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([[1, 2], [3]], "lists or tensors of several shapes"),
        ([[[1], [2, 3]]], "lists or tensors of several shapes"),
        ([[1], None], "of type `ndarray`, and some are missing"),
        ([["a"], ["b"]], "lists of texts"),
        (["a"], "of type `str`"),
    ],
)
def test_rows_that_are_no_tensors_are_told(rows: list[Any], told: str) -> None:
    with pytest.raises(ConfigError, match=f"column `x` cannot be a tensor: its rows are {told}"):
        list(data.from_items([{"x": row} for row in rows]).iter_torch_batches())


def test_numbers_of_numpy_keep_their_types_in_rows() -> None:
    row = {"f": np.float32(0.5), "h": np.float16(0.5), "i": np.int8(3), "b": np.bool_(True), "s": np.str_("a")}
    batch = data.range(3).map(lambda _: row).take_batch(3)
    assert [batch[name].dtype.str for name in "fhib"] == ["<f4", "<f2", "|i1", "|b1"]
    assert batch["s"].tolist() == ["a"] * 3
    assert str(data.from_items([np.float32(1)]).schema()) == "{item: float}"


def test_a_filter_that_leaves_nothing_leaves_the_columns(tmp_path: Path) -> None:
    ds = data.range(3).map(lambda row: {**row, "name": "a"}).filter(lambda row: row["id"] > 5)
    for empty in (ds, ds.select_columns(["id", "name"]).filter(lambda row: True), ds.materialize(), ds.limit(2)):
        assert empty.columns() == ["id", "name"] and empty.count() == 0
        assert list(empty.to_pandas().columns) == ["id", "name"]
    ds.write_parquet(str(tmp_path))
    assert data.read_parquet(str(tmp_path)).columns() == ["id", "name"]


def test_zones_are_written_as_they_are() -> None:
    from datetime import UTC, datetime

    assert str(data.from_items([datetime(2024, 1, 1, tzinfo=UTC)]).schema()) == '{item: timestamp(µs, "UTC")}'


def test_looking_at_a_data_set_makes_its_functions_once(tmp_path: Path) -> None:
    class Costly:
        def __init__(self) -> None:
            (tmp_path / str(len(list(tmp_path.iterdir())))).touch()

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return batch

    ds = data.range(10).map_batches(Costly, concurrency=1)
    assert ds.columns() == ["id"] and str(ds.schema()) == "{id: int64}"
    assert ds.count() == len(ds.take_all()) == 10
    assert len(list(tmp_path.iterdir())) == 1


def test_gaps_are_gaps() -> None:
    ds = data.from_items([{"x": 1, "y": None, "z": 2.5}, {"x": None, "y": "a", "z": None}])
    batch = ds.take_batch(2)
    assert batch["x"][0] == 1.0 and math.isnan(batch["x"][1])
    assert batch["y"].tolist() == [None, "a"]
    assert ds.to_pandas()["x"].isna().tolist() == [False, True]


def test_what_a_person_sees() -> None:
    ds = data.range(5)
    ds.count()
    assert repr(ds) == "Dataset(range(5), num_rows=5, schema={id: int64})"
    made = "MaterializedDataset(range(5) -> limit(3), num_rows=3, schema={id: int64})"
    assert repr(ds.limit(3).materialize()) == made
    assert "<table>" in ds._repr_html_()
    with pytest.raises(TypeError, match="`count\\(\\)` counts its rows"):
        len(ds)


def test_bad_input_is_told_at_once(tmp_path: Any) -> None:
    with pytest.raises(CarrilError, match="nothing"):
        data.read_parquet(str(tmp_path / "missing.parquet"))
    with pytest.raises(CarrilError, match="unknown `batch_format` 'rows'"):
        data.range(3).iter_batches(batch_format="rows")
    with pytest.raises(ValueError, match="the data set is empty"):
        data.from_items([]).take_batch()


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        ("`batch_size=0` is not a number of rows", lambda ds: ds.iter_batches(batch_size=0)),
        ("`batch_size=0` is not a number of rows", lambda ds: ds.map_batches(lambda batch: batch, batch_size=0)),
        (
            "`batch_size='all'` is not a number of rows",
            lambda ds: ds.map_batches(lambda batch: batch, batch_size="all"),
        ),
        ("`limit(-1)` is not a number of rows", lambda ds: ds.limit(-1)),
        ("`limit(2.5)` is not a number of rows", lambda ds: ds.limit(2.5)),
        ("`repartition(0)` is not a number of blocks", lambda ds: ds.repartition(0)),
        ("`target_num_rows_per_block=-1` is no", lambda ds: ds.repartition(target_num_rows_per_block=-1)),
        ("`split(0)` is not a number of parts", lambda ds: ds.split(0)),
        ("`streaming_split('two')` is not a number of parts", lambda ds: ds.streaming_split("two")),
        ("`range(True)` is not a number of rows", lambda ds: data.range(True)),
        ("`seed=-1` is no seed", lambda ds: ds.random_shuffle(seed=-1)),
        ("`seed=1.5` is no seed", lambda ds: ds.iter_batches(local_shuffle_seed=1.5)),
        ("`concurrency=0` is not a number of", lambda ds: ds.map_batches(lambda batch: batch, concurrency=0)),
        ("`seed='a'` is no seed", lambda ds: ds.train_test_split(0.5, shuffle=True, seed="a")),
    ],
)
def test_what_is_no_number_is_told_at_once(told: str, wrong: Callable[[Any], Any]) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        wrong(data.range(3))


def test_numbers_of_numpy_are_numbers() -> None:
    two = np.int64(2)
    ds = data.range(np.int32(6)).random_shuffle(seed=np.uint8(7))
    assert ids(ds) == ids(data.range(6).random_shuffle(seed=7))
    assert [len(batch["id"]) for batch in ds.iter_batches(batch_size=two)] == [2, 2, 2]
    assert len(ds.limit(two).take_all()) == len(ds.split(two)) == ds.repartition(two).num_blocks() == 2
