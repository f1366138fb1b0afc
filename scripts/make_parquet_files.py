"""Writes the Parquet files that other tools made, for `python/tests/test_data_parquet.py`.

Run where these tools are installed: `pip install polars duckdb fastparquet pandas pyarrow`, then
`python scripts/make_parquet_files.py python/tests/files`. The files are kept, for the tests have no need of the tools.
Beside each `.parquet` stands a `.json` with its rows, as the tool itself gives them.
"""

import datetime
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import fastparquet
import pandas
import polars

WHEN = datetime.datetime(2024, 2, 29, 12, 30, 15, 250_000)
ROWS: list[dict[str, Any]] = [
    {"whole": 1, "real": 1.5, "text": "a", "flag": True, "day": datetime.date(2024, 2, 29), "moment": WHEN},
    {"whole": None, "real": None, "text": None, "flag": None, "day": None, "moment": None},
    {
        "whole": -3,
        "real": -0.25,
        "text": "ünïcödé 🎉",
        "flag": False,
        "day": datetime.date(1969, 12, 31),
        "moment": WHEN,
    },
]
NESTED: list[dict[str, Any]] = [
    {"numbers": [1, None, 3], "pair": {"x": 1, "y": "a"}, "deep": [{"z": [1.5]}, None], "price": Decimal("12.34")},
    {"numbers": None, "pair": None, "deep": None, "price": None},
    {"numbers": [], "pair": {"x": None, "y": None}, "deep": [{"z": None}], "price": Decimal("-0.01")},
]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    return str(value) if isinstance(value, datetime.date | Decimal) else value


def _keep(directory: Path, name: str, rows: list[dict[str, Any]]) -> None:
    (directory / f"{name}.json").write_text(
        json.dumps([_plain(row) for row in rows], ensure_ascii=False, indent=1) + "\n"
    )


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    both = [one | other for one, other in zip(ROWS, NESTED, strict=True)]

    frame = polars.DataFrame(both)
    frame.write_parquet(directory / "polars.parquet", compression="zstd", row_group_size=2)
    _keep(directory, "polars", frame.to_dicts())

    connection = duckdb.connect()
    connection.register("given", frame.to_arrow())
    target = directory / "duckdb.parquet"
    connection.execute(f"copy given to '{target}' (format parquet, compression snappy)")
    _keep(directory, "duckdb", connection.sql(f"from '{target}'").to_arrow_table().to_pylist())

    flat = pandas.DataFrame(ROWS).astype({"whole": "Int64", "flag": "boolean"}).astype({"day": "datetime64[ns]"})
    target = directory / "fastparquet.parquet"
    fastparquet.write(str(target), flat, compression="GZIP", row_group_offsets=2, has_nulls=True)
    again = fastparquet.ParquetFile(str(target)).to_pandas()
    rows = [{k: None if pandas.isna(v) else v for k, v in row.items()} for row in again.to_dict("records")]
    rows = [{k: v.to_pydatetime() if isinstance(v, pandas.Timestamp) else v for k, v in row.items()} for row in rows]
    _keep(directory, "fastparquet", rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
