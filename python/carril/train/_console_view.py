"""A run as it stands, for a display that shows it in place: kept up to date by its driver, read by a display's thread."""

import itertools
import os
import time
from collections import deque
from typing import Any, TextIO

from carril.train import _console_text as words
from carril.train._console_curve import Curves

# The rate is that of the last seconds.
_RATE_OVER_S = 10.0
_SAMPLES = 200

_COLOURS = {"running": "32", "finished": "32", "waiting": "33", "stopping": "33", "failed": "31", "aborted": "31"}


def wants_colour() -> bool:
    """False where the user has said so in the way that all programs understand."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def can_redraw(stream: TextIO) -> bool:
    """True for a terminal that can do more than print lines."""
    try:
        return stream.isatty() and stream.fileno() >= 0 and os.environ.get("TERM", "dumb") not in ("", "dumb")
    except (AttributeError, OSError, ValueError):  # closed, or replaced by something that is no file
        return False


def coloured(text: str, state: str, colour: bool) -> str:
    """The text in the colour of a state."""
    code = _COLOURS.get(state) if colour else None
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


class View:
    """Every field is replaced whole, so that a reader in another thread needs no lock."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = "starting"
        self.reason = ""
        self.place = ""
        self.iteration = 0
        self.checkpoints = 0
        # Of which those are kept.
        self.saved = 0
        self.metrics: dict[str, Any] = {}
        self.ranks: dict[int, dict[str, Any]] = {}
        self.bars: dict[int, str] = {}
        self.curves = Curves()
        self.standing: dict[str, Any] = {}
        # When it was first said how much is done, how much that was, and of what.
        self._first_done: tuple[float, float, object] | None = None
        self._began = time.monotonic()
        self._samples: deque[tuple[float, int]] = deque(maxlen=_SAMPLES)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def progressed(self, iteration: int, metrics: dict[str, Any], ranks: dict[int, dict[str, Any]]) -> None:
        self.iteration, self.metrics = iteration, metrics
        self.ranks = ranks or self.ranks
        now = time.monotonic()
        # Ten samples a second are enough: some runs report a thousand times as often.
        if not self._samples or now - self._samples[-1][0] >= 0.1:
            self._samples.append((now, iteration))
            self.curves.add(iteration, metrics)

    def rate(self) -> float | None:
        """Reports per second, lately; None before there is a second one."""
        now, samples = time.monotonic(), list(self._samples)
        recent = [sample for sample in samples if now - sample[0] <= _RATE_OVER_S] or samples[-2:]
        if len(recent) < 2 or recent[-1][1] == recent[0][1]:
            return None
        began, first = recent[0]
        # While none comes the rate falls; right after one it is that of the time between them.
        until = now if now - recent[-1][0] > 1.0 else recent[-1][0]
        return (recent[-1][1] - first) / (until - began)

    def median(self) -> float | None:
        """The median time between reports; None before there are three."""
        samples = list(self._samples)
        each = sorted(
            (later[0] - earlier[0]) / (later[1] - earlier[1])
            for earlier, later in itertools.pairwise(samples)
            if later[1] > earlier[1]
        )
        return each[len(each) // 2] if len(each) > 1 else None

    def stands(self, standing: dict[str, Any]) -> None:
        done, what, first = standing["done"], (standing["data"], standing["epoch"]), self._first_done
        # After a restart less is done than before.
        if done is not None and (first is None or done < first[1] or what != first[2]):
            self._first_done = time.monotonic(), done, what
        self.standing = standing

    def outlook(self) -> list[str]:
        """How far it is and when it will be done, where the function says so; else how far the epoch is, where rows are counted."""
        done, first = self.standing.get("done"), self._first_done
        if done is None or first is None:
            return []
        total = self.standing["total"]
        percent = f"{100 * done / total:.0f} %"
        data, epoch = self.standing["data"], self.standing["epoch"]
        facts = [f"epoch {epoch} of `{data}` {percent}" if data else percent]
        if done > first[1] and self.state == "running":
            left = (time.monotonic() - first[0]) * (total - done) / (done - first[1])
            facts.append(f"{words.clock(left)} left{' in it' if data else ''}")
        return facts

    def group(self) -> list[str]:
        """Who lags behind, and what the group uses."""
        if self.state != "running":
            return []
        behind, used = self.standing.get("behind"), self.standing.get("usage")
        facts = [words.behind(behind, self.standing["reports_behind"])] if behind else []
        return [*facts, words.usage(used)] if used else facts

    def why(self) -> str:
        """The reason of the state, where that says more."""
        return "" if self.state == "running" else words.one_line(self.reason)

    def facts(self) -> list[str]:
        """What was reached until now."""
        facts = self.outlook()
        if self.iteration:
            rate = self.rate() if self.state == "running" else None
            facts.append(f"report {self.iteration:,}")
            facts.extend([words.rate(rate)] if rate is not None else [])
            is_told = self.standing.get("done") is not None and not self.standing["data"]
            each = self.median() if self.state == "running" and not is_told else None
            # Faster than that the rate says as much.
            facts.extend([f"{words.span(each)} each"] if each is not None and each >= 0.1 else [])
        if self.checkpoints:
            facts.append(words.kept(self.checkpoints, self.saved))
        return facts

    def bar(self) -> str:
        """The progress bar of the first rank that has one."""
        bars = self.bars
        return f"(rank {min(bars)}) {bars[min(bars)]}" if bars else ""

    def block(self, columns: int, colour: bool) -> list[str]:
        """The lines for a terminal, none of them wider than it."""
        head = [f"carril {words.clock(self.seconds)}", self.state, self.place, self.name, self.why()]
        lines = [words.clip(" · ".join(filter(None, head)), columns)]
        if colour:
            # The word stands at a known place, if it was not cut.
            lines[0] = lines[0].replace(f" {self.state}", f" {coloured(self.state, self.state, colour)}", 1)
        facts = [*self.facts(), *words.metrics_in_a_line(self.metrics)]
        if facts:
            lines.append(words.clip("  " + " · ".join(facts), columns))
        group = self.group()
        if group:
            lines.append(words.clip("  " + " · ".join(group), columns))
        bar = self.bar()
        if bar:
            lines.append(words.clip("  " + bar, columns))
        return lines
