"""How a search is made: how many trials, by which searcher and scheduler, judged by what."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from carril._internal.spec import under_as_ray
from carril.exceptions import ConfigError, ConfigTypeError, kind_of
from carril.train._config import Config

MODES = ("min", "max")


@dataclass
class TuneConfig(Config):
    """How trials are made, chosen and judged.

    `metric` is what trials report and `mode` whether it is to be small or large; a searcher or a scheduler that has its
    own needs none here. `num_samples` trials are made, or so many passes over the grids; -1 makes them until something
    else ends the search. `time_budget_s` ends it after that time. With `reuse_actors` a process serves one trial
    after the other.
    """

    mode: str | None = None
    metric: str | None = None
    search_alg: Any = None
    scheduler: Any = None
    num_samples: int = 1
    max_concurrent_trials: int | None = None
    time_budget_s: Any = None
    reuse_actors: bool | None = False
    trial_name_creator: Callable[[Any], str] | None = None
    trial_dirname_creator: Callable[[Any], str] | None = None
    chdir_to_trial_dir: Any = None

    unbuilt: ClassVar[Mapping[str, tuple[Any, str]]] = {}

    def __post_init__(self) -> None:
        metrics = self.metric if isinstance(self.metric, (list, tuple)) else [self.metric]
        for metric in metrics:
            if metric is not None and (not isinstance(metric, str) or not metric):
                raise ConfigTypeError(f"`TuneConfig.metric` is {self.metric!r}: it must be the name of a metric")
        modes = self.mode if isinstance(self.mode, (list, tuple)) else [self.mode]
        if any(mode is not None and mode not in MODES for mode in modes):
            raise ConfigError(f"`TuneConfig.mode` is {self.mode!r}: it must be 'min' or 'max'")
        # In Ray a metric alone only says what is shown.
        if self.metric is not None and self.mode is None and not under_as_ray():
            raise ConfigError(
                f"`TuneConfig(metric={self.metric!r})` has no `mode`",
                hints=["give `mode='min'` if less is better, `mode='max'` if more is"],
            )
        if isinstance(self.num_samples, bool) or not isinstance(self.num_samples, int):
            raise ConfigTypeError(f"`TuneConfig.num_samples` is {self.num_samples!r}: it must be a number")
        if self.num_samples < 1 and self.num_samples != -1:
            raise ConfigError(f"`TuneConfig.num_samples` is {self.num_samples}: it must be 1 or more, or -1 for no end")
        if self.max_concurrent_trials is not None and self.max_concurrent_trials != 0:
            self._need_count("max_concurrent_trials", 1, "a number of trials, 1 or more, or None for no limit")
        self.time_budget_s = _seconds(self.time_budget_s)
        for name in ("trial_name_creator", "trial_dirname_creator"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise ConfigTypeError(f"`TuneConfig.{name}` is {kind_of(getattr(self, name))}: it must be a function")


def _seconds(budget: Any) -> float | None:
    if budget is None:
        return None
    from datetime import timedelta

    seconds = budget.total_seconds() if isinstance(budget, timedelta) else budget
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < float("inf"):
        raise ConfigError(f"`TuneConfig.time_budget_s` is {budget!r}: it must be a number of seconds above 0")
    return float(seconds)


@dataclass
class ResumeConfig:
    """What becomes of the trials of an experiment that goes on. Those that finished are never run again."""

    class ResumeType:
        RESUME = "resume"
        RESTART = "restart"
        SKIP = "skip"

    finished: str = ResumeType.SKIP
    unfinished: str = ResumeType.RESUME
    errored: str = ResumeType.SKIP
