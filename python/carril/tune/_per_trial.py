"""Callbacks of training in a search: each trial is a run to them, and has a copy of the callback for itself.

So Weights & Biases and MLflow, or a user's own `UserCallback`, tell of each trial what they tell of a run.
"""

import os
from typing import TYPE_CHECKING, Any

from carril._internal.spec import under_as_ray
from carril.exceptions import ConfigError, ConfigTypeError
from carril.train._callbacks import RunContext, UserCallback
from carril.tune.callback import Callback
from carril.tune.logger.logger import LoggerCallback

if TYPE_CHECKING:
    from carril.train._config import RunConfig
    from carril.tune.schedulers._trial import Trial


def callbacks_of(run_config: "RunConfig") -> list[Callback]:
    """Those of a search, with those of training made into such, and under `as-ray` those that the environment names."""
    given = [*run_config.callbacks, *(_of_environment() if under_as_ray() else ())]
    return [PerTrial(one, run_config) if isinstance(one, UserCallback) else one for one in given]


def _of_environment() -> "list[Callback]":
    """Ray's `RAY_TUNE_CALLBACKS`: classes by their paths, with commas between them."""
    import importlib

    found: list[Callback] = []
    for path in filter(None, (part.strip() for part in os.environ.get("RAY_TUNE_CALLBACKS", "").split(","))):
        module, _, name = path.rpartition(".")
        try:
            made = getattr(importlib.import_module(module), name)()
        except Exception as error:
            raise ConfigError(
                f"`RAY_TUNE_CALLBACKS` names `{path}`, which cannot be made: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(made, Callback):
            raise ConfigTypeError(f"`RAY_TUNE_CALLBACKS` names `{path}`, which is no `Callback`")
        found.append(made)
    return found


def _copied(callback: UserCallback) -> UserCallback:
    # Not by `copy`, which leaves out what must not be pickled: a key.
    made = object.__new__(type(callback))
    vars(made).update(vars(callback))
    return made


class PerTrial(LoggerCallback):
    """Calls a copy of `callback` for each trial."""

    def __init__(self, callback: UserCallback, run_config: "RunConfig") -> None:
        self._callback, self._run_config = callback, run_config
        self._begun: dict[str, tuple[UserCallback, RunContext]] = {}

    def log_trial_start(self, trial: "Trial") -> None:
        # One that was paused goes on as the same run.
        if trial.trial_id not in self._begun:
            context = self._context(trial)
            own = _copied(self._callback)
            self._begun[trial.trial_id] = (own, context)
            own.on_start(context)

    def log_trial_result(self, iteration: int, trial: "Trial", result: dict[str, Any]) -> None:
        if (begun := self._begun.get(trial.trial_id)) is not None:
            own, context = begun
            own.after_report(context, [{name: value for name, value in result.items() if name != "config"}], None)

    def log_trial_save(self, trial: "Trial") -> None:
        begun = self._begun.get(trial.trial_id)
        if begun is not None and trial.checkpoint is not None:
            own, context = begun
            own.on_checkpoint(context, trial.checkpoint, dict(trial.last_result))

    def log_trial_end(self, trial: "Trial", failed: bool = False) -> None:
        from carril.exceptions import UserCodeError

        self._end(trial, UserCodeError(trial.error or "the trial failed") if failed else None)

    def on_experiment_end(self, trials: "list[Trial]", **info: Any) -> None:
        from carril.exceptions import AbortedError

        # An experiment that is stopped leaves trials that have begun and not ended.
        for trial in trials:
            self._end(trial, AbortedError("the experiment was stopped before the trial had ended"))

    def _end(self, trial: "Trial", error: Exception | None) -> None:
        from carril.exceptions import UserCodeError
        from carril.train._result import Metrics, Result

        begun = self._begun.pop(trial.trial_id, None)
        if begun is None:
            return
        own, context = begun
        if isinstance(error, UserCodeError):
            own.after_exception(context, {0: error})
        own.on_end(context, Result(Metrics(trial.last_result), trial.checkpoint, error, trial.local_path))

    def _context(self, trial: "Trial") -> RunContext:
        from carril.train._config import ScalingConfig

        return RunContext(
            run_id=trial.trial_id,
            run_config=self._run_config,
            train_loop_config=trial.config,
            scaling_config=ScalingConfig(num_workers=1),
            backend_config=None,
            name=trial.trial_name,
            path=trial.local_path or "",
        )
