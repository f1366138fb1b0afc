"""A report with a checkpoint: how its files get into the run's storage, and what is kept there.

Three ways. The agent takes the files of a local directory (SYNC, ASYNC); the user has put them into the run's storage
already (NO_UPLOAD); or a function of the user's does so now (`checkpoint_upload_fn`). In the last two the run's storage
is where they are: a manifest is written beside them, and nothing is moved.

RPT-1: a report that raises is not counted and leaves no trace.
RPT-2: no committed checkpoint is ever given away or deleted, whatever was asked.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from carril._internal.generation import under_as_ray
from carril.exceptions import CheckpointError, ConfigError, ConfigTypeError, kind_of
from carril.train import _session
from carril.train._checkpoint import Checkpoint
from carril.train._locations import is_uri, joined, kind_and_path, reaches
from carril.train._more_config import (
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    ReportedCheckpoint,
    ReportedCheckpointStatus,
    chosen,
)
from carril.train._places import MANIFEST_FILE
from carril.train._session import SessionLike, StoredSession
from carril.train._validation import Task, as_native
from carril.train._validation import asked as validation_task

# By the native word for how far a validation has come.
_STATUS = {
    "": ReportedCheckpointStatus.COMMITTED,
    "pending": ReportedCheckpointStatus.PENDING_VALIDATION,
    "validated": ReportedCheckpointStatus.VALIDATED,
    "failed": ReportedCheckpointStatus.VALIDATION_FAILED,
    "timeout": ReportedCheckpointStatus.VALIDATION_TIMEOUT,
}

UploadFunction = Callable[[Checkpoint, str], Checkpoint]


@dataclass(frozen=True)
class Asked:
    """The arguments of `report` beside metrics and checkpoint, as they were given."""

    name: str | None
    mode: object
    delete: bool | None
    upload: object
    validation: object


@dataclass(frozen=True)
class _Given:
    """A report that was checked: `give` says that the caller does not want the directory back."""

    metrics: dict[str, Any]
    checkpoint: Checkpoint
    give: bool
    name: str | None
    validation: tuple[str, float | None] | None


def report_in_full(session: SessionLike, metrics: object, checkpoint: object, asked: Asked) -> None:
    """`report` where it is more than one native call."""
    if not isinstance(metrics, dict):
        raise ConfigTypeError(
            f"`metrics` is {kind_of(metrics)}: it must be a dict", hints=['for example `report({"loss": 0.5})`']
        )
    task = validation_task(asked.validation, checkpoint is not None)
    mode = _mode(asked.mode)
    if checkpoint is None:
        session.report(dict(metrics))
        return
    if not isinstance(checkpoint, Checkpoint):
        raise ConfigTypeError(
            f"`checkpoint` is {kind_of(checkpoint)}: it must be a Checkpoint",
            hints=["for example `Checkpoint.from_directory(path)`"],
        )
    _check_name(asked.name)
    upload = _upload_function(asked.upload)
    if asked.delete is not None and not isinstance(asked.delete, bool):
        raise ConfigTypeError(
            f"`delete_local_checkpoint_after_upload` is {asked.delete!r}: it must be True or False, or None for the default"
        )
    give = mode is CheckpointUploadMode.ASYNC if asked.delete is None else asked.delete
    given = _Given(dict(metrics), checkpoint, give, asked.name, as_native(task))
    if not _session.is_stored(session):
        _remember(session, given, upload)
        _validate_here(session, task)
    elif upload is not None:
        _store_by(upload, session, given)
    elif mode is CheckpointUploadMode.NO_UPLOAD:
        _leave_in_place(session, given, checkpoint, "`checkpoint_upload_mode=NO_UPLOAD`: the checkpoint")
    else:
        _take(session, given, mode.value.lower())
    _session.checkpoint_was_made(checkpoint, reported=True)


def _mode(given: object) -> CheckpointUploadMode:
    if given is None:
        return CheckpointUploadMode.SYNC
    return chosen(CheckpointUploadMode, given, "checkpoint_upload_mode")


def _check_name(name: object) -> None:
    if name is not None and (not isinstance(name, str) or not name or "/" in name or name.startswith(".")):
        raise ConfigError(
            f"`checkpoint_dir_name` is {name!r}: it must be the name of a directory, without `/` and without a dot first"
        )


def _upload_function(given: object) -> UploadFunction | None:
    if given is not None and not callable(given):
        raise ConfigTypeError(f"`checkpoint_upload_fn` is {kind_of(given)}: it must be a function")
    return given


def _take(session: StoredSession, given: _Given, mode: str) -> None:
    checkpoint = given.checkpoint
    if checkpoint.is_local:
        if checkpoint._verify:
            # What is damaged must not get a manifest that says it is whole.
            checkpoint.compare()
        give = given.give and _may_be_given(checkpoint)
        session.report(given.metrics, checkpoint.path, give, given.name, mode, given.validation)
        return
    # From somewhere else: brought here first. The files are taken when the call returns, in both modes.
    with checkpoint.as_directory() as directory:
        session.report(given.metrics, directory, False, given.name, mode, given.validation)


def _may_be_given(checkpoint: Checkpoint) -> bool:
    """Not what the object itself owns, and not a checkpoint that some run has committed."""
    return not checkpoint.is_temporary and not os.path.exists(os.path.join(checkpoint.path, MANIFEST_FILE))


def _leave_in_place(session: StoredSession, given: _Given, checkpoint: Checkpoint, what: str) -> None:
    name = name_in_run(session, checkpoint)
    if name is None:
        raise ConfigError(
            f"{what} `{checkpoint.path}` is not a directory right inside the run's storage `{session.storage}`",
            hints=["`get_context().get_storage().build_checkpoint_path_from_name(name)` gives a place for it"],
        )
    if not under_as_ray() and not _has_files(checkpoint):
        raise CheckpointError(f"the checkpoint directory `{checkpoint.path}` does not exist or is empty", origin="user")
    session.report(given.metrics, joined(session.storage, name), False, name, "in_place", given.validation)


def _has_files(checkpoint: Checkpoint) -> bool:
    if not checkpoint.is_local:
        return checkpoint.exists()
    return any(names for _, _, names in os.walk(checkpoint.path))


def _store_by(upload: UploadFunction, session: StoredSession, given: _Given) -> None:
    checkpoint = given.checkpoint
    give = given.give and checkpoint.is_local and _may_be_given(checkpoint)
    if give and _holds(checkpoint.path, session.run_directory):
        raise ConfigError(f"the checkpoint directory `{checkpoint.path}` holds the run's own directory")
    stored = _uploaded(upload, checkpoint, given.name or _name_for_all_ranks(session))
    _leave_in_place(session, given, stored, "`checkpoint_upload_fn` returned a checkpoint: its place")
    if give and not (stored.is_local and _holds(checkpoint.path, stored.path)):
        import shutil

        shutil.rmtree(checkpoint.path, ignore_errors=True)


def _uploaded(upload: UploadFunction, checkpoint: Checkpoint, name: str) -> Checkpoint:
    stored = upload(checkpoint, name)
    if not isinstance(stored, Checkpoint):
        raise ConfigTypeError(
            f"`checkpoint_upload_fn` returned {kind_of(stored)}: it must return a Checkpoint in the run's storage"
        )
    return stored


def _name_for_all_ranks(session: StoredSession) -> str:
    """A name that every rank finds for its report of the same number, and that no other attempt or run has."""
    return f"checkpoint_{_session.reports():06d}_{session.run_id[:8]}_{session.attempt}"


def _remember(session: SessionLike, given: _Given, upload: UploadFunction | None) -> None:
    """With `num_workers=0` nothing is stored, so that every mode is the same: the newest checkpoint is kept as a copy."""
    checkpoint = given.checkpoint
    if upload is not None:
        checkpoint = _uploaded(upload, checkpoint, given.name or f"checkpoint_{_session.reports():06d}")
    if checkpoint.is_local:
        session.report(given.metrics, checkpoint.path, given.give and _may_be_given(checkpoint), given.name)
        return
    with checkpoint.as_directory() as directory:
        session.report(given.metrics, directory, False, given.name)


def _validate_here(session: SessionLike, task: Task | None) -> None:
    from carril.train._local import LocalSession

    if task is not None and isinstance(session, LocalSession):
        session.validate(task)


def _holds(outer: str, inner: str) -> bool:
    outer, inner = os.path.realpath(outer), os.path.realpath(inner)
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")


def name_in_run(session: StoredSession, checkpoint: Checkpoint) -> str | None:
    """The name of a checkpoint that lies right inside the run's storage; None if it lies elsewhere."""
    ways = _base_and_path(session, checkpoint)
    if ways is None or not ways[1].startswith(ways[0] + "/"):
        return None
    name = ways[1][len(ways[0]) + 1 :]
    return name if name and "/" not in name and not name.startswith(".") else None


def _base_and_path(session: StoredSession, checkpoint: Checkpoint) -> tuple[str, str] | None:
    """The run's storage and the checkpoint's place in words that can be compared; None if they have none in common."""
    base, path, filesystem = session.storage, checkpoint.path, checkpoint._filesystem
    own = _session.storage_filesystem()
    if own is not None:
        return (base.strip("/"), path.strip("/")) if filesystem is not None and filesystem == own else None
    if not is_uri(base):
        return (os.path.realpath(base), os.path.realpath(path)) if checkpoint.is_local else None
    if filesystem is not None:
        return (kind_and_path(base)[1], path.strip("/")) if reaches(filesystem, base) else None
    if checkpoint.is_local or kind_and_path(base)[0] != kind_and_path(path)[0]:
        return None
    return kind_and_path(base)[1], kind_and_path(path)[1]


def reported_checkpoints(session: SessionLike, mode: object, timeout_s: object) -> list[ReportedCheckpoint]:
    """`get_all_reported_checkpoints`."""
    if mode is None:
        mode = CheckpointConsistencyMode.VALIDATED
    validated = chosen(CheckpointConsistencyMode, mode, "consistency_mode") is CheckpointConsistencyMode.VALIDATED
    if timeout_s is not None and (
        isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not timeout_s >= 0
    ):
        raise ConfigError(f"`timeout_s` is {timeout_s!r}: it must be a number of seconds, or None to wait")
    if not _session.is_stored(session):
        return _remembered(session)
    from carril.train._callbacks import as_objects
    from carril.train._result import reported

    filesystem = _session.storage_filesystem()
    keeps = _session.details().get("keeps_automatic_fields", True)
    return [
        ReportedCheckpoint(
            Checkpoint.stored(kept["path"], filesystem),
            reported(as_objects(kept["metrics"]), None if keeps else kept["own"]),
            _STATUS[kept["validation"]],
        )
        for kept in session.checkpoints(None if timeout_s is None else float(timeout_s), validated)
    ]


def _remembered(session: SessionLike) -> list[ReportedCheckpoint]:
    from carril.train._local import LocalSession

    if not isinstance(session, LocalSession) or session.checkpoint is None:
        return []
    return [ReportedCheckpoint(session.checkpoint, dict(session.checkpoint_metrics), _STATUS[session.validation])]
