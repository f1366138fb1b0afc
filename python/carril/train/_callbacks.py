"""The user's callbacks: they run in the driver, in the thread that called `fit()`.

Reports come to them through a bounded queue, so that a slow callback slows the run down rather than losing a report.
An exception in one ends the run as a `ControllerError`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from carril._internal.generation import under_as_ray

if TYPE_CHECKING:
    from carril.train._checkpoint import Checkpoint
    from carril.train._config import RunConfig, ScalingConfig
    from carril.train._more_config import BackendConfig, DataConfig
    from carril.train._result import Result


@dataclass
class RunContext:
    """Which run a callback is called for."""

    run_id: str
    run_config: "RunConfig"
    train_loop_config: dict[str, Any] | None
    scaling_config: "ScalingConfig"
    backend_config: "BackendConfig | None"
    dataset_config: "DataConfig | None" = None
    name: str = ""
    path: str = ""

    def get_run_config(self) -> "RunConfig":
        return self.run_config


class UserCallback:
    """To be derived from. Every method does nothing by default."""

    def on_start(self, run_context: RunContext) -> None:
        """The workers have been started."""

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: "Checkpoint | None"
    ) -> None:
        """Every rank's k-th report is in: `metrics` holds them by rank."""

    def on_checkpoint(self, run_context: RunContext, checkpoint: "Checkpoint", metrics: dict[str, Any]) -> None:
        """A checkpoint is committed, with the run's metrics of the same report."""

    def after_exception(self, run_context: RunContext, worker_exceptions: dict[int, BaseException]) -> None:
        """One or more workers have failed."""

    def on_end(self, run_context: RunContext, result: "Result") -> None:
        """The run is over. `result.error` says whether it failed."""


def callbacks_of(given: list[Any], backend_config: object = None) -> list[Any]:
    """The callbacks of a run: those that were given, and under `as-ray` what a run has there besides."""
    if not under_as_ray():
        return given
    from carril.as_ray.run_callbacks import callbacks_of

    return callbacks_of(given, backend_config)


class CallbackFailed(Exception):
    """Carries the exception of a callback out of the loop over events."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Callbacks:
    """All callbacks of a run, called in the order they were given in."""

    def __init__(self, callbacks: list[Any]) -> None:
        self._callbacks = callbacks
        self.context: RunContext | None = None

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def call(self, method: str, *arguments: Any) -> None:
        for callback in self._callbacks:
            # Ray's own callback classes have fewer methods than ours.
            function = getattr(callback, method, None)
            if function is None:
                continue
            try:
                function(self.context, *arguments)
            except Exception as error:
                raise CallbackFailed(error) from error


def as_objects(value: Any) -> Any:
    """Metrics with the objects that were pickled on their way from a worker opened again.

    An object that cannot be opened here, because its class is not there, is shown by its repr.
    """
    if isinstance(value, dict):
        return {key: as_objects(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_objects(item) for item in value]
    if hasattr(value, "pickle") and hasattr(value, "repr"):
        from carril._internal.pickling import loads

        try:
            return loads(value.pickle)
        except Exception:
            return value.repr
    return value
