"""What a training function calls: `report`, `get_context`, `get_checkpoint` and their kin.

In a worker they act on the native session, with `num_workers=0` on a session in the calling process. Outside both
they raise RuntimeError. `report` is called in inner loops: without a checkpoint it is one native call.
"""

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from carril.train._checkpoint import Checkpoint
    from carril.train._context import TrainContext
    from carril.train._more_config import CheckpointConsistencyMode, CheckpointUploadMode, ReportedCheckpoint


class SessionLike(Protocol):
    """What the native session and the one of local mode have in common."""

    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def local_world_size(self) -> int: ...
    @property
    def node_rank(self) -> int: ...
    @property
    def run_id(self) -> str: ...
    @property
    def run_name(self) -> str: ...
    @property
    def run_directory(self) -> str: ...
    @property
    def devices(self) -> list[str]: ...
    def report(
        self,
        metrics: dict[str, Any],
        directory: str | None = None,
        move: bool = False,
        checkpoint_name: str | None = None,
    ) -> None: ...
    def latest_checkpoint(self) -> str | None: ...
    def barrier(self) -> None: ...
    def broadcast(self, payload: bytes | None) -> bytes: ...


_session: SessionLike | None = None
_report: Any = None
_details: dict[str, Any] = {}
# Told of every checkpoint that is made or reported, where the last one is wanted (see `_kept`).
_witness: "Callable[[Checkpoint, bool], None] | None" = None


def enter(session: SessionLike | None) -> None:
    """From here on the functions of this module act on `session`; None ends that."""
    global _session, _report
    _session = session
    _report = None if session is None else session.report


def set_details(details: dict[str, Any]) -> None:
    """What the driver tells its workers beside the function: the resources of a worker."""
    _details.clear()
    _details.update(details)


def details() -> dict[str, Any]:
    return _details


def watch_checkpoints(witness: "Callable[[Checkpoint, bool], None] | None") -> None:
    """From here on `witness` is told of every checkpoint that is made (False) or reported (True); None ends that."""
    global _witness
    _witness = witness


def checkpoint_was_made(checkpoint: "Checkpoint", reported: bool = False) -> None:
    if _witness is not None:
        _witness(checkpoint, reported)


def current(name: str) -> SessionLike:
    """The session, or an error that says where `name` may be called."""
    if _session is None:
        raise RuntimeError(
            f"`{name}` was called outside a training function\n"
            "hint: call it in the function that is given to a trainer, or in what that function calls"
        )
    return _session


def is_running() -> bool:
    """True inside a training function."""
    return _session is not None


def entered() -> SessionLike | None:
    """The session as it is, for one who puts another in its place for a while."""
    return _session


def report(
    metrics: dict[str, Any],
    checkpoint: "Checkpoint | None" = None,
    checkpoint_dir_name: str | None = None,
    checkpoint_upload_mode: "CheckpointUploadMode | str | None" = None,
    delete_local_checkpoint_after_upload: bool | None = None,
    checkpoint_upload_fn: object = None,
    validation: object = False,
) -> None:
    """Reports metrics, and with them a checkpoint.

    Without a checkpoint it waits for nobody. With one, the files are stored when it returns, and the checkpoint exists
    when every rank's report of the same number is in. `delete_local_checkpoint_after_upload=True` gives the directory
    away: it is moved instead of copied.
    """
    if checkpoint is None and not validation and _report is not None and metrics.__class__ is dict:
        _report(metrics)
        return
    _report_in_full(
        metrics,
        checkpoint,
        checkpoint_dir_name,
        checkpoint_upload_mode,
        bool(delete_local_checkpoint_after_upload),
        checkpoint_upload_fn,
        validation,
    )


def _report_in_full(
    metrics: object,
    checkpoint: object,
    name: str | None,
    mode: object,
    move: bool,
    upload: object,
    validation: object,
) -> None:
    from carril.exceptions import ConfigError, ConfigTypeError, NotAvailableError
    from carril.train._checkpoint import Checkpoint

    session = current("report()")
    if not isinstance(metrics, dict):
        raise ConfigTypeError(
            f"`metrics` is a {type(metrics).__name__}: it must be a dict",
            hints=['for example `report({"loss": 0.5})`'],
        )
    if validation:
        raise NotAvailableError("`report(validation=…)`: validation of checkpoints is not built yet")
    if upload is not None:
        raise NotAvailableError("`report(checkpoint_upload_fn=…)` is not built yet")
    if mode is not None and getattr(mode, "value", mode) != "SYNC":
        raise NotAvailableError(f"`report(checkpoint_upload_mode={mode})`: only SYNC is built yet")
    if checkpoint is None:
        session.report(dict(metrics))
        return
    if not isinstance(checkpoint, Checkpoint):
        raise ConfigTypeError(
            f"`checkpoint` is a {type(checkpoint).__name__}: it must be a Checkpoint",
            hints=["for example `Checkpoint.from_directory(path)`"],
        )
    if name is not None and (not isinstance(name, str) or not name or "/" in name or name.startswith(".")):
        raise ConfigError(
            f"`checkpoint_dir_name` is {name!r}: it must be the name of a directory, without `/` and without a dot first"
        )
    session.report(dict(metrics), checkpoint.path, move and not checkpoint.is_temporary, name)
    checkpoint_was_made(checkpoint, reported=True)


def get_context() -> "TrainContext":
    """Who this worker is: ranks, sizes, names."""
    from carril.train._context import TrainContext

    current("get_context()")
    return TrainContext()


def get_checkpoint() -> "Checkpoint | None":
    """The newest checkpoint of this run; before there is one, that which the run began from, or None."""
    path = current("get_checkpoint()").latest_checkpoint() or _details.get("checkpoint")
    if path is None:
        return None
    from carril.train._checkpoint import Checkpoint

    return Checkpoint.stored(path)


def get_dataset_shard(dataset_name: str | None = None) -> Any:
    """This worker's part of a dataset. Data sets are not built yet, so that there is none of any name."""
    current("get_dataset_shard()")
    if dataset_name is None:
        from carril.exceptions import NotAvailableError

        raise NotAvailableError("`get_dataset_shard()`: data sets are not built yet")
    raise KeyError(f"no dataset is named {dataset_name!r}: the trainer was given none")


def get_all_reported_checkpoints(
    consistency_mode: "CheckpointConsistencyMode | str | None" = None, timeout_s: float | None = None
) -> "list[ReportedCheckpoint]":
    from carril.exceptions import NotAvailableError

    current("get_all_reported_checkpoints()")
    raise NotAvailableError(
        "`get_all_reported_checkpoints()` is not built yet",
        hints=["`get_checkpoint()` has the newest one, `Result.best_checkpoints` all of them"],
    )


def get_preemption_info() -> None:
    """The notice that a scheduler has given, if there is one. On one machine nobody gives notice."""
    current("get_preemption_info()")
