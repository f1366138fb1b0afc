"""An experiment as it stands, for a display that shows it in place: kept up to date by its driver, read by a display.

VIEW-1: what stands in place is made ten times a second at most: each line that a trial prints has it drawn again.
"""

import os
import sys
import time
from html import escape

from carril.train import _console_text as words
from carril.train._console_view import View
from carril.tune._console_table import TableOptions, html_of_table, lines_of, table_of
from carril.tune._console_trials import OVER, Trials, parameter_text, shared_prefix
from carril.tune._stored import flat_parameters, look_up

_SECONDS_OF_A_PICTURE = 0.1
# Lines of a terminal that are left to what the trials print.
_LEFT_FREE = 4


class ExperimentView(View):
    """An experiment as it stands, for a display that shows it in place."""

    def __init__(
        self, name: str, trials: Trials, total: int | None, options: TableOptions, longest: float | None = None
    ) -> None:
        """`longest` is the number of reports after which a trial is done, where that is known."""
        super().__init__(name)
        self.state = "running"
        self.trials, self.total, self.options, self.longest = trials, total, options, longest
        # Trials that had ended before this start of the experiment.
        self.done_before = 0
        self._picture: tuple[float, tuple[int, int, bool], list[str]] = (0.0, (0, 0, False), [])

    def facts(self) -> list[str]:
        """How many trials are in which state; while they run, when they will be done."""
        # One picture of them: a trial that starts meanwhile is in one of its states.
        counts = self.trials.counts
        done = _done(counts)
        # A search that has made more trials than it was asked for now has those.
        total = max(self.total, len(self.trials)) if self.total else None
        of = f"{done:,} of {words.count(total, 'trial')}" if total else words.count(done, "trial")
        states = [f"{counts[state]:,} {state}" for state in counts if counts[state]]
        facts = [f"{of} done", *(state for state in states if not state.endswith(" terminated"))]
        return [*facts, *self.outlook()] if self.state == "running" else facts

    @property
    def done(self) -> int:
        return _done(self.trials.counts)

    def outlook(self) -> list[str]:
        """How long a trial takes, and when the last one will be done, as far as what has happened tells."""
        median, left = self.trials.median_seconds, self.remaining()
        facts = []
        done = self.done - self.done_before
        if left is not None and left >= 1:
            facts.append(f"about {words.clock(left)} left")
        elif self.total is None and done > 0 and self.seconds > 0:
            facts.append(f"{words.rate(done / self.seconds)} trials")
        return facts if median is None else [*facts, f"median {_duration(median)} a trial"]

    def remaining(self) -> float | None:
        """Seconds until all trials have ended, if they take as long as those before, and as many run at once as now."""
        running, paused = self.trials.begun()
        whole = self.trials.median_seconds
        if whole is None and self.longest is not None:
            # None has ended: how long one takes is seen from how fast they come to the end.
            paces = sorted(trial.seconds / trial.iterations for trial in running if trial.iterations and trial.seconds)
            whole = paces[len(paces) // 2] * self.longest if paces else None
        if whole is None or self.total is None or not running:
            return None
        begun = sum(max(whole - trial.seconds, 0.0) for trial in (*running, *paused))
        to_come = max(0, self.total - self.done - len(running) - len(paused))
        return (begun + to_come * whole) / len(running)

    def best(self) -> str:
        """The best trial so far, its metric and what it was given; empty before there is one."""
        best, metric = self.trials.best(), self.trials.metric
        if best is None or metric is None:
            return ""
        flat = flat_parameters(best.config)
        names = self.trials.parameters
        prefix = shared_prefix(names)
        given = [f"{name.removeprefix(prefix)} {parameter_text(flat[name])}" for name in names if name in flat]
        reached = f"{metric} {words.value(look_up(best.metrics or {}, metric))}"
        return words.one_line(" · ".join([reached, best.name, f"report {best.iterations:,}", *given]))

    def table(self, rows: int, width: int, colour: bool = False) -> list[str]:
        """The table, and a line that says what it leaves out."""
        table = table_of(self.trials, self.options, rows, width - 2)
        more = len(self.trials) - len(table.trials)
        left = [f"{more:,} more {'trial' if more == 1 else 'trials'}"] if more > 0 else []
        left += [f"no room for {words.count(table.left_out, 'column')}"] if table.left_out else []
        tail = [words.clip(f"  … {' · '.join(left)}", width)] if left and table.trials else []
        return [*lines_of(table, width, colour), *tail]

    def block(self, columns: int, colour: bool) -> list[str]:
        """VIEW-1."""
        asked = (columns, _terminal_lines(), colour)
        made, before, lines = self._picture
        now = time.monotonic()
        if before != asked or now - made >= _SECONDS_OF_A_PICTURE:
            lines = self._lines(*asked)
            self._picture = (now, asked, lines)
        return lines

    def _lines(self, columns: int, height: int, colour: bool) -> list[str]:
        lines = super().block(columns, colour)
        best = self.best()
        if best:
            lines.append(words.clip(f"  best: {best}", columns))
        # Below them: the titles, the rows, and what was left out. One line of a terminal is never drawn on.
        rows = height - 1 - len(lines) - 2 - _LEFT_FREE
        return [*lines, *(self.table(rows, columns, colour) if rows > 0 else [])]

    def html_table(self) -> str:
        """The table for a notebook, and how many trials it leaves out."""
        table = table_of(self.trials, self.options, self.options.rows, None)
        more = len(self.trials) - len(table.trials)
        return html_of_table(table) + (f"… {words.count(more, 'more trial')}" if more > 0 and table.trials else "")

    def html(self) -> str:
        """The same for a notebook."""
        from carril.train._console_notebook import html_of

        best = self.best()
        told = f"<br>best: {escape(best)}" if best else ""
        return html_of(self).removesuffix("</div>") + f"{told}{self.html_table()}</div>"


def _done(counts: dict[str, int]) -> int:
    return sum(counts[state] for state in OVER)


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else words.clock(seconds)


def _terminal_lines() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).lines or 24
    except (AttributeError, OSError, ValueError):  # replaced or closed
        return 24
