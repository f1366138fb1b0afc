"""XGBoost: a callback that reports after each round of boosting.

The classes are made when they are first asked for, because they derive from one of XGBoost's.
"""

from collections.abc import Callable, Mapping
from typing import Any

from carril.integrations._common import library
from carril.tune.integration import _common
from carril.tune.integration._common import Metrics

MODEL_FILE = "model.ubj"


class _Reports:
    """Reports the evaluation results after each round as `<data>-<metric>`, and saves the model.

    With `frequency` a checkpoint is made every so many rounds, with `checkpoint_at_end` after the last one.
    `results_postprocessing_fn` may change what is reported: with `xgboost.cv`, a metric is a pair.
    """

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = MODEL_FILE,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        super().__init__()
        self._names = _common.by_name(metrics)
        self._filename = _common.file_name(filename)
        self._frequency = _common.frequency_of(frequency)
        self._checkpoint_at_end = checkpoint_at_end
        self._change = results_postprocessing_fn
        self._last: dict[str, Any] = {}
        self._saved = 0

    @staticmethod
    def get_model(checkpoint: Any, filename: str = MODEL_FILE) -> Any:
        """The model of a checkpoint that this callback has made."""
        import os

        booster = library("xgboost", "XGBoost").Booster()
        with checkpoint.as_directory() as directory:
            booster.load_model(os.path.join(directory, filename))
        return booster

    def after_iteration(self, model: Any, epoch: int, evals_log: Mapping[str, Mapping[str, list[Any]]]) -> bool:
        found = {f"{data}-{name}": values[-1] for data, log in evals_log.items() for name, values in log.items()}
        self._last = _common.chosen(self._names, found)
        if self._change is not None:
            self._last = self._change(self._last)
        if self._frequency and (epoch + 1) % self._frequency == 0:
            self._saved = model.num_boosted_rounds()
            _common.report(self._last, model.save_model, self._filename)
        else:
            _common.report(self._last)
        return False

    def after_training(self, model: Any) -> Any:
        # Cross-validation has many models, and no one to save.
        if self._checkpoint_at_end and hasattr(model, "save_model") and self._saved != model.num_boosted_rounds():
            _common.keep(self._last, model.save_model, self._filename)
        return model


class _ReportsOnly(_Reports):
    """Reports the evaluation results after each round, without checkpoints."""

    def __init__(self, metrics: Metrics = None, **kwargs: Any) -> None:
        super().__init__(metrics, checkpoint_at_end=False, **kwargs)


_CLASSES: dict[str, type] = {"TuneReportCheckpointCallback": _Reports, "TuneReportCallback": _ReportsOnly}


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    base = library("xgboost.callback", "XGBoost", package="xgboost").TrainingCallback
    ours = _CLASSES[name]
    made = type(name, (ours, base), {"__doc__": ours.__doc__, "__module__": __name__})
    globals()[name] = made
    return made
