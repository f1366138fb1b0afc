"""`ray.tune.experiment.trial`."""

from carril.tune.schedulers._trial import Trial

__all__ = ["Trial"]
