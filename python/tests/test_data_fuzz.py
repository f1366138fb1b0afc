"""Damaged files of every format: what is wrong is one of our errors, and never a panic, whatever was damaged.

Each file is damaged in many ways, with CARRIL_LONG in 2,000: bytes that are others, a stretch that is missing or is there twice, an end that is cut off. The seed is printed
with the one that fails.
"""

import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import random
import resource
import struct
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pyarrow
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest
from parquet_pages import PagesOfFile
from PIL import Image

from carril import data
from carril._native import panic
from carril.exceptions import CarrilError, InternalError, StorageError

TIMES = 2_000 if os.environ.get("CARRIL_LONG") else 150


def _table() -> pyarrow.Table:
    rows = 200
    return pyarrow.table(
        {
            "id": list(range(rows)),
            "text": [f"row {row}" * (row % 3) for row in range(rows)],
            "list": [[row] * (row % 4) for row in range(rows)],
            "x": [None if row % 5 == 0 else row / 3 for row in range(rows)],
        }
    )


def _parquet() -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(_table(), out, row_group_size=60)
    return out.getvalue()


def _feather(compression: str) -> bytes:
    out = io.BytesIO()
    pyarrow.feather.write_feather(_table(), out, compression=compression)
    return out.getvalue()


def _stream(compression: str | None) -> bytes:
    out = io.BytesIO()
    table = _table()
    table = table.append_column("kind", pyarrow.array(["a", "b"] * 100).dictionary_encode())
    options = pyarrow.ipc.IpcWriteOptions(compression=compression)
    with pyarrow.ipc.new_stream(out, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=80)
    return out.getvalue()


def _numpy() -> bytes:
    out = io.BytesIO()
    numpy.save(out, numpy.arange(300, dtype="<f4").reshape(100, 3))
    return out.getvalue()


def _numpy_texts() -> bytes:
    out = io.BytesIO()
    numpy.save(out, numpy.array(["a", "bc", "äö"] * 20))
    return out.getvalue()


def _csv() -> bytes:
    lines = ["id,text,day,x", *(f'{row},"a ""b"",{row}\n",2024-01-{row % 28 + 1:02},{row / 7}' for row in range(100))]
    return "\n".join(lines).encode()


def _json() -> bytes:
    rows = [{"id": row, "text": "ä" * (row % 5), "inner": {"x": [row, None]}} for row in range(100)]
    return "\n".join(json.dumps(row) for row in rows).encode()


def _text() -> bytes:
    return "\n".join(f"line {row} äöü" for row in range(100)).encode()


def _masked(content: bytes) -> bytes:
    """The checksum that a record has. Where it is wrong nothing is decoded: damage is done before it is made."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    crc = 0xFFFFFFFF
    for byte in content:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + _masked(length) + content + _masked(content)


# {"x": [3, 5]} as `tf.train.Example`.
_EXAMPLE = bytes.fromhex("0a0d0a0b0a0178120 61a040a020305".replace(" ", ""))


def _tfrecord() -> bytes:
    return _record(_EXAMPLE) * 5


def _tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for sample in range(5):
            for ending, content in (("json", b'{"a": 1}'), ("cls", b"3"), ("txt", b"text"), ("png", _image("PNG"))):
                member = tarfile.TarInfo(f"{sample:03}.{ending}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def _image(kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    pixels = numpy.arange(24 * 20 * 3, dtype="u4").reshape(24, 20, 3).astype("u1")
    Image.fromarray(pixels).save(out, kind, **options)
    return out.getvalue()


def _packed(codec: str, content: bytes) -> bytes:
    out = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(out, codec) as packed:
        packed.write(content)
    return bytes(out.getvalue())


FORMATS: dict[str, tuple[str, Callable[[], bytes], Callable[[str], data.Dataset]]] = {
    "parquet": ("parquet", _parquet, data.read_parquet),
    "feather": ("feather", lambda: _feather("uncompressed"), data.read_ipc),
    "zstd feather": ("feather", lambda: _feather("zstd"), data.read_ipc),
    "lz4 feather": ("feather", lambda: _feather("lz4"), data.read_ipc),
    "stream": ("arrow", lambda: _stream(None), data.read_ipc),
    "zstd stream": ("arrow", lambda: _stream("zstd"), data.read_ipc),
    "lz4 stream": ("arrow", lambda: _stream("lz4"), data.read_ipc),
    "numpy": ("npy", _numpy, data.read_numpy),
    "numpy of texts": ("npy", _numpy_texts, data.read_numpy),
    "csv": ("csv", _csv, data.read_csv),
    "json": ("json", _json, data.read_json),
    "text": ("txt", _text, data.read_text),
    "tfrecord": ("tfrecords", _tfrecord, data.read_tfrecords),
    "webdataset": ("tar", _tar, data.read_webdataset),
    "gzip csv": ("csv.gz", lambda: gzip.compress(_csv()), data.read_csv),
    "bzip2 json": ("json.bz2", lambda: bz2.compress(_json()), data.read_json),
    "xz text": ("txt.xz", lambda: lzma.compress(_text()), data.read_text),
    "zstd json": ("json.zst", lambda: _packed("zstd", _json()), data.read_json),
    "lz4 csv": ("csv.lz4", lambda: _packed("lz4", _csv()), data.read_csv),
    "gzip tfrecord": ("tfrecords.gz", lambda: gzip.compress(_tfrecord()), data.read_tfrecords),
    "gzip webdataset": ("tar.gz", lambda: gzip.compress(_tar()), data.read_webdataset),
    "png": ("png", lambda: _image("PNG"), data.read_images),
    "jpeg": ("jpg", lambda: _image("JPEG"), data.read_images),
    "progressive jpeg": ("jpg", lambda: _image("JPEG", progressive=True), data.read_images),
    "gif": ("gif", lambda: _image("GIF"), data.read_images),
    "webp": ("webp", lambda: _image("WEBP", lossless=True), data.read_images),
    "lossy webp": ("webp", lambda: _image("WEBP"), data.read_images),
    "tiff": ("tiff", lambda: _image("TIFF", compression="tiff_lzw"), data.read_images),
    "bmp": ("bmp", lambda: _image("BMP"), data.read_images),
}


def damaged(content: bytes, dice: random.Random) -> bytes:
    made = bytearray(content)
    for _ in range(dice.choice([1, 1, 2, 8])):
        # What says how the rest is to be read stands at the beginning or at the end.
        if not made:
            break
        near = min(len(made), 160)
        at = dice.choice([dice.randrange(len(made)), dice.randrange(near), len(made) - 1 - dice.randrange(near)])
        what = dice.randrange(6)
        if what <= 2:
            made[at] = dice.choice([0, 0xFF, 0x80, made[at] ^ 1 << dice.randrange(8), dice.randrange(256)])
        elif what == 3:
            made[at : at + dice.randrange(1, 40)] = made[at : at + dice.randrange(0, 40)]
        elif what == 4:
            del made[at + 1 + dice.randrange(len(made)) :]
        else:
            # Where a length may stand, one that nobody has the memory for.
            length = dice.choice([1 << 62, 1 << 45, 1 << 36, (1 << 31) - 1, 1 << 20, -2]).to_bytes(
                8, "little", signed=True
            )
            made[at & ~7 : (at & ~7) + 8] = length
    return bytes(made)


@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_file_is_one_of_our_errors(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ending, make, read = FORMATS[name]
    whole = make()
    path = tmp_path / f"file.{ending}"
    path.write_bytes(whole)
    assert read(str(path)).count() > 0, "the file that is damaged is one that can be read"
    failed = 0
    for seed in range(TIMES):
        dice = random.Random(f"{name} {seed}")
        content = _record(damaged(_EXAMPLE, dice)) if name == "tfrecord" and seed % 2 else damaged(whole, dice)
        path.write_bytes(content)
        try:
            rows = read(str(path))
            (rows.random_shuffle() if seed % 3 == 0 else rows).take_all()
        except CarrilError as error:
            assert not isinstance(error, InternalError), f"seed {seed}: {error}"
            assert path.name in str(error), f"seed {seed}: {error}"
            failed += 1
        except Exception as error:
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}")
    assert failed > 0 or name in ("text", "gif", "bmp"), "some damage is noticed"
    assert "panicked" not in capfd.readouterr().err, "what a decoder says of itself is not for users"


@contextlib.contextmanager
def address_space(more: int) -> Iterator[None]:
    """So many bytes beyond what the process has: one that is asked for more is aborted, or it is an error."""
    limit = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limit)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("write", [_feather, _stream])
def test_no_length_of_a_compressed_buffer_is_believed(
    write: Callable[[str], bytes], compression: str, tmp_path: Path
) -> None:
    whole, path = write(compression), tmp_path / "file.arrow"
    failed = 0
    # Buffers are aligned to 8 bytes, and each begins with its length.
    for at in range(0, len(whole) - 8, 8):
        for length in (1 << 62, 1 << 40):
            path.write_bytes(whole[:at] + length.to_bytes(8, "little") + whole[at + 8 :])
            try:
                data.read_ipc(str(path)).take_all()
            except StorageError as error:
                failed += "cannot hold" in str(error)
            except CarrilError:
                pass
    assert failed > 5, "some of them were lengths of buffers"


CODECS = ["none", "snappy", "gzip", "lz4", "zstd", "brotli"]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", CODECS)
def test_no_number_of_the_header_of_a_parquet_page_is_believed(codec: str, version: str, tmp_path: Path) -> None:
    """A decoder that allocated what a header declares would abort the process: there is less memory."""
    out = io.BytesIO()
    table = _table().append_column("zero", pyarrow.array([0] * 200)).append_column("none", pyarrow.nulls(200))
    dictionary = ["id", "text", "zero"]
    pyarrow.parquet.write_table(table, out, compression=codec, data_page_version=version, use_dictionary=dictionary)
    pages, path = PagesOfFile(out.getvalue()), tmp_path / "file.parquet"
    spots = list(pages.numbers())
    # Sizes, and the number of values of a dictionary: what is allocated before the page is looked at.
    allocated = [spot for spot in spots if spot[2] in ((2,), (7, 1))]
    assert len(allocated) > len(table.columns), "sizes and dictionaries"
    spots = spots if os.environ.get("CARRIL_LONG") else allocated
    refused = 0
    with address_space(1 << 30):
        for column, page, field in spots:
            for number in ((1 << 31) - 1, 1 << 27, -1) if spots is allocated else ((1 << 31) - 1, 1 << 27, 1, 0, -1):
                path.write_bytes(pages.with_number(column, page, field, number))
                try:
                    data.read_parquet(str(path)).take_all()
                except StorageError as error:
                    assert "file.parquet` at row group 0: " in str(error), error
                    refused += "column `" in str(error) and "cannot hold" in str(error)
    assert refused >= (4 if codec == "none" else 10), "without compression only the dictionaries are allocated"


@pytest.mark.parametrize("codec", CODECS)
def test_parquet_pages_of_every_kind_are_read(codec: str, tmp_path: Path) -> None:
    rows = 300_000
    table = pyarrow.table(
        {
            # What shrinks most: a page of one byte again and again.
            "zeros": numpy.zeros(rows, "i8"),
            "none": pyarrow.nulls(rows, pyarrow.float64()),
            "text": pyarrow.repeat("x" * 20, rows),
            "empty": pyarrow.repeat("", rows),
            "fixed": pyarrow.repeat(pyarrow.scalar(b"abc", pyarrow.binary(3)), rows),
            "flag": numpy.zeros(rows, bool),
            "noise": numpy.random.default_rng(0).integers(0, 1 << 60, rows),
            "list": pyarrow.ListArray.from_arrays(numpy.arange(0, 2 * rows + 1, 2, "i4"), numpy.zeros(2 * rows, "f4")),
        }
    )
    path = tmp_path / "file.parquet"
    for version in ("1.0", "2.0"):
        for options in (
            {"use_dictionary": True},
            {"use_dictionary": False, "data_page_size": 1 << 24},
            {"use_dictionary": False, "use_byte_stream_split": ["zeros"], "write_page_checksum": True},
        ):
            pyarrow.parquet.write_table(table, path, compression=codec, data_page_version=version, **options)
            batches = data.read_parquet(str(path)).iter_batches(batch_size=None, batch_format="pyarrow")
            assert pyarrow.concat_tables(batches).cast(table.schema).equals(table), (version, options)


def _png_of(width: int, height: int) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b"")
    )


def _with(content: bytes, at: int, form: str, *numbers: int) -> bytes:
    made = bytearray(content)
    struct.pack_into(form, made, at, *numbers)
    return bytes(made)


def _too_large() -> dict[str, bytes]:
    """Pictures whose headers say that they are so large that nobody has the memory."""
    gif, bmp, jpeg = _image("GIF"), _image("BMP"), _image("JPEG")
    progressive = _image("JPEG", progressive=True)
    return {
        "square.png": _png_of(60_000, 60_000),
        "tall.png": _png_of(1, (1 << 31) - 1),
        "most.png": _png_of((1 << 31) - 1, (1 << 31) - 1),
        "screen.gif": _with(gif, 6, "<HH", 65_535, 65_535),
        "frame.gif": _with(_with(gif, 6, "<HH", 65_535, 65_535), gif.index(b",") + 5, "<HH", 65_535, 65_535),
        "most.bmp": _with(bmp, 18, "<ii", (1 << 31) - 1, (1 << 31) - 1),
        "down.bmp": _with(bmp, 18, "<ii", 60_000, -60_000),
        "least.bmp": _with(bmp, 18, "<ii", -(1 << 31), -(1 << 31)),
        "most.jpg": _with(jpeg, jpeg.index(b"\xff\xc0") + 5, ">HH", 65_535, 65_535),
        "progressive.jpg": _with(progressive, progressive.index(b"\xff\xc2") + 5, ">HH", 65_535, 65_535),
    }


@pytest.mark.parametrize("name", _too_large())
def test_no_size_of_a_picture_is_believed(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(_too_large()[name])
    with address_space(1 << 30), pytest.raises(StorageError, match=name):
        data.read_images(str(path)).take_all()


def test_records_without_features_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file.tfrecord"
    path.write_bytes(_record(b"") * 2)
    with pytest.raises(StorageError, match=r"file\.tfrecord.*record 0: no record has a feature"):
        data.read_tfrecords(str(path)).take_all()


def test_a_panic_of_ours_is_one_of_our_exceptions() -> None:
    with pytest.raises(InternalError, match="a bug of ours: on purpose") as caught:
        panic("on purpose")
    assert isinstance(caught.value, Exception)
    assert (caught.value.code, caught.value.origin) == ("internal", "carril")
