"""`ray.tune.schedulers.median_stopping_rule`."""

from carril.tune.schedulers.median_stopping_rule import MedianStoppingRule

__all__ = ["MedianStoppingRule"]
