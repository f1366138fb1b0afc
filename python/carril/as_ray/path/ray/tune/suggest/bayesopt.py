"""`ray.tune.suggest.bayesopt`: the older path."""

from carril.tune.search.bayesopt import BayesOptSearch

__all__ = ["BayesOptSearch"]
