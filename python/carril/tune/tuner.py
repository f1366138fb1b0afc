"""The tuner: what is searched, how, and where it is kept. `fit()` searches."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigError, NotFoundError, StorageError
from carril.train._config import RunConfig, coerce
from carril.tune._config import TuneConfig
from carril.tune._plan import Plan, Resuming, make_plan

if TYPE_CHECKING:
    from carril.tune._result_grid import ResultGrid


class Tuner:
    """Searches for the best config of a function, a class or a trainer.

    Every trial is the trainable with a config that is drawn from `param_space`. Making a tuner starts nothing and checks
    what can be checked. A trial that fails does not stop the others: the results tell of it.
    """

    def __init__(
        self,
        trainable: Any = None,
        *,
        param_space: Mapping[str, Any] | None = None,
        tune_config: TuneConfig | Mapping[str, Any] | None = None,
        run_config: RunConfig | Mapping[str, Any] | None = None,
        _resuming: Resuming | None = None,
    ) -> None:
        self._plan: Plan = make_plan(
            trainable,
            param_space,
            coerce(TuneConfig, tune_config, "tune_config"),
            coerce(RunConfig, run_config, "run_config"),
            _resuming,
        )
        self._results: ResultGrid | None = None

    def __getattribute__(self, name: str) -> Any:
        if name == "restore":
            raise AttributeError(
                "`restore` makes a tuner: it is called on the class\nhint: `Tuner.restore(path, trainable)`"
            )
        return super().__getattribute__(name)

    def fit(self) -> "ResultGrid":
        """Searches to the end and returns the results of all trials.

        An experiment of the same name that did not finish goes on: what has ended is not run again.
        """
        from carril.tune._fit import fit

        self._results = fit(self._plan)
        return self._results

    def get_results(self) -> "ResultGrid":
        """What `fit()` returned, or what a restored experiment has so far."""
        if self._results is None:
            from carril._internal import spec
            from carril.train._locations import joined
            from carril.tune._result_grid import ResultGrid
            from carril.tune._stored import read_experiment

            if self._plan.resuming is None:
                raise RuntimeError("there are no results yet\nhint: call `fit()` first")
            place = joined(spec.storage_path(self._plan.run_config), self._plan.name)
            stored = read_experiment(place, spec.storage_filesystem(self._plan.run_config))
            self._results = ResultGrid.of(stored)
        return self._results

    @classmethod
    def restore(
        cls,
        path: "str | os.PathLike[str]",
        trainable: Any,
        resume_unfinished: bool = True,
        resume_errored: bool = False,
        restart_errored: bool = False,
        param_space: Mapping[str, Any] | None = None,
        storage_filesystem: Any = None,
        *,
        tune_config: TuneConfig | Mapping[str, Any] | None = None,
        run_config: RunConfig | Mapping[str, Any] | None = None,
    ) -> "Tuner":
        """A tuner whose `fit()` resumes the experiment in `path`, wherever that has been moved to.

        Trials that finished are not run again, unfinished ones go on from their checkpoints. `resume_errored` has those
        that failed go on as well. The space, the searcher and the scheduler are what the experiment had, as far as they
        could be kept (`tuner.pkl`, which is unpickled: `path` must be one that you trust); what is given here goes first.
        """
        from carril.tune._restore import restore

        resuming = Resuming(resume_unfinished, resume_errored, restart_errored)
        if resume_errored and restart_errored:
            raise ConfigError("`resume_errored` and `restart_errored` contradict each other")
        given = {"param_space": param_space, "tune_config": tune_config, "run_config": run_config}
        return restore(cls, path, trainable, resuming, given, storage_filesystem)

    @classmethod
    def can_restore(cls, path: "str | os.PathLike[str]", storage_filesystem: Any = None) -> bool:
        """True if there is an experiment in `path` that `restore(path, trainable)` can resume.

        False where its `tuner.pkl` is missing or damaged: `restore` says what to give instead. Nothing is unpickled.
        """
        from carril.tune._restore import is_restorable

        try:
            return is_restorable(path, storage_filesystem)
        except (NotFoundError, StorageError):
            return False

    def __repr__(self) -> str:
        return f"Tuner({self._plan.trainable_name}, param_space={self._plan.space})"
