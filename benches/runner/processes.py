"""Runs a command and says what it cost: wall seconds, and CPU seconds of everything that it started.

The runner makes itself a child subreaper, so every process that a command leaves behind, however it detached itself,
becomes a child of the runner's and is collected with its usage. A process whose parent ignores its children's ends
(Ray's raylet does) is collected by nobody: for those, the times seen in /proc while the command ran are added up,
and the larger sum counts.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

_PR_SET_CHILD_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")
# Samples begin after a second: a short run is not disturbed, and has no detached daemons that nobody collects.
_FIRST_SAMPLE_S = 1.0
_SAMPLE_EVERY_S = 0.25
_ORPHANS_MAY_TAKE_S = 15.0


def become_subreaper() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


@dataclass
class Process:
    """One process as /proc shows it."""

    pid: int
    parent: int
    name: str
    command: str
    threads: int
    cpu_s: float

    def pss_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
        return 0

    def thread_names(self) -> list[str]:
        return sorted(path.read_text().strip() for path in Path(f"/proc/{self.pid}/task").glob("*/comm"))


def _read_process(pid: int, command: bool) -> Process | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        line = Path(f"/proc/{pid}/cmdline").read_bytes() if command else b""
    except OSError:
        return None
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    if fields[0] == "Z":
        return None
    return Process(
        pid=pid,
        parent=int(fields[1]),
        name=name,
        command=line.replace(b"\0", b" ").decode(errors="replace").strip(),
        threads=int(fields[17]),
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS,
    )


def descendants(command: bool = False) -> list[Process]:
    """Everything that lives below this process."""
    everything = [
        process
        for entry in os.listdir("/proc")
        if entry.isdigit() and (process := _read_process(int(entry), command)) is not None
    ]
    children: dict[int, list[Process]] = {}
    for process in everything:
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    pending = [os.getpid()]
    while pending:
        below = children.get(pending.pop(), [])
        found.extend(below)
        pending.extend(process.pid for process in below)
    return found


@dataclass
class Outcome:
    """What became of a command."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    values: dict[str, Any] = field(default_factory=dict)
    failure: str | None = None


class _Sampler(threading.Thread):
    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.done = threading.Event()
        self.seen: dict[int, float] = {}

    def run(self) -> None:
        wait = _FIRST_SAMPLE_S
        while not self.done.wait(wait):
            wait = _SAMPLE_EVERY_S
            for process in descendants():
                self.seen[process.pid] = process.cpu_s

    def finish(self) -> float:
        self.done.set()
        self.join()
        return sum(self.seen.values())


def _kill_descendants() -> None:
    for process in descendants():
        try:
            os.kill(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _collect_orphans() -> tuple[float, list[str]]:
    """Waits for what the command left behind; what does not end by itself is ended, and named."""
    cpu_s = 0.0
    stayed: list[str] = []
    deadline = time.monotonic() + _ORPHANS_MAY_TAKE_S
    while True:
        try:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return cpu_s, stayed
        if pid != 0:
            cpu_s += usage.ru_utime + usage.ru_stime
        elif time.monotonic() > deadline and not stayed:
            stayed = [process.name for process in descendants()]
            _kill_descendants()
        else:
            time.sleep(0.02)


def _values(output: str) -> dict[str, Any]:
    for line in output.splitlines():
        if line.startswith("BENCH "):
            return dict(json.loads(line[len("BENCH ") :]))
    return {}


def _tail(output: str) -> str:
    return "\n".join(output.strip().splitlines()[-15:])


class _Started:
    """A command that runs, with its output in a file: a pipe would stay open as long as a daemon holds it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.sampler = _Sampler()
        self.begin = time.perf_counter()
        self.process = subprocess.Popen(
            command, env=dict(environment), stdin=subprocess.PIPE, stdout=self.output, stderr=subprocess.STDOUT
        )
        self.sampler.start()

    def has_ended(self) -> bool:
        # Without collecting it: `finish` needs its usage.
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def text(self) -> str:
        return os.pread(self.output.fileno(), 1 << 24, 0).decode(errors="replace")

    def finish(self, timeout_s: float) -> Outcome:
        outcome = Outcome()
        descriptor = os.pidfd_open(self.process.pid)
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        left = timeout_s - (time.perf_counter() - self.begin)
        ended = bool(poller.poll(max(left, 0.0) * 1000))
        outcome.wall_s = time.perf_counter() - self.begin
        os.close(descriptor)
        if not ended:
            outcome.failure = f"not done after {timeout_s:.0f} s\n{_tail(self.text())}"
            _kill_descendants()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.process.stdin is not None:
            self.process.stdin.close()
        own = usage.ru_utime + usage.ru_stime
        orphans, stayed = _collect_orphans()
        outcome.cpu_s = max(own + orphans, self.sampler.finish())
        text = self.text()
        outcome.values = _values(text)
        if stayed:
            outcome.values["left_behind"] = stayed
        if ended and self.process.returncode != 0:
            outcome.failure = f"exit code {self.process.returncode}\n{_tail(text)}"
        self.output.close()
        return outcome


def run(command: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> Outcome:
    """Runs a command to its end. It never raises for what the command does: that is the outcome's `failure`."""
    started = _Started(command, environment)
    assert started.process.stdin is not None
    started.process.stdin.close()
    return started.finish(timeout_s)


@contextmanager
def idle(command: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> Iterator[list[Process]]:
    """Runs a command until it says IDLE, gives its processes to the caller, and then closes the command's input."""
    started = _Started(command, environment)
    deadline = time.monotonic() + timeout_s
    while "IDLE" not in started.text().split():
        if started.has_ended() or time.monotonic() > deadline:
            text = _tail(started.text())
            _kill_descendants()
            started.finish(5.0)
            raise RuntimeError(f"`{' '.join(command)}` never became idle\n{text}")
        time.sleep(0.05)
    time.sleep(2.0)  # what starts late, or frees its memory late, is part of being idle
    try:
        yield descendants(command=True)
    finally:
        assert started.process.stdin is not None
        started.process.stdin.close()
        outcome = started.finish(timeout_s)
        if outcome.failure and sys.exc_info()[0] is None:
            print(f"note: `{command[-1]}` after it was idle: {outcome.failure}", file=sys.stderr)
