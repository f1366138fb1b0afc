"""File system objects of the user's, of pyarrow or fsspec, for the native half: a process of its own opens them."""

import os
import re
import sys
from typing import IO, Any

from carril.exceptions import ConfigError, kind_of


def for_reading(filesystem: Any, paths: list[str]) -> tuple[bytes | None, list[str]]:
    """The file system as it travels, and the paths as it knows them; nothing for a local one, of which a path is enough."""
    from carril._internal.filesystem import Snapshot, is_in_memory
    from carril.train._locations import checked_filesystem

    given = checked_filesystem(filesystem, "filesystem")
    if given is None:
        return None, paths
    strip = getattr(given, "_strip_protocol", lambda path: path.partition("://")[2] if "://" in path else path)
    inside = [str(strip(path)) for path in paths]
    if is_in_memory(given):
        # No other process sees its files: they go along.
        given = Snapshot(given, [_before_glob(path) for path in inside])
    return pickled(given), inside


def _before_glob(path: str) -> str:
    """The directory in which the files are that a path with wild cards means; other paths as they are."""
    fixed = re.split(r"[*?[]", path, maxsplit=1)[0]
    return fixed if fixed == path else fixed.rpartition("/")[0]


def pickled(filesystem: Any) -> bytes:
    from carril._internal.pickling import dumps

    try:
        return dumps(filesystem)
    except Exception as error:
        raise ConfigError(
            f"`filesystem`, {kind_of(filesystem)}, cannot be sent to the process that opens it: {error}"
        ) from None


def opened(pickle: bytes) -> tuple[IO[bytes], dict[str, Any]]:
    """How another process loads it, as long as the file is open: memory, so that no key is ever on a disk."""
    from carril._internal.driver import absolute_path

    file = os.fdopen(os.memfd_create("carril-filesystem"), "wb")
    file.write(pickle)
    file.flush()
    path = f"/proc/{os.getpid()}/fd/{file.fileno()}"
    return file, {"executable": sys.executable, "path": absolute_path(), "pickle": path}
