"""What the package `ray` says about a name that it does not have.

A name that some Ray has is a `NotAvailableError` with its own hint (see `absent`) and the generations that had it. An
import raises `MissingNameError`, which is a `ModuleNotFoundError` too, so that `try: from ray.x import y` in a library
that can do without goes on as if Ray were not there. Whoever asks for an attribute gets `MissingAttributeError`, so that
`hasattr` can answer.

MIS-1: a name that no Ray has is an ordinary AttributeError, ImportError or ModuleNotFoundError, with the nearest name.
`pickle` asks every loaded module for names that it may not have and expects that error and no other, and fast.
"""

import sys
from collections.abc import Callable, Iterable
from opcode import opname
from types import FrameType, ModuleType
from typing import Any, NoReturn

from carril.exceptions import NotAvailableError


class MissingNameError(NotAvailableError, ModuleNotFoundError):
    """A name of Ray that carril does not have."""


class MissingAttributeError(NotAvailableError, AttributeError):
    """The same, where it was not imported: Python has no class that is an error of both."""


def _text(name: str) -> tuple[str, str]:
    """The message and the hint for a name that carril does not have."""
    from carril.as_ray import absent, generations

    on_purpose, hint = absent.find(name)
    had = generations.of_name(name)
    message = f"`{name}` is not part of carril" if on_purpose else f"`{name}` is not available yet"
    # Of a name that today's Ray has, the generation says nothing new.
    if had is not None and not generations.is_of_today(name):
        message += f" (it is of {had})"
    return message, f"use {hint}" if hint.startswith("`") else hint


def raise_missing(name: str) -> NoReturn:
    message, hint = _text(name)
    raise MissingNameError(message, hints=[hint])


def raise_missing_module(name: str) -> NoReturn:
    """For an import of a module that is not in the table."""
    from carril.as_ray import generations

    if _is_of_ray(name):
        raise_missing(f"{name}.{wanted}" if (wanted := _imported_from(name, sys._getframe(1))) else name)
    package, _, last = name.rpartition(".")
    known = [one for one in generations.names_of(package) if not one.startswith("_")]
    raise ModuleNotFoundError(f"No module named {name!r}{_nearest(last, known)}", name=name)


def raise_unknown(module: ModuleType, name: str, frame: FrameType) -> NoReturn:
    """For an attribute that a module of ours does not have. `frame` is the one that asked."""
    path = f"{module.__name__}.{name}"
    is_import = _imports(frame)
    if not name.startswith("__") and _is_of_ray(path):
        message, hint = _text(path)
        # `from … import` would swallow an AttributeError, and the text with it.
        raise (MissingNameError if is_import else MissingAttributeError)(message, hints=[hint])
    if is_import:
        nearest = _nearest(name, dir(module))
        raise ImportError(f"cannot import name {name!r} from {module.__name__!r}{nearest}", name=module.__name__)
    # Python itself looks for the nearest name when the error is shown.
    raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module)


def _is_of_ray(path: str) -> bool:
    """Whether some Ray has or had the name: one of the tables, or one that is older than they are."""
    from carril.as_ray import absent, generations

    return path in absent.ABSENT or path in absent.LATER or generations.of_name(path) is not None


def _imported_from(module: str, frame: FrameType | None) -> str | None:
    """Of `from module import x, …`, for which the module is looked for, the first name: its hint is the one to give."""
    # Between the statement and us are the finder and the frames of Python's own import.
    while frame is not None and (frame.f_globals.get("__name__") or "").startswith(("importlib", "carril.as_ray")):
        frame = frame.f_back
    if frame is None:
        return None
    from dis import get_instructions

    here = [one for one in get_instructions(frame.f_code) if one.offset >= frame.f_lasti][:2]
    is_it = len(here) == 2 and here[0].opname == "IMPORT_NAME" and here[0].argval == module
    return str(here[1].argval) if is_it and here[1].opname == "IMPORT_FROM" else None


def _nearest(name: str, known: Iterable[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, list(known), n=1)
    return f": did you mean {close[0]!r}?" if close else ""


def _imports(frame: FrameType) -> bool:
    """Whether a frame is at the part of `from … import name` that asks the module for the name."""
    return frame.f_lasti >= 0 and opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_FROM"


def function(name: str) -> Callable[..., Any]:
    """A function that raises when it is called, for names that scripts import without using them."""

    def missing_function(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise_missing(name)

    missing_function.is_missing = True  # type: ignore[attr-defined]
    missing_function.__name__ = missing_function.__qualname__ = name.rpartition(".")[2]
    missing_function.__module__ = name.rpartition(".")[0]
    missing_function.__doc__ = f"`{name}` is not available yet: it raises `NotAvailableError`."
    return missing_function
