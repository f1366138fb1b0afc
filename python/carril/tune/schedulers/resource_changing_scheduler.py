"""Trials that grow while there is room: what nobody needs to begin is given to those that run."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigError, ConfigTypeError, NotAvailableError, kind_of
from carril.tune.schedulers import _checks
from carril.tune.schedulers.trial_scheduler import FIFOScheduler, NativeScheduler, TrialScheduler

if TYPE_CHECKING:
    from carril.tune._space import Constants


class DistributeResources:
    """All trials that run grow alike, in portions of `increase_by`; without it, by one CPU and one GPU at a time.

    `increase_by_times` limits the portions of a trial, -1 does not; `reserve_resources` are left free. A trial is one
    process here and grows as a whole: `add_bundles` makes no difference.
    """

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: Mapping[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: Mapping[str, float] | None = None,
    ) -> None:
        name = type(self).__name__
        self.add_bundles = _checks.flag(name, "add_bundles", add_bundles)
        self.increase_by = _amounts(increase_by, f"{name}(increase_by=…)")
        times = _checks.count(name, "increase_by_times", increase_by_times, -1, "a number of times, or -1 for no limit")
        self.increase_by_times = times
        self.reserve_resources = _amounts(reserve_resources, f"{name}(reserve_resources=…)")

    def _allocation(self, metric: str | None, mode: str | None) -> dict[str, Any]:
        return {"evenly": self._distribution()}

    def _distribution(self) -> dict[str, Any]:
        return {
            "increase_by": self.increase_by,
            "increase_by_times": None if self.increase_by_times < 0 else self.increase_by_times,
            "reserve": self.reserve_resources,
        }


class DistributeResourcesToTopJob(DistributeResources):
    """The best trial gets what is free; the others have what they asked for."""

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: Mapping[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: Mapping[str, float] | None = None,
        metric: str | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__(add_bundles, increase_by, increase_by_times, reserve_resources)
        self.metric = _checks.metric_name("DistributeResourcesToTopJob", metric)
        self.mode = _checks.mode_name("DistributeResourcesToTopJob", mode)

    def _allocation(self, metric: str | None, mode: str | None) -> dict[str, Any]:
        metric, mode = self.metric or metric, self.mode or mode
        if metric is None or mode is None:
            raise ConfigError(
                "`DistributeResourcesToTopJob` has no `metric` and `mode` to find the best trial by",
                hints=["give them to `TuneConfig`, or to `DistributeResourcesToTopJob`"],
            )
        return {"to_the_top": {**self._distribution(), "metric": metric, "mode": mode}}


def _amounts(resources: Mapping[str, float] | None, where: str) -> dict[str, float]:
    if not resources:
        return {}
    from carril.tune.trainable._resources import as_amounts

    return as_amounts(resources, where)


# As the default it is one object: it has no state.
_EVENLY = DistributeResources()


class ResourceChangingScheduler(NativeScheduler):
    """Changes the resources of trials while they run; `base_scheduler` decides everything else.

    A trial is saved, and goes on with more: its function asks `tune.get_context().get_trial_resources()`.
    """

    def __init__(
        self,
        base_scheduler: TrialScheduler | None = None,
        resources_allocation_function: DistributeResources | None = _EVENLY,
    ) -> None:
        base = FIFOScheduler() if base_scheduler is None else base_scheduler
        if not isinstance(base, TrialScheduler):
            raise ConfigTypeError(
                f"`ResourceChangingScheduler(base_scheduler=…)` is {kind_of(base)}: it must be a scheduler"
            )
        if not hasattr(base, "_native_spec") or isinstance(base, ResourceChangingScheduler):
            raise NotAvailableError(
                f"`ResourceChangingScheduler` over `{type(base).__name__}` is not built yet",
                hints=["the base scheduler must be one of carril's own"],
            )
        super().__init__(base.metric, base.mode)
        self.base_scheduler = base
        self.resources_allocation_function = _checked(resources_allocation_function)

    def _native_spec(self, constants: "Constants", metric: str | None, mode: str | None) -> dict[str, Any]:
        spec: dict[str, Any] = self.base_scheduler._native_spec(constants, metric, mode)
        if self.resources_allocation_function is None:
            return spec
        allocation = self.resources_allocation_function._allocation(self._metric or metric, self._mode or mode)
        return {"resource_changing": {"base": spec, "allocation": allocation}}


def _checked(allocation: object) -> DistributeResources | None:
    if allocation is None or isinstance(allocation, DistributeResources):
        return allocation
    if isinstance(allocation, type) and issubclass(allocation, DistributeResources):
        return allocation()
    if callable(allocation):
        raise NotAvailableError(
            "`resources_allocation_function`: a function of your own is not built yet",
            hints=["`DistributeResources(…)` and `DistributeResourcesToTopJob(…)` are there"],
        )
    raise ConfigTypeError(
        f"`resources_allocation_function` is {kind_of(allocation)}: it must be a `DistributeResources`"
    )
