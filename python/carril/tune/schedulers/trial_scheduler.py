"""What becomes of a trial with each of its reports: the base for a scheduler of one's own, and the simplest one of ours.

Carril's schedulers decide in the head, in Rust: here they are arguments, checks, and the description that the head gets
(`_native_spec`). One that a user writes is asked in the driver; where it is derived from one of ours, `super()` decides there
as the head would.
"""

from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigError
from carril.tune.schedulers import _checks
from carril.tune.schedulers._driver import InDriver
from carril.tune.schedulers._trial import Controller, Trial

if TYPE_CHECKING:
    from carril.tune._space import Constants

_HOOKS = (
    "choose_trial_to_run",
    "on_trial_add",
    "on_trial_complete",
    "on_trial_error",
    "on_trial_remove",
    "on_trial_result",
)


class TrialScheduler:
    """To be derived from: `on_trial_result` returns CONTINUE, PAUSE, STOP or NOOP.

    The methods are called in the driver, one at a time. The first argument of each knows the other trials:
    `get_trials()`, `get_live_trials()`.
    """

    CONTINUE = "CONTINUE"
    PAUSE = "PAUSE"
    STOP = "STOP"
    NOOP = "NOOP"

    # Here and not in a constructor, which a class of the user need not call.
    _metric: str | None = None
    _mode: str | None = None

    @property
    def _is_native(self) -> bool:
        """Whether the head decides in its place: no class of the user's has methods of its own."""
        return False

    def _keeps_hooks_of(self, kind: "type[TrialScheduler]") -> bool:
        return all(getattr(type(self), hook) is getattr(kind, hook) for hook in _HOOKS)

    @property
    def metric(self) -> str | None:
        return self._metric

    @property
    def mode(self) -> str | None:
        return self._mode

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Takes the experiment's metric and mode. False if this scheduler has others."""
        for own, given in ((self._metric, metric), (self._mode, mode)):
            if own is not None and given is not None and own != given:
                return False
        self._metric = self._metric if metric is None else metric
        self._mode = self._mode if mode is None else mode
        return True

    def on_trial_add(self, controller: Controller, trial: Trial) -> None:
        """A trial was made."""

    def on_trial_result(self, controller: Controller, trial: Trial, result: dict[str, Any]) -> str:
        """A trial has reported. Returns what becomes of it."""
        raise NotImplementedError(f"`{type(self).__name__}` has no `on_trial_result`")

    def on_trial_complete(self, controller: Controller, trial: Trial, result: dict[str, Any]) -> None:
        """A trial has ended well."""

    def on_trial_error(self, controller: Controller, trial: Trial) -> None:
        """A trial has failed for good."""

    def on_trial_remove(self, controller: Controller, trial: Trial) -> None:
        """A trial that waited will not run any more."""

    def choose_trial_to_run(self, controller: Controller) -> Trial | None:
        """Which of the trials that wait runs next; None for none of them now."""
        return _first_that_waits(controller)

    def debug_string(self) -> str:
        """One line for the status."""
        return type(self).__name__

    def save(self, checkpoint_path: str) -> None:
        """Writes the state of this scheduler to a file."""
        from carril._internal.pickling import dumps

        with open(checkpoint_path, "wb") as file:
            file.write(dumps(self.__dict__))

    def restore(self, checkpoint_path: str) -> None:
        """Takes over the state that `save` wrote."""
        from carril._internal.pickling import loads

        with open(checkpoint_path, "rb") as file:
            self.__dict__.update(loads(file.read()))


def _first_that_waits(controller: Controller) -> Trial | None:
    """Those that have not begun come first, as in the native schedulers."""
    for status in (Trial.PENDING, Trial.PAUSED):
        for trial in controller.get_live_trials():
            if trial.status == status:
                return trial
    return None


class FIFOScheduler(TrialScheduler):
    """Every trial runs to its end, in the order in which they were made. The default.

    It may be derived from: with methods of its own, such a scheduler is asked in the driver.
    """

    def on_trial_result(self, controller: Controller, trial: Trial, result: dict[str, Any]) -> str:
        return TrialScheduler.CONTINUE

    def debug_string(self) -> str:
        return "first in, first out"

    @property
    def _is_native(self) -> bool:
        return self._keeps_hooks_of(FIFOScheduler)

    def _native_spec(self, constants: "Constants", metric: str | None, mode: str | None) -> dict[str, Any]:
        return {"fifo": {}}


class NativeScheduler(TrialScheduler):
    """A scheduler of the head. A class that is derived from it and has methods of its own is asked in the driver."""

    # What it knows where it is asked in the driver.
    _in_driver: InDriver | None = None

    def __init__(self, metric: str | None = None, mode: str | None = None) -> None:
        self._metric = _checks.metric_name(self._name, metric)
        self._mode = _checks.mode_name(self._name, mode)

    @property
    def _is_native(self) -> bool:
        return self._keeps_hooks_of(NativeScheduler)

    def _here(self) -> InDriver:
        if self._in_driver is None:
            import random

            from carril.tune._space import Constants

            constants = Constants()
            spec = self._native_spec(constants, self._metric, self._mode)
            self._in_driver = InDriver(spec, constants, random.SystemRandom().getrandbits(48))
        return self._in_driver

    def _first_config(self, trial_id: str, config: dict[str, Any]) -> dict[str, Any]:
        """What a trial begins with: a population fills in what is missing."""
        made = self._here().add(trial_id, config)
        if made is None:
            return config
        config = self._complete(made["config"], made["ask"], explored=False)
        self._here().configure(trial_id, config)
        return config

    def _complete(self, config: dict[str, Any], paths: list[list[str]], explored: bool) -> dict[str, Any]:
        """A config that this scheduler made, with what functions of the user draw and change."""
        return config

    def on_trial_add(self, controller: Controller, trial: Trial) -> None:
        self._first_config(trial.trial_id, trial.config)

    def on_trial_result(self, controller: Controller, trial: Trial, result: dict[str, Any]) -> str:
        here = self._here()
        here.add(trial.trial_id, trial.config)
        # It may go on with another config than was decided, or with the old one.
        here.configure(trial.trial_id, trial.config)
        others_wait = any(one.status == Trial.PENDING for one in controller.get_trials() if one is not trial)
        decision = here.report(trial.trial_id, result, others_wait)
        self._give_orders(controller)
        if decision["verdict"] in ("exploit", "resize"):
            controller.order({"trial": trial.trial_id, **self._order(decision)})
            return TrialScheduler.PAUSE
        if decision.get("saves"):
            controller.order({"trial": trial.trial_id, "saves": True})
        words = {"continue": TrialScheduler.CONTINUE, "pause": TrialScheduler.PAUSE}
        return words.get(decision["verdict"], TrialScheduler.STOP)

    def on_trial_complete(self, controller: Controller, trial: Trial, result: dict[str, Any]) -> None:
        self._here().complete(trial.trial_id, result)
        self._give_orders(controller)

    def on_trial_error(self, controller: Controller, trial: Trial) -> None:
        self._here().fail(trial.trial_id)
        self._give_orders(controller)

    def on_trial_remove(self, controller: Controller, trial: Trial) -> None:
        self._here().fail(trial.trial_id)
        self._give_orders(controller)

    def choose_trial_to_run(self, controller: Controller) -> Trial | None:
        waiting: dict[str, list[str]] = {Trial.PENDING: [], Trial.PAUSED: []}
        for trial in controller.get_live_trials():
            waiting.get(trial.status, []).append(trial.trial_id)
        chosen = self._here().choose(waiting[Trial.PENDING], waiting[Trial.PAUSED], controller.is_exhausted)
        self._give_orders(controller)
        return None if chosen is None else controller.get_trial(chosen)

    def debug_string(self) -> str:
        return super().debug_string() if self._in_driver is None else self._in_driver.describe()

    def _give_orders(self, controller: Controller) -> None:
        for order in self._here().take_orders():
            controller.order(self._order(order))

    def _order(self, decision: dict[str, Any]) -> dict[str, Any]:
        """A decision as the head takes it, with the config that the user's functions have completed."""
        if decision["verdict"] != "exploit":
            return decision
        return {**decision, "config": self._complete(decision["config"], decision["ask"], explored=True)}

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _native_spec(self, constants: "Constants", metric: str | None, mode: str | None) -> dict[str, Any]:
        raise NotImplementedError

    def _target(self, metric: str | None, mode: str | None) -> dict[str, Any]:
        """The metric and mode that it goes by: its own, or those of the experiment."""
        found = {"metric": self._metric or metric, "mode": self._mode or mode}
        missing = [name for name, value in found.items() if value is None]
        if missing:
            names = " and no ".join(f"`{name}`" for name in missing)
            raise ConfigError(
                f"`{self._name}` has no {names} to go by",
                hints=["give `metric` and `mode` to `TuneConfig`, or to the scheduler"],
            )
        return found
