"""Any table that pyarrow can build and write to Parquet or to Arrow's own files is read back equal, types included."""

import datetime
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from data_tables import UNITS, assert_same, is_same, read_back, write_ipc
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from carril import data

LONG = bool(os.environ.get("CARRIL_LONG"))
quickly = settings(
    max_examples=2000 if LONG else 120,
    deadline=None,
    database=None,
    derandomize=not LONG,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def _integers() -> list[tuple[pa.DataType, Any]]:
    made = []
    for width in (8, 16, 32, 64):
        made.append((getattr(pa, f"int{width}")(), st.integers(-(2 ** (width - 1)), 2 ** (width - 1) - 1)))
        made.append((getattr(pa, f"uint{width}")(), st.integers(0, 2**width - 1)))
    return made


TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
# What Python's own times hold too.
MOMENTS = {unit: st.integers(-(10**9) * 1000**power, 10**9 * 1000**power) for power, unit in enumerate(UNITS)}
SCALARS: list[tuple[pa.DataType, Any]] = [
    *_integers(),
    (pa.float16(), st.floats(width=16)), (pa.float32(), st.floats(width=32)), (pa.float64(), st.floats()),
    (pa.bool_(), st.booleans()),
    (pa.string(), TEXT), (pa.large_string(), TEXT), (pa.string_view(), TEXT),
    (pa.binary(), st.binary(max_size=12)), (pa.large_binary(), st.binary(max_size=12)), (pa.binary_view(), st.binary(max_size=20)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.date32(), st.dates()), (pa.time32("ms"), st.integers(0, 86_399_999)), (pa.time64("us"), st.integers(0, 86_399_999_999)),
    (pa.time64("ns"), st.integers(0, 86_399_999_999_999)),
    (pa.decimal128(9, 2), st.decimals("-9999999.99", "9999999.99", places=2)),
    (pa.decimal128(38, 0), st.integers(-(10**37), 10**37).map(Decimal)),
    (pa.decimal256(50, 5), st.decimals(-(10**20), 10**20, places=5)),
    *((pa.timestamp(unit), MOMENTS[unit]) for unit in UNITS[1:]), *((pa.timestamp(unit, "UTC"), MOMENTS[unit]) for unit in UNITS[1:]),
    (pa.timestamp("us", "Europe/Madrid"), MOMENTS["us"]), *((pa.duration(unit), MOMENTS[unit]) for unit in UNITS),
    (pa.null(), st.none()),
]  # fmt: skip


def optional(values: Any) -> Any:
    return st.one_of(st.none(), values)


def nested(inner: Any) -> Any:
    """Types with their values, made of such."""

    def of_one(one: tuple[pa.DataType, Any]) -> Any:
        kind, values = one
        lists = st.lists(optional(values), max_size=4)
        made = [
            (pa.list_(kind), lists),
            (pa.large_list(kind), lists),
            (pa.list_(kind, 2), st.lists(optional(values), min_size=2, max_size=2)),
            (
                pa.map_(pa.string(), kind),
                st.dictionaries(TEXT, optional(values), max_size=3).map(lambda one: list(one.items())),
            ),
            (pa.struct([("only", kind)]), st.fixed_dictionaries({"only": optional(values)})),
        ]
        return st.sampled_from(made)

    def of_two(two: tuple[Any, Any]) -> tuple[pa.DataType, Any]:
        (one, values), (other, others) = two
        kind = pa.struct([("a", one), pa.field("b", other)])
        return kind, st.fixed_dictionaries({"a": optional(values), "b": optional(others)})

    return st.one_of(inner.flatmap(of_one), st.tuples(inner, inner).map(of_two))


TYPES = st.recursive(st.sampled_from(SCALARS), nested, max_leaves=4)


@st.composite
def tables(draw: Any) -> pa.Table:
    rows = draw(st.integers(0, 12))
    columns = {}
    for number in range(draw(st.integers(1, 4))):
        kind, values = draw(TYPES)
        if draw(st.booleans()):
            values = optional(values)
        columns[f"c{number}"] = pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), kind)
        if draw(st.booleans()) and pa.types.is_string(kind):
            columns[f"c{number}"] = columns[f"c{number}"].dictionary_encode()
    return pa.table(columns)


@pytest.fixture(name="path", scope="module")
def path_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("properties") / "a"


def _has_view_inside(kind: pa.DataType) -> bool:
    inner = [kind.field(number).type for number in range(kind.num_fields)]
    return any(pa.types.is_string_view(one) or pa.types.is_binary_view(one) or _has_view_inside(one) for one in inner)


@quickly
@given(
    table=tables(),
    compression=st.sampled_from(["none", "snappy", "zstd", "gzip", "lz4", "brotli"]),
    version=st.sampled_from(["1.0", "2.0"]),
    dictionaries=st.booleans(),
    group=st.integers(1, 20),
    page=st.sampled_from([256, 1 << 20]),
    stored=st.booleans(),
)
def test_parquet(
    path: Path, table: pa.Table, compression: str, version: str, dictionaries: bool, group: int, page: int, stored: bool
) -> None:
    # pyarrow cannot cut such columns into row groups: there would be no file to read.
    assume(not any(_has_view_inside(kind) for kind in table.schema.types))
    pq.write_table(
        table, path, compression=compression, data_page_version=version, use_dictionary=dictionaries,
        row_group_size=group, data_page_size=page, store_schema=stored,
    )  # fmt: skip
    theirs = pq.read_table(path)
    dataset = data.read_parquet(path)
    assert dataset.count() == table.num_rows
    assert_same(read_back(dataset), theirs)
    last = table.schema.names[-1]
    assert_same(read_back(data.read_parquet(path, columns=[last])), theirs.select([last]))


@quickly
@given(
    table=tables(),
    kind=st.sampled_from(["file", "stream"]),
    compression=st.sampled_from([None, "lz4", "zstd"]),
    rows=st.integers(1, 20),
)
def test_arrow_files(path: Path, table: pa.Table, kind: str, compression: str | None, rows: int) -> None:
    write_ipc(table, path, kind, compression, rows)
    assert_same(read_back(data.read_ipc(path)), table)
    last = table.schema.names[-1]
    assert_same(read_back(data.read_ipc(path, columns=[last])), table.select([last]))


CSV_VALUES: dict[str, Any] = {
    "whole": st.integers(-(2**63), 2**63 - 1), "real": st.floats(allow_nan=False),
    "text": st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=10), "flag": st.booleans(),
    "day": st.dates(), "moment": st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1)),
}  # fmt: skip


@quickly
@given(
    rows=st.lists(st.fixed_dictionaries({name: optional(values) for name, values in CSV_VALUES.items()}), min_size=1)
)
def test_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    types = [pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.date32(), pa.timestamp("us")]
    table = pa.Table.from_pylist(rows, pa.schema(list(zip(CSV_VALUES, types, strict=True))))
    pc.write_csv(table, path)
    convert = pc.ConvertOptions(strings_can_be_null=False)
    theirs = pc.read_csv(path, parse_options=pc.ParseOptions(newlines_in_values=True), convert_options=convert)
    ours = read_back(data.read_csv(path))
    assert ours.schema.types == theirs.schema.types
    assert is_same(ours.to_pylist(), theirs.to_pylist())


@quickly
@given(st.lists(st.fixed_dictionaries({}, optional={
    "n": optional(st.integers(-(2**63), 2**63 - 1)), "x": optional(st.floats(width=64)), "t": optional(TEXT),
    "l": optional(st.lists(optional(st.integers(-5, 5)), max_size=3)), "s": optional(st.fixed_dictionaries({"k": optional(TEXT)})),
}), min_size=1))  # fmt: skip
def test_json(path: Path, rows: list[dict[str, Any]]) -> None:
    """What Python's own module writes is read as Python's own module reads it, but for keys that are missing."""
    import json

    lines = [json.dumps(row) for row in rows]
    names = list(dict.fromkeys(name for row in rows for name in row))
    for content in ("\n".join(lines), "[" + ",\n".join(lines) + "]"):
        path.write_text(content)
        dataset = data.read_json(path)
        assert dataset.count() == len(rows)
        if names:
            assert is_same(read_back(dataset).to_pylist(), [{name: row.get(name) for name in names} for row in rows])
