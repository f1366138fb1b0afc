"""Tables of every type, and what it means that two of them are the same: for the tests of readers beside pyarrow."""

import datetime
import math
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from carril import data

UNITS = ("s", "ms", "us", "ns")


@contextmanager
def case(name: object) -> Iterator[None]:
    """One of many that a test goes through: what fails in it tells its name. A test for each would take longer to clean up
    after than to run."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in the case `{name}`")
        raise


def read_back(dataset: data.Dataset) -> pa.Table:
    """All rows, as the native half has them."""
    tables = dataset.to_arrow_refs()
    schema = dataset.schema()
    assert schema is not None
    return pa.concat_tables(tables) if tables else schema.base_schema.empty_table()


def is_same(one: Any, other: Any) -> bool:
    """Equal, where NaN is itself and -0.0 is not 0.0."""
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    return type(one) is type(other) and bool(one == other)


def assert_same(ours: pa.Table, theirs: pa.Table, *, types: bool = True) -> None:
    """The same columns of the same types with the same values and gaps."""
    assert ours.schema.names == theirs.schema.names
    assert ours.num_rows == theirs.num_rows
    ours.validate(full=True)
    for field, name in enumerate(ours.schema.names):
        if types:
            assert ours.schema.types[field] == theirs.schema.types[field], name
        here, there = (table.column(field).to_pylist() for table in (ours, theirs))
        different = next(((a, b) for a, b in zip(here, there, strict=True) if not is_same(a, b)), None)
        assert different is None, f"`{name}`: {different}"


def write_ipc(table: pa.Table, path: Path, kind: str = "file", compression: str | None = None, rows: int = 7) -> None:
    """Record batches of so many rows, in a file or in a stream."""
    new = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    with new(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=rows)


def _temporal() -> dict[str, pa.Array]:
    zones = ("UTC", "Europe/Madrid", "+01:30")
    types = [pa.timestamp(unit, zone) for unit in UNITS for zone in (None, *zones)]
    types += [pa.duration(unit) for unit in UNITS]
    made = {str(kind): pa.array([1_700_000_000, None, -7], kind) for kind in types}
    made |= {str(kind): pa.array([5, None, 7], kind) for kind in (pa.time32("s"), pa.time32("ms"))}
    made |= {str(kind): pa.array([5, None, 7_000], kind) for kind in (pa.time64("us"), pa.time64("ns"))}
    days = [datetime.date(2020, 2, 29), None, datetime.date(1960, 1, 2)]
    return made | {str(kind): pa.array(days, kind) for kind in (pa.date32(), pa.date64())}


def _numbers() -> dict[str, pa.Array]:
    made = {}
    for width in (8, 16, 32, 64):
        signed, unsigned = (getattr(pa, f"{kind}{width}")() for kind in ("int", "uint"))
        made[str(signed)] = pa.array([-(2 ** (width - 1)), None, 2 ** (width - 1) - 1], signed)
        made[str(unsigned)] = pa.array([0, None, 2**width - 1], unsigned)
    floats = [-0.0, None, math.nan, math.inf, 1.5]
    made |= {str(kind): pa.array(floats, kind) for kind in (pa.float16(), pa.float32(), pa.float64())}
    decimals = (
        pa.decimal32(5, 2),
        pa.decimal64(12, 2),
        pa.decimal128(5, 2),
        pa.decimal128(38, 10),
        pa.decimal256(50, 2),
    )
    made |= {str(kind): pa.array([Decimal("1.25"), None, Decimal("-3.50")], kind) for kind in decimals}
    return made | {"bool": pa.array([True, None, False])}


def _texts() -> dict[str, pa.Array]:
    texts, raw = ["a", None, "", "ünïcödé 🎉"], [b"a\0", None, b"\xff\xfe"]
    made = {str(kind): pa.array(texts, kind) for kind in (pa.string(), pa.large_string(), pa.string_view())}
    kinds = (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2))
    made |= {str(kind): pa.array(raw, kind) for kind in kinds}
    made["dictionary"] = pa.array(["a", None, "b", "a"]).dictionary_encode()
    made["dictionary of int8"] = pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.int8()), pa.array(["x", "y"]))
    made["categories"] = pa.DictionaryArray.from_arrays(pa.array([1, None, 0]), pa.array(["x", "y"]), ordered=True)
    return made


def _nested() -> dict[str, pa.Array]:
    lists = [[1, None], None, [], [2]]
    pair = pa.struct([("a", pa.int8()), ("b", pa.string())])
    deep = pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.int16())))]))
    return {
        "list": pa.array(lists, pa.list_(pa.int32())),
        "large list": pa.array(lists, pa.large_list(pa.int32())),
        "fixed list": pa.array([[1, None], None, [3, 4]], pa.list_(pa.int32(), 2)),
        "list view": pa.array(lists, pa.list_view(pa.int32())),
        "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}], pair),
        "map": pa.array([[("a", 1), ("b", None)], None, []], pa.map_(pa.string(), pa.int64())),
        "list of structs of maps of lists": pa.array(
            [[{"m": [("k", [1, None])]}, None], None, [{"m": None}], []], deep
        ),
        "lists of lists": pa.array([[["a"], None, []], None, [[]]], pa.large_list(pa.list_(pa.large_string()))),
        "list of categories": pa.array([["a", None, "a"], None, []], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        "struct in struct": pa.array([{"p": {"a": 1, "b": None}}, {"p": None}, None], pa.struct([("p", pair)])),
        "nothing": pa.nulls(3),
        "list of nothing": pa.array([[None], None, []], pa.list_(pa.null())),
    }


def every_type() -> dict[str, pa.Array]:
    """A column of each type, with gaps."""
    return _numbers() | _texts() | _temporal() | _nested()
