"""A notebook: the output of an experiment in its cell, with the trials by state, the best one and the table."""

import contextlib
from collections.abc import Callable

from carril.train._console_notebook import NotebookDisplay
from carril.train._console_view import View


class TrialsCell(NotebookDisplay):
    """One output that is kept up to date. `html` makes the newest picture."""

    def __init__(self, view: View, html: Callable[[], str]) -> None:
        self._picture = html
        super().__init__(view)

    def _show(self) -> None:
        picture = self._picture()
        if picture != self._shown:
            self._shown = picture
            # A front end that has gone ends the showing and nothing else.
            with contextlib.suppress(Exception):
                self._handle.update(self._html(picture))
