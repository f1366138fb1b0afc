"""The older view of an experiment, which `tune.run` returns: trials, and what is best about them.

All of it stands on a `ResultGrid`. What the older interface calls a trial is a light object over one of its results;
dataframes and checkpoints are read when they are asked for.
"""

import os
from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigError, NotFoundError
from carril.train._locations import joined
from carril.train._result import Result, flatten
from carril.tune._result_grid import ResultGrid, TrialResult, number_in, rows_of
from carril.tune._stored import StoredExperiment, flat_parameters, read_experiment
from carril.tune.schedulers._trial import TrialNames

if TYPE_CHECKING:
    import pandas

    from carril.train._checkpoint import Checkpoint

__all__ = ["ExperimentAnalysis", "Trial"]


class Trial(TrialNames):
    """One trial of an experiment that is looked at. `status` is as older scripts compare it: "TERMINATED", "ERROR" …"""

    def __init__(self, result: Result, trainable_name: str = "") -> None:
        self._result = result
        self.trainable_name = trainable_name

    @property
    def custom_trial_name(self) -> str | None:
        """The name that the experiment's files have."""
        return self._result._trial.name if isinstance(self._result, TrialResult) else None

    @property
    def resources(self) -> dict[str, float]:
        return self._result._trial.resources if isinstance(self._result, TrialResult) else {}

    @property
    def trial_id(self) -> str:
        if isinstance(self._result, TrialResult):
            return self._result.trial_id
        return str(self.last_result.get("trial_id", ""))

    @property
    def experiment_tag(self) -> str:
        return str(self.last_result.get("experiment_tag", ""))

    @property
    def status(self) -> str:
        if isinstance(self._result, TrialResult):
            return self._result.status.upper()
        return "TERMINATED" if self._result.error is None else "ERROR"

    @property
    def config(self) -> dict[str, Any]:
        return self._result.config or {}

    @property
    def evaluated_params(self) -> dict[str, Any]:
        """The configuration with nested keys as `a/b`."""
        return flat_parameters(self.config)

    @property
    def last_result(self) -> dict[str, Any]:
        return self._result.metrics if self._result.metrics is not None else {}

    @property
    def local_path(self) -> str | None:
        return self._result.path

    @property
    def checkpoint(self) -> "Checkpoint | None":
        return self._result.checkpoint

    @property
    def error(self) -> BaseException | None:
        return self._result.error

    @property
    def error_file(self) -> str | None:
        return joined(self.path, "error.txt") if self.status == "ERROR" and self.path else None

    @property
    def metric_analysis(self) -> dict[str, dict[str, float]]:
        """Of each number that was reported: `max`, `min`, `avg`, `last`, `last-5-avg`, `last-10-avg`."""
        values: dict[str, list[float]] = {}
        for row in rows_of(self._result):
            for name in flatten(row):
                value = number_in(row, name) if not name.startswith("config/") else None
                if value is not None:
                    values.setdefault(name, []).append(value)
        return {name: _summary(found) for name, found in values.items()}


def _summary(values: list[float]) -> dict[str, float]:
    def mean(some: list[float]) -> float:
        return sum(some) / len(some)

    return {
        "max": max(values),
        "min": min(values),
        "avg": mean(values),
        "last": values[-1],
        "last-5-avg": mean(values[-5:]),
        "last-10-avg": mean(values[-10:]),
    }


class ExperimentAnalysis:
    """The trials of an experiment: of a path (local or a URI), or of a `ResultGrid`."""

    def __init__(
        self,
        experiment_checkpoint_path: "str | os.PathLike[str] | ResultGrid | StoredExperiment",
        default_metric: str | None = None,
        default_mode: str | None = None,
        *,
        storage_filesystem: Any = None,
    ) -> None:
        """`default_metric` and `default_mode` are those of the experiment, if nothing is given."""
        if default_mode not in (None, "min", "max"):
            raise ConfigError(f"`default_mode` is {default_mode!r}: it must be 'min' or 'max'")
        given = experiment_checkpoint_path
        if not isinstance(given, (ResultGrid, StoredExperiment)):
            given = read_experiment(given, storage_filesystem)
        self._experiment = given if isinstance(given, StoredExperiment) else None
        self._grid = ResultGrid.of(given) if isinstance(given, StoredExperiment) else given
        self.default_metric = default_metric or self._grid._metric
        self.default_mode = default_mode or self._grid._mode
        self.trials = [Trial(result, self._grid._trainable_name) for result in self._grid]

    @property
    def experiment_path(self) -> str | None:
        return self._grid.experiment_path

    @property
    def best_trial(self) -> "Trial | None":
        """The trial whose last result is the best by the default metric."""
        return self.get_best_trial()

    def _the_best(self) -> Trial:
        """That trial, where something is asked of it."""
        best = self.best_trial
        if best is None:
            raise NotFoundError(f"no trial is the best by `{self.default_metric}`")
        return best

    @property
    def best_config(self) -> dict[str, Any] | None:
        best = self.best_trial
        return None if best is None else best.config

    @property
    def best_checkpoint(self) -> "Checkpoint | None":
        return self.get_best_checkpoint(self._the_best())

    @property
    def best_logdir(self) -> str | None:
        return self._the_best().path

    @property
    def best_result(self) -> dict[str, Any]:
        return self._the_best().last_result

    @property
    def best_dataframe(self) -> "pandas.DataFrame":
        """Every result of the best trial."""
        return self._the_best()._result.metrics_dataframe

    @property
    def best_result_df(self) -> "pandas.DataFrame":
        """The last result of the best trial, in one row."""
        return _by_trial_id([self._the_best()])

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """The last result of each trial, by the trial's id."""
        return {trial.trial_id: trial.last_result for trial in self.trials}

    @property
    def results_df(self) -> "pandas.DataFrame":
        return _by_trial_id(self.trials)

    @property
    def trial_dataframes(self) -> "dict[str, pandas.DataFrame]":
        """Every result of each trial, by the trial's id."""
        return {trial.trial_id: trial._result.metrics_dataframe for trial in self.trials}

    def dataframe(self, metric: str | None = None, mode: str | None = None) -> "pandas.DataFrame":
        """One row per trial: its last result, or with `metric` the one that is best by it."""
        return self._grid.get_dataframe(metric, mode or self.default_mode)

    def get_best_trial(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> "Trial | None":
        """The best trial; see `ResultGrid.get_best_result`. None, with a warning, where none has a value that counts."""
        if len(self.trials) == 1:
            return self.trials[0]
        if not (metric or self.default_metric):
            raise ConfigError(
                "there is no metric to judge the trials by",
                hints=["give it to `tune.run(metric='loss', mode='min')`, or to `get_best_trial` and its kin"],
            )
        try:
            at = self._grid._best(metric or self.default_metric, mode or self.default_mode, scope, filter_nan_and_inf)
        except NotFoundError as error:
            import warnings

            warnings.warn(f"there is no best trial: {str(error).partition(chr(10))[0]}", stacklevel=2)
            return None
        return self.trials[at]

    def get_best_config(
        self, metric: str | None = None, mode: str | None = None, scope: str = "last"
    ) -> dict[str, Any] | None:
        best = self.get_best_trial(metric, mode, scope)
        return None if best is None else best.config

    def get_best_logdir(self, metric: str | None = None, mode: str | None = None, scope: str = "last") -> str | None:
        best = self.get_best_trial(metric, mode, scope)
        return None if best is None else best.path

    def get_best_checkpoint(
        self, trial: "Trial | str | os.PathLike[str]", metric: str | None = None, mode: str | None = None
    ) -> "Checkpoint | None":
        """The checkpoint of a trial that is best by a metric, without one the newest; None if it has none.

        `trial` is one of `trials`, its id or its directory.
        """
        result = self._find(trial)._result
        if not result.best_checkpoints:
            return None
        metric = metric or self.default_metric
        return result.get_best_checkpoint(
            metric or "training_iteration", mode or (self.default_mode if metric else None) or "max"
        )

    def get_last_checkpoint(
        self, trial: "Trial | str | os.PathLike[str] | None" = None, metric: str | None = None, mode: str | None = None
    ) -> "Checkpoint | None":
        """The newest checkpoint of a trial; of the best one, by `metric` or the default, if none is given."""
        found = self.get_best_trial(metric, mode) if trial is None else self._find(trial)
        return None if found is None else found.checkpoint

    def get_all_configs(self, prefix: bool = False) -> dict[str, dict[str, Any]]:
        """Each trial's configuration, by the trial's id; with `prefix` its keys as `config/…`."""
        configs = {trial.trial_id: trial.config for trial in self.trials}
        if not prefix:
            return configs
        return {trial: {f"config/{name}": value for name, value in config.items()} for trial, config in configs.items()}

    def stats(self) -> dict[str, Any]:
        """When the experiment began and ended, and how many trials are in each state."""
        record = self._experiment.record if self._experiment is not None else {}
        states: dict[str, int] = {}
        for trial in self.trials:
            states[trial.status] = states.get(trial.status, 0) + 1
        return {
            "start_time": record.get("created"),
            "end_time": record.get("ended"),
            "status": record.get("status"),
            "num_trials": len(self.trials),
            "trials_by_status": states,
        }

    def _find(self, trial: "Trial | str | os.PathLike[str]") -> Trial:
        if isinstance(trial, Trial):
            return trial
        text = os.fspath(trial)
        for known in self.trials:
            if text in (known.trial_id, known.path):
                return known
        raise NotFoundError(f"no trial of the experiment has the id or the directory `{text}`")

    def __repr__(self) -> str:
        return f"ExperimentAnalysis({len(self.trials)} trials, path={self.experiment_path!r})"


def _by_trial_id(trials: list[Trial]) -> "pandas.DataFrame":
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            "`results_df` needs pandas, which is not installed\n"
            "hint: `pip install pandas`, or use `results`, which needs nothing"
        ) from error
    rows = [flatten(trial.last_result) for trial in trials]
    return pandas.DataFrame(rows, index=pandas.Index([trial.trial_id for trial in trials], name="trial_id"))
