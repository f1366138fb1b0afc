"""PyTorch Lightning: callbacks that report, and save the trainer's checkpoint, at the events that are named.

The classes are made when they are first asked for, because they derive from one of Lightning's.
"""

import functools
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from carril.exceptions import NotAvailableError
from carril.integrations._common import library
from carril.tune.integration import _common
from carril.tune.integration._common import Metrics


class _Reports:
    """Reports metrics that the module has logged, at `on`, and with them a checkpoint of the trainer as `filename`.

    A metric that was not logged yet is left out, with a warning. Nothing is reported while Lightning checks its
    validation before the training.
    """

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = "checkpoint",
        save_checkpoints: bool = True,
        on: str | Sequence[str] = "validation_end",
    ) -> None:
        super().__init__()
        self._names = _common.by_name(metrics)
        self._filename = _common.file_name(filename)
        self._save_checkpoints = save_checkpoints
        known = [name.removeprefix("on_") for name in dir(_lightning().Callback) if name.startswith("on_")]
        for event in _common.hooks(on, known, "Lightning"):
            setattr(self, f"on_{event}", functools.partial(self._on_event, event))

    def _on_event(self, event: str, trainer: Any, module: Any = None, *arguments: Any) -> None:
        if trainer.sanity_checking:
            return
        metrics = self._metrics({name: value.item() for name, value in trainer.callback_metrics.items()})
        if not metrics:
            return
        if trainer.world_size > 1:
            # The other processes are Lightning's own: they are not in the trial, and cannot report to it.
            raise NotAvailableError(
                f"Lightning trains with {trainer.world_size} processes inside one trial, which is not built yet",
                hints=["let a trainer of `carril.train` start them, and report from that"],
            )
        _common.report(metrics, trainer.save_checkpoint if self._save_checkpoints else None, self._filename)

    def _metrics(self, logged: dict[str, Any]) -> dict[str, Any]:
        if self._names is None:
            return logged
        missing = [theirs for theirs in self._names.values() if theirs not in logged]
        if missing:
            names = ", ".join(f"`{name}`" for name in missing)
            warnings.warn(f"{names} was not logged, and is not reported", stacklevel=2)
        return {ours: logged[theirs] for ours, theirs in self._names.items() if theirs in logged}


class _ReportsOnly(_Reports):
    """Reports metrics that the module has logged, at `on`, without checkpoints."""

    def __init__(self, metrics: Metrics = None, on: str | Sequence[str] = "validation_end") -> None:
        super().__init__(metrics, save_checkpoints=False, on=on)


_CLASSES: dict[str, type] = {"TuneReportCheckpointCallback": _Reports, "TuneReportCallback": _ReportsOnly}


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    ours = _CLASSES[name]
    made = type(name, (ours, _lightning().Callback), {"__doc__": ours.__doc__, "__module__": __name__})
    globals()[name] = made
    return made


def _lightning() -> Any:
    """The one of the two packages that the script uses; `lightning` if that is not known."""
    import importlib.util

    older = "pytorch_lightning"
    is_older = sys.modules.get(older) is not None and "lightning.pytorch" not in sys.modules
    if is_older or (importlib.util.find_spec("lightning") is None and importlib.util.find_spec(older) is not None):
        return library(older, "PyTorch Lightning")
    return library("lightning.pytorch", "PyTorch Lightning", package="lightning")
