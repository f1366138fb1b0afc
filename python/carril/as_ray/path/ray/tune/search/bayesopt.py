"""`ray.tune.search.bayesopt`."""

from carril.tune.search.bayesopt import BayesOptSearch

__all__ = ["BayesOptSearch"]
