"""What a training function calls: `report`, `get_context`, `get_checkpoint` and their kin.

In a worker they act on the native session, with `num_workers=0` on a session in the calling process. Outside both
they raise RuntimeError. `report` is called in inner loops: without a checkpoint it is one native call. With one it is
the work of `_reporting`.
"""

from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Callable

    from carril.train._checkpoint import Checkpoint
    from carril.train._context import TrainContext
    from carril.train._more_config import (
        CheckpointConsistencyMode,
        CheckpointUploadMode,
        PreemptionInfo,
        ReportedCheckpoint,
    )


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
    ) -> object: ...
    def latest_checkpoint(self) -> str | None: ...
    def barrier(self) -> None: ...
    def broadcast(self, payload: bytes | None) -> bytes: ...


class StoredSession(SessionLike, Protocol):
    """A session of a run that is kept somewhere: the native one."""

    @property
    def attempt(self) -> int: ...
    @property
    def storage(self) -> str: ...
    @property
    def filesystem_path(self) -> str: ...
    def report(
        self,
        metrics: dict[str, Any],
        directory: str | None = None,
        move: bool = False,
        checkpoint_name: str | None = None,
        mode: str = "sync",
        validation: tuple[str, float | None] | None = None,
    ) -> object: ...
    @property
    def began_from(self) -> str | None: ...
    @property
    def node_directory(self) -> str: ...
    def set_data_position(self, position: str) -> None: ...
    def set_progress(self, done: float, total: float) -> None: ...
    def set_rows_read(self, data: str, epoch: int, done: int, total: int) -> None: ...
    def checkpoints(self, timeout: float | None = None, validated: bool = False) -> list[dict[str, Any]]: ...
    def preemption(self) -> tuple[str, float] | None: ...


_UNREAD = object()

_session: SessionLike | None = None
# The run's `storage_filesystem`, once it was asked for.
_filesystem: Any = _UNREAD
# How many reports this process has made: every rank makes as many, so that it is a number that all of them know.
_reports = 0
_report: Any = None
_details: dict[str, Any] = {}
# Told of every checkpoint that is made or reported, where the last one is wanted (see `_kept`).
_witness: "Callable[[Checkpoint, bool], None] | None" = None


def enter(session: SessionLike | None) -> None:
    """From here on the functions of this module act on `session`; None ends that."""
    global _session, _report, _filesystem, _reports
    _session, _filesystem, _reports = session, _UNREAD, 0
    _report = None if session is None else session.report


def set_details(details: dict[str, Any]) -> None:
    """What the driver tells its workers beside the function: the resources of a worker."""
    _details.clear()
    _details.update(details)


def details() -> dict[str, Any]:
    return _details


def watch_checkpoints(witness: "Callable[[Checkpoint, bool], None] | None") -> None:
    """From here on `witness` is called for every checkpoint that is made (False) or reported (True); None ends that."""
    global _witness
    _witness = witness


def witness() -> "Callable[[Checkpoint, bool], None] | None":
    return _witness


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


def is_stored(session: SessionLike) -> TypeGuard[StoredSession]:
    """False with `num_workers=0`, where nothing is kept."""
    return not getattr(session, "is_local", False)


def storage_filesystem() -> Any:
    """The file system object that the run is kept in; None for a path or URI, and outside a run."""
    global _filesystem
    if _filesystem is _UNREAD:
        path = _session.filesystem_path if _session is not None and is_stored(_session) else ""
        _filesystem = _unpickled(path) if path else None
    return _filesystem


def _unpickled(path: str) -> Any:
    from carril._internal.pickling import loads

    with open(path, "rb") as file:
        return loads(file.read())


def reports() -> int:
    """How many reports this process has made."""
    return _reports


def report(
    metrics: dict[str, Any],
    checkpoint: "Checkpoint | None" = None,
    checkpoint_dir_name: str | None = None,
    checkpoint_upload_mode: "CheckpointUploadMode | str | None" = None,
    delete_local_checkpoint_after_upload: bool | None = None,
    checkpoint_upload_fn: "Callable[[Checkpoint, str], Checkpoint] | None" = None,
    validation: object = False,
) -> None:
    """Reports metrics, and with them a checkpoint.

    Without a checkpoint it waits for nobody. With one, the files are taken when it returns, and the checkpoint exists
    when every rank's report of the same number is in and all files are stored. `checkpoint_upload_mode` says how much
    of that `report` waits for: with SYNC and storage that is not a local path, for all of it. `checkpoint_upload_fn` does
    the storing itself, in this thread, and returns the checkpoint in the run's storage.
    `delete_local_checkpoint_after_upload=True` gives the directory away: it is moved instead of copied. `validation`
    has the trainer's `validation_config` check the checkpoint beside the training: True, or a `ValidationTaskConfig`.
    """
    global _reports
    if "datasets" in _details:
        _tell_position()
    if checkpoint is None and not validation and _report is not None and metrics.__class__ is dict:
        _report(metrics)
    else:
        from carril.train._reporting import Asked, report_in_full

        asked = Asked(
            checkpoint_dir_name,
            checkpoint_upload_mode,
            delete_local_checkpoint_after_upload,
            checkpoint_upload_fn,
            validation,
        )
        report_in_full(current("report()"), metrics, checkpoint, asked)
    _reports += 1


def _tell_position() -> None:
    from carril.train import _data

    session = entered()
    if session is None or not is_stored(session):
        return
    position = _data.position(_details, session)
    if position is not None:
        session.set_data_position(position)


def get_context() -> "TrainContext":
    """Who this worker is: ranks, sizes, names."""
    from carril.train._context import TrainContext

    # In a trial of a search it knows the trial.
    own = getattr(current("get_context()"), "context", None)
    return TrainContext() if own is None else own()


def get_checkpoint() -> "Checkpoint | None":
    """The newest checkpoint of this run; before there is one, that which the run began from, or None."""
    path, filesystem, verify = current("get_checkpoint()").latest_checkpoint(), storage_filesystem(), True
    if path is None:
        path, filesystem = _details.get("checkpoint"), _details.get("checkpoint_filesystem")
        verify = _details.get("checkpoint_verify", True)
    if path is None:
        return None
    from carril.train._checkpoint import Checkpoint

    return Checkpoint.stored(path, filesystem, verify)


def get_dataset_shard(dataset_name: str | None = None) -> Any:
    """This worker's part of a data set that the trainer was given: an iterator of batches, each pass an epoch.

    How far it was read is kept with each checkpoint: a run that goes on begins behind it.
    """
    session = current("get_dataset_shard()")
    from carril.train import _data

    return _data.shard(dataset_name, _details, session)


def get_all_reported_checkpoints(
    consistency_mode: "CheckpointConsistencyMode | str | None" = None, timeout_s: float | None = None
) -> "list[ReportedCheckpoint]":
    """The checkpoints that are kept, the best last, with the metrics they were reported with.

    It waits until what this rank has reported is stored and, unless the mode is COMMITTED, no validation is due: for
    `timeout_s` at most; then it gives what there is.
    """
    from carril.train._reporting import reported_checkpoints

    return reported_checkpoints(current("get_all_reported_checkpoints()"), consistency_mode, timeout_s)


def get_preemption_info() -> "PreemptionInfo | None":
    """The notice that the machine is going to be taken, with the time until when; None while there is none.

    A function that gets one reports a last checkpoint, and the run ends with it. It may also return.
    """
    session = current("get_preemption_info()")
    if not is_stored(session):
        return None
    from carril.train._preemption import info_of

    return info_of(session)
