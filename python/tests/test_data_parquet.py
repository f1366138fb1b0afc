"""Parquet beside pyarrow on the same files: types, encodings, compressions, pages, and files of other tools."""

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from data_tables import assert_same, case, every_type, is_same, read_back

from carril import data
from carril.exceptions import CarrilError, ConfigError, StorageError

FILES = Path(__file__).parent / "files"


def repeated(array: pa.Array, times: int) -> pa.Array:
    return pa.concat_arrays([array] * times)


def check(path: Path, **options: Any) -> pa.Table:
    """Ours, after it was found to be what pyarrow reads."""
    ours = read_back(data.read_parquet(path, **options))
    assert_same(ours, pq.read_table(path))
    return ours


# What we read in another way than pyarrow, and why.
OTHERWISE = {
    # It was written as milliseconds, and the file says so: pyarrow forgets it.
    "date64[ms]": pa.date64(),
    # Parquet has no seconds. Of the milliseconds that it has instead, the zone is kept by pyarrow only; the instants agree.
    "timestamp[s, tz=Europe/Madrid]": pa.timestamp("ms", "UTC"),
    "timestamp[s, tz=+01:30]": pa.timestamp("ms", "UTC"),
}


@pytest.mark.parametrize("stored", [True, False], ids=["with the schema of Arrow", "bare"])
def test_every_type_with_its_gaps(tmp_path: Path, stored: bool) -> None:
    for name in every_type():
        with case(name):
            path = tmp_path / "a.parquet"
            column = repeated(every_type()[name], 5)
            pq.write_table(pa.table({"x": column}), path, row_group_size=7, store_schema=stored)
            ours = read_back(data.read_parquet(path))
            theirs = pq.read_table(path)
            if stored and name in OTHERWISE:
                assert ours.schema.field("x").type == OTHERWISE[name]
                assert ours.column("x").cast(theirs.schema.field("x").type) == theirs.column("x")
            else:
                assert_same(ours, theirs)


def test_rows_and_batches_of_every_type(tmp_path: Path) -> None:
    for name, column in every_type().items():
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"x": column}), path)
        dataset = data.read_parquet(path)
        assert [row["x"] is None for row in dataset.take_all()] == [not value.is_valid for value in column], name
        assert len(dataset.take_batch(10)["x"]) == len(column), name


def test_columns_that_are_never_null(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    inner = pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())])
    item = pa.field("element", pa.int64(), nullable=False)
    schema = pa.schema(
        [pa.field("x", pa.int64(), nullable=False), pa.field("s", inner, nullable=False), pa.field("l", pa.list_(item))]
    )
    rows = [{"x": n, "s": {"a": n, "b": None}, "l": [n] * (n % 3)} for n in range(50)]
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    ours = check(path)
    assert not ours.schema.field("x").nullable and ours.schema.field("l").nullable


ENCODINGS = [
    ("PLAIN", pa.array([1, None, 3] * 100)),
    ("PLAIN", pa.array([True, None, False] * 100)),
    ("PLAIN", pa.array(["a", None, "b"] * 100)),
    ("RLE", pa.array([True, None, False, False] * 100)),
    ("DELTA_BINARY_PACKED", pa.array([2**31 - 1, None, -(2**31)] * 100, pa.int32())),
    ("DELTA_BINARY_PACKED", pa.array([2**63 - 1, None, -(2**63), 5] * 100)),
    ("DELTA_LENGTH_BYTE_ARRAY", pa.array(["", None, "a" * 300, "ü"] * 100)),
    ("DELTA_BYTE_ARRAY", pa.array(["prefix", None, "prefixed", "pre", ""] * 100)),
    ("DELTA_BYTE_ARRAY", pa.array([b"ab", None, b"ac"] * 100, pa.binary(2))),
    ("BYTE_STREAM_SPLIT", pa.array([1.5, None, -2.25] * 100, pa.float32())),
    ("BYTE_STREAM_SPLIT", pa.array([1.5, None, -2.25] * 100)),
    ("BYTE_STREAM_SPLIT", pa.array([1, None, -(2**63)] * 100)),
    ("BYTE_STREAM_SPLIT", pa.array([b"abc", None, b"def"] * 100, pa.binary(3))),
    ("BYTE_STREAM_SPLIT", pa.array([1.5, None, -2.25] * 100, pa.float16())),
]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_every_encoding_in_both_kinds_of_pages(tmp_path: Path, version: str) -> None:
    for encoding, column in ENCODINGS:
        with case((encoding, column.type)):
            path = tmp_path / "a.parquet"
            pq.write_table(
                pa.table({"x": column, "y": pa.array([[v] for v in column.to_pylist()], pa.list_(column.type))}),
                path,
                use_dictionary=False,
                column_encoding={"x": encoding, "y.list.element": encoding},
                data_page_version=version,
                data_page_size=64,
                row_group_size=170,
            )
            metadata = pq.read_metadata(path)
            assert encoding in metadata.row_group(0).column(0).encodings
            check(path)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_every_compression(tmp_path: Path, version: str) -> None:
    for compression in ("none", "snappy", "gzip", "zstd", "brotli", "lz4"):
        with case(compression):
            path = tmp_path / "a.parquet"
            table = pa.table({
                "whole": pa.array([n if n % 7 else None for n in range(2000)]),
                "text": pa.array([f"word {n % 50}" * (n % 4) for n in range(2000)]),
                "lists": pa.array([list(range(n % 5)) for n in range(2000)]),
                "nothing": pa.nulls(2000, pa.string()),
            })  # fmt: skip
            pq.write_table(
                table, path, compression=compression, data_page_version=version, data_page_size=512, row_group_size=900
            )
            check(path)


@pytest.mark.parametrize("dictionary_page", [64, 1 << 20], ids=["that overflows", "whole"])
def test_dictionaries_in_pages_of_any_size(tmp_path: Path, dictionary_page: int) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"x": [f"value {n * n % 331}" for n in range(3000)], "y": [n % 17 for n in range(3000)]})
    for page in (1, 100, 1 << 20):
        pq.write_table(table, path, dictionary_pagesize_limit=dictionary_page, data_page_size=page)
        check(path)


def test_files_without_rows_and_without_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    for name, column in every_type().items():
        pq.write_table(pa.table({"x": column.slice(0, 0)}), path)
        dataset = data.read_parquet(path)
        assert (dataset.count(), dataset.columns(), dataset.take_all()) == (0, ["x"], []), name
        assert list(dataset.iter_batches()) == []
    with pq.ParquetWriter(path, pa.schema([("x", pa.int64())])) as writer:
        for rows in ([1, 2], [], [3]):
            writer.write_table(pa.table({"x": pa.array(rows, pa.int64())}))
    assert check(path).column("x").to_pylist() == [1, 2, 3]
    pq.write_table(pa.table({}), path)
    assert data.read_parquet(path).columns() == []


def test_many_row_groups_come_in_their_order_and_are_counted_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": range(10_000)}), path, row_group_size=37)
    dataset = data.read_parquet(path)
    assert dataset.num_blocks() == pq.read_metadata(path).num_row_groups == 271
    assert check(path).column("x").to_pylist() == list(range(10_000))
    # The rows are counted by the metadata: the pages are not needed.
    raw = bytearray(path.read_bytes())
    raw[4:2000] = b"\xff" * 1996
    path.write_bytes(raw)
    assert data.read_parquet(path).count() == 10_000


@pytest.mark.parametrize("columns", [["b"], ["s", "a"], ["l", "b", "a", "s"]])
def test_columns_are_chosen_in_the_order_asked_for(tmp_path: Path, columns: list[str]) -> None:
    path = tmp_path / "a.parquet"
    rows = [{"a": n, "b": str(n), "s": {"x": n, "y": [n]}, "l": [{"z": n}]} for n in range(20)]
    pq.write_table(pa.Table.from_pylist(rows), path)
    assert_same(
        read_back(data.read_parquet(path, columns=columns)), pq.read_table(path, columns=columns).select(columns)
    )
    assert data.read_parquet(path, columns="b").columns() == ["b"]
    assert data.read_parquet(path, columns=[]).count() == 20


FILTERS: list[tuple[str, str, Any]] = [
    ("whole", ">", 40), ("whole", "==", 7), ("whole", "=", 7), ("whole", "!=", 7), ("whole", "<=", -1), ("whole", ">=", 99),
    ("whole", "in", [3, 50, 1000]), ("whole", "not in", [3, 50]), ("real", "<", 2.5), ("real", "!=", 1.5),
    ("text", "==", "t7"), ("text", ">", "t5"), ("text", "in", ["t1", "t2"]), ("flag", "==", True),
    ("day", ">=", datetime.date(2020, 2, 1)), ("moment", "<", datetime.datetime(2020, 1, 3, 12)),
    ("price", ">", Decimal("0.50")), ("price", "<", Decimal("0.505")), ("category", "==", "c1"), ("whole", ">", 2.5),
]  # fmt: skip


@pytest.mark.parametrize("statistics", [True, False], ids=["with bounds", "without"])
def test_filters_are_those_of_pyarrow(tmp_path: Path, statistics: bool) -> None:
    path = tmp_path / "a.parquet"
    start = datetime.datetime(2020, 1, 1)
    table = pa.table({
        "whole": pa.array([n if n % 11 else None for n in range(100)]),
        "real": pa.array([n / 2 if n % 9 else float("nan") for n in range(100)]),
        "text": pa.array([f"t{n % 10}" if n % 13 else None for n in range(100)]),
        "flag": pa.array([n % 3 == 0 if n % 5 else None for n in range(100)]),
        "day": pa.array([start.date() + datetime.timedelta(n) for n in range(100)]),
        "moment": pa.array([start + datetime.timedelta(hours=n) for n in range(100)], pa.timestamp("us")),
        "price": pa.array([Decimal(n) / 100 for n in range(100)], pa.decimal128(9, 2)),
        "category": pa.array([f"c{n % 4}" for n in range(100)]).dictionary_encode(),
    })  # fmt: skip
    pq.write_table(table, path, row_group_size=10, write_statistics=statistics)
    for column, operator, value in FILTERS:
        ours = read_back(data.read_parquet(path, filter=[(column, operator, value)]))
        theirs = pq.read_table(path, filters=[(column, operator, value)])
        if operator == "not in":
            # Here, as with every other comparison, what is null fulfils nothing; pyarrow keeps it.
            theirs = theirs.filter(pc.field(column).is_valid())
        assert_same(ours, theirs)
    both = [("whole", ">", 40), ("text", "==", "t7")]
    ours = read_back(data.read_parquet(path, filter=both, columns=["real"]))
    assert_same(ours, pq.read_table(path, filters=both, columns=["real"]))
    assert data.read_parquet(path, filter=("whole", "==", None)).count() == table["whole"].null_count
    # pyarrow finds no room for a whole number among these decimals.
    assert [data.read_parquet(path, filter=[("price", operator, 0)]).count() for operator in ("<=", ">")] == [1, 99]
    if statistics:
        assert data.read_parquet(path, filter=[("whole", ">", 89)]).num_blocks() == 1


def test_a_filter_that_makes_no_sense_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": [1], "y": ["a"]}), path)
    for filter, text in [
        ([("x", ">", "a")], "`x` of type Int64 cannot be compared with"),
        ([("z", ">", 1)], "there is no column `z`; there are `x`, `y`"),
        ([("x", "~", 1)], "`~` compares nothing"),
        ("x > 1", "wants `filter` as a list of comparisons, not str"),
        (pc.field("x") > 1, "wants `filter` as a list of comparisons, not Expression"),
        ([("x", ">")], "a comparison is a column, an operator and a value"),
        ([("x", ">", b"1")], "cannot be compared with a column"),
    ]:
        with pytest.raises(ConfigError) as raised:
            data.read_parquet(path, filter=filter)
        assert text in str(raised.value)


def test_what_pandas_writes(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    frame = pandas.DataFrame({
        "whole": pandas.array([1, None, 3], "Int64"),
        "real": [1.5, None, 2.5],
        "text": ["a", None, "c"],
        "moment": pandas.to_datetime(["2024-01-01", None, "2024-01-03"]),
        "zoned": pandas.to_datetime(["2024-01-01", None, "2024-06-03"]).tz_localize("Europe/Madrid"),
        "lasting": pandas.to_timedelta(["1h", None, "2s"]),
        "category": pandas.Categorical(["x", None, "y"]),
        "flag": pandas.array([True, None, False], "boolean"),
    }, index=pandas.Index([10, 20, 30], name="key"))  # fmt: skip
    frame.to_parquet(path)
    ours = read_back(data.read_parquet(path))
    # The words of categories are large strings, as they were written; pyarrow makes small ones of them.
    assert_same(ours, pq.read_table(path), types=False)
    pandas.testing.assert_frame_equal(ours.replace_schema_metadata(pq.read_schema(path).metadata).to_pandas(), frame)


@pytest.mark.parametrize("tool", ["polars", "duckdb", "fastparquet"])
def test_what_other_tools_write(tool: str) -> None:
    path = FILES / f"{tool}.parquet"
    ours = read_back(data.read_parquet(path))
    assert_same(ours, pq.read_table(path), types=tool != "polars")

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items()}
        if isinstance(value, list):
            return [plain(one) for one in value]
        if isinstance(value, datetime.datetime):
            return value.isoformat()
        return str(value) if isinstance(value, datetime.date | Decimal) else value

    told = json.loads((FILES / f"{tool}.json").read_text())
    assert is_same([plain(row) for row in ours.to_pylist()], told)


def test_two_files_with_wider_types_are_one(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([1], pa.int32()), "y": pa.array(["a"])}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"y": pa.array([None], pa.null()), "x": pa.array([2.5])}), tmp_path / "2.parquet")
    dataset = data.read_parquet(tmp_path)
    assert dataset.take_all() == [{"x": 1.0, "y": "a"}, {"x": 2.5, "y": None}]
    pq.write_table(pa.table({"x": ["text"], "y": ["b"]}), tmp_path / "3.parquet")
    with pytest.raises(CarrilError) as raised:
        data.read_parquet(tmp_path)
    text = str(raised.value)
    assert f"`{tmp_path}/1.parquet` and `{tmp_path}/3.parquet` have different columns" in text and "`x` is" in text


def test_files_may_disagree_about_columns_that_nobody_wants(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1], "y": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [2], "z": ["b"]}), tmp_path / "b.parquet")
    assert data.read_parquet(str(tmp_path), columns=["x"]).take_all() == [{"x": 1}, {"x": 2}]
    with pytest.raises(ConfigError, match="`z` is only in the second"):
        data.read_parquet(str(tmp_path))
    with pytest.raises(ConfigError, match="`y` is only in the first"):
        data.read_parquet(str(tmp_path), columns=["y", "x"])
    with pytest.raises(ConfigError, match="there is no column `q`; there are `x`, `y`"):
        data.read_parquet(str(tmp_path), columns=["x", "q"])
    both = data.read_parquet(str(tmp_path / "a.parquet")).union(data.read_parquet(str(tmp_path / "b.parquet")))
    assert both.take_all() == [{"x": 1, "y": 1, "z": None}, {"x": 2, "y": None, "z": "b"}]


def test_a_row_group_with_another_number_of_rows_than_its_pages_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": range(500)}), path, row_group_size=100)
    whole = path.read_bytes()
    # Numbers are zigzag varints: 100 is c8 01, and 36 is c8 00.
    places = [at for at in range(len(whole)) if whole[at : at + 2] == b"\xc8\x01"]
    found = 0
    for at in places:
        path.write_bytes(whole[: at + 1] + b"\0" + whole[at + 2 :])
        try:
            metadata = pq.ParquetFile(path).metadata
            rows = [metadata.row_group(group).num_rows for group in range(5)]
        except (OSError, pa.ArrowException):
            continue
        if sorted(rows) != [36, 100, 100, 100, 100]:
            continue
        found += 1
        for read in (
            lambda: data.read_parquet(path).take_all(),
            lambda: data.read_parquet(path).random_shuffle().take_all(),
            lambda: data.read_parquet(path).count(),
        ):
            with pytest.raises(StorageError, match=r"rows\.parquet.*it has 500 rows, and its row groups have 436"):
                read()
    assert found == 5
