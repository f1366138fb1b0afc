"""The process that holds a Python file system for the agent: the storage that only Python can reach.

Started as `python -m carril._internal.filesystem PICKLE`. It says `{"ok": true}` when the file system is loaded, then answers
each line of JSON on its input with one line on its output, `{"ok": value}` or `{"error": text}`, and ends with its input:
  put (from, key) → bytes stored      get (key, to) → true, or null where there is nothing
  read (key, begin, end) → how many bytes, which follow the line as they are, or null; to the end of the file without an end
  size (key) → bytes or null          write (key, hex)
  files (key) → [[path below, size]]  level (key) → [[directories], [files]]
  delete (key), delete_all (key)      what is not there is no error

FS-1: a key has its new content whole or not at all: written under another name and moved, or put by a backend that is atomic.
FS-2: a file is its bytes: nothing is unpacked or packed because of its name.
FS-3: what imports and backends print goes to the standard error and never between the answers.
"""

import contextlib
import json
import os
import pickle
import posixpath
import shutil
import sys
from collections.abc import Callable
from typing import Any, Protocol

_PIECE = 8 << 20
# Their uploads become visible when they are complete, and their moves are copies.
_ATOMIC_ARROW = ("s3", "gcs", "abfs")


class Place(Protocol):
    """What both kinds of file system are asked for."""

    def put(self, local: str, key: str) -> int: ...
    def get(self, key: str, local: str) -> bool | None: ...
    def read(self, key: str, begin: int = 0, end: int | None = None) -> bytes | None: ...
    def size(self, key: str) -> int | None: ...
    def write(self, key: str, data: bytes) -> None: ...
    def files(self, key: str) -> list[tuple[str, int]]: ...
    def level(self, key: str) -> tuple[list[str], list[str]]: ...
    def delete(self, key: str) -> None: ...
    def delete_all(self, key: str) -> None: ...


class ArrowPlace:
    """A `pyarrow.fs.FileSystem`."""

    def __init__(self, filesystem: Any) -> None:
        import pyarrow.fs  # type: ignore[import-not-found,import-untyped,unused-ignore]

        self._fs = filesystem
        self._arrow = pyarrow.fs
        innermost = filesystem
        while hasattr(innermost, "base_fs"):
            innermost = innermost.base_fs
        self._is_atomic = innermost.type_name in _ATOMIC_ARROW
        if innermost.type_name == "mock":
            raise ValueError(_one_process_only("the mock file system"))

    def _info(self, key: str) -> Any:
        return self._fs.get_file_info([key])[0]

    def _store(self, key: str, pour: Callable[[Any], None]) -> None:
        part = key if self._is_atomic else _part_of(key)
        if not self._is_atomic:
            self._fs.create_dir(posixpath.dirname(key), recursive=True)
        try:
            with self._fs.open_output_stream(part, compression=None) as target:
                pour(target)
            if part != key:
                self._fs.move(part, key)
        except BaseException:
            with contextlib.suppress(Exception):
                self._fs.delete_file(part)
            raise

    def put(self, local: str, key: str) -> int:
        with open(local, "rb") as source:
            self._store(key, lambda target: shutil.copyfileobj(source, target, _PIECE))
        return int(self._info(key).size)

    def write(self, key: str, data: bytes) -> None:
        self._store(key, lambda target: target.write(data))

    def get(self, key: str, local: str) -> bool | None:
        if self._info(key).type != self._arrow.FileType.File:
            return None
        with self._fs.open_input_stream(key, compression=None) as source, open(local, "wb") as target:
            shutil.copyfileobj(source, target, _PIECE)
        return True

    def read(self, key: str, begin: int = 0, end: int | None = None) -> bytes | None:
        try:
            with self._fs.open_input_file(key) as source:
                source.seek(begin)
                return bytes(source.read() if end is None else source.read(end - begin))
        except OSError:
            # For a directory each backend has an error of its own.
            if self.size(key) is None:
                return None
            raise

    def size(self, key: str) -> int | None:
        info = self._info(key)
        return int(info.size) if info.type == self._arrow.FileType.File else None

    def _select(self, key: str, *, recursive: bool) -> list[Any]:
        selector = self._arrow.FileSelector(key, allow_not_found=True, recursive=recursive)
        return list(self._fs.get_file_info(selector))

    def files(self, key: str) -> list[tuple[str, int]]:
        file = self._arrow.FileType.File
        return [(_below(key, info.path), info.size) for info in self._select(key, recursive=True) if info.type == file]

    def level(self, key: str) -> tuple[list[str], list[str]]:
        found = self._select(key, recursive=False)
        kinds = (self._arrow.FileType.Directory, self._arrow.FileType.File)
        directories, files = ([info.base_name for info in found if info.type == kind] for kind in kinds)
        return directories, files

    def delete(self, key: str) -> None:
        if self._info(key).type == self._arrow.FileType.File:
            self._fs.delete_file(key)

    def delete_all(self, key: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.delete_dir(key)


class Snapshot:
    """What a file system of fsspec's in the memory of one process has below some paths, for another process to read."""

    def __init__(self, filesystem: Any, paths: list[str]) -> None:
        self._fs = filesystem
        self._files = {file: filesystem.cat_file(file) for path in paths for file in filesystem.find(path)}

    def restored(self) -> Any:
        self._fs.pipe(self._files)
        return self._fs


class FsspecPlace:
    """An `fsspec.AbstractFileSystem`."""

    def __init__(self, filesystem: Any, *, is_snapshot: bool = False) -> None:
        from fsspec.spec import AbstractFileSystem  # type: ignore[import-not-found,import-untyped,unused-ignore]

        if is_in_memory(filesystem) and not is_snapshot:
            raise ValueError(_one_process_only("the memory file system"))
        self._fs = filesystem
        # The inherited `mv` copies and deletes: that is done where an upload is not visible before it is whole.
        self._moves = type(filesystem).mv is not AbstractFileSystem.mv

    def _store(self, key: str, pour: Callable[[str], None]) -> None:
        part = _part_of(key) if self._moves else key
        # A store without directories may refuse this; whether the put is refused too is what counts.
        with contextlib.suppress(Exception):
            self._fs.makedirs(posixpath.dirname(key), exist_ok=True)
        try:
            pour(part)
            if part != key:
                self._fs.mv(part, key)
        except BaseException:
            if part != key:
                with contextlib.suppress(Exception):
                    self._fs.rm(part)
            raise

    def put(self, local: str, key: str) -> int:
        self._store(key, lambda part: self._fs.put_file(local, part))
        self._fs.invalidate_cache()
        return int(self._fs.info(key)["size"])

    def write(self, key: str, data: bytes) -> None:
        self._store(key, lambda part: self._fs.pipe_file(part, data))

    def get(self, key: str, local: str) -> bool | None:
        try:
            self._fs.get_file(key, local)
        except FileNotFoundError:
            return None
        return True

    def read(self, key: str, begin: int = 0, end: int | None = None) -> bytes | None:
        try:
            # A class of the user's own may know whole files only.
            part = {} if not begin and end is None else {"start": begin, "end": end}
            return bytes(self._fs.cat_file(key, **part))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def size(self, key: str) -> int | None:
        try:
            info = self._fs.info(key)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return int(info["size"]) if info["type"] == "file" else None

    def _root(self, key: str) -> str:
        # Listings are remembered by many backends, and other processes write too.
        self._fs.invalidate_cache()
        return str(self._fs._strip_protocol(key))

    def files(self, key: str) -> list[tuple[str, int]]:
        root = self._root(key)
        found = self._fs.find(root, detail=True).items()
        return [(_below(root, path), info["size"]) for path, info in found if path.rstrip("/") != root.rstrip("/")]

    def level(self, key: str) -> tuple[list[str], list[str]]:
        root = self._root(key)
        try:
            found = [info for info in self._fs.ls(root, detail=True) if info["name"].rstrip("/") != root.rstrip("/")]
        except FileNotFoundError:
            return [], []
        directories, files = (
            [posixpath.basename(info["name"].rstrip("/")) for info in found if info["type"] == kind]
            for kind in ("directory", "file")
        )
        return directories, files

    def delete(self, key: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm(key)

    def delete_all(self, key: str) -> None:
        root = self._root(key)
        with contextlib.suppress(FileNotFoundError):
            if self._fs.exists(root):
                self._fs.rm(root, recursive=True)


def is_in_memory(filesystem: Any) -> bool:
    """True for fsspec's file system whose files are in the memory of this process."""
    while hasattr(filesystem, "fs"):
        filesystem = filesystem.fs
    protocol = getattr(filesystem, "protocol", ())
    return "memory" in ([protocol] if isinstance(protocol, str) else protocol)


def open_place(filesystem: Any) -> Place:
    """Tells the two kinds apart by what they can do, so that only the library that is in use is imported."""
    if hasattr(filesystem, "restored"):
        return FsspecPlace(filesystem.restored(), is_snapshot=True)
    if hasattr(filesystem, "open_output_stream") and hasattr(filesystem, "get_file_info"):
        return ArrowPlace(filesystem)
    if hasattr(filesystem, "put_file") and hasattr(filesystem, "find"):
        return FsspecPlace(filesystem)
    raise TypeError(f"`{type(filesystem).__name__}` is neither a `pyarrow.fs.FileSystem` nor an fsspec file system")


def answer(place: Place, question: dict[str, Any]) -> Any:
    """The value for one question."""
    op, key = question["op"], question["key"]
    if op == "put":
        return place.put(question["from"], key)
    if op == "get":
        return place.get(key, question["to"])
    if op == "read":
        return place.read(key, question["begin"], question["end"])
    if op == "write":
        return place.write(key, bytes.fromhex(question["hex"]))
    if op in ("size", "files", "level", "delete", "delete_all"):
        return getattr(place, op)(key)
    raise ValueError(f"no such question: `{op}`")


def main() -> None:
    """Loads the pickle that is named on the command line and answers until the input ends."""
    questions = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)

    def say(message: dict[str, Any], data: bytes = b"") -> None:
        answers.write(json.dumps(message).encode() + b"\n" + data)
        answers.flush()

    try:
        with open(sys.argv[1], "rb") as file:
            place = open_place(pickle.load(file))
    except Exception as error:
        say({"error": _words(error)})
        return
    say({"ok": True})
    for line in questions:
        try:
            value = answer(place, json.loads(line))
        except Exception as error:
            say({"error": _words(error)})
        else:
            say({"ok": len(value)}, value) if isinstance(value, bytes) else say({"ok": value})


def _below(root: str, path: str) -> str:
    root, path = root.strip("/"), path.strip("/")
    return path.removeprefix(root).lstrip("/") if root else path


def _part_of(key: str) -> str:
    directory, name = posixpath.split(key)
    return posixpath.join(directory, f".{name}.part")


def _one_process_only(what: str) -> str:
    return f"{what} keeps its files in the memory of one process, where the others of a run do not see them"


def _words(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


if __name__ == "__main__":
    main()
    # Threads of the backends are not waited for: some crash when the interpreter is taken down around them.
    sys.stderr.flush()
    os._exit(0)
