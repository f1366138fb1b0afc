"""The median stopping rule: a trial that is worse at its best than the others are on average is stopped."""

from typing import TYPE_CHECKING, Any

from carril.tune.schedulers import _checks
from carril.tune.schedulers.trial_scheduler import NativeScheduler

if TYPE_CHECKING:
    from carril.tune._space import Constants


class MedianStoppingRule(NativeScheduler):
    """Stops a trial whose best result is below the median of the others' averages up to the same time.

    Nothing is decided within `grace_period`, nor before `min_samples_required` others have come as far. With
    `hard_stop=False` a trial is paused instead, and goes on when nothing else can run.
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        grace_period: float = 60.0,
        min_samples_required: int = 3,
        min_time_slice: float = 0,
        hard_stop: bool = True,
    ) -> None:
        super().__init__(metric, mode)
        name = self._name
        self.time_attr = _checks.text(name, "time_attr", time_attr, "the name of a value in the results")
        self.grace_period = _checks.number(name, "grace_period", grace_period, 0, "a number, 0 or more")
        self.min_samples_required = _checks.count(
            name, "min_samples_required", min_samples_required, 1, "a number of trials, 1 or more"
        )
        self.min_time_slice = _checks.number(name, "min_time_slice", min_time_slice, 0, "a number, 0 or more")
        self.hard_stop = _checks.flag(name, "hard_stop", hard_stop)

    def _native_spec(self, constants: "Constants", metric: str | None, mode: str | None) -> dict[str, Any]:
        return {
            "median_stopping": {
                "time_attr": self.time_attr,
                **self._target(metric, mode),
                "grace_period": self.grace_period,
                "min_samples_required": self.min_samples_required,
                "min_time_slice": self.min_time_slice,
                "hard_stop": self.hard_stop,
            }
        }
