"""Counts what is in the files of a run, with readers of our own: nothing of the system under test is asked."""

import struct
from pathlib import Path


def json_lines(path: Path) -> int:
    """The complete lines of a file."""
    data = path.read_bytes()
    return data.count(b"\n")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _step_and_summary(event: bytes) -> tuple[int, bool]:
    """The step of a TensorBoard event, and whether the event has values at all (the first one has none)."""
    step, has_summary, at = 0, False, 0
    while at < len(event):
        key, at = _varint(event, at)
        field, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(event, at)
            if field == 2:
                step = value
        elif kind == 1:
            at += 8
        elif kind == 5:
            at += 4
        else:
            length, at = _varint(event, at)
            at += length
            has_summary = has_summary or field == 5
    return step, has_summary


def tensorboard_steps(path: Path) -> int:
    """How many different steps a file of TensorBoard events has values for."""
    data = path.read_bytes()
    steps = set()
    at = 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        end = at + 12 + length + 4  # length, its checksum, the event, its checksum
        if end > len(data):
            break
        step, has_summary = _step_and_summary(data[at + 12 : at + 12 + length])
        if has_summary:
            steps.add(step)
        at = end
    return len(steps)
