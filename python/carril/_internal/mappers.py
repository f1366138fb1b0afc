"""Processes that run functions of the user's on blocks of data, and where they are forked from.

For each data set there is a process that loads its functions (the manager) and forks those that run them (the mappers). A manager is
forked from a process that has imported the packages that functions need, and has run nothing, so that what it forks may use threads and
numpy as it likes: from the agent's zygote, or, where there is none, from a nursery that is started for that.

MAPPERS-1: whoever sits at the other end of a socket has gone when it ends: nursery, manager and mappers end then.
MAPPERS-2: a mapper ends with its manager, also in the middle of a function.
MAPPERS-3: its manager reports how a mapper has ended, on a socket of its own: a kill from outside is not the function's doing.
"""

import contextlib
import gc
import importlib
import os
import signal
import socket
import sys
import traceback
import zlib
from typing import Any


def zygote_path(directory: str) -> str:
    """The socket on which the zygote of this interpreter forks managers, in the directory of its agent."""
    return os.path.join(directory, f"mappers-{zlib.crc32(os.fsencode(sys.executable)):08x}.sock")


def main() -> int:
    """A nursery of its own: `python -m carril._internal.mappers FD`."""
    serve(socket.socket(fileno=int(sys.argv[1])))
    return 0


# Set for workers of a run whose data sets have functions: each keeps a nursery from its first moment.
DATA_FUNCTIONS = "CARRIL_DATA_FUNCTIONS"
_inherited: socket.socket | None = None


def fork_nursery() -> None:
    """In a process that was just forked from the zygote, and has run nothing: it keeps another one like it, to fork managers from."""
    global _inherited
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        try:
            serve(theirs)
        finally:
            os._exit(0)
    theirs.close()
    _inherited = ours


def take_inherited() -> socket.socket | None:
    """The way to that process, once."""
    global _inherited
    inherited, _inherited = _inherited, None
    return inherited


def serve(asked: socket.socket) -> None:
    """The nursery: forks a manager for each request, until the other side has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Managers are not waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    from carril._internal.pickling import loads

    while True:
        message, descriptors, _, _ = socket.recv_fds(asked, 1, 3)
        request = receive(asked) if message else None
        if request is None:
            return
        given = loads(request)
        _import(given["modules"], given["path"])
        gc.freeze()
        if os.fork() == 0:
            asked.close()
            control, *output = descriptors
            manage_and_exit(socket.socket(fileno=control), output)
        for descriptor in descriptors:
            os.close(descriptor)


def manage_forked(control: socket.socket) -> None:
    """The manager that a zygote has forked for whoever has connected to it. Never returns."""
    # The zygote ignores what is meant for the agent, and keeps its temporary files in the agent's directory.
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if "tempfile" in sys.modules:
        sys.modules["tempfile"].tempdir = None  # type: ignore[attr-defined]
    _send(control, b"+")
    _, output, _, _ = socket.recv_fds(control, 1, 2)
    manage_and_exit(control, output)


def manage_and_exit(control: socket.socket, output: list[int]) -> None:
    """Never returns."""
    code = 1
    try:
        for number, descriptor in enumerate(output, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)
        code = _manage(control)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


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


def _manage(control: socket.socket) -> int:
    """The process of one data set: it forks those that run its functions."""
    from carril._internal import cells
    from carril._internal.pickling import loads
    from carril._native import end_with_parent, show_title
    from carril.data import _functions as functions

    show_title("carril:data", "carril: functions on data")
    mappers = _Mappers()
    signal.signal(signal.SIGCHLD, mappers.collect)
    setup = receive(control)
    if setup is None:
        return 0

    given = loads(setup)
    sys.path[:] = given["path"]
    os.environ.clear()
    os.environ.update(given["environment"])
    os.chdir(given["directory"])
    cells.take(given["cells"])
    try:
        operations = loads(given["operations"])
    except BaseException as error:
        _send(control, b"!" + functions.told(error))
        return 1
    _send(control, b"+")
    gc.freeze()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 4)
        if not message:
            return 0
        manager = os.getpid()
        *own, status = descriptors
        pid = os.fork()
        if pid == 0:
            control.close()
            os.close(status)
            end_with_parent(manager)
            _serve(functions, operations, *own)
            os._exit(0)
        for descriptor in own:
            os.close(descriptor)
        mappers.add(pid, status)


class _Mappers:
    """Those that live, each with the socket on which its end is reported."""

    def __init__(self) -> None:
        self._sockets: dict[int, int] = {}

    def add(self, pid: int, status: int) -> None:
        self._sockets[pid] = status
        # It may have ended before it was known here.
        self.collect()

    def collect(self, *_: object) -> None:
        """On SIGCHLD. Only mappers are waited for: other children belong to what the user has loaded."""
        for pid, status in list(self._sockets.items()):
            ended, how = os.waitpid(pid, os.WNOHANG)
            if ended and self._sockets.pop(pid, None) is not None:
                # Whoever has gone meanwhile does not ask.
                with contextlib.suppress(OSError):
                    os.write(status, os.waitstatus_to_exitcode(how).to_bytes(4, "little", signed=True))
                os.close(status)


def _serve(functions: Any, operations: Any, descriptor: int, given: int, made: int) -> None:
    """Block after block, until the other side has gone."""
    from carril._native import read_blocks, write_blocks

    # What functions start as processes of their own must be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    gc.enable()
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


def receive(control: socket.socket) -> bytes | None:
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
