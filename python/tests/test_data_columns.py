"""Columns that functions make, of arrays of any library: each keeps its type, and what is missing in it."""

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
