"""`ray.tune.suggest.suggestion`: the older path of the base class and of the limit."""

from carril.tune.search import ConcurrencyLimiter, Searcher

__all__ = ["ConcurrencyLimiter", "Searcher"]
