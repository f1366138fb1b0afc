"""`ray.tune.schedulers.async_hyperband`."""

from carril.tune.schedulers.async_hyperband import ASHAScheduler, AsyncHyperBandScheduler

__all__ = ["ASHAScheduler", "AsyncHyperBandScheduler"]
