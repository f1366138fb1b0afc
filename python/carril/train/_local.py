"""`num_workers=0`: the training function runs in the calling process, for a debugger or under torchrun.

No head, no files, and exceptions come as they are. Callbacks get what they get in a run with workers, except
that they are called while the function waits in `report`. Under torchrun the ranks are torchrun's, and rank 0 alone
tells them: a callback belongs to a run, not to a process.
"""

import os
import sys
import threading
import zlib
from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigError
from carril.train import _data, _session
from carril.train._callbacks import CallbackFailed, Callbacks, RunContext, callbacks_of
from carril.train._checkpoint import Checkpoint
from carril.train._result import Metrics, Result
from carril.train._validation import Task, checked_metrics, details_of

if TYPE_CHECKING:
    from carril.train._trainer import DataParallelTrainer

_TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

# What the processes of one torchrun share, and those of another do not.
_GROUP = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")

_one_at_a_time = threading.Lock()


def under_torchrun() -> bool:
    """True if something has set torchrun's environment around this process."""
    return all(os.environ.get(name) for name in _TORCHRUN)


class _StoppedByCallback(BaseException):
    """Takes the function out of the `report` at which a callback has failed; no `except Exception` holds it."""


class _Told:
    """The callbacks of a run in this process. After one has failed, the others are not called again."""

    def __init__(self, trainer: "DataParallelTrainer", session: "LocalSession") -> None:
        self._callbacks = Callbacks(
            callbacks_of(trainer.run_config.callbacks, trainer.backend_config) if session.rank == 0 else []
        )
        self._callbacks.context = RunContext(
            run_id=session.run_id,
            run_config=trainer.run_config,
            train_loop_config=trainer.train_loop_config,
            scaling_config=trainer.scaling_config,
            backend_config=trainer.backend_config,
            dataset_config=trainer.data_config,
            name=session.run_name,
            path=session.run_directory,
        )
        self.error: Exception | None = None

    def call(self, method: str, *arguments: Any) -> None:
        if self.error is None:
            try:
                self._callbacks.call(method, *arguments)
            except CallbackFailed as failed:
                self.error = failed.error

    def on_report(self, metrics: dict[str, Any], checkpoint: Checkpoint | None) -> None:
        # Copies: what a callback does with them is not what was reported.
        self.call("on_full_report", dict(metrics))
        self.call("after_report", [dict(metrics)], checkpoint)
        if checkpoint is not None:
            self.call("on_checkpoint", checkpoint, dict(metrics))
        self.go_on()

    def on_exception(self, error: BaseException, rank: int, result: Result) -> None:
        """The function has left with `error`, which is what `fit()` raises, also where a callback fails at the news."""
        if result.error is not None and not isinstance(error, KeyboardInterrupt):
            self.call("after_exception", {rank: error})
        self.call("on_end", result)
        if self.error is not None:
            error.add_note(f"a callback failed as well: {type(self.error).__name__}: {self.error}")

    def go_on(self) -> None:
        """Ends the function where a callback has failed."""
        if self.error is not None:
            raise _StoppedByCallback

    def raise_error(self) -> None:
        """Raises what a callback has failed with, as a run with workers does."""
        if self.error is not None:
            from carril.train._failures import controller_error

            raise controller_error(self.error)


class LocalSession:
    """The session of a function in the calling process. It remembers what is reported."""

    is_local = True
    run_id = ""
    run_directory = ""

    def __init__(self, run_name: str) -> None:
        from carril._native import to_plain

        self._to_plain = to_plain
        torchrun = under_torchrun()
        self.run_name = run_name
        self.devices: list[str] = []
        self.rank = int(os.environ["RANK"]) if torchrun else 0
        self.world_size = int(os.environ["WORLD_SIZE"]) if torchrun else 1
        self.local_rank = int(os.environ["LOCAL_RANK"]) if torchrun else 0
        self.local_world_size = int(os.environ["LOCAL_WORLD_SIZE"]) if torchrun else 1
        self.node_rank = int(os.environ.get("GROUP_RANK") or os.environ.get("NODE_RANK") or 0) if torchrun else 0
        self.reports: list[dict[str, Any]] = []
        self.checkpoint: Checkpoint | None = None
        self.checkpoint_metrics: dict[str, Any] = {}
        self.validation = ""
        self.validate_fn: Any = None
        self.told: _Told | None = None

    def report(
        self,
        metrics: dict[str, Any],
        directory: str | None = None,
        move: bool = False,
        checkpoint_name: str | None = None,
    ) -> None:
        plain = self._to_plain(metrics)
        if directory is not None:
            # The caller may remove the directory when `report` has returned: the newest one is kept as a copy.
            self.checkpoint = Checkpoint.copy_of(directory, move)
            self.checkpoint_metrics = plain
            self.validation = ""
        self.reports.append(plain)
        if self.told is not None:
            self.told.on_report(plain, None if directory is None else self.checkpoint)

    def validate(self, task: Task) -> None:
        """There is no process beside this one: the check is done here and now, and costs nothing but itself."""
        assert self.checkpoint is not None
        try:
            found = checked_metrics(self.validate_fn, self.validate_fn(self.checkpoint, **task[0]))
            self.checkpoint_metrics.update(self._to_plain(found))
            self.validation = "validated"
        except Exception as error:
            self.validation = "failed"
            print(f"carril: the validation failed: {type(error).__name__}: {error}", file=sys.stderr)

    def latest_checkpoint(self) -> str | None:
        return None if self.checkpoint is None else self.checkpoint.path

    def barrier(self) -> None:
        return

    def broadcast(self, payload: bytes | None) -> bytes:
        return payload or b""


def fit_locally(trainer: "DataParallelTrainer", arguments: tuple[Any, ...], details: dict[str, Any]) -> Result:
    """Runs the function here and now."""
    if not _one_at_a_time.acquire(blocking=False):
        raise ConfigError(
            "another `fit()` with `num_workers=0` is running in this process",
            hints=["`num_workers=1` runs the function in a worker of its own"],
        )
    try:
        return _fit(trainer, arguments, details)
    finally:
        _one_at_a_time.release()


def _fit(trainer: "DataParallelTrainer", arguments: tuple[Any, ...], details: dict[str, Any]) -> Result:
    session = LocalSession(trainer.run_config.name or "local")
    session.told = told = _Told(trainer, session)
    session.validate_fn = trainer.validation_config.fn if trainer.validation_config else None
    try:
        value = _run(trainer, session, told, arguments, details)
    except BaseException as error:
        if not isinstance(error, KeyboardInterrupt):
            told.raise_error()
        told.on_exception(error, session.rank, _result(session, error=None if _leaves_well(error) else error))
        raise
    # Also where the function has caught everything, and with it the order to stop.
    told.raise_error()
    result = _result(session, return_value=value)
    told.call("on_end", result)
    told.raise_error()
    return result


def _run(
    trainer: "DataParallelTrainer",
    session: LocalSession,
    told: _Told,
    arguments: tuple[Any, ...],
    details: dict[str, Any],
) -> Any:
    before, details_before = _session.entered(), dict(_session.details())
    backend = trainer.backend_config
    told.call("on_start")
    told.go_on()
    try:
        _session.enter(session)
        _session.set_details(
            {"resources": {}, **_data_details(trainer), **details_of(trainer.validation_config), **details}
        )
        if backend is not None:
            backend.setup(session)
        return trainer.train_loop_per_worker(*arguments)
    finally:
        # Also after a failure: this process goes on, and may call `fit()` again.
        if backend is not None:
            backend.teardown()
        _session.enter(before)
        # What they hold, data sets with their processes too, goes with this run.
        _session.set_details(details_before)
        _data.forget()


def _data_details(trainer: "DataParallelTrainer") -> dict[str, Any]:
    workers = int(os.environ["WORLD_SIZE"]) if under_torchrun() else 1
    details = _data.details_of(trainer.datasets, trainer.data_config, workers)
    if under_torchrun():
        # Every process draws for itself, and all must have the same order.
        drawn = zlib.crc32("\0".join(os.environ.get(name, "") for name in _GROUP).encode())
        for name, dataset in trainer.datasets.items() if "dealt" not in details else ():
            seed = dataset._plan.seed
            details["datasets"][name]["seed"] = drawn if seed is None else seed
    return details


def _leaves_well(error: BaseException) -> bool:
    """True for `sys.exit(0)`, which in a worker is a return."""
    return isinstance(error, SystemExit) and error.code in (None, 0)


def _result(session: LocalSession, **ended: Any) -> Result:
    return Result(
        metrics=Metrics(session.reports[-1]) if session.reports else None,
        checkpoint=session.checkpoint,
        best_checkpoints=[(session.checkpoint, session.checkpoint_metrics)] if session.checkpoint else [],
        _reports=session.reports,
        **ended,
    )
