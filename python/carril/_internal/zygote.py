"""The process that workers are forked from: it has imported what the driver imports, and has run nothing.

Started by the agent as `python -m carril._internal.zygote FD`. On the socket FD it answers requests one by one; a
message is a length of four bytes, little-endian, and JSON, and descriptors ride with the first bytes.
  {"op": "import", "path": […], "modules": […], "script": …}  →  {"imported": […], "failed": {…}, "seconds": …}
  {"op": "fork", "environment": {…}, "directory": …, "path": […], "threads": …} with [output, store?]
                                                              →  {"pid": …} or {"refused": reason}
On a socket in the agent's directory (`mappers.zygote_path`) it forks, for each connection, a process that runs functions on data: for a
driver, or for a worker that makes data sets itself. A connection that cannot be served is closed.

ZYG-1: only installed packages are imported here, never the user's files, and nothing of them is called.
ZYG-2: no fork while a thread runs that imports did not start, or while a CUDA device is open.
ZYG-3: the process ends when the agent closes the socket.
"""

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time
import warnings
from typing import Any, NamedTuple

from carril._internal import torch_dynamo
from carril._internal.imports import installed_entries, is_installed_package, script_imports

_LENGTH = struct.Struct("<I")
_MOST_DESCRIPTORS = 8

# What torch imports only when the first process group, DDP model, backward pass and optimizer step ask for it.
_LAZY_PARTS = {
    "torch": (
        "torch.distributed",
        "torch.distributed.rendezvous",
        "torch._dynamo",
        "torch.nn.parallel.distributed",
        "torch.distributed.algorithms.join",
        "torch.utils.data",
        "torch.utils.data.distributed",
        "torch.optim",
        "carril.train.torch._config",
        "carril.train.torch._prepare",
    ),
}

# What every worker needs, whatever the user's function does.
_OWN_PARTS = (
    "cloudpickle",
    "carril._internal.worker",
    "carril._internal.forked",
    "carril.train",
    "carril.train._session",
    "carril.train._context",
    "carril.train._checkpoint",
)

# What runs functions on data needs, beside the packages of the user's.
_OF_MANAGERS = ("carril._internal.mappers", "carril.data._functions")


class ForkRequest(NamedTuple):
    """What a new worker is to be, in the words of the protocol."""

    environment: dict[str, str]
    directory: str
    path: list[str]
    threads: int
    descriptors: list[int]


class Channel:
    """One end of the socket pair."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> tuple[dict[str, Any], list[int]] | None:
        """The next request and its descriptors; None when the agent has closed its end."""
        header, descriptors, _, _ = socket.recv_fds(self._socket, _LENGTH.size, _MOST_DESCRIPTORS)
        header += self._read(_LENGTH.size - len(header))
        if len(header) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack(header)
        body = self._read(length)
        return (json.loads(body), descriptors) if len(body) == length else None

    def _read(self, length: int) -> bytes:
        parts = []
        while length > 0:
            part = self._socket.recv(min(length, 1 << 20))
            if not part:
                break
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def send(self, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self._socket.sendall(_LENGTH.pack(len(body)) + body)

    def close(self) -> None:
        self._socket.close()


class Zygote:
    """Imports and forks. `serve` returns in each child with what it is to be, and in the parent at the end."""

    def __init__(self, channel: Channel, listener: socket.socket | None) -> None:
        self._channel, self._listener = channel, listener
        self._threads = _thread_count()

    def serve(self) -> "ForkRequest | socket.socket | None":
        while True:
            ready, _, _ = select.select([one for one in (self._channel, self._listener) if one is not None], [], [])
            if self._listener in ready and (connection := self._fork_manager(self._listener)) is not None:
                return connection
            if self._channel not in ready:
                continue
            received = self._channel.receive()
            if received is None:
                return None
            request, descriptors = received
            if request["op"] == "import":
                self._channel.send(self._import(request["path"], request["modules"], request.get("script")))
            elif request["op"] == "fork":
                wanted = ForkRequest(
                    request["environment"], request["directory"], request["path"], request["threads"], descriptors
                )
                if self._fork(wanted):
                    return wanted
            else:
                self._channel.send({"refused": f"unknown request `{request['op']}`"})
            for descriptor in descriptors:
                os.close(descriptor)

    def _import(self, path: list[str], modules: list[str], script: str | None) -> dict[str, Any]:
        started = time.monotonic()
        answer: dict[str, Any] = {"imported": [], "failed": {}}
        # With the driver's path it is decided what is installed; with the installed part of it is imported, so that an
        # installed package cannot pull in a file of the user's.
        names = list(modules) + (script_imports(script) if script else [])
        installed = {top: is_installed_package(top, path) for top in {name.partition(".")[0] for name in names}}
        before, threads = sys.path[:], _thread_count()
        sys.path[:] = installed_entries(path)
        # Torch asks the driver library without opening a device, which a fork could not survive.
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        try:
            for name in names:
                top = name.partition(".")[0]
                if installed[top]:
                    _import_guarded(name, answer)
            for top, parts in _LAZY_PARTS.items():
                if top in sys.modules:
                    for name in parts:
                        if name != torch_dynamo.NAME or _compiles(script) or not torch_dynamo.stand_in():
                            _import_guarded(name, answer)
        finally:
            sys.path[:] = before
        # The children share these objects' memory for as long as no collection touches them.
        gc.freeze()
        # Only those that these imports have started: a thread that came by itself between two requests stays foreign.
        self._threads = min(self._threads, threads) + max(0, _thread_count() - threads)
        answer["seconds"] = time.monotonic() - started
        return answer

    def _fork(self, wanted: ForkRequest) -> bool:
        """True in the new worker. In the zygote the answer has been sent."""
        if not wanted.descriptors:
            self._channel.send({"refused": "no descriptor for the worker's output came along"})
            return False
        answer = self._fork_twice()
        if answer is None:
            return True
        self._channel.send(answer)
        return False

    def _fork_manager(self, listener: socket.socket) -> socket.socket | None:
        """The connection in the new manager; None in the zygote."""
        # It is the driver or a worker: nobody else can enter the directory.
        connection, _ = listener.accept()
        for name in _OF_MANAGERS:
            _import_guarded(name, {"imported": [], "failed": {}})
        gc.freeze()
        if self._fork_twice() is None:
            return connection
        connection.close()
        return None

    def _fork_twice(self) -> dict[str, Any] | None:
        """None in the child; in the zygote its pid, or why there is none. The agent becomes the child's parent."""
        reason = self._refusal()
        if reason:
            return {"refused": reason}
        reading, writing = os.pipe()
        try:
            middle = _fork_quietly()
        except OSError as error:
            os.close(reading)
            os.close(writing)
            return {"refused": f"fork failed: {error}"}
        if middle == 0:
            # Forks once more and leaves at once.
            self._fork_again(reading, writing)
            return None
        os.close(writing)
        text = os.read(reading, 32)
        os.close(reading)
        os.waitpid(middle, 0)
        return {"pid": int(text)} if text else {"refused": "the second fork failed"}

    def _fork_again(self, reading: int, writing: int) -> None:
        try:
            child = _fork_quietly()
        except OSError:
            os._exit(1)
        if child != 0:
            os.write(writing, str(child).encode())
            os._exit(0)
        os.close(reading)
        os.close(writing)
        self._channel.close()
        if self._listener is not None:
            self._listener.close()

    def _refusal(self) -> str:
        threads = _thread_count()
        if threads > self._threads:
            return f"{threads} threads run, {self._threads} after the imports: a fork would lose them"
        device = _open_device()
        if device:
            return f"`{device}` is open: CUDA does not survive a fork"
        return ""


def _compiles(script: str | None) -> bool:
    """Whether the script speaks of torch's compiler: its workers then share one that is imported here."""
    if not script:
        return False
    try:
        with open(script, "rb") as file:
            text = file.read()
    except OSError:
        return False
    return b"compile" in text or b"dynamo" in text


def _import_guarded(name: str, answer: dict[str, Any]) -> None:
    if name in sys.modules:
        return
    try:
        importlib.import_module(name)
        answer["imported"].append(name)
    except ModuleNotFoundError as error:
        # `from package import thing` was tried as a module and is none.
        if error.name != name:
            answer["failed"][name] = f"ModuleNotFoundError: {error}"
    except BaseException as error:  # an import may even call sys.exit()
        answer["failed"][name] = f"{type(error).__name__}: {error}"


def _fork_quietly() -> int:
    with warnings.catch_warnings():
        # Python 3.12 warns of forks in a process with threads. ZYG-2 is the answer to it.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _thread_count() -> int:
    return len(os.listdir("/proc/self/task"))


def _open_device() -> str:
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if target.startswith("/dev/nvidia"):
            return target
    return ""


def _listen_for_managers() -> socket.socket | None:
    """None where that is not possible: managers are then forked from a process that is started for it."""
    from carril._internal.mappers import zygote_path

    directory = os.environ.pop("CARRIL_NODE_DIRECTORY", "")
    if not directory:
        return None
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(zygote_path(directory))
        listener.listen()
    except OSError:
        listener.close()
        return None
    return listener


def _main(descriptor: int) -> None:
    # What ends this process is the end of the agent. The signals are for the driver or for the agent.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    gc.disable()
    # First of all: whoever connects waits until the imports are over.
    listener = _listen_for_managers()
    for name in _OWN_PARTS:
        _import_guarded(name, {"imported": [], "failed": {}})
    gc.freeze()
    try:
        request = Zygote(Channel(descriptor), listener).serve()
    except (BrokenPipeError, ConnectionResetError):  # the agent went while it was being answered: ZYG-3
        request = None
    if isinstance(request, socket.socket):
        from carril._internal.mappers import manage_forked

        manage_forked(request)
    elif request is not None:
        from carril._internal.forked import become_worker

        become_worker(request.environment, request.directory, request.path, request.threads, request.descriptors)
    # The agent is gone or has no more use for this process. Teardown of large libraries is slow, and some of them
    # complain in it.
    atexit._run_exitfuncs()
    os._exit(0)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
