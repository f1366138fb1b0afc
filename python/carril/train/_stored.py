"""Reads a result back from where a run is kept: the counterpart of what the head writes there.

Only files are read, and of checkpoints only their manifests. Nothing is unpickled, so that a directory from somebody
else can be looked at.
"""

import json
import os
import warnings
import zlib
from typing import TYPE_CHECKING, Any

from carril.exceptions import CarrilError, NotFoundError, TrainingFailedError
from carril.train._checkpoint import Checkpoint
from carril.train._locations import checked_filesystem, joined, location, path_in_filesystem
from carril.train._places import Place, place
from carril.train._result import Metrics, in_order, parse_lines

if TYPE_CHECKING:
    from carril.train._result import Result


def read_result(cls: "type[Result]", path: "str | os.PathLike[str]", storage_filesystem: Any) -> "Result":
    """The result of the run in `path`."""
    filesystem = checked_filesystem(storage_filesystem, "storage_filesystem")
    where = location(path, "path") if filesystem is None else path_in_filesystem(path, "path").rpartition("://")[2]
    run = place(where, filesystem)
    record = run.read("run.json")
    if record is None:
        raise NotFoundError(
            f"`{where}` is not the directory of a run: it has no `run.json`",
            hints=["a run's directory is its `storage_path` and its name: see `Result.path`"],
        )
    rows = parse_lines(run.read("result.json"))
    checkpoints = _checkpoints(run, filesystem, rows)
    asked = _object(record).get("asked") or {}
    score = (asked.get("run_config") or {}).get("checkpoint_config") or {}
    return cls(
        metrics=Metrics(rows[-1]) if rows else None,
        checkpoint=checkpoints[-1][0] if checkpoints else None,
        error=_error(run),
        path=where,
        best_checkpoints=in_order(
            checkpoints, score.get("checkpoint_score_attribute"), score.get("checkpoint_score_order") or "max"
        ),
        restarts=_restarts(place(joined(where, "journal"), filesystem)),
        _filesystem=filesystem,
    )


def _object(data: bytes | None) -> dict[str, Any]:
    try:
        value = json.loads(data or b"{}")
    except json.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _checkpoints(run: Place, filesystem: Any, rows: list[dict[str, Any]]) -> list[tuple[Checkpoint, dict[str, Any]]]:
    """The committed checkpoints in order of report. One that is damaged is named and passed over."""
    by_name = {row["checkpoint_dir_name"]: row for row in rows if row.get("checkpoint_dir_name")}
    found = []
    for stored in run.checkpoints():
        path = joined(run.location, stored["name"])
        if stored["damage"] is not None:
            warnings.warn(f"the checkpoint `{path}` is passed over: {stored['damage']}", stacklevel=4)
            continue
        # The row has every value as it was; the manifest, which knows fewer kinds, serves where the row was lost.
        metrics = by_name.get(stored["name"]) or stored["metrics"] or {}
        if stored["validation"] == "validated":
            # What the check has found came after the row. It is the run's last word where the row is.
            metrics.update(stored["metrics"])
        found.append((Checkpoint.stored(path, filesystem), metrics))
    return found


def _restarts(journal: Place) -> list[dict[str, Any]]:
    """The failures that the last `fit()` has survived, as the head has written them down."""
    restarts: list[dict[str, Any]] = []
    for name in sorted(name for name in journal.names() if name.endswith(".log")):
        for line in (journal.read(name) or b"").split(b"\n"):
            # Most records say only what was decided: they need not be opened.
            if b'"fact":' not in line:
                continue
            checksum, _, text = line.partition(b" ")
            if checksum != b"%08x" % zlib.crc32(text):
                break  # torn by a crash, and the last one of its segment
            record = json.loads(text)
            fact = record["fact"]
            if fact.get("opened") == {"continues": False}:
                restarts.clear()
            elif "restarted" in fact:
                told = {name: fact["restarted"][name] for name in ("attempt", "reason", "code")}
                restarts.append({**told, "at": record["at"]})
    return restarts


def _error(run: Place) -> CarrilError | None:
    record = _object(run.read("error.json"))
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
