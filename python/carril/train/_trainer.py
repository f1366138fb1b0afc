"""The trainer: what is to be run, on how many workers, with which framework around it.

Making one starts nothing and checks what can be checked without starting. `fit()` runs it.
"""

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from carril._internal.generation import keeps_automatic_fields, under_as_ray
from carril.exceptions import ConfigError, ConfigTypeError, NotAvailableError, TrainingFailedError, kind_of
from carril.train._config import RunConfig, ScalingConfig, coerce
from carril.train._imperative import Imperative, callers_function, checked_function, no_function

if TYPE_CHECKING:
    import os

    from carril.data import Dataset
    from carril.train._checkpoint import Checkpoint
    from carril.train._more_config import BackendConfig, DataConfig, ValidationConfig
    from carril.train._result import Result

T = TypeVar("T", bound="DataParallelTrainer")


class DataParallelTrainer(Imperative):
    """Runs a function on every worker of a group.

    The function takes nothing, or one argument: the `train_loop_config`. What rank 0 returns is
    `Result.return_value`. Without a function it is the caller's `train_loop_per_worker`, if there is one.
    Configurations may be given as dicts of their fields. A run begins with `resume_from_checkpoint`:
    `get_checkpoint()` gives it until the run has a checkpoint of its own.
    """

    # The trainer's pickle at the beginning of the last run.
    _as_it_began = b""

    def __init__(
        self,
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any] | None = None,
        *,
        train_loop_config: dict[str, Any] | None = None,
        backend_config: "BackendConfig | None" = None,
        scaling_config: ScalingConfig | Mapping[str, Any] | None = None,
        run_config: RunConfig | Mapping[str, Any] | None = None,
        datasets: Mapping[str, Any] | None = None,
        dataset_config: "DataConfig | Mapping[str, Any] | None" = None,
        validation_config: "ValidationConfig | None" = None,
        metadata: dict[str, Any] | None = None,
        resume_from_checkpoint: "Checkpoint | None" = None,
    ) -> None:
        function = checked_function(train_loop_per_worker, "train_loop_per_worker") or callers_function()
        if train_loop_config is not None and not isinstance(train_loop_config, dict):
            raise ConfigTypeError(f"`train_loop_config` is {kind_of(train_loop_config)}: it must be a dict")
        _refuse_unbuilt({"metadata": (metadata, "metadata of a run is")})
        if function is not None and under_as_ray() and keeps_automatic_fields(function):
            # The older generation refuses it here, today's at `fit()`.
            _arguments(function, train_loop_config)
        self.train_loop_per_worker = function
        self.train_loop_config = train_loop_config
        self.scaling_config = coerce(ScalingConfig, scaling_config, "scaling_config")
        self.run_config = coerce(RunConfig, run_config, "run_config")
        self.backend_config = _checked_backend(backend_config)
        self.datasets = _datasets(datasets)
        self.data_config = _data_config(dataset_config)
        self.validation_config = _validation_config(validation_config)
        self.resume_from_checkpoint = _checked_checkpoint(resume_from_checkpoint)
        if under_as_ray():
            from carril.as_ray.deprecated import tell_of_trainer

            tell_of_trainer(self)

    @property
    def running_in_local_mode(self) -> bool:
        """True with `num_workers=0`."""
        return self.scaling_config.num_workers == 0

    def fit(self) -> "Result":
        """Runs to the end and returns the result; raises what the run failed with."""
        if self.train_loop_per_worker is None:
            raise no_function("fit()")
        try:
            return self._execute(self._beginning())
        except TrainingFailedError as error:
            # It happened in the workers, or in a callback that is its cause: our own frames would stand in the way.
            raise error.with_traceback(None) from error.__cause__

    def _check(self) -> None:
        self.scaling_config.refuse_unbuilt()
        self.run_config.refuse_unbuilt()
        _check_callbacks(self.run_config.callbacks)

    def _execute(self, details: dict[str, Any]) -> "Result":
        """One run. `details` is for its workers, beside the function."""
        self._check()
        arguments = _arguments(self.train_loop_per_worker, self.train_loop_config)
        if self.running_in_local_mode:
            from carril.train._local import fit_locally

            return fit_locally(self, arguments, details)
        _refuse_in_a_spawned_child()
        from carril._internal import driver

        environment = driver.environment_of(self.run_config.worker_runtime_env, "worker_runtime_env")
        # The head starts before anything else is done here: it and its node get ready in the meantime.
        client = driver.ensure_client()
        from carril.train._fit import fit
        from carril.train._restore import pickled

        # Callbacks change while a run goes on, and a head that comes back keeps the trainer once more.
        self._as_it_began = pickled(self)
        return fit(self, client, arguments, environment, details)

    @classmethod
    def restore(
        cls: type[T],
        path: "str | os.PathLike[str]",
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any] | None = None,
        train_loop_config: dict[str, Any] | None = None,
        scaling_config: ScalingConfig | Mapping[str, Any] | None = None,
        datasets: Mapping[str, Any] | None = None,
        storage_filesystem: Any = None,
        **kwargs: Any,
    ) -> T:
        """A trainer whose `fit()` resumes the run in `path`, from its newest checkpoint, also if it has finished.

        What is not given is what the run had: it is unpickled from the run's directory, so that `path` must be one
        that you trust. `kwargs` are further arguments of the trainer. Nothing is started.
        """
        from carril.train._restore import restore

        _tell_of_restore("restore")
        function = checked_function(train_loop_per_worker, "train_loop_per_worker")
        given = {
            "train_loop_config": train_loop_config,
            "scaling_config": scaling_config,
            "datasets": datasets,
            **kwargs,
        }
        return restore(cls, path, storage_filesystem, function, given)

    @classmethod
    def can_restore(cls, path: "str | os.PathLike[str]", storage_filesystem: Any = None) -> bool:
        """True if `restore(path)` gives a trainer without further arguments. It unpickles what `restore` does."""
        from carril.train._restore import can_restore

        _tell_of_restore("can_restore")
        return can_restore(cls, path, storage_filesystem)

    def __repr__(self) -> str:
        name = getattr(self.train_loop_per_worker, "__qualname__", repr(self.train_loop_per_worker))
        return f"{type(self).__name__}({name}, scaling_config={self.scaling_config})"


def _tell_of_restore(name: str) -> None:
    if under_as_ray():
        from carril.as_ray.deprecated import tell

        tell(f"`{name}` of a trainer", "a run with the same `name` and `storage_path` resumes")


def _refuse_unbuilt(arguments: Mapping[str, tuple[object, str]]) -> None:
    for name, (value, text) in arguments.items():
        if value is not None and value != {}:
            raise NotAvailableError(f"`{name}=…`: {text} not built yet")


def _checked_backend(backend_config: object) -> "BackendConfig | None":
    if backend_config is None:
        return None
    from carril.train._more_config import BackendConfig

    if not isinstance(backend_config, BackendConfig):
        raise ConfigTypeError(f"`backend_config` is {kind_of(backend_config)}: it must be a `BackendConfig`")
    return backend_config


def _checked_checkpoint(checkpoint: object) -> "Checkpoint | None":
    if checkpoint is None:
        return None
    from carril.train._checkpoint import Checkpoint

    if not isinstance(checkpoint, Checkpoint):
        raise ConfigTypeError(
            f"`resume_from_checkpoint` is {kind_of(checkpoint)}: it must be a `Checkpoint`",
            hints=["give a path as `Checkpoint(path)`, and a run's directory to `restore()`"],
        )
    return checkpoint


def _datasets(datasets: Mapping[str, Any] | None) -> "dict[str, Dataset]":
    if datasets is None:
        return {}
    from carril.train._data import checked

    return checked(datasets)


def _data_config(dataset_config: object) -> "DataConfig | None":
    if dataset_config is None:
        return None
    from carril.train._more_config import DataConfig

    return coerce(DataConfig, dataset_config, "dataset_config")


def _validation_config(validation_config: object) -> "ValidationConfig | None":
    if validation_config is None:
        return None
    from carril.train._validation import checked_config

    return checked_config(validation_config)


def _check_callbacks(callbacks: list[Any]) -> None:
    if not callbacks:
        return
    from carril.train._callbacks import UserCallback, callbacks_of

    for callback in callbacks_of(callbacks):
        if not isinstance(callback, UserCallback):
            raise ConfigError(
                f"`RunConfig.callbacks` holds {kind_of(callback)}: it must be a `UserCallback`",
                hints=["derive its class from `carril.train.UserCallback`, and give an instance"],
            )


def _arguments(function: Callable[..., Any], config: dict[str, Any] | None) -> tuple[Any, ...]:
    """What the function is called with: its config if it requires a parameter."""
    import inspect

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a callable of C code tells nothing about itself
        return ()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in variable]
    if len(required) > 1:
        raise ConfigError(
            f"`{getattr(function, '__qualname__', function)}` requires {len(required)} parameters "
            f"({', '.join(required)}): it may require none, or one that is the `train_loop_config`"
        )
    return (config if config is not None else {},) if required else ()


def _refuse_in_a_spawned_child() -> None:
    """A script without a main guard is run again by each process that multiprocessing spawns."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and getattr(process.current_process(), "_inheriting", False):
        raise RuntimeError(
            "`fit()` was called while multiprocessing imports the script in a new process\n"
            "hint: put the script's own calls under `if __name__ == '__main__':`"
        )
