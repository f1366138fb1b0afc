"""`ray.air.result`."""

from carril.train import Result

__all__ = ["Result"]
