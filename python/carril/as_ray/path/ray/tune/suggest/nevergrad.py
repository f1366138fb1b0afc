"""`ray.tune.suggest.nevergrad`: the older path."""

from carril.tune.search.nevergrad import NevergradSearch

__all__ = ["NevergradSearch"]
