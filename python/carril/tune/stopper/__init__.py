"""Stoppers: what ends a trial, or the whole experiment, beside the scheduler."""

from carril.tune.stopper._given import as_stopper
from carril.tune.stopper._limits import MaximumIterationStopper, TimeoutStopper
from carril.tune.stopper._plateaus import ExperimentPlateauStopper, TrialPlateauStopper
from carril.tune.stopper.stopper import CombinedStopper, FunctionStopper, NoopStopper, Stopper

__all__ = [
    "CombinedStopper",
    "ExperimentPlateauStopper",
    "FunctionStopper",
    "MaximumIterationStopper",
    "NoopStopper",
    "Stopper",
    "TimeoutStopper",
    "TrialPlateauStopper",
    "as_stopper",
]
