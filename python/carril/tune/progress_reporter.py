"""Progress reporters: how a script says what the table of trials should show, and how often.

The table itself is ours, the same with and without a reporter. A class of the user's that overrides `should_report` or
`report` is asked, and then nothing is drawn in place.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from carril.exceptions import ConfigError, ConfigTypeError, kind_of
from carril.tune._console_table import Columns, TableOptions, lines_of, table_of
from carril.tune._console_trials import Trials, TrialView
from carril.tune._stored import flat_parameters

__all__ = ["CLIReporter", "JupyterNotebookReporter", "ProgressReporter"]

_WIDTH = 120


class ReportedTrial:
    """A trial as a reporter sees it. `status` is "PENDING", "RUNNING", "PAUSED", "TERMINATED" or "ERROR"."""

    def __init__(self, view: TrialView) -> None:
        self.view = view
        self.trial_id = view.id
        self.status = view.status.upper()
        self.config = view.config
        self.last_result = view.metrics or {}

    @property
    def evaluated_params(self) -> dict[str, Any]:
        return flat_parameters(self.config)

    def __str__(self) -> str:
        return self.view.name


class ProgressReporter:
    """What a reporter of the user's own is derived from."""

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Called once, before the first trial."""

    def should_report(self, trials: Sequence[ReportedTrial], done: bool = False) -> bool:
        """Whether to report now; `done` when the experiment is over."""
        return True

    def report(self, trials: Sequence[ReportedTrial], done: bool, *sys_info: str) -> None:
        """Shows the trials."""
        raise NotImplementedError(f"`{type(self).__name__}` has no `report`")


class TableReporter(ProgressReporter):
    """What the two reporters of ours share."""

    def __init__(
        self,
        metric_columns: Columns | None = None,
        parameter_columns: Columns | None = None,
        total_samples: int | None = None,
        max_progress_rows: int = 20,
        max_error_rows: int = 20,
        max_column_length: int = 20,
        max_report_frequency: float = 5,
        infer_limit: int = 3,
        print_intermediate_tables: bool | None = None,
        metric: str | None = None,
        mode: str | None = None,
        sort_by_metric: bool = False,
    ) -> None:
        """Columns are a list of names, or a dict of names and titles; a nested name is `a/b`."""
        if mode not in (None, "min", "max"):
            raise ConfigError(f"`mode` is {mode!r}: it must be 'min' or 'max'")
        numbers = {
            "max_progress_rows": max_progress_rows,
            "max_error_rows": max_error_rows,
            "max_column_length": max_column_length,
            "max_report_frequency": max_report_frequency,
            "infer_limit": infer_limit,
        }
        for name, number in numbers.items():
            if isinstance(number, bool) or not isinstance(number, (int, float)):
                raise ConfigTypeError(f"`{name}` is {kind_of(number)}: it must be a number")
            if number < (1 if name == "max_column_length" else 0):
                raise ConfigError(f"`{name}` is {number}: it is too small")
        self.metric, self.mode, self.total_samples = metric, mode, total_samples
        self._options = TableOptions(
            parameter_columns=_columns(parameter_columns, "parameter_columns"),
            metric_columns=_columns(metric_columns, "metric_columns"),
            rows=int(max_progress_rows),
            error_rows=int(max_error_rows),
            cell_length=int(max_column_length),
            more_metrics=int(infer_limit),
            by_metric=sort_by_metric,
            seconds_between=float(max_report_frequency),
            # Who says how often wants no lines in between.
            seconds_of_a_line=None,
            in_between=print_intermediate_tables is not False,
        )

    @property
    def options(self) -> TableOptions:
        """What it says about the table."""
        return self._options

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        """What was given to the constructor counts more than what the experiment says."""
        self.total_samples = self.total_samples or total_samples
        self.metric, self.mode = self.metric or metric, self.mode or mode

    def add_metric_column(self, metric: str, representation: str | None = None) -> None:
        """One more metric in the table, under a title of its own if one is given."""
        columns = _added(self._options.metric_columns, metric, representation, "metric")
        self._options = replace(self._options, metric_columns=columns)

    def add_parameter_column(self, parameter: str, representation: str | None = None) -> None:
        """One more parameter in the table, under a title of its own if one is given."""
        columns = _added(self._options.parameter_columns, parameter, representation, "parameter")
        self._options = replace(self._options, parameter_columns=columns)

    def report(self, trials: Sequence[ReportedTrial], done: bool, *sys_info: str) -> None:
        """Prints the table."""
        kept = Trials(self.metric, self.mode, self._options.metric_columns or ())
        for trial in trials:
            kept.put(trial.view)
        counts = [f"{number} {state.upper()}" for state, number in kept.counts.items() if number]
        table = table_of(kept, self._options, self._options.rows, _WIDTH - 2)
        print("\n".join([*sys_info, f"trials: {len(kept)} ({', '.join(counts)})", *lines_of(table, _WIDTH)]))


class CLIReporter(TableReporter):
    """The table as a script wants it, on a terminal or in a log. `max_report_frequency` is in seconds."""


class JupyterNotebookReporter(TableReporter):
    """The same in a notebook, where the table always stands in its cell: `overwrite` says nothing more."""

    def __init__(self, overwrite: bool = True, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


def _columns(columns: Any, what: str) -> Columns | None:
    if columns is None:
        return None
    names = list(columns) if isinstance(columns, (list, tuple, dict)) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise ConfigTypeError(
            f"`{what}` is {kind_of(columns)}: it must be a list of names, or a dict of names and titles"
        )
    return dict(columns) if isinstance(columns, dict) else names


def _added(columns: Columns | None, name: str, title: str | None, what: str) -> dict[str, str]:
    known = dict(columns) if isinstance(columns, dict) else {known: known for known in columns or ()}
    if name in known:
        raise ConfigError(f"the {what} `{name}` has a column already")
    return {**known, name: title or name}


def is_asked(reporter: ProgressReporter) -> bool:
    """True for a reporter that decides or shows on its own."""
    kind = type(reporter)
    return not isinstance(reporter, TableReporter) or (
        kind.should_report is not ProgressReporter.should_report or kind.report is not TableReporter.report
    )
