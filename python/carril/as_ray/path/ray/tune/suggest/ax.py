"""`ray.tune.suggest.ax`: the older path."""

from carril.tune.search.ax import AxSearch

__all__ = ["AxSearch"]
