"""How data is read and held: for all data sets of this process."""

import copy
import os
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from carril._internal.spec import under_as_ray
from carril.data._numbers import whole
from carril.exceptions import ConfigError


@dataclass(frozen=True)
class ActorPoolStrategy:
    """How many processes a function has."""

    size: int | None = None
    min_size: int | None = None
    max_size: int | None = None
    initial_size: int | None = None
    max_tasks_in_flight_per_actor: int | None = None

    def __post_init__(self) -> None:
        for name, number in vars(self).items():
            if number is not None:
                whole(number, 1, f"{name}={number!r}", "processes" if name.endswith("size") else "tasks")
        if self.size is not None and any((self.min_size, self.max_size, self.initial_size)):
            raise ConfigError("`size` is the least and the most: give it, or `min_size` and `max_size`")
        least, most = self.min_size or 1, self.max_size
        if most is not None and not least <= (self.initial_size or least) <= most:
            raise ConfigError(f"there cannot be at least {self.initial_size or least} processes and at most {most}")


@dataclass(frozen=True)
class TaskPoolStrategy:
    """How many processes a function has."""

    size: int | None = None


@dataclass
class ExecutionResources:
    """What execution may use. Only `object_store_memory`, the budget of memory in bytes, has an effect."""

    cpu: float | None = None
    gpu: float | None = None
    object_store_memory: float | None = None
    memory: float | None = None

    @classmethod
    def for_limits(cls, **given: Any) -> "ExecutionResources":
        return cls(**given)

    def copy(self, **changes: Any) -> "ExecutionResources":
        return replace(self, **changes)


@dataclass
class ExecutionOptions:
    """`preserve_order` is always true here, and costs nothing."""

    resource_limits: ExecutionResources = field(default_factory=ExecutionResources)
    exclude_resources: ExecutionResources = field(default_factory=ExecutionResources)
    preserve_order: bool = True
    locality_with_output: bool = False
    actor_locality_enabled: bool = True
    verbose_progress: bool | None = None


@dataclass
class DataContext:
    """The settings of this process. What Ray has besides is taken as an attribute and has no effect."""

    execution_options: ExecutionOptions = field(default_factory=ExecutionOptions)
    # Reader threads; by default as many as there are CPUs.
    read_threads: int | None = None
    enable_progress_bars: bool = True
    target_max_block_size: int | None = 128 << 20
    target_min_block_size: int = 1 << 20
    max_errored_blocks: int = 0
    # The user's own.
    _config: dict[str, Any] = field(default_factory=dict)

    _current: ClassVar["DataContext | None"] = None

    @staticmethod
    def get_current() -> "DataContext":
        if DataContext._current is None:
            DataContext._current = DataContext()
        return DataContext._current

    @staticmethod
    def _set_current(context: "DataContext") -> None:
        DataContext._current = context

    def copy(self) -> "DataContext":
        return copy.deepcopy(self)

    def get_config(self, key: str, default: Any = None) -> Any:
        """What `set_config` has set: settings of the user's own."""
        return self._config.get(key, default)

    def set_config(self, key: str, value: Any) -> None:
        self._config[key] = value

    def remove_config(self, key: str) -> None:
        self._config.pop(key, None)

    def __getattr__(self, name: str) -> Any:
        # Scripts read what they are going to set, and put it back afterwards.
        if name.startswith("__") or not under_as_ray():
            raise AttributeError(f"`DataContext` has no `{name}`")
        from carril.as_ray.data_context import DEFAULTS

        if name in DEFAULTS:
            return copy.deepcopy(DEFAULTS[name])
        raise AttributeError(f"`DataContext` has no `{name}`")

    @property
    def budget(self) -> int:
        """In bytes, for what is read and not yet taken by the consumer: by default a tenth of this machine's memory, at
        most 2 GB."""
        asked = self.execution_options.resource_limits.object_store_memory
        if asked is not None:
            return int(asked)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return min(memory // 10, 2 << 30)

    @property
    def threads(self) -> int:
        return self.read_threads or len(os.sched_getaffinity(0))
