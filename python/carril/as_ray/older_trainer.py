"""`ray.train.Trainer` of Ray 1.x: carril's own `Trainer` with the arguments and attributes of that time.

With a `logdir`, each run has the directory `run_001`, `run_002`, … in it. A number that is taken, also by an earlier
script, is passed over: in Ray such a run was written over.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from carril.as_ray import missing
from carril.exceptions import ConfigTypeError, kind_of
from carril.train import BackendConfig, CheckpointConfig, DataParallelTrainer
from carril.train import Trainer as _Trainer

if TYPE_CHECKING:
    from carril.train import Checkpoint, RunConfig, ScalingConfig

__all__ = ["CheckpointStrategy", "Trainer"]

CheckpointStrategy = CheckpointConfig


class Trainer(_Trainer):
    """Runs functions on a number of workers, one `run()` after the other."""

    def __init__(
        self,
        backend: str | BackendConfig | None = None,
        num_workers: int | None = None,
        use_gpu: bool | None = None,
        resources_per_worker: dict[str, float] | None = None,
        logdir: str | os.PathLike[str] | None = None,
        max_retries: int = 3,
        *,
        train_loop_per_worker: Callable[..., Any] | None = None,
        train_loop_config: dict[str, Any] | None = None,
        scaling_config: "ScalingConfig | Mapping[str, Any] | None" = None,
        run_config: "RunConfig | Mapping[str, Any] | None" = None,
    ) -> None:
        super().__init__(
            train_loop_per_worker,
            backend=backend,
            num_workers=num_workers,
            use_gpu=use_gpu,
            resources_per_worker=resources_per_worker,
            train_loop_config=train_loop_config,
            scaling_config=scaling_config,
            run_config=run_config,
        )
        self._logdir = None if logdir is None else Path(os.path.abspath(os.path.expanduser(logdir)))
        if self._logdir is not None:
            self.run_config.storage_path = str(self._logdir)
        # Lost workers were counted, exceptions of the function were not: those ended the run.
        if self.run_config.failure_config.max_infrastructure_failures is None:
            self.run_config.failure_config.max_infrastructure_failures = max_retries
        self._run_directory: str | None = None
        self._best: Checkpoint | None = None

    @property
    def logdir(self) -> Path | None:
        """The directory with those of the runs."""
        return self._logdir if self._logdir is not None else self._parent(self.latest_run_dir)

    @property
    def latest_run_dir(self) -> Path | None:
        """The directory of the last run; None before there is one, and where it is not a local one."""
        return None if self._run_directory is None else Path(self._run_directory)

    @property
    def latest_checkpoint(self) -> dict[str, Any] | None:
        """What rank 0 saved last, as a dict."""
        return None if self._last_checkpoint is None else self._last_checkpoint.to_dict()

    @property
    def latest_checkpoint_dir(self) -> Path | None:
        """The directory of the last checkpoint."""
        return None if self._last_checkpoint is None else Path(self._last_checkpoint.path)

    @property
    def best_checkpoint_path(self) -> Path | None:
        """The pickled dict of the best checkpoint by the `checkpoint_strategy`, or of the last one without."""
        best = self._best if self._best is not None else self._last_checkpoint
        return None if best is None else best.dict_path

    @property
    def best_checkpoint(self) -> dict[str, Any] | None:
        best = self._best if self._best is not None else self._last_checkpoint
        return None if best is None else best.to_dict()

    def run(
        self,
        train_func: Callable[..., Any] | None = None,
        config: dict[str, Any] | None = None,
        callbacks: list[Any] | None = None,
        dataset: Any = None,
        checkpoint: "dict[str, Any] | str | os.PathLike[str] | None" = None,
        checkpoint_strategy: CheckpointConfig | None = None,
    ) -> list[Any]:
        """Runs a function on every worker and returns what each rank returned, in order of rank."""
        if checkpoint is not None:
            self.load_checkpoint(_loaded(checkpoint))
        if dataset is not None:
            from carril.train._data import checked

            self.datasets = checked(dataset if isinstance(dataset, Mapping) else {"train": dataset})
        if checkpoint_strategy is not None:
            self.run_config.checkpoint_config = checkpoint_strategy
        before = self.run_config.callbacks
        self.run_config.callbacks = [*before, *(callbacks or [])]
        try:
            return super().run(train_func, config)
        finally:
            self.run_config.callbacks = before

    def run_iterator(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        missing.raise_missing("ray.train.TrainingIterator")

    def to_worker_group(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        missing.raise_missing("ray.train.TrainWorkerGroup")

    def _for_one_run(self, function: Callable[..., Any], config: dict[str, Any] | None) -> DataParallelTrainer:
        import dataclasses

        once = super()._for_one_run(function, config)
        assert isinstance(once, Trainer)
        if self._logdir is not None:
            taken = set(os.listdir(self._logdir)) if self._logdir.is_dir() else set()
            number = self._runs
            while f"run_{number:03d}" in taken:
                number += 1
            once.run_config = dataclasses.replace(once.run_config, name=f"run_{number:03d}")
        return once

    def _ran_in(self, directory: str, best: "Checkpoint | None") -> None:
        from carril.train._locations import is_uri

        self._run_directory = None if is_uri(directory) else directory
        self._best = best if best is not None else self._best

    @staticmethod
    def _parent(directory: Path | None) -> Path | None:
        return None if directory is None else directory.parent


def _loaded(given: object) -> Any:
    """A dict, or the file or directory that holds one."""
    if not isinstance(given, (str, os.PathLike)):
        if not isinstance(given, Mapping):
            raise ConfigTypeError(f"`checkpoint` is {kind_of(given)}: it must be a dict or a path")
        return dict(given)
    if os.path.isdir(given):
        return given
    from carril._internal.pickling import loads

    with open(given, "rb") as file:
        return loads(file.read())
