"""What the head tells of a run or an experiment, followed to its end in the calling thread.

FOLLOW-1: the first Ctrl-C stops what is followed, the second ends it at once, and the third leaves without waiting.
FOLLOW-2: an error of the user's own in the driver stops it too; it is drained like any other, and the first error is the one
  that is raised.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from carril.exceptions import ConnectionLostError

if TYPE_CHECKING:
    from carril._native import Run


class Follower(ABC):
    """To be derived from: `_on_event` takes what happens, and sets `_ended` with the last word."""

    def __init__(self, run: "Run", console: Any) -> None:
        self._run, self._console = run, console
        self._interrupts = 0
        self._driver_error: Exception | None = None
        self._ended: dict[str, Any] | None = None

    @property
    def is_interrupted(self) -> bool:
        """The user wants the end, whatever else has happened."""
        return self._interrupts > 0 or self._driver_error is not None

    def head_was_lost(self, lost: ConnectionLostError) -> None:
        self._console.warning(f"the head has gone and is started again: {str(lost).partition(chr(10))[0]}")

    def close(self) -> None:
        """Ends the showing, also when the connection was lost and nothing was concluded."""
        self._console.close()

    def until_ended(self) -> dict[str, Any] | None:
        """The last word."""
        answered = 0
        while True:
            try:
                # Inside the `try`: the next Ctrl-C may come while this one is being answered.
                if answered < self._interrupts:
                    answered = self._interrupts
                    self._console.interrupted(answered)
                    self._run.stop("interrupted", force=answered > 1)
                event = self._run.next_event()
                if event is None:
                    return self._ended
                self._on_event(*event)
            except KeyboardInterrupt:
                self._interrupts += 1
                if self._interrupts > 2:
                    raise
            except Exception as raised:
                error = self._of_the_user(raised)
                if error is None:
                    raise
                if self._driver_error is None:
                    self._driver_error = error
                    self._run.stop(f"{self._culprit} failed: {type(error).__name__}")

    # Whose failure it is, for the reason of the stop.
    _culprit = "the driver"

    @abstractmethod
    def _of_the_user(self, raised: Exception) -> Exception | None:
        """The user's own error, where this is one; None for what is not answered by a stop."""

    @abstractmethod
    def _on_event(self, kind: str, event: dict[str, Any]) -> None:
        """What has happened."""
