"""What is saved: files of bytes that do not compress, on disk before the clock starts."""

import os
import shutil
from pathlib import Path

BLOCK = 16 << 20


def one_file(directory: Path, size: int) -> Path:
    """A directory with one file of this size, flushed."""
    directory.mkdir(parents=True)
    block = os.urandom(min(BLOCK, size))
    with open(directory / "model", "wb") as file:
        for begin in range(0, size, len(block)):
            file.write(block[: size - begin])
        file.flush()
        os.fsync(file.fileno())
    return directory


def many_files(directory: Path, count: int, size: int) -> Path:
    """A directory with so many files of this size, in hundreds, flushed."""
    block = os.urandom(size)
    for number in range(count):
        place = directory / f"part-{number // 100:03d}"
        if number % 100 == 0:
            place.mkdir(parents=True)
        (place / f"file-{number:05d}").write_bytes(number.to_bytes(8, "big") + block[8:])
    os.sync()
    return directory


def stored_bytes(directory: Path) -> int:
    """The size of the payload's files below a directory, wherever a system has put them."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.name.startswith(("model", "file-")))


def flush(directory: Path) -> None:
    """What `sync` does for these files alone."""
    for path in directory.rglob("*"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def remove(storage: str) -> None:
    """Frees the disk for the contender whose turn is next, and lets the disk come to rest."""
    shutil.rmtree(storage, ignore_errors=True)
    os.sync()
