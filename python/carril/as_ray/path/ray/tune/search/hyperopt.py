"""`ray.tune.search.hyperopt`."""

from carril.tune.search.hyperopt import HyperOptSearch

__all__ = ["HyperOptSearch"]
