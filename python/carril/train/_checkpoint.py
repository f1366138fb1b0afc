"""A checkpoint: a directory of the user's files, before and after it was reported.

It is on a local path, behind a URI, or in a file system object of pyarrow or fsspec. Both ways of writing one are here:
a directory that the user fills, and the older way of a dict, which is pickled into a directory. A Checkpoint only
points at its files; it neither copies nor checks them before they are asked for.

The files of a checkpoint that a run has stored are compared with its manifest before they are handed out: by the
native side, once per process while a file stays the same, and while they are copied where they are copied.

CKP-1: a directory that `from_dict` or `from_bytes` made is removed when the last reference to it goes or the process
ends, in a worker also when it is killed; no other directory is ever removed.
CKP-2: the manifest is ours: no copy that a user gets has it.
CKP-3: a file that a manifest names is handed out only if it is what was stored, unless the user says `verify=False`.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from carril.exceptions import CheckpointError, ConfigError, ConfigTypeError, kind_of
from carril.train import _session
from carril.train._locations import (
    checked_filesystem,
    is_uri,
    kind_of_storage,
    location,
    pyarrow_filesystem,
    without_scheme,
)

if TYPE_CHECKING:
    from pathlib import Path

    from carril.train._places import Place

C = TypeVar("C", bound="Checkpoint")

_DICT_FILE = "dict_checkpoint.pkl"
_METADATA_FILE = ".metadata.json"
_MANIFEST_FILE = ".manifest.json"
_PREPROCESSOR_FILE = "preprocessor.pkl"
_PREPROCESSOR_KEY = "_preprocessor"


class Checkpoint:
    """A directory with what is needed to go on from.

    `path` is a local path or a URI (`s3://`, `gs://`, `az://`, `file://`). With `filesystem`, an object of pyarrow or
    fsspec, it is a path in that. What a run has stored is compared with its checksums when it is first read, and a
    damaged file is a CheckpointError that names it; `verify=False` hands out what is there.
    """

    path: str
    # The object that the files are reached by; None for a local path and for a URI.
    _filesystem: Any = None
    _given_filesystem: Any = None
    _keeper: object = None
    _verify: bool = True
    # Handed out by us: a manifest beside its files is its own, and not what a copy of another one has brought along.
    _is_stored: bool = False

    def __init__(self, path: "str | os.PathLike[str]", filesystem: Any = None, *, verify: bool = True) -> None:
        self._verify = verify
        self._given_filesystem = filesystem
        self._filesystem = checked_filesystem(filesystem, "filesystem")
        if self._filesystem is None:
            self.path = location(path, "path")
        else:
            self.path = without_scheme(path, "path")
        _session.checkpoint_was_made(self)

    @classmethod
    def from_directory(cls: type[C], path: "str | os.PathLike[str]") -> C:
        """A checkpoint of the files in `path`, which stays the caller's."""
        return cls(path)

    @classmethod
    def stored(cls: type[C], path: str, filesystem: Any = None, verify: bool = True) -> C:
        """A checkpoint that was made before: opening it makes no new one."""
        checkpoint = cls.__new__(cls)
        checkpoint._verify, checkpoint._is_stored = verify, True
        checkpoint.path, checkpoint._filesystem, checkpoint._given_filesystem = path, filesystem, filesystem
        return checkpoint

    @classmethod
    def from_checkpoint(cls: type[C], other: "Checkpoint") -> C:
        """The same checkpoint under this class, for example of one that `Result` gives as a TorchCheckpoint."""
        if not isinstance(other, Checkpoint):
            raise ConfigTypeError(f"`other` is {kind_of(other)}: it must be a Checkpoint")
        checkpoint = cls.__new__(cls)
        checkpoint.__dict__.update(other.__dict__)
        return checkpoint

    @property
    def filesystem(self) -> Any:
        """The file system that was given; otherwise pyarrow's, where pyarrow is installed and opens the URI, or None."""
        return self._given_filesystem if self._given_filesystem is not None else pyarrow_filesystem(self.path)

    @property
    def uri(self) -> str | None:
        """The URI of the files; None in a file system object, which has none."""
        if self._filesystem is not None:
            return None
        return self.path if is_uri(self.path) else f"file://{self.path}"

    @property
    def is_local(self) -> bool:
        """True if `path` is a directory of this machine."""
        return self._filesystem is None and not is_uri(self.path)

    @property
    def is_temporary(self) -> bool:
        """True if this object owns its directory."""
        return self._keeper is not None

    @contextmanager
    def as_directory(self, *, verify: bool | None = None) -> Iterator[str]:
        """A local directory with the files, for as long as the block lasts: read it, do not write to it.

        On a local path it is the directory itself. Otherwise the files are downloaded, once for all workers of a run
        that read at the same time on a node, and removed when the last of them leaves. Both are compared with the
        checksums of what was stored; `verify=False` leaves that out.
        """
        verify = self._verify if verify is None else verify
        if self.is_local:
            self._must_exist()
            if verify:
                self.compare()
            yield self.path
            return
        from carril.train._downloads import downloaded

        with downloaded(self._place(), self._identity(), verify) as directory:
            yield directory

    def compare(self) -> None:
        """Raises if a local checkpoint is not what was stored. Each file is read once, by the workers of a run together."""
        if os.path.lexists(os.path.join(self.path, _MANIFEST_FILE)):
            from carril._native import Storage
            from carril.train._downloads import place_that_goes_with_the_run

            Storage(self.path).check(place_that_goes_with_the_run())

    def damage(self) -> str | None:
        """What the manifest and the sizes of the files tell, without reading them; None for whole, or without a manifest."""
        place = self._place()
        manifest = place.read(_MANIFEST_FILE) if self._verify else None
        if manifest is None:
            return None
        from carril._native import list_manifests

        damage: str | None = list_manifests([(self.path, manifest, place.files())], True)[0]["damage"]
        return damage

    def to_directory(self, path: "str | os.PathLike[str] | None" = None, *, verify: bool | None = None) -> str:
        """Copies the files to `path`, or to a new temporary directory that is the caller's to remove."""
        import shutil

        from carril.train import _downloads

        self._must_exist()
        target = _downloads.new_directory() if path is None else _local_directory(path)
        verify = self._verify if verify is None else verify
        try:
            if verify and _downloads.is_shared(self._identity()):
                with self.as_directory(verify=verify) as directory:
                    shutil.copytree(directory, target, dirs_exist_ok=True)
            else:
                _downloads.download_to(self._place(), target, verify)
        except BaseException:
            if path is None:
                shutil.rmtree(target, ignore_errors=True)
            raise
        return target

    @classmethod
    def from_dict(cls: type[C], data: dict[str, Any]) -> C:
        """A checkpoint that holds a dict."""
        if not isinstance(data, dict):
            raise ConfigTypeError(f"`data` is {kind_of(data)}: it must be a dict")
        from carril._internal.pickling import dumps

        content = dumps(data)
        try:
            return cls._holding(content, cls._temporary())
        except OSError:
            # The run's storage may be full or gone for a moment: what becomes of the checkpoint is decided when it is reported.
            return cls._holding(content, cls._temporary(beside_the_run=False))

    @classmethod
    def _holding(cls: type[C], content: bytes, checkpoint: C) -> C:
        with open(os.path.join(checkpoint.path, _DICT_FILE), "wb") as file:
            file.write(content)
        return checkpoint

    def to_dict(self, *, verify: bool | None = None) -> dict[str, Any]:
        """The dict of `from_dict`; of another checkpoint, its files by name, as bytes. It unpickles."""
        from carril._internal.pickling import loads

        with self.as_directory(verify=verify) as directory:
            try:
                with open(os.path.join(directory, _DICT_FILE), "rb") as file:
                    data: dict[str, Any] = loads(file.read())
                return data
            except FileNotFoundError:
                return _files(directory)

    @property
    def dict_path(self) -> "Path":
        """The file that holds the pickled dict of `from_dict`."""
        from pathlib import Path

        return Path(self.path, _DICT_FILE)

    @classmethod
    def from_bytes(cls: type[C], data: bytes) -> C:
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

    def to_bytes(self, *, verify: bool | None = None) -> bytes:
        """All files in one piece."""
        from carril._internal.pickling import dumps

        with self.as_directory(verify=verify) as directory:
            return dumps(_files(directory))

    @classmethod
    def from_uri(cls: type[C], uri: str) -> C:
        """A checkpoint of the files behind a URI. Nothing is downloaded before it is needed."""
        if not isinstance(uri, str) or not is_uri(uri):
            raise ConfigError(f"`uri` is {uri!r}: it must be a URI, for example `s3://bucket/path`")
        return cls(uri)

    def to_uri(self, uri: str) -> str:
        """Uploads the files to a URI, which is returned."""
        if not isinstance(uri, str) or not is_uri(uri):
            raise ConfigError(f"`uri` is {uri!r}: it must be a URI, for example `s3://bucket/path`")
        target = location(uri, "uri")
        if not is_uri(target):
            self.to_directory(target)
            return uri
        from carril.train._places import place

        # Opened first: without credentials, nothing is downloaded either.
        store = place(target)
        with self.as_directory() as directory:
            store.upload(directory)
        return uri

    def get_metadata(self) -> dict[str, Any]:
        """What `set_metadata` stored; empty if nothing was."""
        import json

        data = self._place().read(_METADATA_FILE)
        try:
            metadata = {} if data is None else json.loads(data)
        except ValueError as error:
            metadata = error
        if not isinstance(metadata, dict):
            raise CheckpointError(
                f"`{_METADATA_FILE}` of the checkpoint `{self.path}` is damaged: it holds no JSON object",
                hints=["`set_metadata()` writes another one"],
            )
        return metadata

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Stores a dict of JSON values inside the checkpoint, in place of the one before."""
        import json

        data = json.dumps(metadata).encode()
        self._must_exist()
        self._place().write(_METADATA_FILE, data)

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        """Adds to the stored dict."""
        self.set_metadata({**self.get_metadata(), **metadata})

    def get_preprocessor(self) -> Any:
        """What `set_preprocessor` stored, or None. It unpickles."""
        from carril._internal.pickling import loads

        data = self._read(_PREPROCESSOR_FILE)
        if data is not None:
            return loads(data)
        data = self._read(_DICT_FILE)
        return None if data is None else loads(data).get(_PREPROCESSOR_KEY)

    def _read(self, key: str) -> bytes | None:
        """One file; CKP-3."""
        place = self._place()
        data = place.read(key)
        manifest = place.read(_MANIFEST_FILE) if self._verify else None
        if manifest is not None:
            from carril._native import check_file

            check_file(self.path, manifest, key, data)
        return data

    def set_preprocessor(self, preprocessor: Any) -> None:
        """Keeps an object with the checkpoint, pickled."""
        from carril._internal.pickling import dumps

        data = dumps(preprocessor)
        self._must_exist()
        self._write(_PREPROCESSOR_FILE, data)

    def _write(self, key: str, data: bytes) -> None:
        """Puts a file beside the others. One that the manifest names is out of it in between: it is never wrong."""
        place = self._place()
        manifest = place.read(_MANIFEST_FILE)
        if manifest is None:
            place.write(key, data)
            return
        from carril._native import amend_manifest

        without = amend_manifest(self.path, manifest, key, None)
        after = amend_manifest(self.path, manifest, key, data)
        if without is not None:
            place.write(_MANIFEST_FILE, without)
        place.write(key, data)
        if after is not None:
            place.write(_MANIFEST_FILE, after)

    @classmethod
    def _temporary(cls: type[C], beside_the_run: bool = True) -> C:
        from carril.train import _downloads

        place = _downloads.place_that_goes_with_the_run() if beside_the_run else None
        checkpoint = cls(_downloads.new_directory(place))
        checkpoint._keeper = _downloads.Keeper(checkpoint.path)
        return checkpoint

    @classmethod
    def copy_of(cls: type[C], directory: str, move: bool) -> C:
        """A temporary checkpoint with the files of `directory`, which is given away if `move` is true."""
        import shutil

        source = cls(directory)
        source._must_exist()
        checkpoint = cls._temporary()
        shutil.copytree(source.path, checkpoint.path, dirs_exist_ok=True)
        if move:
            shutil.rmtree(source.path)
        return checkpoint

    def exists(self) -> bool:
        """True if there is a directory, or any file behind the URI."""
        return os.path.isdir(self.path) if self.is_local else bool(self._place().names())

    def _must_exist(self) -> None:
        if self.is_local and not os.path.isdir(self.path):
            raise CheckpointError(f"the checkpoint's directory `{self.path}` does not exist", origin="user")

    def _place(self) -> "Place":
        from carril.train._places import place

        return place(self.path, self._filesystem)

    def _identity(self) -> str | None:
        """What other workers of the run call the same files; None where nobody else can, and for local ones."""
        if self.is_local:
            return None
        if self._filesystem is None:
            return self.path
        return f"storage_filesystem:{self.path}" if self._filesystem is _session.storage_filesystem() else None

    def __repr__(self) -> str:
        kind = kind_of_storage(self.path, self._filesystem)
        return f"{type(self).__name__}(filesystem={kind}, path={self.path})"

    def __getstate__(self) -> dict[str, Any]:
        # A temporary directory may be gone, or on another host, when the pickle is opened: its files go along.
        if self.is_temporary:
            return {"data": self.to_bytes()}
        return {"path": self.path, "filesystem": self._filesystem, "verify": self._verify, "stored": self._is_stored}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "data" in state:
            copy = Checkpoint.from_bytes(state["data"])
            self.path, self._keeper = copy.path, copy._keeper
        else:
            self.path, self._filesystem = state["path"], state.get("filesystem")
            self._given_filesystem = self._filesystem
            self._verify, self._is_stored = state.get("verify", True), state.get("stored", False)


def _local_directory(path: "str | os.PathLike[str]") -> str:
    directory = location(path, "path")
    if is_uri(directory):
        raise ConfigError(f"`path` is `{directory}`: it must be a local path", hints=["`to_uri()` copies to a URI"])
    return directory


def _files(directory: str) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for root, _, names in os.walk(directory):
        for name in names:
            place = os.path.join(root, name)
            relative = os.path.relpath(place, directory)
            if relative != _MANIFEST_FILE:
                with open(place, "rb") as file:
                    files[relative] = file.read()
    return files
