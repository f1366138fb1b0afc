"""Callbacks that a run of training has under `as-ray` beside `UserCallback`s: those of a search, and of the environment.

In the older generation a run was the only trial of a search, and `RunConfig(callbacks=[…])` took callbacks of Tune.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigError, kind_of
from carril.train import UserCallback

if TYPE_CHECKING:
    from carril.train import Checkpoint, Result, RunContext
    from carril.tune.callback import Callback

_VARIABLE = "RAY_TRAIN_CALLBACKS"


def is_of_search(callback: object) -> bool:
    """Whether it is a callback of Tune. Where nobody has imported that, there is none."""
    module = sys.modules.get("carril.tune.callback")
    return module is not None and isinstance(callback, module.Callback)


def check(given: list[Any]) -> None:
    """Refuses what is no callback, of a run or of a search."""
    for one in given:
        if not isinstance(one, UserCallback) and not is_of_search(one):
            raise ConfigError(
                f"`RunConfig.callbacks` holds {kind_of(one)}: it must be a `UserCallback`, or a `Callback` of Tune",
                hints=["derive its class from `ray.train.UserCallback`, and give an instance"],
            )


def callbacks_of(given: list[Any], backend_config: object = None) -> list[Any]:
    """Those that were given, as callbacks of a run, those that the environment names, and a backend's hooks."""
    backend = getattr(backend_config, "backend_cls", None)
    hooks = []
    if backend is not None:
        from carril.as_ray.backend import Hooks

        hooks = [Hooks(backend())]
    return [*hooks, *(AsTrial(one) if is_of_search(one) else one for one in given), *_from_environment()]


def _from_environment() -> list[Any]:
    paths = [path.strip() for path in os.environ.get(_VARIABLE, "").split(",")]
    return [_made(path) for path in paths if path]


def _made(path: str) -> Any:
    module, _, name = path.rpartition(".")
    try:
        if not module:
            raise ValueError("it must be the path of a class: `module.Class`")
        made = getattr(importlib.import_module(module), name)()
        if not isinstance(made, UserCallback):
            raise TypeError("it is not a `UserCallback`")
        return made
    except Exception as error:
        raise ConfigError(f"`{_VARIABLE}` names `{path}`, which cannot be used: {error}") from error


class AsTrial(UserCallback):
    """Tells a callback of Tune of a run as of the one trial of a search."""

    def __init__(self, callback: "Callback") -> None:
        self._callback = callback
        self._trial: Any = None
        self._reports = 0

    def on_start(self, run_context: "RunContext") -> None:
        if self._trial is not None:
            # Started again after a failure.
            self._tell("on_trial_recover")
            return
        from carril.tune.schedulers._trial import Trial

        self._trial = Trial(
            trial_id=f"{run_context.run_id[:5]}_00000",
            config={"train_loop_config": run_context.train_loop_config or {}},
            experiment_tag="0",
            trainable_name=run_context.name,
            local_path=run_context.path,
            resources=dict(run_context.scaling_config.total_resources),
        )
        self._trial.status = Trial.RUNNING
        self._callback.setup(stop=None, num_samples=1, total_num_samples=1)
        self._tell("on_trial_start")

    def on_full_report(self, run_context: "RunContext", metrics: dict[str, Any]) -> None:
        """A report with the automatic fields, which a callback of Tune relies on."""
        self._reports += 1
        self._trial.last_result = {**metrics, "config": self._trial.config}
        self._tell("on_trial_result", result=dict(self._trial.last_result))

    def on_checkpoint(self, run_context: "RunContext", checkpoint: "Checkpoint", metrics: dict[str, Any]) -> None:
        self._trial.checkpoint = checkpoint
        self._tell("on_checkpoint", checkpoint=checkpoint)
        self._tell("on_trial_save")

    def on_end(self, run_context: "RunContext", result: "Result") -> None:
        if self._trial is None:
            return
        self._trial.status = self._trial.TERMINATED if result.error is None else self._trial.ERROR
        self._trial.error = None if result.error is None else str(result.error)
        self._tell("on_trial_complete" if result.error is None else "on_trial_error")
        self._callback.on_experiment_end(trials=[self._trial])

    def _tell(self, method: str, **what: Any) -> None:
        getattr(self._callback, method)(iteration=self._reports, trials=[self._trial], trial=self._trial, **what)
