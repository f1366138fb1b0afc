"""`ray.tune.search.nevergrad`."""

from carril.tune.search.nevergrad import NevergradSearch

__all__ = ["NevergradSearch"]
