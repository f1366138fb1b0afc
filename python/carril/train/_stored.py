"""Reads a result back from where a run is kept: the counterpart of what the head writes there.

Only files are read, and of checkpoints only their manifests and sizes. Nothing is unpickled, so that a directory from somebody
else can be looked at.
"""

import os
import warnings
from typing import TYPE_CHECKING, Any

from carril._internal.generation import keeps_automatic_fields
from carril.exceptions import CarrilError, NotFoundError, TrainingFailedError, VersionMismatchError
from carril.train._checkpoint import Checkpoint
from carril.train._locations import checked_filesystem, joined, location, without_scheme
from carril.train._places import Place, place
from carril.train._result import Metrics, in_order, parse_lines, parse_object, reported

if TYPE_CHECKING:
    from carril.train._result import Result


def read_result(cls: "type[Result]", path: "str | os.PathLike[str]", storage_filesystem: Any, verify: bool) -> "Result":
    """The result of the run in `path`."""
    filesystem = checked_filesystem(storage_filesystem, "storage_filesystem")
    where = location(path, "path") if filesystem is None else without_scheme(path, "path")
    run = place(where, filesystem)
    data = run.read("run.json")
    if data is None:
        raise NotFoundError(
            f"`{where}` is not the directory of a run: it has no `run.json`",
            hints=["a run's directory is its `storage_path` and its name: see `Result.path`"],
        )
    record = _named(run, "run.json", data)
    _refuse_newer(where, record)
    rows = parse_lines(run.read("result.json"), joined(where, "result.json"))
    checkpoints, last = _checkpoints(run, filesystem, rows, verify)
    asked = record.get("asked") or {}
    score = (asked.get("run_config") or {}).get("checkpoint_config") or {}
    return cls(
        metrics=Metrics(last) if rows else None,
        checkpoint=checkpoints[-1][0] if checkpoints else None,
        error=_error(run, record.get("status")),
        path=where,
        best_checkpoints=in_order(
            checkpoints, score.get("checkpoint_score_attribute"), score.get("checkpoint_score_order") or "max"
        ),
        restarts=_restarts(place(joined(where, "journal"), filesystem)),
        _filesystem=filesystem,
    )


def _named(run: Place, name: str, data: bytes) -> dict[str, Any]:
    """The object in a file of the run's; a file that is damaged is named in a warning."""
    found = parse_object(data)
    if found is None:
        warnings.warn(f"`{joined(run.location, name)}` is damaged: what it said is left out", stacklevel=4)
    return found or {}


def _refuse_newer(where: str, record: dict[str, Any]) -> None:
    from carril._native import RUN_FORMAT

    given = record.get("format", 1)
    if isinstance(given, int) and given > RUN_FORMAT:
        raise VersionMismatchError(
            f"`{joined(where, 'run.json')}` was written by a newer Carril: it has format {given}, and this version "
            f"reads up to {RUN_FORMAT}",
            hints=["upgrade Carril to the version that wrote it"],
        )


def _checkpoints(
    run: Place, filesystem: Any, rows: list[dict[str, Any]], verify: bool
) -> tuple[list[tuple[Checkpoint, dict[str, Any]]], dict[str, Any]]:
    """The committed checkpoints in order of report, and the last report. A checkpoint that is damaged is named and passed
    over."""
    keeps = keeps_automatic_fields()
    last = rows[-1] if rows else {}
    shown = reported(last, None if keeps else ())
    by_name = {row["checkpoint_dir_name"]: row for row in rows if row.get("checkpoint_dir_name")}
    found = []
    for stored in run.checkpoints(verify):
        path = joined(run.location, stored["name"])
        if stored["damage"] is not None:
            warnings.warn(f"the checkpoint `{path}` is passed over: {stored['damage']}", stacklevel=4)
            continue
        # The row has every value as it was; the manifest, which knows fewer kinds, serves where the row was lost.
        metrics = by_name.get(stored["name"]) or stored["metrics"] or {}
        if stored["validation"] == "validated":
            # What the check has found came after the row. It is the run's last word where the row is.
            metrics.update(stored["metrics"])
        is_last = metrics is last
        metrics = reported(metrics, None if keeps else stored["own"])
        shown = metrics if is_last else shown
        found.append((Checkpoint.stored(path, filesystem, verify), metrics))
    return found, shown


def _restarts(journal: Place) -> list[dict[str, Any]]:
    """The failures that the last `fit()` has survived, as the head has written them down."""
    from carril._native import read_restarts

    segments = sorted(name for name in journal.names() if name.endswith(".log"))
    return read_restarts([journal.read(name) or b"" for name in segments])


def _error(run: Place, status: Any) -> CarrilError | None:
    data = run.read("error.json") if status != "finished" else None
    if data is None and status != "failed":
        return None
    record = _named(run, "error.json", data) if data is not None else {}
    if not record:
        # The other file says it for people, with the headline first.
        text = (run.read("error.txt") or b"").decode(errors="replace")
        record = {"headline": text.partition("\n")[0]}
    from carril._native import error_codes

    failure = record.get("failure") or {}
    code, origin, retryable = next(
        (known for known in error_codes() if known[0] == failure.get("code")), ("internal", "carril", False)
    )
    return TrainingFailedError(
        str(record.get("headline") or "the run failed"),
        code=code,
        origin=origin,
        retryable=retryable,
        hints=failure.get("hints") or (),
    )
