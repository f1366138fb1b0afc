"""What `fit()` shows of a run, in words that are the same wherever they appear.

On a terminal and in a notebook the run stands in place and is kept up to date; elsewhere there are plain lines, few
enough for a log. Workers' lines carry their rank, and come through whole.

CONSOLE-1: `verbose=0` prints nothing. Under `carril as-ray` the workers' own lines stay, as Ray leaves them.
CONSOLE-2: a console that cannot be written to does not end a run.
"""

import contextlib
import os
import shlex
import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

from carril.train import _console_text as words
from carril.train._console_lines import RankLines
from carril.train._console_view import View, can_redraw, coloured, wants_colour

if TYPE_CHECKING:
    from carril.train._console_terminal import Screen

_SECONDS_IN_A_LOG = 5.0
_METRICS_IN_A_LINE = 4
# A run that stops has its closing lines within seconds.
_SHOWN_STATES = ("waiting", "running")


class _Display(Protocol):
    # True if the run stands in place, so that its progress needs no lines.
    @property
    def live(self) -> bool: ...
    # True if the last report stays in sight by itself.
    @property
    def keeps_table(self) -> bool: ...
    def write(self, text: str) -> None: ...
    def paused(self) -> contextlib.AbstractContextManager[None]: ...
    def close(self) -> None: ...


class _Nothing:
    live = True
    keeps_table = True

    def write(self, text: str) -> None:
        return

    def paused(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def close(self) -> None:
        return


class _Plain:
    live = False
    keeps_table = False

    def __init__(self) -> None:
        self._broken = False

    def write(self, text: str) -> None:
        if self._broken:
            return
        stream = sys.stdout
        try:
            # One call per block of lines: lines of two runs in two threads do not mix.
            try:
                stream.write(text)
            except UnicodeEncodeError:
                stream.write(text.encode(stream.encoding, "replace").decode(stream.encoding))
            stream.flush()
        except (AttributeError, OSError, ValueError):  # no stdout, its reader has gone, or it is closed
            self._broken = True

    def paused(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def close(self) -> None:
        return


class _Terminal:
    live = True
    keeps_table = False

    def __init__(self, screen: "Screen", view: View) -> None:
        self._screen = screen
        self._view = view
        screen.add(view)

    def write(self, text: str) -> None:
        self._screen.write(text)

    def paused(self) -> contextlib.AbstractContextManager[None]:
        return self._screen.paused()

    def close(self) -> None:
        self._screen.remove(self._view)


def _display_for(view: View, shows: bool, in_place: bool) -> _Display:
    if not shows:
        return _Nothing()
    if in_place and can_redraw(sys.stdout):
        from carril.train._console_terminal import screen_of

        return _Terminal(screen_of(sys.stdout), view)
    if in_place:
        from carril.train._console_notebook import NotebookDisplay, in_a_notebook

        if in_a_notebook():
            return NotebookDisplay(view)
    return _Plain()


class Console:
    """What is shown of one run. `close()` ends the showing; after it, only the closing lines are written."""

    def __init__(self, name: str, path: str, verbose: int, keeps_output: bool = False) -> None:
        self._name = name
        self._path = path
        self._verbose = verbose
        self._view = View(name)
        self._display = _display_for(self._view, verbose > 0 or keeps_output, verbose > 0)
        self._colour = wants_colour() and can_redraw(sys.stdout)
        self._lines: dict[int, RankLines] = {}
        self._last_bar: dict[int, float] = {}
        self._last_progress = time.monotonic()
        self._last_state = ""

    def paused(self) -> contextlib.AbstractContextManager[None]:
        """For the time of a user's callback, which may print."""
        return self._display.paused()

    def close(self) -> None:
        """Takes away what stands in place. What a rank began and did not end is shown first. Idempotent."""
        for rank, lines in sorted(self._lines.items()):
            self._show(rank, lines.flush())
        self._lines.clear()
        self._view.bars = {}
        self._display.close()

    def say(self, text: str) -> None:
        if self._verbose > 0:
            self._display.write(f"carril: {text}\n")

    def warning(self, text: str) -> None:
        self.say(f"warning: {text}")

    def restarted(self, attempt: int, reason: str) -> None:
        self.say(f"restart {attempt}: {words.one_line(reason)}")

    def interrupted(self, times: int) -> None:
        self.say("interrupted: stopping the run" + (", at once" if times > 1 else "; Ctrl-C again ends it at once"))

    def output(self, rank: int, text: bytes) -> None:
        lines = self._lines.get(rank)
        if lines is None:
            lines = self._lines[rank] = RankLines(wants_colour())
        ended = lines.feed(text)
        if lines.bar and not self._display.live:
            # In a log a bar is a line now and then; where it stands in place it needs none before its end.
            now = time.monotonic()
            if now - self._last_bar.get(rank, -_SECONDS_IN_A_LOG) >= _SECONDS_IN_A_LOG:
                self._last_bar[rank] = now
                ended.append(lines.bar)
        elif lines.bar != self._view.bars.get(rank, ""):
            bars = {other: bar for other, bar in self._view.bars.items() if other != rank}
            self._view.bars = {**bars, rank: lines.bar} if lines.bar else bars
        self._show(rank, ended)

    def _show(self, rank: int, lines: list[str]) -> None:
        if lines:
            self._display.write("".join(f"(rank {rank}) {line}\n" for line in lines))

    def state(self, state: str, reason: str) -> None:
        self._view.state, self._view.reason = state, reason
        if state == "resuming":
            return self.say(f"resuming `{self._name}` {reason}")
        if state == "starting over":
            return self.say(f"starting `{self._name}` over: {reason}")
        line = f"{state}: {words.one_line(reason)}" if reason else state
        if state in _SHOWN_STATES and line != self._last_state and not self._display.live:
            self._last_state = line
            self.say(line)

    def started(self, workers: list[dict[str, Any]]) -> None:
        plain = sorted({worker["how"] for worker in workers if worker.get("how") not in (None, "", "forked")})
        nodes = sorted({worker["node"] for worker in workers})
        where = nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes"
        many = words.count(len(workers), "worker")
        self._view.place = f"{many} on {where}"
        note = f" ({'; '.join(plain)})" if plain and self._verbose > 1 else ""
        if note or not self._display.live:
            self.say(f"{many} of `{self._name}` on {where}{note}")

    def progress(
        self,
        iteration: int,
        metrics: dict[str, Any],
        checkpoints: int | None = None,
        saved: int = 0,
        ranks: dict[int, dict[str, Any]] | None = None,
    ) -> None:
        view = self._view
        view.progressed(iteration, metrics, ranks or {})
        if checkpoints is not None:
            view.checkpoints, view.saved = checkpoints, saved
        now = time.monotonic()
        if not self._display.live and now - self._last_progress >= _SECONDS_IN_A_LOG:
            self._last_progress = now
            shown = words.metrics_in_a_line(metrics)[:_METRICS_IN_A_LINE]
            self.say(" · ".join([*view.facts(), *shown, f"{view.seconds:.1f} s"]))

    def standing(self, standing: dict[str, Any]) -> None:
        """How far the function says it is, who lags behind, what the group uses."""
        self._view.stands(standing)

    def checkpoint(self, num_to_keep: int | None) -> None:
        """One more was saved."""
        view = self._view
        view.saved += 1
        view.checkpoints = view.saved if num_to_keep is None else min(view.saved, num_to_keep)

    def finished(self, ended: dict[str, Any]) -> None:
        """The closing lines: what was reached, where the files are, what to type next."""
        self._end(ended)
        reached = [words.count(ended["iterations"], "report")]
        if ended["checkpoints"]:
            reached.append(words.kept(len(ended["checkpoints"]), ended["saved"]))
        lines = [f"carril: `{self._name}` {self._word('finished')}: {', '.join(reached)} in {ended['seconds']:.1f} s"]
        if not self._display.keeps_table:
            lines.extend("  " + line for line in words.table(ended["metrics"] or {}, ended["ranks"] or {}))
        lines.append(f"  files       {self._path}")
        lines.extend(_newest(ended["checkpoints"]))
        # TensorBoard is sure to read a local path only.
        is_local = os.path.isabs(self._path)
        commands = [f"tensorboard --logdir {shlex.quote(self._path)}"] if ended["iterations"] and is_local else []
        lines.extend(self._next([*commands, f"carril logs {self._run()}", f"carril explain {self._run()}"]))
        self._write_last(lines)

    def failed(self, ended: dict[str, Any]) -> None:
        """The closing lines of a run that failed or was stopped."""
        from carril.train._failures import headline

        self._end(ended)
        reached = f"after {words.count(ended['iterations'], 'report')} in {ended['seconds']:.1f} s"
        lines = [f"carril: `{self._name}` {self._word(ended['status'])} {reached}: {headline(ended)}"]
        lines.append(f"  files       {self._path}")
        error = os.path.join(self._path, "error.txt")
        if ended["status"] == "failed" and os.path.exists(error):
            lines.append(f"  error       {error}")
        lines.extend(_newest(ended["checkpoints"]))
        rank = f" --rank {ended['failures'][0]['rank']}" if ended["failures"] else ""
        commands = [f"carril explain {self._run()}", f"carril logs {self._run()}{rank}"]
        # One that failed is looked at first, one that was stopped is resumed.
        at = 0 if ended["status"] != "failed" else len(commands)
        lines.extend(self._next([*commands[:at], self._resume(), *commands[at:]]))
        self._write_last(lines)

    def _end(self, ended: dict[str, Any]) -> None:
        view = self._view
        view.state, view.reason = ended["status"], ""
        view.iteration, view.metrics = ended["iterations"], ended["metrics"] or {}
        view.ranks = ended["ranks"] or {}
        view.checkpoints, view.saved = len(ended["checkpoints"]), ended["saved"]
        self.close()

    def _word(self, state: str) -> str:
        return coloured(state, state, self._colour)

    def _resume(self) -> str:
        """What to type so that the run resumes."""
        from carril._internal import again

        if again.can_resume() and self._is_reachable():
            return f"carril resume {self._run()}"
        return f"`fit()` again with RunConfig(name={self._name!r}) resumes it"

    def _run(self) -> str:
        """How the run is named on the command line, which looks for names in the usual places only."""
        storage = os.path.dirname(self._path)
        usual = [os.path.expanduser(f"~/{name}") for name in ("carril_results", "ray_results")]
        return shlex.quote(self._name if storage in usual else self._path)

    def _write_last(self, lines: list[str]) -> None:
        if self._verbose > 0:
            self._display.write("\n".join(lines) + "\n")

    def _is_reachable(self) -> bool:
        return os.path.isabs(self._path) or "://" in self._path

    def _next(self, commands: list[str]) -> list[str]:
        # What is kept in a Python file system can be read by the script only.
        if not self._is_reachable():
            commands = [command for command in commands if not command.startswith("carril ")]
        return [f"  {'next' if at == 0 else '':10}  {command}" for at, command in enumerate(commands)]


def _newest(checkpoints: list[dict[str, Any]]) -> list[str]:
    """They come in the order of their worth: the newest may stand anywhere."""
    if not checkpoints:
        return []
    newest = max(checkpoints, key=lambda checkpoint: checkpoint["iteration"])
    return [f"  checkpoint  {newest['path']}"]
