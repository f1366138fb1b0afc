"""`ray.tune.schedulers.pb2`."""

from carril.tune.schedulers.pb2 import PB2

__all__ = ["PB2"]
