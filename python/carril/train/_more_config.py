"""The configuration that few scripts use, and the types of what comes later.

`BackendConfig` is the place where a framework is set up inside a worker.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from carril.exceptions import ConfigError, ConfigTypeError, NotAvailableError, kind_of
from carril.train._config import Config, coerce

if TYPE_CHECKING:
    from carril.data import DataIterator, Dataset, ExecutionOptions
    from carril.train._checkpoint import Checkpoint
    from carril.train._session import SessionLike

E = TypeVar("E", bound=enum.Enum)

ValidationFn = Callable[..., dict[str, Any]]

_LEVELS = ("CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG", "NOTSET", "WARN", "FATAL")


@dataclass
class BackendConfig(Config):
    """How a framework is set up around the training function. This one sets up nothing.

    `setup` runs in every worker before the function, `teardown` after it has returned. Both see the session.
    """

    # Every worker of a node sees the devices of all of them, which NCCL needs.
    share_devices: ClassVar[bool] = False

    def setup(self, session: "SessionLike") -> None:
        return

    def teardown(self) -> None:
        return


@dataclass
class LoggingConfig(Config):
    """The level of what Carril logs."""

    log_level: str | int = "INFO"

    def __post_init__(self) -> None:
        if isinstance(self.log_level, str):
            self.log_level = self.log_level.upper()
            if self.log_level not in _LEVELS:
                raise ConfigError(f"`LoggingConfig.log_level` is {self.log_level!r}: it must be one of {_LEVELS}")


@dataclass
class SyncConfig(Config):
    """Taken from older scripts. Files are written to the run's directory at once, so that there is nothing to sync."""

    sync_period: int = 300
    sync_timeout: int = 1800
    sync_artifacts: bool = False
    sync_artifacts_on_checkpoint: bool = True


@dataclass
class DataConfig(Config):
    """Which data sets are split over the workers, and what becomes of ranks that have fewer batches than others.

    `uneven="drop"`: every rank has as many batches as the one with the fewest. `"pad"`: those that have no more get copies
    of their last row, marked in the column `is_padding`. `"repeat"`: those that have no more begin again.

    `execution_options` are those of all data sets, or a dict of them by name. A class derived from this one deals the
    data itself by its own `configure`; how far such data was read is not kept with checkpoints.
    """

    datasets_to_split: str | list[str] = "all"
    execution_options: "ExecutionOptions | dict[str, ExecutionOptions] | None" = None
    enable_shard_locality: bool = True
    uneven: str = "drop"

    def __post_init__(self) -> None:
        if self.uneven not in ("drop", "pad", "repeat"):
            raise ConfigError(f"`DataConfig.uneven` is {self.uneven!r}: it must be 'drop', 'pad' or 'repeat'")
        if self.datasets_to_split != "all" and not isinstance(self.datasets_to_split, list):
            raise ConfigTypeError(
                f"`DataConfig.datasets_to_split` is {self.datasets_to_split!r}: it must be 'all' or a list of names"
            )

    def configure(
        self,
        datasets: "Mapping[str, Dataset]",
        world_size: int,
        worker_handles: Any = None,
        worker_node_ids: Any = None,
        **_kwargs: Any,
    ) -> "list[dict[str, DataIterator]]":
        """What each rank reads of each data set: called in the driver before the workers start.

        There are no handles of workers, so that `worker_handles` is None.
        """
        dealt: list[dict[str, DataIterator]] = [{} for _ in range(world_size)]
        hints = worker_node_ids if self.enable_shard_locality else None
        for name, dataset in datasets.items():
            if self.datasets_to_split == "all" or name in self.datasets_to_split:
                parts: list[DataIterator] = list(dataset.streaming_split(world_size, equal=True, locality_hints=hints))
            else:
                parts = [dataset.iterator()] * world_size
            for of_rank, part in zip(dealt, parts, strict=True):
                of_rank[name] = part
        return dealt

    @property
    def deals_itself(self) -> bool:
        """Whether a derived class has a `configure` of its own."""
        return type(self).configure is not DataConfig.configure

    def options_of(self, name: str) -> "ExecutionOptions | None":
        """The execution options of one data set; None where nothing was said of it."""
        given = self.execution_options
        if isinstance(given, dict):
            given = given.get(name)
        return given

    @staticmethod
    def default_ingest_options() -> "ExecutionOptions":
        """The execution options of data sets of which nothing else was said: a copy of this process's own."""
        import copy

        from carril.data.context import DataContext

        return copy.deepcopy(DataContext.get_current().execution_options)


@dataclass
class ValidationTaskConfig(Config):
    """What one validation is given: arguments of the function beside the checkpoint, and a time that it may take."""

    fn_kwargs: dict[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if self.fn_kwargs is not None and not isinstance(self.fn_kwargs, dict):
            raise ConfigTypeError(f"`ValidationTaskConfig.fn_kwargs` is {kind_of(self.fn_kwargs)}: it must be a dict")
        self.fn_kwargs = dict(self.fn_kwargs or {})
        timeout = self.timeout_s
        if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float))):
            raise ConfigTypeError(f"`ValidationTaskConfig.timeout_s` is {kind_of(timeout)}: it must be a number")
        if timeout is not None and not timeout > 0:
            raise ConfigError(f"`ValidationTaskConfig.timeout_s` is {timeout}: it must be above 0")


@dataclass
class ValidationConfig(Config):
    """How checkpoints are validated beside the training: `fn(checkpoint, **kwargs)` returns a dict of metrics.

    It runs in a process of its own that is not counted in the CPUs and has no devices. `ray_remote_kwargs` are taken
    from older scripts; what they say of CPUs has no effect.
    """

    fn: ValidationFn | None = None
    task_config: ValidationTaskConfig | None = None
    ray_remote_kwargs: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.task_config is not None:
            self.task_config = coerce(ValidationTaskConfig, self.task_config, "ValidationConfig.task_config")
        for name, amount in (self.ray_remote_kwargs or {}).items():
            if name in ("num_gpus", "resources") and amount:
                raise NotAvailableError(
                    f"`ValidationConfig.ray_remote_kwargs[{name!r}]`: a validation with devices is not built yet"
                )


class CheckpointUploadMode(enum.Enum):
    """How `report` has a checkpoint's files stored.

    SYNC waits until they are stored, ASYNC only until they are copied or taken over, and with NO_UPLOAD they are in the
    run's storage already.
    """

    SYNC = "SYNC"
    ASYNC = "ASYNC"
    NO_UPLOAD = "NO_UPLOAD"


class CheckpointConsistencyMode(enum.Enum):
    """What `get_all_reported_checkpoints` waits for: that checkpoints are stored, or also that they are validated."""

    COMMITTED = "COMMITTED"
    VALIDATED = "VALIDATED"


def chosen(kind: type[E], value: object, what: str) -> E:
    """A member of an enumeration, from itself or from its name in letters of any size."""
    if isinstance(value, kind):
        return value
    name = value.upper() if isinstance(value, str) else ""
    if name in kind.__members__:
        return kind[name]
    shown = value.name if isinstance(value, enum.Enum) else value
    raise ConfigError(f"`{what}` is {shown!r}: it must be one of {', '.join(kind.__members__)}")


class ReportedCheckpointStatus(enum.Enum):
    """How far a reported checkpoint has come."""

    COMMITTED = "COMMITTED"
    PENDING_VALIDATION = "PENDING_VALIDATION"
    VALIDATED = "VALIDATED"
    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"
    VALIDATION_FAILED = "VALIDATION_FAILED"


@dataclass
class ReportedCheckpoint:
    """A checkpoint with the metrics it was reported with."""

    checkpoint: "Checkpoint"
    metrics: dict[str, Any]
    status: ReportedCheckpointStatus = ReportedCheckpointStatus.COMMITTED


@dataclass
class PreemptionInfo:
    """The notice that a scheduler gives before it takes nodes away."""

    deadline_ms: int | None = None
    preempted_node_to_ranks: dict[str, list[int]] = field(default_factory=dict)

    @property
    def preempted_node_ids(self) -> list[str]:
        return list(self.preempted_node_to_ranks)

    @property
    def preempted_ranks(self) -> list[int]:
        return sorted(rank for ranks in self.preempted_node_to_ranks.values() for rank in ranks)
