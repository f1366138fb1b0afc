"""`ray.tune.search.bohb`."""

from carril.tune.search.bohb import TuneBOHB

__all__ = ["TuneBOHB"]
