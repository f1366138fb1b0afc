"""`num_workers=0`: the training function runs in the calling process, for a debugger or under torchrun.

No head, no files, and exceptions come as they are. Under torchrun the ranks are torchrun's.
"""

import os
import threading
from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigError
from carril.train import _session
from carril.train._checkpoint import Checkpoint
from carril.train._result import Metrics, Result

if TYPE_CHECKING:
    from carril.train._trainer import DataParallelTrainer

_TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

_one_at_a_time = threading.Lock()


def under_torchrun() -> bool:
    """True if something has set torchrun's environment around this process."""
    return all(os.environ.get(name) for name in _TORCHRUN)


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
        self.reports.append(plain)

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
    before = _session.entered()
    session = LocalSession(trainer.run_config.name or "local")
    backend = trainer.backend_config
    try:
        _session.enter(session)
        _session.set_details({"resources": {}, **details})
        if backend is not None:
            backend.setup(session)
        value = trainer.train_loop_per_worker(*arguments)
    finally:
        # Also after a failure: this process goes on, and may call `fit()` again.
        if backend is not None:
            backend.teardown()
        _session.enter(before)
        _one_at_a_time.release()
    return Result(
        metrics=Metrics(session.reports[-1]) if session.reports else None,
        checkpoint=session.checkpoint,
        best_checkpoints=[(session.checkpoint, session.checkpoint_metrics)] if session.checkpoint else [],
        return_value=value,
        _reports=session.reports,
    )
