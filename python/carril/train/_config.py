"""The configuration of a run: how many workers, what each of them has, where the files go.

Plain dataclasses that pickle. They refuse what cannot be when they are made, and name the field; what is not built yet
is refused by `refuse_unbuilt` when `fit()` begins, so that a script can be written for later versions.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import Any, ClassVar, TypeVar

from carril._internal.generation import under_as_ray
from carril.exceptions import ConfigError, ConfigTypeError, NotAvailableError, kind_of, of_another_ray

C = TypeVar("C", bound="Config")

_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
_REDUCTIONS = ("mean", "sum", "min", "max")


def _is_searched(value: Any) -> bool:
    """Whether a search draws the value, or something in it."""
    sample = sys.modules.get("carril.tune.search.sample")
    return sample is not None and bool(sample.holds_domain(value))


class Config:
    """What the configurations share: errors that name the field, and the nearest one for a field that is none."""

    # Fields whose behaviour comes later: any value but the one here is refused at `fit()`, with this text.
    unbuilt: ClassVar[Mapping[str, tuple[Any, str]]] = {}

    def __new__(cls: type[C], *args: Any, **kwargs: Any) -> C:
        known = [known.name for known in fields(cls)]  # type: ignore[arg-type]
        for name in kwargs:
            if name not in known:
                hints = [*of_another_ray(cls.__name__, name), *nearest(name, known)]
                raise ConfigTypeError(f"`{cls.__name__}` has no field `{name}`", hints=hints)
        return super().__new__(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        # A number of numpy's is as good as Python's.
        is_numpy = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
        super().__setattr__(name, value.item() if is_numpy else value)

    def refuse_unbuilt(self) -> None:
        """Raises NotAvailableError for a field that asks for something that is not built yet."""
        for name, (default, text) in self.unbuilt.items():
            value = getattr(self, name)
            if value != default:
                raise NotAvailableError(f"`{type(self).__name__}({name}={value!r})`: {text} not built yet")

    def _need(self, name: str, kinds: tuple[type, ...], what: str) -> None:
        value = getattr(self, name)
        # `use_gpu=int(...)` is what many scripts write: 0 and 1 are as good as False and True.
        if kinds == (bool,) and type(value) is int and value in (0, 1):
            setattr(self, name, bool(value))
            return
        # True is an int for Python, and never what is meant where a number is.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ConfigTypeError(f"`{type(self).__name__}.{name}` is {value!r}: it must be {what}")

    def _need_count(self, name: str, least: int, what: str) -> None:
        self._need(name, (int,), what)
        if getattr(self, name) < least:
            raise ConfigError(f"`{type(self).__name__}.{name}` is {getattr(self, name)}: it must be {what}")


def nearest(name: str, known: Sequence[str]) -> list[str]:
    """A hint with the names that `name` may stand for."""
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return [f"did you mean `{close[0]}`?"]
    return [f"the fields are {', '.join(f'`{field}`' for field in known)}"]


def coerce(cls: type[C], value: object, where: str) -> C:
    """A configuration from itself, from a dict of its fields, or from None."""
    if value is None:
        return cls()
    if isinstance(value, cls):
        return value
    if isinstance(value, Mapping):
        return cls(**value)
    raise ConfigTypeError(f"`{where}` is {kind_of(value)}: it must be a `{cls.__name__}` or a dict of its fields")


@dataclass
class ScalingConfig(Config):
    """How many workers a run has, and what each of them reserves.

    `num_workers=0` runs the function in the calling process. With `use_gpu=True` a worker reserves one GPU and one CPU
    unless `resources_per_worker` says otherwise.
    """

    num_workers: int | tuple[int, int] = 1
    use_gpu: bool = False
    resources_per_worker: dict[str, float] | None = None
    placement_strategy: str = "PACK"
    accelerator_type: str | None = None
    use_tpu: bool = False
    topology: str | None = None
    label_selector: Any = None
    elastic_resize_monitor_interval_s: float = 60.0
    trainer_resources: dict[str, float] | None = None

    unbuilt: ClassVar[Mapping[str, tuple[Any, str]]] = {
        "accelerator_type": (None, "types of accelerators are"),
        "use_tpu": (False, "TPUs are"),
        "topology": (None, "TPUs are"),
        "label_selector": (None, "labels of nodes are"),
        "elastic_resize_monitor_interval_s": (60.0, "elastic runs are"),
    }

    def __post_init__(self) -> None:
        if any(_is_searched(getattr(self, field.name)) for field in fields(self)):
            # In the `param_space` of a search: each trial makes its own of what is drawn, and checks that.
            return
        if self.num_workers is None:
            self.num_workers = 1
        if isinstance(self.num_workers, (tuple, list)):
            self._check_elastic()
        else:
            self._need_count("num_workers", 0, "a number of workers, 0 or more")
        for name in ("use_gpu", "use_tpu"):
            if getattr(self, name) is None:
                setattr(self, name, False)
            self._need(name, (bool,), "True or False")
        if self.use_gpu and self.use_tpu:
            raise ConfigError("`ScalingConfig` has `use_gpu` and `use_tpu`", hints=["a worker has one kind of device"])
        if isinstance(self.label_selector, list) and len(self.label_selector) != self.max_workers:
            raise ConfigError(
                f"`ScalingConfig.label_selector` has {len(self.label_selector)} entries for {self.max_workers} workers"
            )
        if self.placement_strategy is None:
            self.placement_strategy = "PACK"
        self._check_resources()
        if self.placement_strategy not in _STRATEGIES:
            raise ConfigError(
                f"`ScalingConfig.placement_strategy` is {self.placement_strategy!r}: it must be one of {_STRATEGIES}"
            )

    def _check_elastic(self) -> None:
        sizes = tuple(self.num_workers)  # type: ignore[arg-type]
        if len(sizes) != 2 or any(not isinstance(size, int) or isinstance(size, bool) for size in sizes):
            raise ConfigError(f"`ScalingConfig.num_workers` is {sizes}: an elastic size is (least, most)")
        if not 0 < sizes[0] <= sizes[1]:
            raise ConfigError(f"`ScalingConfig.num_workers` is {sizes}: least must be 1 or more and not above most")
        self.num_workers = sizes

    def _check_resources(self) -> None:
        if self.resources_per_worker is None:
            return
        self._need("resources_per_worker", (dict,), "a dict of numbers by name")
        for name, amount in self.resources_per_worker.items():
            if isinstance(name, str) and name not in ("CPU", "GPU") and name.upper() in ("CPU", "GPU"):
                raise ConfigError(
                    f"`ScalingConfig.resources_per_worker` has {name!r}", hints=[f"did you mean {name.upper()!r}?"]
                )
            number = isinstance(amount, Real) and not isinstance(amount, bool)
            if not isinstance(name, str) or not number or not amount >= 0:
                raise ConfigError(
                    f"`ScalingConfig.resources_per_worker` has {name!r}: {amount!r}: an amount is a number, 0 or more"
                )
        gpus = self.resources_per_worker.get("GPU")
        if self.use_gpu and gpus == 0:
            raise ConfigError(
                "`use_gpu=True` with `resources_per_worker={'GPU': 0}` contradict each other",
                hints=["leave `GPU` out for one per worker, or set `use_gpu=False`"],
            )
        if not self.use_gpu and gpus:
            raise ConfigError(
                f"`resources_per_worker` asks for GPU: {gpus} and `use_gpu` is False", hints=["set `use_gpu=True`"]
            )

    def refuse_unbuilt(self) -> None:
        super().refuse_unbuilt()
        if isinstance(self.num_workers, tuple):
            raise NotAvailableError(
                f"`ScalingConfig(num_workers={self.num_workers})`: elastic runs are not built yet",
                hints=["give one number of workers"],
            )
        if self.placement_strategy == "STRICT_SPREAD" and self.num_workers > 1:
            raise NotAvailableError("`STRICT_SPREAD` needs several nodes, which are not built yet")

    @property
    def worker_resources(self) -> dict[str, float]:
        """What one worker reserves."""
        given = dict(self.resources_per_worker or {})
        resources = {"CPU": 1.0, "GPU": 1.0} if self.use_gpu else {"CPU": 1.0}
        resources.update(given)
        return {name: float(amount) for name, amount in resources.items() if amount}

    @property
    def _told_resources(self) -> dict[str, float]:
        """The resources of a worker as scripts see them: in Ray a worker with a GPU counts no CPU unless one is asked for."""
        told = self.worker_resources
        if not under_as_ray():
            return told
        if self.use_gpu and "CPU" not in (self.resources_per_worker or {}):
            del told["CPU"]
        if self.accelerator_type:
            told[f"accelerator_type:{self.accelerator_type}"] = 0.001
        return told

    @property
    def min_workers(self) -> int:
        return self.num_workers[0] if isinstance(self.num_workers, tuple) else self.num_workers

    @property
    def max_workers(self) -> int:
        return self.num_workers[1] if isinstance(self.num_workers, tuple) else self.num_workers

    @property
    def elasticity_enabled(self) -> bool:
        return isinstance(self.num_workers, tuple)

    @property
    def total_resources(self) -> dict[str, float]:
        return {name: amount * self.max_workers for name, amount in self._told_resources.items()}

    @property
    def num_cpus_per_worker(self) -> float:
        return self._told_resources.get("CPU", 0.0)

    @property
    def num_gpus_per_worker(self) -> float:
        return self.worker_resources.get("GPU", 0.0)

    @property
    def num_tpus_per_worker(self) -> float:
        return self.worker_resources.get("TPU", 0.0)

    @property
    def additional_resources_per_worker(self) -> dict[str, float]:
        return {name: amount for name, amount in self._told_resources.items() if name not in ("CPU", "GPU", "TPU")}


@dataclass
class FailureConfig(Config):
    """What a run survives; each number of failures may be -1 for no limit.

    `max_failures` counts those of the function: an exception, an exit code, a crash, memory that ran out.
    `max_infrastructure_failures` counts those of machines: a worker that somebody killed, a lost head. A run without a
    limit ends all the same when the same failure comes twice at the same step. `fail_fast` ends it at the first failure
    of the function. `preemption_grace_s` is how long a function that is preempted has for a last checkpoint.
    """

    max_failures: int = 0
    controller_failure_limit: int = -1
    max_preemption_failures: int = -1
    fail_fast: bool | str = False
    max_infrastructure_failures: int | None = None
    relax_collectives_on_preemption: bool = False
    preemption_grace_s: float = 30.0

    unbuilt: ClassVar[Mapping[str, tuple[Any, str]]] = {
        "controller_failure_limit": (-1, "a limit of its own for the head is"),
        "max_preemption_failures": (-1, "a limit for preemptions is"),
        "relax_collectives_on_preemption": (False, "reports without the preempted ranks are"),
    }

    def __post_init__(self) -> None:
        for name in (
            "max_failures",
            "controller_failure_limit",
            "max_preemption_failures",
            *(["max_infrastructure_failures"] if self.max_infrastructure_failures is not None else []),
        ):
            self._need_count(name, -1, "a number of failures, or -1 for no limit")
        self._need("preemption_grace_s", (int, float), "a number of seconds")
        if not 0 <= self.preemption_grace_s < float("inf"):
            given = self.preemption_grace_s
            raise ConfigError(f"`FailureConfig.preemption_grace_s` is {given!r}: it must be 0 or more")
        if self.fail_fast not in (False, True, "raise"):
            raise ConfigError(f"`FailureConfig.fail_fast` is {self.fail_fast!r}: it must be True, False or 'raise'")
        if self.fail_fast and self.max_failures != 0:
            raise ConfigError("`FailureConfig` has `fail_fast` and `max_failures`, which contradict each other")


@dataclass
class CheckpointConfig(Config):
    """How many checkpoints are kept, and which are best.

    With `num_to_keep` the best are kept by the metric `checkpoint_score_attribute` (`a/b` for a nested one), or the
    newest without one. The newest is kept in any case. A score that is missing or NaN is worst in both orders.
    """

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: str = "max"
    checkpoint_frequency: int | None = 0
    checkpoint_at_end: bool | None = None

    def __post_init__(self) -> None:
        if self.num_to_keep is not None:
            self._need_count("num_to_keep", 1, "a number of checkpoints, 1 or more, or None for all")
        if self.checkpoint_score_attribute is not None:
            self._need("checkpoint_score_attribute", (str,), "the name of a metric")
            if not self.checkpoint_score_attribute:
                raise ConfigError(
                    "`CheckpointConfig.checkpoint_score_attribute` is '': it must be the name of a metric"
                )
        if self.checkpoint_score_order not in ("max", "min"):
            given = self.checkpoint_score_order
            raise ConfigError(f"`CheckpointConfig.checkpoint_score_order` is {given!r}: it must be 'max' or 'min'")

    def refuse_unbuilt(self) -> None:
        super().refuse_unbuilt()
        if self.checkpoint_frequency or self.checkpoint_at_end:
            raise NotAvailableError(
                "`CheckpointConfig(checkpoint_frequency=…, checkpoint_at_end=…)` are not built yet",
                hints=["a training function decides itself when it reports a checkpoint"],
            )


@dataclass
class RunConfig(Config):
    """A run's name, place and manners.

    `metrics_reduce` makes one value of what all ranks report under a key: "mean", "sum", "min" or "max". Keys that it
    does not name have the value of rank 0. `verbose=0` prints nothing, not even what the workers print: the files
    have that.

    `storage_path` is a path or a URI (`s3://`, `gs://`, `az://`). With `storage_filesystem`, an object of pyarrow or
    fsspec, it is a path in that. A run of this name that did not finish resumes; one that has finished resumes with
    `resume=True` alone.
    """

    name: str | None = None
    storage_path: "str | os.PathLike[str] | None" = None
    storage_filesystem: Any = None
    failure_config: FailureConfig = field(default_factory=FailureConfig)
    checkpoint_config: CheckpointConfig = field(default_factory=CheckpointConfig)
    callbacks: list[Any] = field(default_factory=list)
    worker_runtime_env: dict[str, Any] = field(default_factory=dict)
    logging_config: Any = None
    metrics_reduce: dict[str, str] = field(default_factory=dict)
    verbose: int = 1
    sync_config: Any = None
    stop: Any = None
    progress_reporter: Any = None
    log_to_file: Any = None
    local_dir: "str | os.PathLike[str] | None" = None
    hang_timeout: float | None = None
    resume: Any = None

    unbuilt: ClassVar[Mapping[str, tuple[Any, str]]] = {
        "stop": (None, "stopping by a condition is"),
        "progress_reporter": (None, "progress reporters are"),
    }

    def __post_init__(self) -> None:
        self.failure_config = coerce(FailureConfig, self.failure_config, "failure_config")
        self.checkpoint_config = coerce(CheckpointConfig, self.checkpoint_config, "checkpoint_config")
        if self.name is not None:
            self._need("name", (str,), "a text")
        self.callbacks = self.callbacks if self.callbacks is not None else []
        self._need("callbacks", (list, tuple), "a list of callbacks")
        self.callbacks = list(self.callbacks)
        if self.callbacks and under_as_ray():
            # Ray refuses it here; natively `fit()` does.
            from carril.as_ray.run_callbacks import check

            check(self.callbacks)
        self.worker_runtime_env = self.worker_runtime_env if self.worker_runtime_env is not None else {}
        self._need("worker_runtime_env", (Mapping,), "a dict")
        self.worker_runtime_env = dict(self.worker_runtime_env)
        self.verbose = 1 if self.verbose is None else self.verbose
        self._need("verbose", (int, bool), "a number: 0 for nothing, 1, or 2 for more")
        self.verbose = int(self.verbose)
        if self.hang_timeout is not None:
            self._need("hang_timeout", (int, float), "a number of seconds")
            if not 0 < self.hang_timeout < float("inf"):
                raise ConfigError(f"`RunConfig.hang_timeout` is {self.hang_timeout!r}: it must be above 0")
        self.metrics_reduce = self.metrics_reduce if self.metrics_reduce is not None else {}
        self._need("metrics_reduce", (Mapping,), "a dict of reductions by metric")
        self.metrics_reduce = dict(self.metrics_reduce)
        for key, how in self.metrics_reduce.items():
            if how not in _REDUCTIONS:
                raise ConfigError(
                    f"`RunConfig.metrics_reduce` has {key!r}: {how!r}: it must be one of {', '.join(_REDUCTIONS)}"
                )
        if self.local_dir is not None and self.storage_path is not None:
            raise ConfigError("`RunConfig` has `storage_path` and `local_dir`", hints=["`local_dir` is its older name"])
        if self.resume is not None:
            self._need("resume", (bool,), "True or False")
        if self.resume and not self.name:
            raise ConfigError(
                "`RunConfig(resume=True)` has no `name`", hints=["give the name of the run that is to go on"]
            )
        self._check_storage()

    def _check_storage(self) -> None:
        if self.storage is None and self.storage_filesystem is None:
            return
        from carril.train._locations import checked_filesystem, is_uri, location, path_in_filesystem

        if checked_filesystem(self.storage_filesystem, "RunConfig.storage_filesystem") is None:
            if self.storage is not None:
                location(self.storage, "storage_path")
            return
        if self.storage is None:
            if under_as_ray():
                # Ray takes it here, and `fit()` asks for it.
                return
            raise ConfigError(
                "`RunConfig` has a `storage_filesystem` and no `storage_path`",
                hints=["give the path in that file system under which runs are to be kept"],
            )
        path = path_in_filesystem(self.storage, "storage_path")
        if is_uri(path):
            raise ConfigError(
                f"`RunConfig` has a `storage_filesystem`, and its `storage_path` is `{path}`",
                hints=["leave the scheme out: the path is one in that file system"],
            )

    def refuse_unbuilt(self) -> None:
        super().refuse_unbuilt()
        if self.storage is None and self.storage_filesystem is not None:
            raise ConfigError(
                "`RunConfig` has a `storage_filesystem` and no `storage_path`",
                hints=["give the path in that file system under which runs are to be kept"],
            )
        if self.log_to_file:
            raise NotAvailableError(
                f"`RunConfig(log_to_file={self.log_to_file!r})` is not built yet",
                hints=["the output of every rank is kept in the run's directory, under `ranks`"],
            )
        self.failure_config.refuse_unbuilt()
        self.checkpoint_config.refuse_unbuilt()

    @property
    def storage(self) -> "str | os.PathLike[str] | None":
        """The storage path, under its newer or its older name."""
        return self.storage_path if self.storage_path is not None else self.local_dir
