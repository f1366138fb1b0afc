"""Data sets written to Parquet, CSV and JSON, and read back by pyarrow, pandas and our own readers."""

import datetime
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from s3_server import Place, S3Server, place_fixture, s3_fixture, set_variables  # noqa: F401

from carril import data
from carril.exceptions import CarrilError, ConfigError, ConfigTypeError, StorageError

PLAIN = pa.table(
    {
        "number": pa.array([1, None, 3, -4], pa.int64()),
        "real": pa.array([0.5, 1e-300, None, float("inf")], pa.float64()),
        "text": ['a "quoted" one', "two\nlines, and a comma", None, "ü"],
        "flag": [True, None, False, True],
        "day": pa.array([datetime.date(2024, 2, 29), None, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
        "time": pa.array([0, 1_700_000_000_123_456, None, 5], pa.timestamp("us", "UTC")),
    }
)
NESTED = PLAIN.append_column("list", pa.array([[1, 2], [], None, [None]], pa.list_(pa.int32()))).append_column(
    "struct", pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, {"a": 4, "b": None}])
)


def files_of(directory: Path, ending: str) -> list[Path]:
    """All that is there, hidden or not: it must be nothing but files of this kind."""
    found = sorted(path for path in directory.rglob("*") if path.is_file())
    assert all(path.name.endswith(ending) for path in found), found
    return found


@pytest.mark.parametrize("compression", [None, "snappy", "zstd", "gzip", "lz4", "brotli", "none"])
def test_parquet(tmp_path: Path, compression: str | None) -> None:
    given = {} if compression is None else {"compression": compression}
    data.from_arrow(NESTED).write_parquet(str(tmp_path / "out"), **given)
    (file,) = files_of(tmp_path / "out", ".parquet")
    assert pq.read_table(file) == NESTED
    chunk = pq.read_metadata(file).row_group(0).column(0)
    assert chunk.compression == {None: "SNAPPY", "none": "UNCOMPRESSED"}.get(compression, str(compression).upper())
    back = pa.concat_tables(data.read_parquet(str(tmp_path / "out")).to_arrow_refs())
    assert back == NESTED


def test_row_groups_dictionaries_and_statistics(tmp_path: Path) -> None:
    data.range(1000).write_parquet(tmp_path, row_group_size=300, use_dictionary=False, write_statistics=False)
    (file,) = files_of(tmp_path, ".parquet")
    metadata = pq.read_metadata(file)
    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == [300, 300, 300, 100]
    chunk = metadata.row_group(0).column(0)
    assert not chunk.has_dictionary_page
    assert not chunk.is_stats_set


def test_floats_have_no_dictionary_unless_it_is_asked_for(tmp_path: Path) -> None:
    columns = {"x": np.zeros(10), "t": np.zeros((10, 3)), "n": np.zeros(10, dtype=int)}
    rows = data.from_items([dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)])
    for number, options in enumerate([{}, {"use_dictionary": True}]):
        rows.write_parquet(tmp_path / str(number), **options)
        group = pq.read_metadata(files_of(tmp_path / str(number), ".parquet")[0]).row_group(0)
        has = [group.column(place).has_dictionary_page for place in range(3)]
        assert has == ([True] * 3 if options else [False, False, True])


def test_csv(tmp_path: Path) -> None:
    data.from_arrow(PLAIN).write_csv(str(tmp_path / "out"))
    (file,) = files_of(tmp_path / "out", ".csv")
    read = pa.csv.read_csv(file, parse_options=pa.csv.ParseOptions(newlines_in_values=True))
    assert read.column_names == PLAIN.column_names
    for name in ("number", "real", "flag", "day"):
        assert read[name].to_pylist() == PLAIN[name].to_pylist()
    # A missing text and an empty one are the same in CSV.
    assert read["text"].to_pylist() == [text or "" for text in PLAIN["text"].to_pylist()]
    assert read["time"].cast(pa.timestamp("us", "UTC")).to_pylist() == PLAIN["time"].to_pylist()
    rows = data.read_csv(str(tmp_path / "out")).take_all()
    assert [row["number"] for row in rows] == PLAIN["number"].to_pylist()
    frame = pd.read_csv(file)
    assert frame["text"][1] == "two\nlines, and a comma"


def test_how_csv_is_written(tmp_path: Path) -> None:
    rows = data.from_items([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])
    rows.write_csv(str(tmp_path / "1"), include_header=False, delimiter=";")
    rows.write_csv(str(tmp_path / "2"), write_options=pa.csv.WriteOptions(include_header=False, delimiter="|"))
    rows.write_csv(str(tmp_path / "3"), arrow_csv_args_fn=lambda: {"quoting_style": "all_valid"})
    rows.write_csv(str(tmp_path / "4"), arrow_open_stream_args={"compression": "gzip"})
    rows.write_csv(str(tmp_path / "5"), compression="zstd")
    assert [files_of(tmp_path / name, ".csv")[0].read_text() for name in "123"] == [
        "1;x\n2;y\n",
        "1|x\n2|y\n",
        '"a","b"\n"1","x"\n"2","y"\n',
    ]
    assert pd.read_csv(files_of(tmp_path / "4", ".csv.gz")[0])["a"].tolist() == [1, 2]
    assert data.read_csv(str(tmp_path / "5")).take_all() == rows.take_all()


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([[1], [2]]), "lists"),
        (pa.array([{"x": 1}, None]), "structures"),
        (pa.array([b"a", b"b"]), "bytes"),
        (pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((2, 3, 3))), "tensors"),
    ],
)
def test_what_csv_cannot_hold(tmp_path: Path, column: pa.Array, kind: str) -> None:
    dataset = data.from_arrow(pa.table({"fine": [1, 2], "odd": column}))
    with pytest.raises(ConfigError, match=rf"CSV cannot hold the column `odd`, which has {kind}") as caught:
        dataset.write_csv(str(tmp_path / "out"))
    assert "drop_columns" in caught.value.hints[0]
    assert not (tmp_path / "out").exists()


def test_json(tmp_path: Path) -> None:
    data.from_arrow(NESTED).write_json(str(tmp_path / "out"))
    (file,) = files_of(tmp_path / "out", ".json")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for name in ("number", "text", "flag", "list", "struct"):
        assert [row[name] for row in rows] == NESTED[name].to_pylist()
    assert rows[0]["day"] == "2024-02-29"
    assert pd.read_json(file, lines=True)["struct"][2] == {"a": None, "b": "y"}
    assert [row["list"] for row in data.read_json(str(tmp_path / "out")).take_all()] == NESTED["list"].to_pylist()
    data.from_arrow(NESTED).write_json(str(tmp_path / "array"), orient="records", lines=False, compression="gzip")
    (file,) = files_of(tmp_path / "array", ".json.gz")
    assert len(pd.read_json(file)) == 4


def test_tensors(tmp_path: Path) -> None:
    tensors = np.arange(5 * 2 * 3, dtype=np.float32).reshape(5, 2, 3)
    dataset = data.from_numpy(tensors)
    dataset.write_parquet(tmp_path / "parquet")
    read = pq.read_table(files_of(tmp_path / "parquet", ".parquet")[0])
    assert isinstance(read.schema.field("data").type, pa.FixedShapeTensorType)
    assert np.array_equal(read["data"].combine_chunks().to_numpy_ndarray(), tensors)
    assert np.array_equal(data.read_parquet(str(tmp_path / "parquet")).take_batch(5)["data"], tensors)
    dataset.write_json(tmp_path / "json")
    lines = files_of(tmp_path / "json", ".json")[0].read_text().splitlines()
    assert [json.loads(line)["data"] for line in lines] == tensors.tolist()
    several = [{"image": np.full((height, 2), height, dtype=np.uint8)} for height in (1, 3, 2)]
    data.from_items(several).write_parquet(tmp_path / "several")
    back = data.read_parquet(str(tmp_path / "several")).take_all()
    assert [row["image"].shape for row in back] == [(1, 2), (3, 2), (2, 2)]
    assert all(np.array_equal(row["image"], given["image"]) for row, given in zip(back, several, strict=True))


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_a_data_set_without_rows(tmp_path: Path, format: str) -> None:
    empty = data.from_arrow(PLAIN).limit(0)
    getattr(empty, f"write_{format}")(tmp_path)
    (file,) = files_of(tmp_path, f".{format}")
    read = pq.read_table(file) if format == "parquet" else pa.csv.read_csv(file)
    assert (read.num_rows, read.column_names) == (0, PLAIN.column_names)
    back = getattr(data, f"read_{format}")(str(tmp_path))
    assert (back.count(), back.columns()) == (0, PLAIN.column_names)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"min_rows_per_file": 100_000}, [131_072, 118_928]),
        ({"num_rows_per_file": 250_000}, [250_000]),
        ({"max_rows_per_file": 70_000}, [70_000, 70_000, 70_000, 40_000]),
        ({"min_rows_per_file": 50_000, "max_rows_per_file": 50_000}, [50_000] * 5),
    ],
)
def test_rows_of_a_file(tmp_path: Path, options: dict[str, int], expected: list[int]) -> None:
    numbers = data.from_numpy(np.arange(250_000))
    numbers.write_parquet(tmp_path, **options)
    files = files_of(tmp_path, ".parquet")
    assert [pq.read_metadata(file).num_rows for file in files] == expected
    assert np.array_equal(pq.read_table(tmp_path)["data"].to_numpy(), np.arange(250_000))


@pytest.mark.parametrize(
    ("blocks", "expected"), [((3,), [66_666, 66_667, 66_667]), ((None, 150_000), [50_000, 150_000]), ((1,), [200_000])]
)
def test_a_file_for_each_block_that_was_asked_for(tmp_path: Path, blocks: tuple[Any, ...], expected: list[int]) -> None:
    numbers = data.from_numpy(np.arange(200_000))
    numbers.repartition(*blocks).write_csv(tmp_path / "csv")
    numbers.repartition(*blocks).write_parquet(tmp_path / "parquet")
    files = files_of(tmp_path / "parquet", ".parquet")
    assert sorted(pq.read_metadata(file).num_rows for file in files) == expected
    assert len(files_of(tmp_path / "csv", ".csv")) == len(expected)
    assert np.array_equal(np.sort(pq.read_table(tmp_path / "parquet")["data"].to_numpy()), np.arange(200_000))
    # Rows that are asked for count more.
    numbers.repartition(*blocks).write_parquet(tmp_path / "most", max_rows_per_file=100_000)
    assert len(files_of(tmp_path / "most", ".parquet")) == 2


def test_partitions(tmp_path: Path) -> None:
    rows = [
        {"n": number, "year": 2020 + number % 3, "place": ["a/b", "c d", "ü", None][number % 4]} for number in range(24)
    ]
    for _ in range(2):
        data.from_items(rows).write_parquet(str(tmp_path), partition_cols=["year", "place"])
    assert len(files_of(tmp_path, ".parquet")) == 2 * 12
    partitioning = pa.dataset.partitioning(pa.schema([("year", pa.int64()), ("place", pa.string())]), flavor="hive")
    read = pa.dataset.dataset(tmp_path, partitioning=partitioning).to_table().to_pylist()
    expected = sorted(rows * 2, key=lambda row: row["n"])
    assert sorted(read, key=lambda row: row["n"]) == expected
    ours = data.read_parquet(str(tmp_path)).take_all()
    assert sorted(ours, key=lambda row: row["n"]) == expected
    with pytest.raises(ConfigError, match="no column `yaer`; there are `n`, `year`, `place`"):
        data.from_items(rows).write_parquet(str(tmp_path / "1"), partition_cols=["yaer"])
    with pytest.raises(ConfigError, match="none is left to write"):
        data.from_items(rows).write_csv(str(tmp_path / "2"), partition_cols=["n", "year", "place"])


def test_many_partitions_need_few_open_files(tmp_path: Path) -> None:
    data.range(3000).map_batches(lambda batch: {"id": batch["id"], "part": batch["id"] % 300}).write_parquet(
        tmp_path, partition_cols=["part"]
    )
    assert len(list(tmp_path.iterdir())) == 300
    read = data.read_parquet(str(tmp_path)).take_all()
    assert sorted(row["id"] for row in read) == list(range(3000))
    assert all(row["part"] == row["id"] % 300 for row in read)


def test_modes(tmp_path: Path) -> None:
    one, two = data.from_items([{"x": 1}]), data.from_items([{"x": 2}])
    one.write_parquet(tmp_path)
    two.write_parquet(tmp_path)
    assert sorted(pq.read_table(tmp_path)["x"].to_pylist()) == [1, 2]
    two.write_parquet(tmp_path, mode="ignore")
    with pytest.raises(ConfigError, match=r"there are files at .* already"):
        two.write_parquet(tmp_path, mode="error")
    assert len(files_of(tmp_path, ".parquet")) == 2
    two.write_parquet(tmp_path, mode="overwrite")
    assert pq.read_table(tmp_path)["x"].to_pylist() == [2]
    # A data set may be written over what it is read from.
    data.read_parquet(str(tmp_path)).map(lambda row: {"x": row["x"] + 1}).write_parquet(tmp_path, mode="overwrite")
    assert pq.read_table(tmp_path)["x"].to_pylist() == [3]
    two.write_csv(tmp_path / "new", mode="error")
    with pytest.raises(ConfigError, match="`mode='upsert'`"):
        two.write_parquet(tmp_path, mode="upsert")


class _Names:
    def get_filename_for_block(self, block: Any, write_uuid: str, task_index: int, block_index: int) -> str:
        return f"{len(block)}-rows-{block_index}.csv"


class _OlderNames:
    def get_filename_for_block(self, block: Any, task_index: int, block_index: int) -> str:
        return "same.csv"


def test_names_of_files(tmp_path: Path) -> None:
    numbers = data.from_numpy(np.arange(100_000))
    numbers.write_csv(tmp_path / "1", filename_provider=_Names(), min_rows_per_file=1)
    assert [file.name for file in files_of(tmp_path / "1", ".csv")] == ["34464-rows-1.csv", "65536-rows-0.csv"]
    numbers.write_csv(tmp_path / "2", filename_provider=_OlderNames(), min_rows_per_file=1)
    assert [file.name for file in files_of(tmp_path / "2", ".csv")] == ["same-1.csv", "same.csv"]
    assert pa.dataset.dataset(tmp_path / "2", format="csv").count_rows() == 100_000


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_nothing_is_left_of_a_write_that_fails(tmp_path: Path, mode: str) -> None:
    data.from_items([{"id": -1}]).write_parquet(tmp_path)
    before = files_of(tmp_path, ".parquet")

    def fail(batch: dict[str, Any]) -> dict[str, Any]:
        if batch["id"][0] > 150_000:
            raise ValueError("no more of this")
        return {"id": batch["id"], "part": batch["id"] % 7}

    dataset = data.range(400_000).map_batches(fail, batch_size=10_000)
    for partitions in ([], ["part"]):
        with pytest.raises(Exception, match="no more of this"):
            dataset.write_parquet(tmp_path, mode=mode, max_rows_per_file=5_000, partition_cols=partitions)
        assert files_of(tmp_path, ".parquet") == before
        assert [path for path in tmp_path.rglob("*") if path.is_dir()] == []
        with pytest.raises(Exception, match="no more of this"):
            dataset.write_csv(tmp_path / "new" / "deep", max_rows_per_file=5_000)
        assert not (tmp_path / "new").exists()


def test_types_that_change_on_the_way(tmp_path: Path) -> None:
    def change(batch: dict[str, Any]) -> dict[str, Any]:
        return {"x": batch["id"] if batch["id"][0] < 100_000 else batch["id"] / 2}

    with pytest.raises(CarrilError, match="`x`"):
        data.range(300_000).map_batches(change).write_parquet(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_wrong_arguments(tmp_path: Path) -> None:
    rows = data.from_items([{"x": 1}])
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file, and a directory is written to"):
        rows.write_parquet(tmp_path / "file")
    with pytest.raises(ConfigError, match="there is no directory"):
        rows.write_parquet(tmp_path / "new", try_create_dir=False)
    with pytest.raises(ConfigError, match="compression `lzo`"):
        rows.write_parquet(tmp_path / "new", compression="lzo")
    with pytest.raises(ConfigTypeError, match="`write_parquet` has no option `compresion`"):
        rows.write_parquet(tmp_path / "new", compresion="zstd")
    with pytest.raises(ConfigError, match="`min_rows_per_file=0`"):
        rows.write_parquet(tmp_path / "new", min_rows_per_file=0)
    with pytest.raises(ConfigError, match='`orient` can only be "records"'):
        rows.write_json(tmp_path / "new", orient="split")
    with pytest.raises(ConfigError, match="no storage for `ftp://`"):
        rows.write_parquet("ftp://host/path")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    script = """
import resource, signal, sys
from carril import data
from carril.exceptions import StorageError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
for format in ("parquet", "csv", "json"):
    try:
        getattr(data.range(1_000_000), f"write_{format}")(sys.argv[1])
    except StorageError as error:
        print(format, "cannot write" in str(error), "File too large" in str(error))
"""
    assert resource.RLIMIT_FSIZE and signal.SIGXFSZ
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "out")], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["parquet True True", "csv True True", "json True True"]
    assert not (tmp_path / "out").exists()


def test_memory_does_not_grow_with_the_data(tmp_path: Path) -> None:
    script = """
import resource, sys
import numpy as np
from carril import data
data.DataContext.get_current().execution_options.resource_limits.object_store_memory = 64 << 20
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
rows = data.range_tensor(int(sys.argv[2]), shape=(64,))
data.range_tensor(100_000, shape=(64,)).write_parquet(sys.argv[1] + "/warm", compression="none")
before = peak()
rows.write_parquet(sys.argv[1] + "/out", compression="none")
print(peak() - before)
"""
    rows = 4_000_000 if os.environ.get("CARRIL_LONG") else 1_000_000
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), str(rows)], capture_output=True, text=True, check=True
    )
    # In memory the rows have 512 MB at least.
    assert int(done.stdout) < 250, done.stdout
    assert pa.dataset.dataset(tmp_path / "out").count_rows() == rows


def test_s3(s3: S3Server, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    set_variables(monkeypatch, s3.variables())
    for format, number in itertools.product(("parquet", "csv", "json"), range(2)):
        getattr(data.range(1000), f"write_{format}")(f"{place.uri}/{format}", max_rows_per_file=400)
        files = files_of(place.directory / format, f".{format}")
        assert len(files) == 3 * (number + 1)
        read = getattr(data, f"read_{format}")(f"{place.uri}/{format}").take_all()
        assert sorted(row["id"] for row in read) == sorted(list(range(1000)) * (number + 1))
    rows = data.from_items([{"id": number, "x": number} for number in range(10)])
    rows.write_parquet(f"{place.uri}/parquet", mode="overwrite", partition_cols="id")
    assert len(files_of(place.directory / "parquet", ".parquet")) == 10

    def fail(row: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("no more of this")

    with pytest.raises(Exception, match="no more of this"):
        data.range(10).union(data.range(10).map(fail)).write_csv(f"{place.uri}/new", max_rows_per_file=5)
    assert not [path for path in (place.directory / "new").rglob("*") if path.is_file()]
    with pytest.raises(StorageError):
        data.range(10).write_csv("s3://no-such-bucket/path")


def test_a_file_system_of_python(tmp_path: Path) -> None:
    import pyarrow.fs

    below = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    rows = data.from_items([{"id": number, "x": number} for number in range(10)])
    rows.write_parquet("a/b", filesystem=below, partition_cols=["id"])
    assert len(files_of(tmp_path / "a" / "b", ".parquet")) == 10
    with pytest.raises(ConfigTypeError, match="`filesystem`"):
        data.range(10).write_parquet(str(tmp_path), filesystem="s3")


def test_a_null_that_is_alone_in_its_line_is_a_row(tmp_path: Path) -> None:
    rows = [{"a": 1}, {"a": None}, {"a": 3}]
    data.from_items(rows).write_csv(tmp_path)
    assert data.read_csv(str(tmp_path)).take_all() == rows
