"""Places that hold files under keys (`a/b.txt`): a local directory, an object store, a file system object.

Reading and writing one file, listing, and whole directories in and out, the same for all three. Object stores are the
native side's work, with its retries; file system objects are used in this process. What arrives is compared with
the manifest by the native side in every case.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from carril.exceptions import CarrilError, CheckpointError, StorageError
from carril.train._locations import is_uri, parent_and_name

MANIFEST_FILE = ".manifest.json"


class Place(Protocol):
    """Every call may wait."""

    @property
    def location(self) -> str:
        """What a user would type to get here."""

    def read(self, key: str) -> bytes | None:
        """The content of a file; None if there is none."""

    def write(self, key: str, data: bytes) -> None:
        """Puts a file in the place of the one before, whole."""

    def names(self) -> list[str]:
        """What is right inside."""

    def files(self) -> list[tuple[str, int]]:
        """Every file below, with its size."""

    def download(self, directory: str, verify: bool = True) -> None:
        """Brings every file below into an empty directory, but not the manifest. Nothing there, and damage, are a
        CheckpointError; with `verify=False` nothing is compared."""

    def upload(self, directory: str) -> None:
        """Takes every file of a directory."""

    def checkpoints(self, verify: bool = True) -> list[dict[str, Any]]:
        """Of a run: name, iteration, metrics, bytes, created, validation, damage (what is wrong, or None), by iteration.

        With `verify` that is what manifest and sizes tell, otherwise what the manifest tells.
        """


def place(location: str, filesystem: Any = None) -> Place:
    """The place of a location that was checked before."""
    if filesystem is not None:
        return _InFilesystem(location, filesystem)
    return _InStore(location) if is_uri(location) else _Local(location)


def _does_not_exist(location: str) -> CheckpointError:
    return CheckpointError(f"the checkpoint directory `{location}` does not exist or is empty", origin="user")


class _Local:
    """A directory."""

    def __init__(self, location: str) -> None:
        self.location = location

    def read(self, key: str) -> bytes | None:
        from carril._native import Storage

        return Storage(self.location).read(key)

    def write(self, key: str, data: bytes) -> None:
        target = os.path.join(self.location, key)
        with open(f"{target}.new", "wb") as file:
            file.write(data)
        os.replace(f"{target}.new", target)

    def names(self) -> list[str]:
        try:
            return sorted(os.listdir(self.location))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def files(self) -> list[tuple[str, int]]:
        from carril._native import Storage

        return Storage(self.location).list()

    def download(self, directory: str, verify: bool = True) -> None:
        if not os.path.isdir(self.location):
            raise _does_not_exist(self.location)
        if os.path.lexists(os.path.join(self.location, MANIFEST_FILE)):
            from carril._native import Storage

            Storage(self.location).download_directory(directory, verify)
            return
        import shutil

        # The user's own directory: with its times and rights.
        shutil.copytree(self.location, directory, dirs_exist_ok=True)

    def upload(self, directory: str) -> None:
        import shutil

        shutil.copytree(directory, self.location, dirs_exist_ok=True)

    def checkpoints(self, verify: bool = True) -> list[dict[str, Any]]:
        from carril._native import Storage

        return Storage(self.location).checkpoints(verify)


class _InStore:
    """A prefix of an object store."""

    def __init__(self, location: str) -> None:
        from carril._native import Storage

        self.location = location
        self._storage = Storage(location)

    def read(self, key: str) -> bytes | None:
        return self._storage.read(key)

    def write(self, key: str, data: bytes) -> None:
        self._storage.write(key, data)

    def names(self) -> list[str]:
        return self._storage.names()

    def files(self) -> list[tuple[str, int]]:
        return self._storage.list()

    def download(self, directory: str, verify: bool = True) -> None:
        self._storage.download_directory(directory, verify)

    def upload(self, directory: str) -> None:
        self._storage.upload_directory(directory)

    def checkpoints(self, verify: bool = True) -> list[dict[str, Any]]:
        return self._storage.checkpoints(verify)


class _InFilesystem:
    """A directory in a file system object of pyarrow or fsspec."""

    def __init__(self, location: str, filesystem: Any) -> None:
        from carril._internal.filesystem import open_place

        self.location = location
        with _told(location, "opened"):
            self._files = open_place(filesystem)

    def read(self, key: str) -> bytes | None:
        with _told(self.location, "read"):
            return self._files.read(self._path(key))

    def write(self, key: str, data: bytes) -> None:
        with _told(self.location, "written"):
            self._files.write(self._path(key), data)

    def names(self) -> list[str]:
        with _told(self.location, "listed"):
            directories, files = self._files.level(self.location)
        return sorted([*directories, *files])

    def files(self) -> list[tuple[str, int]]:
        with _told(self.location, "listed"):
            return list(self._files.files(self.location))

    def download(self, directory: str, verify: bool = True) -> None:
        with _told(self.location, "read"):
            keys = [key for key, _ in self._files.files(self.location)]
            if not keys:
                raise _does_not_exist(self.location)
            if MANIFEST_FILE not in keys or not verify:
                self._fetch([key for key in keys if key != MANIFEST_FILE], directory)
                return
            # The native side checks what it copies.
            arrived = os.path.join(directory, ".arrived")
            self._fetch(keys, arrived)
        import shutil

        from carril._native import Storage

        try:
            Storage(arrived).download_directory(directory, True)
        except CheckpointError as error:
            text = error.message.replace(arrived, self.location)
            run, _ = parent_and_name(self.location)
            hints = [hint.replace(os.path.dirname(arrived), run) for hint in error.hints]
            raise CheckpointError(text, code=error.code, origin=error.origin, hints=hints) from None
        finally:
            shutil.rmtree(arrived)

    def upload(self, directory: str) -> None:
        with _told(self.location, "written"):
            for root, _, names in os.walk(directory):
                for name in names:
                    source = os.path.join(root, name)
                    self._files.put(source, self._path(os.path.relpath(source, directory)))

    def checkpoints(self, verify: bool = True) -> list[dict[str, Any]]:
        from carril._native import list_manifests

        brought = []
        for name in self._directories():
            manifest = self.read(f"{name}/{MANIFEST_FILE}")
            if manifest is not None:
                with _told(self.location, "listed"):
                    files = list(self._files.files(self._path(name)))
                if MANIFEST_FILE in (key for key, _ in files):  # or it was deleted meanwhile
                    brought.append((name, manifest, files))
        return list_manifests(brought, verify)

    def _directories(self) -> list[str]:
        with _told(self.location, "listed"):
            return self._files.level(self.location)[0]

    def _fetch(self, keys: list[str], directory: str) -> None:
        for key in keys:
            target = os.path.join(directory, key)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if self._files.get(self._path(key), target) is None:
                raise CheckpointError(f"`{key}` of the checkpoint `{self.location}` vanished while it was read")

    def _path(self, key: str) -> str:
        return f"{self.location.rstrip('/')}/{key}"


@contextmanager
def _told(location: str, done: str) -> Iterator[None]:
    """Says of an error of a file system object what was being done, and with which place."""
    try:
        yield
    except CarrilError:
        raise
    except Exception as error:  # many file systems have exceptions of their own
        raise StorageError(f"`{location}` could not be {done}: {type(error).__name__}: {error}") from error
