"""`ray.tune.suggest.zoopt`: the older path."""

from carril.tune.search.zoopt import ZOOptSearch

__all__ = ["ZOOptSearch"]
