"""What an experiment leaves behind: `Tuner.fit()` returns a `ResultGrid`, a sequence of one `Result` per trial.

A grid knows each trial's last result at once. What only the trials' own directories have (every result, checkpoints,
the whole error) is read when it is asked for, a trial at a time, so that a grid of ten thousand trials costs little.

GRID-1: the best by scope "last" needs no file of a trial that has the metric in its last result.
GRID-2: NaN is never the best; with `filter_nan_and_inf` neither is an infinite value.
GRID-3: of a trial whose last result lacks the metric, the last one that has it counts.
"""

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, overload

from carril.exceptions import ConfigError, NotFoundError, TrainingFailedError
from carril.train._locations import joined, pyarrow_filesystem
from carril.train._result import AUTOMATIC_FIELDS, Metrics, Result, flatten, parse_lines
from carril.tune._stored import StoredExperiment, StoredTrial, flat_parameters, look_up

if TYPE_CHECKING:
    import pandas

    from carril.train._checkpoint import Checkpoint
    from carril.tune._console_trials import TrialView

_METRICS_IN_AN_ERROR = 20


class TrialResult(Result):
    """The outcome of one trial. Checkpoints and the error are read from its directory when they are asked for."""

    def __init__(
        self,
        trial: StoredTrial,
        path: str,
        filesystem: Any = None,
        config: dict[str, Any] | None = None,
        error: BaseException | None = None,
    ) -> None:
        """`config` and `error` are the user's own objects, where the driver has them: files know less of both."""
        self._trial = trial
        self._config = trial.config if config is None else config
        self._error = error
        self._last: Metrics | None = None
        self._from_files: Result | None = None
        super().__init__(path=path, _filesystem=filesystem)

    @property
    def trial_id(self) -> str:
        return self._trial.id

    @property
    def status(self) -> str:
        """As in the experiment's files: "terminated", "error", "unfinished" …"""
        return self._trial.status

    # The fields of a Result, each of which its constructor sets to nothing.
    @property
    def metrics(self) -> Metrics:
        """The last result; empty where nothing was reported."""
        if self._last is None:
            # A trial that was not ended has no last word in the experiment's files.
            last = self._trial.metrics if self._trial.is_over else next(reversed(self._rows()), self._trial.metrics)
            self._last = Metrics(last or {})
        return self._last

    @metrics.setter
    def metrics(self, metrics: Metrics | None) -> None:
        self._last = metrics

    @property
    def config(self) -> dict[str, Any]:
        """What the trial was given."""
        return self._config

    @property
    def checkpoint(self) -> "Checkpoint | None":
        """The newest one; None if there is none."""
        name = self._trial.checkpoint
        if name is None:
            return None if self._trial.is_over else self._files().checkpoint
        from carril.train._checkpoint import Checkpoint

        assert self.path is not None
        return Checkpoint.stored(joined(self.path, name), self._filesystem)

    @checkpoint.setter
    def checkpoint(self, checkpoint: "Checkpoint | None") -> None:
        assert checkpoint is None, "a trial's checkpoint is where its files are"

    @property
    def error(self) -> BaseException | None:
        """Why the trial failed; None if it did not."""
        if self._trial.status != "error":
            return None
        if self._error is None:
            self._error = self._files().error or TrainingFailedError(
                self._trial.error or self._trial.reason or "the trial failed",
                hints=[f"`{joined(str(self.path), 'error.txt')}` has the whole"],
            )
        return self._error

    @error.setter
    def error(self, error: BaseException | None) -> None:
        self._error = self._error if error is None else error

    @property
    def best_checkpoints(self) -> "list[tuple[Checkpoint, dict[str, Any]]]":
        """Every checkpoint that was kept, with its result; the best last."""
        return self._files().best_checkpoints

    @best_checkpoints.setter
    def best_checkpoints(self, checkpoints: "list[tuple[Checkpoint, dict[str, Any]]]") -> None:
        assert not checkpoints, "a trial's checkpoints are where its files are"

    def _files(self) -> Result:
        """What its directory tells. A trial that never began has none."""
        if self._from_files is None:
            try:
                self._from_files = Result.from_path(str(self.path), self._filesystem)
            except NotFoundError:
                self._from_files = Result()
        return self._from_files

    def _rows(self) -> list[dict[str, Any]]:
        """Every result, in order."""
        return parse_lines(self._read("result.json"), f"{self.path}/result.json")

    @classmethod
    def from_path(
        cls, path: "str | os.PathLike[str]", storage_filesystem: Any = None, *, verify: bool = True
    ) -> Result:
        """Reads one run or trial from its directory."""
        return Result.from_path(path, storage_filesystem, verify=verify)

    def __repr__(self) -> str:
        metrics = {name: value for name, value in self.metrics.items() if name not in AUTOMATIC_FIELDS}
        error = f"error={type(self.error).__name__!r}, " if self._trial.status == "error" else ""
        return f"Result({error}metrics={metrics}, path={self.path!r}, checkpoint={self.checkpoint!r})"


class ResultGrid:
    """The results of all trials of an experiment, in the order in which they were made."""

    def __init__(
        self,
        results: Iterable[Result],
        *,
        metric: str | None = None,
        mode: str | None = None,
        experiment_path: str | None = None,
        filesystem: Any = None,
    ) -> None:
        """`metric` and `mode` are what is meant where a method is given none."""
        # An `ExperimentAnalysis` may be given, which stands on a grid.
        grid: Any = results if isinstance(results, ResultGrid) else getattr(results, "_grid", None)
        if grid is not None:
            results, experiment_path, filesystem = grid, grid._path, grid._filesystem
            metric, mode = metric or grid._metric, mode or grid._mode
        self._results = list(results)
        self._metric, self._mode = metric, mode
        self._path, self._filesystem = experiment_path, filesystem
        self._trainable_name: str = "" if grid is None else grid._trainable_name

    @classmethod
    def of(
        cls,
        experiment: StoredExperiment,
        *,
        configs: Mapping[int, dict[str, Any]] | None = None,
        errors: Mapping[int, BaseException] | None = None,
    ) -> "ResultGrid":
        """The grid of an experiment that was read. By a trial's number, what the driver knows better than the files."""
        configs, errors = configs or {}, errors or {}
        results = [
            TrialResult(
                trial,
                experiment.path_of(trial),
                experiment.filesystem,
                configs.get(trial.number),
                errors.get(trial.number),
            )
            for trial in experiment.trials
        ]
        grid = cls(
            results,
            metric=experiment.metric,
            mode=experiment.mode,
            experiment_path=experiment.path,
            filesystem=experiment.filesystem,
        )
        grid._trainable_name = str(experiment.record.get("trainable") or "")
        return grid

    def __len__(self) -> int:
        return len(self._results)

    @overload
    def __getitem__(self, at: int) -> Result: ...
    @overload
    def __getitem__(self, at: slice) -> list[Result]: ...
    def __getitem__(self, at: int | slice) -> Result | list[Result]:
        return self._results[at]

    def __iter__(self) -> Iterator[Result]:
        return iter(self._results)

    def __repr__(self) -> str:
        return f"ResultGrid({len(self)} trials, {self.num_errors} error, path={self._path!r})"

    def views(self) -> "list[TrialView]":
        """The trials as a table shows them."""
        return [self._view(number, result) for number, result in enumerate(self._results)]

    def _view(self, number: int, result: Result) -> "TrialView":
        from carril.tune._console_trials import TrialView

        metrics = dict(result.metrics or {})
        if self._metric is not None and metrics and look_up(metrics, self._metric) is None:
            # GRID-3.
            counts = _score(result, self._metric, self._mode or "min", "last")
            metrics.update({} if counts is None else {self._metric: counts})
        view = TrialView(
            number,
            str(metrics.get("trial_id") or number),
            os.path.basename((result.path or "").rstrip("/")) or f"trial {number}",
            _status(result),
            result.config or {},
            metrics or None,
            int(metrics.get("training_iteration") or 0),
            float(metrics.get("time_total_s") or 0.0),
        )
        if not isinstance(result, TrialResult):
            return view
        trial = result._trial
        view = view._replace(number=trial.number, id=trial.id, name=trial.name, directory=trial.directory)
        if trial.is_over:
            view = view._replace(iterations=trial.iterations, seconds=trial.seconds)
        status = "stopped" if trial.early and trial.status == "terminated" else trial.status
        return view._replace(status=status, reason=trial.reason)

    def _repr_html_(self) -> str:
        """For a notebook: the trials, the best first."""
        from html import escape

        from carril.tune._console_table import TableOptions
        from carril.tune._console_trials import Trials
        from carril.tune._console_view import ExperimentView

        trials = Trials(self._metric, self._mode)
        for view in self.views():
            trials.put(view)
        name = os.path.basename((self._path or "").rstrip("/")) or "trials"
        shown = ExperimentView(name, trials, None, TableOptions(by_metric=True))
        shown.state = "finished"
        facts = " · ".join([name, *shown.facts()])
        best = shown.best()
        lines = [f"<b>{escape(facts)}</b>", *([f"best: {escape(best)}"] if best else [])]
        return f"<div>{'<br>'.join(lines)}{shown.html_table()}</div>"

    @property
    def experiment_path(self) -> str | None:
        """The experiment's directory."""
        return self._path

    @property
    def filesystem(self) -> Any:
        """The experiment's `storage_filesystem`; otherwise pyarrow's for its path, where pyarrow is installed, or None."""
        return self._filesystem if self._filesystem is not None else pyarrow_filesystem(self._path or "")

    @property
    def errors(self) -> list[BaseException]:
        """The error of each trial that failed."""
        return [result.error for result in self._results if result.error is not None]

    @property
    def num_errors(self) -> int:
        """How many trials failed."""
        return sum(_status(result) == "error" for result in self._results)

    @property
    def num_terminated(self) -> int:
        """How many trials came to their end without an error, by themselves or by a decision."""
        return sum(_status(result) == "terminated" for result in self._results)

    def get_best_result(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> Result:
        """The result of the trial that is best by a metric; of a single trial, that one.

        `scope` says which of a trial's values counts: its "last", the best of "all", the mean ("avg") or that of the
        last ones ("last-5-avg", "last-10-avg").
        """
        if len(self._results) == 1:
            return self._results[0]
        return self._results[self._best(metric, mode, scope, filter_nan_and_inf)]

    def _best(self, metric: str | None, mode: str | None, scope: str, finite: bool) -> int:
        """The place of the best result. GRID-2."""
        metric, mode = self._asked(metric, mode)
        scores = [_score(result, metric, mode, scope) for result in self._results]
        if all(score is None for score in scores):
            raise self._nobody_reports(metric)
        worth = (
            (score if mode == "max" else -score, -at)
            for at, score in enumerate(scores)
            if score is not None and (math.isfinite(score) if finite else not math.isnan(score))
        )
        best = max(worth, default=None)
        if best is None:
            kind = "NaN or infinite" if finite else "NaN"
            raise NotFoundError(
                f"no trial is the best: every value of `{metric}` is {kind}",
                hints=["`filter_nan_and_inf=False` lets infinite values count"] if finite else [],
            )
        return -best[1]

    def _asked(self, metric: str | None, mode: str | None) -> tuple[str, str]:
        metric, mode = metric or self._metric, mode or self._mode
        if metric is None:
            raise ConfigError(
                "there is no metric to judge the trials by",
                hints=[
                    "give it here: `get_best_result(metric='loss', mode='min')`, or to `TuneConfig(metric=, mode=)`"
                ],
            )
        if mode not in ("min", "max"):
            raise ConfigError(
                f"`mode` is {mode!r}: it must be 'min' or 'max'",
                hints=["give it beside the metric, or to `TuneConfig(metric=, mode=)`"],
            )
        return metric, mode

    def _nobody_reports(self, metric: str) -> NotFoundError:
        import difflib

        from carril.train._console_text import users

        known: dict[str, Any] = {}
        for result in self._results:
            known.update(users(result.metrics or {}))
        if metric in known:
            return NotFoundError(
                f"no trial can be judged by `{metric}`: it is {known[metric]!r}, which is not a number"
            )
        if not known:
            failed = self.num_errors
            hints = [f"{failed} of {len(self)} failed: `ResultGrid.errors` says why"] if failed else []
            return NotFoundError(f"no trial has reported the metric `{metric}`, or any other", hints=hints)
        names = [f"`{name}`" for name in sorted(known)]
        shown = ", ".join(names[:_METRICS_IN_AN_ERROR]) + (" …" if len(names) > _METRICS_IN_AN_ERROR else "")
        close = difflib.get_close_matches(metric, [*known, *AUTOMATIC_FIELDS], n=1)
        return NotFoundError(
            f"no trial has reported the metric `{metric}`; there are {shown}",
            hints=[f"did you mean `{name}`?" for name in close],
        )

    def get_dataframe(self, filter_metric: str | None = None, filter_mode: str | None = None) -> "pandas.DataFrame":
        """One row per trial: its last result, or with `filter_metric` the one that is best by it.

        The configuration is in columns `config/…`, the trial's directory in `logdir`.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError(
                "`get_dataframe` needs pandas, which is not installed\n"
                "hint: `pip install pandas`, or go through the grid: each result has `metrics` and `config`"
            ) from error
        rows: list[dict[str, Any]] = [result.metrics or {} for result in self._results]
        if filter_metric is not None:
            rows = self._best_rows(rows, *self._asked(filter_metric, filter_mode))
        return pandas.DataFrame([_flat_row(result, row) for result, row in zip(self._results, rows, strict=True)])

    def _best_rows(self, last: list[dict[str, Any]], metric: str, mode: str) -> list[dict[str, Any]]:
        """A trial that never reported the metric stays with its last row."""
        found = [_best_row(result, metric, mode) for result in self._results]
        if found and all(row is None for row in found):
            raise self._nobody_reports(metric)
        return [row if best is None else best for best, row in zip(found, last, strict=True)]


def _status(result: Result) -> str:
    if isinstance(result, TrialResult):
        return result.status
    return "terminated" if result.error is None else "error"


def rows_of(result: Result) -> list[dict[str, Any]]:
    """Every result of a trial, in order."""
    return (
        list(result._reports)
        if result.path is None
        else parse_lines(result._read("result.json"), f"{result.path}/result.json")
    )


def number_in(row: dict[str, Any], metric: str) -> float | None:
    """A metric's value; None where it is not there or no number."""
    value = look_up(row, metric)
    return float(value) if isinstance(value, (int, float)) else None


def _values(result: Result, metric: str) -> list[float]:
    found = (number_in(row, metric) for row in rows_of(result))
    return [value for value in found if value is not None]


def _score(result: Result, metric: str, mode: str, scope: str) -> float | None:
    """What a trial is worth in a scope; None if it never reported the metric."""
    if scope == "last":
        metrics: dict[str, Any] = result.metrics or {}
        last = number_in(metrics, metric)
        # GRID-1. Another report than the last may have had it, if there was another.
        if last is not None or metrics.get("training_iteration", 0) == 1 or not metrics:
            return last
        return next(reversed(_values(result, metric)), None)
    several = re.fullmatch(r"last-([1-9]\d*)-avg", scope)
    if scope not in ("all", "avg") and several is None:
        raise ConfigError(
            f"`scope` is {scope!r}: it must be 'last', 'all', 'avg', 'last-5-avg' or 'last-10-avg'",
        )
    values = _values(result, metric)
    if not values:
        return None
    if scope == "all":
        # NaN is passed over here, so that a trial that diverged late counts for what it had reached.
        choose = max if mode == "max" else min
        return choose((value for value in values if math.isfinite(value)), default=values[-1])
    if several is not None:
        values = values[-int(several[1]) :]
    return sum(values) / len(values)


def _best_row(result: Result, metric: str, mode: str) -> dict[str, Any] | None:
    best, best_value = None, math.nan
    for row in rows_of(result):
        value = number_in(row, metric)
        if value is None or math.isnan(value):
            continue
        if best is None or (value > best_value if mode == "max" else value < best_value):
            best, best_value = row, value
    return best


def _flat_row(result: Result, metrics: dict[str, Any]) -> dict[str, Any]:
    flat = {name: value for name, value in flatten(metrics).items() if not name.startswith("config/")}
    flat.pop("config", None)
    if isinstance(result, TrialResult):
        flat["trial_id"] = result.trial_id
    flat["logdir"] = result.path
    for name, value in flat_parameters(result.config or {}).items():
        flat[f"config/{name}"] = value
    return flat
