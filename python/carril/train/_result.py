"""What a run leaves behind: `fit()` returns it, `Result.from_path` reads it from the run's directory again.

The values of every report are read from the run's files when they are asked for; a result itself is small and pickles.
"""

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from carril import _native
from carril._internal.generation import under_as_ray
from carril.exceptions import ConfigError, NotFoundError
from carril.train._locations import is_uri, pyarrow_filesystem

if TYPE_CHECKING:
    from collections.abc import Container
    from pathlib import Path

    import pandas

    from carril.train._checkpoint import Checkpoint

# What the head adds to each report of rank 0.
AUTOMATIC_FIELDS = frozenset(_native.AUTOMATIC_FIELDS)


# What the run reported: one JSON object per line.
_RUN_FILE = "result.json"


class MissingMetricError(KeyError):
    """A metric was asked for that was not reported. Its text is a sentence, which KeyError would put in quotes."""

    def __str__(self) -> str:
        return str(self.args[0])


class Metrics(dict[str, Any]):
    """The metrics of a report. A missing key is an error that lists the keys there are."""

    def __missing__(self, key: str) -> Any:
        from carril._internal.near import near

        own = [str(name) for name in self if name not in AUTOMATIC_FIELDS]
        names = ", ".join(f"`{name}`" for name in own)
        meant = near(key, [*own, *flatten(self), *map(str, self)])
        hint = f"\nhint: did you mean `{meant}`?" if meant is not None else ""
        raise MissingMetricError(f"no metric `{key}` was reported; there are {names or 'none'}{hint}")


def reported(metrics: dict[str, Any], own: "Container[str] | None") -> dict[str, Any]:
    """What the function reported: without the automatic fields that are not its `own`. All, where that is None."""
    if own is None:
        return metrics
    return {name: value for name, value in metrics.items() if name not in AUTOMATIC_FIELDS or name in own}


@dataclass(repr=False)
class Result:
    """The outcome of a run: metrics, checkpoints, files.

    `metrics` is the last report. `best_checkpoints` is in ascending order, the best last: by the score of the
    CheckpointConfig, and without one in the order of the reports.
    """

    metrics: Metrics | None = None
    checkpoint: "Checkpoint | None" = None
    error: BaseException | None = None
    path: str | None = None
    best_checkpoints: "list[tuple[Checkpoint, dict[str, Any]]]" = field(default_factory=list)
    return_value: Any = None
    # Each failure that the run has survived: the number of the attempt that followed, the reason, the code, the time.
    restarts: list[dict[str, Any]] = field(default_factory=list)
    # The reports of a run without files (`num_workers=0`).
    _reports: list[dict[str, Any]] = field(default_factory=list, repr=False)
    # What each rank returned, where more than rank 0 was asked.
    _rank_values: list[Any] = field(default_factory=list, repr=False)
    # The object that `path` is a path in, where the run has a `storage_filesystem`.
    _filesystem: Any = field(default=None, repr=False, compare=False)

    @property
    def log_dir(self) -> "Path | None":
        """The run's directory, as a Path; None if it is not a local one."""
        from pathlib import Path

        if self.path is None or self._filesystem is not None or is_uri(self.path):
            return None
        return Path(self.path)

    @property
    def filesystem(self) -> Any:
        """The run's `storage_filesystem`; otherwise pyarrow's for `path`, where pyarrow is installed, or None."""
        return self._filesystem if self._filesystem is not None else pyarrow_filesystem(self.path or "")

    def _read(self, key: str) -> bytes | None:
        """A file of the run's; None if there is none."""
        from carril.train._places import place

        return None if self.path is None else place(self.path, self._filesystem).read(key)

    @property
    def config(self) -> dict[str, Any] | None:
        """What the training function was given."""
        if self.metrics is not None and "config" in self.metrics:
            given: dict[str, Any] = self.metrics["config"]
            return given
        data = self._read("params.json")
        return None if data is None else parse_object(data)

    def rank_metrics(self, rank: int) -> list[dict[str, Any]]:
        """Every report of one rank, in order."""
        if self.path is None:
            if rank == 0:
                return list(self._reports)
            raise NotFoundError(f"there is no rank {rank}: the run had one, in the calling process")
        name = f"ranks/rank_{rank}.json"
        data = self._read(name)
        if data is None:
            if rank != 0:
                raise NotFoundError(f"rank {rank} has reported nothing, or there was none: `{name}` is not there")
            # Without `metrics_reduce` the run's values are those of rank 0, and are kept once.
            data = self._read(_RUN_FILE)
        return parse_lines(data, f"{self.path}/{name}")

    @property
    def metrics_dataframe(self) -> "pandas.DataFrame":
        """One row per report; a nested key `{"a": {"b": …}}` is the column `a/b`."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError(
                "`metrics_dataframe` needs pandas, which is not installed\n"
                "hint: `pip install pandas`, or use `rank_metrics(0)`, which needs nothing"
            ) from error
        path = f"{self.path}/{_RUN_FILE}"
        rows = self._reports if self.path is None else parse_lines(self._read(_RUN_FILE), path)
        return pandas.DataFrame([flatten(row) for row in rows])

    def get_best_checkpoint(self, metric: str, mode: str) -> "Checkpoint | None":
        """The checkpoint whose metric is the largest (`mode="max"`) or smallest (`mode="min"`)."""
        if mode not in ("max", "min"):
            raise ConfigError(f"`mode` is {mode!r}: it must be 'max' or 'min'")
        if not self.best_checkpoints:
            raise NotFoundError("the run has no checkpoint")
        scored = [pair for pair in self.best_checkpoints if flatten(pair[1]).get(metric) is not None]
        if not scored:
            names = sorted({name for _, metrics in self.best_checkpoints for name in flatten(metrics)})
            raise NotFoundError(f"no checkpoint has the metric `{metric}`; there are {', '.join(names)}")
        return in_order(scored, metric, mode)[-1][0]

    @classmethod
    def from_path(
        cls, path: "str | os.PathLike[str]", storage_filesystem: Any = None, *, verify: bool = True
    ) -> "Result":
        """Reads the result of a run from its directory, also while the run goes on.

        `path` is a local path or a URI; with `storage_filesystem` it is a path in that. A checkpoint with a file that
        is missing or has another size is named in a warning and left out; contents are compared when they are read.
        With `verify=False` the checkpoints are given as they are.
        """
        from carril.train._stored import read_result

        return read_result(cls, path, storage_filesystem, verify)

    def __repr__(self) -> str:
        """In a line: what it is, what was reached, where it is. The rest is in its fields."""
        if under_as_ray():
            return self._as_ray_shows_it()
        from carril.train._console_text import clipped, metrics_shown

        facts = [f"name={os.path.basename(self.path.rstrip('/'))!r}"] if self.path else []
        facts.append(f"metrics={metrics_shown(self.metrics)}")
        if self.checkpoint is not None:
            facts.append(f"checkpoint={os.path.basename(str(self.checkpoint.path).rstrip('/'))!r}")
        if self.path is not None:
            facts.append(f"path={self.path!r}")
        if self.return_value is not None:
            facts.append(f"return_value={clipped(self.return_value)}")
        if self.error is not None:
            first = str(self.error).partition("\n")[0]
            facts.append(f"error={type(self.error).__name__}: {first}")
        return f"{type(self).__name__}({', '.join(facts)})"

    def _as_ray_shows_it(self) -> str:
        """The fields that are set, as scripts print and search them."""
        fields = [
            ("metrics", self.metrics),
            ("path", self.path),
            ("checkpoint", self.checkpoint),
            ("error", self.error),
        ]
        shown = [f"{name}={dict(value) if isinstance(value, dict) else value!r}" for name, value in fields if value]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _repr_html_(self) -> str:
        from html import escape

        rows = [("path", self.path), ("error", self.error and str(self.error)), ("checkpoint", self.checkpoint)]
        rows.extend((name, value) for name, value in (self.metrics or {}).items() if name not in AUTOMATIC_FIELDS)
        body = "".join(
            f"<tr><th style='text-align:left'>{escape(str(name))}</th><td>{escape(str(value))}</td></tr>"
            for name, value in rows
            if value is not None
        )
        return f"<table>{body}</table>"


def parse_object(data: bytes) -> dict[str, Any] | None:
    """The JSON object that a file or a line holds; None if it holds something else."""
    import json

    try:
        value = json.loads(data)
    except (ValueError, RecursionError):  # also what is no text
        return None
    return value if isinstance(value, dict) else None


def parse_lines(data: bytes | None, path: str) -> list[dict[str, Any]]:
    """The objects of a file with one JSON object per line. What is torn or foreign is left out, and counted in one warning."""
    lines = [line for line in (data or b"").split(b"\n") if line.strip()]
    rows = [row for row in map(parse_object, lines) if row is not None]
    if len(rows) < len(lines):
        import warnings

        count = len(lines) - len(rows)
        told = "1 line that is" if count == 1 else f"{count} lines that are"
        warnings.warn(f"`{path}` has {told} no JSON object: left out", stacklevel=3)
    return rows


def flatten(metrics: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a/b": 1}`."""
    flat: dict[str, Any] = {}
    for name, value in metrics.items():
        if isinstance(value, dict) and value:
            flat.update(flatten(value, f"{prefix}{name}/"))
        else:
            flat[prefix + name] = value
    return flat


def in_order(
    checkpoints: "list[tuple[Checkpoint, dict[str, Any]]]", metric: str | None, mode: str
) -> "list[tuple[Checkpoint, dict[str, Any]]]":
    """Ascending by score, the best last; a missing score or NaN is worst in both modes; ties in order of report."""
    if metric is None:
        return list(checkpoints)

    def score(pair: "tuple[Checkpoint, dict[str, Any]]") -> tuple[bool, float]:
        value = flatten(pair[1]).get(metric)
        if isinstance(value, (int, float)) and value == value:
            return True, float(value) if mode == "max" else -float(value)
        return False, 0.0

    return sorted(checkpoints, key=score)
