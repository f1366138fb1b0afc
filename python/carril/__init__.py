"""Carril: one training function on many workers, with the names that Ray users know.

This module only names things. Everything is loaded when it is first used, so that `import carril` costs next to
nothing: neither numpy nor torch nor cloudpickle is imported before a run needs it.
"""

# Type checkers know this name. Importing it from `typing` would be most of the cost of importing this module.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from carril import data as data
    from carril import exceptions as exceptions
    from carril import integrations as integrations
    from carril import train as train
    from carril import tune as tune
    from carril._internal.driver import available_resources as available_resources
    from carril._internal.driver import cluster_resources as cluster_resources
    from carril._internal.driver import init as init
    from carril._internal.driver import is_initialized as is_initialized
    from carril._internal.driver import nodes as nodes
    from carril._internal.driver import shutdown as shutdown

    __version__: str

__all__ = [
    "__version__",
    "available_resources",
    "cluster_resources",
    "data",
    "exceptions",
    "init",
    "integrations",
    "is_initialized",
    "nodes",
    "shutdown",
    "train",
    "tune",
]

_FROM_DRIVER = frozenset(
    ("available_resources", "cluster_resources", "init", "is_initialized", "nodes", "shutdown"),
)
_MODULES = frozenset(("data", "exceptions", "integrations", "train", "tune"))
# Names of Ray that scripts use and that are not built yet. They exist so that the error says more than "no attribute".
_LATER = frozenset(
    (
        "ObjectRef",
        "cancel",
        "get",
        "get_actor",
        "get_gpu_ids",
        "get_runtime_context",
        "kill",
        "method",
        "put",
        "remote",
        "timeline",
        "util",
        "wait",
    ),
)


def __getattr__(name: str) -> "Any":
    value: Any
    if name in _FROM_DRIVER:
        from carril._internal import driver

        value = getattr(driver, name)
    elif name in _MODULES:
        import importlib

        value = importlib.import_module("carril." + name)
    elif name == "__version__":
        from carril._native import __version__ as value
    elif name in _LATER:
        from carril.exceptions import NotAvailableError

        raise NotAvailableError(
            f"`carril.{name}` is not built yet",
            hints=["this version trains: see `carril.train`, and the readme for what is planned"],
        )
    else:
        raise AttributeError(f"module 'carril' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
