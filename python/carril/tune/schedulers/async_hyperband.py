"""Asynchronous successive halving, known as ASHA: a trial that is worse than most at a rung is stopped there."""

from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigError
from carril.tune.schedulers import _checks
from carril.tune.schedulers.trial_scheduler import NativeScheduler

if TYPE_CHECKING:
    from carril.tune._space import Constants

_MOST_BRACKETS = 64


class ASHAScheduler(NativeScheduler):
    """Stops a trial at a rung if it is not among the best `1/reduction_factor` of those that came there before it.

    The rungs are at `grace_period`, that times `reduction_factor`, and so on, in units of `time_attr`; at `max_t` every
    trial stops, unless `stop_last_trials` is False. `seed` decides which of several `brackets` a trial belongs to.
    """

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 4,
        brackets: int = 1,
        stop_last_trials: bool = True,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(metric, mode)
        name = self._name
        self.time_attr = _checks.text(name, "time_attr", time_attr, "the name of a value in the results")
        self.max_t = _checks.number(name, "max_t", max_t, 0, "a number above 0", open_end=True)
        self.grace_period = _checks.number(name, "grace_period", grace_period, 0, "a number above 0", open_end=True)
        if self.max_t < self.grace_period:
            raise ConfigError(
                f"`{name}(max_t={max_t!r}, grace_period={grace_period!r})`: `max_t` must not be below `grace_period`",
                hints=["no trial is stopped before `grace_period`, and every one is at `max_t`"],
            )
        self.reduction_factor = _checks.number(
            name, "reduction_factor", reduction_factor, 1, "a number above 1", open_end=True
        )
        self.brackets = _checks.count(name, "brackets", brackets, 1, f"a number from 1 to {_MOST_BRACKETS}")
        if self.brackets > _MOST_BRACKETS:
            raise ConfigError(f"`{name}(brackets={brackets!r})`: it must be a number from 1 to {_MOST_BRACKETS}")
        self.stop_last_trials = _checks.flag(name, "stop_last_trials", stop_last_trials)
        self.seed = _checks.seed_number(name, seed)

    def _native_spec(self, constants: "Constants", metric: str | None, mode: str | None) -> dict[str, Any]:
        return {
            "asha": {
                "time_attr": self.time_attr,
                **self._target(metric, mode),
                "max_t": self.max_t,
                "grace_period": self.grace_period,
                "reduction_factor": self.reduction_factor,
                "brackets": self.brackets,
                "stop_last_trials": self.stop_last_trials,
                "seed": self.seed,
            }
        }


AsyncHyperBandScheduler = ASHAScheduler
