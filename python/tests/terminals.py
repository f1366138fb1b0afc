"""A terminal with a driver in it: what it shows is what a person would see, line by line, scrolled ones included.

The emulation is pyte's. The program is the leader of a session that the terminal controls, so that Ctrl-C and Ctrl-Z
are typed as keys, and job control is a real shell's.
"""

import contextlib
import fcntl
import os
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pyte  # type: ignore[import-untyped]
import pytest
from driver_scripts import MARK, PATIENCE, Process, Scripts, processes_with, wait_until

CTRL_C = "\x03"
CTRL_Z = "\x1a"

# Takes the terminal on its standard input as the one that controls it, then becomes the program.
_TAKE = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvpe(sys.argv[1], sys.argv[1:], os.environ)"


class Terminal:
    """A program in a terminal of its own."""

    def __init__(
        self, command: list[str], directory: Path, environment: dict[str, str], columns: int, lines: int
    ) -> None:
        self._screen = pyte.HistoryScreen(columns, lines, history=100_000)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        self._master, slave = os.openpty()
        self._set_size(columns, lines)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _TAKE, *command],
            cwd=directory,
            env=environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.mark = environment[MARK]
        self.pid = self._process.pid

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns: int, lines: int) -> None:
        self._pump(0)
        self._screen.resize(lines, columns)
        self._set_size(columns, lines)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def _pump(self, seconds: float) -> bool:
        """Takes what the program has written; False when it has closed the terminal."""
        while select.select([self._master], [], [], seconds)[0]:
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:
                return False
            if not data:
                return False
            self.raw += data
            self._stream.feed(data)
            seconds = 0
        return True

    @property
    def screen(self) -> str:
        """What stands on the screen now."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip("\n")

    @property
    def everything(self) -> str:
        """The screen, with what has scrolled away above it."""
        columns = range(self._screen.columns)
        scrolled = ["".join(line[x].data for x in columns).rstrip() for line in self._screen.history.top]
        return "\n".join([*scrolled, self.screen]).rstrip("\n")

    def wait_for(self, text: str, times: int = 1) -> None:
        """Waits until a text is shown."""

        def is_there() -> bool:
            self._pump(0.01)
            return self.everything.count(text) >= times

        wait_until(is_there, f"`{text}` on the terminal", lambda: f"{self.everything}\n{self.raw[-2000:]!r}")

    def finish(self) -> int:
        """Waits until the program has ended and all that it wrote is shown; returns its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._pump(0.05) and self._process.poll() is None:
            assert time.monotonic() < deadline, f"not ended within {PATIENCE:.0f} s:\n{self.everything}"
        code = self._process.wait(PATIENCE)
        self._pump(0)
        return code

    def related(self) -> list[Process]:
        return processes_with(self.mark)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, 9)
        self._process.wait(PATIENCE)
        os.close(self._master)


class Terminals:
    """Opens terminals on scripts, in the directory and with the environment of `scripts`."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._opened: list[Terminal] = []

    def open(self, *command: str, columns: int = 80, lines: int = 24, **environment: str) -> Terminal:
        variables = self._scripts.environment(**{"TERM": "xterm-256color", **environment})
        variables[MARK] += f"-terminal-{len(self._opened)}"
        terminal = Terminal(list(command), self._scripts.directory, variables, columns, lines)
        self._opened.append(terminal)
        return terminal

    def start(self, source: str, *, columns: int = 80, lines: int = 24, **environment: str) -> Terminal:
        """Runs a Python script in a terminal."""
        path = self._scripts.write(source, f"script_{len(self._opened)}.py")
        return self.open(sys.executable, str(path), columns=columns, lines=lines, **environment)

    def close(self) -> None:
        try:
            for terminal in self._opened:
                terminal.finish()
                wait_until(lambda at=terminal: not at.related(), "the end of all processes", terminal.related)  # type: ignore[misc]
        finally:
            for terminal in self._opened:
                terminal.close()


@pytest.fixture(name="terminals")
def terminals_fixture(scripts: Scripts) -> Iterator[Terminals]:
    """Terminals of one test. At its end the programs in them must be over, and nothing may be left of them."""
    made = Terminals(scripts)
    yield made
    made.close()
