"""`ray.tune.schedulers.hyperband`."""

from carril.tune.schedulers.hyperband import HyperBandScheduler

__all__ = ["HyperBandScheduler"]
