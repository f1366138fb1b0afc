"""`ray.tune.search.zoopt`."""

from carril.tune.search.zoopt import ZOOptSearch

__all__ = ["ZOOptSearch"]
