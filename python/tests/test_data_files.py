"""Which files are read: paths, lists, directories, globs, partitions in paths; and text, bytes and Arrow's own files."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest
from data_tables import assert_same, every_type, read_back, write_ipc

from carril import data
from carril.exceptions import CarrilError, ConfigError, NotFoundError, StorageError


def numbers(directory: Path, *names: str) -> None:
    """Parquet files with one row each: 0, 1, 2, …"""
    for number, name in enumerate(names):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"x": [number]}), path)


def xs(paths: Any, **options: Any) -> list[int]:
    return [row["x"] for row in data.read_parquet(paths, **options).take_all()]


def test_directories_lists_and_globs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers(
        tmp_path,
        "a.parquet",
        "b.parquet",
        "d/c.parquet",
        "d/e/f.pq",
        "_skipped.parquet",
        ".hidden.parquet",
        "_d/g.parquet",
    )
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "notes.txt").write_text("no data")
    assert xs(tmp_path) == xs(str(tmp_path)) == xs(f"{tmp_path}/") == xs(f"file://{tmp_path}") == [0, 1, 2, 3]
    # In the order in which they are given, and as often.
    assert xs([tmp_path / "b.parquet", tmp_path / "a.parquet", tmp_path / "b.parquet"]) == [1, 0, 1]
    assert xs([str(tmp_path / "d"), str(tmp_path / "a.parquet")]) == [2, 3, 0]
    assert xs(tmp_path / "_skipped.parquet") == [4], "what is named is read, whatever its name"
    assert xs(tmp_path / "*.parquet") == [0, 1]
    assert xs(tmp_path / "**" / "*.parquet") == [0, 1, 2]
    assert xs(tmp_path / "[bc].parquet") == [1] and xs(tmp_path / "?.parquet") == [0, 1]
    assert xs(tmp_path / "d*") == [2, 3]
    assert xs(tmp_path / "**", file_extensions=["pq"]) == xs(tmp_path, file_extensions="pq") == [3]
    monkeypatch.chdir(tmp_path)
    assert xs("d/c.parquet") == xs("./d/../d/c.parquet") == xs("d/c*") == [2]
    assert data.read_parquet("d").input_files() == [f"{tmp_path}/d/c.parquet", f"{tmp_path}/d/e/f.pq"]
    assert data.read_parquet(f"{tmp_path}/*.parquet").count() == 2


def test_names_that_look_like_globs_links_and_other_odd_names(tmp_path: Path) -> None:
    odd = ["a[1].parquet", "b c.parquet", "ü 日本.parquet", "d#?.parquet", "e%20f.parquet", "x=y.parquet"]
    numbers(tmp_path, *odd)
    for number, name in enumerate(odd):
        assert xs(tmp_path / name) == [number], name
    (tmp_path / "link.parquet").symlink_to(tmp_path / odd[1])
    (tmp_path / "nowhere.parquet").symlink_to(tmp_path / "gone")
    os.mkfifo(tmp_path / "pipe.parquet")
    assert sorted(xs(tmp_path)) == [0, 1, 1, 2, 3, 4, 5]


def test_partitions_in_paths_are_columns_as_pyarrow_has_them(tmp_path: Path) -> None:
    rows = [(2023, "a", 0), (2023, "b c", 1), (2024, "a", 2), (2024, None, 3)]
    table = pa.table({
        "year": pa.array([year for year, _, _ in rows]), "kind": [kind for _, kind, _ in rows], "x": [x for _, _, x in rows],
    })  # fmt: skip
    pq.write_to_dataset(table, tmp_path, partition_cols=["year", "kind"])
    ours = read_back(data.read_parquet(tmp_path))
    schema = pa.schema([("year", pa.int64()), ("kind", pa.string())])
    theirs = pds.dataset(tmp_path, format="parquet", partitioning=pds.partitioning(schema, flavor="hive")).to_table()
    assert_same(ours.sort_by("x"), theirs.sort_by("x"))
    assert sorted(xs(tmp_path, filter=[("year", "=", 2023)])) == [0, 1]
    assert sorted(xs(tmp_path, filter=[("kind", "=", "a"), ("x", ">", 0)])) == [2]
    assert data.read_parquet(tmp_path, filter=[("year", ">", 2023)]).num_blocks() == 2, "other files are not read"
    assert data.read_parquet(tmp_path, columns=["kind", "x"]).columns() == ["kind", "x"]
    assert data.read_parquet(tmp_path, partitioning=None).columns() == ["x"]
    assert data.read_parquet(tmp_path, partitioning="hive").columns() == data.read_parquet(tmp_path).columns() != ["x"]
    only = data.read_parquet(tmp_path / "year=2024" / "**")
    assert {row["year"] for row in only.take_all()} == {2024}


def test_partitions_of_other_formats_and_of_other_types(tmp_path: Path) -> None:
    for number, name in enumerate(["k=1/m=01", "k=2/m=12", "k=x%20y/m=03"]):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a.csv").write_text(f"x\n{number}\n")
    rows = data.read_csv(tmp_path).take_all()
    assert rows == [{"x": 0, "k": "1", "m": 1}, {"x": 1, "k": "2", "m": 12}, {"x": 2, "k": "x y", "m": 3}]
    (tmp_path / "k=1" / "m=01" / "a.csv").write_text("x,k\n0,own\n")
    with pytest.raises(CarrilError, match="`k` is only in the first"):
        data.read_csv(tmp_path)


@pytest.mark.parametrize("format", ["parquet", "csv", "json", "text", "binary_files", "ipc"])
def test_paths_are_a_column_when_asked_for(tmp_path: Path, format: str) -> None:
    table = pa.table({"x": [1, 2]})
    write = {
        "parquet": lambda path: pq.write_table(table, path),
        "ipc": lambda path: write_ipc(table, path),
        "csv": lambda path: path.write_text("x\n1\n2\n"),
        "json": lambda path: path.write_text('{"x":1}\n{"x":2}\n'),
    }.get(format, lambda path: path.write_text("1\n2\n"))
    ending = {"text": "txt", "binary_files": "bin", "ipc": "arrow"}.get(format, format)
    paths = [tmp_path / f"{name}.{ending}" for name in "ab"]
    for path in paths:
        write(path)
    rows = getattr(data, f"read_{format}")(tmp_path, include_paths=True).take_all()
    each = 1 if format == "binary_files" else 2
    assert [row["path"] for row in rows] == [str(path) for path in paths for _ in range(each)]
    if format in ("parquet", "csv", "json", "ipc"):
        assert getattr(data, f"read_{format}")(tmp_path, include_paths=True, columns=["x"]).columns() == ["x", "path"]


def test_missing_paths_may_be_passed_over(tmp_path: Path) -> None:
    numbers(tmp_path, "a.parquet")
    there, gone = tmp_path / "a.parquet", tmp_path / "gone.parquet"
    with pytest.raises(NotFoundError, match=f"nothing is at `{gone}`"):
        data.read_parquet([there, gone])
    assert xs([there, gone], ignore_missing_paths=True) == [0]


def test_text_is_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufefferste\r\n\n  \nzweite Zeile \u2028 ü\n\tdritte".encode())

    def lines(**options: Any) -> list[str]:
        return [row["text"] for row in data.read_text(path, **options).take_all()]

    assert lines() == ["erste", "zweite Zeile \u2028 ü", "\tdritte"]
    assert lines(drop_empty_lines=False) == ["erste", "", "  ", "zweite Zeile \u2028 ü", "\tdritte"]
    path.write_bytes("caf\u00e9\n".encode("latin-1"))
    assert lines(encoding="latin-1") == ["café"]
    with pytest.raises(StorageError, match="at line 1: it is not UTF-8"):
        lines()
    with pytest.raises(ConfigError, match="the encoding `utf-16` cannot be read"):
        lines(encoding="utf-16")
    path.write_bytes(b"")
    assert lines() == []


def test_binary_files_are_rows(tmp_path: Path) -> None:
    contents = [bytes([number]) * number for number in range(20)]
    for number, content in enumerate(contents):
        (tmp_path / f"{number:02}.bin").write_bytes(content)
    assert [row["bytes"] for row in data.read_binary_files(tmp_path).take_all()] == contents
    assert data.read_binary_files(tmp_path).count() == 20


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("kind", ["file", "stream"])
def test_arrow_files_and_streams_of_every_type(tmp_path: Path, kind: str, compression: str | None) -> None:
    for name, column in every_type().items():
        path = tmp_path / "a.arrow"
        table = pa.table({"x": pa.concat_arrays([column] * 5), "y": range(5 * len(column))})
        write_ipc(table, path, kind, compression)
        dataset = data.read_ipc(path)
        assert_same(read_back(dataset), table)
        assert read_back(data.read_ipc(path, columns=["y"])).column("y").to_pylist() == table["y"].to_pylist(), name
    write_ipc(table.slice(0, 0), path, kind, compression)
    assert (data.read_ipc(path).count(), data.read_ipc(path).columns()) == (0, ["x", "y"])


def test_feather_files_and_damaged_ones(tmp_path: Path) -> None:
    import pyarrow.feather as feather

    path = tmp_path / "a.feather"
    table = pa.table({"x": range(1000), "s": [str(n) for n in range(1000)]})
    feather.write_feather(table, path)
    assert_same(read_back(data.read_ipc(tmp_path)), table)
    whole = path.read_bytes()
    for content in (whole[:100], whole[:-50], b"ARROW1", b"", b"\xff" * 1000):
        path.write_bytes(content)
        with pytest.raises(StorageError, match=f"cannot read `{path}`"):
            data.read_ipc(path).take_all()
