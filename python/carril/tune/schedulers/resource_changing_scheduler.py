"""Trials that grow while there is room: what nobody needs to begin is given to those that run."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigError, ConfigTypeError, NotAvailableError, kind_of
from carril.tune.schedulers import _checks
from carril.tune.schedulers._trial import Controller, Trial
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

# A function of the user's: the controller, the trial, its result and the scheduler to bundles, or None for what it has.
Allocate = Callable[[Controller, Trial, dict[str, Any], "ResourceChangingScheduler"], Any]


class ResourceChangingScheduler(NativeScheduler):
    """Changes the resources of trials while they run; `base_scheduler` decides everything else.

    A trial is saved, and resumes with more: its function asks `tune.get_context().get_trial_resources()`. A function of
    your own takes the controller, the trial, its result and this scheduler, and returns a `PlacementGroupFactory`, or None
    where nothing changes.
    """

    def __init__(
        self,
        base_scheduler: TrialScheduler | None = None,
        resources_allocation_function: DistributeResources | Allocate | None = _EVENLY,
    ) -> None:
        base = FIFOScheduler() if base_scheduler is None else base_scheduler
        if not isinstance(base, TrialScheduler):
            raise ConfigTypeError(
                f"`ResourceChangingScheduler(base_scheduler=…)` is {kind_of(base)}: it must be a scheduler"
            )
        allocation = _checked(resources_allocation_function)
        distributes = isinstance(allocation, DistributeResources)
        if isinstance(base, ResourceChangingScheduler) or (distributes and not base._is_native):
            raise NotAvailableError(
                f"`ResourceChangingScheduler` over `{type(base).__name__}` is not built yet",
                hints=["the base scheduler must be one of carril's own, or the allocation a function of your own"],
            )
        super().__init__(base.metric, base.mode)
        self.base_scheduler = base
        self.resources_allocation_function = allocation

    @property
    def _is_native(self) -> bool:
        allocation = self.resources_allocation_function
        is_native = allocation is None or isinstance(allocation, DistributeResources)
        return is_native and self.base_scheduler._is_native and self._keeps_hooks_of(ResourceChangingScheduler)

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        both = super().set_search_properties(metric, mode, **spec)
        return self.base_scheduler.set_search_properties(metric, mode, **spec) and both

    def _first_config(self, trial_id: str, config: dict[str, Any]) -> dict[str, Any]:
        begin = getattr(self.base_scheduler, "_first_config", None)
        return config if begin is None else begin(trial_id, config)

    def on_trial_add(self, controller: Controller, trial: Trial) -> None:
        self.base_scheduler.on_trial_add(controller, trial)

    def on_trial_result(self, controller: Controller, trial: Trial, result: dict[str, Any]) -> str:
        decision = self.base_scheduler.on_trial_result(controller, trial, result)
        if decision != TrialScheduler.CONTINUE or not callable(self.resources_allocation_function):
            return decision
        bundles = self.resources_allocation_function(controller, trial, result, self)
        if bundles is None:
            return decision
        from carril.tune.trainable._resources import amounts_in

        resources = amounts_in(bundles, "resources_allocation_function")
        if resources == trial.resources:
            return decision
        trial.resources = resources
        reason = "`resources_allocation_function` has other resources for it"
        controller.order({"trial": trial.trial_id, "verdict": "resize", "resources": resources, "reason": reason})
        return TrialScheduler.PAUSE

    def on_trial_complete(self, controller: Controller, trial: Trial, result: dict[str, Any]) -> None:
        self.base_scheduler.on_trial_complete(controller, trial, result)

    def on_trial_error(self, controller: Controller, trial: Trial) -> None:
        self.base_scheduler.on_trial_error(controller, trial)

    def on_trial_remove(self, controller: Controller, trial: Trial) -> None:
        self.base_scheduler.on_trial_remove(controller, trial)

    def choose_trial_to_run(self, controller: Controller) -> Trial | None:
        return self.base_scheduler.choose_trial_to_run(controller)

    def _native_spec(self, constants: "Constants", metric: str | None, mode: str | None) -> dict[str, Any]:
        base: Any = self.base_scheduler
        spec: dict[str, Any] = base._native_spec(constants, metric, mode)
        if not isinstance(self.resources_allocation_function, DistributeResources):
            return spec
        allocation = self.resources_allocation_function._allocation(self._metric or metric, self._mode or mode)
        return {"resource_changing": {"base": spec, "allocation": allocation}}


def _checked(allocation: object) -> DistributeResources | Allocate | None:
    if allocation is None or isinstance(allocation, DistributeResources):
        return allocation
    if isinstance(allocation, type) and issubclass(allocation, DistributeResources):
        return allocation()
    if callable(allocation):
        return allocation
    raise ConfigTypeError(
        f"`resources_allocation_function` is {kind_of(allocation)}: it must be a `DistributeResources`"
    )
