"""What the trackers share: finding the library, reading what was reported, and knowing who this process is."""

import importlib
from collections.abc import Mapping
from typing import Any

from carril.train import _session


def library(name: str, title: str, package: str | None = None) -> Any:
    """The tracker's module, or one error that says how to install it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != name.partition(".")[0]:
            raise
        raise ImportError(
            f"{title} is not installed, and this needs it\nhint: `pip install {package or name}`", name=name
        ) from None


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The metrics that are numbers, with a nested `{"a": {"b": 1}}` under `a/b`."""
    from carril.train._result import flatten

    return {name: value for name, value in flatten(dict(metrics)).items() if isinstance(value, (bool, int, float))}


def rank() -> int:
    """This worker's rank; 0 outside a training function."""
    session = _session.entered()
    return 0 if session is None else session.rank


def run_name() -> str | None:
    """The name of the run that this worker is in."""
    session = _session.entered()
    return None if session is None else session.run_name


def run_directory() -> str | None:
    """The directory of the run that this worker is in."""
    session = _session.entered()
    return None if session is None else session.run_directory or None
