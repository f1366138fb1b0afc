"""Drivers under test: real scripts in processes of their own, as a user starts them from a shell.

`scripts` is a fixture that writes and starts them. All processes that a script brings into being carry a mark in
the environment they were started with, and the heads' directories of a test are in a temporary directory of its own.
So at the end of each test it is known exactly what was left behind: no process, no directory, no socket.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

MARK = "CARRIL_TEST_MARK"
# How long anything may take that should take a moment: the machine may be busy with something else.
PATIENCE = 40.0
# The same for what should be over already.
PATIENCE_AT_THE_END = 10.0


def wait_until(
    condition: Callable[[], object], what: str, state: Callable[[], object] = str, patience: float = PATIENCE
) -> None:
    """Waits until the condition holds; fails with what was waited for and the state that it was found in."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"waited {patience:.0f} s for {what}\n{state()}"
        time.sleep(0.01)


@dataclass(frozen=True)
class Process:
    """One line of `ps`, as far as the tests need it."""

    pid: int
    parent: int
    command: str

    def __str__(self) -> str:
        return f"{self.pid} (child of {self.parent}): {self.command}"


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:  # the process has ended meanwhile
        return b""


def process(pid: int) -> Process | None:
    """The process, unless it has ended. A zombie has: on some machines nobody collects orphans."""
    state, parent = [*_read(f"/proc/{pid}/stat").rpartition(b")")[2].split(), b"", b""][:2]
    if state in (b"", b"Z", b"X"):
        return None
    return Process(
        pid, int(parent), _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
    )


def processes_with(mark: str) -> list[Process]:
    """The live processes that were started, however indirectly, by a script with this mark."""
    wanted = f"{MARK}={mark}".encode()
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    marked = [pid for pid in pids if wanted in _read(f"/proc/{pid}/environ").split(b"\0")]
    return [found for found in map(process, marked) if found is not None]


def threads_of(pid: int) -> list[str]:
    """The names of a process's threads, sorted."""
    tasks = f"/proc/{pid}/task"
    return sorted(_read(f"{tasks}/{task}/comm").decode().strip() for task in os.listdir(tasks))


class Script:
    """A running driver. It leads a session of its own, so that a signal to its group reaches it as from a terminal."""

    def __init__(self, command: list[str], directory: Path, environment: dict[str, str], output: Path) -> None:
        self._output = output
        with output.open("wb") as file:
            self._process = subprocess.Popen(
                command,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.mark = environment[MARK]
        self.pid = self._process.pid

    @property
    def output(self) -> str:
        """What it has printed until now."""
        return self._output.read_text(errors="replace")

    def wait_for(self, pattern: str, times: int = 1) -> list[str]:
        """Waits until a pattern stands in the output so many times; returns the matches (or their first groups)."""
        wait_until(
            lambda: len(re.findall(pattern, self.output)) >= times or self._process.poll() is not None,
            f"`{pattern}` in the output",
            lambda: self.output,
        )
        found = re.findall(pattern, self.output)
        assert len(found) >= times, f"the script ended without `{pattern}` in its output:\n{self.output}"
        return found

    def finish(self, patience: float = PATIENCE) -> int:
        """Waits for its end and returns the exit code."""
        try:
            return self._process.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the script did not end within {patience:.0f} s:\n{self.output}") from None

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the script's process group, like a terminal."""
        os.killpg(self.pid, number)

    def related(self, text: str = "") -> list[Process]:
        """The processes that it started, and itself, whose command line has this text."""
        return [found for found in processes_with(self.mark) if text in found.command]

    def head(self) -> Process:
        """Its private head-and-agent."""
        heads = self.related("private-head")
        assert len(heads) == 1, heads
        return heads[0]

    def is_alone(self) -> None:
        """Nothing that it started is left, or will be in a moment."""
        wait_until(
            lambda: not self.related(),
            "the end of all processes",
            lambda: "\n".join(map(str, self.related())),
            PATIENCE_AT_THE_END,
        )

    def kill_all(self) -> None:
        for found in self.related():
            try:
                os.kill(found.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait(PATIENCE)


class Scripts:
    """Writes scripts into a directory and runs them there. What they leave in their homes is the test's."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # Short, because the path of a socket is: the usual directory of a test would not do.
        self.runtime = Path(tempfile.mkdtemp(prefix="s-"))
        self.storage = directory / "carril_results"
        self._started: list[Script] = []

    def environment(self, **changes: str) -> dict[str, str]:
        # Not what a driver of ours, or Ray, has left in the environment of whoever runs the tests.
        foreign = ("CARRIL_HEAD", "CARRIL_AS_RAY", "CARRIL_WORKER", "RAY_")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        return {
            **inherited,
            "HOME": str(self.directory),
            "TMPDIR": str(self.runtime),
            "XDG_RUNTIME_DIR": str(self.runtime),
            # Otherwise one `print` of two words would be two writes, and two processes could mix them.
            "PYTHONUNBUFFERED": "",
            MARK: f"{os.getpid()}-{self.directory.name}-{len(self._started)}",
            **changes,
        }

    def write(self, source: str, name: str = "script.py") -> Path:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source).lstrip("\n"))
        return path

    def start_command(self, *command: str, cwd: Path | None = None, **environment: str) -> Script:
        output = self.directory / f"output-{len(self._started)}.txt"
        script = Script(list(command), cwd or self.directory, self.environment(**environment), output)
        self._started.append(script)
        return script

    def start(self, source: str, *arguments: str, before: tuple[str, ...] = (), **environment: str) -> Script:
        """Starts a Python script. `before` goes in front of the interpreter: `taskset`, `carril as-ray`."""
        path = self.write(source)
        return self.start_command(*before, sys.executable, str(path), *arguments, **environment)

    def run(self, source: str, *arguments: str, before: tuple[str, ...] = (), **environment: str) -> str:
        """Runs a Python script that is expected to end well; returns its output."""
        script = self.start(source, *arguments, before=before, **environment)
        assert script.finish() == 0, script.output
        return script.output

    def heads_directories(self) -> list[str]:
        """The directories of heads that are there now."""
        root = self.runtime / f"carril-{os.geteuid()}"
        return sorted(os.listdir(root)) if root.exists() else []

    def arrives(self, pattern: str, besides: Sequence[str]) -> None:
        """Waits until a head has such a file in its directory; not one of these heads."""
        root = self.runtime / f"carril-{os.geteuid()}"

        def arrived() -> bool:
            return any(one not in besides and any(root.glob(f"{one}/{pattern}")) for one in self.heads_directories())

        wait_until(arrived, f"a head with `{pattern}`", self.heads_directories)

    def close(self) -> None:
        try:
            for script in self._started:
                script.finish(PATIENCE_AT_THE_END)
                script.is_alone()
            assert self.heads_directories() == []
        finally:
            for script in self._started:
                script.kill_all()
            shutil.rmtree(self.runtime)


@pytest.fixture(name="scripts")
def scripts_fixture(tmp_path: Path) -> Iterator[Scripts]:
    """Scripts of one test. At its end they must be over, and nothing may be left of them."""
    made = Scripts(tmp_path)
    yield made
    made.close()


@pytest.fixture(name="shared_scripts", scope="module")
def shared_scripts_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripts]:
    """The same for a run that several tests look at."""
    made = Scripts(tmp_path_factory.mktemp("shared"))
    yield made
    made.close()


def values(output: str) -> dict[str, str]:
    """What a script has printed as `name=value`, a line each, also from its workers."""
    found = re.findall(r"^(?:\(rank (\d+)\) )?(\w+)=(.*)$", output, re.MULTILINE)
    return {(f"{name}{rank}" if rank else name): value for rank, name, value in found}
