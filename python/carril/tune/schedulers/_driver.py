"""A native scheduler that is asked in the driver: for a class of the user's that is derived from one of ours.

The head would decide the same. Trials are known by their ids here, and by numbers in the order in which they came there.
"""

import json
from typing import TYPE_CHECKING, Any

from carril.tune._values import decoded, encoded

if TYPE_CHECKING:
    from carril.tune._space import Constants


class InDriver:
    """The native side of one scheduler. It pickles, with all that it has seen."""

    def __init__(self, spec: dict[str, Any], constants: "Constants", seed: int) -> None:
        from carril._native import Scheduler

        values = [encoded(value) for value in constants.values]
        self._native: Scheduler = Scheduler.make(json.dumps(spec), values, seed)
        self._numbers: dict[str, int] = {}
        # Which of them the native side still follows.
        self._live: set[str] = set()
        self._is_exhausted = False

    def add(self, trial_id: str, config: dict[str, Any]) -> dict[str, Any] | None:
        """The `config` to run it with, and the places to `ask` for, where that is another one."""
        if trial_id in self._numbers:
            return None
        number = self._numbers[trial_id] = len(self._numbers)
        self._live.add(trial_id)
        made = self._native.trial_added(number, encoded(config))
        return None if made is None else {**made, "config": decoded(made["config"])}

    def configure(self, trial_id: str, config: dict[str, Any]) -> None:
        """What it runs with in the end."""
        self._native.configured(self._numbers[trial_id], encoded(config))

    def report(self, trial_id: str, result: dict[str, Any], others_wait: bool) -> dict[str, Any]:
        """The decision about a trial, in the words of an answer to the head; other trials are named by their ids."""
        decision = self._native.reported(self._numbers[trial_id], encoded(result), others_wait)
        if decision["verdict"] in ("stop", "stop_early"):
            self._live.discard(trial_id)
        return self._with_ids(decision)

    def complete(self, trial_id: str, result: dict[str, Any]) -> None:
        # One that was stopped here is known to have ended.
        if trial_id in self._live:
            self._live.discard(trial_id)
            self._native.completed(self._numbers[trial_id], encoded(result))

    def fail(self, trial_id: str) -> None:
        if trial_id in self._live:
            self._live.discard(trial_id)
            self._native.failed(self._numbers[trial_id])

    def choose(self, pending: list[str], paused: list[str], exhausted: bool) -> str | None:
        """Which of those that wait runs next."""
        if exhausted and not self._is_exhausted:
            self._is_exhausted = True
            self._native.no_more_trials()
        known = [[self._numbers[one] for one in some if one in self._numbers] for some in (pending, paused)]
        chosen = self._native.choose(*known)
        return None if chosen is None else self._id(chosen)

    def take_orders(self) -> list[dict[str, Any]]:
        """What was decided about trials that wait."""
        orders = [self._with_ids(order) for order in self._native.take_orders()]
        self._live -= {order["trial"] for order in orders if order["verdict"] in ("stop", "stop_early")}
        return orders

    def describe(self) -> str:
        return self._native.describe()

    def _with_ids(self, decision: dict[str, Any]) -> dict[str, Any]:
        named: dict[str, Any] = {name: self._id(decision[name]) for name in ("from", "trial") if name in decision}
        if "config" in decision:
            named["config"] = decoded(decision["config"])
        return {**decision, **named}

    def _id(self, number: int) -> str:
        return next(trial_id for trial_id, known in self._numbers.items() if known == number)
