"""`ray.tune.search.optuna`."""

from carril.tune.search.optuna import OptunaSearch

__all__ = ["OptunaSearch"]
