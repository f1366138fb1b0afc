"""Reads a result back from the directory of a run: the counterpart of what the head writes there.

Only files are read, nothing is unpickled, so that a directory from somebody else can be looked at.
"""

import json
import os
from typing import TYPE_CHECKING, Any

from carril.exceptions import CarrilError, NotAvailableError, NotFoundError, TrainingFailedError
from carril.train._checkpoint import Checkpoint, local_path
from carril.train._result import Metrics, in_order, read_lines

if TYPE_CHECKING:
    from carril.train._result import Result


def read_result(cls: "type[Result]", path: "str | os.PathLike[str]", filesystem: Any) -> "Result":
    """The result of the run in `path`."""
    if filesystem is not None:
        raise NotAvailableError("`from_path(storage_filesystem=…)`: only local paths are built yet")
    directory = local_path(path, "path")
    if not os.path.exists(os.path.join(directory, "run.json")):
        raise NotFoundError(
            f"`{directory}` is not the directory of a run: it has no `run.json`",
            hints=["a run's directory is its `storage_path` and its name: see `Result.path`"],
        )
    rows = read_lines(os.path.join(directory, "result.json"))
    checkpoints = _checkpoints(directory, rows)
    run = _json(os.path.join(directory, "run.json"))
    asked = run.get("asked") or {}
    score = (asked.get("run_config") or {}).get("checkpoint_config") or {}
    return cls(
        metrics=Metrics(rows[-1]) if rows else None,
        checkpoint=checkpoints[-1][0] if checkpoints else None,
        error=_error(directory),
        path=directory,
        best_checkpoints=in_order(
            checkpoints, score.get("checkpoint_score_attribute"), score.get("checkpoint_score_order") or "max"
        ),
    )


def _json(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return value if isinstance(value, dict) else {}


def _checkpoints(directory: str, rows: list[dict[str, Any]]) -> list[tuple[Checkpoint, dict[str, Any]]]:
    """The committed checkpoints in order of report. Without its manifest a directory is no checkpoint."""
    by_name = {row["checkpoint_dir_name"]: row for row in rows if row.get("checkpoint_dir_name")}
    found: list[tuple[float, str, dict[str, Any]]] = []
    for entry in os.scandir(directory):
        manifest = _json(os.path.join(entry.path, ".manifest.json")) if entry.is_dir() else {}
        if manifest:
            metrics = manifest.get("metrics") or by_name.get(entry.name) or {}
            found.append((manifest.get("iteration") or 0, entry.name, metrics))
    found.sort(key=lambda item: item[:2])
    return [(Checkpoint(os.path.join(directory, name)), metrics) for _, name, metrics in found]


def _error(directory: str) -> CarrilError | None:
    record = _json(os.path.join(directory, "error.json"))
    if not record:
        return None
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
