"""How data is read and held: for all data sets of this process."""

import os
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar


@dataclass(frozen=True)
class ActorPoolStrategy:
    """How many processes a function has."""

    size: int | None = None
    min_size: int | None = None
    max_size: int | None = None
    initial_size: int | None = None
    max_tasks_in_flight_per_actor: int | None = None


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
    target_max_block_size: int = 128 << 20
    target_min_block_size: int = 1 << 20
    max_errored_blocks: int = 0

    _current: ClassVar["DataContext | None"] = None

    @staticmethod
    def get_current() -> "DataContext":
        if DataContext._current is None:
            DataContext._current = DataContext()
        return DataContext._current

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
