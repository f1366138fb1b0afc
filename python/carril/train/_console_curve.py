"""The curves of a run's metrics: a few numbers for each, and a small picture of them for a notebook.

CURVE-1: what is kept is bounded, however long the run: when it is full every other point goes, and from then on every other
  report is left out.
"""

import math
from html import escape
from typing import Any

from carril.train import _console_text as words

_POINTS = 240
_METRICS = 16
_SHOWN = 3
_WIDTH, _HEIGHT = 220, 48


class Curves:
    """Replaced whole where a reader in another thread could see half of it."""

    def __init__(self) -> None:
        self._points: dict[str, list[tuple[int, float]]] = {}
        self._every = 1
        self._seen = 0

    def add(self, iteration: int, metrics: dict[str, Any]) -> None:
        self._seen += 1
        if self._seen % self._every:
            return
        for name, given in words.users(metrics).items():
            # Of an integer beyond 64 bits there is no point to draw.
            is_number = isinstance(given, float) or (type(given) is int and abs(given) < 1 << 63)
            if is_number and (name in self._points or len(self._points) < _METRICS):
                self._points.setdefault(name, []).append((iteration, float(given)))
        if any(len(points) >= _POINTS for points in self._points.values()):
            self._points = {name: points[::2] for name, points in self._points.items()}
            self._every *= 2

    def shown(self) -> dict[str, list[tuple[int, float]]]:
        """Those that say something: counters come last."""
        found = {}
        for name, points in list(self._points.items()):
            finite = [point for point in points if math.isfinite(point[1])]
            if len(finite) > 1 and any(value != finite[0][1] for _, value in finite):
                found[name] = finite
        names = sorted(found, key=lambda name: _is_counter([value for _, value in found[name]]))
        return {name: found[name] for name in names[:_SHOWN]}


def _is_counter(values: list[float]) -> bool:
    return all(value.is_integer() for value in values) and values == sorted(values)


def svg_of(curves: Curves) -> str:
    """A picture for each, side by side; empty before there is anything to see."""
    cells = []
    for name, points in curves.shown().items():
        values = [value for _, value in points]
        low, high, first, last = min(values), max(values), points[0][0], points[-1][0]
        across = (_WIDTH - 4) / max(last - first, 1)
        # Halves: the span of the largest numbers is beyond the largest number.
        share = [(value / 2 - low / 2) / (high / 2 - low / 2) for value in values]
        places = [
            (2 + (at - first) * across, _HEIGHT - 3 - up * (_HEIGHT - 6))
            for (at, _), up in zip(points, share, strict=True)
        ]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        title = f"{escape(name)} {words.value(values[-1])}"
        span = f"{words.value(low)} to {words.value(high)}, reports {first:,} to {last:,}"
        cells.append(
            f"<div style='display:inline-block;margin-right:1em'><small>{title}</small><br>"
            f"<svg width='{_WIDTH}' height='{_HEIGHT}' role='img'><title>{span}</title>"
            f"<polyline fill='none' stroke='#2a7' stroke-width='1.5' points='{line}'/></svg></div>"
        )
    return f"<div>{''.join(cells)}</div>" if cells else ""
