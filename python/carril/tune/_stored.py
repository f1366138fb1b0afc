"""Reads an experiment back from where it is kept: the counterpart of what the head writes there.

Two files are read, once each and from front to end: `experiment.json` and `trials.jsonl`. What is in the trials' own
directories is read by whoever asks a trial for it. Nothing is unpickled, so that a directory from somebody else can be
looked at, and paths are made of where the experiment was found, so that it can be moved.

STORED-1: the last event of a trial decides its state; a line that was torn by a crash counts as not written.
STORED-2: a line may hold anything: one that no head writes is left out and counted. A trial that has ended without an
error is over, wherever that line stands.
"""

import json
import os
import warnings
from dataclasses import dataclass, field
from typing import Any, TypeVar

from carril.exceptions import NotFoundError, StorageError
from carril.train._locations import (
    checked_filesystem,
    is_uri,
    joined,
    location,
    parent_and_name,
    split_uri,
    without_scheme,
)
from carril.train._places import Place, place

EXPERIMENT_FILE, TRIALS_FILE = "experiment.json", "trials.jsonl"
# The record of a scheduler is most of the lines, and for the head alone: these need not be opened.
_TOLD = ('{"event":"told"', '{"event": "told"')
# `json.loads` without what it does around each text: there are three lines or more for each trial.
_decode = json.JSONDecoder().raw_decode
_LIVE_STATES = ("pending", "running", "paused")
# Events of the experiment, and not of one of its trials.
_OWN = ("opened", "resumed", "closed")
_Kind = TypeVar("_Kind")


@dataclass(slots=True)
class StoredTrial:
    """One trial as the events tell it. `directory` and `checkpoint` are names, not paths.

    `status` is "pending", "running", "paused", "terminated" or "error"; of an experiment that is over, a trial that
    did not come to its end is "unfinished".
    """

    number: int
    id: str
    name: str
    directory: str
    tag: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    resources: dict[str, float] = field(default_factory=dict)
    status: str = "pending"
    iterations: int = 0
    seconds: float = 0.0
    metrics: dict[str, Any] | None = None
    error: str | None = None
    # A scheduler ended it before its time.
    early: bool = False
    checkpoint: str | None = None
    reason: str = ""
    # The lines that tell of the beginning and of the end, and the config with which it began.
    made_at: int = 0
    ended_at: int = 0
    made_as: dict[str, Any] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return self.status in ("terminated", "error")


@dataclass
class StoredExperiment:
    """An experiment's directory: its record, and its trials in the order in which they were made."""

    path: str
    record: dict[str, Any]
    trials: list[StoredTrial]
    # The object that `path` is a path in, where the experiment has a `storage_filesystem`.
    filesystem: Any = field(default=None, repr=False, compare=False)
    # How many lines of `trials.jsonl` are no head's, besides one at the end that was cut short.
    unreadable: int = 0

    @property
    def name(self) -> str:
        return str(self.record.get("name") or parent_and_name(self.path)[1])

    @property
    def metric(self) -> str | None:
        """What the experiment is judged by; None where nothing or several metrics were said."""
        metric = self.record.get("metric")
        return metric if isinstance(metric, str) else None

    @property
    def mode(self) -> str | None:
        mode = self.record.get("mode")
        return mode if isinstance(mode, str) else None

    def path_of(self, trial: StoredTrial) -> str:
        """The trial's directory."""
        return joined(self.path, trial.directory)


def read_experiment(path: "str | os.PathLike[str]", storage_filesystem: Any = None) -> StoredExperiment:
    """The experiment in `path`, also while it goes on: a local path or a URI; with `storage_filesystem` a path in that."""
    filesystem = checked_filesystem(storage_filesystem, "storage_filesystem")
    where = location(path, "path") if filesystem is None else without_scheme(path, "path")
    parent, name = parent_and_name(where)
    if name in (EXPERIMENT_FILE, TRIALS_FILE):  # scripts of older versions name a file
        where = parent
    kept = place(where, filesystem)
    data = kept.read(EXPERIMENT_FILE)
    lines = (kept.read(TRIALS_FILE) or b"").decode(errors="replace")
    record = _object((data or b"").decode(errors="replace"))
    if not isinstance(record.get("status"), str):
        record = _record_in(lines)
        what = "is missing" if data is None else "is damaged"
        if not isinstance(record.get("status"), str):
            if data is None:
                raise _not_found(where, kept, filesystem)
            raise StorageError(
                f"`{joined(where, EXPERIMENT_FILE)}` {what}: what the experiment was cannot be read",
                hints=[
                    "run the script again that made it: `Tuner(…).fit()` with the same `name` and `storage_path` resumes it",
                    "or put the file back from a copy; `Result.from_path` reads the directory of each trial",
                ],
            )
        text = f"`{joined(where, EXPERIMENT_FILE)}` {what}: this is what `{TRIALS_FILE}` says of the experiment"
        warnings.warn(text, stacklevel=2)
    trials, unreadable = _trials(lines)
    if not _is_live(record):
        if filesystem is None and _may_lack(trials, unreadable, record, lines):
            from carril._native import completed_lines

            trials, _ = _trials(completed_lines(where) or lines)
        for trial in trials:
            if trial.status in _LIVE_STATES:
                trial.status = "unfinished"
    return StoredExperiment(where, record, trials, filesystem, unreadable)


def _may_lack(trials: list[StoredTrial], unreadable: int, record: dict[str, Any], lines: str) -> bool:
    """Whether the lines have lost something that the trials' own directories have: then these are worth a look."""
    is_cut = record["status"] != "running" and '"closed"' not in lines[-1000:]
    has_gap = [trial.number for trial in trials] != list(range(len(trials)))
    return unreadable > 0 or is_cut or has_gap or not all(trial.is_over for trial in trials)


def _record_in(lines: str) -> dict[str, Any]:
    """The record that the last start has written into the lines, and how the experiment ended since; {} where there is none."""
    record: dict[str, Any] = {}
    for line in lines.split("\n")[:-1]:
        if line.startswith(_TOLD) or ('"record"' not in line and '"closed"' not in line):
            continue
        event = _object(line)
        if event.get("event") in ("opened", "resumed"):
            record = _of(event, "record", dict) or record
        elif event.get("event") == "closed" and record:
            record = {**record, "status": event.get("status"), "reason": event.get("reason"), "ended": event.get("at")}
    return record


def _is_live(record: dict[str, Any]) -> bool:
    """Whether a head has the experiment, as far as can be seen from here."""
    if record["status"] != "running":
        return False
    from carril._native import is_experiment_live

    return is_experiment_live(json.dumps(record)) is not False


def _object(text: str) -> dict[str, Any]:
    try:
        value, _ = _decode(text)
    except ValueError:  # torn
        return {}
    return value if isinstance(value, dict) else {}


def _trials(text: str) -> tuple[list[StoredTrial], int]:
    """The trials, and how many lines are no head's."""
    trials: dict[int, StoredTrial] = {}
    others: list[tuple[int, int, dict[str, Any]]] = []
    unreadable = 0
    # What follows the last line end is just being written, or was torn.
    for at, line in enumerate(text.split("\n")[:-1]):
        if line.startswith(_TOLD) or not line.strip():
            continue
        event = _object(line)
        kind, number = _of(event, "event", str), _of(event, "trial", int)
        if kind == "made" and number is not None:
            made = _made(number, event, at)
            if made is None:
                unreadable += 1
            # The same line twice says nothing new; one that began again after a failure has another directory.
            elif number not in trials or trials[number].directory != made.directory:
                trials[number] = made
        elif kind is not None and number is not None:
            others.append((at, number, event))
        elif kind not in _OWN:
            unreadable += 1
    for at, number, event in others:
        trial = trials.get(number)
        if trial is None:
            unreadable += 1
        # STORED-2, and what an earlier life has left is not of this one.
        elif trial.status != "terminated" and (at > trial.made_at or _of(event, "status", str) == "terminated"):
            _apply(trial, event)
            trial.ended_at = max(at, trial.made_at)
    return [trials[number] for number in sorted(trials)], unreadable


def _of(event: dict[str, Any], name: str, kind: type[_Kind]) -> _Kind | None:
    """A field where it is of this kind: somebody may have written anything into the file."""
    value = event.get(name)
    return value if isinstance(value, kind) and not isinstance(value, bool) else None


def _made(number: int, event: dict[str, Any], at: int) -> StoredTrial | None:
    own, name, directory = (_of(event, field, str) for field in ("id", "name", "directory"))
    if own is None or name is None or directory is None:
        return None
    config = _of(event, "config", dict) or {}
    return StoredTrial(
        number,
        id=own,
        name=name,
        directory=directory,
        tag=_of(event, "tag", str) or "",
        config=config,
        resources=_of(event, "resources", dict) or {},
        made_at=at,
        made_as=config,
    )


def _apply(trial: StoredTrial, event: dict[str, Any]) -> None:
    """STORED-1."""
    kind, reason = event["event"], _of(event, "reason", str) or ""
    if kind == "started":
        # After an end this is another life: what the one before has reached stays until the next end.
        trial.status, trial.reason, trial.error = "running", "", None
    elif kind == "waits":
        trial.status, trial.reason = "pending", reason
    elif kind == "placed":
        trial.status, trial.reason = "running", ""
    elif kind == "paused":
        trial.status, trial.reason = "paused", reason
    elif kind == "exploited":
        trial.config, trial.status = _of(event, "config", dict) or trial.config, "paused"
    elif kind == "ended":
        # One that an exploit gave it, and that it never reported with, is not the config of its result.
        trial.config = _of(event, "config", dict) or trial.config
        trial.status, trial.reason = _of(event, "status", str) or "terminated", reason
        trial.iterations = int(_of(event, "iterations", int) or 0)
        trial.seconds = float(_of(event, "seconds", float) or _of(event, "seconds", int) or 0.0)
        trial.metrics, trial.error = _of(event, "metrics", dict) or None, _of(event, "error", str)
        trial.checkpoint, trial.early = _of(event, "checkpoint", str), event.get("early") is True


class NoExperimentError(NotFoundError, ValueError):
    """There is no experiment. A ValueError too, which Ray raises in such a place."""


def _not_found(where: str, kept: Place, filesystem: Any) -> NotFoundError:
    is_local = filesystem is None and not is_uri(where)
    parent, _ = parent_and_name(where)
    if is_local and not os.path.exists(where):
        return NoExperimentError(f"`{where}` does not exist")
    # The root of a file system or a bucket has nothing above it.
    has_parent = bool(split_uri(parent)[1] if is_uri(where) else parent)
    if has_parent and place(parent, filesystem).read(EXPERIMENT_FILE) is not None:
        hint = f"it is the directory of a trial; its experiment is `{parent}`"
    else:
        inside = [name for name in kept.names() if is_local and os.path.exists(f"{where}/{name}/{EXPERIMENT_FILE}")]
        named = ", ".join(f"`{name}`" for name in inside[:5])
        hint = (
            f"it holds the experiments {named}: give the path of one"
            if inside
            else "an experiment's directory is its `storage_path` and its name: see `ResultGrid.experiment_path`"
        )
    return NoExperimentError(
        f"`{where}` is not the directory of an experiment: it has no `{EXPERIMENT_FILE}`", hints=[hint]
    )


def look_up(metrics: dict[str, Any], name: str) -> Any:
    """A metric by its name, `a/b` for one inside a dict; None if it is not there."""
    if name in metrics:
        return metrics[name]
    first, slash, rest = name.partition("/")
    inner = metrics.get(first) if slash else None
    return look_up(inner, rest) if isinstance(inner, dict) else None


def flat_parameters(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a/b": 1}`."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict) and value:
            flat.update(flat_parameters(value, f"{prefix}{name}/"))
        else:
            flat[f"{prefix}{name}"] = value
    return flat
