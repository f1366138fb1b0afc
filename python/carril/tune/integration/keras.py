"""Keras: callbacks that report, and save the model, at the events that are named.

The classes are made when they are first asked for, because they derive from one of Keras's.
"""

import functools
from collections.abc import Sequence
from typing import Any

from carril.integrations._common import library
from carril.tune.integration import _common
from carril.tune.integration._common import Metrics

_EVENTS = (
    "batch_begin",
    "batch_end",
    "epoch_begin",
    "epoch_end",
    "predict_batch_begin",
    "predict_batch_end",
    "predict_begin",
    "predict_end",
    "test_batch_begin",
    "test_batch_end",
    "test_begin",
    "test_end",
    "train_batch_begin",
    "train_batch_end",
    "train_begin",
    "train_end",
)


class _Reports:
    """Reports the logs of Keras at `report_metrics_on`, and with them the model as a checkpoint at `checkpoint_on`.

    `on` is an older name for both. With `frequency` only every so many of these events make a checkpoint.
    """

    model: Any

    def __init__(
        self,
        checkpoint_on: str | Sequence[str] = "epoch_end",
        report_metrics_on: str | Sequence[str] = "epoch_end",
        metrics: Metrics = None,
        *,
        filename: str = "model.keras",
        frequency: int = 1,
        on: str | Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        if on is not None:
            checkpoint_on = report_metrics_on = on
        self._names = _common.by_name(metrics)
        self._filename = _common.file_name(filename)
        self._frequency = _common.frequency_of(frequency)
        self._saving = _common.hooks(checkpoint_on, _EVENTS, "Keras") if self._frequency else []
        self._reporting = _common.hooks(report_metrics_on, _EVENTS, "Keras")
        self._seen = 0
        # On the object, and only these: Keras leaves out the work for events that nobody listens to.
        for event in {*self._saving, *self._reporting}:
            setattr(self, f"on_{event}", functools.partial(self._on_event, event))

    def _on_event(self, event: str, *arguments: Any) -> None:
        # The logs come last, after the number of the epoch or batch if there is one.
        metrics = _common.chosen(self._names, arguments[-1] or {})
        if event in self._saving:
            self._seen += 1
            if self._seen % self._frequency == 0:
                _common.report(metrics, self.model.save, self._filename)
                return
        if event in self._reporting:
            _common.report(metrics)


class _ReportsOnly(_Reports):
    """Reports the logs of Keras at `on`, without checkpoints."""

    def __init__(self, metrics: Metrics = None, on: str | Sequence[str] = "epoch_end") -> None:
        super().__init__(report_metrics_on=on, metrics=metrics, frequency=0)


_CLASSES: dict[str, type] = {"TuneReportCheckpointCallback": _Reports, "TuneReportCallback": _ReportsOnly}


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    ours = _CLASSES[name]
    made = type(name, (ours, _keras().callbacks.Callback), {"__doc__": ours.__doc__, "__module__": __name__})
    globals()[name] = made
    return made


def _keras() -> Any:
    """Keras on its own, or the one inside an older TensorFlow."""
    import importlib.util

    if importlib.util.find_spec("keras") is None and importlib.util.find_spec("tensorflow") is not None:
        return library("tensorflow.keras", "Keras", package="keras")
    return library("keras", "Keras")
