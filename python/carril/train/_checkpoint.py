"""A checkpoint: a directory of the user's files, before and after it was reported.

Both ways of writing one are here: a directory that the user fills, and the older way of a dict, which is pickled into
a directory. A Checkpoint only points at its directory; it neither copies nor checks it.

CKP-1: a directory that `from_dict` or `from_bytes` made is removed when the last reference to it goes or the process
ends, in a worker also when it is killed; no other directory is ever removed.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from carril.exceptions import CheckpointError, ConfigTypeError, NotAvailableError
from carril.train import _session

_DICT_FILE = "dict_checkpoint.pkl"
_METADATA_FILE = ".metadata.json"
_MANIFEST_FILE = ".manifest.json"


def local_path(path: "str | os.PathLike[str]", what: str) -> str:
    """An absolute local path; `file://` is understood and any other URI is not built yet."""
    try:
        text = os.fspath(path)
    except TypeError:
        raise ConfigTypeError(f"`{what}` is a {type(path).__name__}: it must be a path") from None
    if text.startswith("file://"):
        text = text[len("file://") :]
    elif "://" in text:
        raise NotAvailableError(
            f"`{what}` is `{text}`: storage behind a URI is not built yet", hints=["use a path on a file system"]
        )
    return os.path.abspath(os.path.expanduser(text))


def local_filesystem() -> Any:
    """pyarrow's local file system where pyarrow is installed, otherwise None."""
    try:
        import pyarrow.fs
    except ImportError:
        return None
    return pyarrow.fs.LocalFileSystem()


class Checkpoint:
    """A directory with what is needed to go on from."""

    def __init__(self, path: "str | os.PathLike[str]", filesystem: Any = None) -> None:
        if filesystem is not None and "local" not in str(getattr(filesystem, "type_name", filesystem)).lower():
            raise NotAvailableError("`Checkpoint(filesystem=…)`: only the local file system is built yet")
        self.path = local_path(path, "path")
        self._keeper: object = None
        _session.checkpoint_was_made(self)

    @classmethod
    def from_directory(cls, path: "str | os.PathLike[str]") -> "Checkpoint":
        """A checkpoint of the files in `path`, which stays the caller's."""
        return cls(path)

    @classmethod
    def stored(cls, path: str) -> "Checkpoint":
        """A checkpoint that was made before: opening it makes no new one."""
        checkpoint = cls.__new__(cls)
        checkpoint.path, checkpoint._keeper = path, None
        return checkpoint

    @property
    def filesystem(self) -> Any:
        return local_filesystem()

    @property
    def is_temporary(self) -> bool:
        """True if this object owns its directory."""
        return self._keeper is not None

    @contextmanager
    def as_directory(self) -> Iterator[str]:
        """The directory itself, without a copy: read it, do not write to it."""
        self._must_exist()
        yield self.path

    def to_directory(self, path: "str | os.PathLike[str] | None" = None) -> str:
        """Copies the files to `path`, or to a new temporary directory that is the caller's to remove."""
        import shutil

        self._must_exist()
        target = _new_directory() if path is None else local_path(path, "path")
        shutil.copytree(self.path, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(_MANIFEST_FILE))
        return target

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Checkpoint":
        """A checkpoint that holds a dict."""
        if not isinstance(data, dict):
            raise ConfigTypeError(f"`data` is a {type(data).__name__}: it must be a dict")
        from carril._internal.pickling import dumps

        content = dumps(data)
        checkpoint = cls._temporary()
        with open(os.path.join(checkpoint.path, _DICT_FILE), "wb") as file:
            file.write(content)
        return checkpoint

    def to_dict(self) -> dict[str, Any]:
        """The dict of `from_dict`; of another checkpoint, its files by name, as bytes."""
        from carril._internal.pickling import loads

        self._must_exist()
        try:
            with open(os.path.join(self.path, _DICT_FILE), "rb") as file:
                data: dict[str, Any] = loads(file.read())
            return data
        except FileNotFoundError:
            return self._files()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Checkpoint":
        """The checkpoint that `to_bytes` was called on. Only for bytes from a source that is trusted: it unpickles."""
        from carril._internal.pickling import loads

        checkpoint = cls._temporary()
        for name, content in loads(data).items():
            target = os.path.join(checkpoint.path, name)
            if not os.path.abspath(target).startswith(checkpoint.path + os.sep):
                raise CheckpointError(f"the checkpoint has a file `{name}` outside its directory")
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as file:
                file.write(content)
        return checkpoint

    def to_bytes(self) -> bytes:
        """All files in one piece."""
        from carril._internal.pickling import dumps

        self._must_exist()
        return dumps(self._files())

    def get_metadata(self) -> dict[str, Any]:
        """What `set_metadata` stored; empty if nothing was."""
        import json

        try:
            with open(os.path.join(self.path, _METADATA_FILE), encoding="utf-8") as file:
                metadata: dict[str, Any] = json.load(file)
            return metadata
        except FileNotFoundError:
            return {}

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Stores a dict of JSON values inside the checkpoint, in place of the one before."""
        import json

        self._must_exist()
        target = os.path.join(self.path, _METADATA_FILE)
        text = json.dumps(metadata)
        with open(target + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(target + ".new", target)

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        """Adds to the stored dict."""
        self.set_metadata({**self.get_metadata(), **metadata})

    @classmethod
    def from_uri(cls, uri: str) -> "Checkpoint":
        return cls(uri)

    def to_uri(self, uri: str) -> str:
        raise NotAvailableError(f"`to_uri({uri!r})`: storage behind a URI is not built yet")

    @classmethod
    def _temporary(cls) -> "Checkpoint":
        checkpoint = cls(_new_directory(_place_that_goes_with_the_run()))
        checkpoint._keeper = _Keeper(checkpoint.path)
        return checkpoint

    @classmethod
    def copy_of(cls, directory: str, move: bool) -> "Checkpoint":
        """A temporary checkpoint with the files of `directory`, which is given away if `move` is true."""
        import shutil

        source = cls(directory)
        source._must_exist()
        checkpoint = cls._temporary()
        shutil.copytree(source.path, checkpoint.path, dirs_exist_ok=True)
        if move:
            shutil.rmtree(source.path)
        return checkpoint

    def _must_exist(self) -> None:
        if not os.path.isdir(self.path):
            raise CheckpointError(f"the checkpoint's directory `{self.path}` does not exist", origin="user")

    def _files(self) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        for directory, _, names in os.walk(self.path):
            for name in names:
                place = os.path.join(directory, name)
                relative = os.path.relpath(place, self.path)
                if relative != _MANIFEST_FILE:
                    with open(place, "rb") as file:
                        files[relative] = file.read()
        return files

    def __repr__(self) -> str:
        return f"Checkpoint(filesystem=local, path={self.path})"

    def __getstate__(self) -> dict[str, Any]:
        # A temporary directory may be gone, or on another host, when the pickle is opened: its files go along.
        return {"data": self.to_bytes()} if self.is_temporary else {"path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "data" in state:
            copy = Checkpoint.from_bytes(state["data"])
            self.path, self._keeper = copy.path, copy._keeper
        else:
            self.path, self._keeper = state["path"], None


class _Keeper:
    """Removes a temporary directory when nobody refers to it any longer."""

    def __init__(self, path: str) -> None:
        import shutil
        import weakref

        # By process: a fork of a worker (a DataLoader's) ends earlier and must leave the directory alone.
        self._finalizer = weakref.finalize(self, _remove, shutil.rmtree, path, os.getpid())


def _remove(remove_tree: Any, path: str, process: int) -> None:
    if os.getpid() == process:
        remove_tree(path, ignore_errors=True)


def _new_directory(place: str | None = None) -> str:
    import tempfile

    return tempfile.mkdtemp(prefix="carril_checkpoint_", dir=place)


def _place_that_goes_with_the_run() -> str | None:
    """In a worker, which may be killed: the head removes this directory at the end of the run, whoever is left."""
    session = _session.entered()
    if session is None or not session.run_directory:
        return None
    place = os.path.join(session.run_directory, ".staging", "temporary")
    os.makedirs(place, exist_ok=True)
    return place
