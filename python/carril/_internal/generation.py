"""Which generation of Ray a script is written for, where the generations behave differently.

The older one (`ray.air`, and `RAY_TRAIN_V2_ENABLED=0`) adds fields to what is reported, and scripts of it read them;
today's adds nothing. A script is recognised by what it names itself: a library that imports `ray.air` for the sake of
older versions says nothing of the script.
"""

import os
from collections.abc import Mapping
from types import CodeType, FrameType, ModuleType
from typing import Any

from carril._internal.imports import installed_entries, is_installed_location

_OLDER = "ray.air"
_VARIABLE = "RAY_TRAIN_V2_ENABLED"

_is_older = False


def under_as_ray() -> bool:
    """True if this driver was started by `carril as-ray`, and does what Ray does where the two differ."""
    return os.environ.get("CARRIL_AS_RAY") == "1"


def is_of_older(module: str) -> bool:
    """Whether a module belongs to the older generation alone."""
    return module == _OLDER or module.startswith(_OLDER + ".")


def note_use_of_older_names(frame: FrameType | None) -> bool:
    """Some code asks for a name of the older generation: true if that, or an earlier asker, is the script's own."""
    global _is_older
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in ("importlib", "carril"):
        frame = frame.f_back
    if frame is not None and not _is_of_a_package(frame.f_code.co_filename):
        _is_older = True
    return _is_older


def _is_of_a_package(file: str) -> bool:
    return is_installed_location(file) or bool(installed_entries([file])) or file.startswith("<frozen")


def keeps_automatic_fields(function: object = None) -> bool:
    """Whether results have the fields that the head adds: natively, and for scripts of the older generation."""
    import sys

    if not under_as_ray() or _is_older or os.environ.get(_VARIABLE) == "0":
        return True
    spaces = (vars(sys.modules["__main__"]), getattr(function, "__globals__", {}))
    return any(map(_holds_older, spaces)) or _names_older(getattr(function, "__code__", None))


def _holds_older(space: Mapping[str, Any]) -> bool:
    """A module that a library has imported before is not asked for once more when the script imports it."""
    return any(isinstance(value, ModuleType) and is_of_older(value.__name__) for value in list(space.values()))


def _names_older(code: CodeType | None) -> bool:
    """A function that imports `ray.air` itself does so in the worker."""
    if code is None:
        return False
    if any(map(is_of_older, code.co_names)) or {"ray", "air"} <= set(code.co_names):
        return True
    return any(_names_older(inner) for inner in code.co_consts if isinstance(inner, CodeType))


def is_strictly_of_today() -> bool:
    """The script has said so: what today's generation has removed is then an error, as there."""
    return under_as_ray() and os.environ.get(_VARIABLE) == "1"
