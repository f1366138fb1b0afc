"""Processes for functions of the user's, as a transform of the native stream."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from carril._internal.pickling import dump_call, dumps
from carril.exceptions import UserCodeError

if TYPE_CHECKING:
    from carril.data._functions import Operation


class Pool:
    """Processes that carry out the same operations. They end with this object."""

    def __init__(self, operations: "Sequence[Operation]", processes: int) -> None:
        from carril._native import Transform

        function = operations[-1].function
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-m", "carril._internal.mappers", str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        self._control = ours
        payload = {
            "path": sys.path,
            "directory": os.getcwd(),
            "operations": dump_call(list(operations), function, None),  # type: ignore[arg-type]
        }
        data = dumps(payload)
        ours.sendall(len(data).to_bytes(8, "little") + data)
        self._wait_until_ready(function)
        keeps_rows = all(operation.keeps_rows for operation in operations)
        self.transform: Transform = Transform.pool([self._fork() for _ in range(processes)], keeps_rows)

    def _wait_until_ready(self, function: object) -> None:
        with self._control.makefile("rb", buffering=0) as answers:
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

    def _fork(self) -> tuple[int, int, int]:
        ours, theirs = socket.socketpair()
        given, made = (os.memfd_create(name, os.MFD_CLOEXEC) for name in ("carril-given", "carril-made"))
        # An open file has one place for both sides: each gets an opening of its own.
        other = [os.open(f"/proc/self/fd/{one}", os.O_RDWR | os.O_CLOEXEC) for one in (given, made)]
        with theirs:
            socket.send_fds(self._control, [b"f"], [theirs.fileno(), *other])
        for one in other:
            os.close(one)
        return ours.detach(), given, made

    def close(self) -> None:
        self._control.close()
        self._process.wait()

    def __del__(self) -> None:
        control = getattr(self, "_control", None)
        if control is not None:
            control.close()
            # It ends at once; who collects it must not wait for it.
            self._process.poll()
