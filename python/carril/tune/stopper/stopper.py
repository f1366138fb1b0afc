"""When trials, or the whole experiment, are to stop: the base for stoppers, and those that combine others.

A stopper is asked in the driver with every result. It keeps its state in plain attributes and pickles with it, so that
an experiment that resumes later has what its stopper knew.
"""

from collections.abc import Callable
from typing import Any

from carril.exceptions import ConfigTypeError, kind_of


class Stopper:
    """To be derived from: the call says whether this trial stops, `stop_all` whether all of them do."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """True if the trial that reported `result` is to stop."""
        raise NotImplementedError(f"`{type(self).__name__}` has no `__call__`")

    def stop_all(self) -> bool:
        """True if the whole experiment is to stop."""
        raise NotImplementedError(f"`{type(self).__name__}` has no `stop_all`")

    def _looks_at(self) -> list[str]:
        """The metrics without which it never stops anything."""
        return []


class CombinedStopper(Stopper):
    """Stops where any one of its stoppers does. Each of them sees every result."""

    def __init__(self, *stoppers: Stopper) -> None:
        for stopper in stoppers:
            if not isinstance(stopper, Stopper):
                raise ConfigTypeError(f"`CombinedStopper` is given {kind_of(stopper)}: it must be given stoppers")
        self._stoppers = stoppers

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        # All of them are asked: one that counts must not miss a result.
        answers = [stopper(trial_id, result) for stopper in self._stoppers]
        return any(answers)

    def stop_all(self) -> bool:
        answers = [stopper.stop_all() for stopper in self._stoppers]
        return any(answers)

    def _looks_at(self) -> list[str]:
        return [name for stopper in self._stoppers for name in stopper._looks_at()]


class FunctionStopper(Stopper):
    """Stops a trial where a function of its id and its result says so."""

    def __init__(self, function: Callable[[str, dict[str, Any]], bool]) -> None:
        if not self.is_valid_function(function):
            raise ConfigTypeError(
                f"`FunctionStopper` is given {kind_of(function)}: it must be given a function `(trial_id, result)`"
            )
        self._function = function

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return bool(self._function(trial_id, result))

    def stop_all(self) -> bool:
        return False

    @classmethod
    def is_valid_function(cls, function: object) -> bool:
        """True for what can be called and is no stopper itself."""
        return callable(function) and not (isinstance(function, type) and issubclass(function, Stopper))


class NoopStopper(Stopper):
    """Never stops anything."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return False


def value_in(result: dict[str, Any], name: str) -> Any:
    """What was reported under a name, `a/b` for a nested one; None if nothing was."""
    if name in result:
        return result[name]
    first, _, rest = name.partition("/")
    inner = result.get(first)
    return value_in(inner, rest) if rest and isinstance(inner, dict) else None
