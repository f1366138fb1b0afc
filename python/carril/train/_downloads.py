"""Directories that are ours for a while: the temporary ones of checkpoints, and copies of what is stored elsewhere.

DWN-1: a directory with a download is complete: it gets its name when everything has arrived and was checked.
DWN-2: the workers of a run that are on one node share one download. A file lock is held by each reader for as long as
it reads, so that the last one to leave removes the copy; what a killed reader leaves goes with the run.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from carril.train import _session

if TYPE_CHECKING:
    from carril.train._places import Place


class Keeper:
    """Removes a temporary directory when nobody refers to it any longer."""

    def __init__(self, path: str) -> None:
        import weakref

        # By process: a fork of a worker (a DataLoader's) ends earlier and must leave the directory alone.
        self._finalizer = weakref.finalize(self, _remove, path, os.getpid())


def _remove(path: str, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)


def new_directory(place: str | None = None) -> str:
    import tempfile

    return tempfile.mkdtemp(prefix="carril_checkpoint_", dir=place)


def place_that_goes_with_the_run() -> str | None:
    """In a worker, which may be killed: the head removes this directory at the end of the run, whoever is left."""
    session = _session.entered()
    if session is None or not session.run_directory:
        return None
    place = os.path.join(session.run_directory, ".staging", "temporary")
    os.makedirs(place, exist_ok=True)
    return place


def is_shared(identity: str | None) -> bool:
    """Whether a download is one for all workers that ask for it."""
    return identity is not None and place_that_goes_with_the_run() is not None


@contextmanager
def downloaded(place: "Place", identity: str | None, verify: bool = True) -> Iterator[str]:
    """A local directory with the files of `place`, for as long as the block lasts.

    `identity` is equal in all processes that mean the same place; without one, the copy is this reader's own.
    """
    root = place_that_goes_with_the_run()
    if root is not None and identity is not None and verify:
        with _shared(place, root, identity) as directory:
            yield directory
        return
    directory = new_directory(root)
    try:
        place.download(directory, verify)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def download_to(place: "Place", target: str, verify: bool) -> None:
    """Brings the files of `place` to the directory `target`, which may exist and then keeps its other files.

    What is damaged leaves `target` as it was.
    """
    if os.path.isdir(target) and not os.listdir(target):
        place.download(target, verify)
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    # Not `mkdtemp`: this becomes the caller's directory, with the rights that the caller's directories have.
    part = os.path.join(os.path.dirname(target), f".carril_part_{os.urandom(6).hex()}")
    os.mkdir(part)
    try:
        place.download(part, verify)
        if os.path.lexists(target):
            _move_into(part, target)
        else:
            os.rename(part, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _move_into(part: str, target: str) -> None:
    for root, directories, names in os.walk(part):
        there = os.path.normpath(os.path.join(target, os.path.relpath(root, part)))
        for name in directories:
            os.makedirs(os.path.join(there, name), exist_ok=True)
        for name in names:
            shutil.move(os.path.join(root, name), os.path.join(there, name))


@contextmanager
def _shared(place: "Place", root: str, identity: str) -> Iterator[str]:
    import hashlib

    target = os.path.join(root, f"download_{hashlib.sha256(identity.encode()).hexdigest()[:24]}")
    lock = os.open(f"{target}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _enter(lock, place, target)
        yield target
    finally:
        _leave(lock, target)
        os.close(lock)


def _enter(lock: int, place: "Place", target: str) -> None:
    """Returns with a shared lock on a complete download."""
    import fcntl

    while True:
        # Waits for one who downloads, and not for those who read.
        fcntl.flock(lock, fcntl.LOCK_SH)
        if os.path.isdir(target):
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        if not os.path.isdir(target):
            part = f"{target}.part"
            shutil.rmtree(part, ignore_errors=True)  # of one who was killed
            os.mkdir(part)
            place.download(part)
            os.rename(part, target)
        # Looked at again: one lock is let go before the other is taken, and a reader that leaves may come in between.


def _leave(lock: int, target: str) -> None:
    """Lets go of the lock, and of the copy if nobody else reads it."""
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    else:
        _remove_complete(target)
    finally:
        # By hand: a process that was forked meanwhile has the same lock, and would hold it for as long as it lives.
        fcntl.flock(lock, fcntl.LOCK_UN)


def _remove_complete(target: str) -> None:
    """Takes the name away first: whoever is killed half-way leaves nothing that looks complete."""
    part = f"{target}.part"
    shutil.rmtree(part, ignore_errors=True)
    try:
        os.rename(target, part)
    except FileNotFoundError:  # the download failed
        return
    shutil.rmtree(part, ignore_errors=True)
