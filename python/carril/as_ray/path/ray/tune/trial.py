"""`ray.tune.trial`: the older path of a trial as callbacks see it."""

from carril.tune.schedulers._trial import Trial

__all__ = ["Trial"]
