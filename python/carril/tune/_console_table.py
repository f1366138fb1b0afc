"""The table of trials: which columns it has, and its lines for a terminal, a log or a notebook.

The columns that matter most come first into what room there is; the others are counted, not cut in half.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from carril.train import _console_text as words
from carril.train._console_view import coloured
from carril.tune._console_trials import Trials, TrialView, parameter_text, shared_prefix
from carril.tune._stored import flat_parameters, look_up

_SPACE = "  "
_CELL = "text-align:left;padding:0 1em 0 0"
# A state of a trial in the colour of a run's.
_COLOUR_OF = {
    "terminated": "finished",
    "error": "failed",
    "pending": "waiting",
    "paused": "waiting",
    "stopped": "waiting",
    "unfinished": "waiting",
}

Columns = Sequence[str] | Mapping[str, str]
_OWN_COLUMNS = {"training_iteration": "reports", "time_total_s": "time"}


@dataclass(frozen=True)
class TableOptions:
    """What a progress reporter can say about the table. Columns are names, or names with their titles."""

    parameter_columns: Columns | None = None
    metric_columns: Columns | None = None
    rows: int = 20
    error_rows: int = 20
    cell_length: int = 20
    # Metrics in the table beside the one that counts, where none were named.
    more_metrics: int = 3
    by_metric: bool = False
    seconds_between: float = 30.0
    # Between two tables of a log, a line so often; None for none.
    seconds_of_a_line: float | None = 5.0
    # False: where there is no terminal, the table comes at the end only.
    in_between: bool = True


@dataclass(frozen=True)
class _Column:
    title: str
    cells: list[str]
    # The lower, the sooner it gets room.
    rank: int
    to_the_right: bool = True

    @property
    def width(self) -> int:
        return max(words.width(text) for text in (self.title, *self.cells))


@dataclass(frozen=True)
class Table:
    """The trials that are shown, and how many columns had no room."""

    trials: list[TrialView]
    columns: list[_Column]
    left_out: int


def _named(columns: Columns | None, otherwise: Sequence[str]) -> dict[str, str]:
    if columns is None:
        return {name: name for name in otherwise}
    return dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}


def _metrics(trials: Trials, options: TableOptions) -> dict[str, str]:
    others = [name for name in trials.metrics if name != trials.metric]
    first = [trials.metric] if trials.metric is not None else []
    chosen = _named(options.metric_columns, [*first, *others[: options.more_metrics]])
    # They have columns of their own.
    return {name: title for name, title in chosen.items() if name not in _OWN_COLUMNS}


def _own_title(name: str, options: TableOptions) -> str:
    """What a column is called that is always there."""
    named = options.metric_columns if isinstance(options.metric_columns, Mapping) else {}
    title = named.get(name, name)
    return _OWN_COLUMNS[name] if title == name else title


def table_of(trials: Trials, options: TableOptions, rows: int, width: int | None) -> Table:
    """The table in so many rows and, where that is limited, columns of text."""
    shown = trials.shown(min(rows, options.rows), options.by_metric)
    longest = options.cell_length

    def column(title: str, cells: list[str], rank: int) -> _Column:
        return _Column(words.clip(title, longest), [words.clip(cell, longest) for cell in cells], rank)

    given = [flat_parameters(trial.config) for trial in shown]
    named = _named(options.parameter_columns, trials.parameters)
    prefix = shared_prefix(named) if options.parameter_columns is None else ""
    parameters = [
        column(title.removeprefix(prefix), [parameter_text(flat[name]) if name in flat else "" for flat in given], 4)
        for name, title in named.items()
    ]
    metrics = [
        column(title, [_metric_text(trial, name) for trial in shown], 2 if name == trials.metric else 6)
        for name, title in _metrics(trials, options).items()
    ]
    columns = [
        _Column("trial", [words.one_line(trial.name) for trial in shown], 0, to_the_right=False),
        _Column("state", [trial.status for trial in shown], 1, to_the_right=False),
        *parameters,
        column(
            _own_title("training_iteration", options),
            [f"{trial.iterations:,}" if trial.iterations else "" for trial in shown],
            3,
        ),
        column(
            _own_title("time_total_s", options),
            [words.clock(trial.seconds) if trial.seconds else "" for trial in shown],
            5,
        ),
        *metrics,
    ]
    kept = columns if width is None else _fitting(columns, width)
    return Table(shown, kept, len(columns) - len(kept))


def _metric_text(trial: TrialView, name: str) -> str:
    value = look_up(trial.metrics or {}, name)
    return "" if value is None else words.value(value)


def _fitting(columns: list[_Column], width: int) -> list[_Column]:
    room, kept = width, set()
    for at in sorted(range(len(columns)), key=lambda at: columns[at].rank):
        needed = columns[at].width + len(_SPACE)
        # The first two are always there: without them a line says nothing.
        if needed <= room or columns[at].rank < 2:
            room -= needed
            kept.add(at)
    return [column for at, column in enumerate(columns) if at in kept]


def lines_of(table: Table, width: int, colour: bool = False) -> list[str]:
    """The table as lines, none of them wider than `width`."""
    if not table.trials:
        return []
    name, state, *others = table.columns
    lines = [_line([_padded(column, column.title) for column in table.columns], width)]
    for at, trial in enumerate(table.trials):
        start = [_padded(column, column.cells[at]) for column in (name, state)]
        why = words.one_line(trial.reason) if trial.status == "pending" else ""
        rest = [why] if why else [_padded(column, column.cells[at]) for column in others]
        line = _line([*start, *rest], width)
        # The state stands at a known place, if it was not cut.
        place, word = len(_SPACE + start[0] + _SPACE), state.cells[at]
        if colour and line[place : place + len(word)] == word:
            shade = coloured(word, _COLOUR_OF.get(trial.status, trial.status), colour)
            line = line[:place] + shade + line[place + len(word) :]
        lines.append(line)
    return lines


def _line(cells: list[str], width: int) -> str:
    return words.clip((_SPACE + _SPACE.join(cells)).rstrip(), width)


def _padded(column: _Column, text: str) -> str:
    space = " " * (column.width - words.width(text))
    return space + text if column.to_the_right else text + space


def html_of_table(table: Table) -> str:
    """The table for a notebook."""
    if not table.trials:
        return ""
    titles = "".join(f"<th style='{_CELL}'>{escape(column.title)}</th>" for column in table.columns)
    body = ""
    for at, trial in enumerate(table.trials):
        cells = [column.cells[at] for column in table.columns]
        if trial.status in ("pending", "paused") and trial.reason:
            cells[1] += f": {words.one_line(trial.reason)}"
        body += "<tr>" + "".join(f"<td style='{_CELL}'>{escape(cell)}</td>" for cell in cells) + "</tr>"
    return f"<table><tr>{titles}</tr>{body}</table>"
