"""Where files are: a local path, a URI of an object store, or a path in a file system object of pyarrow or fsspec.

Only names are looked at here; nothing is opened. A location is parsed once, at the user's own line, so that a
mistake in it is found before anything is started.
"""

import os
import re
from typing import Any

from carril.exceptions import ConfigError, ConfigTypeError, kind_of

# The schemes of one kind of store, and the name by which pyarrow and fsspec know it.
_KINDS = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "az": "abfs",
    "azure": "abfs",
    "abfs": "abfs",
    "abfss": "abfs",
}
# Before the name of a public bucket, as pyarrow writes it.
_ANONYMOUS = "anonymous@"
# What pyarrow opens by itself. For Azure it needs the account as well, which is no part of the URI.
_OPENED_BY_PYARROW = ("s3", "gcs")


def is_uri(location: str) -> bool:
    """True for a URI of any kind."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", location) is not None


def location(path: "str | os.PathLike[str]", what: str) -> str:
    """An absolute local path, or a URI of a store. `what` names the argument in an error."""
    text = _text(path, what)
    if text.startswith("file://"):
        return _path_of_file_uri(text, what)
    if is_uri(text):
        return _checked_uri(text, what)
    if re.match(rf"({'|'.join(_KINDS)}):/[^/]", text):
        raise ConfigError(
            f"`{what}` is `{text}`, which was a URI before it became a Path", hints=["give a URI as a text"]
        )
    slip = re.match(rf"({'|'.join(_KINDS)})(?://|:)(?=[^/])(.*)", text)
    if slip is not None:
        raise ConfigError(
            f"`{what}` is `{text}`, which is neither a path nor a URI",
            hints=[f"did you mean `{slip[1]}://{slip[2]}`?", f"a directory of this name is `./{text}`"],
        )
    return os.path.abspath(os.path.expanduser(text))


def _text(path: "str | os.PathLike[str]", what: str) -> str:
    try:
        return os.fsdecode(path)
    except TypeError:
        raise ConfigTypeError(f"`{what}` is {kind_of(path)}: it must be a path") from None


def _path_of_file_uri(uri: str, what: str) -> str:
    from urllib.parse import unquote

    path = uri.removeprefix("file://").removeprefix("localhost")
    if not path.startswith("/"):
        raise ConfigError(f"`{what}` is `{uri}`: a `file://` URI needs three slashes")
    return os.path.abspath(unquote(path))


def _checked_uri(uri: str, what: str) -> str:
    scheme, path, query = split_uri(uri)
    if scheme.lower() in _KINDS and scheme not in _KINDS:
        raise ConfigError(
            f"`{what}` is `{uri}`: there is no storage for `{scheme}://`",
            hints=[f"did you mean `{scheme.lower()}://{path}{query}`?"],
        )
    if scheme not in _KINDS:
        raise ConfigError(
            f"`{what}` is `{uri}`: there is no storage for `{scheme}://`",
            hints=[
                "use a path, `file://`, `s3://`, `gs://` or `az://`; for anything else give a file system of pyarrow or "
                "fsspec, and the path in it"
            ],
        )
    if not path:
        raise ConfigError(f"`{what}` is `{uri}`: it names no bucket")
    return f"{scheme}://{path}{query}"


def split_uri(uri: str) -> tuple[str, str, str]:
    """Scheme, bucket and path without a slash at the end, and what follows from a `?` on: endpoint and region."""
    scheme, _, rest = uri.partition("://")
    path, mark, query = rest.rpartition("?") if "?" in rest else (rest, "", "")
    return scheme, path.rstrip("/"), mark + query


def joined(location: str, name: str) -> str:
    """The place `name` right inside a location."""
    if not is_uri(location):
        return f"{location.rstrip('/')}/{name}"
    scheme, path, query = split_uri(location)
    return f"{scheme}://{path}/{name}{query}"


def parent_and_name(location: str) -> tuple[str, str]:
    """What `joined` was given."""
    if not is_uri(location):
        parent, _, name = location.rstrip("/").rpartition("/")
        return parent, name
    scheme, path, query = split_uri(location)
    parent, _, name = path.rpartition("/")
    return f"{scheme}://{parent}{query}", name


def kind_and_path(uri: str) -> tuple[str, str]:
    """A URI's kind of store, and bucket and path, so that two ways to write one place are equal."""
    scheme, path, _ = split_uri(uri)
    return _KINDS[scheme], path.removeprefix(_ANONYMOUS)


def path_in_filesystem(path: "str | os.PathLike[str]", what: str) -> str:
    """A path inside a file system object: as it is, without a slash at its end."""
    text = _text(path, what)
    return text.rstrip("/") or text


def without_scheme(path: "str | os.PathLike[str]", what: str) -> str:
    """The same of what may be a URI: scripts give that beside the object as well, which knows its paths without."""
    text = path_in_filesystem(path, what)
    return split_uri(text)[1].removeprefix(_ANONYMOUS) if is_uri(text) else text


def is_plainly_local(filesystem: object) -> bool:
    """True for the local file system of pyarrow or fsspec itself. A class derived from one may do anything."""
    kind = type(filesystem)
    family = kind.__module__.partition(".")[0]
    return kind.__name__ == "LocalFileSystem" and family in ("pyarrow", "fsspec")


def checked_filesystem(filesystem: Any, what: str) -> Any:
    """The file system object if it is one, and None for a local one: a path is all that is needed of that."""
    if filesystem is None or is_plainly_local(filesystem):
        return None
    # By their methods: neither package has to be installed, nor imported here.
    methods = (("open_output_stream", "get_file_info"), ("put_file", "find"))
    known = any(all(hasattr(filesystem, name) for name in names) for names in methods)
    if isinstance(filesystem, type) or not known:
        raise ConfigTypeError(
            f"`{what}` is {kind_of(filesystem)}: it must be a file system of pyarrow or fsspec",
            hints=["for example `pyarrow.fs.S3FileSystem()` or `fsspec.filesystem('hdfs')`"],
        )
    return filesystem


def kind_of_storage(location: str, filesystem: object) -> str:
    """A word for people: `local`, `s3`, `gcs`, or what a file system object calls itself."""
    if filesystem is None:
        return kind_and_path(location)[0] if is_uri(location) else "local"
    return next(iter(_own_names(filesystem)), type(filesystem).__name__)


def reaches(filesystem: object, uri: str) -> bool:
    """True if a file system object is one for the kind of store that a URI names."""
    return kind_and_path(uri)[0] in (_KINDS.get(name, name) for name in _own_names(filesystem))


def _own_names(filesystem: object) -> list[str]:
    """pyarrow's have one name, fsspec's one or several."""
    names = getattr(filesystem, "type_name", None) or getattr(filesystem, "protocol", None) or []
    return [names] if isinstance(names, str) else list(names)


def pyarrow_filesystem(location: str) -> Any:
    """pyarrow's file system for a path or URI; None where pyarrow is not installed or needs more than the URI."""
    if is_uri(location) and kind_and_path(location)[0] not in _OPENED_BY_PYARROW:
        return None
    try:
        import pyarrow.fs
    except ImportError:
        return None
    if not is_uri(location):
        return pyarrow.fs.LocalFileSystem()
    return pyarrow.fs.FileSystem.from_uri(location)[0]


def has_pyarrow_filesystem(location: str) -> bool:
    """Whether `pyarrow_filesystem` has one, without opening it: pyarrow asks S3 for the bucket's region then."""
    if is_uri(location) and kind_and_path(location)[0] not in _OPENED_BY_PYARROW:
        return False
    from importlib.util import find_spec

    return find_spec("pyarrow") is not None
