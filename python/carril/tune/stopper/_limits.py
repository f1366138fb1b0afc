"""Stoppers that look at no metric: a number of results, and a time."""

import datetime
import time
from numbers import Real
from typing import Any

from carril.exceptions import ConfigError, ConfigTypeError, kind_of
from carril.tune.stopper.stopper import Stopper


class MaximumIterationStopper(Stopper):
    """Stops a trial at its `max_iter`-th iteration."""

    def __init__(self, max_iter: int) -> None:
        if not isinstance(max_iter, int) or isinstance(max_iter, bool) or max_iter < 1:
            raise ConfigError(f"`MaximumIterationStopper(max_iter={max_iter!r})`: it must be a whole number, 1 or more")
        self._max_iter = max_iter
        self._counts: dict[str, int] = {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        # The trial's own count also goes on after a restart; ours is for results that have none.
        self._counts[trial_id] = count = self._counts.get(trial_id, 0) + 1
        return bool(result.get("training_iteration", count) >= self._max_iter)

    def stop_all(self) -> bool:
        return False


class TimeoutStopper(Stopper):
    """Stops the experiment after a time, in seconds or as a `timedelta`.

    It runs from the first time that the stopper is asked. Pickled, it keeps what is left, and the time until it is
    opened again is not counted.
    """

    def __init__(self, timeout: "float | datetime.timedelta") -> None:
        if isinstance(timeout, datetime.timedelta):
            timeout = timeout.total_seconds()
        if not isinstance(timeout, Real) or isinstance(timeout, bool):
            raise ConfigTypeError(f"`TimeoutStopper` is given {kind_of(timeout)}: it must be seconds or a `timedelta`")
        if not float(timeout) > 0:
            raise ConfigError(f"`TimeoutStopper(timeout={timeout!r})`: it must be above 0")
        self._left: float = float(timeout)
        self._asked: float | None = None

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        self._pass()
        return self._left <= 0

    def _pass(self) -> None:
        now = time.monotonic()
        if self._asked is not None:
            self._left -= now - self._asked
        self._asked = now

    def __getstate__(self) -> dict[str, Any]:
        if self._asked is not None:
            self._pass()
        # Another process has another clock.
        return {**self.__dict__, "_asked": None}
