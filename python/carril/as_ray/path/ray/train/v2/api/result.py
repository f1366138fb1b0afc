"""`ray.train.v2.api.result`."""

from carril.train import Result

__all__ = ["Result"]
