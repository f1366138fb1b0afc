"""What `fit()` prints: the workers' lines with their rank, sparse lines of progress, and a table at the end.

Plain lines only, so that a log file and a notebook read as well as a terminal.
"""

import sys
import time
from typing import Any

from carril.train._result import AUTOMATIC_FIELDS, flatten

_SECONDS_IN_A_LOG = 5.0
_SECONDS_ON_A_TERMINAL = 1.0
_METRICS_IN_A_LINE = 4
_RANKS_IN_THE_TABLE = 4
_SHOWN_STATES = ("waiting", "running", "stopping")


class Console:
    """The lines of one run. With `verbose=0` only the workers' own lines and warnings are printed."""

    def __init__(self, name: str, verbose: int) -> None:
        self._name = name
        self._verbose = verbose
        self._last_progress = time.monotonic()
        self._last_state = ""

    def say(self, text: str) -> None:
        if self._verbose > 0:
            _write(f"carril: {text}\n")

    def output(self, rank: int, text: bytes) -> None:
        prefix = f"(rank {rank}) "
        lines = text.decode("utf-8", "replace").split("\n")
        if lines and not lines[-1]:
            lines.pop()
        _write("".join(f"{prefix}{_last_overwrite(line)}\n" for line in lines))

    def warning(self, text: str) -> None:
        _write(f"carril: warning: {text}\n")

    def state(self, state: str, reason: str) -> None:
        line = f"{state}: {reason}" if reason else state
        if state in _SHOWN_STATES and line != self._last_state:
            self._last_state = line
            self.say(line)

    def started(self, workers: list[dict[str, Any]]) -> None:
        plain = sorted({worker["how"] for worker in workers if worker.get("how") not in (None, "", "forked")})
        nodes = sorted({worker["node"] for worker in workers})
        where = nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes"
        note = f" ({'; '.join(plain)})" if plain and self._verbose > 1 else ""
        self.say(f"{_count(len(workers), 'worker')} of `{self._name}` on {where}{note}")

    def progress(self, iteration: int, metrics: dict[str, Any], seconds: float) -> None:
        now = time.monotonic()
        wait = _SECONDS_ON_A_TERMINAL if sys.stdout.isatty() else _SECONDS_IN_A_LOG
        if self._verbose > 0 and now - self._last_progress >= wait:
            self._last_progress = now
            parts = [f"report {iteration}", *_shown(metrics)[:_METRICS_IN_A_LINE], f"{seconds:.1f} s"]
            self.say(" · ".join(parts))

    def finished(self, ended: dict[str, Any], path: str) -> None:
        if self._verbose <= 0:
            return
        reached = [_count(ended["iterations"], "report")]
        if ended["checkpoints"]:
            reached.append(_count(len(ended["checkpoints"]), "checkpoint"))
        lines = [f"carril: `{self._name}` finished: {', '.join(reached)} in {ended['seconds']:.1f} s"]
        lines.extend("  " + line for line in _table(ended["metrics"] or {}, ended["ranks"] or {}))
        lines.append(f"  files       {path}")
        if ended["checkpoints"]:
            lines.append(f"  checkpoint  {ended['checkpoints'][-1]['path']}")
        if ended["iterations"]:
            lines.append(f"  next        tensorboard --logdir {path}")
        _write("\n".join(lines) + "\n")

    def failed(self, ended: dict[str, Any], path: str) -> None:
        self.say(
            f"`{self._name}` {ended['status']} after {_count(ended['iterations'], 'report')} "
            f"in {ended['seconds']:.1f} s; files in {path}"
        )


def _write(text: str) -> None:
    # One call per block of lines: lines of two runs in two threads do not mix.
    sys.stdout.write(text)
    sys.stdout.flush()


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def _last_overwrite(line: str) -> str:
    """What a terminal would show of a line that a progress bar has written over."""
    if "\r" not in line:
        return line
    shown = [part for part in line.split("\r") if part]
    return shown[-1] if shown else ""


def _format(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "…"


def _shown(metrics: dict[str, Any]) -> list[str]:
    return [f"{name} {_format(value)}" for name, value in flatten(metrics).items() if _is_users(name)]


def _is_users(name: str) -> bool:
    return name.partition("/")[0] not in AUTOMATIC_FIELDS


def _table(metrics: dict[str, Any], ranks: dict[int, dict[str, Any]]) -> list[str]:
    """The last report: the run's values, and beside them each rank's where there are several."""
    names = [name for name in flatten(metrics) if _is_users(name)]
    if not names:
        return []
    columns = [("", names), ("run", [_format(flatten(metrics)[name]) for name in names])]
    if len(ranks) > 1:
        for rank in sorted(ranks)[:_RANKS_IN_THE_TABLE]:
            flat = flatten(ranks[rank])
            columns.append((f"rank {rank}", [_format(flat[name]) if name in flat else "" for name in names]))
        if len(ranks) > _RANKS_IN_THE_TABLE:
            columns.append((f"… {len(ranks)} ranks", ["" for _ in names]))
    widths = [max(len(title), *(len(cell) for cell in cells)) for title, cells in columns]
    rows = [[title for title, _ in columns], *([cells[i] for _, cells in columns] for i in range(len(names)))]
    return [_row(row, widths) for row in rows]


def _row(cells: list[str], widths: list[int]) -> str:
    first, *rest = (
        cell.ljust(width) if i == 0 else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join((first, *rest)).rstrip()
