"""The nursery: a process that others are forked from, which run functions of the user's on blocks of data.

It is started plainly, so that nothing has run in it: what it forks may use threads and numpy as it likes. It imports the installed
packages that it is asked for, once. For each data set it forks a process that loads the functions, and that forks those that run them.
MAPPERS-1: whoever sits at the other end of a socket has gone when it ends: the nursery and those that it has forked end then.
"""

import contextlib
import gc
import importlib
import os
import signal
import socket
import sys
import traceback
from typing import Any


def main() -> int:
    asked = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    from carril._internal.pickling import loads
    from carril.data import _functions

    while True:
        message, descriptors, _, _ = socket.recv_fds(asked, 1, 3)
        request = _receive(asked) if message else None
        if request is None:
            return 0
        given = loads(request)
        _import(given["modules"], given["path"])
        gc.freeze()
        if os.fork() == 0:
            code = 1
            try:
                asked.close()
                control, *output = descriptors
                for number, descriptor in enumerate(output, 1):
                    os.dup2(descriptor, number)
                    os.close(descriptor)
                code = _manage(socket.socket(fileno=control), _functions)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        for descriptor in descriptors:
            os.close(descriptor)


def _import(modules: list[str], path: list[str]) -> None:
    """Only what is installed: a file of the user's must be loaded by each data set that uses it."""
    from carril._internal.imports import installed_entries, is_installed_package

    before = sys.path[:]
    sys.path[:] = installed_entries(path)
    try:
        for name in modules:
            if name not in sys.modules and is_installed_package(name, path):
                # Whoever needs it says why it cannot be imported.
                with contextlib.suppress(BaseException):
                    importlib.import_module(name)
    finally:
        sys.path[:] = before


def _manage(control: socket.socket, functions: Any) -> int:
    """The process of one data set: it forks those that run its functions."""
    setup = _receive(control)
    if setup is None:
        return 0
    from carril._internal.pickling import loads

    given = loads(setup)
    sys.path[:] = given["path"]
    os.environ.clear()
    os.environ.update(given["environment"])
    os.chdir(given["directory"])
    try:
        operations = loads(given["operations"])
    except BaseException as error:
        _send(control, b"!" + functions.told(error))
        return 1
    _send(control, b"+")
    gc.freeze()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 3)
        if not message:
            return 0
        if os.fork() == 0:
            control.close()
            _serve(functions, operations, *descriptors)
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
