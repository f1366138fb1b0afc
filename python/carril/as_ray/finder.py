"""Makes the modules of `ray` from the table `names`.

A finder in front of `sys.meta_path` answers for `ray.*`: a module of the table is made empty and takes its names from
ours when they are asked for, so that importing it loads no more than the modules of ours that the table names. Those
are loaded with it: `import ray.tune.integration.xgboost` fails where xgboost is missing, as a test for it expects.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from carril._internal import generation
from carril.as_ray import missing
from carril.as_ray.names import MODULES


def fill(module: ModuleType) -> None:
    """Gives a module its `__all__`, `__getattr__` and `__dir__`."""
    path = module.__name__
    is_older = generation.is_of_older(path)
    homes: dict[str, tuple[str, str]] = {}
    for home, names in MODULES[path].items():
        # Of its own `__all__` comes what is not a submodule here.
        listed = importlib.import_module(home).__all__ if names == "*" else names.split()
        for theirs, ours in (name.split("=") if "=" in name else (name, name) for name in listed):
            if theirs not in homes and (names != "*" or f"{path}.{theirs}" not in MODULES):
                homes[theirs] = (home, ours)
    if path != "ray":
        for home in MODULES[path]:
            importlib.import_module(home)

    def __getattr__(name: str) -> Any:
        if name in homes:
            home, ours = homes[name]
            value = getattr(importlib.import_module(home), ours)
        elif f"{path}.{name}" in MODULES:
            value = importlib.import_module(f"{path}.{name}")
        else:
            missing.raise_unknown(module, name, sys._getframe(1))
        # What a library has asked for is not kept: whether the script asks too would not be seen.
        if not is_older or generation.note_use_of_older_names(sys._getframe(1)):
            setattr(module, name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*homes, *vars(module)})

    own = [name for name in ("__version__",) if name in vars(module)]
    vars(module).update(__all__=sorted([*homes, *own]), __getattr__=__getattr__, __dir__=__dir__)


class _Finder:
    """For `ray.*` alone; it is its own loader."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith("ray."):
            return None
        if name in MODULES:
            if generation.is_of_older(name):
                generation.note_use_of_older_names(sys._getframe(1))
            # Always a package: an import of what is missing below it reaches `find_spec`, and its text.
            return ModuleSpec(name, cls, is_package=True)  # type: ignore[arg-type]
        return missing.raise_missing_module(name)

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        module.__doc__ = f"`{module.__name__}`, standing for {' and '.join(MODULES[module.__name__]) or 'nothing yet'}."
        fill(module)


def install() -> None:
    """Puts the finder in front. A second call changes nothing."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
