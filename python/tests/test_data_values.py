"""Rows as Python's own values: what `take` gives is what pyarrow's `to_pylist` gives, and what a function returns comes back."""

import subprocess
import sys
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_tables import UNITS, case, is_same
from hypothesis import given
from test_data_properties import quickly, tables

from carril import data

MADRID = ZoneInfo("Europe/Madrid")


@quickly
@given(table=tables())
def test_rows_are_those_of_pyarrow(table: pa.Table) -> None:
    assert is_same(data.from_arrow(table).take_all(), table.to_pylist())


NUMBERS = [0, 1, -1, 10**6, None, 1_700_000_000_123_456_789]
CASES = {
    **{f"timestamp {unit} {zone}": pa.array([number and number // 1000**power for number in NUMBERS], pa.timestamp(unit, zone))
       for power, unit in zip((3, 2, 1, 0), UNITS, strict=True)
       for zone in (None, "UTC", "Europe/Madrid", "+02:00", "-05:30", "Etc/GMT+3")},
    **{f"duration {unit}": pa.array([number and number // 1000**power for number in NUMBERS], pa.duration(unit))
       for power, unit in zip((3, 2, 1, 0), UNITS, strict=True)},
    "date32": pa.array([0, -719_162, 2_932_896, None], pa.date32()),
    "date64": pa.array([0, -86_400_000, 1_700_006_400_000, None], pa.date64()),
    "time32 s": pa.array([0, 86_399, None], pa.time32("s")), "time32 ms": pa.array([0, 86_399_999, 1], pa.time32("ms")),
    "time64 us": pa.array([0, 86_399_999_999, 1], pa.time64("us")), "time64 ns": pa.array([86_399_999_999_999, 1_001], pa.time64("ns")),
    "decimal32": pa.array([Decimal("1.50"), None, Decimal("-0.01")], pa.decimal32(5, 2)),
    "decimal64": pa.array([Decimal("1.50"), Decimal(-1)], pa.decimal64(15, 2)),
    "decimal128": pa.array([Decimal("-1234567890123456789012345678901234.5678"), Decimal("0.0001"), None], pa.decimal128(38, 4)),
    "decimal256": pa.array([Decimal(10) ** 70 - 1, Decimal(0)], pa.decimal256(76, 5)),
    "decimal of hundreds": pa.array([Decimal(12_300)], pa.decimal128(5, -2)),
    "dictionary of moments": pa.array([0, 1, 0, None], pa.timestamp("us", "UTC")).dictionary_encode(),
    "list view": pa.array([[1], None, [2, 3]], pa.list_view(pa.int64())), "large list view": pa.array([["a"]], pa.large_list_view(pa.string())),
    "inside": pa.array([{"d": [timedelta(1)], "m": [("a", Decimal("1.5"))], "t": {"u": time(1, 2)}}, None],
                       pa.struct([("d", pa.list_(pa.duration("ms"))), ("m", pa.map_(pa.string(), pa.decimal128(30, 3))),
                                  ("t", pa.struct([("u", pa.time32("s"))]))])),
    "dictionary inside": pa.array([["a"], ["b", None]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
}  # fmt: skip


def test_times_and_decimals_of_every_kind() -> None:
    for name, column in CASES.items():
        with case(name):
            ours, theirs = data.from_arrow(pa.table({"x": column})).take_all(), column.to_pylist()
            assert is_same([row["x"] for row in ours], theirs)
            assert [str(getattr(row["x"], "tzinfo", None)) for row in ours] == [
                str(getattr(value, "tzinfo", None)) for value in theirs
            ]


def test_a_date_that_python_does_not_hold_is_told() -> None:
    far = {"date": pa.array([10**7], pa.date32()), "moment": pa.array([10**15], pa.timestamp("s")),
           "zone": pa.array([-62_135_596_800], pa.timestamp("s", "-05:00"))}  # fmt: skip
    for name, column in far.items():
        with case(name), pytest.raises(OverflowError, match="the years 1 to 9999"):
            data.from_arrow(pa.table({"x": column})).take_all()


def test_tensors_with_gaps_and_inside_of_others(tmp_path: Path) -> None:
    kind = pa.fixed_shape_tensor(pa.float32(), (2, 2))
    storage = pa.array([[1, 2, 3, 4], None, [5, 6, 7, 8]], kind.storage_type)
    table = pa.table({"t": pa.ExtensionArray.from_storage(kind, storage)})
    pq.write_table(table, tmp_path / "a.parquet")
    for dataset in (data.from_arrow(table), data.read_parquet(tmp_path / "a.parquet")):
        for rows in ([row["t"] for row in dataset.take_all()], dataset.take_batch(3)["t"]):
            assert rows[1] is None and rows[2].tolist() == [[5, 6], [7, 8]] and rows[0].dtype == np.float32
        kept = dataset.map(lambda row: row).take_all()
        assert [row["t"] is None or row["t"].shape for row in kept] == [(2, 2), True, (2, 2)]
    tensors = pa.ExtensionArray.from_storage(kind, storage.take([0, 2, 0]))
    inside = pa.StructArray.from_arrays([tensors], ["t"])
    rows = data.from_arrow(pa.table({"s": inside})).take_all()
    assert rows[1]["s"]["t"].tolist() == [[5, 6], [7, 8]]


RETURNED: dict[str, list[Any]] = {
    "moments": [datetime(2024, 2, 29, 1, 2, 3, 4), None, datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)],
    "moments in UTC": [datetime(2024, 2, 29, tzinfo=UTC), None],
    "moments in Madrid": [datetime(2024, 7, 1, 12, tzinfo=MADRID), datetime(2024, 1, 1, tzinfo=MADRID)],
    "moments of an offset": [datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=-5, minutes=-30)))],
    "dates": [date(1, 1, 1), date(9999, 12, 31), None],
    "times": [time(0), time(23, 59, 59, 999_999), None], "durations": [timedelta(-3, 5, 7), timedelta(0), None],
    "decimals": [Decimal("1.50"), Decimal("-123456789012345678901234567890.12"), None],
    "long decimals": [Decimal(10) ** 60, Decimal(-1)],
    "bytes": [b"\0\xff", b"", None], "nothing": [None, None], "texts": ["a", "", "ñ", None], "flags": [True, None, False],
    "whole": [1, -(2**63), 2**63 - 1, None], "large": [2**64 - 1, 0], "real": [0.1, float("inf"), float("nan"), None, -0.0],
    "lists": [[1, None], [], None, [3]], "lists of lists": [[[1], []], [None], None],
    "dictionaries": [{"a": 1, "b": {"c": [time(1)]}}, None, {"a": None, "b": {"c": [None]}}],
    "lists of dictionaries": [[{"d": Decimal("0.5"), "m": datetime(2024, 1, 1)}], []],
    "nanoseconds": [pd.Timestamp(1_700_000_000_123_456_789, unit="ns"), None],
    "nanoseconds in Madrid": [pd.Timestamp(1_700_000_000_123_456_789, unit="ns", tz=MADRID)],
    "long nanoseconds": [pd.Timedelta(123_456_789_123_456_789, "ns"), None],
}  # fmt: skip


def test_what_a_function_returns_comes_back() -> None:
    for name, values in RETURNED.items():
        with case(name):
            numbers = data.range(len(values), override_num_blocks=1)
            rows = numbers.map(lambda row, values=values: {"x": values[row["id"]]}).take_all()
            assert is_same([row["x"] for row in rows], values)
            again = data.from_items([{"x": value} for value in values]).map(lambda row: row).take_all()
            assert is_same([row["x"] for row in again], values)


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "+02:00", "-05:30"])
@pytest.mark.parametrize("unit", UNITS)
def test_data_frames_have_the_zones_of_pyarrow(unit: str, zone: str | None) -> None:
    noon = 1_717_236_000 * 1000 ** UNITS.index(unit)
    for values in ([noon, None], [None, None]):
        table = pa.table({"a": pa.array(values, pa.timestamp(unit, zone))})
        pd.testing.assert_frame_equal(data.from_arrow(table).to_pandas(), table.to_pandas())


def test_functions_of_data_frames_see_the_time_of_the_zone() -> None:
    frame = pd.DataFrame({"a": pd.to_datetime(["2024-06-01 12:00", "2024-12-01 12:00"]).tz_localize("Europe/Berlin")})
    ds = data.from_pandas(frame)
    hours = ds.map_batches(lambda frame: pd.DataFrame({"hour": frame["a"].dt.hour}), batch_format="pandas")
    assert [row["hour"] for row in hours.take_all()] == [12, 12]
    same = ds.map_batches(lambda frame: frame, batch_format="pandas")
    pd.testing.assert_frame_equal(same.to_pandas(), frame)
    assert [row["a"].hour for row in same.take_all()] == [12, 12]


def test_scalars_of_numpy_and_pandas_are_what_they_mean() -> None:
    nano = pd.Timestamp(1_700_000_000_123_456_789, unit="ns")
    cases: dict[str, tuple[list[Any], list[Any]]] = {
        "whole": ([np.int8(1), np.uint64(2**64 - 1)], [1, 2**64 - 1]), "real": ([np.float16(0.5), np.float64(2)], [0.5, 2.0]),
        "flag": ([np.bool_(True)], [True]), "text": ([np.str_("a")], ["a"]), "bytes": ([np.bytes_(b"a")], [b"a"]),
        "moment": ([np.datetime64("2024-01-01T00:00:01", "s"), np.datetime64("NaT")], [datetime(2024, 1, 1, 0, 0, 1), None]),
        "day": ([np.datetime64("2024-01-01", "D")], [date(2024, 1, 1)]),
        "nanoseconds": ([np.datetime64(nano.value, "ns"), np.datetime64("NaT", "ns"), datetime(2024, 1, 1)],
                        [nano, None, pd.Timestamp(2024, 1, 1).as_unit("ns")]),
        "duration": ([np.timedelta64(5, "ms"), np.timedelta64(1, "D")], [timedelta(milliseconds=5), timedelta(1)]),
        "long nanoseconds": ([np.timedelta64(7, "ns")], [pd.Timedelta(7, "ns")]),
        "not a time": ([pd.NaT, pd.Timestamp(2024, 1, 1).as_unit("us")], [None, datetime(2024, 1, 1)]),
        "inside": ([{"l": [np.float32(0.5), None]}], [{"l": [0.5, None]}]), "tuples": ([(1, 2)], [[1, 2]]),
        "of both": ([Decimal("0.5"), 2], [Decimal("0.5"), Decimal("2.0")]),
        "zones": ([datetime(2024, 7, 1, 12, tzinfo=MADRID), datetime(2024, 1, 1, tzinfo=UTC)],
                  [datetime(2024, 7, 1, 10, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)]),
    }  # fmt: skip
    for name, (given_values, expected) in cases.items():
        with case(name):
            rows = data.from_items([{"x": value} for value in given_values]).take_all()
            assert is_same([row["x"] for row in rows], expected)


def test_arrays_with_gaps_come_back() -> None:
    arrays = {
        "one shape": [np.ones((2, 3), np.float32), None], "several": [np.ones((2, 3)), None, np.zeros((1, 1))],
        "lists": [np.arange(3), None, np.arange(1)], "flags": [np.array([[True]]), np.array([[False, True]])],
        "moments": [np.array(["2024-01-01"], "M8[ns]"), None], "empty": [np.empty((0, 2)), None],
    }  # fmt: skip
    for name, values in arrays.items():
        with case(name):
            column = data.from_items([{"x": value} for value in values]).map(lambda row: row).take_batch(9)["x"]
            for there, value in zip(column, values, strict=True):
                same = there is None if value is None else np.array_equal(there, value) and there.dtype == value.dtype
                assert same


def test_values_of_other_classes_are_kept_as_they_are() -> None:
    values = [{1}, {1: 2}, None, uuid.UUID(int=1), np.longdouble(1), np.complex64(1j), (1, "a"), [uuid.UUID(int=2), 3]]
    for value in values:
        with case(repr(value)):
            (row,) = data.from_items([{"x": value}]).map(lambda row: row).take_all()
            assert row == {"x": value} and type(row["x"]) is type(value)


def test_values_that_no_column_holds_are_told() -> None:
    cases: dict[str, tuple[list[Any], str]] = {
        "a zone": ([time(1, tzinfo=UTC)], "a time of day in a time zone"),
        "too long": ([timedelta.max], "64 bits"), "infinite": ([Decimal("Infinity")], "the decimal Infinity"),
        "digits": ([Decimal(10) ** 70, Decimal("1E-20")], "of 91 digits"), "two kinds": ([datetime(2024, 1, 1), 1], "two kinds"),
        "a zone and none": ([datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)], "two kinds"),
    }  # fmt: skip
    for name, (values, told) in cases.items():
        with case(name), pytest.raises((TypeError, ValueError), match=told):
            data.from_items([{"x": value} for value in values])


ALONE = """
import sys
for name in ("pandas", "pyarrow"):
    sys.modules[name] = None
from carril import data
rows = data.read_parquet(sys.argv[1])
print(rows.select_columns(["a", "b", "c"]).take_all())
try:
    rows.take_all()
except ValueError as error:
    print(error)
print(data.from_items(rows.select_columns(["a", "b", "c"]).take_all()).map(lambda row: row).take_all())
"""


def test_without_pandas_and_pyarrow_no_nanosecond_is_lost_in_silence(tmp_path: Path) -> None:
    columns = {"a": pa.array([1_000_001_000], pa.timestamp("ns", "Europe/Madrid")), "b": pa.array([1], pa.duration("ms")),
               "c": pa.array([Decimal("1.5")]), "d": pa.array([1_001], pa.timestamp("ns"))}  # fmt: skip
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    ran = subprocess.run(
        [sys.executable, "-c", ALONE, tmp_path / "a.parquet"], capture_output=True, text=True, check=True
    )
    values, told, again = ran.stdout.splitlines()
    assert values == again
    assert "datetime.datetime(1970, 1, 1, 1, 0, 1, 1, tzinfo=zoneinfo.ZoneInfo(key='Europe/Madrid'))" in values
    assert "datetime.timedelta(microseconds=1000)" in values and "Decimal('1.5')" in values
    assert "a value has nanoseconds (1001 of them)" in told and "install pandas" in told
