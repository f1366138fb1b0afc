"""`ray.tune.suggest.hyperopt`: the older path."""

from carril.tune.search.hyperopt import HyperOptSearch

__all__ = ["HyperOptSearch"]
