"""A terminal: a few lines at its bottom that are redrawn in place, below whatever else is printed.

After each drawing the cursor rests at the first column of the first of these lines, and erasing is "clear from here
downwards". So nothing has to be known about where they stand: a resized terminal, a shell that printed while the
process was stopped, or a program that printed on its own leave nothing behind that the next drawing does not repair.

SCREEN-1: everything is written in one piece under one lock; lines of workers never mix with the lines drawn.
SCREEN-2: a terminal that cannot be written to ends the showing and nothing else.
SCREEN-3: the thread only draws; it ends with the last run that is shown.
"""

import contextlib
import os
import select
import signal
import threading
from collections.abc import Iterator
from typing import Any, Protocol, TextIO

from carril.train._console_view import wants_colour

_SECONDS_BETWEEN = 0.1
_ERASE = "\r\x1b[J"


class Panel(Protocol):
    """Something that is shown in a few lines."""

    def block(self, columns: int, colour: bool) -> list[str]: ...


class Screen:
    """The terminal that a stream writes to, for all runs of this process that are shown on it."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self._descriptor = stream.fileno()
        self._encoding = stream.encoding or "utf-8"
        # A signal handler may come in while the main thread draws.
        self._lock = threading.RLock()
        self._panels: list[Panel] = []
        self._drawn: list[str] = []
        self._paused = 0
        self._broken = False
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._handler: Any = None

    def add(self, panel: Panel) -> None:
        with self._lock:
            self._panels.append(panel)
            if self._thread is None:
                self._over = threading.Event()
                self._thread = threading.Thread(
                    target=self._keep_drawing, args=(self._over,), name="carril-screen", daemon=True
                )
                self._thread.start()
                self._erase_when_stopped()

    def remove(self, panel: Panel) -> None:
        with self._lock:
            if panel not in self._panels:
                return
            self._panels.remove(panel)
            self._send(self._erased())
            thread = None
            if not self._panels:
                thread, self._thread = self._thread, None
                self._over.set()
        if thread is not None:
            thread.join()
            self._leave_the_signal()

    def write(self, text: str) -> None:
        """Prints whole lines above what is drawn."""
        with self._lock:
            visible = bool(self._drawn)
            self._send(self._erased() + text + (self._block() if visible else ""))

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is drawn meanwhile: somebody else may print."""
        with self._lock:
            self._paused += 1
            self._send(self._erased())
        try:
            yield
        finally:
            with self._lock:
                self._paused -= 1

    def _keep_drawing(self, over: threading.Event) -> None:
        while not over.wait(_SECONDS_BETWEEN):
            with self._lock:
                if not over.is_set():
                    self._draw()

    def _draw(self) -> None:
        before = self._drawn
        text = self._block()
        if text and self._drawn != before:
            self._send((_ERASE if before else "") + text)

    def _erased(self) -> str:
        drawn, self._drawn = self._drawn, []
        return _ERASE if drawn else ""

    def _block(self) -> str:
        """What draws the lines and goes back to their beginning. They are remembered as drawn."""
        if self._paused or self._broken or not self._panels or not self._is_in_front():
            # Not erased: in the background the line where the cursor stands is the shell's.
            self._drawn = []
            return ""
        try:
            size = os.get_terminal_size(self._descriptor)
        except OSError:
            size = os.terminal_size((80, 24))
        # The last column stays free: what a terminal does after it is not everywhere the same.
        columns = (size.columns or 80) - 1
        lines = [line for panel in self._panels for line in panel.block(columns, wants_colour())]
        self._drawn = lines = lines[: max(1, (size.lines or 24) - 1)]
        up = f"\x1b[{len(lines) - 1}A" if len(lines) > 1 else ""
        return "\n".join(lines) + up + "\r"

    def _is_in_front(self) -> bool:
        """False for a job in the background: the line that is being edited in the shell is not ours to draw on."""
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:  # not the terminal that controls this process
            return True

    def _send(self, text: str) -> None:
        if not text or self._broken:
            return
        data = memoryview(text.encode(self._encoding, "replace"))
        try:
            # What was printed in the usual way comes first. Not through the stream itself, which cannot be entered
            # twice: a signal handler may draw too.
            self.stream.flush()
            while data:
                try:
                    data = data[os.write(self._descriptor, data) :]
                except BlockingIOError:
                    select.select([], [self._descriptor], [])
        except (OSError, ValueError, RuntimeError):
            self._broken = True

    def _erase_when_stopped(self) -> None:
        """Ctrl-Z leaves a clean terminal to the shell, and what is drawn comes back with `fg`."""
        main = threading.current_thread() is threading.main_thread()
        if not main or signal.getsignal(signal.SIGTSTP) is not signal.SIG_DFL:
            return

        def stop(number: int, frame: Any) -> None:
            with self.paused():
                signal.signal(signal.SIGTSTP, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGTSTP)
                # Here the process stands still until it is continued.
                signal.signal(signal.SIGTSTP, stop)

        self._handler = stop
        signal.signal(signal.SIGTSTP, stop)

    def _leave_the_signal(self) -> None:
        ours, self._handler = self._handler, None
        if ours is None or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTSTP) is ours:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)


_screens: list[Screen] = []
_screens_lock = threading.Lock()


def screen_of(stream: TextIO) -> Screen:
    """The one screen of a stream, whichever thread asks."""
    with _screens_lock:
        for screen in _screens:
            if screen.stream is stream:
                return screen
        # What a stream was replaced with may be replaced again: only the last one is kept.
        _screens[:] = [Screen(stream)]
        return _screens[0]


# A child of a fork has neither the thread nor a run to show.
os.register_at_fork(after_in_child=_screens.clear)
