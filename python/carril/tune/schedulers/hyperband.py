"""HyperBand: brackets of trials that are halved together, with many short trials in one and few long ones in another."""

from typing import TYPE_CHECKING, Any

from carril.tune.schedulers import _checks
from carril.tune.schedulers.trial_scheduler import NativeScheduler

if TYPE_CHECKING:
    from carril.tune._space import Constants


class HyperBandScheduler(NativeScheduler):
    """Pauses trials at a milestone until their whole bracket is there; then one of `reduction_factor` goes on.

    `max_t` is what the best are trained for, in units of `time_attr`. Trials must save checkpoints: they are paused.
    """

    _for_bohb = False

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 81,
        reduction_factor: float = 3,
        stop_last_trials: bool = True,
    ) -> None:
        super().__init__(metric, mode)
        name = self._name
        self.time_attr = _checks.text(name, "time_attr", time_attr, "the name of a value in the results")
        self.max_t = _checks.number(name, "max_t", max_t, 1, "a number of at least 1")
        self.reduction_factor = _checks.number(
            name, "reduction_factor", reduction_factor, 1, "a number above 1", open_end=True
        )
        self.stop_last_trials = _checks.flag(name, "stop_last_trials", stop_last_trials)

    def _native_spec(self, constants: "Constants", metric: str | None, mode: str | None) -> dict[str, Any]:
        return {
            "hyperband": {
                "time_attr": self.time_attr,
                **self._target(metric, mode),
                "max_t": self.max_t,
                "reduction_factor": self.reduction_factor,
                "stop_last_trials": self.stop_last_trials,
                "bohb": self._for_bohb,
            }
        }
