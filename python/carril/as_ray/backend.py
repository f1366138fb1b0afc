"""`ray.train.backend.Backend`: hooks around a run that a `BackendConfig` of the script's own names by `backend_cls`.

They run in the driver, when the workers have been started and when the run is over. What they would have the workers do
is done by `BackendConfig.setup`, which runs in every worker before the function.
"""

from typing import TYPE_CHECKING, Any, NoReturn

from carril.exceptions import NotAvailableError
from carril.train import UserCallback

if TYPE_CHECKING:
    from carril.train import BackendConfig, Result, RunContext

__all__ = ["Backend"]


class Backend:
    """To be derived from. Every method does nothing by default."""

    share_cuda_visible_devices: bool = False
    has_replica_groups: bool = False

    def on_start(self, worker_group: Any, backend_config: "BackendConfig") -> None:
        """The workers have been started."""

    def on_training_start(self, worker_group: Any, backend_config: "BackendConfig") -> None:
        """The function begins."""

    def on_shutdown(self, worker_group: Any, backend_config: "BackendConfig") -> None:
        """The run is over."""


class WorkerGroup:
    """The worker group as a hook sees it: how many workers there are."""

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers

    def __len__(self) -> int:
        return self.num_workers

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotAvailableError(
            f"`worker_group.{name}` of a `Backend` waits for remote functions",
            hints=["`BackendConfig.setup(session)` and `teardown()` run in every worker around the function"],
        )


class Hooks(UserCallback):
    """Calls a backend's hooks."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._has_begun = False

    def on_start(self, run_context: "RunContext") -> None:
        self._has_begun = True
        group = WorkerGroup(run_context.scaling_config.max_workers)
        config: Any = run_context.backend_config
        self._backend.on_start(group, config)
        self._backend.on_training_start(group, config)

    def on_end(self, run_context: "RunContext", result: "Result") -> None:
        if self._has_begun:
            config: Any = run_context.backend_config
            self._backend.on_shutdown(WorkerGroup(run_context.scaling_config.max_workers), config)
