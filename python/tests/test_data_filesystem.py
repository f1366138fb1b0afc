"""`filesystem=` of the readers: files in an object of pyarrow or fsspec are read as those on a disk are."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import own_filesystems
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from data_samples import MEMBERS
from data_tables import case
from fsspec.implementations.dirfs import DirFileSystem
from s3_server import ACCESS_KEY, SECRET_KEY, Place, S3Server, place_fixture, s3_fixture  # noqa: F401

from carril import data, train
from carril.exceptions import ConfigError, ConfigTypeError, NotFoundError, StorageError

TABLE = pa.table({"x": range(100), "s": [str(number) for number in range(100)]})
ROWS = TABLE.to_pylist()

KINDS: dict[str, Callable[[Path], Any]] = {
    "pyarrow's subtree": lambda root: pyarrow.fs.SubTreeFileSystem(str(root), pyarrow.fs.LocalFileSystem()),
    "fsspec's directory": lambda root: DirFileSystem(str(root), fsspec.filesystem("file")),
    "pyarrow over fsspec": lambda root: pyarrow.fs.PyFileSystem(
        pyarrow.fs.FSSpecHandler(DirFileSystem(str(root), fsspec.filesystem("file")))
    ),
    "a class of the user's own": lambda root: own_filesystems.Drawer(str(root)),
}


def write_each_format(directory: Path) -> None:
    directory.mkdir(parents=True)
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    pq.write_table(TABLE, directory / "a.parquet", row_group_size=30)
    (directory / "a.csv").write_text("x,s\n" + "".join(f"{row['x']},{row['s']}\n" for row in ROWS))
    (directory / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (directory / "a.png").write_bytes(MEMBERS[0][1])
    np.save(directory / "a.npy", np.arange(12).reshape(4, 3))


def read_each_format(at: str, filesystem: Any) -> None:
    assert data.read_parquet(f"{at}/a.parquet", filesystem=filesystem).take_all() == ROWS
    csv = data.read_csv(f"{at}/a.csv", filesystem=filesystem, column_types={"s": str})
    assert csv.take_all() == ROWS
    assert data.read_json(f"{at}/a.jsonl.gz", filesystem=filesystem).take_all() == ROWS
    assert data.read_images(f"{at}/a.png", filesystem=filesystem).take_all()[0]["image"].shape == (2, 3, 3)
    assert data.read_numpy(f"{at}/a.npy", filesystem=filesystem).take_batch(4)["data"].shape == (4, 3)
    packed = data.read_binary_files(f"{at}/a.jsonl.gz", filesystem=filesystem).take_all()[0]["bytes"]
    assert gzip.decompress(packed).count(b"\n") == 100, "a file is its bytes"


@pytest.mark.parametrize("kind", KINDS)
def test_each_format(kind: str, tmp_path: Path) -> None:
    write_each_format(tmp_path / "some" / "data")
    read_each_format("some/data", KINDS[kind](tmp_path))


def test_local_ones_are_read_as_paths(tmp_path: Path) -> None:
    write_each_format(tmp_path / "data")
    for filesystem in (pyarrow.fs.LocalFileSystem(), fsspec.filesystem("file")):
        read_each_format(str(tmp_path / "data"), filesystem)


def test_directories_globs_and_partitions(tmp_path: Path) -> None:
    names = ["a.parquet", "b c.parquet", "k=1/d.parquet", "k=2/ü.parquet", "_skipped.parquet", "k=2/notes.txt"]
    for number, name in enumerate(names):
        (tmp_path / "t" / name).parent.mkdir(exist_ok=True, parents=True)
        pq.write_table(pa.table({"x": [number]}), tmp_path / "t" / name)
    for kind, make in KINDS.items():
        filesystem = make(tmp_path)

        def xs(*paths: str, filesystem: Any = filesystem) -> list[int]:
            return [row["x"] for row in data.read_parquet(list(paths), filesystem=filesystem).take_all()]

        with case(kind):
            assert xs("t/") == [0, 1, 2, 3] and xs("t/k=*") == [2, 3]
            assert xs("t/b c.parquet", "t/a.parquet") == [1, 0]
            with pytest.raises(NotFoundError, match="nothing is at"):
                xs("t/none.parquet")
            rows = data.read_parquet("t/k=*", filesystem=filesystem, include_paths=True).take_all()
            assert rows[1] == {"x": 3, "k": 2, "path": "t/k=2/ü.parquet"}


def test_files_in_the_memory_of_this_process() -> None:
    memory = fsspec.filesystem("memory")
    try:
        for number in range(3):
            with memory.open(f"/mine/{number}.parquet", "wb") as file:
                pq.write_table(TABLE.slice(number * 30, 30), file)
        memory.pipe("/other/a.csv", b"a\n1\n")
        for path in ("memory://mine", "/mine", "mine/*.parquet", "memory://mine/?.parquet"):
            with case(path):
                assert data.read_parquet(path, filesystem=memory).take_all() == ROWS[:90]
        assert data.read_csv("/other/a.csv", filesystem=memory).map(lambda row: row).take_all() == [{"a": 1}]
    finally:
        memory.rm("/mine", recursive=True)
        memory.rm("/other", recursive=True)


def test_s3_with_the_keys_in_the_object(s3: S3Server, place: Place) -> None:
    filesystem = pyarrow.fs.S3FileSystem(
        access_key=ACCESS_KEY, secret_key=SECRET_KEY, endpoint_override=f"127.0.0.1:{s3.port}", scheme="http", region="us-east-1"
    )  # fmt: skip
    write_each_format(place.directory / "data")
    path = place.uri.removeprefix("s3://")
    for at in (f"{path}/data", f"{place.uri}/data"):
        read_each_format(at, filesystem)
    data.from_items(ROWS).write_json(f"{path}/made", filesystem=filesystem, compression="gzip")
    assert data.read_json(f"{path}/made", filesystem=filesystem).take_all() == ROWS
    # Only the first files of many are looked into.
    assert data.read_parquet(f"{path}/data/a.parquet", filesystem=filesystem).limit(5).take_all() == ROWS[:5]


@pytest.mark.usefixtures("head")
def test_the_ranks_of_a_run_read_through_it(tmp_path: Path) -> None:
    write_each_format(tmp_path / "data")
    subtree = KINDS["pyarrow's subtree"](tmp_path)

    def loop() -> list[int]:
        shard = train.get_dataset_shard("train")
        return [int(x) for batch in shard.iter_batches(batch_size=10) for x in batch["x"]]

    trainer = train.DataParallelTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=str(tmp_path / "runs"), verbose=0),
        datasets={"train": data.read_parquet("data/a.parquet", filesystem=subtree)},
    )
    assert sorted(trainer.fit().return_value) == list(range(50))


RESIDENT = """
import os, resource, sys
import pyarrow.fs
from carril import data
from carril.data import DataContext, ExecutionOptions, ExecutionResources
limits = ExecutionResources(object_store_memory=32 << 20)
DataContext.get_current().execution_options = ExecutionOptions(resource_limits=limits)
far = pyarrow.fs.SubTreeFileSystem(sys.argv[1], pyarrow.fs.LocalFileSystem())
rows = data.read_parquet("a.parquet", filesystem=far)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(sum(len(batch["x"]) for batch in rows.iter_batches(batch_size=1024)))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
# While the data set is there, so is the process that holds its file system.
def status(pid):
    try:
        with open(f"/proc/{pid}/status") as lines:
            return dict(line.split(":", 1) for line in lines)
    except (FileNotFoundError, ProcessLookupError):
        return {}  # another process, which has ended meanwhile
children = [one for one in map(status, filter(str.isdigit, os.listdir("/proc"))) if int(one.get("PPid", 0)) == os.getpid()]
print(max(int(child["VmHWM"].split()[0]) for child in children))
"""


def test_memory_is_bounded(tmp_path: Path) -> None:
    """A file of 256 MB in row groups of 4 MB, within a budget of 32 MB."""
    schema = pa.schema({"x": pa.int64()})
    numbers = np.random.default_rng(1).integers(0, 2**62, 1 << 19)
    with pq.ParquetWriter(tmp_path / "a.parquet", schema, compression="none", use_dictionary=False) as writer:
        for _ in range(64):
            writer.write_table(pa.table({"x": numbers}), row_group_size=1 << 19)
    assert os.path.getsize(tmp_path / "a.parquet") > 256 << 20
    ran = subprocess.run([sys.executable, "-c", RESIDENT, tmp_path], capture_output=True, text=True, check=True)
    rows, here, there = map(int, ran.stdout.split())
    assert rows == 64 << 19
    assert here << 10 < 128 << 20, "the reader's own memory"
    assert 0 < there << 10 < 256 << 20, "that of the process which holds the file system"


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigTypeError, match="`filesystem` is a str"):
        data.read_parquet("a", filesystem="s3")

    class Locked(DirFileSystem):  # type: ignore[misc,unused-ignore]
        def __reduce__(self) -> Any:
            raise TypeError("a lock cannot travel")

    with pytest.raises(ConfigError, match=r"`filesystem`, a Locked, cannot be sent .* a lock cannot travel"):
        data.read_parquet("a", filesystem=Locked(str(tmp_path), fsspec.filesystem("file")))
    (tmp_path / "bad.parquet").write_bytes(b"no Parquet at all")
    subtree = KINDS["pyarrow's subtree"](tmp_path)
    with pytest.raises(StorageError, match=r"cannot read `bad.parquet` at its metadata"):
        data.read_parquet("bad.parquet", filesystem=subtree)
    sealed = own_filesystems.Sealed(str(tmp_path), fsspec.filesystem("file"))
    with pytest.raises(StorageError, match="through the Python file system: PermissionError: not on Mondays"):
        data.read_parquet("bad.parquet", filesystem=sealed)
