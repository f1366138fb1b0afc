"""What a worker tells of an exception: its type and text, the traceback as the user should see it, and the place.

Frames of ours are left out: a user reads from the training function downwards. The place is the innermost line in a
file of the user's own, because the line inside a library is rarely the one to change.
"""

import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from carril._internal import cells

if TYPE_CHECKING:
    import traceback

_LONGEST = 4_000

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class ExceptionReport(NamedTuple):
    """The arguments of the session's `failed`."""

    message: str
    exception_type: str
    traceback: str
    location: str
    exception: bytes | None
    code: str


def describe(error: BaseException) -> ExceptionReport:
    """Everything that a driver needs to show and to raise the exception again."""
    if "ray" in sys.modules and type(error) is TypeError:
        from carril.as_ray.keywords import explain

        explain(error)
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    text = _readable(_cut(_text(error)) + _keys_there(error))
    trace = _readable("\n".join(map(_cut, _traceback(error).split("\n"))))
    location = _readable(_location(error.__traceback__))
    return ExceptionReport(text, name, trace, location, _pickled(error), _code(error))


def _cut(text: str) -> str:
    """Some exceptions hold all of their data in their text. The exception itself keeps it."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text) - _LONGEST:,} more characters)"


def _readable(text: str) -> str:
    """What no encoding has, such as the bytes of a file's name that are no UTF-8, is shown escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def _code(error: BaseException) -> str:
    """What a function raises is its own failure, but for storage that fails and a kill from outside that ended what it read from."""
    from carril.exceptions import StorageError, WorkerDiedError

    if isinstance(error, (StorageError, WorkerDiedError)) and error.origin == "infrastructure":
        return error.code
    return "user-exception"


def _keys_there(error: BaseException) -> str:
    """For a key that is missing in a dictionary or a data frame: the keys that are there."""
    if type(error) is not KeyError or len(error.args) != 1:
        return ""
    try:
        from carril._internal.missing_key import keys_there

        return keys_there(error.args[0], error.__traceback__, _is_ours, _is_library)
    except Exception:  # only a help: whatever is odd about the user's objects, the error itself is reported
        return ""


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:
        return f"(its text cannot be made: {type(broken).__name__})"


def _traceback(error: BaseException) -> str:
    import traceback

    try:
        rendered = traceback.TracebackException.from_exception(error, compact=True)
        _drop_our_frames(rendered, set())
        return "".join(rendered.format())
    except Exception:
        # An exception whose `__str__` raises, a source file that vanished: less is better than nothing.
        return "".join(traceback.format_tb(error.__traceback__))


def _drop_our_frames(rendered: "traceback.TracebackException | None", seen: set[int]) -> None:
    if rendered is None or id(rendered) in seen:
        return
    seen.add(id(rendered))
    own = [frame for frame in rendered.stack if not _is_ours(frame.filename)]
    rendered.stack[:] = own
    _drop_our_frames(rendered.__cause__, seen)
    _drop_our_frames(rendered.__context__, seen)
    for inner in getattr(rendered, "exceptions", None) or ():
        _drop_our_frames(inner, seen)


def _is_ours(filename: str) -> bool:
    return filename.startswith((_PACKAGE, "<frozen runpy>", "<frozen importlib"))


def _location(trace: TracebackType | None) -> str:
    place, fallback = "", ""
    while trace is not None:
        filename = trace.tb_frame.f_code.co_filename
        if not _is_ours(filename):
            here = cells.place(filename, trace.tb_lineno) or f"{_short(filename)}:{trace.tb_lineno}"
            fallback = here
            if not _is_library(filename):
                place = here
        trace = trace.tb_next
    return place or fallback


def _is_library(filename: str) -> bool:
    # Cython tells the lines of its sources, which are not there.
    if (
        filename.endswith((".pyx", ".pxi", ".pxd"))
        or "/site-packages/" in filename
        or "/dist-packages/" in filename
        or filename.startswith("<frozen")
    ):
        return True
    return filename.startswith(os.path.dirname(os.__file__) + os.sep)


def _short(filename: str) -> str:
    try:
        inside = os.path.relpath(filename)
    except (OSError, ValueError):  # the working directory was removed
        return filename
    return filename if inside.startswith("..") or filename.startswith("<") else inside


def _pickled(error: BaseException) -> bytes | None:
    """The exception as bytes that do come back as an exception, or None."""
    from carril._internal.pickling import dumps, loads

    try:
        data = dumps(error)
        # Classes whose constructor takes other arguments than the text pickle well and cannot be unpickled.
        return data if isinstance(loads(data), BaseException) else None
    except Exception:
        return None


def flush_output() -> None:
    """Writes out what the process printed, also what C code left in its own buffers."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # closed or replaced by the user
            continue
    ctypes = sys.modules.get("ctypes")
    if ctypes is not None:
        ctypes.CDLL(None).fflush(None)
