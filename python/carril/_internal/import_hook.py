"""Tells the node what the driver imports, so that the same is being imported where workers are forked from.

A finder at the front of `sys.meta_path` that finds nothing: it notes names and lets the import go on. The first
import of an installed package is passed on at once, because the packages that are slow to import are the ones worth
importing on both sides at the same time; the names of their parts follow in batches.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import ModuleType

from carril._internal.imports import is_installed_package

_BATCH_SECONDS = 0.25


def _drop(names: list[str]) -> None:
    """Stands for `send` when nobody listens any longer."""


class ImportNotes:
    """Notes the names of modules of installed packages. `send` gets batches of them; its errors are its own."""

    def __init__(self, send: Callable[[list[str]], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._installed: dict[str, bool] = {}
        self._packages: list[str] = []
        self._parts: list[str] = []
        self._sent_at = time.monotonic()
        self._process = os.getpid()

    def install(self) -> None:
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        # What sends holds the client, whose connection is to end now and not when this cycle is collected.
        self._send = _drop

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        top, dot, _ = fullname.partition(".")
        if dot:
            if self._installed.get(top):
                self._parts.append(fullname)
                if time.monotonic() - self._sent_at > _BATCH_SECONDS:
                    self.flush()
        elif top not in self._installed:
            installed = self._installed[top] = is_installed_package(top)
            if installed:
                self._packages.append(top)
                self.flush()

    def flush(self) -> None:
        """Sends what is noted."""
        if os.getpid() != self._process or not self._lock.acquire(blocking=False):
            return  # a fork has no client; another thread is sending and the rest waits for the next batch
        try:
            names, self._packages = self._packages, []
            parts, self._parts = self._parts, []
            # Packages probe for parts that are not there: those were never imported.
            names.extend(name for name in parts if name in sys.modules)
            self._sent_at = time.monotonic()
            if names:
                self._send(names)
        finally:
            self._lock.release()
