"""Processes for functions of the user's, as a transform of the native stream.

They are forked from one that has imported what the functions need (`carril._internal.mappers`): in a worker from a nursery that was forked
with it, elsewhere from the zygote of the agent, and where there is none from a nursery that is started plainly and kept.
"""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from carril._internal import cells, mappers
from carril._internal.pickling import dump_call, dumps
from carril.exceptions import UserCodeError

if TYPE_CHECKING:
    from carril.data._functions import Operation

# What takes long to import. Where a function speaks of one of these, the nursery has it.
_HEAVY = ("numpy", "pandas", "pyarrow", "torch", "torchvision", "transformers", "tensorflow", "jax", "sklearn", "scipy")


class _Nursery:
    """A process that managers are forked from. It ends with this process."""

    def __init__(self, inherited: socket.socket | None = None) -> None:
        self.owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        if inherited is not None:
            self._socket = inherited
            return
        self._socket, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-m", "carril._internal.mappers", str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)

    def fork(self, modules: list[str]) -> socket.socket:
        """The other end of a new manager, which has this process's output."""
        control, theirs = socket.socketpair()
        data = dumps({"modules": modules, "path": sys.path})
        with theirs:
            try:
                socket.send_fds(self._socket, [b"p"], [theirs.fileno(), 1, 2])
                self._socket.sendall(len(data).to_bytes(8, "little") + data)
            except OSError:
                control.close()
                raise
        return control

    def forget(self) -> None:
        """In a fork, where it is the parent's; or when it has gone."""
        self._socket.close()
        if self.owner == os.getpid() and self._process is not None:
            # It ends at once, unless it is in the middle of an import.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5)


_nursery: _Nursery | None = None
_lock = threading.Lock()
# One that was just started listens after so long.
_ZYGOTE_LISTENS_WITHIN_S = 1.0
# And answers when it is through with its imports; one that is stuck, never.
_ZYGOTE_ANSWERS_WITHIN_S = 10.0


def _manager(modules: list[str]) -> socket.socket:
    """The other end of a process that answers on it, forked from wherever that is quickest."""
    global _nursery
    with _lock:
        if _nursery is not None and _nursery.owner != os.getpid():
            _nursery.forget()
            _nursery = None
        if _nursery is None and (inherited := mappers.take_inherited()) is not None:
            _nursery = _Nursery(inherited)
        if _nursery is not None:
            try:
                return _nursery.fork(modules)
            except OSError:  # somebody has killed it
                _nursery.forget()
                _nursery = None
        control = _from_zygote()
        if control is not None:
            return control
        _nursery = _Nursery()
        return _nursery.fork(modules)


def _from_zygote() -> socket.socket | None:
    """None where there is no zygote, or it cannot fork."""
    directory = _agent_directory()
    if directory is None:
        return None
    control = socket.socket(socket.AF_UNIX)
    control.settimeout(_ZYGOTE_ANSWERS_WITHIN_S)
    try:
        _connect(control, mappers.zygote_path(directory))
        if mappers.receive(control) == b"+":
            socket.send_fds(control, [b"p"], [1, 2])
            control.settimeout(None)
            return control
    except OSError:
        pass
    control.close()
    return None


def _connect(control: socket.socket, path: str) -> None:
    until = time.monotonic() + _ZYGOTE_LISTENS_WITHIN_S
    while True:
        try:
            return control.connect(path)
        except FileNotFoundError:
            if time.monotonic() > until:
                raise
            time.sleep(0.005)


def _agent_directory() -> str | None:
    """Of the agent on this machine: a worker's own, or the one that belongs to the driver's private head."""
    from carril._internal.driver import current_client
    from carril.train import _session

    session = _session.entered()
    if session is not None:
        return session.node_directory if _session.is_stored(session) else None
    client = current_client()
    return client.directory if client is not None else None


def close() -> None:
    """Ends the nursery; what was forked from it goes on until its transform goes."""
    global _nursery
    with _lock:
        if _nursery is not None:
            _nursery.forget()
        _nursery = None


class Pool:
    """Processes that carry out the same operations. They end with the transform."""

    def __init__(self, operations: "Sequence[Operation]", processes: int) -> None:
        from carril._native import Transform

        function = operations[-1].function
        payload = {
            "path": sys.path,
            "directory": os.getcwd(),
            "environment": dict(os.environ),
            "cells": cells.here(),
            "operations": dump_call(list(operations), function, None),  # type: ignore[arg-type]
        }
        data = dumps(payload)
        modules = [name for name in _HEAVY if name in sys.modules and name.encode() in data]
        with _manager(modules) as control:
            control.sendall(len(data).to_bytes(8, "little") + data)
            self._wait_until_ready(control, function)
            keeps_rows = all(operation.keeps_rows for operation in operations)
            self.transform: Transform = Transform.pool(control.detach(), processes, keeps_rows)

    def _wait_until_ready(self, control: socket.socket, function: object) -> None:
        with control.makefile("rb", buffering=0) as answers:
            length = int.from_bytes(answers.read(8) or b"", "little")
            answer = b""
            while len(answer) < length:
                piece = answers.read(length - len(answer))
                if not piece:
                    break
                answer += piece
        if answer[:1] != b"+":
            import json

            name = getattr(function, "__name__", repr(function))
            why = json.loads(answer[1:])["message"] if answer else "the process for it ended by itself"
            raise UserCodeError(f"`{name}` cannot be loaded in a process of its own: {why}")
