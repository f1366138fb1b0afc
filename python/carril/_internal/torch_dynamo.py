"""A stand-in for `torch._dynamo`, the front of torch's compiler, until somebody wants the compiler.

Torch imports it, which takes a second or more, with the first DDP model and the first step of any optimizer. A program
that compiles nothing asks it four questions there, and the answers are always the same: a graph is broken (there is
none), a function that is not to be compiled is itself, DDP is compiled in the way of the default, and what is cached is
forgotten (nothing is). The stand-in knows these answers. At any other question it imports the real module, which takes
its place.

DYN-1: what the stand-in has said of functions is taken back when the real module comes: torch asks again.
DYN-2: only for versions of torch whose questions are known; any other has the real module.
"""

import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

NAME = "torch._dynamo"
# Where `torch.nn.parallel`, `torch.optim`, `torch._compile` and `torch.distributed` were read for what they ask.
_KNOWN = ("2.15.",)
# Where torch keeps the settings of a function.
_CACHE = "__dynamo_disable"


class _StandIn(ModuleType):
    def __init__(self) -> None:
        super().__init__(NAME)
        self.__spec__ = importlib.util.find_spec(NAME)
        self.__file__ = self.__spec__.origin if self.__spec__ is not None else None
        self._real: ModuleType | None = None
        self._told: list[Any] = []
        self._lock = threading.RLock()
        # A collection of its own for each: what else is asked of it is asked of the real one.
        self.utils = _Part(self, "utils", get_optimize_ddp_mode=lambda: "ddp_optimizer")
        self.trace_rules = _Part(self, "trace_rules", clear_lru_cache=lambda: None)

    def graph_break(self, *arguments: Any, **options: Any) -> None:
        if self._real is not None:
            self._real.graph_break(*arguments, **options)

    def disable(self, fn: Any = None, recursive: bool = True, **options: Any) -> Any:
        with self._lock:
            # As torch itself asks, and keeps the answer: a user who asks gets the real one.
            if self._real is None and callable(fn) and options == {"wrapping": False}:
                self._told.append(fn)
                return fn
        return self._load().disable(fn, recursive, **options)

    def __getattr__(self, name: str) -> Any:
        # Whoever looks through all modules asks for such names. The import of a part of the module asks for its path.
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        return getattr(self._load(), name)

    def _load(self) -> ModuleType:
        with self._lock:
            if self._real is None:
                sys.modules.pop(NAME, None)
                sys.modules["torch"].__dict__.pop("_dynamo", None)
                real = importlib.import_module(NAME)
                self._real = real
                vars(self).pop("utils")
                vars(self).pop("trace_rules")
                for function in self._told:
                    vars(function).pop(_CACHE, None)
            return self._real


class _Part(SimpleNamespace):
    def __init__(self, whole: _StandIn, name: str, **known: Callable[[], Any]) -> None:
        super().__init__(**known)
        self._whole, self._name = whole, name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(getattr(self._whole._load(), self._name), name)


def stand_in() -> bool:
    """Puts the stand-in where torch looks for the module; false where the real one is there or is needed."""
    torch = sys.modules.get("torch")
    version = str(getattr(torch, "__version__", ""))
    if torch is None or NAME in sys.modules or not version.startswith(_KNOWN):
        return False
    module = _StandIn()
    sys.modules[NAME] = module
    torch._dynamo = module  # type: ignore[attr-defined]
    return True
