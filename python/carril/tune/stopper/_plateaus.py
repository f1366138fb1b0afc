"""Stoppers that look for a plateau: of one trial, or of the best results of all."""

import math
from collections import deque
from collections.abc import Collection
from numbers import Real
from typing import Any

from carril.exceptions import ConfigError, ConfigTypeError
from carril.tune.stopper.stopper import Stopper, value_in


class TrialPlateauStopper(Stopper):
    """Stops a trial whose last `num_results` values of a metric hardly differ: their standard deviation is below `std`.

    Not before `grace_period` results, and with `metric_threshold` not before the metric has come so far, in the
    direction of `mode`. A result without the metric does not count.
    """

    def __init__(
        self,
        metric: str,
        std: float = 0.01,
        num_results: int = 4,
        grace_period: int = 4,
        metric_threshold: float | None = None,
        mode: str | None = None,
    ) -> None:
        _check_metric("TrialPlateauStopper", metric)
        _check_std("TrialPlateauStopper", std)
        _check_count("TrialPlateauStopper", "num_results", num_results, 1)
        _check_count("TrialPlateauStopper", "grace_period", grace_period, 0)
        if metric_threshold is not None and mode not in ("min", "max"):
            raise ConfigError(
                f"`TrialPlateauStopper(metric_threshold=…, mode={mode!r})`: with a threshold, `mode` is 'min' or 'max'"
            )
        self._metric = metric
        self._std = std
        self._num_results = num_results
        self._grace_period = grace_period
        self._metric_threshold = metric_threshold
        self._mode = mode
        self._counts: dict[str, int] = {}
        self._last: dict[str, deque[float]] = {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        value = value_in(result, self._metric)
        if not isinstance(value, Real):
            return False
        last = self._last.setdefault(trial_id, deque(maxlen=self._num_results))
        last.append(float(value))
        self._counts[trial_id] = count = self._counts.get(trial_id, 0) + 1
        if count < self._grace_period or len(last) < self._num_results or not self._is_far_enough(last[-1]):
            return False
        return _deviation(last) < self._std

    def stop_all(self) -> bool:
        return False

    def _looks_at(self) -> list[str]:
        return [self._metric]

    def _is_far_enough(self, value: float) -> bool:
        if self._metric_threshold is None:
            return True
        return value <= self._metric_threshold if self._mode == "min" else value >= self._metric_threshold


class ExperimentPlateauStopper(Stopper):
    """Stops the experiment when the `top` best values of a metric hardly differ, `patience` results in a row."""

    def __init__(self, metric: str, std: float = 0.001, top: int = 10, mode: str = "min", patience: int = 0) -> None:
        _check_metric("ExperimentPlateauStopper", metric)
        _check_std("ExperimentPlateauStopper", std)
        _check_count("ExperimentPlateauStopper", "top", top, 2)
        _check_count("ExperimentPlateauStopper", "patience", patience, 0)
        if mode not in ("min", "max"):
            raise ConfigError(f"`ExperimentPlateauStopper(mode={mode!r})`: it must be 'min' or 'max'")
        self._metric = metric
        self._std = std
        self._top = top
        self._mode = mode
        self._patience = patience
        self._iterations = 0
        self._top_values: list[float] = []

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        value = value_in(result, self._metric)
        # NaN is not among the best of anything.
        if isinstance(value, Real) and not math.isnan(value):
            self._top_values = sorted([*self._top_values, float(value)], reverse=self._mode == "max")[: self._top]
            self._iterations = self._iterations + 1 if self.has_plateaued() else 0
        return self.stop_all()

    def has_plateaued(self) -> bool:
        return len(self._top_values) == self._top and _deviation(self._top_values) <= self._std

    def stop_all(self) -> bool:
        return self.has_plateaued() and self._iterations >= self._patience

    def _looks_at(self) -> list[str]:
        return [self._metric]


def _deviation(values: Collection[float]) -> float:
    """The standard deviation of all there are; not a number where one of them is infinite or none."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))


def _check_metric(owner: str, metric: object) -> None:
    if not isinstance(metric, str) or not metric:
        raise ConfigTypeError(f"`{owner}(metric={metric!r})`: it must be the name of a metric")


def _check_std(owner: str, std: object) -> None:
    if not isinstance(std, Real) or isinstance(std, bool) or not float(std) > 0:
        raise ConfigError(f"`{owner}(std={std!r})`: it must be a number above 0")


def _check_count(owner: str, name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"`{owner}({name}={value!r})`: it must be a whole number, {least} or more")
