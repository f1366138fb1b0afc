"""A scheduler that takes the machine: what it tells the driver, and what a training function is told.

Slurm and Kubernetes send SIGTERM, SIGUSR1 or SIGUSR2. During `fit()` the driver passes them on to the run, and its own
handlers for them are called as before.
"""

import signal
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from carril.train._more_config import PreemptionInfo
    from carril.train._session import StoredSession

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class Preempted(BaseException):
    """Raised in the thread that waits for the run's next event."""


class PreemptionSignals:
    """For the time of one `fit()` in the main thread; elsewhere Python gives no signals."""

    def __init__(self) -> None:
        self.name = ""
        self._told = False
        self._waits = False
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

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.name = signal.Signals(number).name
        before = self._before.get(number)
        if callable(before):
            before(number, frame)
        if self._waits:
            raise Preempted

    def __bool__(self) -> bool:
        """True once, when there is something to pass on."""
        told, self._told = self._told, bool(self.name)
        return self._told and not told

    def waiting(self, waits: bool) -> None:
        """Whether a signal may end what the thread does: only while it waits, never inside a callback of the user's."""
        self._waits = waits


def info_of(session: "StoredSession") -> "PreemptionInfo | None":
    """What `get_preemption_info` gives."""
    told = session.preemption()
    if told is None:
        return None
    from carril.train._more_config import PreemptionInfo

    _, deadline = told
    ranks = list(range(session.world_size))
    return PreemptionInfo(deadline_ms=int(deadline * 1000), preempted_node_to_ranks={"local": ranks})
