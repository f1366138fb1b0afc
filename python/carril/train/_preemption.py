"""A scheduler that takes the machine: what it tells the driver, and what a training function sees of it.

Slurm and Kubernetes send SIGTERM, SIGUSR1 or SIGUSR2. During `fit()` the driver passes them on to the run, and its own
handlers for them are called as before.

PREEMPTION-1: the thread that waits for the run is not torn out of its wait: an event that has come would be lost.
"""

import _thread
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from carril.exceptions import CarrilError

if TYPE_CHECKING:
    from carril.train._more_config import PreemptionInfo
    from carril.train._session import StoredSession

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class PreemptionSignals:
    """For the time of one `fit()` in the main thread; elsewhere Python gives no signals."""

    def __init__(self) -> None:
        self._reason = ""
        self._tell: Callable[[str], None] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "PreemptionSignals":
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                # Whoever ignores a signal wants it ignored.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before if before is not None else signal.SIG_DFL)

    def pass_on_to(self, tell: Callable[[str], None]) -> None:
        """From here on `tell` hears of a signal. One that has come already is passed on at once, also for a second time."""
        self._tell = tell
        if self._reason:
            self._pass_on()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._reason = self._reason or f"{signal.Signals(number).name} to the driver"
        if self._tell is not None:
            # A handler interrupts whatever the thread does, so it must not wait, not even for a lock of `threading`.
            _thread.start_new_thread(self._pass_on, ())
        before = self._before.get(number)
        if callable(before):
            before(number, frame)

    def _pass_on(self) -> None:
        try:
            if self._tell is not None:
                self._tell(self._reason)
        except CarrilError:
            # The head is gone: the one that comes after it is notified.
            pass


def info_of(session: "StoredSession") -> "PreemptionInfo | None":
    """What `get_preemption_info` gives."""
    told = session.preemption()
    if told is None:
        return None
    return every_rank(session.world_size, int(told[1] * 1000))


def every_rank(world_size: int, deadline_ms: int | None = None) -> "PreemptionInfo":
    """On one machine a preemption is that of every rank."""
    from carril.train._more_config import PreemptionInfo

    return PreemptionInfo(deadline_ms, {"local": list(range(world_size))})
