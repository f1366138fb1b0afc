"""`ray.tune.schedulers.hb_bohb`."""

from carril.tune.schedulers.hb_bohb import HyperBandForBOHB

__all__ = ["HyperBandForBOHB"]
