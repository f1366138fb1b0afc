"""`ray.tune.search.ax`."""

from carril.tune.search.ax import AxSearch

__all__ = ["AxSearch"]
