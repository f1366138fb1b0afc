"""LightGBM: a callback that reports after each round of boosting."""

from collections.abc import Callable
from typing import Any

from carril.integrations._common import library
from carril.tune.integration import _common
from carril.tune.integration._common import Metrics

MODEL_FILE = "model.txt"


class TuneReportCheckpointCallback:
    """Reports the evaluation results after each round as `<data>-<metric>`, and saves the model.

    With `frequency` a checkpoint is made every so many rounds, with `checkpoint_at_end` at the last one. Results of
    `lightgbm.cv` end in `-mean` and `-stdv`. `results_postprocessing_fn` may change what is reported.
    """

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = MODEL_FILE,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        library("lightgbm", "LightGBM")
        self._names = _common.by_name(metrics)
        self._filename = _common.file_name(filename)
        self._frequency = _common.frequency_of(frequency)
        self._checkpoint_at_end = checkpoint_at_end
        self._change = results_postprocessing_fn

    @staticmethod
    def get_model(checkpoint: Any, filename: str = MODEL_FILE) -> Any:
        """The model of a checkpoint that this callback has made."""
        import os

        with checkpoint.as_directory() as directory:
            return library("lightgbm", "LightGBM").Booster(model_file=os.path.join(directory, filename))

    def __call__(self, env: Any) -> None:
        metrics = _common.chosen(self._names, _results(env.evaluation_result_list or []))
        if self._change is not None:
            metrics = self._change(metrics)
        rounds = env.iteration + 1
        is_due = self._frequency > 0 and rounds % self._frequency == 0
        is_last = self._checkpoint_at_end and rounds == env.end_iteration
        if is_due or is_last:
            _common.report(metrics, env.model.save_model, self._filename)
        else:
            _common.report(metrics)


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports the evaluation results after each round, without checkpoints."""

    def __init__(self, metrics: Metrics = None, **kwargs: Any) -> None:
        super().__init__(metrics, checkpoint_at_end=False, **kwargs)


def _results(rows: list[Any]) -> dict[str, float]:
    results: dict[str, float] = {}
    for data, metric, value, _, *deviation in rows:
        # A fifth value is there with cross-validation.
        name = f"{data}-{metric}"
        results[f"{name}-mean" if deviation else name] = value
        if deviation:
            results[f"{name}-stdv"] = deviation[0]
    return results
