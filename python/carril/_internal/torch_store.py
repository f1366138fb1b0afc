"""The store that torch's ranks meet at, served by rank 0 on a socket that the agent has bound and published.

A script written for torchrun calls `init_process_group()` itself and expects that somebody serves `MASTER_PORT`. So
the store must stand as soon as torch is there, whether we, the user's function or a module of the user imports it.

STORE-1: the descriptor in `CARRIL_STORE_FD` is used at most once, and only in the process it was given to.
"""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_VARIABLE = "CARRIL_STORE_FD"
_MODULE = "torch.distributed"

# Referenced for as long as the process lives: the store's server stops when the object goes.
_store: Any = None


def serve_when_torch_is_there() -> None:
    """Serves the store now if torch is imported, otherwise right after its import. Without a descriptor: nothing."""
    # Torch 2.4 and older put the attempt into the keys of the store and read it from here.
    os.environ.setdefault("TORCHELASTIC_RESTART_COUNT", "0")
    text = os.environ.pop(_VARIABLE, "")
    if not text:
        return
    descriptor = int(text)
    module = sys.modules.get(_MODULE)
    if module is not None:
        _serve(module, descriptor)
    else:
        sys.meta_path.insert(0, _AfterImport(descriptor))


def _serve(module: ModuleType, descriptor: int) -> None:
    global _store
    if not module.is_available():
        os.close(descriptor)
        return
    _store = module.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        None,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=descriptor,
    )


class _AfterImport:
    """Finds `torch.distributed` once, with a loader that serves the store when the module has been executed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = _ServingLoader(spec.loader, self._descriptor)
            spec.loader = loader
        return spec


class _ServingLoader:
    """Another loader, and the store after it."""

    def __init__(self, loader: Any, descriptor: int) -> None:
        self._loader = loader
        self._descriptor = descriptor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # What looks at the module later (inspect, pickle) shall see the loader that Python chose.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _serve(module, self._descriptor)
