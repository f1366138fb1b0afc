"""`ray.tune.result_grid`."""

from carril.tune import ResultGrid

__all__ = ["ResultGrid"]
