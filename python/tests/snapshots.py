"""Texts that are compared whole with files in `snapshots/`, so that a change of any message is seen and read.

What differs from run to run (paths, times, process ids, the host) is replaced by a word first. With UPDATE_SNAPSHOTS=1
in the environment the files are rewritten; read them then as a user would.
"""

import os
import re
import socket
from pathlib import Path

import pytest

_DIRECTORY = Path(__file__).parent / "snapshots"

_REPLACED = [
    # Frames of ours, and the marks below a line, which are not the same in every version of Python.
    (re.compile(r'  File "[^"]*/carril/[^"]*", line \d+, in (\w+)\n(?: {4}.*\n)*'), r"  File CARRIL in \1\n"),
    (re.compile(r"^ +[~^]+\n", re.MULTILINE), ""),
    (re.compile(r"\d+(\.\d+)? s\b"), "TIME s"),
    (re.compile(r"\d:\d\d(?= ·)"), "TIME"),
    (re.compile(r"[\d,.]+/s\b"), "RATE/s"),
    (re.compile(r"_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_[0-9a-f]{6}"), "_DATE_RANDOM"),
    (re.compile(r"(?<= on )" + re.escape(socket.gethostname()) + r"\b"), "HOST"),
]


def plain(text: str, *paths: tuple[Path, str]) -> str:
    """The text with everything replaced that differs from run to run. `paths` come with the words for them."""
    for path, word in paths:
        text = text.replace(str(path), word)
    for pattern, word in _REPLACED:
        text = pattern.sub(word, text)
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip("\n") + "\n"


def check(name: str, text: str, *paths: tuple[Path, str]) -> None:
    """Compares a text with its file; shows both when they differ."""
    text = plain(text, *paths)
    path = _DIRECTORY / f"{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    kept = path.read_text() if path.exists() else ""
    if text != kept:
        pytest.fail(
            f"{path.name} has\n{kept or '(nothing)'}\nand now it is\n{text}\n(UPDATE_SNAPSHOTS=1 keeps it)",
            pytrace=False,
        )
