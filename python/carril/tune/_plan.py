"""From what the user gave a `Tuner` to the specification that the head understands. Everything is checked on the way.

PLAN-1: what can be known to be wrong is said here, before a head is started.
"""

import json
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from carril._internal import again, spec
from carril.exceptions import ConfigError, ConfigTypeError, NotAvailableError, kind_of
from carril.train._config import RunConfig, ScalingConfig
from carril.train._locations import is_uri, joined
from carril.tune import _trainers
from carril.tune._config import TuneConfig
from carril.tune._space import Constants, constants_of, encode_space, paths_of
from carril.tune.search.sample import holds_domain
from carril.tune.stopper import as_stopper
from carril.tune.trainable import TrialOptions, check_trainable, get_trainable, resources_of
from carril.tune.trainable.trainable import Trainable

if TYPE_CHECKING:
    from carril._native import Client
    from carril.tune.stopper.stopper import Stopper


@dataclass
class Resuming:
    """How an experiment goes on that is there already."""

    unfinished: bool = True
    errored: bool = False
    restart_errored: bool = False


@dataclass
class Plan:
    """All that an experiment is made of, checked."""

    trainable: Any
    name: str
    trainable_name: str
    tune_config: TuneConfig
    run_config: RunConfig
    space: dict[str, Any]
    searcher: Any = None
    scheduler: Any = None
    stopper: "Stopper | None" = None
    rules: dict[str, float] = field(default_factory=dict)
    functions: list[Callable[..., Any]] = field(default_factory=list)
    constants: Constants = field(default_factory=Constants)
    resuming: Resuming | None = None
    seed: int = 0
    # Those that hear of the trials; made when `fit()` begins.
    callbacks: list[Any] = field(default_factory=list)

    @property
    def metric(self) -> Any:
        return self.tune_config.metric or getattr(self.scheduler, "metric", None) or self._of_searcher("metric")

    @property
    def mode(self) -> Any:
        return self.tune_config.mode or getattr(self.scheduler, "mode", None) or self._of_searcher("mode")

    def _of_searcher(self, name: str) -> Any:
        return getattr(self.searcher, name, None)

    @property
    def asks_searcher(self) -> bool:
        """The searcher is Python."""
        return self.searcher is not None and not hasattr(self.searcher, "_native_spec")

    @property
    def searcher_space(self) -> Any:
        """What a searcher was given as its own space, or has taken from the tuner."""
        return self._of_searcher("_space")

    @property
    def whole_space(self) -> dict[str, Any]:
        """The tuner's, with what a searcher was given in our words."""
        own = self.searcher_space
        return {**self.space, **own} if isinstance(own, Mapping) and holds_domain(own) else self.space

    @property
    def asks_scheduler(self) -> bool:
        return self.scheduler is not None and not self.scheduler._is_native

    @property
    def completes_configs(self) -> bool:
        """A scheduler of ours that is asked in the driver may have another config for a trial before it begins."""
        return self.asks_scheduler and hasattr(self.scheduler, "_first_config")

    @property
    def scales_trials(self) -> bool:
        """How many workers a trial of a trainer has is searched too."""
        return _trainers.is_trainer(self.trainable) and _trainers.SCALING in self.space

    @property
    def asks_names(self) -> bool:
        return bool(self.tune_config.trial_name_creator or self.tune_config.trial_dirname_creator)

    @property
    def total(self) -> int | None:
        """How many trials there will be, where that is known."""
        samples = self.tune_config.num_samples
        if samples < 0:
            return None
        return samples * _combinations(self.space) if not self.asks_searcher else samples


def make_plan(
    trainable: Any,
    param_space: Mapping[str, Any] | None,
    tune_config: TuneConfig,
    run_config: RunConfig,
    resuming: Resuming | None = None,
) -> Plan:
    """Checks what was given."""
    trainable_name = check_trainable(trainable)
    if isinstance(trainable, str):
        trainable = get_trainable(trainable)
    space = _space(param_space)
    if _trainers.is_trainer(trainable):
        space = _trainers.checked_space(trainable, space)
        run_config = _trainers.merged_run_config(trainable.run_config, run_config)
    rules, stopper = as_stopper(run_config.stop)
    name = run_config.name or spec.default_name(trainable, trainable_name)
    plan = Plan(trainable, name, trainable_name, tune_config, run_config, space, rules=rules, stopper=stopper)
    plan.resuming = resuming
    plan.seed = random.SystemRandom().getrandbits(48)
    _take_searcher(plan)
    _take_scheduler(plan)
    _check_callbacks(run_config.callbacks)
    _check_checkpoints(plan)
    _check_output(plan)
    return plan


def _space(param_space: Any) -> dict[str, Any]:
    if param_space is None:
        return {}
    if hasattr(param_space, "to_dict") and not isinstance(param_space, Mapping):
        param_space = param_space.to_dict()
    if not isinstance(param_space, Mapping):
        raise ConfigTypeError(f"`param_space` is {kind_of(param_space)}: it must be a dict of parameters by name")
    return dict(param_space)


def _take_searcher(plan: Plan) -> None:
    searcher: Any = plan.tune_config.search_alg
    if searcher is None:
        return
    from carril.tune.search import create_searcher
    from carril.tune.search.searcher import Searcher

    if isinstance(searcher, str):
        searcher = create_searcher(searcher)
    if not isinstance(searcher, Searcher):
        raise ConfigTypeError(
            f"`TuneConfig.search_alg` is {kind_of(searcher)}: it must be a `Searcher`",
            hints=["derive its class from `carril.tune.search.Searcher`, and give an instance"],
        )
    from carril.tune.search.concurrency_limiter import ConcurrencyLimiter

    if spec.under_as_ray() and plan.tune_config.max_concurrent_trials and isinstance(searcher, ConcurrencyLimiter):
        raise ConfigError(
            "`max_concurrent_trials` and a `ConcurrencyLimiter` both limit the trials", hints=["give one of them"]
        )
    metric, mode = plan.tune_config.metric, plan.tune_config.mode
    if searcher.set_search_properties(metric, mode, plan.space) is False:
        own = getattr(searcher, "_space", None)
        if own is not None and holds_domain(plan.space):
            raise ConfigError(
                f"`{type(searcher).__name__}` has a `space`, and the tuner has a `param_space` with domains",
                hints=["give the space once"],
            )
    plan.searcher = searcher


def _take_scheduler(plan: Plan) -> None:
    scheduler: Any = plan.tune_config.scheduler
    if scheduler is None:
        return
    from carril.tune.schedulers import TrialScheduler, create_scheduler

    if isinstance(scheduler, str):
        scheduler = create_scheduler(scheduler)
    if not isinstance(scheduler, TrialScheduler):
        raise ConfigTypeError(
            f"`TuneConfig.scheduler` is {kind_of(scheduler)}: it must be a scheduler",
            hints=["derive its class from `carril.tune.schedulers.TrialScheduler`, and give an instance"],
        )
    metric, mode = plan.tune_config.metric, plan.tune_config.mode
    if not scheduler.set_search_properties(metric, mode):
        raise ConfigError(
            f"`{type(scheduler).__name__}` goes by `{scheduler.metric}` ({scheduler.mode}), "
            f"and `TuneConfig` by `{metric}` ({mode})",
            hints=["give metric and mode once: to `TuneConfig`"],
        )
    plan.scheduler = scheduler


def _check_callbacks(callbacks: list[Any]) -> None:
    from carril.train._callbacks import UserCallback
    from carril.tune.callback import Callback

    for callback in callbacks:
        if not isinstance(callback, Callback | UserCallback):
            raise ConfigError(
                f"`RunConfig.callbacks` holds {kind_of(callback)}: it must be a `carril.tune.Callback` or a `carril.train.UserCallback`",
                hints=["derive its class from `carril.tune.Callback`, and give an instance"],
            )


def _check_checkpoints(plan: Plan) -> None:
    config, trainable = plan.run_config.checkpoint_config, plan.trainable
    if not is_class(trainable) and (config.checkpoint_frequency or config.checkpoint_at_end):
        raise ConfigError(
            "`CheckpointConfig(checkpoint_frequency=…, checkpoint_at_end=…)` are for the class form of a trainable",
            hints=["a function reports its checkpoints itself: `tune.report(metrics, checkpoint=…)`"],
        )


def specification(plan: Plan, client: "Client", goes_on: bool) -> str:
    """The JSON for `Client.submit_experiment`; the plan then has all constants and functions."""
    plan.constants = Constants()
    searched = plan.space if not plan.asks_searcher else {}
    own = plan.searcher_space
    if own is not None and not plan.asks_searcher:
        searched = {**plan.space, **own}
    encoded = encode_space(searched, plan.constants)
    plan.functions = encoded.functions
    config = plan.tune_config
    metric, mode = plan.metric, plan.mode
    single = isinstance(metric, str) and isinstance(mode, str)
    strict = os.environ.get("TUNE_DISABLE_STRICT_METRIC_CHECKING", "0") in ("", "0")
    resuming = plan.resuming or Resuming()
    scheduler = plan.scheduler
    return json.dumps(
        {
            "name": plan.name,
            "storage_path": spec.storage_path(plan.run_config),
            "run": _run(plan, client),
            "trainable": plan.trainable_name,
            "metric": metric if single else None,
            "mode": mode if single else None,
            "num_samples": None if config.num_samples < 0 else config.num_samples,
            "space": encoded.node,
            "recorded_space": _recorded_space(plan),
            "searcher": _searcher_spec(plan),
            "constant": _constant(plan) if plan.asks_searcher else [],
            "searcher_name": type(plan.searcher).__name__,
            "scheduler": None if plan.asks_scheduler else _scheduler_spec(plan),
            "scheduler_name": type(scheduler).__name__,
            "stop": sorted(plan.rules.items()),
            "asks_judge": plan.stopper is not None or plan.asks_scheduler,
            "asks_config": plan.asks_names
            or asks_resources(plan.trainable)
            or plan.completes_configs
            or plan.scales_trials,
            "scaled_by_config": plan.scales_trials,
            "asks_explored": not plan.asks_scheduler and getattr(scheduler, "custom_explore_fn", None) is not None,
            "saves_itself": is_class(plan.trainable),
            "needs_metric": single and strict,
            "requires": [scheduler.time_attr, scheduler.metric] if getattr(scheduler, "require_attrs", False) else [],
            "logs_policies": bool(getattr(scheduler, "log_config", False)),
            "max_concurrent": config.max_concurrent_trials or None,
            "time_budget_s": config.time_budget_s,
            "fail_fast": bool(plan.run_config.failure_config.fail_fast),
            "reuse": bool(config.reuse_actors) and not _trainers.is_trainer(plan.trainable),
            "own_directory": _own_directory(plan),
            "seed": plan.seed,
            "goes_on": goes_on,
            "begins_anew": _begins_anew(plan),
            "resume_errored": resuming.errored or resuming.restart_errored,
            "restart_errored": resuming.restart_errored,
            "leave_unfinished": not resuming.unfinished,
            "record": json.dumps(_record(plan), default=str),
        }
    )


def _constant(plan: Plan) -> list[list[str]]:
    """The places that a searcher of the driver's does not decide: the names of the trials do not tell them."""
    from carril.tune.search.repeater import TRIAL_INDEX

    return [[TRIAL_INDEX], *paths_of(constants_of(plan.whole_space))]


def _recorded_space(plan: Plan) -> Any:
    """The space of a searcher in the driver, which the head only compares with that of an earlier start."""
    if not plan.asks_searcher:
        return None
    try:
        return encode_space(plan.whole_space, plan.constants).node
    except ConfigError:  # what only this searcher understands
        return None


def _begins_anew(plan: Plan) -> bool:
    """As in Ray, a script that does not say `resume` starts new trials, unless `carril resume` runs it for this search."""
    place = joined(spec.storage_path(plan.run_config), plan.name)
    return spec.under_as_ray() and not again.begins(place)


def is_class(trainable: Any) -> bool:
    """The class form, which saves and loads its checkpoints when it is asked to."""
    return isinstance(trainable, type) and issubclass(trainable, Trainable)


def asks_resources(trainable: Any) -> bool:
    """Whether what a trial reserves depends on its config."""
    if callable(getattr(trainable, "_resources", None)):
        return True
    if not is_class(trainable):
        return False
    own = trainable.__mro__[: trainable.__mro__.index(Trainable)]
    return any("default_resource_request" in vars(kind) for kind in own)


def _own_directory(plan: Plan) -> bool:
    told = plan.tune_config.chdir_to_trial_dir
    if told is not None:
        return bool(told)
    return os.environ.get("RAY_CHDIR_TO_TRIAL_DIR", "1") != "0" and not _trainers.is_trainer(plan.trainable)


def _searcher_spec(plan: Plan) -> Any:
    if plan.asks_searcher:
        return None
    if plan.searcher is None:
        return {"basic": {}}
    return plan.searcher._native_spec(plan.constants)


def _scheduler_spec(plan: Plan) -> Any:
    if plan.scheduler is None:
        return {"fifo": {}}
    return plan.scheduler._native_spec(plan.constants, plan.tune_config.metric, plan.tune_config.mode)


def _run(plan: Plan, client: "Client") -> dict[str, Any]:
    """What the trials have in common, as the specification of a run."""
    trainable, run_config = plan.trainable, plan.run_config
    data: dict[str, str] = {}
    if _trainers.is_trainer(trainable):
        scaling, share, data = trainable.scaling_config, False, _trainers.data_words(trainable)
        if trainable.backend_config is not None:
            share = trainable.backend_config.share_devices
        resources = scaling.worker_resources
    else:
        scaling, share = ScalingConfig(num_workers=1), False
        # One CPU stands for what each trial says for itself.
        resources = {"CPU": 1.0} if asks_resources(trainable) else resources_of(trainable, {})
        if not resources:
            raise ConfigError("a trial reserves nothing: it needs some part of a CPU, or something else")
    filesystem = spec.filesystem(run_config, client)
    text = spec.build(plan.name, scaling, run_config, share, {}, filesystem, None, None, data=data)
    built: dict[str, Any] = json.loads(text)
    built["resources_per_worker"] = resources
    built["threads_per_worker"] = max(1.0, resources.get("CPU", 1.0))
    built["failures"]["fail_fast"] = False
    built["record"] = "{}"
    return built


def _record(plan: Plan) -> dict[str, Any]:
    import sys

    return {
        "command": list(sys.argv),
        # For `carril resume`.
        **again.how_started(),
        "made_up_name": again.of_name(plan.name),
        "param_space": {name: repr(value)[:200] for name, value in plan.space.items()},
        "time_budget_s": plan.tune_config.time_budget_s,
    }


def options_of(plan: Plan) -> TrialOptions:
    config = plan.run_config.checkpoint_config
    return TrialOptions(
        checkpoint_frequency=config.checkpoint_frequency or 0,
        checkpoint_at_end=config.checkpoint_at_end,
        reuse=bool(plan.tune_config.reuse_actors),
        output_files=_output_files(plan.run_config.log_to_file),
    )


def _output_files(given: Any) -> tuple[str, str] | None:
    """What `log_to_file` means: the names of the files for the output and for the errors of a trial."""
    if not given:
        return None
    if given is True:
        return "stdout", "stderr"
    if isinstance(given, str):
        return given, given
    if isinstance(given, (list, tuple)) and len(given) == 2 and all(isinstance(name, str) and name for name in given):
        return given[0], given[1]
    raise ConfigError(f"`RunConfig.log_to_file` is {given!r}: it must be True, the name of a file, or two names")


def _check_output(plan: Plan) -> None:
    if _output_files(plan.run_config.log_to_file) is None:
        return
    is_local = plan.run_config.storage_filesystem is None and not is_uri(spec.storage_path(plan.run_config))
    if _trainers.is_trainer(plan.trainable) or not is_local:
        raise NotAvailableError(
            "`RunConfig(log_to_file=…)` is for functions and classes that are tuned, with storage on a local path",
            hints=["the output of every rank is kept in the trial's directory, under `ranks`"],
        )


def _combinations(space: Any) -> int:
    from carril.tune.search.sample import is_grid

    if is_grid(space):
        return sum(_combinations(option) for option in space["grid_search"])
    inner = space.values() if isinstance(space, Mapping) else space if isinstance(space, (list, tuple)) else ()
    product = 1
    for value in inner:
        product *= _combinations(value)
    return product
