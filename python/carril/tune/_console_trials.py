"""What the console keeps of the trials of an experiment, so that showing them costs the same for ten and ten thousand.

The driver's thread writes, a display's thread reads: what it reads is copied in one step each, and a picture that is
a moment old is put right by the next one.

TRIALS-1: neither a change nor a look goes through all trials; a change costs one insertion into a sorted list.
TRIALS-2: of a trial that has ended only what can be shown is kept.
TRIALS-3: `counts` at any moment add up to the trials that there are.
"""

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

from carril._native import trial_states
from carril.train import _console_text as words
from carril.tune._stored import flat_parameters, look_up

# In the order in which they are printed.
STATES = tuple(state for state, _ in trial_states())
OVER = tuple(state for state, is_over in trial_states() if is_over)
_PENDING_SHOWN = 2
_LATEST_KEPT = 20
_METRICS_KNOWN = 50
_PLAIN = (str, int, float, bool, type(None))


class TrialView(NamedTuple):
    """A trial as it stands. `reason` is why it waits, was paused or has ended; `directory` is a name."""

    number: int
    id: str
    name: str
    # "pending", "running", "paused", "terminated", "error"; "stopped" where a scheduler ended it before its time,
    # "unfinished" where the experiment has ended before it.
    status: str
    config: dict[str, Any]
    metrics: dict[str, Any] | None = None
    iterations: int = 0
    seconds: float = 0.0
    reason: str = ""
    directory: str = ""

    @property
    def is_over(self) -> bool:
        return self.status in OVER


def shared_prefix(names: Iterable[str]) -> str:
    """What all of these names begin with, as far as whole parts go: `train/` of `train/lr` and `train/opt/name`."""
    parts = [name.split("/")[:-1] for name in names]
    shared: list[str] = []
    for column in zip(*parts, strict=False):
        if len(set(column)) > 1:
            break
        shared.append(column[0])
    return "".join(f"{part}/" for part in shared)


def parameter_text(value: Any) -> str:
    """A parameter in a cell. An object by its name: its text may be a page long, and slow to make."""
    if isinstance(value, _PLAIN):
        return words.value(value)
    if isinstance(value, (list, tuple)) and len(value) <= 10:
        inner = ", ".join(map(parameter_text, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return str(getattr(value, "__name__", None) or type(value).__name__)


class Trials:
    """The trials of one experiment."""

    def __init__(self, metric: str | None, mode: str | None, named: Iterable[str] = ()) -> None:
        """`named` are further metrics that are shown, whether a user reported them or not."""
        self.metric, self.mode = metric, mode
        self._named = [*named, *([metric] if metric is not None else [])]
        self.counts = dict.fromkeys(STATES, 0)
        self._views: dict[int, TrialView] = {}
        self._running: dict[int, TrialView] = {}
        self._pending: dict[int, TrialView] = {}
        self._paused: dict[int, TrialView] = {}
        # How long those took that have ended well, in order.
        self._durations: list[float] = []
        # (badness, number): the best trial is first.
        self._ranked: list[tuple[float, int]] = []
        self._scores: dict[int, float] = {}
        self._latest: deque[int] = deque(maxlen=_LATEST_KEPT)
        self._first_parameters: dict[str, Any] = {}
        self._varying: dict[str, None] = {}
        self._metrics: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._views)

    def get(self, number: int) -> TrialView | None:
        return self._views.get(number)

    def all(self) -> list[TrialView]:
        """Every trial: for a reporter of the user's, which asks for it."""
        return list(self._views.values())

    def put(self, view: TrialView) -> None:
        """A trial that is new, or has changed."""
        before = self._views.get(view.number)
        view = self._with_metric(before, view)
        # Replaced as a whole: who reads it meanwhile finds every trial in one state, also one that is just starting.
        counts = {**self.counts, view.status: self.counts.get(view.status, 0) + 1}
        if before is not None:
            counts[before.status] -= 1
        self.counts = counts
        if before is None or view.config is not before.config:
            self._notice_parameters(view.config)
        if view.metrics and (before is None or not before.metrics):
            self._notice_metrics(view.metrics)
        self._rank(view)
        if view.is_over:
            if before is None or not before.is_over:
                self._latest.append(view.number)
                if view.status != "error" and view.seconds > 0:
                    insort(self._durations, view.seconds)
            view = view._replace(metrics=self._shown_metrics(view.metrics or {}))
        self._views[view.number] = view
        for state, kept in (("running", self._running), ("pending", self._pending), ("paused", self._paused)):
            if view.status == state:
                kept[view.number] = view
            else:
                kept.pop(view.number, None)

    def _with_metric(self, before: TrialView | None, view: TrialView) -> TrialView:
        """A report may lack the metric: the last one that had it counts."""
        if self.metric is None or not view.metrics or before is None or not before.metrics:
            return view
        known = look_up(before.metrics, self.metric)
        if known is None or look_up(view.metrics, self.metric) is not None:
            return view
        return view._replace(metrics={**view.metrics, self.metric: known})

    def _shown_metrics(self, metrics: dict[str, Any]) -> dict[str, Any]:
        """TRIALS-2."""
        named = {name: look_up(metrics, name) for name in self._named}
        return {**words.users(metrics), **{name: value for name, value in named.items() if value is not None}}

    def _notice_parameters(self, config: dict[str, Any]) -> None:
        flat = flat_parameters(config)
        is_first = not self._first_parameters
        for name, value in flat.items():
            compared = value if isinstance(value, _PLAIN) else parameter_text(value)
            if name not in self._first_parameters:
                self._first_parameters[name] = compared
                # What only some trials have varies too.
                if not is_first:
                    self._varying[name] = None
            elif name not in self._varying and self._first_parameters[name] != compared:
                self._varying[name] = None
        self._varying.update(dict.fromkeys(name for name in self._first_parameters if name not in flat))

    def _notice_metrics(self, metrics: dict[str, Any]) -> None:
        for name in words.users(metrics):
            if len(self._metrics) < _METRICS_KNOWN:
                self._metrics[name] = None

    def _rank(self, view: TrialView) -> None:
        """TRIALS-1."""
        if self.metric is None or view.metrics is None:
            return
        value = look_up(view.metrics, self.metric)
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            badness = None
        else:
            badness = -float(value) if self.mode == "max" else float(value)
        old = self._scores.pop(view.number, None)
        if old == badness and old is not None:
            self._scores[view.number] = old
            return
        if old is not None:
            del self._ranked[bisect_left(self._ranked, (old, view.number))]
        if badness is not None:
            insort(self._ranked, (badness, view.number))
            self._scores[view.number] = badness

    @property
    def parameters(self) -> list[str]:
        """Those that differ between trials, in the order of the configuration."""
        varying = dict(self._varying)
        return [name for name in list(self._first_parameters) if name in varying]

    @property
    def metrics(self) -> list[str]:
        """Those that were reported."""
        return list(self._metrics)

    @property
    def median_seconds(self) -> float | None:
        """How long a trial took, of those that have ended well; None before there is one."""
        count = len(self._durations)
        return None if count == 0 else (self._durations[(count - 1) // 2] + self._durations[count // 2]) / 2

    def begun(self) -> tuple[list[TrialView], list[TrialView]]:
        """Those that run, and those that are paused."""
        return list(self._running.values()), list(self._paused.values())

    def best(self) -> TrialView | None:
        """The trial whose last result is the best."""
        first = self._ranked[:1]
        return self._views.get(first[0][1]) if first else None

    def shown(self, rows: int, by_metric: bool = False) -> list[TrialView]:
        """The trials for a table: those that run, a few that wait, then the best; with `by_metric` only the best first."""
        running = list(self._running.values())
        pending = list(islice(self._pending.values(), _PENDING_SHOWN))
        if by_metric:
            chosen: dict[int, TrialView] = {}
        else:
            pending = pending[: max(1, rows // 4)]
            first = [*running[: max(0, rows - len(pending))], *pending]
            chosen = {view.number: view for view in first}
        ranked = [number for _, number in self._ranked[: rows + len(chosen)]]
        # Where there is no metric to rank by, what ended last.
        for number in [*ranked, *reversed(list(self._latest))]:
            view = self._views.get(number)
            if view is not None and len(chosen) < rows:
                chosen.setdefault(number, view)
        for view in self._views.values() if by_metric else ():
            if len(chosen) >= rows:
                break
            chosen.setdefault(view.number, view)
        return list(chosen.values())[:rows]
