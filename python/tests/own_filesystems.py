"""File systems of users' own, for tests: classes of fsspec's kind over a local directory.

They are in a module because fsspec's classes travel by name only: each carries a lock.
"""

import os
import shutil
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.implementations.dirfs import DirFileSystem


class Drawer(AbstractFileSystem):
    """Knows the least that it must: a put is whole or not there, and nothing is ever moved."""

    protocol = "drawer"
    cachable = False

    def __init__(self, root: str, **options: Any) -> None:
        super().__init__(root=root, **options)
        self.root = root

    def _local(self, path: str) -> str:
        return os.path.join(self.root, path.strip("/"))

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        local = self._local(path)
        kind = "directory" if os.path.isdir(local) else "file"
        return {"name": path.strip("/"), "size": os.path.getsize(local), "type": kind}

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        local, base = self._local(path), path.strip("/")
        if not os.path.isdir(local):
            found = [self.info(path)]
        else:
            found = [self.info(f"{base}/{name}".strip("/")) for name in sorted(os.listdir(local))]
        return found if detail else [one["name"] for one in found]

    def _open(self, path: str, mode: str = "rb", *rest: Any, **options: Any) -> Any:
        if "r" not in mode:
            os.makedirs(os.path.dirname(self._local(path)), exist_ok=True)
        return open(self._local(path), mode)

    def put_file(self, lpath: str, rpath: str, *rest: Any, **options: Any) -> None:
        target = self._local(rpath)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(lpath, f"{target}.half")
        os.replace(f"{target}.half", target)

    def rm_file(self, path: str) -> None:
        os.unlink(self._local(path))

    def rmdir(self, path: str) -> None:
        os.rmdir(self._local(path))

    def _rm(self, path: str) -> None:
        self.rmdir(path) if os.path.isdir(self._local(path)) else self.rm_file(path)


class Talks(DirFileSystem):
    """Prints in the middle of its work."""

    def put_file(self, *arguments: Any, **options: Any) -> Any:
        print("putting", arguments, flush=True)
        os.write(1, b"raw\n")
        return super().put_file(*arguments, **options)


class Refuses(DirFileSystem):
    """Can be read, and nothing can be put into it."""

    def put_file(self, *arguments: Any, **options: Any) -> Any:
        raise PermissionError("not on Sundays")

    pipe_file = pipe = put = open = put_file


class Sealed(DirFileSystem):
    """Can be looked at, and not read."""

    def cat_file(self, *arguments: Any, **options: Any) -> Any:
        raise PermissionError("not on Mondays")


class Picky(DirFileSystem):
    """Takes everything but the second checkpoint."""

    def put_file(self, lpath: str, rpath: str, *rest: Any, **options: Any) -> Any:
        if "checkpoint_000001/" in rpath:
            raise OSError("the tape is torn")
        return super().put_file(lpath, rpath, *rest, **options)
