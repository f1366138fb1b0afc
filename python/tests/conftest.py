"""What all tests share: a place for runs, a head for a whole module, and a check that nothing is left behind.

The session has a temporary directory of its own (`TMPDIR`, and no `XDG_RUNTIME_DIR`), so that whatever appears there is
ours, and a mark in the environment, which every process that descends from the tests carries. After each test there
must be no process with that mark, no temporary file, no segment in /dev/shm and no listening port, apart from the one
head that the `head` fixture shares. A zombie is no process: where PID 1 does not reap, one that was daemonised stays.
Sessions run side by side (`pytest -n`): each process of pytest is one, and a segment that another one uses is not ours.
"""

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

_MARK = f"CARRIL_TEST_SESSION={uuid.uuid4().hex}"
_PATIENCE_S = 15.0

# pytest's own directories outlive the session, for whoever looks into a failure. Sessions that run side by side inherit the variable and
# lie beside each other: one inside the other would make the paths of sockets too long.
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
_TEMPORARY = Path(tempfile.mkdtemp(prefix="ct-", dir=os.environ["PYTEST_DEBUG_TEMPROOT"]))
tempfile.tempdir = str(_TEMPORARY)
os.environ["TMPDIR"] = str(_TEMPORARY)
os.environ.pop("XDG_RUNTIME_DIR", None)
os.environ.update([_MARK.split("=")])


def pytest_unconfigure() -> None:
    shutil.rmtree(_TEMPORARY, ignore_errors=True)


class Process(NamedTuple):
    """A living process that descends from this session."""

    pid: int
    parent: int
    command: str


def processes() -> list[Process]:
    """Every living process with the mark of this session, apart from the one that runs the tests."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            marked = _MARK.encode() in Path("/proc", entry, "environ").read_bytes().split(b"\0")
            state, parent = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[:2]
            command = Path("/proc", entry, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if marked and state not in "ZX":
            found.append(Process(int(entry), int(parent), command.strip()))
    return found


@pytest.fixture
def light_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that start many heads: what other tests have imported (torch) is not imported for each of them."""
    monkeypatch.setattr("carril._internal.imports.imported_installed_modules", lambda: [])


def wait_until(condition: Callable[[], Any], what: str, state: Callable[[], object] = lambda: "") -> Any:
    """The first true value of `condition`; after the deadline an error that shows `state()`."""
    import time

    deadline = time.monotonic() + _PATIENCE_S
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"not within {_PATIENCE_S:.0f} s: {what}; {state()}")
        time.sleep(0.005)


class _Shared(NamedTuple):
    head: int
    directory: str


_shared: list[_Shared] = []


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """An empty directory for runs."""
    path = tmp_path / "storage"
    path.mkdir()
    return path


@pytest.fixture(scope="module")
def head() -> Iterator[None]:
    """One private head for a whole module, on which eight workers fit whatever the machine has."""
    import carril
    from carril._internal import driver

    carril.shutdown()  # a test that failed may have left one
    carril.init(num_cpus=8)
    client = driver.ensure_client()
    _shared.append(_Shared(client.head_pid, client.directory))
    try:
        yield
    finally:
        _shared.clear()
        carril.shutdown()
        assert not os.path.exists(client.directory), "the directory of a head goes with it"
        wait_until(lambda: not processes(), "the head and its zygote are gone", processes)


def _listening_inodes() -> set[str]:
    inodes = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                inodes.add(fields[9])
    return inodes


def _listeners(pids: list[int]) -> list[str]:
    listening, found = _listening_inodes(), []
    for pid in pids:
        try:
            descriptors = os.listdir(f"/proc/{pid}/fd")
        except (FileNotFoundError, ProcessLookupError):
            continue
        for descriptor in descriptors:
            try:
                target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
            except OSError:
                continue
            if target.startswith("socket:[") and target[8:-1] in listening:
                found.append(f"process {pid} listens on descriptor {descriptor}")
    return found


def _temporary_entries() -> set[str]:
    """What lies in the session's temporary directory and in the directory of the heads below it."""
    found = set()
    for entry in _TEMPORARY.iterdir():
        if entry.name.startswith("carril-"):
            found.update(str(inner) for inner in entry.iterdir())
        elif not entry.name.startswith("torchinductor_"):  # torch keeps its cache from one process to the next
            found.add(str(entry))
    return found


def _segments_left(before: set[str]) -> list[str]:
    """New segments in /dev/shm, apart from those that processes of other sessions have mapped."""
    new = {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")} - {f"/dev/shm/{name}" for name in before}
    if new:
        ours = {os.getpid(), *(process.pid for process in processes())}
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) not in ours:
                new -= _mapped(int(entry))
    return sorted(new)


def _mapped(pid: int) -> set[str]:
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return set()
    return {line.split(maxsplit=5)[5] for line in lines if "/dev/shm/" in line}


class _Before(NamedTuple):
    """What was there when a test began: an earlier test's leftovers are reported once, after that test."""

    processes: set[int]
    segments: set[str]
    entries: set[str]


def _now() -> _Before:
    return _Before({process.pid for process in processes()}, set(os.listdir("/dev/shm")), _temporary_entries())


def _leftovers(before: _Before) -> list[str]:
    heads = {shared.head for shared in _shared}
    living = [process for process in processes() if process.pid not in heads]
    # The zygote of the shared head stays. A forked worker looks like it, so it may be one and no more.
    zygotes = [p for p in living if p.parent in heads and "carril._internal.zygote" in p.command]
    if len(zygotes) == 1:
        living.remove(zygotes[0])
    # Of the processes for functions on data, the one that they are forked from stays with this process.
    nurseries = [p for p in living if p.parent == os.getpid() and "carril._internal.mappers" in p.command]
    if len(nurseries) == 1:
        living.remove(nurseries[0])
    found = [f"{process}" for process in living if process.pid not in before.processes]
    kept = before.entries | {shared.directory for shared in _shared}
    found.extend(sorted(_temporary_entries() - kept))
    found.extend(_segments_left(before.segments))
    kept_processes = [*zygotes, *nurseries]
    found.extend(_listeners([os.getpid(), *heads, *(process.pid for process in kept_processes)]))
    return found


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """After the test there is nothing of ours that was not there before it, but for the shared head."""
    before = _now()
    yield
    import gc

    # Temporary checkpoints go with the last reference to them, which may be in a cycle.
    gc.collect()
    wait_until(
        lambda: not _leftovers(before),
        "everything that the test started is gone",
        lambda: f"left behind: {_leftovers(before)}",
    )
