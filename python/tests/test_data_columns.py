"""Columns that functions make, of arrays of any library: each keeps its type, and what is missing in it."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest
import torch

from carril import data
from carril.exceptions import CarrilError

KEPT = pyarrow.table(
    {
        "id": pyarrow.array([2**53 + 1, None, 3]),
        "at": pyarrow.array([0, 1, None], pyarrow.timestamp("us", "Europe/Berlin")),
        "kind": pyarrow.array(["a", "b", "a"]).dictionary_encode(),
        "small": pyarrow.array([1, None, 3], pyarrow.int8()),
    }
)


@pytest.mark.parametrize("batch_format", ["pandas", "numpy", "pyarrow"])
def test_a_column_is_added_and_the_others_are_what_they_were(batch_format: str) -> None:
    ds = data.from_arrow(KEPT)
    added = ds.add_column("n", lambda batch: batch["kind"], batch_format=batch_format)
    assert added.columns() == [*KEPT.column_names, "n"]
    (table,) = added.drop_columns("n").to_arrow_refs()
    assert table.equals(KEPT)
    assert [row["n"] for row in added.take_all()] == ["a", "b", "a"]
    other = ds.add_column("at", lambda batch: np.arange(3, dtype=np.int16), batch_format=batch_format)
    (table,) = other.to_arrow_refs()
    assert table.column_names == KEPT.column_names and table["at"].to_pylist() == [0, 1, 2]
    assert table.drop_columns("at").equals(KEPT.drop_columns("at"))


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda frame: 7, [7, 7, 7]),
        (lambda frame: "word", ["word"] * 3),
        (lambda frame: np.float64(0.5), [0.5] * 3),
        (lambda frame: torch.tensor(2), [2] * 3),
        (lambda frame: pandas.Timestamp("2024-06-01", tz="UTC"), [datetime(2024, 6, 1, tzinfo=UTC)] * 3),
        (lambda frame: pandas.array([1, None, 3], dtype="Int64"), [1, None, 3]),
        (lambda frame: pandas.Series([1, None, 3], dtype="Int8"), [1, None, 3]),
        (lambda frame: frame["small"].sort_index(ascending=False).rename("x"), [1.0, None, 3.0]),
        (lambda frame: frame["kind"][frame["kind"] == "a"], ["a", None, "a"]),
        (lambda frame: pandas.Series([5, 6, 7], index=[2, 1, 0]), [7, 6, 5]),
        (lambda frame: frame[["kind"]], ["a", "b", "a"]),
        (lambda frame: np.ma.masked_array([1, 2, 3], [True, False, False]), [None, 2, 3]),
        (lambda frame: pyarrow.array([1, None, 3]), [1, None, 3]),
        (lambda frame: [1, 2, 3], [1, 2, 3]),
    ],
)
def test_what_a_new_column_is_made_of(fn: Callable[[Any], Any], expected: list[Any]) -> None:
    values = [row["n"] for row in data.from_arrow(KEPT).add_column("n", fn).take_all()]
    assert [None if value != value else value for value in values] == expected


def test_what_is_no_new_column() -> None:
    ds = data.range(3)
    with pytest.raises(CarrilError, match="the column `n` has 2 rows, and the batch has 3"):
        ds.add_column("n", lambda frame: [1, 2]).take_all()
    with pytest.raises(CarrilError, match="a column is an array or a list of values, not dict"):
        ds.add_column("n", lambda frame: {"n": 1}).take_all()
    with pytest.raises(CarrilError, match="not NoneType"):
        ds.add_column("n", lambda frame: None).take_all()


ARRAYS = [
    (pyarrow.array([1, None]), "int64", [1, None]),
    (pyarrow.array([None, None], pyarrow.int16()), "int16", [None, None]),
    (pyarrow.chunked_array([["a"], [None]]), "string", ["a", None]),
    (pyarrow.array([0, 1], pyarrow.timestamp("s", "UTC")), None, [datetime(1970, 1, 1, 0, 0, second, tzinfo=UTC) for second in (0, 1)]),
    (pyarrow.array([[1], None]), None, [[1], None]),
    (pandas.Series([1, None], dtype="Int32"), "int32", [1, None]),
    (pandas.array([True, None], dtype="boolean"), "bool", [True, None]),
    (pandas.Series(["a", None]), "string", ["a", None]),
    (pandas.Series(["a", "b"], dtype="category"), "string", ["a", "b"]),
    (pandas.Series([1.5, 2.5], index=[7, 8]), "double", [1.5, 2.5]),
    (pandas.Index([3, 4]), "int64", [3, 4]),
    (np.ma.masked_array([1, 2], [False, True], dtype=np.int32), "int32", [1, None]),
    (np.ma.masked_array([1, 2], dtype=np.int8), "int8", [1, 2]),
    (np.ma.masked_array(np.array(["2024-01-01", "2024-01-02"], "M8[s]"), [True, False]), None, [None, datetime(2024, 1, 2)]),
    (np.ma.masked_array(["a", "b"], [True, False]), "string", [None, "b"]),
]  # fmt: skip


@pytest.mark.parametrize(("array", "kind", "values"), ARRAYS)
def test_arrays_of_any_library_are_columns_of_a_batch(array: Any, kind: str | None, values: list[Any]) -> None:
    ds = data.range(2).map_batches(lambda batch: {"c": array, "id": batch["id"], "d": array})
    assert ds.take_all() == [{"c": value, "id": number, "d": value} for number, value in enumerate(values)]
    schema = ds.schema()
    assert schema is not None and schema.names == ["c", "id", "d"]
    assert kind is None or schema.types == [kind, "int64", kind]


def test_arrays_of_unequal_length_are_told() -> None:
    with pytest.raises(CarrilError, match="the columns are of unequal length: `c` has 2, `id` has 3"):
        data.range(3).map_batches(lambda batch: {"c": pyarrow.array([1, None]), "id": batch["id"]}).take_all()
    masked = np.ma.masked_array([[1, 2], [3, 4]], [[True, False], [False, False]])
    with pytest.raises(CarrilError, match="a masked array of several dimensions is no column"):
        data.range(2).map_batches(lambda batch: {"c": masked}).take_all()


def test_any_iterator_gives_several_batches() -> None:
    ds = data.range(4, override_num_blocks=2)
    expected = [0, 1, 0, 1, 2, 3, 2, 3]
    assert [row["id"] for row in ds.map_batches(lambda batch: iter([batch, batch])).take_all()] == expected
    assert [row["id"] for row in ds.map_batches(lambda batch: map(dict, (batch, batch))).take_all()] == expected
    sizes = ds.map_batches(lambda batch: {"rows": [len(batch["id"])]}, batch_size="auto").take_all()
    assert sizes == ds.map_batches(lambda batch: {"rows": [len(batch["id"])]}).take_all()


def test_what_is_missing_is_kept_where_pyarrow_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    frame = pandas.DataFrame(
        {"a": pandas.array([2**53 + 1, None], "Int64"), "b": pandas.to_datetime([0, None], utc=True)}
    )
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert data.from_pandas(frame).take_all() == [{"a": 2**53 + 1, "b": epoch}, {"a": None, "b": None}]
    masked = np.ma.masked_array([1, 2], [False, True])
    assert data.from_numpy({"a": masked}).take_all() == [{"a": 1}, {"a": None}]
