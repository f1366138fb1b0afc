"""A process that other processes are forked from, each of which runs functions of the user's on blocks of data.

It is started plainly, so that nothing has run in it: what it forks may use threads and numpy as it likes. It imports what
the functions need before the first fork, and imports nothing twice.
MAPPERS-1: whoever sits at the other end of a socket has gone when it ends: this process and those that it has forked end then.
"""

import contextlib
import gc
import os
import signal
import socket
import sys
from typing import Any


def main() -> int:
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    setup = _receive(control)
    if setup is None:
        return 0
    from carril._internal.pickling import loads

    given = loads(setup)
    sys.path[:] = given["path"]
    os.chdir(given["directory"])
    try:
        operations = loads(given["operations"])
    except BaseException as error:
        from carril.data._functions import told

        _send(control, b"!" + told(error))
        return 1
    from carril.data import _functions

    _send(control, b"+")
    gc.freeze()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 3)
        if not message:
            return 0
        if os.fork() == 0:
            control.close()
            _serve(_functions, operations, *descriptors)
            os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


def _serve(functions: Any, operations: Any, descriptor: int, given: int, made: int) -> None:
    """Block after block, until the other side has gone."""
    from carril._native import read_blocks, write_blocks

    _reseed()
    stage = None
    # A reader that has enough goes while functions run: what they make is wanted by nobody then.
    with socket.socket(fileno=descriptor) as asked, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while asked.recv(1):
            try:
                if stage is None:
                    stage = functions.Stage(operations)
                (block,) = read_blocks(given, 1)
                blocks = stage(block)
                write_blocks(made, blocks)
            except BaseException as error:
                text = functions.told(error)
                asked.sendall(b"\1" + len(text).to_bytes(8, "little") + text)
            else:
                asked.sendall(b"\0" + len(blocks).to_bytes(8, "little"))
            sys.stdout.flush()


def _reseed() -> None:
    """Two forks would draw the same numbers."""
    import random

    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(int.from_bytes(os.urandom(4), "little"))
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        torch.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)
        torch.set_num_threads(1)


def _receive(control: socket.socket) -> bytes | None:
    length = _exactly(control, 8)
    return None if length is None else _exactly(control, int.from_bytes(length, "little"))


def _exactly(control: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        piece = control.recv(min(1 << 20, count - len(data)))
        if not piece:
            return None
        data += piece
    return bytes(data)


def _send(control: socket.socket, data: bytes) -> None:
    control.sendall(len(data).to_bytes(8, "little") + data)


if __name__ == "__main__":
    sys.exit(main())
