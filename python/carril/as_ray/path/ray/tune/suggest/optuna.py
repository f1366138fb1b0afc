"""`ray.tune.suggest.optuna`: the older path."""

from carril.tune.search.optuna import OptunaSearch

__all__ = ["OptunaSearch"]
