"""`ray.train.callbacks` of Ray 1.x: what `Trainer.run(callbacks=[…])` was given, on top of carril's own callbacks.

Each is called at the start with the run's directory, for every report with the results of all workers, and at the end.
To the results belong the three fields that Ray 1.x added.
"""

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigError, ConfigTypeError, kind_of
from carril.train import UserCallback

if TYPE_CHECKING:
    from carril.train import Checkpoint, Result, RunContext

__all__ = [
    "JsonLoggerCallback",
    "PrintCallback",
    "TBXLoggerCallback",
    "TrainingCallback",
]

_RESULTS_FILE = "results.json"
# Not worth a curve.
_LEFT_OUT = ("_timestamp", "_training_iteration", "pid")


class TrainingCallback(UserCallback):
    """To be derived from."""

    _began: float | None = None
    _reports = 0

    def start_training(self, logdir: str, config: dict[str, Any], **info: Any) -> None:
        """The run begins."""

    def handle_result(self, results: list[dict[str, Any]], **info: Any) -> None:
        """Every worker has made its next report."""

    def finish_training(self, error: bool = False, **info: Any) -> None:
        """The run is over."""

    def on_start(self, run_context: "RunContext") -> None:
        # Workers that are started again after a failure are no other run.
        if self._began is None:
            self._began, self._reports = time.monotonic(), 0
            self.start_training(logdir=run_context.path, config=run_context.train_loop_config or {})

    def after_report(
        self, run_context: "RunContext", metrics: list[dict[str, Any]], checkpoint: "Checkpoint | None"
    ) -> None:
        now = time.monotonic()
        took, self._began, self._reports = now - (self._began or now), now, self._reports + 1
        added = {
            "_timestamp": int(time.time()),
            "_time_this_iter_s": took,
            "_training_iteration": self._reports,
        }
        self.handle_result([{**result, **added} for result in metrics])

    def on_end(self, run_context: "RunContext", result: "Result") -> None:
        if self._began is not None:
            self._began = None
            self.finish_training(error=result.error is not None)


class PrintCallback(TrainingCallback):
    """Prints the results of all workers, each value as a list."""

    def handle_result(self, results: list[dict[str, Any]], **info: Any) -> None:
        names = dict.fromkeys(name for result in results for name in result)
        shown = {name: [result.get(name) for result in results] for name in names}
        print(json.dumps(shown, indent=4, default=str))


class _InDirectory(TrainingCallback):
    """With a directory of its own, or that of the run."""

    def __init__(self, logdir: str | os.PathLike[str] | None = None) -> None:
        self._given = None if logdir is None else Path(logdir)
        self._directory: Path | None = self._given

    @property
    def logdir(self) -> Path | None:
        return self._directory

    def start_training(self, logdir: str, config: dict[str, Any], **info: Any) -> None:
        self._directory = self._given if self._given is not None else Path(logdir)
        if not self._directory.is_dir():
            raise ConfigError(f"`logdir` is `{self._directory}`: it must be a directory that is there")


class JsonLoggerCallback(_InDirectory):
    """Writes the results into one JSON file: a list with an entry for each report, which is the list of workers' results.

    `workers_to_log` is the number of a worker, a list of numbers, or None for all.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str] | None = None,
        filename: str | None = None,
        workers_to_log: int | Iterable[int] | None = 0,
    ) -> None:
        super().__init__(logdir)
        self._filename = filename or _RESULTS_FILE
        self._workers = _workers(workers_to_log)
        self._all: list[list[dict[str, Any]]] = []

    @property
    def log_path(self) -> Path | None:
        return None if self._directory is None else self._directory / self._filename

    def start_training(self, logdir: str, config: dict[str, Any], **info: Any) -> None:
        super().start_training(logdir, config)
        self._all = []
        self._write()

    def handle_result(self, results: list[dict[str, Any]], **info: Any) -> None:
        wanted = self._workers
        self._all.append([one for rank, one in enumerate(results) if wanted is None or rank in wanted])
        self._write()

    def _write(self) -> None:
        path = self.log_path
        if path is not None:
            path.write_text(json.dumps(self._all, default=str))


class TBXLoggerCallback(_InDirectory):
    """Writes one worker's numbers for TensorBoard, under `ray/train/`. It needs tensorboardX, or torch with tensorboard."""

    def __init__(self, logdir: str | os.PathLike[str] | None = None, worker_to_log: int = 0) -> None:
        super().__init__(logdir)
        self._worker = _worker(worker_to_log)
        self._writer: Any = None

    def start_training(self, logdir: str, config: dict[str, Any], **info: Any) -> None:
        super().start_training(logdir, config)
        try:
            from tensorboardX import SummaryWriter  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            from torch.utils.tensorboard import SummaryWriter
        self._writer = SummaryWriter(str(self._directory))

    def handle_result(self, results: list[dict[str, Any]], **info: Any) -> None:
        from carril.integrations._common import numbers

        result = results[self._worker]
        for name, value in numbers(result).items():
            if name not in _LEFT_OUT:
                self._writer.add_scalar(f"ray/train/{name}", value, global_step=result["_training_iteration"])
        self._writer.flush()

    def finish_training(self, error: bool = False, **info: Any) -> None:
        self._writer.close()


def _workers(given: object) -> set[int] | None:
    if given is None:
        return None
    wanted = [given] if isinstance(given, int) else list(given) if isinstance(given, Iterable) else None
    if wanted is None or not all(isinstance(one, int) for one in wanted):
        raise ConfigTypeError(f"`workers_to_log` is {kind_of(given)}: it must be a number, a list of numbers or None")
    if not wanted:
        raise ConfigError("`workers_to_log` is empty: it must name at least one worker")
    return set(wanted)


def _worker(given: object) -> int:
    one = _workers(given)
    if one is None or len(one) != 1:
        raise ConfigError(f"`worker_to_log` is {given!r}: it must be the number of one worker")
    return next(iter(one))
