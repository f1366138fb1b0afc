"""`ray.tune.search.searcher`."""

from carril.tune.search.searcher import Searcher

__all__ = ["Searcher"]
