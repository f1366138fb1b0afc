"""What `Tuner.fit()` shows of an experiment: the trials by state, the best so far, a table, and what went wrong.

On a terminal and in a notebook it stands in place and is kept up to date; elsewhere there is a line every five seconds, a
plain table now and then, and one at the end. Trials' lines carry the trial's name, and come through whole.

TUNE-CONSOLE-1: `verbose=0` prints nothing. With `keeps_output` the trials' own lines stay.
TUNE-CONSOLE-2: only the first failures are printed one by one; a bound, because ten thousand trials may fail alike.
"""

import contextlib
import os
import shlex
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from carril.train import _console_text as words
from carril.train._console import _Display, _display_for
from carril.train._console_lines import RankLines
from carril.train._console_view import can_redraw, coloured, wants_colour
from carril.train._locations import is_uri, joined
from carril.tune._console_table import Columns, TableOptions
from carril.tune._console_trials import Trials, TrialView
from carril.tune._console_view import ExperimentView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from carril.tune.progress_reporter import ProgressReporter

__all__ = ["Summary", "TrialView", "TuneConsole"]

_WIDTH_OF_A_LOG = 120
_SECONDS_BETWEEN_BARS = 5.0
# A reporter of the user's own looks at all trials.
_SECONDS_BETWEEN_QUESTIONS = 0.5
_SECONDS_TO_THE_FIRST_LINE = 1.0
_ERRORS_AT_THE_END = 3


@dataclass(frozen=True)
class Summary:
    """How an experiment has ended: "finished", "stopped" or "failed", after how long, and why."""

    status: str
    seconds: float
    reason: str = ""


class TuneConsole:
    """What is shown of one experiment. `close()` ends the showing; after it, only the closing lines are written."""

    def __init__(
        self,
        name: str,
        path: str,
        metric: str | None = None,
        mode: str | None = None,
        verbose: int = 1,
        total: int | None = None,
        *,
        parameter_columns: Columns | None = None,
        metric_columns: Columns | None = None,
        reporter: "ProgressReporter | None" = None,
        keeps_output: bool = False,
        longest: float | None = None,
    ) -> None:
        """`total` is the number of trials that there will be, and `longest` that of the reports of one, where that is
        known. `reporter` is the user's.
        """
        self._name, self._path, self._verbose = name, path, verbose
        self._options = TableOptions(parameter_columns=parameter_columns, metric_columns=metric_columns)
        self._asked: ProgressReporter | None = None
        if reporter is not None:
            from carril.tune.progress_reporter import TableReporter, is_asked

            reporter.setup(start_time=time.time(), total_samples=total, metric=metric, mode=mode)
            if isinstance(reporter, TableReporter):
                self._options = reporter.options
                metric, mode, total = reporter.metric, reporter.mode, reporter.total_samples
            self._asked = reporter if is_asked(reporter) else None
        # Nobody looks: what happens is not even counted.
        self._silent = verbose == 0 and not keeps_output and self._asked is None
        self._trials = Trials(metric, mode, self._options.metric_columns or ())
        self._view = ExperimentView(name, self._trials, total, self._options, longest)
        self._display = self._open(verbose > 0 or keeps_output, verbose > 0 and self._asked is None)
        self._colour = wants_colour() and can_redraw(sys.stdout)
        self._lines: dict[str, RankLines] = {}
        self._last_bar: dict[str, float] = {}
        self._last_table = time.monotonic()
        # The first line comes soon: whoever looks at a log wants to see that something happens.
        self._next_line = self._last_table + _SECONDS_TO_THE_FIRST_LINE
        self._changed = False
        self._failed: list[str] = []
        self._failures = 0

    def _open(self, shows: bool, in_place: bool) -> _Display:
        if shows and in_place and not can_redraw(sys.stdout):
            from carril.train._console_notebook import in_a_notebook

            if in_a_notebook():
                from carril.tune._console_notebook import TrialsCell

                return TrialsCell(self._view, self._view.html)
        return _display_for(self._view, shows, in_place)

    def paused(self) -> contextlib.AbstractContextManager[None]:
        """For the time of a user's callback, which may print."""
        return self._display.paused()

    def say(self, text: str) -> None:
        if self._verbose > 0:
            self._display.write(f"carril: {text}\n")

    def warning(self, text: str) -> None:
        self.say(f"warning: {text}")

    def state(self, state: str, reason: str = "") -> None:
        """Of the experiment: "running", "waiting", "stopping"."""
        self._view.state, self._view.reason = state, reason

    def resources(self, used: "Mapping[str, float]", total: "Mapping[str, float]") -> None:
        """What the trials use now, of what there is."""
        self._view.place = ", ".join(f"{used.get(name, 0):g}/{total[name]:g} {name}" for name in total)

    @property
    def is_silent(self) -> bool:
        """Nobody looks: trials need not be told."""
        return self._silent

    def resuming(self, reason: str, total: int | None) -> None:
        """An earlier head has left trials; `total` is how many there will be now, where that is known."""
        self.say(f"resuming `{self._name}`: {reason}")
        self._view.total = total or self._view.total

    def known(self, views: "Iterable[TrialView]") -> None:
        """Trials that had ended before this start."""
        for view in views:
            self._trials.put(view)
        self._view.done_before = self._view.done

    def settled(self, views: "Iterable[TrialView]") -> None:
        """All trials as the experiment's files have them at its end: the closing lines show the same as the results."""
        self._trials = Trials(self._trials.metric, self._trials.mode, self._options.metric_columns or ())
        for view in views:
            self._trials.put(view)
        self._view.trials = self._trials

    def trial(self, view: TrialView) -> None:
        """A trial that is new, or has changed."""
        if self._silent:
            return
        before = self._trials.get(view.number)
        self._trials.put(view)
        self._changed = True
        if self._verbose > 1:
            self._tell(before, view)
        if view.is_over:
            lines = self._lines.pop(view.name, None)
            self._last_bar.pop(view.name, None)
            if lines is not None:
                self._show(view.name, lines.flush())
        self.tick()

    def _tell(self, before: TrialView | None, view: TrialView) -> None:
        """Each result, and each change of state, as a line."""
        if view.metrics and view.iterations != (before.iterations if before is not None else 0):
            facts = [f"report {view.iterations:,}", *words.metrics_in_a_line(view.metrics), f"{view.seconds:.1f} s"]
            self.say(f"{view.name}: {' · '.join(facts)}")
        # A failure has a headline of its own.
        if view.status != (before.status if before is not None else None) and view.status != "error":
            why = f": {words.one_line(view.reason)}" if view.reason else ""
            self.say(f"{view.name}: {view.status}{why}")

    def output(self, trial_name: str, text: bytes) -> None:
        """What a trial has printed."""
        lines = self._lines.get(trial_name)
        if lines is None:
            lines = self._lines[trial_name] = RankLines(wants_colour())
        ended = lines.feed(text)
        if lines.bar:
            # Many trials have many bars: each is a line now and then.
            now = time.monotonic()
            if now - self._last_bar.get(trial_name, -_SECONDS_BETWEEN_BARS) >= _SECONDS_BETWEEN_BARS:
                self._last_bar[trial_name] = now
                ended.append(lines.bar)
        self._show(trial_name, ended)

    def _show(self, trial_name: str, lines: list[str]) -> None:
        if lines:
            self._display.write("".join(f"({trial_name}) {line}\n" for line in lines))

    def error(self, trial: TrialView, headline: str, text: str = "") -> None:
        """A trial has failed: its headline at once, and where the rest is. TUNE-CONSOLE-2."""
        self._failures += 1
        place = joined(joined(self._path, trial.directory or trial.name), "error.txt")
        if len(self._failed) < _ERRORS_AT_THE_END:
            self._failed.append(place)
        if self._verbose < 1 or self._failures > self._options.error_rows + 1:
            return
        if self._failures > self._options.error_rows:
            self.say(f"more trials fail, which are not told one by one: `carril tune show {self._run()}` lists them")
            return
        after = f"after {words.count(trial.iterations, 'report')} in {trial.seconds:.1f} s"
        word = coloured("failed", "failed", self._colour)
        lines = [f"carril: trial `{trial.name}` {word} {after}: {words.one_line(headline)}", f"  error       {place}"]
        if self._verbose > 1 and text:
            lines.extend(f"  {line}" for line in text.rstrip("\n").split("\n"))
        self._display.write("\n".join(lines) + "\n")

    def tick(self) -> None:
        """To be called now and then: where there is no terminal, the table is printed when it is time for it."""
        if not self._changed or self._verbose < 1:
            return
        now = time.monotonic()
        waits = _SECONDS_BETWEEN_QUESTIONS if self._asked is not None else self._options.seconds_between
        if now - self._last_table < waits:
            self._print_line(now)
            return
        self._last_table, self._changed = now, False
        if self._asked is not None:
            self._ask(done=False)
        elif self._is_a_log:
            self._next_line = now + (self._options.seconds_of_a_line or 0.0)
            self._print_table()

    @property
    def _is_a_log(self) -> bool:
        return not self._display.live and self._options.in_between

    def _ask(self, done: bool) -> None:
        from carril.tune.progress_reporter import ReportedTrial

        assert self._asked is not None
        trials = [ReportedTrial(view) for view in self._trials.all()]
        if self._asked.should_report(trials, done):
            self._asked.report(trials, done)

    def _print_line(self, now: float) -> None:
        """Between the tables of a log: how far it is, and what is best."""
        between = self._options.seconds_of_a_line
        if between is None or self._asked is not None or not self._is_a_log or now < self._next_line:
            return
        self._next_line = now + between
        best = self._view.best()
        self.say(" · ".join([*self._facts(), *([f"best: {best}"] if best else [])]))

    def _facts(self) -> list[str]:
        return [fact for fact in (*self._view.facts(), self._view.place, words.clock(self._view.seconds)) if fact]

    def _print_table(self) -> None:
        best = self._view.best()
        lines = [f"carril: {' · '.join(self._facts())}", *([f"  best: {best}"] if best else [])]
        self._display.write("\n".join([*lines, *self._view.table(self._options.rows, _WIDTH_OF_A_LOG)]) + "\n")

    def interrupted(self, count: int) -> None:
        self._view.state = "stopping"
        self.say(
            "interrupted: stopping the experiment" + (", at once" if count > 1 else "; Ctrl-C again ends it at once")
        )

    def close(self) -> None:
        """Takes away what stands in place. What a trial began to print and did not end is shown first. Idempotent."""
        for name, lines in self._lines.items():
            self._show(name, lines.flush())
        self._lines.clear()
        self._display.close()

    def finished(self, summary: Summary) -> None:
        """The closing lines: what was reached, where the files are, what to type next."""
        self._view.state, self._view.reason = summary.status, ""
        # Nothing runs any more: what is best is what counts.
        self._view.options = replace(self._options, by_metric=True)
        self.close()
        if self._verbose < 1:
            return
        word = coloured(summary.status, summary.status, self._colour)
        reached = ", ".join(self._view.facts())
        why = f": {words.one_line(summary.reason)}" if summary.reason else ""
        lines = [f"carril: `{self._name}` {word}: {reached} in {summary.seconds:.1f} s{why}"]
        if self._asked is not None:
            self._ask(done=True)
        elif not self._display.keeps_table:
            lines.extend(self._view.table(self._options.rows, _closing_width()))
        best = self._view.best()
        lines.extend([f"  best        {best}"] if best else [])
        for at, place in enumerate(self._failed):
            lines.append(f"  {'errors' if at == 0 else '':10}  {place}")
        if self._failures > len(self._failed):
            lines.append(f"  {'':10}  … and {self._failures - len(self._failed):,} more")
        lines.append(f"  files       {self._path}")
        lines.extend(self._next(summary))
        self._display.write("\n".join(lines) + "\n")

    def _run(self) -> str:
        """How the experiment is named on the command line, which looks for names in the usual places only."""
        storage = os.path.dirname(self._path)
        usual = [os.path.expanduser(f"~/{name}") for name in ("carril_results", "ray_results")]
        return shlex.quote(self._name if storage in usual else self._path)

    def _next(self, summary: Summary) -> list[str]:
        # What is kept in a Python file system can be read by the script only.
        if not os.path.isabs(self._path) and not is_uri(self._path):
            return []
        commands = [f"carril tune show {self._run()}"]
        if self._view.best():
            commands.insert(0, f"carril tune best {self._run()}")
        if os.path.isabs(self._path) and len(self._trials):
            commands.append(f"tensorboard --logdir {shlex.quote(self._path)}")
        lines = [f"  {'next' if at == 0 else '':10}  {command}" for at, command in enumerate(commands)]
        # A search that its time budget or a stopper ended has finished, and yet left trials.
        if summary.status != "finished" or self._trials.counts["unfinished"]:
            lines.append(f"  to go on    {self._resume(summary)}")
        return lines

    def _resume(self, summary: Summary) -> str:
        """What resumes the experiment, as it is typed."""
        from carril._internal import again

        # `carril resume` leaves alone what has finished.
        if summary.status != "finished" and again.can_resume():
            return f"carril resume {self._run()}"
        return f"Tuner.restore({self._path!r}, trainable).fit()"


def _closing_width() -> int:
    """The closing lines stay: on a terminal they fit, in a log they are as wide as the tables before."""
    if not can_redraw(sys.stdout):
        return _WIDTH_OF_A_LOG
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except OSError:
        return 80
