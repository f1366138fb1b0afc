"""`ray.tune.suggest.bohb`: the older path."""

from carril.tune.search.bohb import TuneBOHB

__all__ = ["TuneBOHB"]
