"""A notebook: one output of the cell that updates in place, with the state, the last report and the checkpoints.

Lines are printed below it as text. The thread only sends the newest picture; it ends with the run.
"""

import contextlib
import contextvars
import sys
import threading
from html import escape
from typing import Any

from carril.train import _console_text as words
from carril.train._console_curve import svg_of
from carril.train._console_view import View

_SECONDS_BETWEEN = 0.5
_COLOURS = {"finished": "#2a7", "running": "#2a7", "failed": "#c33", "aborted": "#c33"}
_CELL = "text-align:left;padding:0 1em 0 0"


def in_a_notebook() -> bool:
    """True in a kernel of IPython, not in its terminal."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


def html_of(view: View) -> str:
    """The run as it stands."""
    colour = _COLOURS.get(view.state, "#a70")
    state = f"<b style='color:{colour}'>{escape(view.state)}</b>"
    why = f": {escape(view.why())}" if view.why() else ""
    place = f" · {escape(view.place)}" if view.place else ""
    lines = [f"<b>{escape(view.name)}</b> · {state}{why}{place} · {words.clock(view.seconds)}"]
    facts = view.facts()
    if facts:
        lines.append(escape(" · ".join(facts)))
    group = view.group()
    if group:
        lines.append(escape(" · ".join(group)))
    bars = view.bars
    lines.extend(f"<code>(rank {rank}) {escape(bars[rank])}</code>" for rank in sorted(bars))
    return "<div>" + "<br>".join(lines) + svg_of(view.curves) + _table(view) + "</div>"


def _table(view: View) -> str:
    columns = words.columns_of(view.metrics, view.ranks)
    if not columns:
        return ""
    titles = "".join(f"<th style='{_CELL}'>{escape(title)}</th>" for title, _ in columns)
    rows = zip(*(cells for _, cells in columns), strict=True)
    body = "".join(
        "<tr>" + "".join(f"<td style='{_CELL}'>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{titles}</tr>{body}</table>"


class NotebookDisplay:
    """The output of one run in its cell."""

    live = True
    keeps_table = True

    def __init__(self, view: View) -> None:
        import IPython.display

        # It has no types.
        display: Any = IPython.display
        self._view = view
        self._html = display.HTML
        self._shown = html_of(view)
        self._handle = display.display(self._html(self._shown), display_id=True)
        self._over = threading.Event()
        # A kernel knows the cell that a message belongs to by its context.
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._keep_showing,), name="carril-notebook", daemon=True
        )
        self._thread.start()

    def write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def paused(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._show()

    def _keep_showing(self) -> None:
        while not self._over.wait(_SECONDS_BETWEEN):
            self._show()

    def _show(self) -> None:
        html = html_of(self._view)
        if html != self._shown:
            self._shown = html
            # A front end that has gone ends the showing and nothing else.
            with contextlib.suppress(Exception):
                self._handle.update(self._html(html))
