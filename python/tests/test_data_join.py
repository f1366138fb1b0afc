"""Blocks that were made apart and come together: in batches, windows, unions, and where they are held."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from carril import data
from carril.exceptions import CarrilError


def made(function: Callable[[int], dict[str, Any]]) -> data.Dataset:
    """Six rows, each a block of its own."""
    return data.range(6, override_num_blocks=6).map(lambda row: function(row["id"]))


def together(ds: data.Dataset) -> dict[str, list[Any]]:
    """The rows after each way of putting blocks together, which are all the same."""
    ways = {
        "a batch": ds,
        "two batches": ds.map_batches(lambda batch: batch, batch_size=4),
        "held": ds.materialize(),
        "cut again": ds.repartition(2),
        "a union": ds.limit(3).union(data.range(0).map(lambda row: row), ds.materialize().split_at_indices([3])[1]),
    }
    results = {name: next(iter(way.iter_batches(batch_size=6))) for name, way in ways.items()}
    first = {name: [plain(value) for value in column] for name, column in results["a batch"].items()}
    for way, batch in results.items():
        assert {name: [plain(value) for value in column] for name, column in batch.items()} == first, way
    shuffled = next(iter(ds.materialize().random_shuffle(seed=1).iter_batches(batch_size=6)))
    assert list(shuffled) == list(first)
    assert sorted(map(str, zip(*map(list, first.values()), strict=True))) == sorted(
        str(row) for row in zip(*([plain(value) for value in column] for column in shuffled.values()), strict=True)
    )
    frame = ds.to_pandas()
    assert list(frame.columns) == list(first) and len(frame) == 6
    return first


def plain(value: Any) -> Any:
    if isinstance(value, float) and np.isnan(value):
        return None
    return value.tolist() if hasattr(value, "tolist") else value


def test_columns_are_found_by_name() -> None:
    batch = together(made(lambda n: {"x": n, "y": n * 10} if n < 2 else {"y": n * 10, "x": n}))
    assert batch == {"x": [0, 1, 2, 3, 4, 5], "y": [0, 10, 20, 30, 40, 50]}


def test_a_column_that_is_missing_in_some_rows_is_null_there() -> None:
    assert together(made(lambda n: {"a": n} if n < 2 else {"a": n, "b": str(n)})) == {
        "a": [0, 1, 2, 3, 4, 5],
        "b": [None, None, "2", "3", "4", "5"],
    }
    assert together(made(lambda n: {"a": n, "b": n} if n < 2 else {"a": n}))["b"] == [0, 1, None, None, None, None]


@pytest.mark.parametrize(
    "values",
    [
        [None, None, 1, 2, None, 3],
        [None, "a", "b", None, None, ""],
        [None, [1, 2], [], [3], None, [4, 5, 6]],
        [None, {"a": 1}, {"a": None}, None, {"a": 2}, {"a": 3}],
        [1, 2, 3.5, 4, None, 6],
        [[1], [2.5], [], [3], [4], [5]],
        [True, None, False, None, None, True],
        [[[1]], [[2, 3], []], [], None, [[4]], [[5]]],
    ],
    ids=str,
)
def test_types_become_those_that_hold_all_values(values: list[Any]) -> None:
    assert together(made(lambda n: {"v": values[n]})) == {"v": values}


def test_a_structure_that_gains_a_key_has_nulls_before() -> None:
    batch = together(made(lambda n: {"s": {"a": n} if n < 3 else {"b": str(n), "a": n}}))
    assert batch["s"][0] == {"a": 0, "b": None} and batch["s"][5] == {"a": 5, "b": "5"}


@pytest.mark.parametrize("shape", [lambda n: (n + 1,), lambda n: (2, n + 1), lambda n: (1 + n // 3, 2, 3)], ids="123")
def test_tensors_of_several_shapes_come_together(shape: Callable[[int], tuple[int, ...]]) -> None:
    arrays = [np.full(shape(n), n, np.float32) for n in range(6)]
    assert together(made(lambda n: {"t": arrays[n]})) == {"t": [array.tolist() for array in arrays]}
    with_gaps = together(made(lambda n: {"t": arrays[n] if n % 2 else None}))
    assert with_gaps["t"] == [array.tolist() if n % 2 else None for n, array in enumerate(arrays)]


def test_a_padded_batch_may_be_longer_than_the_next() -> None:
    def padded(batch: dict[str, Any]) -> dict[str, Any]:
        longest = int(batch["id"].max()) + 1
        return {"tokens": np.stack([np.arange(longest) * (n + 1) for n in batch["id"]])}

    ds = data.range(8, override_num_blocks=4).map_batches(padded)
    tokens = next(iter(ds.iter_batches(batch_size=8)))["tokens"]
    assert [len(row) for row in tokens] == [2, 2, 4, 4, 6, 6, 8, 8] and tokens[3].tolist() == [0, 4, 8, 12]


def test_what_is_held_in_memory_may_be_of_several_types() -> None:
    items = data.from_items([{"a": None}] * 65_536 + [{"a": 2}])
    assert items.count() == 65_537 and items.take_all()[-1] == {"a": 2}
    frames = data.from_pandas([pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [0.5]}), pd.DataFrame({"a": [None]})])
    assert frames.to_pandas()["a"].tolist()[:3] == [1, 2, 0.5]
    arrays = data.from_numpy([np.zeros((2, 2)), np.ones((1, 3))])
    assert [len(row["data"]) for row in arrays.take_all()] == [2, 2, 3]
    assert data.from_items([]).union(data.range(2)).take_all() == [{"id": 0}, {"id": 1}]
    assert data.range(1).union(data.from_items([{"id": 0.5, "b": "x"}])).take_all() == [
        {"id": 0.0, "b": None},
        {"id": 0.5, "b": "x"},
    ]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([1, "a"] * 3, "the column `v` is of different types in rows that come together: int64 and utf8"),
        ([{1}, b"a"] * 3, "objects of python and binary"),
        ([np.zeros((1, 1)), np.zeros((1, 1, 1))] * 3, "tensors and tensors"),
    ],
    ids=["number and text", "object and bytes", "dimensions"],
)
def test_types_that_nothing_holds_are_told(values: list[Any], told: str) -> None:
    ds = made(lambda n: {"v": values[n]})
    with pytest.raises(CarrilError, match=f"(?i){told}"):
        list(ds.iter_batches(batch_size=6))
    with pytest.raises(CarrilError, match=f"(?i){told}"):
        ds.materialize()
