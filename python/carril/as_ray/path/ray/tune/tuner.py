"""`ray.tune.tuner`."""

from carril.tune import Tuner

__all__ = ["Tuner"]
