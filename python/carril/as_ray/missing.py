"""What the package `ray` says about the parts of Ray that carril does not have yet.

A module of ours names the public attributes that are missing from it; a module that is missing whole is caught by a
finder at the end of `sys.meta_path`. An import raises `MissingNameError`: a `NotAvailableError`, so that the text says
what is missing, and a `ModuleNotFoundError`, so that `try: from ray.x import y` in a library that can do without
goes on as if Ray were not there. Whoever asks for an attribute gets `MissingAttributeError`, so that `hasattr` can answer.

MIS-1: names that Ray does not have either stay an AttributeError. `pickle` asks every loaded module for names that
it may not have and expects that error and no other.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import ModuleSpec
from opcode import opname
from types import FrameType, ModuleType
from typing import Any, NoReturn

from carril.exceptions import NotAvailableError

_HINT = (
    "`ray.train`, `ray.train.torch`, `ray.tune`, `ray.data` and `ray.air` are there; the readme says what is planned"
)


class MissingNameError(NotAvailableError, ModuleNotFoundError):
    """A name of Ray that carril does not have yet."""


class MissingAttributeError(NotAvailableError, AttributeError):
    """The same, where it was not imported: Python has no class that is an error of both."""


def raise_missing(name: str, hint: str = _HINT) -> NoReturn:
    raise MissingNameError(f"`{name}` is not available yet", hints=[hint])


def attributes(
    module: str, missing: Iterable[str], submodules: Iterable[str] = (), source: str | None = None
) -> Callable[[str], Any]:
    """A `__getattr__` for `module`: names of `source` and `submodules` are loaded on demand, `missing` ones raise."""
    known = frozenset(missing)
    lazy = frozenset(submodules)

    def __getattr__(name: str) -> Any:
        import importlib

        if name in lazy:
            return importlib.import_module(f"{module}.{name}")
        if source is not None:
            home = importlib.import_module(source)
            if name in home.__all__:
                return getattr(home, name)
        if name in known:
            missing = f"{module}.{name}"
            # `from … import` would swallow an AttributeError, and the text with it.
            if _imports(sys._getframe(1)):
                raise_missing(missing)
            raise MissingAttributeError(f"`{missing}` is not available yet", hints=[_HINT])
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return __getattr__


def _imports(frame: FrameType) -> bool:
    """Whether a frame is at the part of `from … import name` that asks the module for the name."""
    return frame.f_lasti >= 0 and opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_FROM"


def function(name: str, hint: str = _HINT) -> Callable[..., Any]:
    """A function that raises when it is called, for names that scripts import without using them."""

    def missing_function(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise_missing(name, hint)

    missing_function.__name__ = missing_function.__qualname__ = name.rpartition(".")[2]
    missing_function.__module__ = name.rpartition(".")[0]
    missing_function.__doc__ = f"`{name}` is not available yet: it raises `NotAvailableError`."
    return missing_function


class _MissingModules:
    """The last finder: reached for modules of `ray` that none before it has found."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.startswith("ray."):
            raise_missing(name)
        return None


def install_finder() -> None:
    """Makes `import ray.x` of a missing module say so. A second call changes nothing."""
    if _MissingModules not in sys.meta_path:
        sys.meta_path.append(_MissingModules)
