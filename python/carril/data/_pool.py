"""Processes for functions of the user's, as a transform of the native stream.

They are forked from one process that this one keeps (the nursery, `carril._internal.mappers`): what the functions need is imported there once,
and not by each data set again.
"""

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from carril._internal.pickling import dump_call, dumps
from carril.exceptions import UserCodeError

if TYPE_CHECKING:
    from carril.data._functions import Operation

# What takes long to import. Where a function speaks of one of these, the nursery has it.
_HEAVY = ("numpy", "pandas", "pyarrow", "torch", "torchvision", "transformers", "tensorflow", "jax", "sklearn", "scipy")


class _Nursery:
    """The process that others are forked from. It ends with this process."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._socket, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-m", "carril._internal.mappers", str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)

    def fork(self, control: socket.socket, modules: list[str]) -> None:
        """A process that answers on `control`, with this process's output."""
        data = dumps({"modules": modules, "path": sys.path})
        socket.send_fds(self._socket, [b"p"], [control.fileno(), 1, 2])
        self._socket.sendall(len(data).to_bytes(8, "little") + data)

    def forget(self) -> None:
        """In a fork, where it is the parent's; or when it has gone."""
        self._socket.close()
        if self.owner == os.getpid():
            # It ends at once, unless it is in the middle of an import.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5)


_nursery: _Nursery | None = None
_lock = threading.Lock()


def _fork(control: socket.socket, modules: list[str]) -> None:
    global _nursery
    with _lock:
        if _nursery is not None and _nursery.owner != os.getpid():
            _nursery.forget()
            _nursery = None
        if _nursery is not None:
            try:
                _nursery.fork(control, modules)
                return
            except OSError:  # somebody has killed it
                _nursery.forget()
        _nursery = _Nursery()
        _nursery.fork(control, modules)


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
            "operations": dump_call(list(operations), function, None),  # type: ignore[arg-type]
        }
        data = dumps(payload)
        modules = [name for name in _HEAVY if name in sys.modules and name.encode() in data]
        control, theirs = socket.socketpair()
        with control:
            with theirs:
                _fork(theirs, modules)
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
