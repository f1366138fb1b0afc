"""Data in S3: each format, directories and globs there, and that no more is fetched than is needed."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_samples import MEMBERS, ROWS, example, record, write_tar
from data_tables import write_ipc
from faulty_proxy import RESET_RESPONSE, SLOW_DOWN, FaultyProxy
from s3_server import Place, S3Server, place_fixture, s3_fixture, set_variables  # noqa: F401

from carril import data
from carril.exceptions import CarrilError, NotFoundError, StorageError


class Counting(FaultyProxy):
    """A proxy that counts the bytes which pass."""

    passed = 0

    def _pace(self, size: int) -> None:
        self.passed += size
        super()._pace(size)


@pytest.fixture(name="proxy")
def proxy_fixture(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counting]:
    """The only way to the server that this process knows."""
    proxy = Counting(s3.port)
    set_variables(monkeypatch, s3.variables(proxy.port))
    yield proxy
    proxy.close()


@pytest.fixture(name="directory")
def directory_fixture(place: Place) -> Path:
    place.directory.mkdir(parents=True)
    return place.directory


TABLE = pa.table({"x": range(100), "s": [str(n) for n in range(100)]})


@pytest.mark.usefixtures("proxy")
def test_each_format_is_read(place: Place, directory: Path) -> None:
    rows = TABLE.to_pylist()
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    pq.write_table(TABLE, directory / "a.parquet", row_group_size=30)
    write_ipc(TABLE, directory / "a.arrow")
    write_ipc(TABLE, directory / "b.arrow", "stream", "zstd")
    (directory / "a.csv").write_text("x,s\n" + "".join(f'{row["x"]},"{row["s"]}"\n' for row in rows))
    (directory / "a.json").write_text(lines)
    (directory / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (directory / "a.tfrecord").write_bytes(b"".join(record(example(row)) for row in ROWS))
    write_tar(directory / "a.tar", MEMBERS)
    np.save(directory / "a.npy", np.arange(12).reshape(4, 3))
    assert data.read_parquet(f"{place.uri}/a.parquet").take_all() == rows
    assert data.read_ipc(f"{place.uri}/a.arrow").take_all() == rows
    assert data.read_ipc(f"{place.uri}/b.arrow").take_all() == rows
    texts = [
        {"x": row["x"], "s": row["s"]}
        for row in data.read_csv(f"{place.uri}/a.csv", column_types={"s": str}).take_all()
    ]
    assert texts == rows
    assert data.read_json(f"{place.uri}/a.json").take_all() == rows
    assert data.read_json(f"{place.uri}/a.jsonl.gz").take_all() == rows
    assert data.read_tfrecords(f"{place.uri}/a.tfrecord").count() == len(ROWS)
    assert [row["cls"] for row in data.read_webdataset(f"{place.uri}/a.tar").take_all()] == [7, 8]
    assert data.read_numpy(f"{place.uri}/a.npy").take_batch(4)["data"].tolist() == np.arange(12).reshape(4, 3).tolist()
    assert data.read_text(f"{place.uri}/a.json").count() == 100
    assert data.read_binary_files(f"{place.uri}/a.csv").take_all() == [{"bytes": (directory / "a.csv").read_bytes()}]
    (directory / "a.png").write_bytes(MEMBERS[0][1])
    assert data.read_images(f"{place.uri}/a.png").take_all()[0]["image"].shape == (2, 3, 3)


@pytest.mark.usefixtures("proxy")
def test_directories_globs_and_partitions(place: Place, directory: Path) -> None:
    names = ["a.parquet", "b c.parquet", "k=1/d.parquet", "k=2/ü.parquet", "_skipped.parquet"]
    for number, name in enumerate(names):
        (directory / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"x": [number]}), directory / name)

    def xs(*paths: str) -> list[int]:
        return [row["x"] for row in data.read_parquet([f"{place.uri}{path}" for path in paths]).take_all()]

    assert xs("") == xs("/") == xs("/**") == [0, 1, 2, 3]
    assert xs("/*.parquet") == [0, 1]
    assert xs("/k=*") == xs("/k=1", "/k=2/") == [2, 3]
    assert xs("/b c.parquet", "/a.parquet") == [1, 0]
    rows = data.read_parquet(f"{place.uri}/k=*", include_paths=True).take_all()
    assert rows[1] == {"x": 3, "k": 2, "path": f"{place.uri}/k=2/ü.parquet"}
    for path in ("/none", "/*.csv", "/none/*.parquet"):
        with pytest.raises(NotFoundError, match="nothing is at"):
            xs(path)
    with pytest.raises(StorageError, match=f"cannot read `{place.uri}/bad.parquet` at its metadata"):
        (directory / "bad.parquet").write_bytes(b"no Parquet at all")
        xs("/bad.parquet")


def test_only_the_columns_and_row_groups_that_are_wanted_are_fetched(
    place: Place, directory: Path, proxy: Counting
) -> None:
    dice = np.random.default_rng(1)
    rows, groups = 400_000, 4
    columns = {"key": np.arange(rows), **{f"c{number}": dice.random(rows) for number in range(8)}}
    path = directory / "a.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=rows // groups, compression="none", use_dictionary=False)
    size = path.stat().st_size
    one = data.read_parquet(f"{place.uri}/a.parquet", columns=["c3"])
    assert one.count() == rows
    assert 0 < proxy.passed < size / 50, "rows are counted by the metadata alone"
    before = proxy.passed
    batches = one.iter_batches(batch_size=None)
    assert np.array_equal(np.concatenate([batch["c3"] for batch in batches]), columns["c3"])
    assert size / 10 < proxy.passed - before < size / 7, "one column of nine"
    before = proxy.passed
    last = data.read_parquet(f"{place.uri}/a.parquet", columns=["c3"], filter=[("key", ">=", rows - 10)])
    assert last.take_batch(100)["c3"].tolist() == columns["c3"][-10:].tolist()
    assert proxy.passed - before < size / 14, "two columns of one group of four"
    before = proxy.passed
    assert data.read_parquet(f"{place.uri}/a.parquet").take(1)[0]["key"] == 0
    assert proxy.passed - before < size, "whoever wants one row does not get the whole file"


def test_a_store_that_fails_now_and_then_is_asked_again(place: Place, directory: Path, proxy: Counting) -> None:
    for number in range(20):
        pq.write_table(pa.table({"x": [number] * 1000}), directory / f"{number:02}.parquet")
    proxy.strike({SLOW_DOWN: 0.1, RESET_RESPONSE: 0.1})
    read = [row["x"] for row in data.read_parquet(place.uri).take_all()]
    assert read == [number for number in range(20) for _ in range(1000)]
    assert proxy.injected[SLOW_DOWN] and proxy.injected[RESET_RESPONSE]


def test_a_bucket_that_may_not_be_read_is_told(place: Place, directory: Path, proxy: Counting) -> None:
    (directory / "a.csv").write_text("a\n1\n")
    proxy.refuse("GET|HEAD")
    with pytest.raises(CarrilError) as raised:
        data.read_csv(f"{place.uri}/a.csv")
    assert "a.csv" in str(raised.value) or place.uri in str(raised.value)
