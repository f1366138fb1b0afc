"""TFRecord and WebDataset files for tests, written without the libraries that usually do so."""

import io
import struct
import tarfile
from pathlib import Path
from typing import Any

from PIL import Image

# TFRecord, by hand: a length, its checksum, the bytes of a `tf.train.Example`, their checksum.


def crc32c(content: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in content:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def masked(content: bytes) -> bytes:
    value = crc32c(content)
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def message(tag: int, content: bytes) -> bytes:
    return bytes([tag << 3 | 2]) + varint(len(content)) + content


def feature(values: list[Any], is_packed: bool = True) -> bytes:
    if isinstance(values[0], bytes):
        return message(1, b"".join(message(1, value) for value in values))
    if isinstance(values[0], float):
        each = [struct.pack("<f", value) for value in values]
        return message(2, message(1, b"".join(each)) if is_packed else b"".join(b"\x0d" + one for one in each))
    each = [varint(value) for value in values]
    return message(3, message(1, b"".join(each)) if is_packed else b"".join(b"\x08" + one for one in each))


def example(row: dict[str, list[Any]], **options: bool) -> bytes:
    entries = [message(1, key.encode()) + message(2, feature(values, **options)) for key, values in row.items()]
    return message(1, b"".join(message(1, entry) for entry in entries))


def record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + masked(length) + content + masked(content)


ROWS: list[dict[str, list[Any]]] = [
    {"one": [1], "many": [1, -2, 3], "real": [1.5], "text": [b"a\xff"]},
    {"one": [-(2**63)], "many": [4], "real": [-0.25], "text": [b""]},
    {"one": [2**63 - 1], "many": [5, 6], "text": [b"c"]},
]


# WebDataset, by `tarfile`.


def write_tar(path: Path, members: list[tuple[str, bytes]], mode: str = "w") -> None:
    with tarfile.open(path, mode) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def picture(color: tuple[int, int, int]) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (3, 2), color).save(out, "PNG")
    return out.getvalue()


MEMBERS = [
    ("d/0.png", picture((255, 0, 0))), ("d/0.cls", b"7"), ("d/0.txt", "ü".encode()), ("d/0.json", b'{"k": [1]}'),
    ("d/1.png", picture((0, 0, 255))), ("d/1.cls", b"8\n"), ("d/1.seg.bin", b"\0\1"),
]  # fmt: skip
