"""Arrays and samples: `.npy`, TFRecord and WebDataset files, written by the plainest means."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_samples import MEMBERS, ROWS, example, record, write_tar
from data_tables import case

from carril import data
from carril.exceptions import CarrilError, StorageError

NUMBERS = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]


def loaded(path: Path) -> Any:
    return data.read_numpy(path).take_batch(10_000)["data"]


@pytest.mark.parametrize("order", ["<", ">"])
def test_arrays_of_every_type_shape_and_order(tmp_path: Path, order: str) -> None:
    for dtype in NUMBERS:
        with case(dtype):
            path = tmp_path / "a.npy"
            for shape in [(7,), (2, 3), (2, 3, 4), (1, 1, 1, 5), (3, 0)]:
                for layout in "CF":
                    array = np.asarray(np.arange(np.prod(shape)).reshape(shape) % 120, order + dtype, order=layout)
                    np.save(path, array)
                    ours = loaded(path)
                    assert ours.dtype == array.dtype.newbyteorder("=") and np.array_equal(ours, np.load(path)), (
                        shape,
                        layout,
                    )


def test_arrays_of_one_number_of_none_and_of_odd_values(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.array(5.5))
    assert loaded(path).tolist() == [5.5], "one number is one row"
    np.save(path, np.zeros((0, 3), "f4"))
    assert (data.read_numpy(path).count(), data.read_numpy(path).take_all()) == (0, [])
    odd = np.array([np.nan, np.inf, -np.inf, -0.0])
    np.save(path, odd)
    assert loaded(path).tobytes() == odd.tobytes()
    with path.open("wb") as file:
        np.lib.format.write_array(file, odd, version=(3, 0))
    assert loaded(path).tobytes() == odd.tobytes()


@pytest.mark.parametrize("kind", ["M8", "m8"])
def test_times(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.npy"
    for unit, ours in {"s": "s", "ms": "ms", "us": "us", "ns": "ns", "D": "s", "h": "s", "m": "s", "W": "s"}.items():
        array = np.array([1, "NaT", -5], f"{kind}[{unit}]")
        for order in "<>":
            np.save(path, array.astype(array.dtype.newbyteorder(order)))
            read = loaded(path)
            assert read.dtype == np.dtype(f"{kind}[{ours}]")
            assert np.array_equal(read, array.astype(read.dtype), equal_nan=True)
    assert data.read_numpy(path).take_all()[1] == {"data": None}


def test_texts_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    for array in (np.array(["a", "", "ünï🎉"]), np.array(["a", "bc"], ">U3"), np.array([b"a", b"", b"xy\xff"])):
        np.save(path, array)
        assert [row["data"] for row in data.read_numpy(path).take_all()] == np.load(path).tolist()


@pytest.mark.parametrize(
    ("array", "text"),
    [(np.array([1 + 2j]), "its elements are `<c16`"), (np.array([{}], object), "which are not unpickled"),
     (np.zeros(3, [("a", "i4")]), "its rows are structures"), (np.array([["a"]]), "texts in more than one axis"),
     (np.array(["2020"], "M8[Y]"), "its elements are `<M8[Y]`")],
)  # fmt: skip
def test_what_is_no_array_of_numbers_is_told(tmp_path: Path, array: Any, text: str) -> None:
    path = tmp_path / "a.npy"
    np.save(path, array, allow_pickle=True)
    with pytest.raises(StorageError) as raised:
        data.read_numpy(path)
    assert f"cannot read `{path}` at its header" in str(raised.value) and text in str(raised.value)


def test_arrays_that_are_damaged_or_do_not_go_together(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.ones((4, 3)))
    whole = path.read_bytes()
    for content in (whole[:-1], whole[:50], b"hello", b""):
        path.write_bytes(content)
        with pytest.raises(StorageError, match=f"cannot read `{path}`"):
            data.read_numpy(path)
    np.savez(tmp_path / "z.npz", a=np.ones(3))
    with pytest.raises(StorageError, match=r"an `\.npz` archive"):
        data.read_numpy(tmp_path / "z.npz")
    np.save(path, np.ones((4, 3)))
    np.save(tmp_path / "b.npy", np.ones((4, 2)))
    with pytest.raises(CarrilError) as raised:
        data.read_numpy(tmp_path)
    assert "a.npy` and `" in str(raised.value) and "[3] in the one and [2] in the other" in str(raised.value)


@pytest.mark.parametrize("is_packed", [True, False], ids=["packed", "one by one"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_records_of_examples(tmp_path: Path, is_packed: bool, ending: str) -> None:
    path = tmp_path / f"a.tfrecord{ending}"
    content = b"".join(record(example(row, is_packed=is_packed)) for row in ROWS)
    path.write_bytes(gzip.compress(content) if ending else content)
    expected = [{key: values if key == "many" else values[0] for key, values in row.items()} for row in ROWS]
    expected[2]["real"] = None
    assert data.read_tfrecords(tmp_path).take_all() == [dict(sorted(row.items())) for row in expected]
    lists = data.read_tfrecords(path, lists=["one"]).take_all()
    assert [row["one"] for row in lists] == [row["one"] for row in ROWS]


def test_records_that_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecords"
    records = [record(example(row)) for row in ROWS]
    second = records[1]
    for changed, text in [
        (second[:20] + bytes([second[20] ^ 1]) + second[21:], "record 1: its checksum is wrong"),
        (bytes([second[0] ^ 1]) + second[1:], "record 1: the checksum of its length is wrong"),
        (record(b"\xff\xff\xff"), "record 1: it is no `tf.train.Example`"),
    ]:
        path.write_bytes(records[0] + changed + records[2])
        with pytest.raises(StorageError) as raised:
            data.read_tfrecords(path).take_all()
        assert f"cannot read `{path}` at {text}" in str(raised.value)
    path.write_bytes(records[0] + second[:-3])
    with pytest.raises(StorageError, match="record 1: it is cut short"):
        data.read_tfrecords(path).take_all()
    (tmp_path / "b.tfrecords").write_bytes(b"".join(records))
    assert data.read_tfrecords(tmp_path, max_errors=1).count() == 3


def test_features_that_do_not_go_together(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(record(example({"x": [1]})))
    (tmp_path / "b.tfrecord").write_bytes(record(example({"x": [1.5]})))
    with pytest.raises(CarrilError) as raised:
        data.read_tfrecords(tmp_path)
    assert "a.tfrecord` and `" in str(raised.value) and "`x`" in str(raised.value)


@pytest.mark.parametrize("ending", ["tar", "tar.gz"])
def test_samples_of_tar_files(tmp_path: Path, ending: str) -> None:
    write_tar(tmp_path / f"a.{ending}", MEMBERS, "w:gz" if ending == "tar.gz" else "w")
    first, second = data.read_webdataset(tmp_path).take_all()
    assert (first["__key__"], first["cls"], first["txt"], first["seg.bin"]) == ("d/0", 7, "ü", None)
    assert json.loads(first["json"]) == {"k": [1]}
    assert (second["__key__"], second["cls"], second["txt"], second["seg.bin"]) == ("d/1", 8, None, b"\0\1")
    assert first["png"].shape == (2, 3, 3) and first["png"][0, 0].tolist() == [255, 0, 0]
    raw = data.read_webdataset(tmp_path, decoder=False).take_all()
    assert raw[0]["png"] == MEMBERS[0][1] and raw[1]["cls"] == b"8\n"
    some = data.read_webdataset(tmp_path, suffixes=["cls"]).drop_columns("__url__")
    assert some.take_all() == [{"__key__": "d/0", "cls": 7}, {"__key__": "d/1", "cls": 8}]


def test_samples_that_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    write_tar(path, [("0.cls", b"7"), ("1.cls", b"seven")])
    with pytest.raises(StorageError, match=r"at member `1\.cls`: `seven` is not a number"):
        data.read_webdataset(path).take_all()
    write_tar(path, [("0.png", b"no picture")])
    with pytest.raises(StorageError, match=r"at member `0\.png`"):
        data.read_webdataset(path).take_all()
    write_tar(path, [("0.bin", bytes(5000)), ("1.bin", bytes(5000))])
    path.write_bytes(path.read_bytes()[:7000])
    with pytest.raises(StorageError, match=f"cannot read `{path}`"):
        data.read_webdataset(path).take_all()
